// history-reader.js: answers `history` commands from this worker's replay buffers or the broker. An
// answer has at most `maxBytes`, and a command reads no more than that needs.
//
// Each reader gets the messages that it may see. If a page has none of them, the next one is read,
// up to MAX_READS: an empty page would look like the end. A page waits until its answer is written,
// so the doors of clients ask again then what its reader may see (`answerOf`).

import { resolveClaims } from '../protocol/claim.js';
import { encodeHistoryMessages } from '../protocol/encode.js';
import { timestampOf } from '../protocol/publication.js';
import { asDeliverable } from './deliverable.js';
import { unavailable } from './read-queue.js';

const DEFAULT_LIMIT = 100;
/** Pages that an answer reads to find a message for its reader. */
const MAX_READS = 4;
/** Messages for others are charged in steps, so that their sizes stay unknown. */
const HIDDEN_STEP_BYTES = 16 * 1024;

/** @import { HistoryPage } from '../backend/broker.js' */
/** @import { Audiences } from '../protocol/audiences.js' */
/** @import { Since } from '../protocol/decode.js' */
/** @import { Position } from '../protocol/position.js' */

/**
 * A query has at most one of `since`, `before` and `sinceTimeMs`, or asks for the newest messages.
 * @typedef {object} HistoryQuery
 * @property {number} [limit] messages, within the room's rule
 * @property {Since|null} [since] the oldest messages after it; the newest of all if it has another
 *   epoch
 * @property {Position|null} [before] the newest messages before it; none if it has another epoch
 * @property {number|null} [sinceTimeMs] the oldest messages since that time
 */

/**
 * @typedef {object} HistoryAnswer
 * @property {Buffer} messages JSON text without brackets, oldest first
 * @property {Position|null} position null: the room has no history
 * @property {boolean} hasMore more messages exist: newer ones for `since` and `sinceTimeMs`,
 *   otherwise older ones
 * @property {number} searchedBytes read in addition to the messages: to find the beginning, and those
 *   for others
 * @property {Position|null} next where the next page begins (`since`) or ends (`before`), if this one
 *   has no message for its reader, and there are more
 */

/**
 * @typedef {object} HistoryPart
 * @property {Row[]} rows the messages for the reader, oldest first
 * @property {number} first offset of the first message that was read
 * @property {number} last the same of the last one
 * @property {boolean} isForward were they read after a position?
 * @property {string} epoch @property {number} offset of the stream's newest publication
 * @property {boolean} hasMore @property {number} searchedBytes as in HistoryAnswer
 */

/** @typedef {{publication: Buffer, offset: number}} Row */

