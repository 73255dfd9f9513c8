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
  readApp,
  readAudiences,
  readJson,
  readTokenId,
  readUser,
  refuseSubscriptionToken,
} from '../../../auth/claims.js';
import { MAX_PATTERNS, Rights, readRights } from '../../../auth/rights.js';
import { sourcesOf } from '../../../auth/strict-json.js';
import { claimFault, TokenError } from '../../../auth/token-error.js';
import { readTime, readTimes } from '../../../auth/token-times.js';
import { isChannel, roomPatternsOf } from './channels.js';

/** @import { Apps } from '../../../auth/claims.js' */
/** @import { ReadClaims } from '../../../auth/verifier.js' */
/** @import { RoomRight } from '../../../auth/rights.js' */

/** Seconds to send a new token after the old one has expired. */
export const GRACE_S = 25;
const MAX_CHANNELS = 100;
const PATTERN = /^[\x21-\x7e]{1,255}$/;
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

/** The identity of a connection token. */
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

/** The identity of a subscription token: its user may be '' as well. */
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
  return (claims, nowS, settings, apps, source) => {
    refuseSubscriptionToken(claims);
    const given = { ...settings, apps, source };
    const { common, endS } = readCommon(claims, nowS, given, isLenient);
    const { rights, hasRights } = rightsOf(claims);
    const subscriptions = readSubscriptions(claims, source ?? null);
    const parts = { ...common, rights, audiences: readAudiences(claims) };
    return new ChannelIdentity(parts, { endS, hasRights, subscriptions });
  };
}

/** @param {boolean} isLenient @returns {ReadClaims} of subscription tokens */
export function subscriptionReader(isLenient) {
  return (claims, nowS, settings, apps, source) => {
    // An anonymous client's subscription token has no user either.
    const withUser = { ...claims, sub: claims.sub ?? '' };
    const given = { ...settings, apps, source };
    const { common, endS } = readCommon(withUser, nowS, given, isLenient, true);
    const { channel } = claims;
    if (channel === undefined)
      throw claimFault('channel', 'it is missing, and a subscription token names its channel');
    if (typeof channel !== 'string' || !isChannel(channel))
      throw claimFault('channel', 'it is not the name of a channel');
    const data = readJson('data', claims.data, claims.b64data, source ?? null);
    return new SubscriptionIdentity({ ...common, rights: NO_RIGHTS }, { channel, endS, data });
  };
}

const NO_RIGHTS = new Rights({ join: [], publish: [], presence: [], history: [], audience: [] });

/**
 * @param {Record<string, unknown>} claims @param {number} nowS
 * @param {Parameters<ReadClaims>[2] & {apps?: Apps|null, source?: Buffer|null}} settings
 * @param {boolean} isLenient @param {boolean} [mayBeAnonymous]
 */
function readCommon(claims, nowS, settings, isLenient, mayBeAnonymous = isLenient) {
  const { source = null } = settings;
  checkParties(claims, settings);
  const { exp, iat } = readTimes(claims, nowS, {
    maxLifetimeS: isLenient ? Number.POSITIVE_INFINITY : settings.maxLifetimeS,
    needsEnd: !isLenient,
    needsStart: false,
  });
  const user = readUser(claims, source);
  if (user === '' && !mayBeAnonymous)
    throw claimFault('sub', 'it is missing or empty, and FANFARE_CENTRIFUGO_TOKENS is strict');
  const tokenId = readTokenId(claims);
  if (readApp(claims, settings.apps ?? null) !== null)
    throw new TokenError('app', {
      claim: 'app',
      why: 'the token is for an app, and the channels of this door are native rooms',
    });
  const endS = Math.ceil(readTime(claims, 'expire_at') ?? exp ?? 0);
  const common = {
    user,
    tokenId,
    issuedAtMs: (iat ?? 0) * 1000,
    expiresAtMs: endS === 0 ? Number.POSITIVE_INFINITY : (endS + GRACE_S) * 1000,
    mayBroadcast: false,
    autojoin: NO_ROOMS,
    info: readJson('info', claims.info, claims.b64info, source),
  };
  return { common, endS };
}

