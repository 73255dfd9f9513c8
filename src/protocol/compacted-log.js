// compacted-log.js: the state of a room: of each key the newest publication, in the order of their
// offsets. The store has such a log for each room, and each worker a copy of those of its rooms.
//
//   K1@3 removed  K2@5  K3@9 …     `after(5)`: K3@9 and all later ones
//
// A client that has seen all changes up to an offset needs only later ones. A removed key stays as
// a tombstone, or a client that comes back would keep it. There are at most as many tombstones as
// keys; `floor` is the highest offset of a forgotten one. Positions below it prove nothing.
//
// A tombstone has the audience of what it removes, so that the name of the key stays unknown.

import {
  audienceTextOf,
  isRemoval,
  isRestricted,
  keyBytes,
  keyTextOf,
  payloadEnd,
  withAudience,
} from './publication.js';

/** Superseded entries are removed when they are the majority, if there are at least this many. */
const MIN_STALE = 64;
/** Memory of an entry beside its bytes: an object, its places, a Buffer with a store of its own. */
const ENTRY_OVERHEAD_BYTES = 512;
const NOTHING = Buffer.alloc(0);

/**
 * @typedef {object} Entry
 * @property {string} key as in JSON between quotes
 * @property {number} offset @property {Buffer} publication @property {boolean} isTombstone
 * @property {number} bytes of the key and the publication
 * @property {boolean} isStale superseded, or forgotten
 */

export class CompactedLog {
  /** @param {{maxKeys: number, maxBytes: number}} bounds */
  constructor({ maxKeys, maxBytes }) {
    this.maxKeys = maxKeys;
    this.maxBytes = maxBytes;
    /** Ascending offsets; some are stale. @type {Entry[]} */
    this.entries = [];
    /** @type {Map<string, Entry>} */
    this.byKey = new Map();
    /** The oldest first; some are stale. @type {Entry[]} */
    this.tombstones = [];
    this.tombstoneCount = 0;
    this.tombstoneBytes = 0;
    /** The bytes of the keys, without the tombstones. */
    this.liveBytes = 0;
    /** Keys and tombstones with an audience. */
    this.restricted = 0;
    this.floor = 0;
  }

  /** Keys that are not removed. */
  get keys() {
    return this.byKey.size - this.tombstoneCount;
  }

  get bytes() {
    return this.liveBytes + this.tombstoneBytes;
  }

  get memoryBytes() {
    return this.bytes + this.byKey.size * ENTRY_OVERHEAD_BYTES;
  }

  /** Entries of an empty log, whose tombstones up to the floor are forgotten. @param {number} floor */
  clear(floor) {
    this.entries = [];
    this.byKey.clear();
    this.tombstones = [];
    this.tombstoneCount = this.tombstoneBytes = this.liveBytes = this.restricted = 0;
    this.floor = floor;
  }

  /** Is there room for it? @param {Buffer} publication with a key */
  fits(publication) {
    if (isRemoval(publication)) return true;
    const former = this.byKey.get(keyTextOf(publication));
    const isNew = former === undefined || former.isTombstone;
    if (isNew && this.keys >= this.maxKeys) return false;
    const freed = isNew ? 0 : former.bytes;
    return this.liveBytes - freed + entryBytes(publication) <= this.maxBytes;
  }

  /**
   * @param {number} offset above those of all others
   * @param {Buffer} publication with a key, perhaps with its position
   * @returns {Buffer} what the log keeps of it
   */
  put(offset, publication) {
    const key = keyTextOf(publication);
    const former = this.byKey.get(key);
    const isTombstone = isRemoval(publication);
    const kept =
      isTombstone && former !== undefined
        ? withAudience(publication, audienceTextOf(former.publication))
        : publication;
    if (former !== undefined) this.#remove(former);
    const bytes = entryBytes(kept);
    const entry = { key, offset, publication: kept, isTombstone, bytes, isStale: false };
    if (isRestricted(kept)) this.restricted++;
    this.entries.push(entry);
    this.byKey.set(key, entry);
    if (isTombstone) {
      this.tombstoneCount++;
      this.tombstoneBytes += bytes;
      this.tombstones.push(entry);
    } else this.liveBytes += bytes;
    this.#bound();
    return kept;
  }

