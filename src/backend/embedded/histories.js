// histories.js: the histories of rooms, in memory: the core of the embedded broker.
//
//   append(room, rule, publication, nowMs)  -> the position of the publication
//   page(room, {after, limit}, nowMs)       -> the room's position, and the newest publications above `after`
//
// A stream keeps its publications in segments, each publication behind its length, as on the
// relay's wire. Segments are filled from the front and never overwritten, so a read lends them
// without a copy. A room's thousand small publications are a few objects for the garbage collector,
// not thousands.
//
// Everything is bounded, and every loss is counted. Beyond `maxBytes`, the rooms that were
// published to least recently lose their publications. Beyond `maxStreams`, the oldest positions
// are forgotten, first those of rooms without publications. A loss is never hidden: a position
// continues without its publications, so a client that missed nothing still recovers. A room whose
// position is forgotten begins a new epoch.
//
// A room without publications costs nothing, however often clients ask for it. Its epoch is that of
// its bucket (a hash of its name), and forgetting a position renews the epoch of the bucket. So the
// answer stays the same until the first publication. The exception is a rare room in the same
// bucket as a forgotten one: its clients reload although they need not.
//
// The caller provides the clock, which must not go back. The streams of one time to live are a list
// in the order of their latest publication. So expiring costs only what has expired, and no stream
// has a timer.

import { randomBytes } from 'node:crypto';
import { IDEMPOTENCY_MS, MAX_PAGE_BYTES } from '../broker.js';

/** All streams together: segments and their overhead. */
const MAX_BYTES = 256 * 1024 * 1024;
/** Subscriptions whose position is known: some 70 MB without their publications. */
const MAX_STREAMS = 200_000;
/**
 * Idempotency keys. Where more than 800 a second come for IDEMPOTENCY_MS, the oldest are forgotten
 * early.
 */
const MAX_KEYS = 500_000;
/**
 * No room has more than this part of `maxBytes`: one of large publications must not cost all the
 * others theirs.
 */
const ROOM_PART = 4;

const LENGTH_BYTES = 4;
const MIN_SEGMENT_BYTES = 256;
const MAX_SEGMENT_BYTES = 32 * 1024;
/** Memory of a segment beside its bytes: a Buffer, its store, an object. */
const SEGMENT_OVERHEAD_BYTES = 256;
const SLOTS = 65_536;
/**
 * Histories that one sweep frees: 3 ms. Who reads one that is due and not freed is told that it is
 * gone.
 */
const MAX_SWEPT = 10_000;

/** @typedef {import('../../config/room-patterns.js').HistoryRule} HistoryRule */
/** @typedef {import('../broker.js').Position} Position */

/**
 * The result of a read.
 * @typedef {object} Read
 * @property {string} epoch
 * @property {number} offset of the room's newest publication
 * @property {number} first offset of the first of the publications
 * @property {Buffer[]} runs the publications, each behind its length: see publicationsIn. Lent: to
 *   be read only, and for as long as one likes
 */

/**
 * @typedef {{buffer: Buffer, end: number, count: number}} Segment filled up to `end`; how many
 *   publications are still there
 */

export class Histories {
  /**
   * @param {object} [bounds]
   * @param {number} [bounds.maxBytes]
   * @param {number} [bounds.maxStreams]
   * @param {number} [bounds.maxKeys] 2 or more
   */
  constructor({ maxBytes = MAX_BYTES, maxStreams = MAX_STREAMS, maxKeys = MAX_KEYS } = {}) {
    this.maxBytes = maxBytes;
    this.maxStreams = maxStreams;
    /** @type {Map<string, Stream>} */
    this.streams = new Map();
    /** Histories with publications, by their time to live. @type {Map<number, List>} */
    this.kept = new Map();
    /** Those that have a position alone. */
    this.bare = new List();
    this.bytes = 0;
    this.publications = 0;
    this.keys = new Keys(maxKeys);
    this.epoch = newEpoch();
    /** Of the slots in which a position was forgotten. @type {Map<number, string>} */
    this.renewed = new Map();
    /** Publications that went before their time, for want of room. */
    this.lostPublications = 0;
    this.lostPositions = 0;
  }

  /** Idempotency keys that may have been forgotten before their time. */
  get lostKeys() {
    return this.keys.lost;
  }

  /**
   * @param {string} room
   * @param {string} key
   * @param {number} nowMs
   * @returns {Position|null} of the publication that had this key within IDEMPOTENCY_MS
   */
  repeated(room, key, nowMs) {
    return this.keys.get(keyOf(room, key), nowMs);
  }

