// outbox.js: publications that wait for their rooms' members, and the flush that writes them.
//
// Publications collect per room during a tick. At its end their frames are built once, joined into
// one buffer, and that buffer is written once to each member: a burst costs a member one system
// call and not one per publication. The busier the worker, the more a flush carries, so the cost of
// a delivery falls as the load rises.
//
// A flush over many members yields: after SLICE_MS the event loop turns (reads, pings, joins, other
// rooms), and the flush goes on where it was. Rooms take turns of TURN_MS, so that a small room
// does not wait for a big one. While a room's flush is under way its new publications wait for the
// next, so each member sees one order.
//
//   push -> room.waiting --(end of tick, or the flush before it done)--> room.flight {frames, members, next} -> sockets
//
// Bounded: a room's waiting publications may take up MAX_WAITING_BYTES, and those of all rooms
// MAX_WORKER_BYTES, from which on a room has only a flush of its own to spare; beyond that the
// newest are left out and counted, since then this worker, and no single reader, is what is slow. A
// room with history asks before it pushes, and fetches later what found no place. A resync mark in
// its line is a flush of its own, in which each member gets a frame of its own: when to load its
// state anew, so that not all do so at once.

import { deflateFrames } from '../protocol/deflate.js';
import { encodeResync } from '../protocol/encode.js';
import { publicationFrames, textFrame } from '../protocol/frame.js';
import { epochOf, KIND, kindOf, offsetOf } from '../protocol/publication.js';

const SLICE_MS = 4;
/**
 * Between two slices a busy worker may read for longer than that: then the next is as long, or its
 * writes would lag ever more.
 */
const MAX_SLICE_MS = 16;
const TURN_MS = 1;
const WRITES_PER_CLOCK = 32;
const MAX_WAITING_BYTES = 8 * 1024 * 1024;
/**
 * Of all rooms together, with what is being written: many rooms that are each within their bound
 * are too much too.
 */
const MAX_WORKER_BYTES = 128 * 1024 * 1024;
/** Above that, a room may hold so much: small rooms, which cost little, go on. */
const SPARED_BYTES = 16 * 1024;
/**
 * One write's size, at most: above it a flush is split, so that the slow-consumer limit can take
 * hold between.
 */
const MAX_FLIGHT_BYTES = 256 * 1024;
/**
 * Members told to load their state anew come back in the mean one each so many ms, up to the window
 * for reconnects.
 */
const RELOAD_SPACING_MS = 10;

/** @typedef {import('./hub.js').Room} Room */

/**
 * One flush under way.
 * @typedef {object} Flight
 * @property {Buffer} frames
 * @property {Buffer|null} deflated the same for those who negotiated compression, made when the
 *   first of them comes up
 * @property {readonly Buffer[]} publications what the frames were built from
 * @property {number} bytes of them
 * @property {readonly import('./connection.js').Connection[]} members the room's own list, or its
 *   copy once the flush has yielded
 * @property {number} next the member to write to next
 * @property {boolean} isCopy
 * @property {Set<import('./connection.js').Connection>|null} gone who has left since it began; some
 *   may be back
 * @property {((place: number) => Buffer)|null} frameOf each member's own frame, in place of the
 *   shared ones
 */

