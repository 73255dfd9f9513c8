// rate-limit.js: limits of messages and frames, per connection and per client address.
//
// A message costs a token for each started 4 KB. A broadcast costs further tokens, from a bucket of
// its address. Frames that are not whole messages have a bucket of their connection.
//
// A token bucket that holds `burst` tokens and refills evenly needs only one number: the time at
// which it will be full. Each token taken moves that time later by the time that one token takes to
// refill. If the time lies `burst` tokens ahead, the bucket is empty. (This is GCRA, ATM Forum TM
// 4.0, 4.4.3.) So a bucket needs no timer and no second field, and a bucket that is full again can
// be deleted.
//
// Times are counted in units of 1/perMinute ms. One token is then always 60,000 units: whole
// numbers, without drift.

const TOKEN = 60_000;
/** A message takes a token for each started block of this size. */
const BYTES_PER_TOKEN = 4096;
/** Refused messages are counted per minute. */
const REFUSED_WINDOW_MS = 60_000;
/**
 * Largest number of addresses with a bucket that is not full. Beyond it the oldest bucket is
 * deleted, and its address may send a burst again.
 */
const MAX_ADDRESSES = 65_536;
/** Addresses examined in one sweep: under a millisecond. */
const SWEEP_ADDRESSES = 8192;

/** One sender's buckets. A connection has one from its first message on; so has each address. */
export class TokenBucket {
  constructor() {
    /** When the bucket will be full. A double from the start, so that V8 updates it in place. */
    this.fullAt = -0.5;
    this.refused = 0;
    this.refusedSinceMs = 0;
    /**
     * The bucket of an address' broadcasts; null before the first.
     * @type {{fullAt: number}|null}
     */
    this.broadcasts = null;
  }
}

/** Capacity and refill of buckets. The callers keep the buckets themselves. */
export class Rate {
  /**
   * @param {number} perMinute
   * @param {number} burst
   */
  constructor(perMinute, burst) {
    this.perMinute = perMinute;
    this.depth = burst * TOKEN;
  }

  /**
   * The tokens that a message of this size costs. The cost is at most the bucket's capacity,
   * because otherwise a large message would never pass.
   * @param {number} bytes
   */
  costOf(bytes) {
    return Math.min(this.depth, TOKEN * Math.max(1, Math.ceil(bytes / BYTES_PER_TOKEN)));
  }

  /**
   * @param {{fullAt: number}} allowance
   * @param {number} nowMs
   * @param {number} [cost]
   * @returns {boolean} true if the bucket holds that many tokens
   */
  has(allowance, nowMs, cost = TOKEN) {
    const now = Math.floor(nowMs * this.perMinute);
    return Math.max(allowance.fullAt, now) + cost - now <= this.depth;
  }

  /**
   * Takes the tokens. The caller has checked that the bucket holds them.
   * @param {{fullAt: number}} allowance
   * @param {number} nowMs
   * @param {number} [cost]
   */
  take(allowance, nowMs, cost = TOKEN) {
    allowance.fullAt = Math.max(allowance.fullAt, Math.floor(nowMs * this.perMinute)) + cost;
  }

  /**
   * Takes the tokens even if the bucket does not hold them. A bucket may owe as much as it holds.
   * @param {{fullAt: number}} allowance
   * @param {number} nowMs
   * @param {number} cost
   */
  owe(allowance, nowMs, cost) {
    const now = Math.floor(nowMs * this.perMinute);
    allowance.fullAt = Math.min(Math.max(allowance.fullAt, now) + cost, now + 2 * this.depth);
  }

  /**
   * @param {{fullAt: number}} allowance
   * @param {number} nowMs
   * @param {number} [cost]
   * @returns {number} whole seconds until the bucket holds that many tokens, at least 1
   */
  retryAfter(allowance, nowMs, cost = TOKEN) {
    const wait = allowance.fullAt + cost - this.depth - Math.floor(nowMs * this.perMinute);
    return Math.max(1, Math.ceil(wait / (1000 * this.perMinute)));
  }

