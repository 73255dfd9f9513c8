// outbox.js: publications that wait for their rooms' members, and the flush that writes them.
//
// Publications collect per room during a tick. At the end of the tick the outbox builds their
// frames once, in one buffer, and writes that buffer once to each member. So a burst costs a member
// one system call and not one per publication. The busier the worker, the more a flush carries: the
// cost of a delivery falls as the load rises.
//
// A flush over many members yields. After SLICE_MS the event loop turns (reads, pings, joins, other
// rooms), and then the flush continues. A message of a small room must not wait for a big one. So
// each slice first sends this turn's publications to the broker, then begins the flushes that have
// come since the last slice, and only then continues those under way. Rooms take turns of TURN_MS.
// While a room's flush is under way, new publications wait for the next flush, so each member sees
// one order.
//
//   push -> room.waiting --(end of tick, or of the flush before it)--> room.flight {frames, members, next} -> sockets
//
// The memory is bounded. A room's waiting publications may take up MAX_WAITING_BYTES, and those of
// all rooms MAX_WORKER_BYTES. Above the second bound, each room may still hold SPARED_BYTES. Beyond
// the bounds the newest publications are left out and counted, because then the worker itself is
// the bottleneck and not a single reader. Recovery asks `isFull` before it delivers to a room with
// history, and reads later the publications that did not fit. A resync mark is a flush of its own
// (flight.js).

import { FORMAT } from '../protocol/format.js';

const SLICE_MS = 2;
/**
 * If a busy worker reads for longer than SLICE_MS between two slices, the next slice is as long, up
 * to this bound. Otherwise its writes would lag more and more.
 */
const MAX_SLICE_MS = 16;
const TURN_MS = 1;
const WRITES_PER_CLOCK = 32;
const MAX_WAITING_BYTES = 8 * 1024 * 1024;
/**
 * The bound for all rooms together, flushes under way included: many rooms, each within its own
 * bound, can still be too much.
 */
const MAX_WORKER_BYTES = 128 * 1024 * 1024;
/** Above that, each room may hold so much: small rooms, which cost little, continue. */
const SPARED_BYTES = 16 * 1024;
/**
 * The largest write. A larger flush is split, so that the slow-consumer limits apply between the
 * parts.
 */
const MAX_FLIGHT_BYTES = 256 * 1024;
/** @typedef {import('./room.js').Room} Room */

export class Outbox {
  /**
   * @param {object} parts
   * @param {import('./slow-consumers.js').SlowConsumers} parts.slowConsumers
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {number} parts.maxUnsentBytes of a connection
   * @param {number} parts.reloadWindowMs the longest time over which members reload their state
   *   after a resync
   * @param {{observe(n: number): void}} parts.fanout observes the receivers of each flush
   * @param {{observe(seconds: number): void}} parts.flushSeconds
   * @param {() => void} [parts.sendPublications] sends publications of this turn to the broker now,
   *   not at the turn's end, which would be after the slice
   */
  constructor({
    slowConsumers,
    counters,
    maxUnsentBytes,
    reloadWindowMs,
    fanout,
    flushSeconds,
    sendPublications = () => {},
  }) {
    this.slowConsumers = slowConsumers;
    this.counters = counters;
    this.limits = {
      maxFlightBytes: Math.min(MAX_FLIGHT_BYTES, maxUnsentBytes / 2),
      reloadWindowMs,
    };
    this.fanout = fanout;
    this.flushSeconds = flushSeconds;
    this.sendPublications = sendPublications;
    /** @type {(room: Room, publications: readonly Buffer[]) => void} */
    this.onFlushed = () => {};
    /** Rooms with publications whose flush has not begun. @type {Room[]} */
    this.fresh = [];
    /** Rooms whose flush has yielded. @type {Room[]} */
    this.underWay = [];
    this.isScheduled = false;
    /** Bytes of all publications that are not written to all members yet. */
    this.bytes = 0;
    /** When the last slice ended with work left. */
    this.yieldedMs = Number.POSITIVE_INFINITY;
    this.run = this.run.bind(this);
  }

  /**
   * @param {(room: Room, publications: readonly Buffer[]) => void} onFlushed called with a room and
   *   the publications that have been written to all its members
   */
  listen(onFlushed) {
    this.onFlushed = onFlushed;
  }

  /** @param {Room} room @param {Buffer} publication */
  push(room, publication) {
    if (this.isFull(room)) {
      this.counters.overflowed++;
      return;
    }
    this.#schedule(room, publication);
    room.enqueue(publication);
  }

  /** Would `push` leave a publication out? @param {Room} room */
  isFull(room) {
    return (
      room.waitingBytes > MAX_WAITING_BYTES ||
      (this.bytes > MAX_WORKER_BYTES && room.waitingBytes > SPARED_BYTES)
    );
  }

  /**
   * Puts a resync mark behind the publications that wait. A mark is never left out; a read of the
   * broker leads to at most one.
   * @param {Room} room @param {Buffer} mark
   */
  pushResync(room, mark) {
    this.#schedule(room, mark);
    room.enqueueResync(mark);
  }