export class Outbox {
  /**
   * @param {object} parts
   * @param {import('./slow-consumers.js').SlowConsumers} parts.slowConsumers
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {number} parts.maxUnsentBytes of a connection
   * @param {number} parts.reloadWindowMs over which members are told to load their state anew, at
   *   most
   * @param {{observe(n: number): void}} parts.fanout receivers of a flush
   * @param {{observe(seconds: number): void}} parts.flushSeconds
   */
  constructor({ slowConsumers, counters, maxUnsentBytes, reloadWindowMs, fanout, flushSeconds }) {
    this.slowConsumers = slowConsumers;
    this.counters = counters;
    this.maxFlightBytes = Math.min(MAX_FLIGHT_BYTES, maxUnsentBytes / 2);
    this.reloadWindowMs = reloadWindowMs;
    this.fanout = fanout;
    this.flushSeconds = flushSeconds;
    /**
     * Called with a room and the publications that have now been written to all its members.
     * @type {(room: Room, publications: readonly Buffer[]) => void}
     */
    this.onFlushed = () => {};
    /** Rooms with publications whose flush has not begun. @type {Room[]} */
    this.fresh = [];
    /** Rooms whose flush has yielded. @type {Room[]} */
    this.underWay = [];
    this.isScheduled = false;
    /** Bytes of all publications that are not written to everybody yet. */
    this.bytes = 0;
    /** When the last slice ended with work left. */
    this.yieldedMs = Number.POSITIVE_INFINITY;
    this.run = this.run.bind(this);
  }

  /**
   * @param {Room} room
   * @param {Buffer} publication
   */
  push(room, publication) {
    if (this.isFull(room)) {
      this.counters.overflowed++;
      return;
    }
    this.#add(room, publication);
  }

  /** Would a publication be left out? @param {Room} room */
  isFull(room) {
    return (
      room.waitingBytes > MAX_WAITING_BYTES ||
      (this.bytes > MAX_WORKER_BYTES && room.waitingBytes > SPARED_BYTES)
    );
  }

  /**
   * Puts a resync mark in line. It may never be left out, and there is one a read at most.
   * @param {Room} room
   * @param {Buffer} mark
   */
  mark(room, mark) {
    this.#add(room, mark);
  }