  /**
   * @param {string} room
   * @param {HistoryRule} rule
   * @param {Buffer} publication copied
   * @param {number} nowMs
   * @param {string} [key] to be known to `repeated`
   * @returns {Position}
   */
  append(room, rule, publication, nowMs, key = '') {
    let stream = this.streams.get(room);
    if (stream === undefined) {
      stream = new Stream(room, this.#epochOf(room));
      this.streams.set(room, stream);
    } else if (stream.expiresMs <= nowMs) {
      this.#empty(stream);
    }
    this.bytes += stream.push(publication);
    this.publications++;
    stream.expiresMs = nowMs + rule.ttlMs;
    stream.publishedMs = nowMs;
    this.#keep(stream, rule.ttlMs);
    while (stream.count > rule.size) this.#shift(stream);
    this.#bound(stream);
    const position = { epoch: stream.epoch, offset: stream.offset };
    if (key !== '') this.keys.set(keyOf(room, key), position, nowMs);
    return position;
  }

  /**
   * @param {string} room
   * @param {import('../broker.js').ReadRequest} from
   * @param {number} nowMs
   * @returns {Read} at most `limit` publications and some `maxBytes`, yet at least one of what
   *   there is
   */
  page(room, { after, limit, maxBytes = MAX_PAGE_BYTES, isForward = false }, nowMs) {
    const stream = this.streams.get(room);
    if (stream === undefined) return { epoch: this.#epochOf(room), offset: 0, first: 1, runs: [] };
    if (stream.expiresMs <= nowMs) this.#empty(stream);
    const { epoch, offset } = stream;
    const count = Math.min(offset - after, limit, stream.count);
    if (count <= 0) return { epoch, offset, first: offset + 1, runs: [] };
    const bytes = Math.min(maxBytes, MAX_PAGE_BYTES);
    return {
      epoch,
      offset,
      ...(isForward ? stream.oldest(after, limit, bytes) : stream.newest(count, bytes)),
    };
  }

  /** Frees what has expired; to be called now and then. @param {number} nowMs */
  sweep(nowMs) {
    let left = MAX_SWEPT;
    for (const list of this.kept.values()) {
      while (list.first !== null && list.first.expiresMs <= nowMs && left-- > 0)
        this.#empty(list.first);
    }
    this.keys.sweep(nowMs);
  }

  /**
   * @param {Stream} stream
   * @param {number} ttlMs
   */
  #keep(stream, ttlMs) {
    let list = this.kept.get(ttlMs);
    if (list === undefined) {
      list = new List();
      this.kept.set(ttlMs, list);
    }
    stream.list?.remove(stream);
    list.add(stream);
  }

  /** @param {Stream} stream the one just published to: it is the last to suffer */
  #bound(stream) {
    while (stream.bytes > this.maxBytes / ROOM_PART && stream.count > 1) {
      this.#shift(stream);
      this.lostPublications++;
    }
    while (this.bytes > this.maxBytes) {
      const oldest = this.#leastRecent();
      if (oldest === null || oldest === stream) break;
      this.lostPublications += oldest.count;
      this.#empty(oldest);
    }
    while (this.streams.size > this.maxStreams)
      this.#forget(this.bare.first ?? this.#leastRecent() ?? stream);
  }

  /** @returns {Stream|null} of those that have publications */
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

  /** Its position stays. @param {Stream} stream */
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
    this.#empty(stream);
    this.bare.remove(stream);
    this.streams.delete(stream.room);
    this.renewed.set(slotOf(stream.room), newEpoch());
  }

  /** @param {string} room that has no position */
  #epochOf(room) {
    return this.renewed.get(slotOf(room)) ?? this.epoch;
  }
}

/** One room's. */
class Stream {
  /**
   * @param {string} room
   * @param {string} epoch
   */
  constructor(room, epoch) {
    this.room = room;
    this.epoch = epoch;
    this.offset = 0;
    this.publishedMs = 0;
    this.expiresMs = Number.POSITIVE_INFINITY;
    /** Publications that are there. */
    this.count = 0;
    /** @type {Segment[]} */
    this.segments = [];
    /** The start of the oldest publication in the first segment. */
    this.head = 0;
    /** Of the publications that are there and their lengths. */
    this.used = 0;
    /** Of the segments and their overhead. */
    this.bytes = 0;
    /** The list it is in, and its neighbours there. @type {List|null} */
    this.list = null;
    /** @type {Stream|null} */
    this.older = null;
    /** @type {Stream|null} */
    this.newer = null;
  }

