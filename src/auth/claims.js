// claims.js: the claims of a verified token as an identity.
//
// The registered claims (RFC 7519 4.1) are checked first, then Fanfare's own. A claim of the wrong
// shape makes the token invalid, because a misread right is worse. Unknown claims are ignored.

import { isRoomPattern } from '../config/room-patterns.js';
import { isOfApp, namesOf } from '../protocol/app-names.js';
import { MAX_INFO_BYTES } from '../protocol/decode.js';
import { ALL_ROOMS, readRights } from './rights.js';
import { TokenError } from './token-error.js';

/** Clocks differ, so times in a token may be off by this much. */
export const LEEWAY_S = 5;
const MAX_USER_LENGTH = 128;
/** A publication carries its sender as ASCII, after one byte for the length. */
export const MAX_SENDER_BYTES = 255;
const MAX_TOKEN_ID_LENGTH = 256;
const MAX_AUTOJOIN = 100;
/** Control characters and lone surrogates are not allowed in names. */
const UNPRINTABLE = /[\p{Cc}\p{Cs}]/u;

/** @import { App } from '../config/pusher.js' */
/** The apps that tokens may name, by id. @typedef {ReadonlyMap<string, App>} Apps */

export class Identity {
  /**
   * @param {object} parts
   * @param {string} parts.user `sub`, unique over all apps @param {string|null} parts.tokenId `jti`
   * @param {number} parts.issuedAtMs `iat` @param {number} parts.expiresAtMs `exp`
   * @param {import('./rights.js').Rights} parts.rights
   * @param {boolean} parts.mayBroadcast `broadcast`
   * @param {readonly string[]} parts.autojoin rooms to join on connect, which it may
   * @param {Buffer|null} parts.info JSON that presence shows
   */
  constructor({ user, tokenId, issuedAtMs, expiresAtMs, rights, mayBroadcast, autojoin, info }) {
    this.user = user;
    this.tokenId = tokenId;
    this.issuedAtMs = issuedAtMs;
    this.expiresAtMs = expiresAtMs;
    this.rights = rights;
    this.mayBroadcast = mayBroadcast;
    this.autojoin = autojoin;
    this.info = info;
  }

  /** Null: its rooms and users are native. @returns {App|null} */
  get app() {
    return null;
  }

  /** As clients see the user. */
  get name() {
    return this.user;
  }

  /** Does presence show the same about the user? @param {Identity} other */
  hasInfoOf({ info }) {
    return this.info === null || info === null ? this.info === info : this.info.equals(info);
  }

  /** @param {string} name which the client uses for a room */
  mayJoin(name) {
    return this.rights.join.has(name) || this.autojoin.includes(name);
  }

  /** @param {string} name as above @returns {string} the room */
  roomOf(name) {
    return name;
  }

  /** @param {string} room @returns {string|null} null: its client cannot name it */
  nameOf(room) {
    return isOfApp(room) ? null : room;
  }

  /**
   * For a user whom the application names without a token. Revoking the user closes only earlier
   * connections: the application is asked about new ones.
   * @param {string} user @param {Buffer|null} info
   */
  static named(user, info) {
    return new Identity({
      ...{ user, info, tokenId: null, rights: ALL_ROOMS, mayBroadcast: false, autojoin: NO_ROOMS },
      issuedAtMs: Date.now(),
      expiresAtMs: Number.POSITIVE_INFINITY,
    });
  }
}

/** For tokens that name an app. Patterns of rooms, and `autojoin`, use names in the app. */
export class AppIdentity extends Identity {
  /** @param {ConstructorParameters<typeof Identity>[0]} parts @param {App} app */
  constructor(parts, app) {
    const names = namesOf(app);
    const { user, tokenId } = parts;
    // An app cannot revoke another one's tokens.
    const own = { user: names.userOf(user), tokenId: tokenId && names.userOf(tokenId) };
    super({ ...parts, ...own });
    this.ownApp = app;
  }

  /** @override */
  get app() {
    return this.ownApp;
  }

  /** @override */
  get name() {
    return namesOf(this.ownApp).nameOfUser(this.user);
  }

  /** @override @param {string} name */
  roomOf(name) {
    return namesOf(this.ownApp).roomOf(name);
  }

  /** @override @param {string} room */
  nameOf(room) {
    return namesOf(this.ownApp).nameOf(room);
  }
}

/** @type {readonly string[]} */
const NO_ROOMS = Object.freeze([]);

/**
 * @param {Record<string, unknown>} claims with a valid signature @param {number} nowS
 * @param {Pick<import('../config/tokens.js').TokenSettings,
 *   'audience'|'issuer'|'maxLifetimeS'|'hasSubscriptionTokens'>} settings
 * @param {Apps|null} [apps] null: there are none
 * @returns {Identity} @throws {TokenError}
 */