  /**
   * @param {{fullAt: number}} allowance
   * @param {number} nowMs
   * @returns {boolean} true if the bucket is full, so that a new one may replace it
   */
  isFull(allowance, nowMs) {
    return allowance.fullAt <= nowMs * this.perMinute;
  }
}

/** @typedef {Pick<import('../hub/connection.js').Connection, 'rate'>} Limited */

export class RateLimiter {
  /** @type {Map<string, TokenBucket>} */
  #addresses = new Map();
  /** The position of the next sweep. @type {MapIterator<[string, TokenBucket]>} */
  #sweeping = this.#addresses.entries();

  /**
   * @param {import('../config/settings.js').Config} config
   * @param {import('../observability/counters.js').Counters} counters counts messages that a limit
   *   in the mode `observe` would have refused
   */
  constructor(config, counters) {
    this.counters = counters;
    this.connectionMode = config.messagesPerMinuteMode;
    this.connectionRate = new Rate(config.messagesPerMinute, config.messagesBurst);
    this.addressMode = config.messagesPerMinutePerIpMode;
    this.addressRate = new Rate(config.messagesPerMinutePerIp, config.messagesBurstPerIp);
    this.broadcastMode = config.broadcastsPerMinutePerIpMode;
    this.broadcastRate = new Rate(config.broadcastsPerMinutePerIp, config.broadcastsBurstPerIp);
    this.frameMode = config.framesPerMinuteMode;
    this.frameRate = new Rate(config.framesPerMinute, config.framesBurst);
    this.maxRefused = config.maxRefusedMessages;
  }

  /** Number of addresses that have a bucket. */
  get addresses() {
    return this.#addresses.size;
  }

