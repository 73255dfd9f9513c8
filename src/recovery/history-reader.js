// history-reader.js: answers `history` commands, from this worker's replay buffers or the broker.
// An answer is at most half of what may wait for a connection (SyncScheduler.maxReplayBytes), and a
// command reads no more than its answer needs.

import { resolveClaims } from '../protocol/claim.js';
import { encodeHistoryMessages } from '../protocol/encode.js';
import { timestampOf } from '../protocol/publication.js';
import { asDeliverable } from './deliverable.js';
import { unavailable } from './read-queue.js';

const DEFAULT_LIMIT = 100;
/** Reads that wait, from which on `history` commands are refused. */
const MAX_WAITING_READS = 1000;

/** @import { HistoryPage } from '../backend/broker.js' */
/** @import { Since } from '../protocol/decode.js' */
/** @import { Position } from '../protocol/position.js' */

/**
 * At most one of `since`, `before` and `sinceTimeMs` is given. Without them, the newest messages.
 * @typedef {object} HistoryQuery
 * @property {number} [limit] messages, within the room's rule
 * @property {Since|null} [since] asks for the messages after it, the oldest first. If its epoch is
 *   another one: the newest
 * @property {Position|null} [before] asks for the messages before it, the newest first. If its epoch
 *   is another one: none
 * @property {number|null} [sinceTimeMs] asks for the messages from a time on, the oldest first
 */

/**
 * @typedef {object} HistoryAnswer
 * @property {Buffer} messages JSON text without brackets, oldest first
 * @property {Position|null} position null: the room has no history
 * @property {boolean} hasMore are there further messages: newer ones after `since` or
 *   `sinceTimeMs`, otherwise older ones?
 * @property {number} searchedBytes read to find the beginning, beside the messages
 */

/**
 * @typedef {object} HistoryPart
 * @property {Buffer[]} publications consecutive, oldest first
 * @property {number} first offset of the first one
 * @property {string} epoch of the stream
 * @property {number} offset of its newest publication
 * @property {boolean} hasMore as in HistoryAnswer
 * @property {number} searchedBytes as in HistoryAnswer
 */

export class HistoryReader {
  /**
   * @param {object} parts @param {import('./scheduler.js').SyncScheduler} parts.scheduler
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ scheduler, counters }) {
    this.scheduler = scheduler;
    this.counters = counters;
  }

  /**
   * @param {string} room @param {HistoryQuery} query
   * @returns {Promise<HistoryAnswer>} rejects with a BrokerError, or an error that has such a code
   */
  async read(room, query) {
    const page = await this.page(room, query);
    if (page === null) return NO_HISTORY;
    const { publications, epoch, offset, first, hasMore, searchedBytes } = page;
    const messages = encodeHistoryMessages(publications, first);
    return { messages, position: { epoch, offset }, hasMore, searchedBytes };
  }

  /**
   * The same, as publications.
   * @param {string} room @param {HistoryQuery} query
   * @returns {Promise<HistoryPart|null>} null: the room has no history
   */
  async page(room, { limit, since = null, before = null, sinceTimeMs = null }) {
    const rule = this.scheduler.historyOf(room);
    if (rule === null || rule.state !== undefined) return null;
    const count = Math.min(limit ?? DEFAULT_LIMIT, rule.size);
    let searchedBytes = 0;
    let page;
    if (sinceTimeMs !== null) {
      const found = await this.#positionAt(room, sinceTimeMs, rule.size);
      ({ since, searchedBytes } = found);
      // There is none. Those that have come meanwhile may be older than a time in the future.
      if (since.offset === found.top) page = emptyPage(since.epoch, found.top);
    }
    page ??=
      before === null
        ? await this.#page(room, count, since, rule.size)
        : await this.#pageBefore(room, count, before);
    const { epoch, offset, first } = page;
    const { references, maxReplayBytes } = this.scheduler;
    const isForward = since !== null && since.epoch === epoch;
    // A reference is larger than its claim. So claims that do not fit need no reference.
    const claims = cut(page.publications, maxReplayBytes, isForward);
    const resolved = resolveClaims(page.publications.slice(claims.start, claims.end), references);
    const { start, end } = cut(resolved, maxReplayBytes, isForward);
    const from = first + claims.start + start;
    const next = first + claims.start + end;
    return {
      publications: resolved.slice(start, end),
      first: from,
      epoch,
      offset,
      hasMore: isForward ? next > from && next <= offset : page.hasOlder || from > first,
      searchedBytes,
    };
  }

  /**
   * @param {string} room @param {number} count @param {Since|null} since
   * @param {number} size of the room's rule @returns {Promise<HistoryPage>}
   */
  async #page(room, count, since, size) {
    const buffered = await this.#bufferedPage(room, count, since);
    if (buffered !== null) return buffered;
    const reads = this.#reads();
    const { maxReplayBytes: maxBytes } = this.scheduler;
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