  /**
   * @param {Room} room
   * @param {Buffer} publication
   */
  #add(room, publication) {
    room.waiting.push(publication);
    room.waitingBytes += publication.length;
    this.bytes += publication.length;
    this.counters.queueDepth++;
    if (room.isQueued) return;
    room.isQueued = true;
    this.fresh.push(room);
    this.#schedule();
  }

  #schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.run);
  }

  /** One slice of work. */
  run() {
    this.isScheduled = false;
    const { fresh, underWay } = this;
    const started = performance.now();
    const sliceEnd = started + Math.min(MAX_SLICE_MS, Math.max(SLICE_MS, started - this.yieldedMs));
    let now = started;
    // One turn for a flush under way, then the rooms that have not begun, most of them small; what
    // is left of the slice goes to the flushes under way again. So neither kind starves the other.
    if (underWay.length > 0) now = this.#continue(/** @type {Room} */ (underWay.shift()), now);
    let begun = 0;
    while (begun < fresh.length && now < sliceEnd) now = this.#continue(fresh[begun++], now);
    this.fresh = begun === fresh.length ? [] : fresh.slice(begun);
    while (underWay.length > 0 && now < sliceEnd)
      now = this.#continue(/** @type {Room} */ (underWay.shift()), now);
    this.flushSeconds.observe((now - started) / 1000);
    const hasMore = this.fresh.length > 0 || underWay.length > 0;
    this.yieldedMs = hasMore ? now : Number.POSITIVE_INFINITY;
    if (hasMore) this.#schedule();
  }

  /** Writes all that waits, without yielding: for the drain. */
  flush() {
    for (const room of [...this.underWay.splice(0), ...this.fresh.splice(0)]) {
      while (room.flight || room.waiting.length > 0) this.#turn(room, 0, Number.POSITIVE_INFINITY);
      room.isQueued = false;
    }
  }

  /**
   * @param {Room} room
   * @param {number} now
   * @returns {number} the time afterwards
   */
  #continue(room, now) {
    const after = this.#turn(room, now, now + TURN_MS);
    if (room.flight) this.underWay.push(room);
    else if (room.waiting.length > 0) this.fresh.push(room);
    else room.isQueued = false;
    return after;
  }

  /**
   * Writes to a room's members until the turn ends.
   * @param {Room} room
   * @param {number} now
   * @param {number} turnEnd
   * @returns {number} the time afterwards
   */
  #turn(room, now, turnEnd) {
    const flight = room.flight ?? this.#depart(room);
    const { members, isCopy, gone, frameOf } = flight;
    const isOwed = room.sync !== null;
    let { next } = flight;
    let written = 0;
    let bytes = 0;
    let untilClock = WRITES_PER_CLOCK;
    while (next < members.length) {
      const member = members[next++];
      // Nothing follows a close frame, and who left during a yield gets nothing more, even if it is
      // back.
      if (!member.isOpen || gone?.has(member)) continue;
      const { transport } = member;
      let { frames } = flight;
      if (frameOf !== null) frames = frameOf(next - 1);
      else if (transport.isDeflated) {
        flight.deflated ??= deflateFrames(frames);
        frames = flight.deflated;
      }
      if (transport.pendingBytes === 0 || this.slowConsumers.admit(member, frames.length, isOwed)) {
        transport.write(frames);
        written++;
        bytes += frames.length;
      }
      if (--untilClock === 0) {
        untilClock = WRITES_PER_CLOCK;
        now = performance.now();
        if (now >= turnEnd) break;
      }
    }
    const { counters } = this;
    if (frameOf === null) counters.deliveries += written * flight.publications.length;
    counters.bytesOut += bytes;
    if (next < members.length) {
      flight.next = next;
      if (!isCopy) {
        flight.members = members.slice();
        flight.isCopy = true;
      }
    } else {
      room.flight = null;
      this.bytes -= flight.bytes;
      counters.flushes++;
      counters.queueDepth -= flight.publications.length;
      this.fanout.observe(members.length);
      this.onFlushed(room, flight.publications);
      room.sync?.flushed();
    }
    return turnEnd === Number.POSITIVE_INFINITY ? now : performance.now();
  }

  /**
   * @param {Room} room
   * @returns {Flight}
   */
  #depart(room) {
    let publications = room.waiting;
    let taken = room.waitingBytes;
    const { sync } = room;
    const mayHaveMark = sync !== null && sync.resyncsWaiting > 0;
    if ((room.waitingBytes > this.maxFlightBytes || mayHaveMark) && publications.length > 1) {
      let bytes = 0;
      let n = 0;
      while (
        n < publications.length &&
        (n === 0 || bytes + publications[n].length <= this.maxFlightBytes)
      ) {
        if (mayHaveMark && n > 0 && (isMark(publications[n]) || isMark(publications[0]))) break;
        bytes += publications[n++].length;
      }
      room.waiting = publications.slice(n);
      room.waitingBytes -= bytes;
      taken = bytes;
      publications = publications.slice(0, n);
    } else {
      room.waiting = [];
      room.waitingBytes = 0;
    }
    const isResync = mayHaveMark && isMark(publications[0]);
    if (isResync) sync.resyncsWaiting--;
    room.flight = {
      frames: isResync ? NOTHING : publicationFrames(room.prefix, publications),
      deflated: null,
      publications,
      bytes: taken,
      members: room.members,
      next: 0,
      isCopy: false,
      gone: null,
      frameOf: isResync ? this.#resyncFrames(room, publications[0]) : null,
    };
    return room.flight;
  }

  /**
   * @param {Room} room
   * @param {Buffer} mark
   * @returns {(place: number) => Buffer}
   */
  #resyncFrames(room, mark) {
    const offset = offsetOf(mark);
    const epoch = epochOf(mark);
    const { length } = room.members;
    const spacingMs = Math.min(RELOAD_SPACING_MS, this.reloadWindowMs / length);
    return (place) =>
      textFrame(
        encodeResync(room.name, epoch, offset, Math.floor((place + Math.random()) * spacingMs)),
      );
  }
}

const NOTHING = Buffer.alloc(0);

/** @param {Buffer} publication */
function isMark(publication) {
  return kindOf(publication) === KIND.RESYNC;
}
