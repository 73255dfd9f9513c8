// outbox.js: publications that wait for their rooms' members, and the flush that writes them.
//
//   push -> room.waiting --(end of tick, or of the flush before it)--> room.flight {frames, members, next} -> sockets
//
// Publications collect per room during a tick. At its end their frames are built once, in one
// buffer, and written once to each member: the busier the worker, the less a delivery costs.
//
// docs/architecture/fan-out.md explains how flushes yield and take turns, and lists the bounds.
// Above a bound the newest publications are dropped and counted: the worker is the bottleneck then,
// not a single reader. Recovery checks `isFull` before it delivers to a room with history, and
// later reads the publications that did not fit.
//
// In a room with state, a flush has only the newest message of each key. Its rule may set a minimum
// time between flushes. Superseded messages are also removed while it waits, whenever the bytes
// have doubled, so that they do not fill the outbox.

import { FORMAT, leavesAtResync } from '../protocol/format.js';
import { DueRooms } from './due-rooms.js';

/** A flush to this many members takes less than PIECE_MS. */
const SHORT_MEMBERS = 64;
const PIECE_MS = 1;
const WRITES_PER_CLOCK = 32;
/**
 * After a flush to more than SHORT_MEMBERS, the room rests for as long as the flush took, up to
 * MAX_REST_MS, unless ENOUGH_BYTES are waiting: a larger write would gain little.
 */
const MAX_REST_MS = 10;
const ENOUGH_BYTES = 16 * 1024;
const MAX_WAITING_BYTES = 8 * 1024 * 1024;
/** The bound of all rooms together, including flushes under way. */
const MAX_WORKER_BYTES = 128 * 1024 * 1024;
/** Above that, each room may still have this much, so that small rooms continue. */
const SPARED_BYTES = 16 * 1024;
/** Larger flushes are split, so that slow-consumer limits apply between the parts. */
const MAX_FLIGHT_BYTES = 256 * 1024;
/** @type {readonly number[]} */
const NONE = Object.freeze([]);
/** A room with state that has no more bytes waiting is conflated only at its flush. */
const MIN_CONFLATED_BYTES = 1024;

/** @import { Connection } from './connection.js' */
/** @import { Flight } from './flight.js' */
/** @import { HubRoom } from './room.js' */

export class Outbox {
  /**
   * @param {object} parts @param {import('./slow-consumers.js').SlowConsumers} parts.slowConsumers
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {number} parts.maxUnsentBytes of a connection
   * @param {number} parts.reloadWindowMs the longest time over which members reload their state
   *   after a resync
   * @param {{observe(n: number): void}} parts.fanout observes the receivers of each flush
   * @param {import('../worker/turn.js').Turn} parts.turn
   */
  constructor({ slowConsumers, counters, maxUnsentBytes, reloadWindowMs, fanout, turn }) {
    this.slowConsumers = slowConsumers;
    this.counters = counters;
    this.limits = {
      maxFlightBytes: Math.min(MAX_FLIGHT_BYTES, maxUnsentBytes / 2),
      reloadWindowMs,
    };
    this.fanout = fanout;
    /** @type {(room: HubRoom, publications: readonly Buffer[]) => void} */
    this.onFlushed = () => {};
    /** @type {(room: HubRoom, member: Connection) => void} */
    this.onResynced = () => {};
    this.turn = turn;
    this.slot = turn.slot('flushes', this.run.bind(this));
    /** Queued rooms with few members. @type {HubRoom[]} */
    this.short = [];
    /** The other queued rooms, and those with a flush under way. @type {HubRoom[]} */
    this.long = [];
    /** Queued rooms that rest after a flush. @type {HubRoom[]} */
    this.resting = [];
    /** Queued rooms whose interval is not over. */
    this.due = new DueRooms();
    /** Bytes of all publications not yet written to all members. */
    this.bytes = 0;
  }

  /** @param {Outbox['onFlushed']} onFlushed called when all members have the publications */
  listenForFlushes(onFlushed) {
    this.onFlushed = onFlushed;
  }

  /** @param {Outbox['onResynced']} onResynced takes members that get a `resync` out of the room */
  expelBy(onResynced) {
    this.onResynced = onResynced;
  }

  /** @param {HubRoom} room @param {Buffer} publication */
  pushPublication(room, publication) {
    if (this.isFull(room)) {
      this.counters.overflowed++;
      return;
    }
    this.#scheduleRoom(room, publication);
    room.enqueue(publication);
    if (room.isState && room.waitingBytes > conflateAt(room.distinctBytes)) this.#conflate(room);
  }

