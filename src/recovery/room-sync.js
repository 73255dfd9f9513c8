// room-sync.js: follows one room's stream for its members on this worker, in order and without gaps
// or duplicates.
//
// RoomSync knows the last publication that it handed to the outbox. What happens to an arrival
// depends on its offset and epoch:
//
//   the next one          goes into the replay buffer and to the outbox
//   an older one          is a repeat, and is dropped
//   a later one, or one of another epoch
//                         is held, with all that follow, while one read of the broker brings the
//                         missing publications (`#restore`). If the read does not prove that it is
//                         complete, members get `resync` between the old and the new publications,
//                         and the stream continues from the broker's position.
//
// A stream opens in the same way: arrivals are held until a read has brought the position. While
// the room has members, a failed read is repeated after ever longer pauses. A full outbox makes a
// gap, too: arrivals are dropped until it has drained, and are then read. `check` finds losses that
// show no gap (docs/architecture/recovery.md). Joins wait for the position (room-joins.js).
//
// StateSync (state-sync.js) overrides what a worker keeps of the stream and what a page of the
// broker means: `accept`, `receive`, `lag`.

import { isEpoch } from '../protocol/position.js';
import { encodeResyncMark, withPosition } from '../protocol/publication.js';
import { asDeliverable } from './deliverable.js';
import { LaggingMembers } from './lagging-members.js';
import { ReplayBuffer } from './replay-buffer.js';
import { ReplayFrames } from './replay-frames.js';
import { RoomJoins } from './room-joins.js';

const MAX_HELD = 10_000;
const MAX_HELD_BYTES = 8 * 1024 * 1024;
/** The longest pause before a read is repeated, in ticks of the wheel. */
const MAX_PAUSE_TICKS = 8;

/** @import { HistoryPage } from '../backend/broker.js' */
/** @import { Connection } from '../hub/connection.js' */

/** @typedef {{publication: Buffer, offset: number, epoch: string}} Arrival */

export class RoomSync {
  isState = false;
  /** Members get messages at most once in this time; 0: at once. */
  everyMs = 0;

  /**
   * @param {object} parts @param {string} parts.room
   * @param {Buffer} parts.prefix of the room's frames
   * @param {{size: number, ttlMs: number}} parts.rule
   * @param {import('./delivery.js').Delivery} parts.delivery
   * @param {import('./room-joins.js').Shared} parts.shared
   */
  constructor({ room, prefix, rule, delivery, shared }) {
    this.room = room;
    this.rule = rule;
    this.delivery = delivery;
    this.shared = shared;
    this.counters = shared.counters;
    this.isClosed = false;
    // RoomStream (room-joins.js) explains the fields.
    this.epoch = '';
    this.offset = 0;
    this.formerEpoch = '';
    this.replayBuffer = new ReplayBuffer({
      maxCount: rule.size,
      maxBytes: shared.maxReplayBytes,
      budget: shared.replayBudget,
    });
    /** Arrivals while the next offset is not known; else null. @type {Arrival[]|null} */
    this.held = [];
    this.heldBytes = 0;
    /** An arrival was dropped because too many were held. */
    this.isHeldCut = false;
    /** The outbox was full: arrivals are dropped until it has drained. */
    this.isBehind = false;
    this.isRestoring = false;
    this.isChecking = false;
    this.deletedEpoch = '';
    this.mustEnd = false;
    /** @type {Promise<void>|null} */
    this.filling = null;
    this.failures = 0;
    this.readsBegun = 0;
    this.readsDone = 0;
    this.timetable = shared.wheel.addTimetable(this);
    /** The tick of the last `refresh`. */
    this.refreshedTick = -1;
    this.frames = new ReplayFrames({
      prefix,
      buffer: this.replayBuffer,
      references: shared.references,
    });
    /** @type {LaggingMembers|null} */
    this.lagging = null;
    this.joins = this.createJoins();
  }

