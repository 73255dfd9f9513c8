// replay-buffer.js: a room's recent publications in this worker's memory: consecutive, up to the
// last one handed to the outbox.
//
//   … trimmed | first … next-1 | the next publication
//
// It starts empty. Live publications are appended, and one read puts older ones in front (`fill`).
// It may be emptied at any time, with its replay frames (docs/architecture/recovery.md).

import { timestampOf } from '../protocol/publication.js';

/** Memory of an entry in addition to its bytes. */
const ENTRY_BYTES = 200;
/** Trimming leaves empty places at the front. If there are more, they are removed together. */
const MAX_EMPTY = 64;

/**
 * Consecutive publications in one format.
 * @typedef {object} Replay
 * @property {number} from offset of the publication before the first
 * @property {number} to offset of the last
 * @property {string} epoch @property {number} period of its references
 * @property {number} format of FORMAT
 * @property {Buffer} prefix of the room
 * @property {readonly Buffer[]} publications empty if some can be omitted with the frames alone
 * @property {Buffer} frames @property {number} bytes of the frames and of these publications
 * @property {readonly {place: number, id: string}[]} excepts publications that exclude a
 *   connection: their index, and its id
 * @property {readonly {place: number, publication: Buffer}[]} restricted publications with an
 *   audience
 */

/** Memory that the replay buffers of a worker share. */
export class ReplayBudget {
  /**
   * @param {{maxBytes: number, counters: import('../observability/counters.js').Counters}} parts
   */
  constructor({ maxBytes, counters }) {
    this.maxBytes = maxBytes;
    this.counters = counters;
    /** Buffers with publications, the least recently used first. @type {Set<ReplayBuffer>} */
    this.used = new Set();
  }

  /** @param {ReplayBuffer} buffer that was used @param {number} bytes by which its size changed */
  resized(buffer, bytes) {
    const { counters, used, maxBytes } = this;
    counters.replayBufferBytes += bytes;
    used.delete(buffer);
    if (buffer.length > 0 || buffer.replayBytes > 0) used.add(buffer);
    if (counters.replayBufferBytes <= maxBytes) return;
    for (const other of used) {
      if (counters.replayBufferBytes <= maxBytes) return;
      if (other === buffer) continue;
      counters.replayBuffersEvicted++;
      other.evict();
    }
  }
}

export class ReplayBuffer {
  /** @param {{maxCount: number, maxBytes: number, budget: ReplayBudget}} parts */
  constructor({ maxCount, maxBytes, budget }) {
    this.maxCount = maxCount;
    this.maxBytes = maxBytes;
    this.budget = budget;
    /** Publications of kind POSITIONED; the first `head` places are empty. @type {Buffer[]} */
    this.entries = [];
    this.head = 0;
    /** The size of the publications. */
    this.bytes = 0;
    /** The latest one of each format. @type {Replay[]} */
    this.replays = [];
    this.replayBytes = 0;
    /** Offset of the first publication here; `next` if there is none. */
    this.first = 1;
    this.next = 1;
    /** A read would bring nothing older. */
    this.isFilled = false;
    /** The store may have older ones, perhaps too large for this buffer. */
    this.mayHaveOlder = false;
    /** When the newest publication was added, on the caller's clock. */
    this.latestMs = 0;
  }

  get length() {
    return this.next - this.first;
  }

  /** May the room have publications older than the first one here? */
  get hasOlder() {
    return this.mayHaveOlder && this.length < this.maxCount;
  }

  /** Starts over. @param {number} next */
  startOver(next) {
    this.#clear(next, next === 1);
  }

  /** A read may fill it again. */
  evict() {
    this.startOver(this.next);
  }

  /** The store has no publication older than this. @param {number} minMs */
  dropExpired(minMs) {
    if (this.length > 0 && this.latestMs < minMs) this.#clear(this.next, true);
  }

  /** @param {number} next @param {boolean} isFilled */
  #clear(next, isFilled) {
    const bytes = this.bytes + this.replayBytes;
    this.entries = [];
    this.head = 0;
    this.bytes = 0;
    this.replays = [];
    this.replayBytes = 0;
    this.first = next;
    this.next = next;
    this.isFilled = isFilled;
    this.mayHaveOlder = !isFilled;
    this.budget.resized(this, -bytes);
  }

  /** @param {Buffer} publication the one at `next` @param {number} nowMs */
  appendNext(publication, nowMs) {
    const before = this.bytes;
    this.entries.push(publication);
    this.next++;
    this.bytes += publication.length + ENTRY_BYTES;
    this.latestMs = nowMs;
    this.#trim();
    this.budget.resized(this, this.bytes - before);
  }

  /**
   * Puts older publications in front.
   * @param {readonly Buffer[]} publications of kind POSITIONED; the last one is at `first - 1`
   * @param {number} nowMs @param {boolean} isComplete a read would bring nothing older
   * @param {boolean} hasOlder the store has older ones
   */
  fill(publications, nowMs, isComplete, hasOlder) {
    const before = this.bytes;
    this.mayHaveOlder = hasOlder;
    this.entries = [...publications, ...this.entries.slice(this.head)];
    this.head = 0;
    this.first -= publications.length;
    for (const { length } of publications) this.bytes += length + ENTRY_BYTES;
    if (publications.length > 0 && this.latestMs === 0) this.latestMs = nowMs;
    this.isFilled = isComplete;
    this.#trim();
    this.budget.resized(this, this.bytes - before);
  }

  /** @param {Replay} replay replaces the former one of its format */
  keepReplay(replay) {
    const bytes = replay.bytes - (this.replays[replay.format]?.bytes ?? 0);
    this.replays[replay.format] = replay;
    this.replayBytes += bytes;
    this.budget.resized(this, bytes);
  }

  /** @param {number} offset of one that is here */
  at(offset) {
    return this.entries[this.head + offset - this.first];
  }

  /** @param {number} from @param {number} to the last; both are here */
  slice(from, to) {
    const start = this.head + from - this.first;
    return this.entries.slice(start, start + to - from + 1);
  }

  /**
   * A binary search, as if times never decreased. They may, if the servers' clocks differ.
   * @param {number} timeMs since 1970
   * @returns {number} offset of the first publication accepted at that time or later, or `next`
   */
  firstSince(timeMs) {
    let low = this.first;
    let high = this.next;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      if (timestampOf(this.at(middle)) < timeMs) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #trim() {
    const { entries } = this;
    while (this.length > this.maxCount || (this.bytes > this.maxBytes && this.length > 1)) {
      this.mayHaveOlder = true;
      this.bytes -= entries[this.head].length + ENTRY_BYTES;
      entries[this.head++] = EMPTY;
      this.first++;
    }
    if (this.head > MAX_EMPTY && this.head > this.length) {
      entries.splice(0, this.head);
      this.head = 0;
    }
  }
}

const EMPTY = Buffer.alloc(0);