/**
 * What a reader may see when the page has been read.
 * @typedef {() => Audiences} Reader
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

  /** The most bytes of an answer with more than one message. */
  get maxBytes() {
    return this.scheduler.maxReplayBytes;
  }

  /**
   * @param {string} room @param {HistoryQuery} query @param {Reader} reader
   * @param {boolean} [showsAudience] to backends
   * @returns {Promise<HistoryAnswer>} Rejects with a BrokerError or an error with such a code.
   */
  async read(room, query, reader, showsAudience = false) {
    const page = await this.page(room, query, reader);
    return this.answerOf(page, reader(), showsAudience);
  }

  /**
   * @param {HistoryPart|null} page @param {Audiences} audiences of its reader, now
   * @param {boolean} [showsAudience] to backends
   * @returns {HistoryAnswer}
   */
  answerOf(page, audiences, showsAudience = false) {
    if (page === null) return NO_HISTORY;
    const { epoch, offset, first, last, isForward, hasMore, searchedBytes } = page;
    const rows = page.rows.filter(({ publication }) => audiences.maySee(publication));
    const messages = encodeHistoryMessages(rows, showsAudience);
    const isStuck = rows.length === 0 && hasMore;
    const next = isStuck ? { epoch, offset: isForward ? last : first } : null;
    return { messages, position: { epoch, offset }, hasMore, searchedBytes, next };
  }

  /**
   * Like `read`, as publications.
   * @param {string} room @param {HistoryQuery} query @param {Reader} reader
   * @returns {Promise<HistoryPart|null>} null: the room has no history
   */
  async page(room, query, reader) {
    let page = await this.#readPage(room, query, reader);
    for (let reads = 1; reads < MAX_READS; reads++) {
      if (page === null || !page.hasMore || page.rows.length > 0 || page.last < page.first) break;
      const { epoch, first, last, isForward, searchedBytes } = page;
      const place = isForward
        ? { since: { epoch, offset: last, connectionId: '' } }
        : { before: { epoch, offset: first } };
      page = await this.#readPage(room, { limit: query.limit, ...place }, reader);
      if (page !== null) page.searchedBytes += searchedBytes;
    }
    return page;
  }

  /**
   * @param {string} room @param {HistoryQuery} query @param {Reader} reader
   * @returns {Promise<HistoryPart|null>}
   */
  async #readPage(room, { limit, since = null, before = null, sinceTimeMs = null }, reader) {
    const rule = this.scheduler.historyOf(room);
    if (rule === null || rule.state !== undefined) return null;
    const count = Math.min(limit ?? DEFAULT_LIMIT, rule.size);
    let searchedBytes = 0;
    let page;
    if (sinceTimeMs !== null) {
      const found = await this.#positionAt(room, sinceTimeMs, rule.size);
      ({ since, searchedBytes } = found);
      // There is none. With a time in the future, later arrivals may still be older than it.
      if (since.offset === found.top) page = emptyPage(since.epoch, found.top);
    }
    page ??=
      before === null
        ? await this.#page(room, count, since, rule.size)
        : await this.#pageBefore(room, count, before);
    const { epoch, offset, first } = page;
    const { maxBytes } = this;
    const { references } = this.scheduler;
    const isForward = since !== null && since.epoch === epoch;
    // References are larger than claims, so claims that do not fit need none.
    const claims = cut(page.publications, maxBytes, isForward);
    const resolved = resolveClaims(page.publications.slice(claims.start, claims.end), references);
    const { start, end } = cut(resolved, maxBytes, isForward);
    const from = first + claims.start + start;
    const next = first + claims.start + end;
    const audiences = reader();
    const rows = [];
    let hiddenBytes = 0;
    for (let i = start; i < end; i++) {
      const publication = resolved[i];
      if (audiences.maySee(publication)) rows.push({ publication, offset: from + i - start });
      else hiddenBytes += publication.length;
    }
    searchedBytes += Math.ceil(hiddenBytes / HIDDEN_STEP_BYTES) * HIDDEN_STEP_BYTES;
    return {
      ...{ rows, first: from, last: next - 1, isForward, epoch, offset, searchedBytes },
      hasMore: isForward ? next > from && next <= offset : page.hasOlder || from > first,
    };
  }

  /**
   * @param {string} room @param {number} count @param {Since|null} since
   * @param {number} size of the room's rule @returns {Promise<HistoryPage>}
   */
  async #page(room, count, since, size) {
    const buffered = await this.#bufferedPage(room, count, since);
    if (buffered !== null) return buffered;
    const reads = this.scheduler.reads.forAnswer();
    const { maxBytes } = this;
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
      // Otherwise only the page is read: filling the buffer would read more.
      if (last - count + 1 >= replayBuffer.first || !replayBuffer.hasOlder)
        return bufferedUpTo(sync, last, count);
    }
    const { maxBytes } = this;
    const from = { after: 0, limit: count, maxBytes, before, isGlance: true };
    return this.#deliverable(await this.scheduler.reads.forAnswer().read(room, from));
  }

  /**
   * @param {string} room @param {number} timeMs since 1970 @param {number} size of the room's rule
   * @returns {Promise<{since: Since, top: number, searchedBytes: number}>} `since`: position before
   *   the first message accepted at that time or later; `top`: offset of the newest one
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
    const reads = this.scheduler.reads.forAnswer();
    const { epoch, offset } = await reads.read(room, { after: 0, limit: 0, isGlance: true });
    let low = Math.max(0, offset - size) + 1;
    let high = offset + 1;
    let searchedBytes = 0;
    // A room keeps at most 10,000 messages, so this takes at most 14 reads of one message.
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
   * @returns {Promise<HistoryPage|null>} null: this worker does not have all of it
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
    // If the room closes meanwhile, the broker answers.
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
  next: null,
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
 * @param {import('./room-sync.js').RoomSync} sync
 * @param {number} last offset of a publication that is in the replay buffer or no longer kept
 * @param {number} count @returns {HistoryPage}
 */
function bufferedUpTo({ epoch, offset, replayBuffer }, last, count) {
  const first = Math.max(replayBuffer.first, last - count + 1);
  if (first > last) return emptyPage(epoch, offset);
  const hasOlder = first > replayBuffer.first || replayBuffer.hasOlder;
  return { epoch, offset, first, publications: replayBuffer.slice(first, last), hasOlder };
}

/**
 * The part of a page that fits into an answer, at least one message.
 * @param {readonly Buffer[]} publications @param {number} maxBytes
 * @param {boolean} isForward drops the last ones, not the first
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
