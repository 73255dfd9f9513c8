// state-sync.js: follows the stream of a room with state. Each worker with members has a copy of
// the state (protocol/compacted-log.js). It serves joins, and members that lack changes
// (state-members.js).
//
//   a gap         one read brings the newest change of each key after the worker's position
//   no proof      (another epoch, or a forgotten tombstone that the worker lacks): the same read
//                 brings the whole state. All members get `reset`, then that state
//   an audience   (docs/architecture/audiences.md): members from whom a key is hidden now get
//                 `reset`, then the state that they may see

import { CompactedLog } from '../protocol/compacted-log.js';
import {
  audienceTextOf,
  hasKey,
  isPublication,
  isRestricted,
  keyTextOf,
  senderOf,
  withPosition,
} from '../protocol/publication.js';
import { RoomSync } from './room-sync.js';
import { StateJoins } from './state-joins.js';
import { StateMembers } from './state-members.js';

/** A page holds the largest state. */
const NO_LIMIT = 1_000_000;
/** Senders in `#owed`. One more, and all of them are forgotten. */
const MAX_DEBTORS = 1000;
/**
 * A debt is forgotten at this age. Every worker notes those of all senders, and only the sender's
 * own collects them: elsewhere they would wait until the sender moves there. At the default rates,
 * a sender has paid the most that it can owe in less time.
 */
const DEBT_MS = 30_000;

/** @import { HistoryPage, ReadRequest } from '../backend/broker.js' */
/** @import { Connection } from '../hub/connection.js' */
/** @import { Position } from '../protocol/position.js' */

export class StateSync extends RoomSync {
  /** @override */
  isState = true;
  /** Bytes of the copy that `counters.stateBytes` includes. */
  #counted = 0;
  /** @type {StateMembers|null} */
  #members = null;
  /**
   * Bytes that members began again with, by the sender that hid a key.
   * @type {Map<string, {bytes: number, sinceMs: number}>}
   */
  #owed = new Map();

  /**
   * @param {Omit<ConstructorParameters<typeof RoomSync>[0], 'rule'>
   *   & {rule: import('../config/room-patterns.js').StateRule}} parts
   */
  constructor(parts) {
    super(parts);
    const { size, state } = parts.rule;
    this.everyMs = state.everyMs;
    this.log = new CompactedLog({ maxKeys: size, maxBytes: state.maxBytes });
  }

  /** @override */
  createJoins() {
    const { room, frames, delivery, shared } = this;
    return new StateJoins({ stream: this, room, frames, delivery, shared });
  }

  /** @override */
  close() {
    super.close();
    this.log.clear(0);
    this.#countBytes();
  }

  /** Members that lack changes. */
  get members() {
    if (this.#members === null) {
      const { room, rule, frames, delivery, shared } = this;
      const { size } = rule;
      this.#members = new StateMembers({ stream: this, room, size, frames, delivery, shared });
      this.lagging = this.#members;
    }
    return this.#members;
  }

  /** @override @param {Connection} connection @param {Position} position */
  lag(connection, position) {
    this.members.add(connection, position);
  }

  /** @override The store forgets a state together with its epoch, which a comparison finds. */
  expire() {}

  /** @override @returns {ReadRequest} */
  requestOf() {
    const { epoch, offset } = this;
    const from = { after: 0, limit: NO_LIMIT, isForward: true };
    return epoch === '' ? from : { ...from, since: { epoch, offset } };
  }

