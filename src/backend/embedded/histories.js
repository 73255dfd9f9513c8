// histories.js: the histories of rooms, in memory: the core of the embedded broker.
//
// A stream keeps its publications in segments, each after its length, as on the relay's wire.
// Segments are never overwritten, so a read lends them without a copy, and a thousand small
// publications are a few objects for the garbage collector.
//
// A room with state has a stream that keeps the newest publication of each key (`set`). When its
// state expires or is evicted, its epoch ends too, because its members must forget the state.
//
// Everything is bounded, and every loss is counted. Above `maxBytes`, the rooms least recently
// published to lose their publications but not their positions, so a client that missed nothing
// still recovers. Above `maxStreams`, the oldest positions are forgotten, and these rooms begin a
// new epoch.
//
// No two rooms share an epoch. A room without publications costs no memory: its epoch is computed
// from its name and a random seed. When a position is forgotten, its bucket (a hash of the name)
// gets a new seed. Other unpublished rooms in the bucket change their epoch too, and their clients
// reload without need.
//
// The caller's clock must not go back. Streams with the same time to live form one list, ordered by
// their latest publication, so expiry needs no timers and costs only as much as it frees.

import { hash, randomBytes } from 'node:crypto';
import { CompactedLog } from '../../protocol/compacted-log.js';
import { EPOCH_BYTES, OFFSET_BYTES, readOffset, writeOffset } from '../../protocol/position.js';
import { keyTextIn } from '../../protocol/publication.js';
import { MAX_PAGE_BYTES } from '../broker.js';

/** Segments of all streams, with their overhead. */
const MAX_BYTES = 256 * 1024 * 1024;
/** Rooms with a known position: 260 MB with one small publication each. */
const MAX_STREAMS = 200_000;
/** One room gets at most this fraction of `maxBytes`, so it cannot evict all others. */
const ROOM_PART = 4;

const LENGTH_BYTES = 4;
const MIN_SEGMENT_BYTES = 256;
const MAX_SEGMENT_BYTES = 32 * 1024;
/** Memory of a segment in addition to its bytes: a Buffer, its store, an object. */
const SEGMENT_OVERHEAD_BYTES = 256;
const SLOTS = 65_536;
/** Histories freed in one sweep: 3 ms. The others wait, but reads do not return them. */
const MAX_SWEPT = 10_000;

/** @import { HistoryRule, StateRule } from '../../config/room-patterns.js' */
/** @import { Position, ReadRequest } from '../broker.js' */

/**
 * @typedef {object} Read
 * @property {string} epoch @property {number} offset of the room's newest publication
 * @property {number} first offset of the first publication
 * @property {Buffer[]} runs the publications, each after its length, for publicationsIn. The caller
 *   may keep them but never modify them
 * @property {boolean} hasOlder as in a HistoryPage
 * @property {{floor: number, isWhole: boolean, hasMore: boolean}} [state] as in a HistoryPage. Each
 *   publication then comes after its offset and its length, for entriesIn
 */

/** @typedef {{buffer: Buffer, end: number, count: number}} Segment `count`: stored publications */

export class Histories {
  /** @param {{maxBytes?: number, maxStreams?: number}} [bounds] */
  constructor({ maxBytes = MAX_BYTES, maxStreams = MAX_STREAMS } = {}) {
    this.maxBytes = maxBytes;
    this.maxStreams = maxStreams;
    /** @type {Map<string, Stream>} */
    this.streams = new Map();
    /** Streams with publications, by their time to live. @type {Map<number, List>} */
    this.kept = new Map();
    /** Streams that have only a position. */
    this.bare = new List();
    this.bytes = 0;
    this.publications = 0;
    this.seed = newSeed();
    /** Seeds of the buckets in which a position was forgotten. @type {Map<number, string>} */
    this.renewed = new Map();
    /** Evicted before they expired, for lack of space. */
    this.lostPublications = 0;
    this.lostPositions = 0;
  }