  /** Would `pushPublication` drop a publication? @param {HubRoom} room */
  isFull(room) {
    return (
      room.waitingBytes > MAX_WAITING_BYTES ||
      (this.bytes > MAX_WORKER_BYTES && room.waitingBytes > SPARED_BYTES)
    );
  }

  /** A mark is never dropped. @param {HubRoom} room @param {Buffer} mark */
  pushResync(room, mark) {
    this.#scheduleRoom(room, mark);
    room.enqueueResync(mark);
  }

  /** @param {HubRoom} room @param {Buffer} publication */
  #scheduleRoom(room, publication) {
    this.bytes += publication.length;
    this.counters.queueDepth++;
    if (!room.isQueued && this.#queue(room)) this.slot.wake();
  }

  /** Drops the waiting messages of a room with state. @param {HubRoom} room */
  drop(room) {
    const { count, bytes } = room.dropWaiting();
    this.bytes -= bytes;
    this.counters.queueDepth -= count;
  }

  /** @param {HubRoom} room with something to write @returns {boolean} false: it rests */
  #queue(room) {
    const isShort = room.flight === null && room.members.length <= SHORT_MEMBERS;
    if (isShort && room.everyMs === 0) this.short.push(room);
    else if (room.restsUntilMs === 0 || !this.#rests(room, this.turn.clock())) this.long.push(room);
    else {
      if (room.everyMs === 0) this.resting.push(room);
      else this.due.addDue(room, room.restsUntilMs);
      return false;
    }
    return true;
  }