  /** @returns {RoomJoins} */
  createJoins() {
    const { room, frames, delivery, shared } = this;
    return new RoomJoins({ stream: this, room, frames, delivery, shared });
  }

  /** The subscription is confirmed. */
  open() {
    this.#restore();
  }

  close() {
    this.isClosed = true;
    this.held = null;
    this.joins.close();
    this.lagging?.close();
    const { reads, wheel, catchUp } = this.shared;
    this.replayBuffer.startOver(1);
    reads.cancel(this);
    wheel.remove(this.timetable);
    catchUp.remove(this);
  }

  get isInStep() {
    return this.held === null && !this.isBehind;
  }

  /** The position is known, and the history not deleted. */
  get isLive() {
    return this.epoch !== '' && this.epoch !== this.deletedEpoch && !this.isClosed;
  }

  /** @param {Buffer} publication @param {number} offset @param {string} epoch */
  arrive(publication, offset, epoch) {
    if (this.isBehind || this.isClosed) return;
    if (this.held !== null) return this.#hold(this.held, { publication, offset, epoch });
    if (epoch === this.epoch) {
      if (offset <= this.offset) return;
      if (offset === this.offset + 1) {
        this.accept(publication);
        return;
      }
    } else if (epoch === this.formerEpoch) return;
    else if (!isEpoch(epoch)) return void this.counters.malformed++;
    this.held = [];
    this.#hold(this.held, { publication, offset, epoch });
    this.#restore();
  }

  /**
   * A publication without an offset has arrived: another server lacks the room's rule. No replay
   * would contain it, so the epoch ends with a `resync`, at most once a tick.
   */
  unnumbered() {
    if (this.isClosed || this.mustEnd) return;
    this.mustEnd = true;
    this.timetable.checkIn(1);
  }

  /**
   * The history of this epoch was deleted. If the epoch is current, members get `resync`. Its
   * positions are no longer recovered.
   * @param {string} epoch
   */
  forget(epoch) {
    if (this.isClosed || this.epoch !== epoch) return;
    this.deletedEpoch = epoch;
    this.replayBuffer.startOver(this.offset + 1);
    this.comparePosition();
    // A read under way may have begun before the deletion.
    this.timetable.checkIn(1);
  }

  /** A flush has ended. @param {boolean} isDrained no publication waits any more */
  flushed(isDrained) {
    if (this.isClosed) return;
    if (this.isBehind && isDrained) {
      this.isBehind = false;
      this.held = [];
      this.#restore();
    }
    if (this.joins.size > 0) this.joins.settle();
  }

  /**
   * A member reads too slowly: it gets the room's messages in steps from now on.
   * @param {Connection} connection
   * @param {import('../protocol/position.js').Position} position of the last one written to it
   */
  lag(connection, position) {
    const { delivery, frames, room, rule, shared } = this;
    const { size } = rule;
    this.lagging ??= new LaggingMembers({ stream: this, room, size, frames, delivery, shared });
    this.lagging.add(connection, position);
  }

  /**
   * Bytes that members got again because this sender hid keys, since the last call. Rooms without
   * state have no keys.
   * @param {string} _sender
   */
  takeDebt(_sender) {
    return 0;
  }

  /** A member holds other audiences. Only a state has to follow. @param {Connection} _connection */
  review(_connection) {}

  /** Compares the position at the next tick. */
  checkSoon() {
    this.timetable.checkIn(1);
  }

  /** Compares the position with the broker's. Live publications continue meanwhile. */
  comparePosition() {
    if (this.isClosed || this.epoch === '' || this.isBehind || this.isRestoring || this.isChecking)
      return;
    if (this.mustEnd || this.epoch === this.deletedEpoch) this.held ??= [];
    if (this.held !== null) return this.#restore();
    this.isChecking = true;
    const end = () => {
      this.isChecking = false;
    };
    this.#look(0, end).catch(() => {}); // #again repeats it
  }