  /**
   * @param {string} room @param {HistoryRule} rule
   * @param {Buffer} run publications, each after its length; copied
   * @param {number} count of publications in it
   * @param {number} nowMs @returns {Position} of the last one
   */
  append(room, rule, run, count, nowMs) {
    let stream = this.streams.get(room);
    if (stream === undefined) {
      stream = new Stream(room, this.#epochOf(room));
      this.streams.set(room, stream);
    } else if (stream.expiresMs <= nowMs) {
      this.#expire(stream);
    }
    const kept = Math.min(count, rule.size);
    let from = 0;
    for (let i = kept; i < count; i++) from += LENGTH_BYTES + run.readUInt32BE(from);
    this.bytes += stream.pushRun(from === 0 ? run : run.subarray(from), kept);
    stream.offset += count;
    this.publications += kept;
    stream.expiresMs = nowMs + rule.ttlMs;
    stream.publishedMs = nowMs;
    this.#keep(stream, rule.ttlMs);
    while (stream.count > rule.size) this.#shift(stream);
    this.#bound(stream);
    return { epoch: stream.epoch, offset: stream.offset };
  }

  /**
   * Replaces the publication of a key.
   * @param {string} room with state @param {StateRule} rule @param {Buffer} publication copied
   * @param {number} nowMs @returns {Position|null} null: the state is full
   */
  set(room, rule, publication, nowMs) {
    const known = this.streams.get(room);
    if (known !== undefined && known.expiresMs <= nowMs) this.#expire(known);
    let stream = /** @type {StateStream|undefined} */ (this.streams.get(room));
    if (stream === undefined) {
      stream = new StateStream(room, this.#epochOf(room), rule);
      this.streams.set(room, stream);
    }
    if (!stream.log.fits(publication)) {
      if (stream.offset === 0) this.streams.delete(room); // the epoch is computed, too
      return null;
    }
    const { bytes, count } = stream;
    stream.set(publication);
    this.bytes += stream.bytes - bytes;
    this.publications += stream.count - count;
    stream.expiresMs = nowMs + rule.ttlMs;
    stream.publishedMs = nowMs;
    this.#keep(stream, rule.ttlMs);
    this.#bound(stream);
    return { epoch: stream.epoch, offset: stream.offset };
  }

  /** @param {string} room @param {ReadRequest} request @param {number} nowMs @returns {Read} */
  page(room, request, nowMs) {
    const { after, limit, maxBytes = MAX_PAGE_BYTES, before, isForward, endedEpoch } = request;
    const known = this.streams.get(room);
    if (known !== undefined && known.epoch === endedEpoch) this.#remove(known);
    else if (known !== undefined && known.expiresMs <= nowMs) this.#expire(known);
    const stream = this.streams.get(room);
    if (stream === undefined) return emptyPage(this.#epochOf(room), 0);
    if (stream instanceof StateStream) return stream.page(request);
    const { epoch, offset } = stream;
    if (before !== undefined && before.epoch !== epoch) return emptyPage(epoch, offset);
    const last = before === undefined ? offset : Math.min(offset, before.offset - 1);
    const above = Math.max(after, offset - stream.count);
    const count = Math.min(last - above, limit);
    if (count <= 0) return emptyPage(epoch, offset);
    const bytes = Math.min(maxBytes, MAX_PAGE_BYTES);
    if (isForward) return { epoch, offset, ...stream.oldest(after, limit, bytes), hasOlder: false };
    const { first, runs } = stream.newest(last, count, bytes);
    return { epoch, offset, first, runs, hasOlder: first - 1 > above };
  }

  /** Will none expire? */
  get isAtRest() {
    for (const list of this.kept.values()) if (list.first !== null) return false;
    return true;
  }

  /** Frees expired histories; the owner calls it regularly. @param {number} nowMs */
  sweep(nowMs) {
    let left = MAX_SWEPT;
    for (const list of this.kept.values()) {
      while (list.first !== null && list.first.expiresMs <= nowMs && left-- > 0)
        this.#expire(list.first);
    }
  }

  /** @param {Stream} stream @param {number} ttlMs */
  #keep(stream, ttlMs) {
    let list = this.kept.get(ttlMs);
    if (list === undefined) {
      list = new List();
      this.kept.set(ttlMs, list);
    }
    stream.list?.remove(stream);
    list.add(stream);
  }

  /** @param {Stream} stream just published to, so evicted last */
  #bound(stream) {
    // The room's rule already bounds a state.
    const isState = stream instanceof StateStream;
    while (!isState && stream.bytes > this.maxBytes / ROOM_PART && stream.count > 1) {
      this.#shift(stream);
      this.lostPublications++;
    }
    while (this.bytes > this.maxBytes) {
      const oldest = this.#leastRecent();
      if (oldest === null || oldest === stream) break;
      if (oldest instanceof StateStream) this.#forget(oldest);
      else {
        this.lostPublications += oldest.count;
        this.#empty(oldest);
      }
    }
    while (this.streams.size > this.maxStreams)
      this.#forget(this.bare.first ?? this.#leastRecent() ?? stream);
  }

  /** The least recent of the streams with publications. */
  #leastRecent() {
    /** @type {Stream|null} */
    let oldest = null;
    for (const { first } of this.kept.values()) {
      if (first !== null && (oldest === null || first.publishedMs < oldest.publishedMs))
        oldest = first;
    }
    return oldest;
  }

