// claims.js: the claims of a verified token as an identity.
//
// The registered claims (RFC 7519 4.1) are checked first, then Fanfare's own. A claim of the wrong
// shape makes the token invalid, because a misread right is worse. Unknown claims are ignored.

import { isRoomPattern } from '../config/room-patterns.js';
import { isOfApp, namesOf } from '../protocol/app-names.js';
import { MAX_HELD } from '../protocol/audiences.js';
import { isPayload, MAX_INFO_BYTES } from '../protocol/decode.js';
import {
  ALL_ROOMS,
  HOLDS_NONE,
  MAX_PATTERNS,
  ROOM_RIGHTS,
  readHeldAudiences,
  readRights,
} from './rights.js';
import { compact, sourcesOf } from './strict-json.js';
import { claimFault, TokenError } from './token-error.js';
import { readTimes } from './token-times.js';

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
   * @param {import('./rights.js').HeldAudiences} [parts.audiences]
   */
  constructor(parts) {
    const { user, tokenId, issuedAtMs, expiresAtMs, rights, mayBroadcast, autojoin, info } = parts;
    this.user = user;
    this.tokenId = tokenId;
    this.issuedAtMs = issuedAtMs;
    this.expiresAtMs = expiresAtMs;
    this.rights = rights;
    this.mayBroadcast = mayBroadcast;
    this.autojoin = autojoin;
    this.info = info;
    this.audiences = parts.audiences ?? HOLDS_NONE;
  }

  /** The same user with more audiences. @param {readonly string[]} names */
  withAudiences(names) {
    if (names.length === 0) return this;
    const copy = Object.create(Object.getPrototypeOf(this));
    return Object.assign(copy, this, { audiences: this.audiences.plus(names) });
  }

  /** Null: its rooms and users are native. @returns {App|null} */
  get app() {
    return null;
  }

  /** The user's name, as clients see it. */
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
   * A user whom the application names without a token. Revoking the user closes only earlier
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

/** A token's identity in an app. Patterns of rooms, and `autojoin`, use names in the app. */
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
 * @param {Buffer|null} [source] of the claims; without it, `info` and `sub` are as JSON.parse has them
 * @returns {Identity} @throws {TokenError}
 */
export function readIdentity(claims, nowS, settings, apps = null, source = null) {
  checkParties(claims, settings);
  // Elsewhere `channel` is an unknown claim, such as an identity provider may add.
  if (settings.hasSubscriptionTokens) refuseSubscriptionToken(claims);
  const { maxLifetimeS } = settings;
  // A token with a long lifetime and no `iat` would be accepted again near its end, when its
  // revocation has been forgotten. It is kept until every earlier token has expired, so no token
  // may live longer.
  const times = readTimes(claims, nowS, { maxLifetimeS, needsEnd: true, needsStart: true });
  const user = readUser(claims, source);
  if (user === '') throw claimFault('sub', 'it is missing or empty');
  const tokenId = readTokenId(claims);
  const app = readApp(claims, apps);
  const rights = readRights(claims.rooms);
  if (rights === null)
    throw claimFault(
      'rooms',
      `it is not an object with lists of up to ${MAX_PATTERNS} room patterns: ${ROOM_RIGHTS.join(', ')}`,
    );
  const parts = {
    user,
    tokenId,
    issuedAtMs: Number(times.iat) * 1000,
    expiresAtMs: Number(times.exp) * 1000,
    rights,
    mayBroadcast: readBroadcast(claims, app),
    autojoin: readAutojoin(claims),
    info: readJson('info', claims.info, undefined, source),
    audiences: readAudiences(claims),
  };
  return app === null ? new Identity(parts) : new AppIdentity(parts, app);
}

/**
 * The claim `sub`. Backends that number their users sign integers: they stand for their digits.
 * @param {Record<string, unknown>} claims @param {Buffer|null} source as above
 * @returns {string} '': there is none
 */
export function readUser({ sub = '' }, source) {
  if (typeof sub === 'number') return digitsOf(sub, source);
  if (typeof sub !== 'string') throw claimFault('sub', 'it is neither a string nor an integer');
  if (sub !== '' && !isUser(sub))
    throw claimFault(
      'sub',
      `it has over ${MAX_USER_LENGTH} characters, over ${MAX_SENDER_BYTES} bytes as ASCII in JSON, or control characters`,
    );
  return sub;
}