  /** @param {string} room @param {number} count @param {Position} before */
  async #pageBefore(room, count, before) {
    const sync = this.scheduler.syncs.get(room);
    if (sync?.isLive && sync.epoch === before.epoch) {
      sync.expire();
      const { offset, replayBuffer } = sync;
      const last = Math.min(offset, before.offset - 1);
      // Nothing is read ahead: a page that is not here costs the broker no more than the page.
      if (last - count + 1 >= replayBuffer.first || !replayBuffer.hasOlder)
        return bufferedUpTo(sync, last, count);
    }
    const { maxReplayBytes: maxBytes } = this.scheduler;
    const from = { after: 0, limit: count, maxBytes, before, isGlance: true };
    return this.#deliverable(await this.#reads().read(room, from));
  }

  /**
   * @param {string} room @param {number} timeMs since 1970 @param {number} size of the room's rule
   * @returns {Promise<{since: Since, top: number, searchedBytes: number}>} `since`: of the message
   *   before the first that was accepted then or later; `top`: offset of the newest
   */
  async #positionAt(room, timeMs, size) {
    const sync = this.scheduler.syncs.get(room);
    if (sync?.isLive) {
      sync.expire();
      const { epoch, offset, replayBuffer } = sync;
      const first = replayBuffer.firstSince(timeMs);
      if (first > replayBuffer.first || !replayBuffer.hasOlder)
        return { since: positionBefore(epoch, first), top: offset, searchedBytes: 0 };
    }
    const reads = this.#reads();
    const { epoch, offset } = await reads.read(room, { after: 0, limit: 0, isGlance: true });
    let low = Math.max(0, offset - size) + 1;
    let high = offset + 1;
    let searchedBytes = 0;
    // At most 14 reads of one message: a room keeps 10,000.
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const from = { after: middle - 1, limit: 1, maxBytes: 1, isForward: true, isGlance: true };
      const page = await reads.read(room, from);
      if (page.epoch !== epoch) throw unavailable('the history was deleted during the read');
      const [found] = page.publications;
      // The store may have fewer messages than the rule allows.
      if (found === undefined) low = high;
      else {
        searchedBytes += found.length;
        if (timestampOf(asDeliverable(found, this.counters)) < timeMs) low = page.first + 1;
        else high = middle;
      }
    }
    return { since: positionBefore(epoch, low), top: offset, searchedBytes };
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
    if (since === null || !isOfStream(since)) return bufferedUpTo(sync, offset, count);
    // If the publications are large, the replay buffer has fewer of them than the broker.
    const first = since.offset + 1;
    if (first < replayBuffer.first && offset - replayBuffer.length > 0) return null;
    const from = Math.max(first, replayBuffer.first);
    const to = Math.min(offset, from + count - 1);
    const publications = replayBuffer.slice(from, to);
    return { epoch, offset, first: from, publications, hasOlder: false };
  }

  /** The reads of the broker, unless too many wait. */
  #reads() {
    const { reads } = this.scheduler;
    if (reads.waiting.size < MAX_WAITING_READS) return reads;
    this.counters.readsRefused++;
    throw unavailable('too many reads are waiting');
  }

  /** @param {HistoryPage} page */
  #deliverable(page) {
    const { counters } = this;
    return { ...page, publications: page.publications.map((one) => asDeliverable(one, counters)) };
  }
}

/** @type {HistoryAnswer} */
const NO_HISTORY = Object.freeze({
  messages: Buffer.alloc(0),
  position: null,
  hasMore: false,
  searchedBytes: 0,
});

/** @param {string} epoch @param {number} offset @returns {Since} */
function positionBefore(epoch, offset) {
  return { epoch, offset: offset - 1, connectionId: '' };
}

/** @param {string} epoch @param {number} offset @returns {HistoryPage} */
function emptyPage(epoch, offset) {
  return { epoch, offset, first: offset + 1, publications: [], hasOlder: false };
}

/**
 * The newest publications up to an offset.
 * @param {import('./room-sync.js').RoomSync} sync
 * @param {number} last its publication is in the replay buffer, or no longer kept
 * @param {number} count @returns {HistoryPage}
 */
function bufferedUpTo({ epoch, offset, replayBuffer }, last, count) {
  const first = Math.max(replayBuffer.first, last - count + 1);
  if (first > last) return emptyPage(epoch, offset);
  const hasOlder = first > replayBuffer.first || replayBuffer.hasOlder;
  return { epoch, offset, first, publications: replayBuffer.slice(first, last), hasOlder };
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
