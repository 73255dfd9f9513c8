// rate-limit.js: limits of messages and frames, per connection, client address and user.
//
// A message costs a token for each started 4 KB. A stream of server-sent events costs a token for
// each of its rooms. A broadcast costs further tokens, from a bucket of its address. Frames that
// are not whole messages have a bucket of their connection.

import { BYTES_PER_TOKEN, Rate } from './rate.js';
import { Refused } from './refused.js';

/** Refused messages are counted per minute. */
const REFUSED_WINDOW_MS = 60_000;
/** Addresses, and users, with a bucket. Beyond it the oldest is deleted: its owner may burst. */
const MAX_BUCKETS = 65_536;
/** Buckets examined in one sweep: under a millisecond. */
const SWEEP_BUCKETS = 8192;

/** One sender's buckets: of a connection (from its first message), an address or a user. */
export class TokenBucket {
  constructor() {
    /** When the bucket will be full. A double from the start, so that V8 updates it in place. */
    this.fullAt = -0.5;
    this.refused = 0;
    this.refusedSinceMs = 0;
    /** Of an address' broadcasts; null before the first. @type {{fullAt: number}|null} */
    this.broadcasts = null;
  }
}

/** @typedef {Pick<import('../hub/connection.js').Connection, 'rate'>} Limited */

/** Buckets by address or user. A bucket that is not here is full. */
export class BucketTable {
  /** @type {Map<string, TokenBucket>} */
  #buckets = new Map();
  /** The position of the next sweep. @type {MapIterator<[string, TokenBucket]>} */
  #sweeping = this.#buckets.entries();

  /** @param {() => void} onForgotten a bucket has been deleted although it may not be full */
  constructor(onForgotten) {
    this.onForgotten = onForgotten;
  }

  get size() {
    return this.#buckets.size;
  }

  /** @param {string} name @returns {boolean} whether it has a bucket */
  has(name) {
    return this.#buckets.has(name);
  }

  /** @param {string} name @returns {TokenBucket} */
  of(name) {
    let bucket = this.#buckets.get(name);
    if (bucket !== undefined) return bucket;
    if (this.#buckets.size >= MAX_BUCKETS) {
      // The oldest entry is most likely full by now, and the cheapest to find.
      const [oldest] = this.#buckets.keys();
      this.#buckets.delete(oldest);
      this.onForgotten();
    }
    bucket = new TokenBucket();
    this.#buckets.set(name, bucket);
    return bucket;
  }

  /** @param {(bucket: TokenBucket) => boolean} isFull @param {number} [most] to examine */
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
   * @param {import('../observability/counters.js').Counters} counters counts messages that a limit
   *   in the mode `observe` would have refused
   * @param {Refused} [refused]
   */
  constructor(config, counters, refused = new Refused()) {
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
    this.frameMode = config.framesPerMinuteMode;
    this.frameRate = new Rate(config.framesPerMinute, config.framesBurst);
    this.maxRefused = config.maxRefusedMessages;
  }

  get addresses() {
    return this.#addresses.size;
  }

  get users() {
    return this.#users.size;
  }

  /**
   * Counts a message: it takes tokens of its connection, its address and its user, or none if one
   * refuses it. A limit in the mode `observe` only counts what it would have refused.
   * @param {Limited} connection its `rate` is created with its first message
   * @param {string} address as limits count it (addressKey)
   * @param {number} nowMs of a clock that never goes back @param {number} [bytes] of the message
   * @param {string} [user] of the connection's token; '': it has none
   * @returns {number} 0: pass. Above 0: refused; the seconds until one will be accepted. -1:
   *   refused too often, close with 4005
   */
  admitMessage(connection, address, nowMs, bytes = 0, user = '') {
    const { connectionMode, addressMode, userMode, connectionRate, addressRate, userRate } = this;
    if (connectionMode === 'off' && addressMode === 'off' && userMode === 'off') return 0;
    const own = allowanceOf(connection);
    const shared = addressMode === 'off' ? null : this.#addresses.of(address);
    const personal = userMode === 'off' || user === '' ? null : this.#users.of(user);
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
      this.refused.add('messages', address, user);
      if (this.#refusedTooOften(own, nowMs)) return -1;
      return Math.max(
        ownRefuses ? connectionRate.retryAfter(own, nowMs, ownCost) : 0,
        sharedRefuses ? addressRate.retryAfter(shared, nowMs, sharedCost) : 0,
        personalRefuses ? userRate.retryAfter(personal, nowMs, personalCost) : 0,
      );
    }

    // Limits in `enforce` take their tokens, those in `observe` only if every limit had enough.
    const observedHave = ownHas && sharedHas && personalHas;
    if (connectionMode === 'enforce' || (connectionMode === 'observe' && observedHave))
      connectionRate.take(own, nowMs, ownCost);
    if (shared !== null && (addressMode === 'enforce' || observedHave))
      addressRate.take(shared, nowMs, sharedCost);
    if (personal !== null && (userMode === 'enforce' || observedHave))
      userRate.take(personal, nowMs, personalCost);
    if (!ownHas) this.counters.observed.messages++;
    if (!sharedHas) this.counters.observed.messages_per_ip++;
    if (!personalHas) this.counters.observed.messages_per_user++;
    return 0;
  }