/** @param {number} sub @param {Buffer|null} source */
function digitsOf(sub, source) {
  const text = source === null ? String(sub) : String(sourcesOf(source).get('sub'));
  if (!/^-?\d{1,30}$/.test(text)) throw claimFault('sub', 'as a number it has to be an integer');
  return text;
}

/**
 * @param {Record<string, unknown>} claims whose `rooms` has been read
 * @returns {import('./rights.js').HeldAudiences}
 */
export function readAudiences({ audiences, rooms }) {
  const held = readHeldAudiences(audiences, rooms);
  if (held !== null) return held;
  throw claimFault(
    'audiences',
    `it, or one in rooms, is not a list of up to ${MAX_HELD} names of 1 to 64 characters`,
  );
}

/** @param {Record<string, unknown>} claims @returns {string|null} */
export function readTokenId({ jti }) {
  if (jti === undefined) return null;
  if (typeof jti === 'string' && jti !== '' && jti.length <= MAX_TOKEN_ID_LENGTH) return jti;
  throw claimFault('jti', `it is not a string of 1 to ${MAX_TOKEN_ID_LENGTH} characters`);
}

/** @param {Record<string, unknown>} claims @param {App|null} app */
function readBroadcast({ broadcast = false }, app) {
  if (typeof broadcast !== 'boolean') throw claimFault('broadcast', 'it is not true or false');
  if (broadcast && app !== null)
    throw claimFault('broadcast', 'a broadcast reaches all apps, and the token is for one');
  return broadcast;
}

/** @param {Record<string, unknown>} claims @returns {readonly string[]} */
function readAutojoin({ autojoin = NO_ROOMS }) {
  if (!Array.isArray(autojoin) || autojoin.length > MAX_AUTOJOIN || !autojoin.every(isRoomName))
    throw claimFault('autojoin', `it is not a list of up to ${MAX_AUTOJOIN} names of rooms`);
  return autojoin.length === 0 ? NO_ROOMS : autojoin;
}

/**
 * A value for clients, as its signer wrote it, without spaces between tokens.
 * @param {string} name of the value @param {unknown} value @param {unknown} base64 of JSON, instead
 * @param {Buffer|null} source of the object that has the value; null: as JSON.parse has it
 * @returns {Buffer|null} JSON; null: neither
 */
export function readJson(name, value, base64, source) {
  if (value === undefined && base64 === undefined) return null;
  let json;
  if (value === undefined) {
    const bytes =
      typeof base64 === 'string' && BASE64.test(base64) && Buffer.from(base64, 'base64');
    if (!bytes || !isPayload(bytes)) throw claimFault(`b64${name}`, 'it is not JSON in base64');
    json = compact(bytes);
  } else if (source === null) json = Buffer.from(JSON.stringify(value));
  else json = compact(/** @type {Buffer} */ (sourcesOf(source).get(name)));
  if (json.length > MAX_INFO_BYTES)
    throw claimFault(name, `it has ${json.length} bytes, at most ${MAX_INFO_BYTES}`);
  return json;
}

const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

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
    if (isFalse) throw claimFault('sub', 'it, or jti, has the form of names of an app');
    return null;
  }
  if (typeof id !== 'string') throw claimFault('app', 'it is not a string');
  const app = apps?.get(id);
  if (app === undefined || !app.isEnabled) throw new TokenError('app', { claim: 'app' });
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
    throw new TokenError('audience', { claim: 'aud' });
  if (issuer.length > 0 && !issuer.some((one) => one === iss))
    throw new TokenError('issuer', { claim: 'iss' });
}

/**
 * A subscription token names its user, but is given to read one channel: it opens no connection.
 * @param {Record<string, unknown>} claims
 */
export function refuseSubscriptionToken({ channel }) {
  if (typeof channel === 'string' && channel !== '')
    throw new TokenError('kind', { claim: 'channel' });
}

/** @param {unknown} value @returns {value is string} */
export function isUser(value) {
  return (
    typeof value === 'string' &&
    value !== '' &&
    value.length <= MAX_USER_LENGTH &&
    !UNPRINTABLE.test(value) &&
    // Each character of a sender takes at most six bytes.
    (value.length * 6 <= MAX_SENDER_BYTES || asciiJson(value).length <= MAX_SENDER_BYTES)
  );
}

/** @param {unknown} value */
function isRoomName(value) {
  return isRoomPattern(value) && !value.includes('*');
}

/** The sender of a publication: a text as ASCII, JSON without its quotes. @param {string} text */
export function asciiJson(text) {
  return JSON.stringify(text)
    .slice(1, -1)
    .replace(
      /[\u0080-\uffff]/g,
      (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
    );
}
