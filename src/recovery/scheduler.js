// scheduler.js: the rooms with history or state of a worker, and the parts that they share: reads
// of the broker, the wheel of position checks, the memory for replays, the time for joins.

import { NO_BUCKET } from '../protocol/claim.js';
import { CLOSES } from '../protocol/codes.js';
import { CatchUp } from './catch-up.js';
import { CheckWheel } from './check-wheel.js';
import { ReadQueue } from './read-queue.js';
import { ReplayBudget } from './replay-buffer.js';
import { RoomSync } from './room-sync.js';
import { StateSync } from './state-sync.js';
import { StepQueue } from './step-queue.js';

/** The bound of the replay buffers of all rooms. */
const MAX_REPLAY_BYTES = 64 * 1024 * 1024;
/** The bound of the copies of all states. Above it, joins open no further room. */
const MAX_STATE_BYTES = 256 * 1024 * 1024;
/** Open rooms may grow to this multiple of MAX_STATE_BYTES. Above it, the largest is closed. */
const STATE_GROWTH = 1.25;

/** @import { BrokerState, HistoryOf } from '../backend/broker.js' */
/** @import { Connection } from '../hub/connection.js' */
/** @import { Close } from '../protocol/codes.js' */

export class SyncScheduler {
  /**
   * @param {object} parts @param {import('./read-queue.js').Histories} parts.broker
   * @param {HistoryOf} parts.historyOf the rules of rooms with history or state
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {import('../protocol/claim.js').References} [parts.references]
   * @param {number} parts.maxUnsentBytes of a connection
   * @param {import('../worker/turn.js').Turn} parts.turn
   * @param {number} [parts.maxBufferBytes] of all replay buffers
   * @param {number} [parts.maxStateBytes] of all copies of states
   * @param {() => number} [parts.clock] ms, monotonic
   */
  constructor({
    broker,
    historyOf,
    counters,
    references = NO_BUCKET,
    maxUnsentBytes,
    turn,
    maxBufferBytes = MAX_REPLAY_BYTES,
    maxStateBytes = MAX_STATE_BYTES,
    clock = () => performance.now(),
  }) {
    this.historyOf = historyOf;
    this.maxStateBytes = maxStateBytes;
    this.references = references;
    // Only half: otherwise the first live publication after a replay could close the client as a
    // slow consumer, and it would return for the same replay.
    this.maxReplayBytes = maxUnsentBytes / 2;
    this.reads = new ReadQueue({ broker, counters });
    this.wheel = new CheckWheel();
    this.catchUp = new CatchUp();
    const joinLine = turn.line('joins', goOn);
    this.replayBudget = new ReplayBudget({ maxBytes: maxBufferBytes, counters });
    this.steps = new StepQueue(turn);
    const { reads, wheel, catchUp, replayBudget, steps, maxReplayBytes } = this;
    /** @type {import('./room-joins.js').Shared} */
    this.shared = {
      reads,
      wheel,
      catchUp,
      joinLine,
      replayBudget,
      steps,
      maxReplayBytes,
      references,
      counters,
      clock,
    };
    /** Each room's RoomSync. @type {Map<string, RoomSync>} */
    this.syncs = new Map();
  }

  close() {
    this.wheel.close();
  }

  /** Or state. @param {string} room */
  hasHistory(room) {
    return this.historyOf(room) !== null;
  }

  /** @param {string} room */
  hasState(room) {
    return this.historyOf(room)?.state !== undefined;
  }

  get waitingJoins() {
    let waiting = 0;
    for (const { joins } of this.syncs.values()) waiting += joins.size;
    return waiting;
  }

  get isSettled() {
    return this.waitingJoins === 0;
  }

  /** Must a join not open another room? */
  get isOverloaded() {
    return this.reads.isOverfull || this.shared.counters.stateBytes >= this.maxStateBytes;
  }

  /**
   * @param {string} room @param {Buffer} prefix of its frames
   * @param {import('./delivery.js').Delivery} delivery @returns {RoomSync}
   */
  follow(room, prefix, delivery) {
    const rule = /** @type {import('../config/room-patterns.js').HistoryRule} */ (
      this.historyOf(room)
    );
    const { shared } = this;
    const parts = { room, prefix, delivery, shared };
    const sync = isStateRule(rule)
      ? new StateSync({ ...parts, rule })
      : new RoomSync({ ...parts, rule });
    this.syncs.set(room, sync);
    return sync;
  }

  /** @param {RoomSync} sync */
  unfollow(sync) {
    sync.close();
    this.syncs.delete(sync.room);
  }

  /**
   * Call it about once a second. If all states together are too large, closes the members of the
   * room with the largest one. They return after ten seconds or more, perhaps to a worker that has
   * memory.
   * @param {(members: readonly Connection[], close: Close) => void} closeAll
   * @returns {string|null} the room
   */
  shedState(closeAll) {
    const { counters } = this.shared;
    if (counters.stateBytes <= STATE_GROWTH * this.maxStateBytes) return null;
    /** @type {StateSync|null} */
    let largest = null;
    for (const sync of this.syncs.values())
      if (sync instanceof StateSync && sync.log.memoryBytes > (largest?.log.memoryBytes ?? 0))
        largest = sync;
    // The copy is freed when the last of them has left.
    const members = largest?.delivery.members().filter(({ isOpen }) => isOpen) ?? [];
    if (largest === null || members.length === 0) return null;
    counters.stateCloses += members.length;
    closeAll(members, CLOSES.OVERLOAD);
    return largest.room;
  }

  /** A history was deleted. @param {string} room @param {string} epoch that has ended */
  onDeleted(room, epoch) {
    this.syncs.get(room)?.forget(epoch);
  }

  /** @param {BrokerState} state */
  onState(state) {
    if (state === 'up') this.catchUp.begin(this.syncs.values());
  }

  /** @param {readonly string[]} rooms that may have missed publications */
  onLost(rooms) {
    for (const room of rooms) this.syncs.get(room)?.checkSoon();
  }
}

/** @param {import('./room-joins.js').RoomJoins} joins */
function goOn(joins) {
  joins.goOn();
}

/**
 * @param {import('../config/room-patterns.js').HistoryRule} rule
 * @returns {rule is import('../config/room-patterns.js').StateRule}
 */
function isStateRule(rule) {
  return rule.state !== undefined;
}
