// history-reader.js: answers `history` commands, from this worker's replay buffers or the broker.
//
// An answer is at most half of what may wait for a connection (SyncScheduler.maxReplayBytes), and a
// command reads no more than its answer needs.

import { resolveClaims } from '../protocol/claim.js';
import { encodeHistoryMessages } from '../protocol/encode.js';
import { asDeliverable } from './deliverable.js';
import { unavailable } from './read-queue.js';

const DEFAULT_LIMIT = 100;
/** Reads that wait, from which on `history` commands are refused. */
const MAX_WAITING_READS = 1000;

/** @import { HistoryPage } from '../backend/broker.js' */
/** @import { Since } from '../protocol/decode.js' */

export class HistoryReader {
  /**
   * @param {object} parts
   * @param {import('./scheduler.js').SyncScheduler} parts.scheduler
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ scheduler, counters }) {
    this.scheduler = scheduler;
    this.counters = counters;
  }

  /**
   * @param {string} room
   * @param {number|undefined} limit messages, within the room's rule
   * @param {Since|null} since asks for the messages behind it, the oldest first; null: the newest
   * @returns {Promise<{messages: Buffer, position: {epoch: string, offset: number}|null}>} JSON
   *   text without brackets, oldest first; position null: the room has no history. Rejects with a
   *   BrokerError, or with another error that has such a code.
   */
  async read(room, limit, since) {
    const rule = this.scheduler.historyOf(room);
    if (rule === null) return { messages: Buffer.alloc(0), position: null };
    const count = Math.min(limit ?? DEFAULT_LIMIT, rule.size);
    const page = await this.#page(room, count, since, rule.size);
    const { epoch, offset, first } = page;
    const { references, maxReplayBytes } = this.scheduler;
    const isForward = since !== null && since.epoch === epoch;
    // A reference is larger than its claim. So claims that do not fit need no reference.
    const claims = cut(page.publications, maxReplayBytes, isForward);
    const resolved = resolveClaims(page.publications.slice(claims.start, claims.end), references);
    const { start, end } = cut(resolved, maxReplayBytes, isForward);
    return {
      messages: encodeHistoryMessages(resolved.slice(start, end), first + claims.start + start),
      position: { epoch, offset },
    };
  }

  /**
   * @param {string} room @param {number} count @param {Since|null} since
   * @param {number} size of the room's rule
   * @returns {Promise<HistoryPage>}
   */
  async #page(room, count, since, size) {
    const buffered = await this.#bufferedPage(room, count, since);
    if (buffered !== null) return buffered;
    const { reads, maxReplayBytes: maxBytes } = this.scheduler;
    if (reads.waiting.size >= MAX_WAITING_READS) {
      this.counters.readsRefused++;
      throw unavailable('too many reads are waiting');
    }
    if (since !== null && since.epoch !== '') {
      // The stream's epoch decides whether the client's position is in it.
      const position = await reads.read(room, { after: 0, limit: 0, isGlance: true });
      if (since.epoch === position.epoch) {
        if (since.offset >= position.offset) return position;
        const after = Math.max(since.offset, position.offset - size);
        const from = { after, limit: count, maxBytes, isForward: true, isGlance: true };
        const page = await reads.read(room, from);
        if (since.epoch === page.epoch) return this.#deliverable(page);
      }
    }
    return this.#deliverable(
      await reads.read(room, { after: 0, limit: count, maxBytes, isGlance: true }),
    );
  }

  /**
   * @param {string} room @param {number} count @param {Since|null} since
   * @returns {Promise<HistoryPage|null>} null: this worker does not have it
   */
  async #bufferedPage(room, count, since) {
    const sync = this.scheduler.syncs.get(room);
    if (!sync?.isLive) return null;
    /** @param {Since} position */
    const isOfStream = (position) => position.epoch === sync.epoch;
    const isHere = () =>
      since !== null && isOfStream(since)
        ? since.offset + 1 >= sync.replayBuffer.first
        : sync.replayBuffer.length >= count;
    // If the room closes meanwhile, the broker is asked.
    if (!isHere()) {
      await sync.fill().catch((error) => {
        if (sync.isLive) throw error;
      });
    }
    if (!sync.isLive) return null;
    sync.expire();
    const { epoch, offset, replayBuffer } = sync;
    if (since === null || !isOfStream(since)) {
      const first = Math.max(replayBuffer.first, offset - count + 1);
      return { epoch, offset, first, publications: replayBuffer.slice(first, offset) };
    }
    // If the publications are large, the replay buffer has fewer of them than the broker.
    const first = since.offset + 1;
    if (first < replayBuffer.first && offset - replayBuffer.length > 0) return null;
    const from = Math.max(first, replayBuffer.first);
    const to = Math.min(offset, from + count - 1);
    return { epoch, offset, first: from, publications: replayBuffer.slice(from, to) };
  }

  /** @param {HistoryPage} page */
  #deliverable(page) {
    const { counters } = this;
    return { ...page, publications: page.publications.map((one) => asDeliverable(one, counters)) };
  }
}

/**
 * The part of a page that fits into an answer. Messages that the client did not ask for go first.
 * @param {readonly Buffer[]} publications @param {number} maxBytes
 * @param {boolean} isForward the client asked for the first ones
 * @returns {{start: number, end: number}} at least one message, if there is any
 */
function cut(publications, maxBytes, isForward) {
  let start = 0;
  let end = publications.length;
  let bytes = 0;
  for (const { length } of publications) bytes += length;
  while (bytes > maxBytes && end - start > 1)
    bytes -= publications[isForward ? --end : start++].length;
  return { start, end };
}
