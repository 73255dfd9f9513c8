// tokens.js: the claims of Centrifugo's tokens.
//
// A connection token names the user, a subscription token a channel for that user. Strict tokens
// have an end and a user, like native ones. Lenient tokens may lack both. Without `iat`, any
// revocation of the user ends the token. Rights are those of native tokens (`rooms`), or `caps`.
//
// `override` and `chan_info` have no counterpart here and are ignored. Channels are native rooms,
// so a token of an app is refused.

import {
  checkParties,
  Identity,
  isTimeOrAbsent,
  isTokenId,
  isUser,
  LEEWAY_S,
  readApp,
  refuseSubscriptionToken,
} from '../../auth/claims.js';
import { MAX_PATTERNS, Rights, readRights } from '../../auth/rights.js';
import { TokenError } from '../../auth/token-error.js';
import { MAX_INFO_BYTES } from '../../protocol/decode.js';
import { isChannel, roomPatternsOf } from './channels.js';

/** @import { Apps } from '../../auth/claims.js' */
/** @import { ReadClaims } from '../../auth/verifier.js' */
/** @import { RoomRight } from '../../auth/rights.js' */

/** Seconds to send a new token after the old one has expired. */
export const GRACE_S = 25;
const MAX_CHANNELS = 100;
const PATTERN = /^[\x21-\x7e]{1,255}$/;
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
/** @type {readonly string[]} */
const NO_ROOMS = Object.freeze([]);

/** Our names for rights of `caps`. @type {ReadonlyMap<unknown, RoomRight>} */
const CAPABILITIES = new Map([
  ['sub', 'join'],
  ['pub', 'publish'],
  ['prs', 'presence'],
  ['hst', 'history'],
]);

/** A subscription by the server. @typedef {{data: Buffer|null}} ServerSubscription */

/** Of a connection token. */
export class ChannelIdentity extends Identity {
  /**
   * @param {ConstructorParameters<typeof Identity>[0]} parts @param {object} own
   * @param {number} own.endS when a new token is due, in seconds since 1970; 0: never
   * @param {boolean} own.hasRights the token states what it permits
   * @param {ReadonlyMap<string, ServerSubscription>} own.subscriptions by channel
   */
  constructor(parts, { endS, hasRights, subscriptions }) {
    super(parts);
    this.endS = endS;
    this.hasRights = hasRights;
    this.subscriptions = subscriptions;
  }
}

/** Of a subscription token: its user may be '' as well. */
export class SubscriptionIdentity extends Identity {
  /**
   * @param {ConstructorParameters<typeof Identity>[0]} parts @param {object} own
   * @param {string} own.channel @param {number} own.endS 0: with the connection
   * @param {Buffer|null} own.data JSON for the client
   */
  constructor(parts, { channel, endS, data }) {
    super(parts);
    this.channel = channel;
    this.endS = endS;
    this.data = data;
  }
}

/** @param {boolean} isLenient @returns {ReadClaims} of connection tokens */
export function connectionReader(isLenient) {
  return (claims, nowS, settings, apps) => {
    refuseSubscriptionToken(claims);
    const { common, endS } = readCommon(claims, nowS, { ...settings, apps }, isLenient);
    const { channels, subs } = claims;
    const { rights, hasRights } = rightsOf(claims);
    const subscriptions = readSubscriptions(channels, subs);
    return new ChannelIdentity({ ...common, rights }, { endS, hasRights, subscriptions });
  };
}

/** @param {boolean} isLenient @returns {ReadClaims} of subscription tokens */
export function subscriptionReader(isLenient) {
  return (claims, nowS, settings, apps) => {
    // An anonymous client's subscription token has no user either.
    const withUser = { ...claims, sub: claims.sub ?? '' };
    const { common, endS } = readCommon(withUser, nowS, { ...settings, apps }, isLenient, true);
    const { channel } = claims;
    if (typeof channel !== 'string' || !isChannel(channel)) throw new TokenError('claims');
    const data = readJson(claims.data, claims.b64data);
    return new SubscriptionIdentity({ ...common, rights: NO_RIGHTS }, { channel, endS, data });
  };
}

const NO_RIGHTS = new Rights({ join: [], publish: [], presence: [], history: [] });

/**
 * @param {Record<string, unknown>} claims @param {number} nowS
 * @param {Parameters<ReadClaims>[2] & {apps?: Apps|null}} settings @param {boolean} isLenient
 * @param {boolean} [mayBeAnonymous]
 */
function readCommon(claims, nowS, settings, isLenient, mayBeAnonymous = isLenient) {
  const { sub = '', jti, iat } = claims;
  checkParties(claims, settings);
  const endS = readEnd(claims, nowS, isLenient ? Number.POSITIVE_INFINITY : settings.maxLifetimeS);
  if (typeof sub !== 'string' || (sub === '' ? !mayBeAnonymous : !isUser(sub)))
    throw new TokenError('claims');
  if (jti !== undefined && !isTokenId(jti)) throw new TokenError('claims');
  if (readApp(claims, settings.apps ?? null) !== null) throw new TokenError('app');
  const common = {
    user: sub,
    tokenId: jti ?? null,
    issuedAtMs: Number(iat ?? 0) * 1000,
    expiresAtMs: endS === 0 ? Number.POSITIVE_INFINITY : (endS + GRACE_S) * 1000,
    mayBroadcast: false,
    autojoin: NO_ROOMS,
    info: readJson(claims.info, claims.b64info),
  };
  return { common, endS };
}