  /** @param {Stream} stream */
  #shift(stream) {
    this.bytes -= stream.shift();
    this.publications--;
  }

  /** Forgets a stream whose time has passed. @param {Stream} stream */
  #expire(stream) {
    if (stream instanceof StateStream) this.#remove(stream);
    else this.#empty(stream);
  }

  /** Frees the publications and keeps the position. @param {Stream} stream */
  #empty(stream) {
    this.publications -= stream.count;
    this.bytes -= stream.bytes;
    stream.clear();
    stream.list?.remove(stream);
    this.bare.add(stream);
  }

  /** @param {Stream} stream */
  #forget(stream) {
    this.lostPublications += stream.count;
    this.lostPositions++;
    this.#remove(stream);
  }

  /** Removes a stream: its room begins a new epoch. @param {Stream} stream */
  #remove(stream) {
    this.#empty(stream);
    this.bare.remove(stream);
    this.streams.delete(stream.room);
    this.renewed.set(slotOf(stream.room), newSeed());
  }

  /** @param {string} room that has no position */
  #epochOf(room) {
    const seed = this.renewed.get(slotOf(room)) ?? this.seed;
    // A slice of the digest as text would keep the whole text in memory.
    return hash('sha256', `${seed} ${room}`, 'buffer').toString('hex', 0, EPOCH_BYTES / 2);
  }
}

class Stream {
  /** @param {string} room @param {string} epoch */
  constructor(room, epoch) {
    this.room = room;
    this.epoch = epoch;
    this.offset = 0;
    this.publishedMs = 0;
    this.expiresMs = Number.POSITIVE_INFINITY;
    this.count = 0;
    /** @type {Segment[]} */
    this.segments = [];
    /** Where the oldest publication starts in the first segment. */
    this.head = 0;
    /** Bytes of the stored publications and their lengths. */
    this.used = 0;
    /** Bytes of the segments and their overhead. */
    this.bytes = 0;
    /** @type {List|null} */
    this.list = null;
    /** @type {Stream|null} */
    this.older = null;
    /** @type {Stream|null} */
    this.newer = null;
  }

  /** @param {Buffer} run @param {number} count @returns {number} bytes added */
  pushRun(run, count) {
    const before = this.bytes;
    const { length } = run;
    let last = this.segments[this.segments.length - 1];
    if (last === undefined || last.buffer.length - last.end < length) {
      // A new segment is as large as the stored bytes, so rooms of any size have few segments. A
      // large publication gets a segment of its own, because the unused rest would waste memory.
      const spare = Math.min(Math.max(this.used, MIN_SEGMENT_BYTES), MAX_SEGMENT_BYTES);
      const isLarge = length > MAX_SEGMENT_BYTES / 8;
      last = {
        buffer: Buffer.allocUnsafeSlow(isLarge ? length : Math.max(length, spare)),
        end: 0,
        count: 0,
      };
      this.segments.push(last);
      this.bytes += last.buffer.length + SEGMENT_OVERHEAD_BYTES;
    }
    run.copy(last.buffer, last.end);
    last.end += length;
    last.count += count;
    this.used += length;
    this.count += count;
    return this.bytes - before;
  }