export function readIdentity(claims, nowS, settings, apps = null) {
  const { sub, jti, exp, iat, broadcast = false, autojoin = NO_ROOMS, info } = claims;
  checkParties(claims, settings);
  // Elsewhere `channel` is an unknown claim, such as an identity provider may add.
  if (settings.hasSubscriptionTokens) refuseSubscriptionToken(claims);
  checkTimes(claims, nowS, settings.maxLifetimeS);
  if (!isUser(sub) || (jti !== undefined && !isTokenId(jti))) throw new TokenError('claims');
  const app = readApp(claims, apps);
  if (!Array.isArray(autojoin) || autojoin.length > MAX_AUTOJOIN || !autojoin.every(isRoomName))
    throw new TokenError('claims');
  const rights = readRights(claims.rooms);
  if (rights === null || typeof broadcast !== 'boolean') throw new TokenError('claims');
  // A broadcast goes to the connections of all apps.
  if (app !== null && broadcast) throw new TokenError('claims');
  const infoText = info === undefined ? null : Buffer.from(JSON.stringify(info));
  if (infoText !== null && infoText.length > MAX_INFO_BYTES) throw new TokenError('claims');
  const parts = {
    user: sub,
    tokenId: jti ?? null,
    issuedAtMs: Number(iat) * 1000,
    expiresAtMs: Number(exp) * 1000,
    rights,
    mayBroadcast: broadcast,
    autojoin: autojoin.length === 0 ? NO_ROOMS : autojoin,
    info: infoText,
  };
  return app === null ? new Identity(parts) : new AppIdentity(parts, app);
}

/**
 * A token for another program may also have a claim `app`. It is refused, because a token for an
 * app must not open native rooms.
 * @param {Record<string, unknown>} claims @param {Apps|null} apps
 * @returns {App|null} null: the token names none
 */
export function readApp({ app: id, sub, jti }, apps) {
  if (id === undefined) {
    // Such names stand for users of apps in revocations, limits and the HTTP API.
    const isFalse = apps !== null && [sub, jti].some((one) => isOfApp(String(one ?? '')));
    if (isFalse) throw new TokenError('claims');
    return null;
  }
  if (typeof id !== 'string') throw new TokenError('claims');
  const app = apps?.get(id);
  if (app === undefined || !app.isEnabled) throw new TokenError('app');
  return app;
}

/**
 * RFC 7519 4.1.1, 4.1.3: `aud` is a text or a list of texts, `iss` a text.
 * @param {Record<string, unknown>} claims
 * @param {{audience: readonly string[], issuer: readonly string[]}} allowed empty: not checked
 */
export function checkParties({ aud, iss }, { audience, issuer }) {
  const given = Array.isArray(aud) ? aud : [aud];
  if (audience.length > 0 && !given.some((one) => audience.includes(one)))
    throw new TokenError('audience');
  if (issuer.length > 0 && !issuer.some((one) => one === iss)) throw new TokenError('issuer');
}

/**
 * A subscription token names its user, but is given to read one channel: it opens no connection.
 * @param {Record<string, unknown>} claims
 */
export function refuseSubscriptionToken({ channel }) {
  if (typeof channel === 'string' && channel !== '') throw new TokenError('kind');
}

/** @param {Record<string, unknown>} claims @param {number} nowS @param {number} maxLifetimeS */
function checkTimes({ exp, nbf, iat }, nowS, maxLifetimeS) {
  if (!isTime(exp) || !isTimeOrAbsent(nbf)) throw new TokenError('claims');
  if (exp <= nowS - LEEWAY_S) throw new TokenError('expired');
  // Without `iat`, a token with a long lifetime would be accepted again near its end, when its
  // revocation has been forgotten.
  if (!isTime(iat)) throw new TokenError('claims');
  if (Math.max(nbf ?? 0, iat) > nowS + LEEWAY_S) throw new TokenError('not_yet_valid');
  // A revocation is kept until every earlier token has expired, so no token may live longer.
  if (exp - Math.min(iat, nowS) > maxLifetimeS + LEEWAY_S) throw new TokenError('lifetime');
}

/** @param {unknown} value @returns {value is number|undefined} */
export function isTimeOrAbsent(value) {
  return value === undefined || isTime(value);
}

/**
 * RFC 7519 2, NumericDate: seconds, perhaps with a fraction. In JSON, 1e999 is infinite.
 * @param {unknown} value @returns {value is number}
 */
function isTime(value) {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

/** @param {unknown} value @returns {value is string} */
export function isUser(value) {
  return (
    typeof value === 'string' &&
    value !== '' &&
    value.length <= MAX_USER_LENGTH &&
    !UNPRINTABLE.test(value) &&
    // As a sender, each character takes at most six bytes.
    (value.length * 6 <= MAX_SENDER_BYTES || asciiJson(value).length <= MAX_SENDER_BYTES)
  );
}

/** @param {unknown} value @returns {value is string} */
export function isTokenId(value) {
  return typeof value === 'string' && value !== '' && value.length <= MAX_TOKEN_ID_LENGTH;
}

/** @param {unknown} value */
function isRoomName(value) {
  return isRoomPattern(value) && !value.includes('*');
}

/** For the sender of a publication: ASCII, JSON without its quotes. @param {string} text */
export function asciiJson(text) {
  return JSON.stringify(text)
    .slice(1, -1)
    .replace(
      /[\u0080-\uffff]/g,
      (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
    );
}
