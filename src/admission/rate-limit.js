// rate-limit.js: how many messages and frames a connection, and all connections of one address
// together, may send.
//
// A message costs a token for each 4 KB that it has begun. A broadcast pays again, from a bucket of
// its address. Frames that are no whole messages have a bucket of their connection.
//
// Token buckets. A bucket that holds `burst` tokens and refills evenly is fully told by one number,
// the time at which it will be full: each token taken moves that time one token's worth later, and
// an empty bucket is one whose time lies `burst` tokens ahead. (The same thing as GCRA, ATM Forum
// TM 4.0, 4.4.3.) So a bucket needs no timer and no second field, and one whose time has passed is
// as good as none.
//
// Times are counted in units of 1/perMinute ms, in which one token is always 60,000: whole numbers,
// no drift.

const TOKEN = 60_000;
/** A message takes a token for each so many bytes that it has begun. */
const BYTES_PER_TOKEN = 4096;
/** Refused messages are counted by the minute. */
const REFUSED_WINDOW_MS = 60_000;
/**
 * Addresses with a bucket that is not full. One more, and the oldest is forgotten: it may send a
 * burst again.
 */
const MAX_ADDRESSES = 65_536;
/** Addresses looked at in one sweep: under a millisecond. */
const SWEEP_ADDRESSES = 8192;

/** One sender's buckets. A connection has one once it has spoken; so has each address. */
export class TokenBucket {
  constructor() {
    /** When the bucket will be full. A double from the start, so that V8 updates it in place. */
    this.fullAt = -0.5;
    this.refused = 0;
    this.refusedSinceMs = 0;
    /** An address' bucket of broadcasts, once it has broadcast. @type {{fullAt: number}|null} */
    this.broadcasts = null;
  }
}

/** Capacity and refill of buckets; the buckets themselves are the callers'. */
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
   * What so many bytes cost: at most what the bucket holds, or a large message would never pass.
   * @param {number} bytes
   */
  costOf(bytes) {
    return Math.min(this.depth, TOKEN * Math.max(1, Math.ceil(bytes / BYTES_PER_TOKEN)));
  }

  /**
   * @param {{fullAt: number}} allowance
   * @param {number} nowMs
   * @param {number} [cost]
   * @returns {boolean} is there as much?
   */
  has(allowance, nowMs, cost = TOKEN) {
    const now = Math.floor(nowMs * this.perMinute);
    return Math.max(allowance.fullAt, now) + cost - now <= this.depth;
  }

  /**
   * Takes what is there.
   * @param {{fullAt: number}} allowance
   * @param {number} nowMs
   * @param {number} [cost]
   */
  take(allowance, nowMs, cost = TOKEN) {
    allowance.fullAt = Math.max(allowance.fullAt, Math.floor(nowMs * this.perMinute)) + cost;
  }

  /**
   * Takes it whether it is there or not: a bucket may owe as much as it holds.
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
   * @returns {number} whole seconds until there is as much: 1 at least
   */
  retryAfter(allowance, nowMs, cost = TOKEN) {
    const wait = allowance.fullAt + cost - this.depth - Math.floor(nowMs * this.perMinute);
    return Math.max(1, Math.ceil(wait / (1000 * this.perMinute)));
  }

  /**
   * @param {{fullAt: number}} allowance
   * @param {number} nowMs
   * @returns {boolean} it says nothing that a new one would not
   */
  isFull(allowance, nowMs) {
    return allowance.fullAt <= nowMs * this.perMinute;
  }
}

/** @typedef {Pick<import('../hub/connection.js').Connection, 'rate'>} Limited */

export class RateLimiter {
  /** @type {Map<string, TokenBucket>} */
  #addresses = new Map();
  /** Where the next sweep goes on. @type {MapIterator<[string, TokenBucket]>} */
  #sweeping = this.#addresses.entries();

  /**
   * @param {import('../config/settings.js').Config} config
   * @param {import('../observability/counters.js').Counters} counters counts what observed limits
   *   would have refused
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

  /** How many addresses are remembered. */
  get addresses() {
    return this.#addresses.size;
  }

  /**
   * A message has come. It takes its tokens of its connection and of its address, or, refused by
   * either, none at all. An observed limit counts what it would have refused, and lets it pass.
   * @param {Limited} connection its `rate` is made with its first message
   * @param {string} address as limits count it (addressKey)
   * @param {number} nowMs of a clock that never goes back
   * @param {number} [bytes] of the message
   * @returns {number} 0: pass. Above 0: refused, one will be accepted in so many seconds. -1:
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

    // It passes: limits that are enforced take their tokens. Those that are observed would have
    // taken some only if none of them had refused.
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
   * A broadcast has come, and has passed as a message. It costs its address tokens of a bucket of
   * their own, as many for its bytes as a message costs.
   * @param {Limited} connection
   * @param {string} address as limits count it
   * @param {number} nowMs
   * @param {number} bytes
   * @returns {number} as `admitMessage` does
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
   * A message is answered with so many bytes. Beyond the first token, which the message has paid,
   * they cost what they would cost if they came; later messages wait for that.
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
   * A frame has come that is no whole message: a control frame, an empty one, a small fragment.
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
   * Forgets addresses whose bucket is full again. Call it every second or so; each call looks at a
   * part.
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
      // The one that came first: most likely full by now, and the cheapest to find.
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
 * @returns {TokenBucket} made for a connection's first message, because most connections are silent
 */
function allowanceOf(connection) {
  connection.rate ??= new TokenBucket();
  return connection.rate;
}