  /**
   * Counts a stream of server-sent events before it opens: each of its rooms takes a token of the
   * address and of the user.
   * @param {string} address as limits count it @param {number} nowMs @param {number} rooms
   * @param {string} user as in `admitMessage`
   * @param {boolean} isReturning the client goes on from a position: all streams of an address come
   *   back at once after a drain, so they pass on credit
   * @returns {number} 0: pass. Above 0: refused; the seconds until it will be accepted
   */
  admitStream(address, nowMs, rooms, user, isReturning) {
    const { addressMode, userMode, addressRate, userRate } = this;
    const shared = addressMode === 'off' ? null : this.#addresses.of(address);
    const personal = userMode === 'off' || user === '' ? null : this.#users.of(user);
    const sharedCost = addressRate.costOf(rooms * BYTES_PER_TOKEN);
    const personalCost = userRate.costOf(rooms * BYTES_PER_TOKEN);
    const sharedWait =
      shared === null ? 0 : addressRate.waitFor(shared, nowMs, sharedCost, isReturning);
    const personalWait =
      personal === null ? 0 : userRate.waitFor(personal, nowMs, personalCost, isReturning);
    const refusedFor = Math.max(
      addressMode === 'enforce' ? sharedWait : 0,
      userMode === 'enforce' ? personalWait : 0,
    );
    if (refusedFor > 0) return refusedFor;
    // As in `admitMessage`.
    const observedHave = sharedWait + personalWait === 0;
    if (shared !== null && (addressMode === 'enforce' || observedHave))
      addressRate.take(shared, nowMs, sharedCost);
    if (personal !== null && (userMode === 'enforce' || observedHave))
      userRate.take(personal, nowMs, personalCost);
    if (sharedWait > 0) this.counters.observed.messages_per_ip++;
    if (personalWait > 0) this.counters.observed.messages_per_user++;
    return 0;
  }

  /**
   * Counts a broadcast that has passed as a message. It takes as many tokens from a separate bucket
   * of its address.
   * @param {Limited} connection @param {string} address as limits count it
   * @param {number} nowMs @param {number} bytes @returns {number} as `admitMessage`
   */
  admitBroadcast(connection, address, nowMs, bytes) {
    const { broadcastMode, broadcastRate } = this;
    if (broadcastMode === 'off') return 0;
    const shared = this.#addresses.of(address);
    shared.broadcasts ??= { fullAt: -0.5 };
    const cost = broadcastRate.costOf(bytes);
    if (broadcastRate.has(shared.broadcasts, nowMs, cost)) {
      broadcastRate.take(shared.broadcasts, nowMs, cost);
      return 0;
    }
    if (broadcastMode === 'observe') {
      this.counters.observed.broadcasts_per_ip++;
      return 0;
    }
    this.refused.add('messages', address);
    if (this.#refusedTooOften(allowanceOf(connection), nowMs)) return -1;
    return broadcastRate.retryAfter(shared.broadcasts, nowMs, cost);
  }

  /**
   * Charges for a reply. The message has paid its first 4 KB; later messages wait for the rest.
   * @param {Limited} connection @param {string} address as limits count it
   * @param {number} nowMs @param {number} bytes @param {string} [user] as in `admitMessage`
   */
  charge(connection, address, nowMs, bytes, user = '') {
    const more = bytes - BYTES_PER_TOKEN;
    if (more <= 0) return;
    if (this.connectionMode !== 'off') {
      this.connectionRate.owe(allowanceOf(connection), nowMs, this.connectionRate.costOf(more));
    }
    if (this.addressMode !== 'off') {
      this.addressRate.owe(this.#addresses.of(address), nowMs, this.addressRate.costOf(more));
    }
    if (this.userMode !== 'off' && user !== '') {
      this.userRate.owe(this.#users.of(user), nowMs, this.userRate.costOf(more));
    }
  }

  /**
   * Counts a frame that is not a whole message: a control frame, an empty frame, a small fragment.
   * @param {{fullAt: number}} allowance the connection's, for frames
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
      const { broadcasts } = bucket;
      if (broadcasts !== null && !this.broadcastRate.isFull(broadcasts, nowMs)) return false;
      return this.addressRate.isFull(bucket, nowMs);
    });
    this.#users.sweep((bucket) => this.userRate.isFull(bucket, nowMs));
  }

  /** @param {Limited} connection @param {number} nowMs @returns {number} of this minute */
  refusedOf({ rate }, nowMs) {
    return rate === null || isOver(rate, nowMs) ? 0 : rate.refused;
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

/** Has the minute of its refused messages ended? @param {TokenBucket} own @param {number} nowMs */
function isOver(own, nowMs) {
  return nowMs - own.refusedSinceMs >= REFUSED_WINDOW_MS;
}

/** Most connections are silent. @param {Limited} connection @returns {TokenBucket} */
function allowanceOf(connection) {
  connection.rate ??= new TokenBucket();
  return connection.rate;
}