  /**
   * @param {Buffer} publication
   * @returns {number} bytes more than before
   */
  push(publication) {
    const before = this.bytes;
    const length = LENGTH_BYTES + publication.length;
    let last = this.segments[this.segments.length - 1];
    if (last === undefined || last.buffer.length - last.end < length) {
      // As much again as there is: a room of few publications is small, one of many has few
      // segments. What is large has one of its own, or the rests would be a good part of all.
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
    last.buffer.writeUInt32BE(publication.length, last.end);
    publication.copy(last.buffer, last.end + LENGTH_BYTES);
    last.end += length;
    last.count++;
    this.used += length;
    this.count++;
    this.offset++;
    return this.bytes - before;
  }

  /** Drops the oldest of two or more. @returns {number} bytes less than before */
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
   * The newest, as they lie: back over whole segments, then forward in the first that is needed.
   * @param {number} count above 0
   * @param {number} maxBytes
   * @returns {{first: number, runs: Buffer[]}}
   */
  newest(count, maxBytes) {
    const { segments } = this;
    let index = segments.length;
    let found = 0;
    let bytes = 0;
    while (index > 0 && found < count && bytes < maxBytes) {
      const { end, count: more } = segments[--index];
      found += more;
      bytes += index === 0 ? end - this.head : end;
    }
    const runs = segments.slice(index).map(({ buffer, end }) => buffer.subarray(0, end));
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
    return { first: this.offset - found + 1, runs };
  }

  /**
   * The oldest above an offset, as they lie.
   * @param {number} after below `offset`
   * @param {number} limit above 0
   * @param {number} maxBytes
   * @returns {{first: number, runs: Buffer[]}}
   */
  oldest(after, limit, maxBytes) {
    /** Of the publication at `at` in the segment at hand. */
    let offset = this.offset - this.count + 1;
    const first = Math.max(offset, after + 1);
    const last = Math.min(this.offset, first + limit - 1);
    /** @type {Buffer[]} */
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

/** Histories, the least recently added first. */
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

/** Idempotency keys, in two generations: a whole one is let go at a time. */
class Keys {
  /** @param {number} max */
  constructor(max) {
    this.max = max;
    /** @type {Map<string, {position: Position, untilMs: number}>} */
    this.young = new Map();
    /** @type {Map<string, {position: Position, untilMs: number}>} */
    this.old = new Map();
    /** When the young were begun. */
    this.begunMs = Number.NEGATIVE_INFINITY;
    this.lost = 0;
  }

  /**
   * @param {string} key
   * @param {number} nowMs
   * @returns {Position|null}
   */
  get(key, nowMs) {
    const known = this.young.get(key) ?? this.old.get(key);
    return known === undefined || known.untilMs <= nowMs ? null : known.position;
  }

  /**
   * @param {string} key
   * @param {Position} position
   * @param {number} nowMs
   */
  set(key, position, nowMs) {
    this.sweep(nowMs);
    if (this.young.size >= this.max / 2) {
      // Some of them may have been at their end; how many, is not worth a walk.
      this.lost += this.old.size;
      this.#turn(nowMs);
    }
    this.young.set(key, { position, untilMs: nowMs + IDEMPOTENCY_MS });
  }

  /** @param {number} nowMs */
  sweep(nowMs) {
    // The old are from before the young were begun, so that their time is over.
    if (nowMs - this.begunMs >= IDEMPOTENCY_MS) this.#turn(nowMs);
  }

  /** @param {number} nowMs */
  #turn(nowMs) {
    this.old = this.young;
    this.young = new Map();
    this.begunMs = nowMs;
  }
}

/**
 * @param {Buffer} run publications, each behind its length
 * @returns {Buffer[]} slices of it
 */
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

function newEpoch() {
  return randomBytes(8).toString('hex');
}

/**
 * @param {string} room
 * @param {string} key
 */
function keyOf(room, key) {
  // No room's name has a space in it.
  return `${room} ${key}`;
}

/** FNV-1a. @param {string} room */
function slotOf(room) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < room.length; i++) hash = Math.imul(hash ^ room.charCodeAt(i), 0x01000193);
  return (hash ^ (hash >>> 16)) & (SLOTS - 1);
}