  /** Drops the oldest publication, and its segment if that is empty then. @returns bytes freed */
  shift() {
    const first = this.segments[0];
    const length = LENGTH_BYTES + first.buffer.readUInt32BE(this.head);
    this.head += length;
    this.used -= length;
    this.count--;
    first.count--;
    if (this.head < first.end) return 0;
    this.segments.shift();
    this.head = 0;
    const freed = first.buffer.length + SEGMENT_OVERHEAD_BYTES;
    this.bytes -= freed;
    return freed;
  }

  clear() {
    this.count = this.head = this.used = this.bytes = 0;
    this.segments = [];
    this.expiresMs = Number.POSITIVE_INFINITY;
  }

  /**
   * Reads the newest publications up to `last`: back over whole segments, then forward in one.
   * @param {number} last offset of a stored publication @param {number} count above 0
   * @param {number} maxBytes @returns {{first: number, runs: Buffer[]}}
   */
  newest(last, count, maxBytes) {
    const { segments } = this;
    let index = segments.length;
    /** Publications after `last` in the segment before `index`. */
    let later = this.offset - last;
    while (later >= segments[index - 1].count) later -= segments[--index].count;
    const stop = index;
    const stopAt = this.#endOf(stop - 1, later);
    let found = -later;
    let bytes = stopAt - segments[stop - 1].end;
    while (index > 0 && found < count && bytes < maxBytes) {
      const { end, count: more } = segments[--index];
      found += more;
      bytes += index === 0 ? end - this.head : end;
    }
    const runs = segments
      .slice(index, stop)
      .map(({ buffer, end }, i) => buffer.subarray(0, index + i === stop - 1 ? stopAt : end));
    let at = index === 0 ? this.head : 0;
    while (found > count || (bytes > maxBytes && found > 1)) {
      const length = LENGTH_BYTES + runs[0].readUInt32BE(at);
      at += length;
      bytes -= length;
      found--;
      if (at < runs[0].length) continue;
      runs.shift();
      at = 0;
    }
    if (at > 0) runs[0] = runs[0].subarray(at);
    return { first: last - found + 1, runs };
  }

  /**
   * @param {number} index of a segment
   * @param {number} later publications to leave out at its end
   * @returns {number} where the others end
   */
  #endOf(index, later) {
    const { buffer, end, count } = this.segments[index];
    if (later === 0) return end;
    let at = index === 0 ? this.head : 0;
    for (let i = later; i < count; i++) at += LENGTH_BYTES + buffer.readUInt32BE(at);
    return at;
  }

  /**
   * Reads the oldest publications above an offset, without a copy.
   * @param {number} after below `offset` @param {number} limit above 0
   * @param {number} maxBytes @returns {{first: number, runs: Buffer[]}}
   */
  oldest(after, limit, maxBytes) {
    /** Offset of the publication at `at` in the current segment. */
    let offset = this.offset - this.count + 1;
    const first = Math.max(offset, after + 1);
    const last = Math.min(this.offset, first + limit - 1);
    const runs = [];
    let bytes = 0;
    for (let i = 0; i < this.segments.length && offset <= last; i++) {
      const { buffer, end, count } = this.segments[i];
      let at = i === 0 ? this.head : 0;
      if (offset + count <= first) {
        offset += count;
        continue;
      }
      let start = at;
      while (at < end && offset <= last) {
        const length = LENGTH_BYTES + buffer.readUInt32BE(at);
        if (offset >= first) {
          bytes += length;
          if (bytes > maxBytes && bytes > length) {
            if (at > start) runs.push(buffer.subarray(start, at));
            return { first, runs };
          }
        } else start = at + length;
        at += length;
        offset++;
      }
      runs.push(buffer.subarray(start, at));
    }
    return { first, runs };
  }
}

/** Keeps the newest publication of each key in a room with state. */
class StateStream extends Stream {
  /** @param {string} room @param {string} epoch @param {StateRule} rule */
  constructor(room, epoch, { size, state }) {
    super(room, epoch);
    this.log = new CompactedLog({ maxKeys: size, maxBytes: state.maxBytes });
  }

