// scheduler.js: what the followers of a worker's rooms with history share: reads of the broker, a
// clock, memory.
//
// Reads are bounded: MAX_READS under way, the others in line. A beat of BEAT_MS, one timer for all,
// turns a wheel: a room in which nothing has come in its turn for some nine seconds is compared
// with the broker, so that a loss which nothing else shows is found within ten. Each room has a
// place of its own on the wheel, so that ten thousand are no burst. When the broker is back every
// room is compared at once; who wants to know when that is done is told (`onProven`).
//
// The windows of all rooms together have a budget; beyond it those that have not been used for
// longest are emptied.

import { encodeHistoryMessages } from '../protocol/encode.js';
import {
  encodePublication,
  isEpoch,
  isPublication,
  KIND,
  kindOf,
} from '../protocol/publication.js';
import { RoomSync } from './room-sync.js';

/** As the heartbeat's and the health's: timers of one period fire together. */
const BEAT_MS = 250;
/** Places of the wheel: ten seconds. */
const SLOTS = 40;
/**
 * In beats: a room is compared so long after the last proof, at random between the two; the rest of
 * the ten seconds is for the read.
 */
const MIN_QUIET_BEATS = 28;
const MAX_QUIET_BEATS = 37;
const MAX_READS = 64;
/**
 * Reads in line from which on no history command is taken, and from which on no join opens a room.
 * A sync has two at most.
 */
const MAX_WAITING_READS = 1000;
const MAX_WAITING_ROOMS = 20_000;
/** What windows may hold, all rooms of the worker together. */
const MAX_WINDOW_BYTES = 64 * 1024 * 1024;
/** Of one turn of the event loop, for joins, all rooms together: each is two writes to a socket. */
const JOINS_MS = 8;
const DEFAULT_HISTORY_LIMIT = 100;
const NULL = Buffer.from('null');

/** @typedef {import('../backend/broker.js').HistoryPage} HistoryPage */
/** @typedef {import('../backend/broker.js').BrokerState} BrokerState */
/** @typedef {import('../protocol/decode.js').Since} Since */
/** @typedef {import('../hub/hub.js').Room} Room */
/** @typedef {import('../hub/connection.js').Connection} Connection */

/** @typedef {import('../backend/broker.js').ReadRequest} ReadRequest */

/**
 * A read in line: whose it is, and what to call when it has a place, or when nobody waits for it
 * any more.
 * @typedef {{sync: RoomSync|null, resolve: () => void, reject: (error: Error) => void}} WaitingRead
 */

/**
 * What recovery needs of a broker.
 * @typedef {{history(room: string, from: ReadRequest): Promise<HistoryPage>}} Histories
 */

export class SyncScheduler {
  /**
   * @param {object} parts
   * @param {Histories} parts.broker
   * @param {import('../backend/broker.js').HistoryOf} parts.historyOf
   * @param {import('../hub/outbox.js').Outbox} parts.outbox
   * @param {import('../hub/slow-consumers.js').SlowConsumers} parts.slowConsumers
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {number} parts.maxUnsentBytes of a connection
   * @param {number} [parts.maxWindowBytes]
   * @param {() => number} [parts.clock] ms, monotonic
   */
  constructor({
    broker,
    historyOf,
    outbox,
    slowConsumers,
    counters,
    maxUnsentBytes,
    maxWindowBytes = MAX_WINDOW_BYTES,
    clock = () => performance.now(),
  }) {
    this.broker = broker;
    this.historyOf = historyOf;
    this.outbox = outbox;
    this.slowConsumers = slowConsumers;
    this.counters = counters;
    // Half of what may wait for a connection: with all of it, the first live publication behind a
    // replay would make whoever is being sent one a slow consumer, for ever.
    this.maxReplayBytes = maxUnsentBytes / 2;
    this.maxWindowBytes = maxWindowBytes;
    this.clock = clock;
    /** By room. @type {Map<string, RoomSync>} */
    this.syncs = new Map();
    /** Those with something in their window, the least used first. @type {Set<RoomSync>} */
    this.used = new Set();
    /** Joins that wait for a decision, all rooms together. */
    this.joining = 0;
    /** When this turn of the event loop has spent enough on joins; 0: none has come in it. */
    this.joinsEndMs = 0;
    this.beats = 0;
    /** @type {RoomSync[][]} */
    this.wheel = Array.from({ length: SLOTS }, () => []);
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** Reads under way. */
    this.reads = 0;
    /** In line for a place, in their order. @type {Set<WaitingRead>} */
    this.waitingReads = new Set();
    /** How often the broker has come up. */
    this.era = 0;
    /** Those not compared since it did. @type {Set<RoomSync>} */
    this.unproven = new Set();
    /** Called when the broker is up and every room has been compared. */
    this.onProven = () => {};
  }

