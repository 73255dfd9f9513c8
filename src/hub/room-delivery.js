// room-delivery.js: gives recovery access to a room's members and outbox.

import { encodeNotice, leavesAtResync, positionIn } from '../protocol/format.js';
import { isClaim, KIND, kindOf, offsetOf } from '../protocol/publication.js';
import { reloadSpreadMs, resyncFrame, withOwnId } from './flight.js';

/** @import { Delivery } from '../recovery/delivery.js' */
/** @import { HubRoom } from './room.js' */

/** @implements {Delivery} */
export class RoomDelivery {
  /**
   * @param {object} parts
   * @param {HubRoom} parts.room @param {import('./outbox.js').Outbox} parts.outbox
   * @param {import('../protocol/claim.js').References} parts.references
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ room, outbox, references, counters }) {
    this.room = room;
    this.outbox = outbox;
    this.references = references;
    this.counters = counters;
  }

  isFull() {
    return this.outbox.isFull(this.room);
  }

  /** @type {Delivery['deliver']} */
  deliver(publication) {
    const { room } = this;
    // New members still get publications that waited for former ones; this one has to follow.
    if (room.members.length === 0 && room.waiting.length === 0) return;
    this.outbox.pushPublication(
      room,
      isClaim(publication) ? this.references.resolve(publication) : publication,
    );
  }

  /** @type {Delivery['markResync']} */
  markResync(mark) {
    const { room } = this;
    if (room.members.length > 0 || room.waiting.length > 0) this.outbox.pushResync(room, mark);
  }

  /** @type {Delivery['handedOut']} */
  handedOut(latest) {
    const { waiting, resyncsWaiting } = this.room;
    if (resyncsWaiting > 0) return -1;
    for (const publication of waiting) {
      if (kindOf(publication) === KIND.POSITIONED) return offsetOf(publication) - 1;
    }
    return latest;
  }

  /** @type {Delivery['admit']} */
  admit(connection, reply, shared, end) {
    this.room.add(connection);
    reply();
    // Nothing follows a close (RFC 6455 5.5.1).
    if (shared.length === 0 || !connection.isOpen) return false;
    this.write(connection, shared, end);
    return connection.isOpen;
  }

  members() {
    return this.room.members;
  }

  dropWaiting() {
    this.outbox.drop(this.room);
  }

  /** @type {Delivery['tell']} */
  tell(connection, text, position) {
    this.write(connection, encodeNotice(connection.transport.format, text, position), position);
  }

  isFlushing() {
    return this.room.flight !== null;
  }

  isMarking() {
    return this.room.flight?.isMark ?? false;
  }

  /** @type {Delivery['write']} */
  write({ transport }, shared, { epoch, offset }) {
    const frames = withOwnId(transport, this.room.name, shared, epoch, offset);
    if (frames.length === 0) return; // nothing in its format
    transport.write(frames);
    this.counters.bytesOut += frames.length;
  }

  /** @type {Delivery['pass']} */
  pass(connection, position) {
    const { format } = connection.transport;
    this.write(connection, positionIn(format, this.room.name, position), position);
  }

  /** @type {Delivery['resync']} */
  resync(connection, position, members) {
    const { transport } = connection;
    const { reloadWindowMs } = this.outbox.limits;
    const afterMs = Math.floor(Math.random() * reloadSpreadMs(members, reloadWindowMs));
    const frames = resyncFrame(this.room.name, transport, position, afterMs);
    if (leavesAtResync(connection.transport.format) && this.room.has(connection))
      this.outbox.onResynced(this.room, connection);
    // Nothing follows a close.
    if (frames.length > 0 && connection.isOpen) transport.write(frames);
  }
}
