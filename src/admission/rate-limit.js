// rate-limit.js: limits messages and frames by connection, client address and user.
//
// A message costs a token for each started 4 KB, and in a large room the same again for each
// started hundred further members. A stream of server-sent events costs a token for each room. A
// broadcast costs the same again from a separate bucket of its address. Frames that are not whole
// messages have a bucket per connection.

import { BYTES_PER_TOKEN, Rate } from './rate.js';
import { RefusedNames } from './refused.js';

/** A message costs its tokens again for each started hundred of members in this worker. */
export const MEMBERS_PER_TOKEN = 100;
/** Refused messages are counted per minute. */
const REFUSED_WINDOW_MS = 60_000;
/** Per table. Above it the oldest bucket is deleted, and its owner gets a full one. */
const MAX_BUCKETS = 65_536;
/** Free reads of a connection that returns: 512 KB, far above what clients miss on average. */
const FREE_READ_TOKENS = 128;
/** The bucket of free reads is full again after the time for which a replay is recent. */
const FREE_READ_REFILL_S = 140;
const MAX_FREE_READ_TOKENS = 1_000_000;
/** Buckets to examine in one sweep, which takes under a millisecond. */
const SWEEP_BUCKETS = 8192;

/**
 * What a message to a room costs in addition. The work is in its deliveries, so that is what the
 * limits bound: with 3,600 messages a minute, an address causes 6,000 deliveries a second in a
 * worker, whatever the size of the room.
 * @param {number} members of the room in this worker @param {number} bytes of the message
 */
export function tokensOfMembers(members, bytes) {
  const more = Math.ceil(members / MEMBERS_PER_TOKEN) - 1;
  return more * Math.max(1, Math.ceil(bytes / BYTES_PER_TOKEN));
}

/** The bucket of a connection (from its first message), an address or a user. */
export class TokenBucket {
  constructor() {
    /** When it will be full. A double from the start, so that V8 updates it in place. */
    this.fullAt = -0.5;
    this.refused = 0;
    this.refusedSinceMs = 0;
    /** The bucket for broadcasts of an address; null before the first. @type {{fullAt: number}|null} */
    this.broadcasts = null;
    /** The bucket for what an address reads for free; null before the first. @type {{fullAt: number}|null} */
    this.reads = null;
  }
}

/** @typedef {Pick<import('../hub/connection.js').Connection, 'rate'>} Limited */

/** Buckets by address or user. A missing bucket is full. */
export class BucketTable {
  /** @type {Map<string, TokenBucket>} */
  #buckets = new Map();
  /** Where the next sweep continues. @type {MapIterator<[string, TokenBucket]>} */
  #sweeping = this.#buckets.entries();

  /** @param {() => void} onForgotten a bucket was deleted that may not be full */
  constructor(onForgotten) {
    this.onForgotten = onForgotten;
  }

  get size() {
    return this.#buckets.size;
  }

  /** @param {string} name */
  has(name) {
    return this.#buckets.has(name);
  }

  /** @param {string} name @returns {TokenBucket} */
  bucketOf(name) {
    let bucket = this.#buckets.get(name);
    if (bucket !== undefined) return bucket;
    if (this.#buckets.size >= MAX_BUCKETS) {
      // The oldest is most likely full by now, and the cheapest to find.
      const [oldest] = this.#buckets.keys();
      this.#buckets.delete(oldest);
      this.onForgotten();
    }
    bucket = new TokenBucket();
    this.#buckets.set(name, bucket);
    return bucket;
  }

  /** @param {(bucket: TokenBucket) => boolean} isFull @param {number} [most] buckets to examine */
  sweep(isFull, most = SWEEP_BUCKETS) {
    for (let i = Math.min(most, this.#buckets.size); i > 0; i--) {
      const next = this.#sweeping.next();
      if (next.done) {
        this.#sweeping = this.#buckets.entries();
        continue;
      }
      const [name, bucket] = next.value;
      if (isFull(bucket)) this.#buckets.delete(name);
    }
  }
}

export class RateLimiter {
  #addresses;
  #users;