  /**
   * Has this turn of the event loop spent on joins what it may? Those that come then are decided in
   * the next.
   */
  isTurnSpent() {
    const now = this.clock();
    if (this.joinsEndMs === 0) {
      this.joinsEndMs = now + JOINS_MS;
      setImmediate(() => {
        this.joinsEndMs = 0;
      });
    }
    return now > this.joinsEndMs;
  }

  close() {
    clearInterval(this.timer);
    this.timer = undefined;
  }

  /**
   * A room has been opened.
   * @param {Room} room
   * @param {(connection: Connection) => void} leave
   * @returns {RoomSync|null} null where it has no history
   */
  follow(room, leave) {
    const rule = this.historyOf(room.name);
    if (rule === null) return null;
    const sync = new RoomSync({ recovery: this, room, rule, leave });
    this.syncs.set(room.name, sync);
    this.#place(sync, this.beats + 1 + Math.floor(Math.random() * MAX_QUIET_BEATS));
    this.timer ??= setInterval(() => this.beat(), BEAT_MS).unref();
    return sync;
  }

  /** The room is closed. @param {RoomSync} sync */
  unfollow(sync) {
    sync.close();
    for (const waiting of sync.waitingReads) {
      this.waitingReads.delete(waiting);
      waiting.reject(unavailable('the room is closed'));
    }
    sync.waitingReads.clear();
    this.syncs.delete(sync.room.name);
    this.used.delete(sync);
    if (this.unproven.delete(sync)) this.#countProven();
    if (this.syncs.size === 0) this.close();
  }

  /** The broker's state has changed. @param {BrokerState} state */
  onState(state) {
    if (state !== 'up') return;
    this.era++;
    this.unproven = new Set(this.syncs.values());
    for (const sync of this.unproven) sync.check();
    this.#countProven();
  }

  /**
   * What these rooms were sent a moment ago may not have come: they are compared at the next beat.
   * @param {readonly string[]} rooms
   */
  onLost(rooms) {
    for (const room of rooms) {
      const sync = this.syncs.get(room);
      if (sync !== undefined) this.checkIn(sync, 1);
    }
  }

  /**
   * A room's position has been compared by a read.
   * @param {RoomSync} sync
   * @param {number} era when the read began
   */
  proven(sync, era) {
    if (!this.unproven.has(sync)) return;
    if (era !== this.era) return sync.check();
    this.unproven.delete(sync);
    this.#countProven();
  }