/** @param {Record<string, unknown>} claims @returns {{rights: Rights, hasRights: boolean}} */
function rightsOf({ rooms, caps }) {
  const native = readRights(rooms);
  if (native === null) throw claimFault('rooms', 'it is not an object with lists of room patterns');
  if (caps === undefined) return { rights: native, hasRights: rooms !== undefined };
  /** @type {Record<RoomRight, string[]>} */
  const lists = { join: [], publish: [], presence: [], history: [], audience: [] };
  const given = /** @type {Partial<Record<RoomRight, string[]>>} */ (rooms ?? {});
  for (const right of CAPABILITIES.values()) lists[right].push(...(given[right] ?? []));
  if (!Array.isArray(caps) || caps.length > MAX_PATTERNS)
    throw claimFault('caps', `it is not a list of up to ${MAX_PATTERNS} objects`);
  for (const capability of caps) addCapability(lists, capability);
  if (Object.values(lists).some(({ length }) => length > 2 * MAX_PATTERNS))
    throw claimFault('caps', `with rooms it has over ${2 * MAX_PATTERNS} patterns for one right`);
  return { rights: new Rights(lists), hasRights: true };
}

/** @param {Record<RoomRight, string[]>} lists @param {unknown} capability */
function addCapability(lists, capability) {
  const { channels, match = '', allow } = /** @type {Record<string, unknown>} */ (capability ?? {});
  // Regular expressions are not supported: they can take exponential time.
  const isWildcard = match === 'wildcard';
  const isList = (/** @type {unknown} */ list) =>
    Array.isArray(list) && list.length <= MAX_PATTERNS;
  if (!(isWildcard || match === ''))
    throw claimFault(
      'caps',
      'match may only be wildcard or absent: there are no regular expressions',
    );
  if (!isList(channels) || !isList(allow))
    throw claimFault('caps', `channels and allow are lists of up to ${MAX_PATTERNS}`);
  for (const pattern of /** @type {unknown[]} */ (channels)) {
    if (typeof pattern !== 'string' || !PATTERN.test(pattern))
      throw claimFault('caps', 'channels has something that is not the name of a channel');
    if (!isWildcard && pattern.includes('*'))
      throw claimFault('caps', 'a * in channels needs "match": "wildcard"');
    for (const name of /** @type {unknown[]} */ (allow)) {
      const right = CAPABILITIES.get(name);
      if (right !== undefined) lists[right].push(...roomPatternsOf(pattern));
    }
  }
}

/**
 * @param {Record<string, unknown>} claims @param {Buffer|null} source
 * @returns {ReadonlyMap<string, ServerSubscription>}
 */
function readSubscriptions({ channels = [], subs = {} }, source) {
  if (!Array.isArray(channels)) throw claimFault('channels', 'it is not a list');
  if (typeof subs !== 'object' || subs === null) throw claimFault('subs', 'it is not an object');
  /** @type {Map<string, ServerSubscription>} */
  const subscriptions = new Map(channels.map((channel) => [channel, NO_DATA]));
  const given = Object.entries(subs);
  const sources = source === null || given.length === 0 ? null : sourcesOf(source).get('subs');
  // A list passes as an object without names.
  const optionSources = sources && !Array.isArray(subs) ? sourcesOf(sources) : null;
  for (const [channel, options] of given) {
    const { data, b64data } = /** @type {Record<string, unknown>} */ (options ?? {});
    const own = data === undefined ? null : (optionSources?.get(channel) ?? null);
    subscriptions.set(channel, { data: readJson('data', data, b64data, own) });
  }
  const isValid = (/** @type {unknown} */ name) => typeof name === 'string' && isChannel(name);
  if (subscriptions.size > MAX_CHANNELS)
    throw claimFault('channels', `with subs it names over ${MAX_CHANNELS} channels`);
  if (![...subscriptions.keys()].every(isValid))
    throw claimFault('channels', 'it or subs has something that is not the name of a channel');
  return subscriptions;
}

/** @type {ServerSubscription} */
const NO_DATA = Object.freeze({ data: null });
