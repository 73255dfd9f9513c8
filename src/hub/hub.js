// hub.js: a worker's rooms and connections.
//
// A room exists here while a connection of this worker is in it. The first one makes the worker
// subscribe the room at the broker, and the join is answered only once the broker has confirmed;
// the last one's leaving unsubscribes it. Everyone is a room too, `*`, which no client can name: a
// broadcast takes the same path as a message.
//
// Members stand in an array, since a flush walks them all and an array is the cheapest to walk;
// each connection keeps its place in it, so that leaving is O(1): the last member takes the place
// of the one that goes.

import { RareLog } from '../observability/rare-log.js';
import { roomPrefix } from '../protocol/frame.js';
import { isPublication, KIND, kindOf } from '../protocol/publication.js';

/** The room of all connections. Not a name that isRoom() allows. */
export const EVERYONE = '*';

/** @typedef {import('./connection.js').Connection} Connection */

/**
 * What the hub needs of a broker.
 * @typedef
 *   {{subscribe(room: string): Promise<void>, unsubscribe(room: string): void, reportConnections(n: number): void}}
 *   Subscriptions
 */

/**
 * What the hub needs of recovery.
 * @typedef
 *   {{follow(room: Room, leave: (connection: Connection) => void): import('../recovery/room-sync.js').RoomSync|null, unfollow(sync: import('../recovery/room-sync.js').RoomSync): void}}
 *   Follows
 */

/**
 * A room's members on this worker and what waits for them. The outbox owns the fields from
 * `waiting` on.
 */
export class Room {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
    /** @type {Connection[]} */
    this.members = [];
    /** Pending while the broker has not confirmed the subscription. @type {Promise<void>|null} */
    this.confirming = null;
    this.prefix = roomPrefix(name);
    /** Who its members are, in a room with presence. @type {import('./room-users.js').Roll|null} */
    this.roll = null;
    /** Of a room with history. @type {import('../recovery/room-sync.js').RoomSync|null} */
    this.sync = null;
    /** @type {Buffer[]} */
    this.waiting = [];
    this.waitingBytes = 0;
    this.isQueued = false;
    /** @type {import('./outbox.js').Flight|null} */
    this.flight = null;
  }

  /** @param {Connection} connection */
  has(connection) {
    return connection.rooms?.has(this) ?? false;
  }

  /** @param {Connection} connection one that is not in it, or only expected */
  add(connection) {
    connection.rooms ??= new Map();
    connection.rooms.set(this, this.members.length);
    this.members.push(connection);
  }

  /**
   * It is joining: the room counts for it, and nothing is sent to it yet.
   * @param {Connection} connection
   */
  expect(connection) {
    connection.rooms ??= new Map();
    connection.rooms.set(this, NO_MEMBER);
  }

  /** @param {Connection} connection one that is in it */
  delete(connection) {
    const rooms = /** @type {Map<Room, number>} */ (connection.rooms);
    const index = /** @type {number} */ (rooms.get(this));
    rooms.delete(this);
    if (index === NO_MEMBER) return this.sync?.forget(connection);
    if (this.flight !== null) (this.flight.gone ??= new Set()).add(connection);
    const last = /** @type {Connection} */ (this.members.pop());
    if (last === connection) return;
    this.members[index] = last;
    /** @type {Map<Room, number>} */ (last.rooms).set(this, index);
  }
}

/** In place of a place in `members`. */
const NO_MEMBER = -1;

/**
 * The room of all connections: the place is a field of the connection, since every one is in it.
 */
class Everyone extends Room {
  /** @override @param {Connection} connection */
  has(connection) {
    return connection.isOpen;
  }

  /** @override @param {Connection} connection */
  add(connection) {
    connection.index = this.members.length;
    this.members.push(connection);
  }

  /** @override @param {Connection} connection */
  delete(connection) {
    const last = /** @type {Connection} */ (this.members.pop());
    if (last !== connection) {
      this.members[connection.index] = last;
      last.index = connection.index;
    }
    connection.index = -1;
  }
}

export class Hub {
  /**
   * @param {object} parts
   * @param {Subscriptions} parts.broker
   * @param {import('./outbox.js').Outbox} parts.outbox
   * @param {import('./slow-consumers.js').SlowConsumers} parts.slowConsumers
   * @param {Follows} parts.recovery
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {import('../observability/rare-log.js').Log} parts.log
   */
  constructor({ broker, outbox, slowConsumers, recovery, counters, log }) {
    this.broker = broker;
    this.outbox = outbox;
    this.slowConsumers = slowConsumers;
    this.recovery = recovery;
    this.counters = counters;
    this.rareLog = new RareLog(log);
    this.everyone = new Everyone(EVERYONE);
    /** @type {Map<string, Room>} */
    this.rooms = new Map([[EVERYONE, this.everyone]]);
  }