  #countProven() {
    if (this.unproven.size === 0) this.onProven();
  }

  /**
   * Reads a page of a room, in turn.
   * @param {string} room
   * @param {ReadRequest} from
   * @param {RoomSync|null} [sync] whose read it is: once that is closed, a read that is still in
   *   line is left out
   * @returns {Promise<HistoryPage>}
   */
  async read(room, from, sync = null) {
    if (this.reads < MAX_READS) this.reads++;
    else await this.#turn(sync);
    if (from.limit > 0) this.counters.historyReads++;
    else this.counters.positionChecks++;
    try {
      const page = await this.broker.history(room, from);
      // Whoever may write to Redis may have written the position.
      if (isEpoch(page.epoch) && Number.isSafeInteger(page.offset) && page.offset >= 0) return page;
      this.counters.malformed++;
      throw unavailable(`the position of ${room} is invalid`);
    } finally {
      this.#readDone();
    }
  }

  /**
   * A publication that can be framed. Another program may have written into the room's stream; its
   * offset is one all the same, and leaving it out would be a gap: members get `null` from nobody.
   * @param {Buffer} publication
   */
  sound(publication) {
    if (kindOf(publication) === KIND.MESSAGE && isPublication(publication)) return publication;
    this.counters.malformed++;
    return encodePublication(KIND.MESSAGE, Date.now(), 0, '', NULL, 0, NULL.length);
  }

  /** A place is free: it is the next one's in line. */
  #readDone() {
    for (const waiting of this.waitingReads) {
      this.waitingReads.delete(waiting);
      waiting.sync?.waitingReads.delete(waiting);
      waiting.resolve();
      return;
    }
    this.reads--;
  }

  /**
   * @param {RoomSync|null} sync
   * @returns {Promise<void>}
   */
  #turn(sync) {
    return new Promise((resolve, reject) => {
      const waiting = { sync, resolve, reject };
      this.waitingReads.add(waiting);
      sync?.waitingReads.add(waiting);
    });
  }

  /**
   * Do so many reads wait that no join should open another room with history? Then each join would
   * wait ever longer.
   */
  get isFull() {
    return this.waitingReads.size >= MAX_WAITING_ROOMS;
  }

  /**
   * @param {RoomSync} sync
   * @param {number} beats from now, less than SLOTS
   */
  checkIn(sync, beats) {
    const beat = this.beats + beats;
    if (sync.mustCheck && sync.dueBeat <= beat) return;
    sync.mustCheck = true;
    this.#place(sync, beat);
  }

  /** Call every BEAT_MS: turns the wheel by one. */
  beat() {
    const slot = ++this.beats % SLOTS;
    const due = this.wheel[slot];
    this.wheel[slot] = [];
    for (const sync of due) {
      // One that stands on the wheel twice, for a retry, is due at its latest place.
      if (sync.isClosed || sync.dueBeat !== this.beats) continue;
      sync.expire();
      const provenBeats = this.beats - sync.provenBeat;
      if (provenBeats >= MIN_QUIET_BEATS || sync.mustCheck) {
        sync.mustCheck = false;
        sync.check();
        if (!sync.mustCheck) this.#place(sync, this.beats + quietBeats());
      } else {
        this.#place(sync, this.beats + Math.max(1, quietBeats() - provenBeats));
      }
    }
  }

  /**
   * @param {RoomSync} sync
   * @param {number} beat
   */
  #place(sync, beat) {
    sync.dueBeat = beat;
    this.wheel[beat % SLOTS].push(sync);
  }

  /**
   * A window has grown or shrunk; it is the last one used.
   * @param {RoomSync} sync
   * @param {number} bytes
   */
  resized(sync, bytes) {
    const { counters, used } = this;
    counters.windowBytes += bytes;
    used.delete(sync);
    if (sync.window.length > 0) used.add(sync);
    if (counters.windowBytes <= this.maxWindowBytes) return;
    for (const other of used) {
      if (counters.windowBytes <= this.maxWindowBytes) return;
      if (other === sync) continue;
      counters.windowsEvicted++;
      other.evict();
    }
  }

  /**
   * What a client sees of a room's history.
   * @param {string} room
   * @param {number|undefined} limit messages, within the room's rule
   * @param {Since|null} since those behind it, the oldest of them; null: the newest
   * @returns {Promise<{messages: Buffer, position: {epoch: string, offset: number}|null}>} JSON
   *   text without brackets, oldest first; position null: the room has no history. Rejects with a
   *   BrokerError, or another with such a code.
   */
  async history(room, limit, since) {
    const rule = this.historyOf(room);
    if (rule === null) return { messages: Buffer.alloc(0), position: null };
    const count = Math.min(limit ?? DEFAULT_HISTORY_LIMIT, rule.size);
    const { epoch, offset, first, publications } = await this.#page(room, count, since, rule.size);
    let start = 0;
    let end = publications.length;
    // As much as may be sent at once: from the end that was asked for.
    let bytes = 0;
    for (const { length } of publications) bytes += length;
    const isForward = since !== null && since.epoch === epoch;
    while (bytes > this.maxReplayBytes && end - start > 1)
      bytes -= publications[isForward ? --end : start++].length;
    return {
      messages: encodeHistoryMessages(publications.slice(start, end), first + start),
      position: { epoch, offset },
    };
  }

  /**
   * What a `history` command asks for, read no further than that.
   * @param {string} room
   * @param {number} count
   * @param {Since|null} since
   * @param {number} size of the room's rule
   * @returns {Promise<HistoryPage>}
   */
  async #page(room, count, since, size) {
    const here = await this.#stretchHere(room, count, since);
    if (here !== null) return here;
    if (this.waitingReads.size >= MAX_WAITING_READS) {
      this.counters.readsRefused++;
      throw unavailable('too many reads are waiting');
    }
    const maxBytes = this.maxReplayBytes;
    if (since !== null && since.epoch !== '') {
      // Where the stream stands tells whether the client's place is in it.
      const position = await this.read(room, { after: 0, limit: 0, isGlance: true });
      if (since.epoch === position.epoch) {
        if (since.offset >= position.offset) return position;
        const after = Math.max(since.offset, position.offset - size);
        const page = await this.read(room, {
          after,
          limit: count,
          maxBytes,
          isForward: true,
          isGlance: true,
        });
        if (since.epoch === page.epoch) return this.#soundStretch(page);
      }
    }
    return this.#soundStretch(
      await this.read(room, { after: 0, limit: count, maxBytes, isGlance: true }),
    );
  }

  /**
   * @param {string} room
   * @param {number} count
   * @param {Since|null} since
   * @returns {Promise<HistoryPage|null>} null: this worker does not have it
   */
  async #stretchHere(room, count, since) {
    const sync = this.syncs.get(room);
    if (!sync?.isLive) return null;
    /** @param {Since} place */
    const isPlace = (place) => place.epoch === sync.epoch;
    const isHere = () =>
      since !== null && isPlace(since)
        ? since.offset + 1 >= sync.window.first
        : sync.window.length >= count;
    // If it closes meanwhile, the store is asked.
    if (!isHere()) {
      await sync.fill().catch((error) => {
        if (sync.isLive) throw error;
      });
    }
    if (!sync.isLive) return null;
    sync.expire();
    const { epoch, offset, window } = sync;
    if (since === null || !isPlace(since)) {
      const first = Math.max(window.first, offset - count + 1);
      return { epoch, offset, first, publications: window.slice(first, offset) };
    }
    // The window has fewer than the store where those are large.
    const first = since.offset + 1;
    if (first < window.first && offset - window.length > 0) return null;
    const from = Math.max(first, window.first);
    return {
      epoch,
      offset,
      first: from,
      publications: window.slice(from, Math.min(offset, from + count - 1)),
    };
  }

  /** @param {HistoryPage} page */
  #soundStretch(page) {
    return {
      ...page,
      publications: page.publications.map((publication) => this.sound(publication)),
    };
  }
}

/** @param {string} message */
function unavailable(message) {
  return Object.assign(new Error(message), { code: 'UNAVAILABLE' });
}

function quietBeats() {
  return MIN_QUIET_BEATS + Math.floor(Math.random() * (MAX_QUIET_BEATS - MIN_QUIET_BEATS + 1));
}
