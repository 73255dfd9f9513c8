// revocations.js: valid tokens that are refused.
//
// A revocation names a user, for all tokens issued before a time, or one token by its `jti`. It
// outlives every token that it can refuse:
//
//   native tokens have `iat` and `exp`      kept until the longest possible one has expired
//   Centrifugo's may lack `iat`             kept longer, because such a token could have been issued
//                                           at any time; leaves when a full list needs its place
//   lenient ones may never expire           kept always; a full list refuses new revocations
//
// The list is in memory, so a check costs two look-ups and works while the backend is unavailable.

import {
  KEPT_ALWAYS_MS,
  KEPT_MS,
  MAX_REVOCATIONS,
  makeRoom,
  mayMakeRoom,
  revocationKey,
} from '../backend/revocations.js';
import { LEEWAY_S } from './token-times.js';

/** The entries of one sweep, which takes under a millisecond. */
const SWEEP_ENTRIES = 8192;
/** Revocations are kept this much longer, because clocks differ. */
const KEEP_LEEWAY_MS = 60_000;

/** @import { Revocation } from '../backend/revocations.js' */
/** @import { CentrifugoSettings } from '../config/centrifugo.js' */

export class Revocations {
  /** @type {Map<string, Revocation>} */
  #users = new Map();
  /** @type {Map<string, Revocation>} */
  #tokens = new Map();
  /** Where the next sweep continues. @type {IterableIterator<Revocation>} */
  #sweeping = this.entries();

  /**
   * @param {object} parts @param {number} parts.maxLifetimeS of a token
   * @param {Pick<CentrifugoSettings, 'isLenient'>|null} [parts.centrifugo] null: all tokens are
   *   native
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {() => number} [parts.now] ms since 1970 @param {number} [parts.max]
   */
  constructor({
    maxLifetimeS,
    centrifugo = null,
    counters,
    now = Date.now,
    max = MAX_REVOCATIONS,
  }) {
    this.maxLifetimeMs = maxLifetimeS * 1000;
    this.centrifugo = centrifugo;
    this.counters = counters;
    this.now = now;
    this.max = max;
  }

  get size() {
    return this.#users.size + this.#tokens.size;
  }

  /**
   * Creates a revocation, without adding it.
   * @param {{user: string, issuedBeforeMs?: number}|{tokenId: string}} target without
   *   `issuedBeforeMs`: tokens of the user issued up to LEEWAY_S from now, because clocks differ
   */
  create(target) {
    const nowMs = this.now();
    if ('tokenId' in target)
      return {
        user: null,
        tokenId: target.tokenId,
        issuedBeforeMs: 0,
        keepUntilMs: this.#keepUntil(nowMs),
      };
    const { user, issuedBeforeMs = nowMs + LEEWAY_S * 1000 } = target;
    return {
      user,
      tokenId: null,
      issuedBeforeMs,
      keepUntilMs: this.#keepUntil(Math.max(nowMs, issuedBeforeMs)),
    };
  }

  /** @param {number} lastIssuedMs of the tokens that are refused */
  #keepUntil(lastIssuedMs) {
    if (this.centrifugo?.isLenient) return KEPT_ALWAYS_MS;
    const allExpiredMs = lastIssuedMs + this.maxLifetimeMs + KEEP_LEEWAY_MS;
    return this.centrifugo === null ? allExpiredMs : KEPT_MS + allExpiredMs;
  }

  /**
   * If the user or token is already revoked, keeps the later of the two times. Above
   * MAX_REVOCATIONS it is refused, because forgetting another would let a token in again.
   * @param {Revocation} revocation @returns {boolean} true: it is new, or revokes more than before
   */
  add(revocation) {
    const { user, tokenId, issuedBeforeMs, keepUntilMs } = revocation;
    const map = user === null ? this.#tokens : this.#users;
    const key = /** @type {string} */ (user ?? tokenId);
    const known = map.get(key);
    if (known === undefined) {
      if (this.size >= this.max) this.#makeRoom();
      if (this.size >= this.max) {
        this.counters.revocationsRefused++;
        return false;
      }
      map.set(key, { user, tokenId, issuedBeforeMs, keepUntilMs });
      this.counters.revocations = this.size;
      return true;
    }
    const isMore = issuedBeforeMs > known.issuedBeforeMs;
    map.set(key, {
      ...known,
      issuedBeforeMs: Math.max(known.issuedBeforeMs, issuedBeforeMs),
      keepUntilMs: Math.max(known.keepUntilMs, keepUntilMs),
    });
    return isMore;
  }

  /** @param {import('./claims.js').Identity} identity @returns {boolean} */
  isRevoked({ user, tokenId, issuedAtMs }) {
    if (this.size === 0) return false;
    if (tokenId !== null && this.#tokens.has(tokenId)) return true;
    const revocation = this.#users.get(user);
    if (revocation === undefined) return false;
    return issuedAtMs < revocation.issuedBeforeMs;
  }

  /**
   * @param {readonly Revocation[]} known by the backend, and added here
   * @returns {Revocation[]} what the backend lacks: revocations in force, or the later times of one
   */
  beyond(known) {
    let equal = 0;
    for (const one of known) if (!this.#isLater(this.#find(one), one)) equal++;
    if (equal === this.size) return []; // the usual case, without a copy of the list
    const kept = new Map(known.map((one) => [revocationKey(one), one]));
    const nowMs = this.now();
    return [...this.entries()].filter(
      (one) => !mayMakeRoom(one, nowMs) && this.#isLater(one, kept.get(revocationKey(one))),
    );
  }

  /** @param {Revocation} revocation @returns {Revocation|undefined} of the same user or token */
  #find({ user, tokenId }) {
    return user === null
      ? this.#tokens.get(/** @type {string} */ (tokenId))
      : this.#users.get(user);
  }

  /** @param {Revocation|undefined} one @param {Revocation|undefined} other */
  #isLater(one, other) {
    if (one === undefined || other === undefined) return one !== undefined;
    return one.issuedBeforeMs > other.issuedBeforeMs || one.keepUntilMs > other.keepUntilMs;
  }

  /** Forgets some of those whose tokens have expired. Call it every second. */
  sweep() {
    const nowMs = this.now();
    for (let i = Math.min(SWEEP_ENTRIES, this.size); i > 0; i--) {
      const { value, done } = this.#sweeping.next();
      if (done) this.#sweeping = this.entries();
      else this.#forgetOld(value, nowMs);
    }
    this.counters.revocations = this.size;
  }

  #makeRoom() {
    const nowMs = this.now();
    makeRoom(this.#users, nowMs);
    makeRoom(this.#tokens, nowMs);
  }

  /** @param {Revocation} revocation @param {number} nowMs */
  #forgetOld({ user, tokenId, keepUntilMs }, nowMs) {
    if (keepUntilMs > nowMs) return;
    if (user !== null) this.#users.delete(user);
    else this.#tokens.delete(/** @type {string} */ (tokenId));
  }

  /** @returns {IterableIterator<Revocation>} */
  *entries() {
    yield* this.#users.values();
    yield* this.#tokens.values();
  }
}