  /** @override @param {HistoryPage} page */
  receive(page) {
    const { epoch, offset, publications, state } = page;
    if (state === undefined) return; // the answer belongs to a room without state
    const { offsets, floor, isWhole } = state;
    if (this.epoch === '' || isWhole) return this.#replaceCopy(page, offsets, floor);
    if (epoch !== this.epoch) return;
    if (publications.length > 0) this.counters.gaps++;
    for (const [i, publication] of publications.entries()) {
      if (offsets[i] <= this.offset) continue;
      if (!this.#takeChange(publication, offsets[i])) return;
      this.counters.backfilled++;
    }
    // The store's floor is at or below the former position, so the copy lacks no removal. It may
    // keep tombstones that the store has forgotten.
    this.place(epoch, offset);
  }

  /**
   * The whole state replaces the copy.
   * @param {HistoryPage} page @param {readonly number[]} offsets @param {number} floor
   */
  #replaceCopy({ epoch, offset, publications }, offsets, floor) {
    const { log, counters } = this;
    const isOpening = this.epoch === '';
    this.place(epoch, offset);
    log.clear(floor);
    for (const [i, publication] of publications.entries()) this.#put(publication, offsets[i]);
    this.#countBytes();
    if (isOpening) return;
    counters.gaps++;
    counters.resyncs++;
    this.delivery.dropWaiting();
    this.members.restartAll();
  }

  /** @override @param {Buffer} publication the next one */
  accept(publication) {
    if (!this.#takeChange(publication, this.offset + 1)) return false;
    this.timetable.prove();
    return true;
  }

  /** @param {Buffer} publication @param {number} offset @returns false: the outbox is full */
  #takeChange(publication, offset) {
    const { delivery } = this;
    if (delivery.isFull()) {
      this.isBehind = true;
      return false;
    }
    this.place(this.epoch, offset);
    const positioned = this.#put(publication, offset);
    this.#countBytes();
    if (positioned !== null) delivery.deliver(positioned);
    return true;
  }

  /** @param {Buffer} publication @param {number} offset @returns with its position; null if invalid */
  #put(publication, offset) {
    if (!isPublication(publication) || !hasKey(publication)) {
      this.counters.malformed++;
      return null;
    }
    const { log } = this;
    const isPlain = log.restricted === 0 && !isRestricted(publication);
    const former = isPlain ? undefined : log.get(keyTextOf(publication));
    const before = former === undefined ? '' : audienceTextOf(former.publication);
    const kept = log.put(offset, withPosition(publication, offset, this.epoch));
    if (former !== undefined && audienceTextOf(kept) !== before) this.#hide(kept, before);
    return kept;
  }

  /**
   * Members that could see the key, and no longer may, begin again. The sender owes for that: what
   * happens here decides, because other messages may arrive after it was sent.
   * @param {Buffer} publication @param {string} before
   */
  #hide(publication, before) {
    let bytes = 0;
    for (const connection of this.delivery.members()) {
      const audiences = connection.audiencesIn(this.room);
      const isLost = audiences.holdsOneOf(before) && !audiences.maySee(publication);
      if (isLost && this.members.restartMember(connection)) bytes = this.log.bytes;
    }
    if (bytes > 0) this.#owe(senderOf(publication), bytes);
  }

  /** @param {string} sender @param {number} bytes */
  #owe(sender, bytes) {
    const nowMs = this.shared.clock();
    const debt = this.#owed.get(sender);
    if (debt !== undefined && nowMs - debt.sinceMs < DEBT_MS) return void (debt.bytes += bytes);
    if (debt === undefined && this.#owed.size >= MAX_DEBTORS) this.#owed.clear();
    this.#owed.set(sender, { bytes, sinceMs: nowMs });
  }

  /** @override @param {string} sender */
  takeDebt(sender) {
    const debt = this.#owed.get(sender);
    if (debt === undefined) return 0;
    this.#owed.delete(sender);
    return this.shared.clock() - debt.sinceMs < DEBT_MS ? debt.bytes : 0;
  }

  /** @override The member may see other keys now. @param {Connection} connection a member */
  review(connection) {
    if (this.log.restricted > 0) this.members.restartMember(connection);
  }

  #countBytes() {
    const { memoryBytes } = this.log;
    this.counters.stateBytes += memoryBytes - this.#counted;
    this.#counted = memoryBytes;
  }
}