/**
 * @param {Record<string, unknown>} claims @param {number} nowS
 * @param {number} maxLifetimeS Infinity: it may lack an end
 * @returns {number} when a new token is due, in seconds since 1970; 0: never
 */
function readEnd({ exp, nbf, iat, expire_at: expireAt }, nowS, maxLifetimeS) {
  if (![exp, nbf, iat, expireAt].every(isTimeOrAbsent)) throw new TokenError('claims');
  const end = /** @type {number|undefined} */ (exp);
  if (end === undefined && Number.isFinite(maxLifetimeS)) throw new TokenError('claims');
  if (end !== undefined && end <= nowS - LEEWAY_S) throw new TokenError('expired');
  if (Math.max(Number(nbf ?? 0), Number(iat ?? 0)) > nowS + LEEWAY_S)
    throw new TokenError('not_yet_valid');
  const beganS = Math.min(Number(iat ?? nowS), nowS);
  if (end !== undefined && end - beganS > maxLifetimeS + LEEWAY_S) throw new TokenError('lifetime');
  return expireAt === undefined ? Math.ceil(end ?? 0) : Math.ceil(Number(expireAt));
}

/** @param {Record<string, unknown>} claims @returns {{rights: Rights, hasRights: boolean}} */
function rightsOf({ rooms, caps }) {
  const native = readRights(rooms);
  if (native === null) throw new TokenError('claims');
  if (caps === undefined) return { rights: native, hasRights: rooms !== undefined };
  /** @type {Record<RoomRight, string[]>} */
  const lists = { join: [], publish: [], presence: [], history: [] };
  const given = /** @type {Partial<Record<RoomRight, string[]>>} */ (rooms ?? {});
  for (const right of CAPABILITIES.values()) lists[right].push(...(given[right] ?? []));
  if (!Array.isArray(caps) || caps.length > MAX_PATTERNS) throw new TokenError('claims');
  for (const capability of caps) addCapability(lists, capability);
  if (Object.values(lists).some(({ length }) => length > 2 * MAX_PATTERNS))
    throw new TokenError('claims');
  return { rights: new Rights(lists), hasRights: true };
}

/** @param {Record<RoomRight, string[]>} lists @param {unknown} capability */
function addCapability(lists, capability) {
  const { channels, match = '', allow } = /** @type {Record<string, unknown>} */ (capability ?? {});
  // Regular expressions are not supported: they can take exponential time.
  const isWildcard = match === 'wildcard';
  const isList = (/** @type {unknown} */ list) =>
    Array.isArray(list) && list.length <= MAX_PATTERNS;
  if (!(isWildcard || match === '') || !isList(channels) || !isList(allow))
    throw new TokenError('claims');
  for (const pattern of /** @type {unknown[]} */ (channels)) {
    if (typeof pattern !== 'string' || !PATTERN.test(pattern)) throw new TokenError('claims');
    if (!isWildcard && pattern.includes('*')) throw new TokenError('claims');
    for (const name of /** @type {unknown[]} */ (allow)) {
      const right = CAPABILITIES.get(name);
      if (right !== undefined) lists[right].push(...roomPatternsOf(pattern));
    }
  }
}

/**
 * @param {unknown} channels @param {unknown} subs
 * @returns {ReadonlyMap<string, ServerSubscription>}
 */
function readSubscriptions(channels = [], subs = {}) {
  if (!Array.isArray(channels) || typeof subs !== 'object' || subs === null)
    throw new TokenError('claims');
  /** @type {Map<string, ServerSubscription>} */
  const subscriptions = new Map(channels.map((channel) => [channel, NO_DATA]));
  for (const [channel, options] of Object.entries(subs)) {
    const { data, b64data } = /** @type {Record<string, unknown>} */ (options ?? {});
    subscriptions.set(channel, { data: readJson(data, b64data) });
  }
  const isValid = (/** @type {unknown} */ name) => typeof name === 'string' && isChannel(name);
  if (subscriptions.size > MAX_CHANNELS || ![...subscriptions.keys()].every(isValid))
    throw new TokenError('claims');
  return subscriptions;
}

/** @type {ServerSubscription} */
const NO_DATA = Object.freeze({ data: null });

/** @param {unknown} value @param {unknown} base64 of JSON @returns {Buffer|null} null: neither */
function readJson(value, base64) {
  if (value === undefined && base64 === undefined) return null;
  let text = value === undefined ? '' : JSON.stringify(value);
  if (value === undefined) {
    if (typeof base64 !== 'string' || !BASE64.test(base64)) throw new TokenError('claims');
    try {
      text = JSON.stringify(JSON.parse(Buffer.from(base64, 'base64').toString()));
    } catch {
      throw new TokenError('claims'); // the parser's message quotes the text
    }
  }
  const json = Buffer.from(text);
  if (json.length > MAX_INFO_BYTES) throw new TokenError('claims');
  return json;
}