  /** @param {Buffer} publication that fits into the log; copied */
  set(publication) {
    this.log.put(++this.offset, copyOf(publication));
    this.#count();
  }

  #count() {
    this.count = this.log.byKey.size;
    this.bytes = this.log.memoryBytes;
  }

  /** @override */
  clear() {
    super.clear();
    this.log.clear(this.offset);
  }

  /** @param {ReadRequest} request @returns {Read} */
  page({ after, limit, maxBytes = MAX_PAGE_BYTES, since, keys }) {
    const { epoch, offset, log } = this;
    const { floor } = log;
    const isProven =
      since !== undefined &&
      since.epoch === epoch &&
      since.offset >= floor &&
      since.offset <= offset;
    const isWhole = since !== undefined && !isProven;
    const page = { epoch, offset, first: offset + 1, hasOlder: false };
    if (limit === 0) return { ...page, runs: [], state: { floor, isWhole, hasMore: false } };
    const from = isWhole ? 0 : (since?.offset ?? after);
    const bounds = { maxCount: limit, maxBytes: Math.min(maxBytes, MAX_PAGE_BYTES) };
    const { entries, reached } =
      keys === undefined
        ? log.read(from, offset, bounds)
        : { entries: keys.flatMap((key) => log.get(keyTextIn(key)) ?? []), reached: offset };
    const runs = entries.length === 0 ? [] : [runOf(entries)];
    return { ...page, runs, state: { floor, isWhole, hasMore: reached < offset } };
  }
}

/** @param {readonly import('../../protocol/compacted-log.js').Entry[]} entries */
function runOf(entries) {
  let bytes = 0;
  for (const { publication } of entries) bytes += OFFSET_BYTES + LENGTH_BYTES + publication.length;
  const run = Buffer.allocUnsafeSlow(bytes);
  let at = 0;
  for (const { offset, publication } of entries) {
    writeOffset(run, at, offset);
    at = run.writeUInt32BE(publication.length, at + OFFSET_BYTES);
    at += publication.copy(run, at);
  }
  return run;
}

/** Copies long-lived bytes: a small Buffer.from keeps 8 KB of Node's pool. @param {Buffer} bytes */
export function copyOf(bytes) {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(copy);
  return copy;
}

/** Streams, the least recently added first. */
class List {
  constructor() {
    /** @type {Stream|null} */
    this.first = null;
    /** @type {Stream|null} */
    this.last = null;
  }

  /** @param {Stream} stream that is in no list */
  add(stream) {
    stream.list = this;
    stream.older = this.last;
    if (this.last === null) this.first = stream;
    else this.last.newer = stream;
    this.last = stream;
  }

  /** @param {Stream} stream that is in this list */
  remove(stream) {
    const { older, newer } = stream;
    if (older === null) this.first = newer;
    else older.newer = newer;
    if (newer === null) this.last = older;
    else newer.older = older;
    stream.list = stream.older = stream.newer = null;
  }
}

/** @param {Buffer} run publications, each after its length @returns slices of it */
export function publicationsIn(run) {
  const publications = [];
  let at = 0;
  while (at < run.length) {
    const start = at + LENGTH_BYTES;
    at = start + run.readUInt32BE(at);
    publications.push(run.subarray(start, at));
  }
  return publications;
}

/** @param {Buffer} run publications of a state, each after its offset and its length */
export function entriesIn(run) {
  const publications = [];
  const offsets = [];
  let at = 0;
  while (at < run.length) {
    offsets.push(readOffset(run, at));
    const start = at + OFFSET_BYTES + LENGTH_BYTES;
    at = start + run.readUInt32BE(at + OFFSET_BYTES);
    publications.push(run.subarray(start, at));
  }
  return { publications, offsets };
}

/** @param {string} epoch @param {number} offset @returns {Read} */
function emptyPage(epoch, offset) {
  return { epoch, offset, first: offset + 1, runs: [], hasOlder: false };
}

function newSeed() {
  return randomBytes(8).toString('hex');
}

/** FNV-1a. @param {string} room */
function slotOf(room) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < room.length; i++) hash = Math.imul(hash ^ room.charCodeAt(i), 0x01000193);
  return (hash ^ (hash >>> 16)) & (SLOTS - 1);
}
