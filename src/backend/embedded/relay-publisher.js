// relay-publisher.js: a worker's publications on the relay's link, and their outcomes.
//
// Those of a tick leave in batches of successive publications to one room, then a SYNC. Its answer
// confirms all of them, and has the outcomes of those that need one (a position, a used key).

import { deferred } from '../deferred.js';
import { conflict, full, notAsExpected } from '../errors.js';
import { MAX_OUTCOMES, OP, readOutcome, VERDICT } from './relay-wire.js';

/** @import { Deferred } from '../deferred.js' */
/** @import { ExpectedPosition } from '../../protocol/position.js' */
/** @import { RelayLink } from './relay-link.js' */
/** @import { Outcome } from './relay-wire.js' */

/** @typedef {{op: number, outcomes: Deferred<any>[]}} Batch `op`: PUBLISH or APPEND */

export class RelayPublisher {
  /** For everything sent in this tick. @type {Deferred<void>|null} */
  #sync = null;
  /** Since the last SYNC: batches whose publications have outcomes. @type {Batch[]} */
  #undecided = [];

  /** @param {RelayLink} link opened and closed by its owner */
  constructor(link) {
    this.link = link;
    link.listen({ onFlush: (lost) => this.#settle(lost) });
  }

  /**
   * @param {string} room @param {Buffer} publication copied at once
   * @returns {Promise<void>} Resolves when the relay has accepted it; all of a tick share it.
   */
  publish(room, publication) {
    const refusal = this.link.refusal();
    if (refusal !== null) return Promise.reject(refusal);
    this.link.out().publication(OP.PUBLISH, room, publication);
    this.#sync ??= deferred();
    return this.#sync.promise;
  }

  /** @returns {Promise<void>} Resolves when the relay has handled everything sent before. */
  confirm() {
    const refusal = this.link.refusal();
    if (refusal !== null) return Promise.reject(refusal);
    this.link.out();
    this.#sync ??= deferred();
    return this.#sync.promise;
  }

  /**
   * Publishes with an outcome: in a room with history (APPEND), or with a key (PUBLISH).
   * @param {number} op @param {string} room
   * @param {string} key with its fingerprint; may be empty for APPEND
   * @param {Buffer} publication copied at once
   * @param {boolean} isAlone with an outcome of its own, as with a key, or in a room with state
   * @param {ExpectedPosition} [expect] for APPEND; with it, it has to be alone
   * @returns {Promise<any>} resolves with a position for APPEND
   */
  decide(op, room, key, publication, isAlone, expect) {
    const refusal = this.link.refusal();
    if (refusal !== null) return Promise.reject(refusal);
    const outcome = deferred();
    const out = this.link.out();
    if (key !== '') out.text(OP.KEY, key);
    if (expect !== undefined) out.expect(expect);
    if (out.publication(op, room, publication, isAlone)) {
      /** @type {Batch} */ (this.#undecided.at(-1)).outcomes.push(outcome);
    } else {
      this.#undecided.push({ op, outcomes: [outcome] });
      if (this.#undecided.length === MAX_OUTCOMES) this.#settle(null);
    }
    return outcome.promise;
  }

  /**
   * Asks for the outcomes of everything sent since the last SYNC.
   * @param {Error|null} lost the link: nothing was written in this tick, so nothing was accepted
   */
  #settle(lost) {
    const sync = this.#sync;
    const batches = this.#undecided;
    if (sync === null && batches.length === 0) return;
    this.#sync = null;
    this.#undecided = [];
    const fail = (/** @type {Error} */ error) => {
      sync?.reject(error);
      for (const { outcomes } of batches) for (const outcome of outcomes) outcome.reject(error);
    };
    if (lost !== null) {
      fail(lost);
      return;
    }
    this.link.sync().then(({ body }) => {
      sync?.resolve();
      for (const [i, batch] of batches.entries()) settleBatch(batch, readOutcome(body, i));
    }, fail);
  }
}

/** @param {Batch} batch @param {Outcome} outcome of its first publication */
function settleBatch({ op, outcomes }, { verdict, epoch, offset }) {
  for (const [i, outcome] of outcomes.entries()) {
    if (verdict === VERDICT.KEY_CONFLICT) outcome.reject(conflict());
    else if (verdict === VERDICT.CONFLICT) outcome.reject(notAsExpected({ epoch, offset }));
    else if (verdict === VERDICT.FULL) outcome.reject(full());
    else outcome.resolve(op === OP.APPEND ? { epoch, offset: offset + i } : undefined);
  }
}
