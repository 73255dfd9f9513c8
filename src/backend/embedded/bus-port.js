// bus-port.js: one worker's part of the bus in the primary (relay-bus.js).

import { copyOf } from './histories.js';
import { READ_AHEAD_BYTES } from './relay-bus.js';
import {
  HEAD_BYTES,
  MAX_OUTCOMES,
  MalformedMessage,
  OP,
  readExpect,
  readNumber,
  readText,
} from './relay-wire.js';

/** @import { ExpectedPosition } from '../../protocol/position.js' */
/** @import { RelayBus } from './relay-bus.js' */
/** @import { HistoryRead, Occupied, Outcome, ToRelay } from './relay-wire.js' */
/** @import { WorkerLink } from './worker-link.js' */

export class BusPort {
  /** The connections of this worker. */
  #connections = 0;
  /** Since the last SYNC. @type {Outcome[]} */
  #outcomes = [];
  /** The KEY for the next PUBLISH or APPEND; empty if it has none. */
  #key = '';
  /** The EXPECT for the next APPEND. @type {ExpectedPosition|null} */
  #expect = null;
  /** Reads that wait until the worker has read earlier bytes. @type {HistoryRead[]} */
  #reads = [];

  /** @param {RelayBus} bus @param {WorkerLink} link */
  constructor(bus, link) {
    this.bus = bus;
    this.link = link;
    bus.join(link);
  }

  /** @param {number} op @param {Buffer} buffer @param {number} start @param {number} end */
  receive(op, buffer, start, end) {
    const at = start + HEAD_BYTES;
    switch (op) {
      case OP.PUBLISH:
      case OP.APPEND:
        this.#publish(op, buffer, start, end);
        return;
      case OP.KEY:
        this.#key = readText(buffer, at, end);
        return;
      case OP.EXPECT:
        this.#expect = readExpect(buffer, at, end);
        return;
      case OP.SYNC:
        // Messages are handled in order, so all earlier ones have been accepted.
        this.link.out().outcomes(readNumber(buffer, at), this.#outcomes);
        this.#outcomes = [];
        return;
      default:
        throw new MalformedMessage(`unknown message type: ${op}`);
    }
  }

  /** @param {number} op @param {Buffer} buffer @param {number} start @param {number} end */
  #publish(op, buffer, start, end) {
    const key = this.#key;
    const expect = this.#expect;
    if (op === OP.PUBLISH && key === '') {
      this.bus.publish(buffer, start, end);
      return;
    }
    this.#key = '';
    this.#expect = null;
    if (this.#outcomes.length >= MAX_OUTCOMES)
      throw new MalformedMessage('too many outcomes in one answer');
    this.#outcomes.push(this.bus.decide(op, key, expect, buffer, start, end));
  }

  /** @param {ToRelay} message @returns {boolean} false: it is not for the bus */
  control(message) {
    const { bus, link } = this;
    const { rooms, members, occupancy } = bus;
    switch (message.type) {
      case 'subscribe':
        rooms.hold(link, message.room, true);
        this.#reply(message.request, 0);
        break;
      case 'unsubscribe':
        rooms.drop(link, message.room);
        break;
      case 'read':
        this.#askRead(message);
        break;
      case 'connections':
        this.#setConnections(message.connections);
        break;
      case 'count':
        this.#reply(message.request, bus.connections);
        break;
      case 'workers':
        this.#reply(message.request, rooms.holderCount);
        break;
      case 'enter':
        // A copy, because it is kept.
        members.join(
          link,
          message.room,
          message.user,
          copyOf(Buffer.from(message.member, 'base64')),
        );
        break;
      case 'exit':
        members.leave(link, message.room, message.user);
        break;
      case 'exit-all':
        bus.dismiss(link);
        break;
      case 'who': {
        const { count, members: listed } = members.read(message.room, message.isCount);
        link.out().members(message.request, count, listed);
        break;
      }
      case 'occupy':
        occupancy.join(link, message.tag, message.connections, message.isTold);
        break;
      case 'vacate':
        occupancy.leave(link, message.tag);
        break;
      case 'connections-in':
        this.#reply(message.request, occupancy.connectionsIn(message.room));
        break;
      case 'occupied':
        this.#list(message);
        break;
      case 'record':
        bus.record(message);
        break;
      default:
        return false;
    }
    return true;
  }

  /** @param {number} request @param {number} value */
  #reply(request, value) {
    this.link.out().reply(request, true, value);
  }

  /** @param {number} connections */
  #setConnections(connections) {
    this.bus.addConnections(connections - this.#connections);
    this.#connections = connections;
  }

  /** @param {HistoryRead} read */
  #askRead(read) {
    if (this.#reads.length >= this.bus.maxWaitingReads) {
      this.bus.refuseRead();
      this.link.out().reply(read.request, false, 0);
      return;
    }
    this.#reads.push(read);
    if (this.#reads.length === 1) this.#serveReads();
  }

  /** Reads have a bound ahead of the worker, so that they delay live publications little. */
  #serveReads() {
    const { link, bus } = this;
    const reads = this.#reads;
    let served = 0;
    const nowMs = performance.now();
    while (served < reads.length && link.pendingBytes < READ_AHEAD_BYTES) {
      const read = reads[served++];
      link.out().page(read.request, bus.streams.page(read.room, read, nowMs));
    }
    if (served > 0) this.#reads = reads.slice(served);
  }

  /** @param {Occupied} page with a request */
  async #list({ request, ...page }) {
    const { link, bus } = this;
    const rooms = await bus.occupancy.list(page);
    if (!link.isWritable) return;
    if (rooms === null) link.out().reply(request, false, 0);
    else {
      const rows = rooms.map(({ room, connections }) => Buffer.from(`${room} ${connections}`));
      link.out().members(request, rows.length, rows);
    }
  }

  /** The worker has read what was pending. */
  drain() {
    this.#serveReads();
    this.bus.continueLeaving();
  }

  /** The link has ended. */
  close() {
    this.#setConnections(0);
    this.bus.leave(this.link);
  }
}
