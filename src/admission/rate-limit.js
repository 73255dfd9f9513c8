// rate-limit.js: how many messages a connection, and all connections of one address together, may send.
//
// Token buckets. A bucket that holds `burst` tokens and refills evenly is fully told by one number, the time at which it
// will be full: each token taken moves that time one token's worth later, and an empty bucket is one whose time lies
// `burst` tokens ahead. (The same thing as GCRA, ATM Forum TM 4.0, 4.4.3.) So a bucket needs no timer and no second field,
// and one whose time has passed is as good as none.
//
// Times are counted in units of 1/perMinute ms, in which one token is always 60,000: whole numbers, no drift.

const TOKEN = 60_000;
/** Refused messages are counted by the minute. */
const REFUSED_WINDOW_MS = 60_000;
/** Addresses with a bucket that is not full. One more, and the oldest is forgotten: it may send a burst again. */
const MAX_ADDRESSES = 65_536;
/** Addresses looked at in one sweep: under a millisecond. */
const SWEEP_ADDRESSES = 8192;

/** One sender's buckets. A connection has one once it has spoken; so has each address. */
export class Allowance {
  constructor() {
    /** When the bucket will be full. A double from the start, so that V8 updates it in place. */
    this.fullAt = -0.5;
    this.refused = 0;
    this.refusedSinceMs = 0;
  }
}

/** Capacity and refill of buckets; the buckets themselves are the callers'. */
export class Rate {
  /** @param {number} perMinute @param {number} burst */
  constructor(perMinute, burst) {
    this.perMinute = perMinute;
    this.depth = burst * TOKEN;
  }

  /** @param {Allowance} allowance @param {number} nowMs @returns {boolean} is there a token? */
  has(allowance, nowMs) {
    const now = Math.floor(nowMs * this.perMinute);
    return Math.max(allowance.fullAt, now) + TOKEN - now <= this.depth;
  }

  /** Takes a token that is there. @param {Allowance} allowance @param {number} nowMs */
  take(allowance, nowMs) {
    allowance.fullAt = Math.max(allowance.fullAt, Math.floor(nowMs * this.perMinute)) + TOKEN;
  }

  /** @param {Allowance} allowance @param {number} nowMs @returns {number} whole seconds until there is a token: 1 at least */
  retryAfter(allowance, nowMs) {
    const wait = allowance.fullAt + TOKEN - this.depth - Math.floor(nowMs * this.perMinute);
    return Math.max(1, Math.ceil(wait / (1000 * this.perMinute)));
  }

  /** @param {Allowance} allowance @param {number} nowMs @returns {boolean} it says nothing that a new one would not */
  isFull(allowance, nowMs) {
    return allowance.fullAt <= nowMs * this.perMinute;
  }
}

export class RateLimiter {
  /** @type {Map<string, Allowance>} */
  #addresses = new Map();
  /** Where the next sweep goes on. @type {MapIterator<[string, Allowance]>} */
  #sweeping = this.#addresses.entries();

  /**
   * @param {import('../config.js').Config} config
   * @param {import('../stats.js').Stats} stats counts what observed limits would have refused
   */
  constructor(config, stats) {
    this.stats = stats;
    this.connectionMode = config.messagesPerMinuteMode;
    this.connectionRate = new Rate(config.messagesPerMinute, config.messagesBurst);
    this.addressMode = config.messagesPerMinutePerIpMode;
    this.addressRate = new Rate(config.messagesPerMinutePerIp, config.messagesBurstPerIp);
    this.maxRefused = config.maxRefusedMessages;
  }

  /** How many addresses are remembered. */
  get addresses() {
    return this.#addresses.size;
  }

  /**
   * A message has come. It takes a token of its connection and one of its address, or, refused by either, none at all.
   * An observed limit counts what it would have refused, and lets it pass.
   * @param {{rate: Allowance|null}} connection its `rate` is ours: made when it first speaks
   * @param {string} address as limits count it (addressKey)
   * @param {number} nowMs of a clock that never goes back
   * @returns {number} 0: pass. Above 0: refused, one will be accepted in so many seconds. -1: refused too often, close with 4005
   */
  admitMessage(connection, address, nowMs) {
    const { connectionMode, addressMode, connectionRate, addressRate } = this;
    if (connectionMode === 'off' && addressMode === 'off') return 0;
    connection.rate ??= new Allowance();
    const own = connection.rate;
    const shared = addressMode === 'off' ? null : this.#allowanceOf(address);
    const ownHas = connectionMode === 'off' || connectionRate.has(own, nowMs);
    const sharedHas = shared === null || addressRate.has(shared, nowMs);

    if ((!ownHas && connectionMode === 'enforce') || (!sharedHas && addressMode === 'enforce')) {
      if (this.#refusedTooOften(own, nowMs)) return -1;
      const ownWait = ownHas || connectionMode !== 'enforce' ? 0 : connectionRate.retryAfter(own, nowMs);
      const sharedWait =
        sharedHas || shared === null || addressMode !== 'enforce' ? 0 : addressRate.retryAfter(shared, nowMs);
      return Math.max(ownWait, sharedWait);
    }

    // It passes: limits that are enforced hold their token. Those that are observed would have taken one only if none of
    // them had refused.
    const observedHave = ownHas && sharedHas;
    if (connectionMode === 'enforce' || (connectionMode === 'observe' && observedHave)) connectionRate.take(own, nowMs);
    if (shared !== null && (addressMode === 'enforce' || observedHave)) addressRate.take(shared, nowMs);
    if (!ownHas) this.stats.observed.messages++;
    if (!sharedHas) this.stats.observed.messages_per_ip++;
    return 0;
  }

  /**
   * Forgets addresses whose bucket is full again. Call it every second or so; each call looks at a part.
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
      if (this.addressRate.isFull(allowance, nowMs)) this.#addresses.delete(address);
    }
  }

  /** @param {string} address @returns {Allowance} */
  #allowanceOf(address) {
    let allowance = this.#addresses.get(address);
    if (allowance !== undefined) return allowance;
    if (this.#addresses.size >= MAX_ADDRESSES) {
      // The one that came first: most likely full by now, and the cheapest to find.
      for (const oldest of this.#addresses.keys()) {
        this.#addresses.delete(oldest);
        break;
      }
      this.stats.addressesForgotten++;
    }
    allowance = new Allowance();
    this.#addresses.set(address, allowance);
    return allowance;
  }

  /** @param {Allowance} own @param {number} nowMs */
  #refusedTooOften(own, nowMs) {
    if (own.refused === 0 || nowMs - own.refusedSinceMs >= REFUSED_WINDOW_MS) {
      own.refusedSinceMs = nowMs;
      own.refused = 0;
    }
    return ++own.refused > this.maxRefused;
  }
}