  /**
   * @param {import('../config/settings.js').Config} config
   * @param {import('../observability/counters.js').Counters} counters @param {RefusedNames} [refused]
   * @param {(text: string) => void} [onObserved] a limit that only observes would have refused
   */
  constructor(config, counters, refused = new RefusedNames(), onObserved = () => {}) {
    this.onObserved = onObserved;
    this.counters = counters;
    this.refused = refused;
    this.#addresses = new BucketTable(() => counters.addressesForgotten++);
    this.#users = new BucketTable(() => counters.usersForgotten++);
    this.connectionMode = config.messagesPerMinuteMode;
    this.connectionRate = new Rate(config.messagesPerMinute, config.messagesBurst);
    this.addressMode = config.messagesPerMinutePerIpMode;
    this.addressRate = new Rate(config.messagesPerMinutePerIp, config.messagesBurstPerIp);
    this.userMode = config.messagesPerMinutePerUserMode;
    this.userRate = new Rate(config.messagesPerMinutePerUser, config.messagesBurstPerUser);
    this.broadcastMode = config.broadcastsPerMinutePerIpMode;
    this.broadcastRate = new Rate(config.broadcastsPerMinutePerIp, config.broadcastsBurstPerIp);
    const freeTokens = Math.min(
      MAX_FREE_READ_TOKENS,
      FREE_READ_TOKENS * config.maxConnectionsPerIp,
    );
    this.freeReadRate = new Rate(Math.ceil((freeTokens * 60) / FREE_READ_REFILL_S), freeTokens);
    this.frameMode = config.framesPerMinuteMode;
    this.frameRate = new Rate(config.framesPerMinute, config.framesBurst);
    this.maxRefused = config.maxRefusedMessages;
    /** Why the last message or stream was refused, for its sender. */
    this.exceeded = '';
    this.texts = {
      connection: overText('messages from this connection', this.connectionRate, 'MESSAGES_RATE'),
      address: overText('messages from your address', this.addressRate, 'MESSAGES_RATE_PER_IP'),
      user: overText('messages from this user', this.userRate, 'MESSAGES_RATE_PER_USER'),
      broadcasts: overText(
        'broadcasts from your address',
        this.broadcastRate,
        'BROADCASTS_RATE_PER_IP',
      ),
    };
  }

  get addresses() {
    return this.#addresses.size;
  }

  get users() {
    return this.#users.size;
  }

  /**
   * Takes tokens of the connection, the address and the user for a message, or none if one of them
   * refuses it. A limit in the mode `observe` only counts what it would have refused.
   * @param {Limited} connection @param {string} address as limits count it (addressKey)
   * @param {number} nowMs monotonic @param {number} [bytes]
   * @param {string} [user] '': the connection has none
   * @returns {number} 0: pass. Above 0: refused; seconds until a message will pass. -1: refused too
   *   often, close with 4005
   */
  admitMessage(connection, address, nowMs, bytes = 0, user = '') {
    const { connectionMode, addressMode, userMode, connectionRate, addressRate, userRate } = this;
    if (connectionMode === 'off' && addressMode === 'off' && userMode === 'off') return 0;
    const own = allowanceOf(connection);
    const shared = addressMode === 'off' ? null : this.#addresses.bucketOf(address);
    const personal = userMode === 'off' || user === '' ? null : this.#users.bucketOf(user);
    const ownCost = connectionRate.costOf(bytes);
    const sharedCost = addressRate.costOf(bytes);
    const personalCost = userRate.costOf(bytes);
    const ownHas = connectionMode === 'off' || connectionRate.has(own, nowMs, ownCost);
    const sharedHas = shared === null || addressRate.has(shared, nowMs, sharedCost);
    const personalHas = personal === null || userRate.has(personal, nowMs, personalCost);

    const ownRefuses = !ownHas && connectionMode === 'enforce';
    const sharedRefuses = !sharedHas && addressMode === 'enforce';
    const personalRefuses = !personalHas && userMode === 'enforce';
    if (ownRefuses || sharedRefuses || personalRefuses) {
      this.refused.countRefusal('messages', address, user);
      if (this.#refusedTooOften(own, nowMs)) return -1;
      return this.#waitFor(
        ownRefuses ? connectionRate.retryAfter(own, nowMs, ownCost) : 0,
        sharedRefuses ? addressRate.retryAfter(shared, nowMs, sharedCost) : 0,
        personalRefuses ? userRate.retryAfter(personal, nowMs, personalCost) : 0,
      );
    }

    // Limits in `enforce` take their tokens; those in `observe` only if all limits have enough.
    const observedHave = ownHas && sharedHas && personalHas;
    if (connectionMode === 'enforce' || (connectionMode === 'observe' && observedHave))
      connectionRate.take(own, nowMs, ownCost);
    if (shared !== null && (addressMode === 'enforce' || observedHave))
      addressRate.take(shared, nowMs, sharedCost);
    if (personal !== null && (userMode === 'enforce' || observedHave))
      userRate.take(personal, nowMs, personalCost);
    if (!ownHas) this.#observe('messages', this.texts.connection);
    if (!sharedHas) this.#observe('messages_per_ip', this.texts.address);
    if (!personalHas) this.#observe('messages_per_user', this.texts.user);
    return 0;
  }

