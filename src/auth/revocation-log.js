// revocation-log.js: keeps this worker's list of revocations equal to that of the backend.
//
//   revoke -> the backend keeps it -> a notice to all workers -> each closes the connections
//
// A notice may be lost, so the list is read at the start, whenever the broker comes back or has
// moved the subscription, and every 30 s. No token is accepted until the first read has succeeded.
// Later an outage changes nothing: revocations that the backend has lost are added again from
// memory. If they are few, other workers may have missed them: a primary of Redis that was replaced
// may have kept them for this worker alone. So these are announced again, too.

import { TokenError } from './token-error.js';

const READ_INTERVAL_MS = 30_000;
/** After a failed read. */
const RETRY_INTERVAL_MS = 1000;

/** If the backend has lost more, it has lost its data, and every worker has a copy. */
const MAX_ANNOUNCED = 100;

/** @import { Revocation, RevocationStore } from '../backend/revocations.js' */

export class RevocationLog {
  #isLoaded = false;
  #isClosed = false;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  /** @type {Promise<void>|null} */
  #reading = null;
  /** Must a read begin? One that is under way may lack the latest additions. */
  #isDue = false;
  #isFailing = false;

  /**
   * @param {object} parts @param {RevocationStore} parts.store
   * @param {(revocation: Revocation) => Promise<void>} parts.announce notifies all workers
   * @param {import('./revocations.js').Revocations} parts.revocations
   * @param {(revocation: Revocation) => void} parts.onRevoked one is new in this worker's list
   * @param {{warn(fields: object, text: string): void, info(fields: object, text: string): void}}
   *   parts.log
   */
  constructor({ store, announce, revocations, onRevoked, log }) {
    this.store = store;
    this.announce = announce;
    this.revocations = revocations;
    this.onRevoked = onRevoked;
    this.log = log;
  }

  /** Reads the list. A failure is not thrown: the read is repeated until it succeeds. */
  start() {
    return this.refresh();
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  /** @param {import('./claims.js').Identity} identity @throws {TokenError} no list yet */
  isRevoked(identity) {
    if (!this.#isLoaded) throw new TokenError('revocations_unavailable', { retryAfterS: 1 });
    return this.revocations.isRevoked(identity);
  }

  /**
   * Closes the connections of a user, or of one token, on every server, and refuses those tokens
   * until they have expired. Resolves within milliseconds when backend and broker have it.
   * @param {{user: string, issuedBeforeMs?: number}|{tokenId: string}} target `issuedBeforeMs`:
   *   only tokens of the user issued before then; absent: now
   * @returns {Promise<Revocation|null>} null: refused, too many revocations are in force
   * @throws a BrokerError: UNAVAILABLE, nothing has happened; OUTCOME_UNKNOWN, revoke again
   */
  async revoke(target) {
    const revocation = this.revocations.create(target);
    if (!(await this.store.add(revocation))) {
      this.revocations.counters.revocationsRefused++;
      return null;
    }
    this.apply(revocation);
    try {
      await this.announce(revocation);
    } catch (error) {
      // The backend has it, so other workers apply it, but perhaps only after READ_INTERVAL_MS.
      throw Object.assign(
        new Error('revoked here, but other workers may not know yet', { cause: error }),
        {
          code: 'OUTCOME_UNKNOWN',
        },
      );
    }
    return revocation;
  }

  /** Applies a revocation, which may be known already. @param {Revocation} revocation */
  apply(revocation) {
    if (this.revocations.add(revocation)) this.onRevoked(revocation);
  }

  /** Reads the list now: this worker may have missed an addition. */
  refresh() {
    this.#isDue = true;
    this.#reading ??= this.#readWhileDue();
    return this.#reading;
  }

  async #readWhileDue() {
    while (this.#isDue) {
      this.#isDue = false;
      await this.#readRevocations();
    }
    // At once: a call in between would find a read that has ended.
    this.#reading = null;
  }

  async #readRevocations() {
    clearTimeout(this.#timer);
    let waitMs = READ_INTERVAL_MS;
    try {
      const known = await this.store.read();
      for (const revocation of known) this.apply(revocation);
      this.#isLoaded = true;
      if (this.#isFailing) this.log.info({ count: known.length }, 'revocations can be read again');
      this.#isFailing = false;
      await this.#addAgain(this.revocations.beyond(known));
    } catch (error) {
      waitMs = RETRY_INTERVAL_MS;
      if (!this.#isFailing && !this.#isClosed) {
        const text = this.#isLoaded
          ? 'revocations cannot be read: the known ones hold'
          : 'revocations cannot be read: no token is accepted until they are';
        this.log.warn({ err: error }, text);
      }
      this.#isFailing = true;
    }
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => this.refresh(), waitMs);
    this.#timer.unref();
  }

  /** @param {Revocation[]} lost */
  async #addAgain(lost) {
    for (const one of lost) {
      await this.store.add(one);
      if (lost.length <= MAX_ANNOUNCED) await this.announce(one);
    }
  }
}
