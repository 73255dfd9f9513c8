// relay-bus.js: the embedded broker's part in the primary: which worker gets a publication, and
// what is stored. bus-port.js has one worker's part of it.
//
// - A worker sends the publications of a tick to one room as a batch. The bus does not parse it: it
//   changes the type byte (and writes the position) in place, and copies the bytes once for each
//   receiving worker, in one write a tick.
// - The users of a dead worker leave only as fast as the other workers read the events, at most
//   READ_AHEAD_BYTES ahead.
// - Publications that a slow worker cannot get are dropped and counted: plain rooms are at most
//   once, and rooms with history find the gap and read it.

import { isAsExpected } from '../../protocol/position.js';
import { countPublications, HEAD_BYTES as ITEM_HEAD_BYTES, POSITION_ITEM_BYTES } from '../batch.js';
import { Histories } from './histories.js';
import { Holdings } from './holdings.js';
import { IdempotencyKeys, isConflict } from './idempotency-keys.js';
import { Members } from './members.js';
import { RoomOccupancy } from './occupancy.js';
import {
  batchAt,
  HEAD_BYTES,
  KEY_LENGTH,
  MalformedMessage,
  makePublication,
  OP,
  readBatchRoom,
  readNumber,
  setPosition,
  VERDICT,
} from './relay-wire.js';

/**
 * Reads, and the users of dead workers, wait while a worker has more pending bytes. Above the
 * high-water mark of sockets, so `drain` follows.
 */
export const READ_AHEAD_BYTES = 1024 * 1024;
/** Reads of one worker that wait for `drain`. */
const MAX_WAITING_READS = 100_000;
const SWEEP_INTERVAL_MS = 1000;
const LEFT_OUT_LOG_MS = 60_000;
/** Reads a position alone. */
const POSITION = Object.freeze({ after: 0, limit: 0 });
/** @type {Outcome} */
const ACCEPTED = Object.freeze({ verdict: VERDICT.ACCEPTED, epoch: '', offset: 0 });
/** @type {Outcome} */
const KEY_CONFLICT = Object.freeze({ verdict: VERDICT.KEY_CONFLICT, epoch: '', offset: 0 });
/** @type {Outcome} */
const FULL = Object.freeze({ verdict: VERDICT.FULL, epoch: '', offset: 0 });
const NO_PRESENCE = {
  maxMembers: 0,
  announcements: { join: Buffer.alloc(0), leave: Buffer.alloc(0), count: Buffer.alloc(0) },
};

/** @import { HistoryRule, StateRule } from '../../config/room-patterns.js' */
/** @import { ExpectedPosition } from '../../protocol/position.js' */
/** @import { HistoryOf } from '../broker.js' */
/** @import { EventRecorder } from './event-recorder.js' */
/** @import { First } from './idempotency-keys.js' */
/** @import { Outcome } from './relay-wire.js' */
/** @import { WorkerLink } from './worker-link.js' */

/**
 * @typedef {object} BusOptions
 * @property {HistoryOf} [historyOf] the same as the workers'
 * @property {{maxMembers: number, announcements: import('../presence.js').Announcements}} [presence]
 * @property {number} [maxWaitingReads] of one worker
 */

export class RelayBus {
  /** @type {Set<WorkerLink>} */
  links = new Set();
  /** Subscribed rooms. @type {Holdings<WorkerLink, true>} */
  rooms = new Holdings();
  streams = new Histories();
  keys = new IdempotencyKeys();
  /** null: nothing is recorded for webhooks. @type {EventRecorder|null} */
  recorder = null;
  /** The connections of all workers. */
  connections = 0;
  refusedReads = 0;
  leftOut = { plain: 0, history: 0 };
  #leftOutLoggedMs = Number.NEGATIVE_INFINITY;
  /** Users of dead workers. @type {Iterator<void>[]} */
  #leaving = [];
  /** Runs while there is something to expire. @type {NodeJS.Timeout|undefined} */
  #sweeper = undefined;

