// state-reader.js: reads a room's state from the broker, for the HTTP API.

import { encodeStateEntries } from '../protocol/encode.js';
import { hasKey, isPublication, isRemoval, keyTextOf } from '../protocol/publication.js';
import { unavailable } from './read-queue.js';

/** The least number of entries in a page of the broker, which includes tombstones. */
const MIN_PAGE = 1000;
const MAX_BYTES = 1_048_576;
/** If the pages of an answer do not fit together, it is read again. */
const MAX_TRIES = 3;

/** @typedef {{publication: Buffer, offset: number}} Found */

/**
 * @typedef {object} StateQuery
 * @property {readonly string[]|null} keys returns only these, without limits; null: a page of all
 * @property {number} after an offset: returns later entries
 * @property {number} limit entries
 */

/**
 * @typedef {object} StateAnswer
 * @property {string} epoch @property {number} offset of the newest change
 * @property {Buffer} entries JSON text without brackets, the oldest change first
 * @property {boolean} hasMore there are later entries
 */

export class StateReader {
  /** @param {import('./scheduler.js').SyncScheduler} scheduler */
  constructor(scheduler) {
    this.scheduler = scheduler;
  }

  /**
   * @param {string} room @param {StateQuery} query
   * @returns {Promise<StateAnswer|null>} null: the room has no state. Rejects with a BrokerError.
   */
  async read(room, query) {
    if (!this.scheduler.hasState(room)) return null;
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const answer = await this.#readOnce(room, query);
      if (answer !== null) return answer;
    }
    throw this.scheduler.reads.refuseAnswer('the state changed too much during each read');
  }

  /**
   * @param {string} room @param {StateQuery} query
   * @returns {Promise<StateAnswer|null>} null: its pages have different epochs, or an earlier page
   *   may have a key that was removed meanwhile and whose tombstone was forgotten
   */
  async #readOnce(room, { keys, after, limit }) {
    const reads = this.scheduler.reads.forAnswer();
    let first = { epoch: '', offset: 0 };
    /** A later page may have a newer change of a key. @type {Map<string, Found>} */
    const byKey = new Map();
    let last = after;
    let bytes = 0;
    for (;;) {
      const from = { after: last, limit: MIN_PAGE, maxBytes: MAX_BYTES, isForward: true };
      const named = keys === null ? {} : { keys };
      const page = await reads.read(room, { ...from, ...named, isGlance: true });
      const { epoch, offset, publications, state } = page;
      if (state === undefined) throw unavailable('the broker does not know the state');
      if (first.epoch === '') first = { epoch, offset };
      else if (epoch !== first.epoch || state.floor > first.offset) return null;
      for (const [i, publication] of publications.entries()) {
        last = state.offsets[i];
        if (!isPublication(publication) || !hasKey(publication)) continue;
        const key = keyTextOf(publication);
        byKey.delete(key);
        if (isRemoval(publication)) continue;
        bytes += publication.length;
        byKey.set(key, { publication, offset: last });
      }
      const isEnough = byKey.size > limit || bytes > MAX_BYTES;
      if (state.hasMore && !isEnough && publications.length > 0) continue;
      const found = [...byKey.values()];
      if (keys !== null) found.sort((a, b) => a.offset - b.offset);
      const taken = keys === null ? found.slice(0, limit) : found;
      const hasMore = found.length > taken.length || state.hasMore;
      return { epoch, offset, entries: encodeStateEntries(taken), hasMore };
    }
  }
}