  /** Connections of this worker, to be read only. */
  get connections() {
    return this.everyone.members;
  }

  /** Subscribes what every connection gets. Rejects where the broker is away. */
  start() {
    return this.broker.subscribe(EVERYONE);
  }

  /** @param {Connection} connection */
  add(connection) {
    this.everyone.add(connection);
    this.counters.accepted++;
    this.#count();
  }

  /** Takes a connection out of everything. May be called twice. @param {Connection} connection */
  remove(connection) {
    if (connection.index < 0) return;
    connection.isOpen = false;
    this.everyone.delete(connection);
    if (connection.rooms !== null) {
      for (const room of connection.rooms.keys()) this.leave(connection, room);
    }
    if (connection.lag !== null) this.slowConsumers.forget(connection);
    this.counters.closed++;
    this.#count();
  }

  /**
   * A room that somebody is about to join.
   * @param {string} name
   * @returns {Room}
   */
  room(name) {
    return this.rooms.get(name) ?? this.#open(name);
  }

  /**
   * Makes a connection a member of a room without history; one with history decides by itself
   * (`room.follower.join`).
   * @param {Connection} connection not in that room yet
   * @param {string} name
   * @returns {Promise<void>|null} null where the room is live already; else it settles with the
   *   broker's confirmation, and the connection is out again where that failed
   */
  join(connection, name) {
    const room = this.room(name);
    room.add(connection);
    return room.confirming;
  }

  /**
   * @param {Connection} connection
   * @param {Room} room one it is in
   */
  leave(connection, room) {
    room.delete(connection);
    if (room.roll !== null) room.roll.leave(connection);
    if (room.members.length === 0 && (room.sync === null || room.sync.joins.size === 0))
      this.#close(room);
  }

  /**
   * A publication arrived.
   * @param {string} name
   * @param {Buffer} publication
   * @param {number} [offset] 0 where the room has no history
   * @param {string} [epoch]
   */
  broadcast(name, publication, offset = 0, epoch = '') {
    const room = this.rooms.get(name);
    if (room === undefined) return;
    if (room.sync !== null && offset > 0) return room.sync.arrive(publication, offset, epoch);
    if (room.members.length === 0) return;
    if (!isPublication(publication)) return this.#malformed(name);
    this.outbox.push(room, publication);
    if (room.sync !== null && kindOf(publication) === KIND.MESSAGE)
      this.#unnumbered(room, room.sync);
  }

  /**
   * @param {Room} room
   * @param {import('../recovery/room-sync.js').RoomSync} sync
   */
  #unnumbered({ name }, sync) {
    this.counters.unnumbered++;
    this.rareLog.warn(
      { room: name },
      'message without an offset in a room with history: another server lacks this FANFARE_HISTORY rule',
    );
    sync.unnumbered();
  }

  /**
   * Another program's message, or that of another version. It is dropped and must never harm this
   * worker.
   * @param {string} room
   */
  #malformed(room) {
    this.counters.malformed++;
    this.rareLog.warn({ room }, 'malformed publication on a room channel: dropped');
  }

  /** @param {string} name */
  #open(name) {
    const room = new Room(name);
    this.rooms.set(name, room);
    this.counters.rooms++;
    const sync = this.recovery.follow(room, (connection) => this.leave(connection, room));
    if (sync !== null) {
      room.sync = sync;
      this.broker.subscribe(name).then(
        () => sync.open(),
        (error) => sync.refuse(error),
      );
      return room;
    }
    room.confirming = this.broker.subscribe(name).then(
      () => {
        room.confirming = null;
      },
      (error) => {
        // Nobody is in a room that was never subscribed. Each join is told so by its own rejection.
        room.confirming = null;
        while (room.members.length > 0) this.leave(room.members[room.members.length - 1], room);
        throw error;
      },
    );
    // The joins that wait handle it; where they have all gone, nobody is left to tell.
    room.confirming.catch(() => {});
    return room;
  }

  /** @param {Room} room one without members */
  #close(room) {
    if (this.rooms.get(room.name) !== room) return;
    this.rooms.delete(room.name);
    this.counters.rooms--;
    if (room.sync !== null) this.recovery.unfollow(room.sync);
    this.broker.unsubscribe(room.name);
  }

  #count() {
    this.counters.connections = this.everyone.members.length;
    this.broker.reportConnections(this.counters.connections);
  }
}