  /** @param {BusOptions & {log: import('pino').Logger}} parts */
  constructor({
    log,
    historyOf = () => null,
    presence = NO_PRESENCE,
    maxWaitingReads = MAX_WAITING_READS,
  }) {
    this.log = log;
    this.historyOf = historyOf;
    this.maxWaitingReads = maxWaitingReads;
    /** The users of each room. @type {Members<WorkerLink>} */
    this.members = new Members({
      ...presence,
      publish: (room, head, member) => this.#event(room, head, member),
      onTransition: (...transition) => this.recorder?.member(...transition),
    });
    /** The rooms and users with connections on each worker. @type {RoomOccupancy<WorkerLink>} */
    this.occupancy = new RoomOccupancy({
      onTransition: (event, tag) => this.recorder?.transition(event, tag),
      onCount: (room, connections) => {
        this.#event(room, presence.announcements.count, Buffer.from(String(connections)));
        this.recorder?.count(room, connections);
      },
    });
  }

  /** Something was stored that will expire. */
  #sweepLater() {
    this.#sweeper ??= setInterval(() => {
      const nowMs = performance.now();
      this.streams.sweep(nowMs);
      this.keys.sweep(nowMs);
      if (this.streams.isAtRest && this.keys.isEmpty) this.close();
    }, SWEEP_INTERVAL_MS).unref();
  }

  close() {
    clearInterval(this.#sweeper);
    this.#sweeper = undefined;
  }

  /** Records for webhooks from now on. @param {EventRecorder} recorder */
  recordBy(recorder) {
    this.recorder = recorder;
  }

  history() {
    const { bytes, publications, lostPublications, lostPositions } = this.streams;
    return {
      bytes,
      publications,
      lost: {
        publications: lostPublications,
        positions: lostPositions,
        keys: this.keys.lost,
        reads: this.refusedReads,
      },
    };
  }

  /**
   * A PUBLISH without a KEY: passes it on to every worker subscribed to the room.
   * @param {Buffer} buffer @param {number} start @param {number} end
   */
  publish(buffer, start, end) {
    this.#pass(readBatchRoom(buffer, start + HEAD_BYTES, end), 'plain', buffer, start, end);
  }

  /**
   * A PUBLISH with a KEY, or an APPEND: passes it on unless the key has been used in the room, or
   * the room is not at the expected position.
   * @param {number} op @param {string} keyText the key and the fingerprint, or empty
   * @param {ExpectedPosition|null} expect
   * @param {Buffer} buffer @param {number} start @param {number} end
   * @returns {Outcome} of its first publication
   */
  decide(op, keyText, expect, buffer, start, end) {
    const room = readBatchRoom(buffer, start + HEAD_BYTES, end);
    const isKept = op === OP.APPEND;
    const rule = isKept ? this.historyOf(room) : null;
    if (isKept && rule === null) throw new MalformedMessage('append to a room without history');
    const key = keyText.slice(0, KEY_LENGTH);
    const fingerprint = keyText.slice(KEY_LENGTH);
    const nowMs = performance.now();
    const first = key === '' ? null : this.keys.find(room, key, nowMs);
    if (first !== null) return outcomeOf(first, fingerprint, isKept);
    const refused = expect === null ? null : this.#conflictOf(room, expect, nowMs);
    if (refused !== null) return refused;
    const outcome = rule === null ? ACCEPTED : this.#store(room, rule, buffer, start, end, nowMs);
    if (outcome === FULL) return FULL;
    if (key !== '') {
      const position = rule === null ? null : { epoch: outcome.epoch, offset: outcome.offset };
      this.keys.set(room, key, { position, fingerprint }, nowMs);
    }
    if (rule !== null || key !== '') this.#sweepLater();
    this.#pass(room, isKept ? 'history' : 'plain', buffer, start, end);
    return outcome;
  }

  /**
   * @param {string} room @param {ExpectedPosition} expect @param {number} nowMs
   * @returns {Outcome|null} null: the room is there
   */
  #conflictOf(room, expect, nowMs) {
    const { epoch, offset } = this.streams.page(room, POSITION, nowMs);
    if (isAsExpected({ epoch, offset }, expect)) return null;
    return { verdict: VERDICT.CONFLICT, epoch, offset };
  }

  /**
   * Stores the publications of an APPEND, and writes their position into it.
   * @param {string} room @param {HistoryRule} rule
   * @param {Buffer} buffer @param {number} start @param {number} end @param {number} nowMs
   * @returns {Outcome} of the first one
   */
  #store(room, rule, buffer, start, end, nowMs) {
    const itemsAt = batchAt(buffer, start + HEAD_BYTES);
    const from = itemsAt + POSITION_ITEM_BYTES;
    const count = readNumber(buffer, start + HEAD_BYTES);
    if (count === 0 || countPublications(buffer, from, end) !== count)
      throw new MalformedMessage('wrong number of publications in a batch');
    const outcome = this.#keep(room, rule, buffer.subarray(from, end), count, nowMs);
    if (outcome !== FULL) setPosition(buffer, itemsAt, outcome);
    return outcome;
  }

  /**
   * @param {string} room @param {HistoryRule} rule
   * @param {Buffer} run publications, each after its length
   * @param {number} count of them @param {number} nowMs
   * @returns {Outcome} of the first one
   */
  #keep(room, rule, run, count, nowMs) {
    if (rule.state === undefined) {
      const { epoch, offset } = this.streams.append(room, rule, run, count, nowMs);
      return { verdict: VERDICT.ACCEPTED, epoch, offset: offset - count + 1 };
    }
    if (count !== 1) throw new MalformedMessage('several publications for a room with state');
    const publication = run.subarray(ITEM_HEAD_BYTES);
    const set = this.streams.set(room, /** @type {StateRule} */ (rule), publication, nowMs);
    return set === null ? FULL : { verdict: VERDICT.ACCEPTED, ...set };
  }

  /**
   * @param {string} room @param {'plain'|'history'} kind
   * @param {Buffer} buffer @param {number} start @param {number} end
   */
  #pass(room, kind, buffer, start, end) {
    const links = this.rooms.holdersOf(room);
    if (links === undefined) return;
    const count = readNumber(buffer, start + HEAD_BYTES);
    makePublication(buffer, start + HEAD_BYTES);
    for (const link of links.keys())
      if (!link.pass(buffer, start, end)) this.#leaveOut(link, kind, count);
  }

  /**
   * @param {WorkerLink} link of a worker that reads too slowly
   * @param {'plain'|'history'} kind @param {number} count
   */
  #leaveOut({ pid: workerPid, pendingBytes }, kind, count) {
    const { leftOut } = this;
    leftOut[kind] += count;
    const nowMs = performance.now();
    if (nowMs - this.#leftOutLoggedMs < LEFT_OUT_LOG_MS) return;
    this.#leftOutLoggedMs = nowMs;
    const text = 'relay: worker reads too slowly, dropping publications';
    this.log.warn({ workerPid, pendingBytes, leftOut }, text);
  }

  /** Records for webhooks, once for each key. @param {import('./relay-wire.js').Recorded} message */
  record(message) {
    const { room, key } = message;
    if (key === '' || this.keys.recordOnce(room, key, performance.now()))
      this.recorder?.message(room, message);
  }

  /** @param {string} room @param {Buffer} head @param {Buffer} member */
  #event(room, head, member) {
    const links = this.rooms.holdersOf(room);
    if (links === undefined) return;
    const event = Buffer.concat([head, member]);
    for (const link of links.keys()) link.out().publication(OP.PUBLICATION, room, event);
  }

  /** @param {number} change of the connections of all workers */
  addConnections(change) {
    this.connections += change;
  }

  refuseRead() {
    this.refusedReads++;
  }

  /** Removes all users of a worker. @param {WorkerLink} link */
  dismiss(link) {
    this.#leaving.push(this.members.removal(link));
    this.continueLeaving();
  }

  /** Stops while any worker has too much to read. */
  continueLeaving() {
    const leaving = this.#leaving;
    while (leaving.length > 0 && !this.#isFull()) if (leaving[0].next().done) leaving.shift();
  }

  #isFull() {
    for (const { pendingBytes } of this.links) if (pendingBytes >= READ_AHEAD_BYTES) return true;
    return false;
  }

  /** @param {WorkerLink} link */
  join(link) {
    this.links.add(link);
  }

  /** Releases what a worker held. @param {WorkerLink} link that has ended */
  leave(link) {
    this.links.delete(link);
    for (const room of this.rooms.namesOf(link)) this.rooms.drop(link, room);
    this.dismiss(link);
    this.occupancy.remove(link);
  }
}

/**
 * @param {First} first use of a key @param {string} fingerprint @param {boolean} isKept
 * @returns {Outcome}
 */
function outcomeOf(first, fingerprint, isKept) {
  if (isConflict(first, fingerprint)) return KEY_CONFLICT;
  if (!isKept) return ACCEPTED;
  return first.position === null ? KEY_CONFLICT : { verdict: VERDICT.ACCEPTED, ...first.position };
}