  /**
   * Counts a message. It takes tokens of its connection and of its address. If either refuses it,
   * it takes none. A limit in the mode `observe` counts messages that it would have refused, and
   * lets them pass.
   * @param {Limited} connection its `rate` is created with its first message
   * @param {string} address as limits count it (addressKey)
   * @param {number} nowMs of a clock that never goes back
   * @param {number} [bytes] of the message
   * @returns {number} 0: pass. Above 0: refused; the seconds until one will be accepted. -1:
   *   refused too often, close with 4005
   */
  admitMessage(connection, address, nowMs, bytes = 0) {
    const { connectionMode, addressMode, connectionRate, addressRate } = this;
    if (connectionMode === 'off' && addressMode === 'off') return 0;
    const own = allowanceOf(connection);
    const shared = addressMode === 'off' ? null : this.#allowanceOf(address);
    const ownCost = connectionRate.costOf(bytes);
    const sharedCost = addressRate.costOf(bytes);
    const ownHas = connectionMode === 'off' || connectionRate.has(own, nowMs, ownCost);
    const sharedHas = shared === null || addressRate.has(shared, nowMs, sharedCost);

    if ((!ownHas && connectionMode === 'enforce') || (!sharedHas && addressMode === 'enforce')) {
      if (this.#refusedTooOften(own, nowMs)) return -1;
      const ownWait =
        ownHas || connectionMode !== 'enforce' ? 0 : connectionRate.retryAfter(own, nowMs, ownCost);
      const sharedWait =
        sharedHas || shared === null || addressMode !== 'enforce'
          ? 0
          : addressRate.retryAfter(shared, nowMs, sharedCost);
      return Math.max(ownWait, sharedWait);
    }

    // The message passes. Limits in the mode `enforce` take their tokens. Those in the mode
    // `observe` take theirs only if every limit had enough.
    const observedHave = ownHas && sharedHas;
    if (connectionMode === 'enforce' || (connectionMode === 'observe' && observedHave))
      connectionRate.take(own, nowMs, ownCost);
    if (shared !== null && (addressMode === 'enforce' || observedHave))
      addressRate.take(shared, nowMs, sharedCost);
    if (!ownHas) this.counters.observed.messages++;
    if (!sharedHas) this.counters.observed.messages_per_ip++;
    return 0;
  }

  /**
   * Counts a broadcast that has passed as a message. It takes tokens from a separate bucket of its
   * address, as many for its size as a message takes.
   * @param {Limited} connection
   * @param {string} address as limits count it
   * @param {number} nowMs
   * @param {number} bytes
   * @returns {number} as `admitMessage`
   */
  admitBroadcast(connection, address, nowMs, bytes) {
    const { broadcastMode, broadcastRate } = this;
    if (broadcastMode === 'off') return 0;
    const shared = this.#allowanceOf(address);
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
    if (this.#refusedTooOften(allowanceOf(connection), nowMs)) return -1;
    return broadcastRate.retryAfter(shared.broadcasts, nowMs, cost);
  }

  /**
   * Charges for a reply. Its first 4 KB are free, because the message has paid a token. Further
   * bytes cost as much as bytes received, and later messages wait until they are paid.
   * @param {Limited} connection
   * @param {string} address as limits count it
   * @param {number} nowMs
   * @param {number} bytes
   */
  charge(connection, address, nowMs, bytes) {
    const more = bytes - BYTES_PER_TOKEN;
    if (more <= 0) return;
    if (this.connectionMode !== 'off') {
      this.connectionRate.owe(allowanceOf(connection), nowMs, this.connectionRate.costOf(more));
    }
    if (this.addressMode !== 'off') {
      this.addressRate.owe(this.#allowanceOf(address), nowMs, this.addressRate.costOf(more));
    }
  }

  /**
   * Counts a frame that is not a whole message: a control frame, an empty frame or a small
   * fragment.
   * @param {{fullAt: number}} allowance the connection's, for frames
   * @param {number} nowMs
   * @returns {boolean} false: close with 1008
   */
  admitFrame(allowance, nowMs) {
    if (this.frameRate.has(allowance, nowMs)) this.frameRate.take(allowance, nowMs);
    else if (this.frameMode === 'enforce') return false;
    else this.counters.observed.frames++;
    return true;
  }

  /**
   * Deletes the buckets of addresses that are full again. Call it about once a second; each call
   * examines a part of them.
   * @param {number} nowMs
   */
  sweep(nowMs) {
    for (let i = Math.min(SWEEP_ADDRESSES, this.#addresses.size); i > 0; i--) {
      const next = this.#sweeping.next();
      if (next.done) {
        this.#sweeping = this.#addresses.entries();
        continue;
      }
      const [address, allowance] = next.value;
      const { broadcasts } = allowance;
      if (broadcasts !== null && !this.broadcastRate.isFull(broadcasts, nowMs)) continue;
      if (this.addressRate.isFull(allowance, nowMs)) this.#addresses.delete(address);
    }
  }

  /**
   * @param {string} address
   * @returns {TokenBucket}
   */
  #allowanceOf(address) {
    let allowance = this.#addresses.get(address);
    if (allowance !== undefined) return allowance;
    if (this.#addresses.size >= MAX_ADDRESSES) {
      // The oldest entry is most likely full by now, and the cheapest to find.
      for (const oldest of this.#addresses.keys()) {
        this.#addresses.delete(oldest);
        break;
      }
      this.counters.addressesForgotten++;
    }
    allowance = new TokenBucket();
    this.#addresses.set(address, allowance);
    return allowance;
  }

  /**
   * @param {TokenBucket} own
   * @param {number} nowMs
   */
  #refusedTooOften(own, nowMs) {
    if (own.refused === 0 || nowMs - own.refusedSinceMs >= REFUSED_WINDOW_MS) {
      own.refusedSinceMs = nowMs;
      own.refused = 0;
    }
    return ++own.refused > this.maxRefused;
  }
}

/**
 * @param {Limited} connection
 * @returns {TokenBucket} created with a connection's first message, because most connections are
 *   silent
 */
function allowanceOf(connection) {
  connection.rate ??= new TokenBucket();
  return connection.rate;
}