  /**
   * A flush to many members costs nearly the same with one publication as with ten. So a busy room
   * rests between flushes, which leaves the CPU to others, and the next flush has more to carry.
   * @param {HubRoom} room @param {number} now @returns {boolean} true: the slot wakes after the rest
   */
  #rests(room, now) {
    const isEnough = room.everyMs === 0 && room.waitingBytes >= ENOUGH_BYTES;
    const isOver = room.restsUntilMs <= now || isEnough;
    if (isOver || room.flight !== null) return false;
    this.slot.wakeAt(room.restsUntilMs);
    return true;
  }

  /** @param {number} now */
  #endRests(now) {
    const { due, resting } = this;
    if (due.size > 0) {
      while (due.nextMs <= now) this.long.push(/** @type {HubRoom} */ (due.takeFirst()));
      if (due.size > 0) this.slot.wakeAt(due.nextMs);
    }
    if (resting.length === 0) return;
    this.resting = [];
    for (const room of resting) (this.#rests(room, now) ? this.resting : this.long).push(room);
  }

  /** Flushes for one turn. @returns {boolean} true if some are left */
  run() {
    const { short, long } = this;
    const { beganMs, endMs } = this.slot;
    this.#endRests(beganMs);
    let now = beganMs;
    // Long flushes get what is left of the share, but at least one piece: neither kind starves.
    let waited = long.length > 0;
    let flushed = 0;
    while (flushed < short.length && now < endMs) {
      now = this.#write(short[flushed++], now, now + PIECE_MS);
    }
    this.short = flushed === short.length ? [] : short.slice(flushed);
    while (long.length > 0 && (waited || now < endMs)) {
      waited = false;
      now = this.#write(/** @type {HubRoom} */ (long.shift()), now, now + PIECE_MS);
    }
    return this.short.length > 0 || long.length > 0;
  }

  /** Writes everything without yielding. The drain calls it. */
  flush() {
    for (;;) {
      const room =
        this.long.shift() ?? this.short.shift() ?? this.resting.shift() ?? this.due.takeFirst();
      if (room === undefined) return;
      this.#write(room, 0, Number.POSITIVE_INFINITY);
    }
  }

  /**
   * Writes to a room's members until the piece ends. If anything is left, the room is queued again.
   * @param {HubRoom} room @param {number} now @param {number} pieceEnd
   * @returns {number} the time afterwards
   */
  #write(room, now, pieceEnd) {
    const began = now;
    const flight = room.flight ?? this.#depart(room);
    if (flight === null) return now;
    const { frameOf, omits } = flight;
    const isOwed = room.sync !== null;
    let { members, left, next } = flight;
    let written = 0;
    let omitted = 0;
    let bytes = 0;
    let untilClock = WRITES_PER_CLOCK;
    for (;;) {
      // Outside the loop, so that it costs nothing per member.
      try {
        while (next < members.length) {
          const member = members[next++];
          // Nothing follows a close. A member that left meanwhile gets no more, even if it is back.
          if (!member.isOpen || left?.has(member)) continue;
          if (isOwed && member.lags > 0 && room.isLagging(member)) {
            bytes += this.#passLagging(room, flight, member);
            continue;
          }
          const { transport } = member;
          // One comparison per member, unless a publication of this flight is not for all.
          const own = omits ? flight.omittedFor(member) : NONE;
          let frames;
          if (own.length > 0) frames = flight.framesWithout(transport, own);
          else if (frameOf === null)
            frames =
              transport.format === FORMAT.FRAMES ? flight.frames : flight.framesFor(transport);
          else {
            frames = frameOf(next - 1, transport);
            if (leavesAtResync(transport.format)) {
              // Copies the list before the member leaves the room.
              flight.suspend(next);
              ({ members, left } = flight);
              this.onResynced(room, member);
              if (!member.isOpen) continue;
            }
          }
          if (frames.length === 0) continue; // nothing in this format
          if (transport.pendingBytes === 0 || this.#mayWait(room, flight, member, frames.length)) {
            transport.write(frames);
            written++;
            omitted += own.length;
            bytes += frames.length;
          } else if (isOwed && room.isLagging(member)) {
            // The member has just begun to lag.
            bytes += this.#passLagging(room, flight, member);
          }
          if (--untilClock === 0) {
            untilClock = WRITES_PER_CLOCK;
            now = this.turn.clock();
            if (now >= pieceEnd) break;
          }
        }
        break;
      } catch (error) {
        // Copies the list: `fail` may take the member out of the room.
        flight.suspend(next);
        members[next - 1].fail(error);
        ({ members, left } = flight);
      }
    }
    const { counters } = this;
    if (frameOf === null) counters.deliveries += written * flight.publications.length - omitted;
    counters.bytesOut += bytes;
    const ended = pieceEnd === Number.POSITIVE_INFINITY ? now : this.turn.clock();
    flight.spend(ended - began);
    if (next < members.length) flight.suspend(next);
    else this.#land(room, flight, ended);
    if (room.isQueued) this.#queue(room);
    return ended;
  }

  /** Ends a completed flight. @param {HubRoom} room @param {Flight} flight @param {number} now */
  #land(room, flight, now) {
    const members = flight.members.length;
    this.bytes -= flight.bytes;
    this.counters.flushes++;
    this.counters.queueDepth -= flight.publications.length;
    this.fanout.observe(members);
    this.onFlushed(room, flight.publications);
    room.sync?.flushed(room.waiting.length === 0);
    const restMs = members > SHORT_MEMBERS ? Math.min(MAX_REST_MS, flight.spentMs) : 0;
    room.arrive(room.everyMs === 0 ? now + restMs : room.dueMs);
    room.sync?.lagging?.resume();
  }

  /** Keeps the newest message of each key. @param {HubRoom} room with state */
  #conflate(room) {
    const { count, bytes } = room.conflate();
    this.bytes -= bytes;
    this.counters.queueDepth -= count;
    this.counters.conflated += count;
  }

  /** @param {HubRoom} room @returns {Flight|null} null: its messages have been dropped */
  #depart(room) {
    if (!room.isState) return room.depart(this.limits);
    if (room.waiting.length === 0) return null;
    this.#conflate(room);
    const flight = room.depart(this.limits);
    room.delay(this.turn.clock());
    return flight;
  }

  /**
   * May the frames wait for a member with unsent bytes? If not, it lags in a room with history.
   * @param {HubRoom} room @param {Flight} flight @param {Connection} member @param {number} bytes
   */
  #mayWait({ sync }, flight, member, bytes) {
    const { slowConsumers } = this;
    if (sync === null) return slowConsumers.admitBytes(member, bytes);
    const { start } = flight;
    if (start === null || slowConsumers.isLittle(member, bytes)) return true;
    sync.lag(member, start);
    flight.rewind(member.transport);
    return false;
  }

  /**
   * Writes publications without a position; lagging-members.js sends the others.
   * @param {HubRoom} room with history @param {Flight} flight @param {Connection} member
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

/**
 * A conflation walks all waiting messages, so the next one waits until their bytes have doubled.
 * Near MAX_WAITING_BYTES it comes earlier, or superseded messages would fill the outbox.
 * @param {number} distinctBytes left by the last conflation
 */
function conflateAt(distinctBytes) {
  const more = Math.min(distinctBytes, MAX_WAITING_BYTES - distinctBytes);
  return Math.max(MIN_CONFLATED_BYTES, distinctBytes + Math.max(more, distinctBytes / 8));
}