  /**
   * Counts a publication that is about to wait, and queues its room for a flush.
   * @param {Room} room @param {Buffer} publication
   */
  #schedule(room, publication) {
    this.bytes += publication.length;
    this.counters.queueDepth++;
    if (room.isQueued) return;
    this.fresh.push(room);
    this.#runLater();
  }

  #runLater() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.run);
  }

  /** One slice of work. */
  run() {
    this.isScheduled = false;
    this.sendPublications();
    const { fresh, underWay } = this;
    const started = performance.now();
    const sliceEnd = started + Math.min(MAX_SLICE_MS, Math.max(SLICE_MS, started - this.yieldedMs));
    let now = started;
    // First the rooms whose flush has not begun, most of them small. The rest of the slice goes to
    // the flushes under way, and at least one turn. So neither kind starves the other.
    let waited = underWay.length > 0;
    let begun = 0;
    while (begun < fresh.length && now < sliceEnd) now = this.#continue(fresh[begun++], now);
    this.fresh = begun === fresh.length ? [] : fresh.slice(begun);
    while (underWay.length > 0 && (waited || now < sliceEnd)) {
      waited = false;
      now = this.#continue(/** @type {Room} */ (underWay.shift()), now);
    }
    this.flushSeconds.observe((now - started) / 1000);
    const hasMore = this.fresh.length > 0 || underWay.length > 0;
    this.yieldedMs = hasMore ? now : Number.POSITIVE_INFINITY;
    if (hasMore) this.#runLater();
  }

  /** Writes everything that waits, without yielding. The drain calls it. */
  flush() {
    for (const room of [...this.underWay.splice(0), ...this.fresh.splice(0)]) {
      while (room.isQueued) this.#turn(room, 0, Number.POSITIVE_INFINITY);
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
    const flight = room.flight ?? room.depart(this.limits);
    const { frameOf, omissions } = flight;
    const isOwed = room.sync !== null;
    let { members, left, next } = flight;
    let written = 0;
    let omitted = 0;
    let bytes = 0;
    let untilClock = WRITES_PER_CLOCK;
    for (;;) {
      // Around the loop and not in it, so that a member pays nothing for it.
      try {
        while (next < members.length) {
          const member = members[next++];
          // Nothing follows a close frame. A member that left while the flush had yielded gets
          // nothing more of it, even if it is back.
          if (!member.isOpen || left?.has(member)) continue;
          if (isOwed && member.lags > 0 && room.isLagging(member)) {
            bytes += this.#passLagging(room, flight, member);
            continue;
          }
          const { transport } = member;
          let { frames } = flight;
          if (frameOf !== null) frames = frameOf(next - 1, transport);
          else if (transport.format !== FORMAT.FRAMES) frames = flight.framesFor(transport);
          // One comparison a member, unless a publication of this flight leaves a member out.
          const own = omissions === null ? undefined : omissions.get(member.number);
          if (own !== undefined) {
            const rest = flight.framesWithout(transport, own);
            if (rest === null) continue;
            frames = rest;
          }
          if (transport.pendingBytes === 0 || this.#mayWait(room, flight, member, frames.length)) {
            transport.write(frames);
            written++;
            if (own !== undefined) omitted += own.length;
            bytes += frames.length;
          } else if (isOwed && room.isLagging(member)) {
            // It has begun to lag.
            bytes += this.#passLagging(room, flight, member);
          }
          if (--untilClock === 0) {
            untilClock = WRITES_PER_CLOCK;
            now = performance.now();
            if (now >= turnEnd) break;
          }
        }
        break;
      } catch (error) {
        // The list is the room's own, and the member may leave it now.
        flight.pause(next);
        members[next - 1].fail(error);
        ({ members, left } = flight);
      }
    }
    const { counters } = this;
    if (frameOf === null) counters.deliveries += written * flight.publications.length - omitted;
    counters.bytesOut += bytes;
    if (next < members.length) {
      flight.pause(next);
    } else {
      this.bytes -= flight.bytes;
      counters.flushes++;
      counters.queueDepth -= flight.publications.length;
      this.fanout.observe(members.length);
      this.onFlushed(room, flight.publications);
      room.sync?.flushed(room.waiting.length === 0);
      room.arrive();
      room.sync?.lagging?.resume();
    }
    return turnEnd === Number.POSITIVE_INFINITY ? now : performance.now();
  }

  /**
   * May the frames wait for a member that has unsent bytes? In a room with history the member lags
   * otherwise, and is not closed.
   * @param {Room} room
   * @param {import('./flight.js').Flight} flight
   * @param {import('./connection.js').Connection} member
   * @param {number} bytes of the frames
   */
  #mayWait({ sync }, flight, member, bytes) {
    const { slowConsumers } = this;
    if (sync === null) return slowConsumers.admit(member, bytes);
    const { start } = flight;
    if (start === null || slowConsumers.isLittle(member, bytes)) return true;
    sync.lag(member, start);
    flight.rewind(member.transport);
    return false;
  }

  /**
   * Passes a lagging member: it gets only publications without a position, because
   * lagging-members.js cannot bring these.
   * @param {Room} room with history
   * @param {import('./flight.js').Flight} flight
   * @param {import('./connection.js').Connection} member
   * @returns {number} bytes written
   */
  #passLagging({ sync }, flight, member) {
    if (flight.isMark) sync?.lagging?.lose(member);
    const rest = flight.isMark ? null : flight.framesWithoutPosition(member);
    if (rest === null) return 0;
    member.transport.write(rest.frames);
    this.counters.deliveries += rest.count;
    return rest.frames.length;
  }
}