  /**
   * Takes tokens of the address and the user for a stream of server-sent events: one for each room.
   * @param {string} address as limits count it @param {number} nowMs @param {number} rooms
   * @param {string} user as in `admitMessage`
   * @param {boolean} isReturning does the client continue from a position? Such streams pass on
   *   credit, because after a drain all streams of an address return at once
   * @returns {number} 0: pass. Above 0: refused; seconds until it will pass
   */
  admitStream(address, nowMs, rooms, user, isReturning) {
    const { addressMode, userMode, addressRate, userRate } = this;
    const shared = addressMode === 'off' ? null : this.#addresses.bucketOf(address);
    const personal = userMode === 'off' || user === '' ? null : this.#users.bucketOf(user);
    const sharedCost = addressRate.costOf(rooms * BYTES_PER_TOKEN);
    const personalCost = userRate.costOf(rooms * BYTES_PER_TOKEN);
    const sharedWait =
      shared === null ? 0 : addressRate.waitFor(shared, nowMs, sharedCost, isReturning);
    const personalWait =
      personal === null ? 0 : userRate.waitFor(personal, nowMs, personalCost, isReturning);
    const refusedFor = this.#waitFor(
      0,
      addressMode === 'enforce' ? sharedWait : 0,
      userMode === 'enforce' ? personalWait : 0,
    );
    if (refusedFor > 0) return refusedFor;
    // These are the cases of `admitMessage`.
    const observedHave = sharedWait + personalWait === 0;
    if (shared !== null && (addressMode === 'enforce' || observedHave))
      addressRate.take(shared, nowMs, sharedCost);
    if (personal !== null && (userMode === 'enforce' || observedHave))
      userRate.take(personal, nowMs, personalCost);
    if (sharedWait > 0) this.#observe('messages_per_ip', this.texts.address);
    if (personalWait > 0) this.#observe('messages_per_user', this.texts.user);
    return 0;
  }