  /** Reads older publications into the buffer. Rejects if the broker is unavailable. */
  fill() {
    if (this.replayBuffer.isFilled) return Promise.resolve();
    this.filling ??= this.#look(this.rule.size, () => {
      this.filling = null;
    });
    return this.filling;
  }

  /** Forgets publications that the store has deleted. */
  expire() {
    this.replayBuffer.dropExpired(this.shared.clock() - this.rule.ttlMs);
  }

  /** The wheel calls it. */
  tend() {
    this.expire();
    this.lagging?.resume();
  }

  /**
   * Reads without holding arrivals.
   * @param {number} limit @param {() => void} end called when the read is over
   */
  async #look(limit, end) {
    const { shared, epoch, offset } = this;
    const number = ++this.readsBegun;
    const { era } = shared.catchUp;
    let page;
    try {
      // No more than the replay buffer holds.
      const from = { after: 0, limit, maxBytes: shared.maxReplayBytes };
      page = await shared.reads.read(this.room, from, this);
    } catch (error) {
      end();
      this.#again(/** @type {Error} */ (error));
      throw error;
    }
    end();
    if (this.isClosed) return;
    // This read began too early to end the epoch. The next one ends it.
    if (this.mustEnd) this.timetable.checkIn(1);
    this.#done(number);
    // Otherwise a restore, or a drain of the outbox, decides.
    if (this.isInStep && this.epoch === epoch) {
      if (page.epoch !== epoch || page.offset > this.offset || page.offset < offset) {
        this.held = [];
        this.#restore();
      } else {
        this.timetable.prove();
        shared.catchUp.proven(this, era);
      }
    }
    if (limit > 0 && page.epoch === this.epoch && this.isLive) this.#fillFrom(page, true);
    // If the read has not filled the buffer, joins would request the same read again at once. They
    // wait for the restore or drain under way.
    if (limit > 0 && !this.isInStep && !this.replayBuffer.isFilled) return;
    this.joins.settle();
    this.lagging?.resume();
  }

  /** @param {HistoryPage} page @param {boolean} isComplete no read would bring older ones */
  #fillFrom({ offset, publications, hasOlder }, isComplete) {
    const { replayBuffer, epoch, counters } = this;
    const first = offset - publications.length + 1;
    if (offset < replayBuffer.first - 1) return; // emptied meanwhile, or older than the buffer
    const older = publications
      .slice(0, Math.max(0, replayBuffer.first - first))
      .map((one, i) => withPosition(asDeliverable(one, counters), first + i, epoch));
    // A page of few large publications may be shorter than the buffer.
    const mayHaveOlder = first > replayBuffer.first ? replayBuffer.mayHaveOlder : hasOlder;
    replayBuffer.fill(older, this.shared.clock(), isComplete, mayHaveOlder);
  }

  /** Reads the position and the missing publications, while arrivals are held. */
  #restore() {
    if (this.isRestoring || this.isClosed) return;
    this.isRestoring = true;
    const { reads, catchUp } = this.shared;
    const isOpening = this.epoch === '';
    const number = ++this.readsBegun;
    const { era } = catchUp;
    const heldBefore = this.held?.length ?? 0;
    const endedEpoch = this.mustEnd ? this.epoch : '';
    const from = this.requestOf(isOpening);
    reads.read(this.room, endedEpoch === '' ? from : { ...from, endedEpoch }, this).then(
      (page) => {
        this.isRestoring = false;
        if (endedEpoch !== '') this.mustEnd = false;
        else if (this.mustEnd) this.timetable.checkIn(1);
        if (this.isClosed) return;
        this.#done(number);
        this.#restored(page, heldBefore);
        if (this.isInStep) {
          this.timetable.prove();
          catchUp.proven(this, era);
        }
        this.joins.settle();
        this.lagging?.resume();
      },
      (error) => {
        this.isRestoring = false;
        if (this.isClosed) return;
        if (this.epoch === '') this.joins.refuseAll(error);
        else this.#again(error);
      },
    );
  }

  /** @param {boolean} isOpening @returns {import('../backend/broker.js').ReadRequest} */
  requestOf(isOpening) {
    // The position alone decides most joins: no `since`, another stream, or nothing missed.
    return { after: this.offset, limit: isOpening ? 0 : this.rule.size };
  }

  /** @param {HistoryPage} page @param {number} heldBefore arrivals held before the read */
  #restored(page, heldBefore) {
    this.receive(page);
    this.#releaseHeld(heldBefore);
  }

  /** @param {HistoryPage} page */
  receive(page) {
    const { epoch, offset, publications } = page;
    const first = offset - publications.length + 1;
    if (
      this.epoch === '' ||
      epoch !== this.epoch ||
      offset < this.offset ||
      first > this.offset + 1
    ) {
      if (this.epoch !== '') this.#resync(epoch, offset);
      this.place(epoch, offset);
      this.replayBuffer.startOver(offset + 1);
      // There may be more: the page is of another stream, or has a gap before it.
      if (publications.length > 0) this.#fillFrom(page, false);
    } else {
      const missed = publications.slice(this.offset + 1 - first);
      if (missed.length > 0) this.counters.gaps++;
      for (const publication of missed) {
        if (!this.accept(publication)) break;
        this.counters.backfilled++;
      }
    }
  }

  /** Continues after this position. @param {string} epoch @param {number} offset */
  place(epoch, offset) {
    if (epoch !== this.epoch) this.formerEpoch = this.epoch;
    this.epoch = epoch;
    this.offset = offset;
  }

  /** @param {number} heldBefore arrivals held before the read began */
  #releaseHeld(heldBefore) {
    const held = /** @type {Arrival[]} */ (this.held);
    const isCut = this.isHeldCut;
    this.held = null;
    this.heldBytes = 0;
    this.isHeldCut = false;
    for (let i = 0; i < held.length; i++) {
      const { publication, offset, epoch } = held[i];
      // The read has decided about arrivals held before it: those that do not follow are dropped.
      if (i < heldBefore && !(epoch === this.epoch && offset === this.offset + 1)) continue;
      this.arrive(publication, offset, epoch);
    }
    if (isCut && this.isInStep) {
      this.held = [];
      this.#restore();
    }
  }

  /** @param {string} epoch @param {number} offset */
  #resync(epoch, offset) {
    this.counters.gaps++;
    this.counters.resyncs++;
    this.delivery.markResync(encodeResyncMark(offset, epoch));
  }

  /** @param {Buffer} publication the next one @returns false: the outbox is full */
  accept(publication) {
    const { delivery } = this;
    if (delivery.isFull()) {
      this.isBehind = true;
      return false;
    }
    const valid = asDeliverable(publication, this.counters);
    const positioned = withPosition(valid, ++this.offset, this.epoch);
    this.timetable.prove();
    this.replayBuffer.appendNext(positioned, this.shared.clock());
    delivery.deliver(positioned);
    return true;
  }

  /** @param {Arrival[]} held @param {Arrival} arrival */
  #hold(held, arrival) {
    if (held.length >= MAX_HELD || this.heldBytes > MAX_HELD_BYTES) {
      this.isHeldCut = true; // the next read brings it
      return;
    }
    held.push(arrival);
    this.heldBytes += arrival.publication.length;
  }

  /** @param {number} number of a read that succeeded */
  #done(number) {
    this.failures = 0;
    if (number > this.readsDone) this.readsDone = number;
  }

  /** Reads again later, and refuses waiting joins. @param {Error} error */
  #again(error) {
    if (this.isClosed) return;
    this.timetable.checkIn(Math.min(MAX_PAUSE_TICKS, 2 ** this.failures++));
    this.joins.settle(error);
  }

  /** Compares the position, at most once a tick. */
  refresh() {
    const { ticks } = this.shared.wheel;
    if (this.refreshedTick === ticks) return this.timetable.checkIn(1);
    this.refreshedTick = ticks;
    this.comparePosition();
  }
}