  /** @param {string} key as in JSON between quotes @returns {Entry|undefined} */
  get(key) {
    return this.byKey.get(key);
  }

  /**
   * The entries after an offset, up to another, the oldest change first.
   * @param {number} after @param {number} [end]
   * @param {{maxCount?: number, maxBytes?: number}} [bounds] it has one at least, if there is any
   * @returns {{entries: Entry[], reached: number}} `reached`: there is no other entry up to there
   */
  read(after, end = Number.MAX_SAFE_INTEGER, bounds = {}) {
    const { maxCount = Number.POSITIVE_INFINITY, maxBytes = Number.POSITIVE_INFINITY } = bounds;
    const entries = [];
    let bytes = 0;
    let reached = after;
    for (let i = this.#indexAfter(after); i < this.entries.length; i++) {
      const entry = this.entries[i];
      if (entry.offset > end) break;
      if (entry.isStale) continue;
      bytes += entry.publication.length;
      if (entries.length > 0 && (bytes > maxBytes || entries.length >= maxCount))
        return { entries, reached };
      entries.push(entry);
      reached = entry.offset;
    }
    return { entries, reached: end };
  }

  /**
   * What a client lacks that has seen the changes up to an offset.
   * @param {number} offset @param {import('./audiences.js').Audiences} audiences that it holds: it is
   *   not charged for what it does not get
   */
  after(offset, audiences) {
    const { entries } = this;
    let index = this.#indexAfter(offset);
    while (entries[index]?.isStale) index++;
    const oldest = entries[index] ?? null;
    // A join without a position lacks all: nothing to add up.
    if (this.restricted === 0 && oldest === entries.find(isFresh))
      return { bytes: this.bytes, oldest };
    let bytes = 0;
    for (; index < entries.length; index++) {
      const entry = entries[index];
      if (!entry.isStale && audiences.maySee(entry.publication)) bytes += entry.bytes;
    }
    return { bytes, oldest };
  }

  /** @param {number} offset @returns {number} of the first entry behind it, stale ones included */
  #indexAfter(offset) {
    let low = 0;
    let high = this.entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.entries[middle].offset <= offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** @param {Entry} entry */
  #remove(entry) {
    entry.isStale = true;
    if (isRestricted(entry.publication)) this.restricted--;
    entry.publication = NOTHING;
    this.byKey.delete(entry.key);
    if (entry.isTombstone) {
      this.tombstoneCount--;
      this.tombstoneBytes -= entry.bytes;
    } else this.liveBytes -= entry.bytes;
  }

  #bound() {
    const { tombstones, maxKeys, maxBytes } = this;
    let forgotten = 0;
    while (this.tombstoneCount > 0 && (this.tombstoneCount > maxKeys || this.bytes > maxBytes)) {
      const oldest = tombstones[forgotten++];
      if (oldest.isStale) continue;
      this.#remove(oldest);
      this.floor = oldest.offset;
    }
    if (forgotten > 0) tombstones.splice(0, forgotten);
    if (tombstones.length > 2 * this.tombstoneCount + MIN_STALE)
      this.tombstones = tombstones.filter(isFresh);
    if (this.entries.length > 2 * this.byKey.size + MIN_STALE)
      this.entries = this.entries.filter(isFresh);
  }
}

/** @param {Entry} entry */
function isFresh({ isStale }) {
  return !isStale;
}

/** @param {Buffer} publication with a key: the key is in its header, and is counted twice */
function entryBytes(publication) {
  return keyBytes(publication) + payloadEnd(publication);
}