  /**
   * Takes the tokens of a broadcast that has passed as a message.
   * @param {Limited} connection @param {string} address as limits count it
   * @param {number} nowMs @param {number} bytes @returns {number} as `admitMessage`
   */
  admitBroadcast(connection, address, nowMs, bytes) {
    const { broadcastMode, broadcastRate } = this;
    if (broadcastMode === 'off') return 0;
    const shared = this.#addresses.bucketOf(address);
    shared.broadcasts ??= { fullAt: -0.5 };
    const cost = broadcastRate.costOf(bytes);
    if (broadcastRate.has(shared.broadcasts, nowMs, cost)) {
      broadcastRate.take(shared.broadcasts, nowMs, cost);
      return 0;
    }
    if (broadcastMode === 'observe') {
      this.#observe('broadcasts_per_ip', this.texts.broadcasts);
      return 0;
    }
    this.refused.countRefusal('messages', address);
    if (this.#refusedTooOften(allowanceOf(connection), nowMs)) return -1;
    this.exceeded = this.texts.broadcasts;
    return broadcastRate.retryAfter(shared.broadcasts, nowMs, cost);
  }

  /**
   * Charges for a reply. The command has paid for the first 4 KB; the rest may become a debt.
   * @param {Limited} connection @param {string} address as limits count it
   * @param {number} nowMs @param {number} bytes @param {string} [user] as in `admitMessage`
   */
  charge(connection, address, nowMs, bytes, user = '') {
    const more = Math.ceil(bytes / BYTES_PER_TOKEN) - 1;
    if (more > 0) this.chargeTokens(connection, address, nowMs, more, user);
  }

  /**
   * What the buckets do not have becomes a debt.
   * @param {Limited} connection @param {string} address as limits count it
   * @param {number} nowMs @param {number} tokens @param {string} [user] as in `admitMessage`
   */
  chargeTokens(connection, address, nowMs, tokens, user = '') {
    const bytes = tokens * BYTES_PER_TOKEN;
    if (this.connectionMode !== 'off') {
      this.connectionRate.owe(allowanceOf(connection), nowMs, this.connectionRate.costOf(bytes));
    }
    if (this.addressMode !== 'off') {
      this.addressRate.owe(
        this.#addresses.bucketOf(address),
        nowMs,
        this.addressRate.costOf(bytes),
      );
    }
    if (this.userMode !== 'off' && user !== '') {
      this.userRate.owe(this.#users.bucketOf(user), nowMs, this.userRate.costOf(bytes));
    }
  }

  /**
   * Takes what a connection reads for free from the allowance of its address: enough for as many
   * connections as an address may have, which return at once after a drain. The last read may take
   * more than is left.
   * @param {string} address as limits count it @param {number} nowMs
   * @param {number} bytes 0: only asks
   * @returns {boolean} false: the allowance is used up, so the read is not free
   */
  takeFreeRead(address, nowMs, bytes) {
    if (this.addressMode !== 'enforce') return true;
    const shared = this.#addresses.bucketOf(address);
    shared.reads ??= { fullAt: -0.5 };
    if (!this.freeReadRate.has(shared.reads, nowMs)) return false;
    if (bytes > 0) this.freeReadRate.owe(shared.reads, nowMs, this.freeReadRate.costOf(bytes));
    return true;
  }

  /**
   * Takes a token for a frame that is not a whole message: control, empty, or a small fragment.
   * @param {{fullAt: number}} allowance the connection's bucket for frames
   * @param {number} nowMs @returns {boolean} false: close with 1008
   */
  admitFrame(allowance, nowMs) {
    if (this.frameRate.has(allowance, nowMs)) this.frameRate.take(allowance, nowMs);
    else if (this.frameMode === 'enforce') return false;
    else this.counters.observed.frames++;
    return true;
  }

  /** Deletes full buckets, a part at a time. Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    this.#addresses.sweep((bucket) => {
      const { broadcasts, reads } = bucket;
      if (broadcasts !== null && !this.broadcastRate.isRefilled(broadcasts, nowMs)) return false;
      if (reads !== null && !this.freeReadRate.isRefilled(reads, nowMs)) return false;
      return this.addressRate.isRefilled(bucket, nowMs);
    });
    this.#users.sweep((bucket) => this.userRate.isRefilled(bucket, nowMs));
  }

  /** @param {Limited} connection @param {number} nowMs @returns {number} in this minute */
  refusedOf({ rate }, nowMs) {
    return rate === null || isOver(rate, nowMs) ? 0 : rate.refused;
  }

  /** @param {'messages'|'messages_per_ip'|'messages_per_user'|'broadcasts_per_ip'} limit @param {string} text */
  #observe(limit, text) {
    this.counters.observed[limit]++;
    this.onObserved(text);
  }

  /**
   * @param {number} own seconds; 0: this limit does not refuse @param {number} shared
   * @param {number} personal @returns {number} the longest, whose limit the sender is told
   */
  #waitFor(own, shared, personal) {
    const wait = Math.max(own, shared, personal);
    const { texts } = this;
    this.exceeded = wait === own ? texts.connection : wait === shared ? texts.address : texts.user;
    return wait;
  }

  /** @param {TokenBucket} own @param {number} nowMs */
  #refusedTooOften(own, nowMs) {
    if (own.refused === 0 || isOver(own, nowMs)) {
      own.refusedSinceMs = nowMs;
      own.refused = 0;
    }
    return ++own.refused > this.maxRefused;
  }
}

/** @param {string} what @param {Rate} rate @param {string} setting without its prefix */
function overText(what, rate, setting) {
  return `Too many ${what}: ${rate.text} (FANFARE_${setting}).`;
}

/** Is the minute of its refused messages over? @param {TokenBucket} own @param {number} nowMs */
function isOver(own, nowMs) {
  return nowMs - own.refusedSinceMs >= REFUSED_WINDOW_MS;
}

/** Created late: most connections are silent. @param {Limited} connection @returns {TokenBucket} */
function allowanceOf(connection) {
  connection.rate ??= new TokenBucket();
  return connection.rate;
}
