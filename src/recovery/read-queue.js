// read-queue.js: reads of the broker's histories: MAX_READS at a time, the others wait in line. If
// a read's owner closes before its turn, the read is dropped.

import { isEpoch } from '../protocol/position.js';

const MAX_READS = 64;
/** If this many reads wait, joins open no further room with history. A room has at most two. */
const MAX_WAITING = 20_000;
/** If this many wait, answers with history or state are refused, so that joins have their turn. */
const MAX_WAITING_ANSWERS = 1000;

/** @import { HistoryPage, ReadRequest } from '../backend/broker.js' */
/** @import { Counters } from '../observability/counters.js' */

/**
 * Recovery's part of the broker's contract.
 * @typedef {{history(room: string, from: ReadRequest): Promise<HistoryPage>}} Histories
 */

/**
 * @typedef {{owner: object|null, resolve: () => void, reject: (error: Error) => void}} WaitingRead
 */

export class ReadQueue {
  /** @param {{broker: Histories, counters: Counters}} parts */
  constructor({ broker, counters }) {
    this.broker = broker;
    this.counters = counters;
    this.active = 0;
    /** The line of waiting reads. @type {Set<WaitingRead>} */
    this.waiting = new Set();
    /** @type {Map<object, Set<WaitingRead>>} */
    this.waitingByOwner = new Map();
  }

  get isOverfull() {
    return this.waiting.size >= MAX_WAITING;
  }

  /** For an answer with history or state. @throws an error with the code UNAVAILABLE */
  forAnswer() {
    if (this.waiting.size >= MAX_WAITING_ANSWERS)
      throw this.refuseAnswer('too many reads are waiting');
    return this;
  }

  /** Counts an answer that is refused. @param {string} reason */
  refuseAnswer(reason) {
    this.counters.readsRefused++;
    return unavailable(reason);
  }

  /** @param {string} room @param {ReadRequest} from @param {object|null} [owner] for `cancel` */
  async read(room, from, owner = null) {
    if (this.active < MAX_READS) this.active++;
    else await this.#waitForTurn(owner);
    if (from.limit > 0) this.counters.historyReads++;
    else this.counters.positionChecks++;
    try {
      const page = await this.broker.history(room, from);
      // Other programs may have written the position in Redis.
      if (isEpoch(page.epoch) && Number.isSafeInteger(page.offset) && page.offset >= 0) return page;
      this.counters.malformed++;
      throw unavailable(`the position of ${room} is invalid`);
    } finally {
      this.#startNextRead();
    }
  }

  /** Rejects an owner's waiting reads. @param {object} owner */
  cancel(owner) {
    for (const waiting of this.waitingByOwner.get(owner) ?? []) {
      this.waiting.delete(waiting);
      waiting.reject(unavailable('the room is closed'));
    }
    this.waitingByOwner.delete(owner);
  }

  /** @param {object|null} owner @returns {Promise<void>} */
  #waitForTurn(owner) {
    return new Promise((resolve, reject) => {
      const waiting = { owner, resolve, reject };
      this.waiting.add(waiting);
      if (owner === null) return;
      const own = this.waitingByOwner.get(owner);
      if (own === undefined) this.waitingByOwner.set(owner, new Set([waiting]));
      else own.add(waiting);
    });
  }

  #startNextRead() {
    for (const waiting of this.waiting) {
      this.waiting.delete(waiting);
      if (waiting.owner !== null) this.#forgetWaiting(waiting.owner, waiting);
      waiting.resolve();
      return;
    }
    this.active--;
  }

  /** @param {object} owner @param {WaitingRead} waiting */
  #forgetWaiting(owner, waiting) {
    const own = this.waitingByOwner.get(owner);
    own?.delete(waiting);
    if (own?.size === 0) this.waitingByOwner.delete(owner);
  }
}

/** An error with the code of BrokerError. @param {string} message */
export function unavailable(message) {
  return Object.assign(new Error(message), { code: 'UNAVAILABLE' });
}
