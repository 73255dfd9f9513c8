// hub.js: a worker's rooms and connections.
//
// The worker subscribes to a room when its first connection joins, answers the join when the broker
// has confirmed, and unsubscribes when the last one leaves. All connections together are the room
// `*`, so a broadcast takes the same path as a message.

import { RareLog } from '../observability/rare-log.js';
import { NO_BUCKET } from '../protocol/claim.js';
import { isClaim, isPublication, isTransient, KIND, kindOf } from '../protocol/publication.js';
import { Everyone, HubRoom } from './room.js';
import { RoomDelivery } from './room-delivery.js';
import { NO_PRESENCE } from './room-users.js';
import { UserLists } from './user-lists.js';

/** The room of all connections. Clients cannot use names that begin with a star. */
export const EVERYONE = '*';
const STAR = 0x2a;
/** Rooms count their publications in windows of this length. */
export const WINDOW_MS = 10_000;

/** Publications for workers, not for members. @type {ReadonlySet<number>} */
const NOTICES = new Set([KIND.REVOCATION, KIND.SURVEY, KIND.ANSWER]);

/** @import { Broker } from '../backend/broker.js' */
/** @import { JoinRequest, Joined } from '../recovery/room-joins.js' */
/** @import { Connection } from './connection.js' */

/** Returns false if it is malformed. @typedef {(publication: Buffer) => boolean} NoticeListener */
/** @typedef {Pick<Broker, 'subscribe'|'unsubscribe'|'reportConnections'>} Subscriptions */

/**
 * Learns how many clients rooms have here, for webhooks.
 * @typedef {object} Occupancy
 * @property {(room: string, connections: number) => void} count may repeat a number
 */

/**
 * A request to join a room, with or without history.
 * @typedef {object} RoomRequest
 * @property {JoinRequest['since']} since the last publication the client has; null: not given
 * @property {number} [last] how many of the latest publications to send, unless those after `since`
 *   can be sent
 * @property {number} [lastFromMs] as in JoinRequest
 * @property {boolean} [hasOwn] as in JoinRequest
 * @property {number} [oldestMs] as in JoinRequest
 * @property {(joined: Joined|null) => void} onJoined the connection is a member now: write the
 *   reply. Null: the room has no history. Not called if the connection has left meanwhile.
 * @property {(error: Error) => void} onRefused the connection is not in the room; a BrokerError
 */

export class Hub {
  /**
   * @param {object} parts
   * @param {Subscriptions} parts.broker @param {import('./outbox.js').Outbox} parts.outbox
   * @param {import('./slow-consumers.js').SlowConsumers} parts.slowConsumers
   * @param {import('../recovery/scheduler.js').SyncScheduler} parts.scheduler
   * @param {import('./room-users.js').Tracker} [parts.tracker]
   * @param {import('../protocol/claim.js').References} [parts.references]
   * @param {Occupancy|null} [parts.reporter] null: no webhook needs it
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {import('../observability/rare-log.js').Log} parts.log
   */
  constructor({
    broker,
    outbox,
    slowConsumers,
    scheduler,
    tracker = NO_PRESENCE,
    references = NO_BUCKET,
    reporter = null,
    counters,
    log,
  }) {
    this.broker = broker;
    this.outbox = outbox;
    outbox.expelBy((room, member) => {
      this.leave(member, room);
      member.forgetFreeRead(room.name); // it has to read again
      member.transport.door.expelled(member, room.name, 'resync');
    });
    this.slowConsumers = slowConsumers;
    this.scheduler = scheduler;
    this.tracker = tracker;
    this.references = references;
    this.reporter = reporter;
    this.counters = counters;
    this.rareLog = new RareLog(log);
    /** The listener of each kind. @type {Map<number, NoticeListener>} */
    this.listeners = new Map();
    this.everyone = new Everyone(EVERYONE);
    /** @type {Map<string, HubRoom>} */
    this.rooms = new Map([[EVERYONE, this.everyone]]);
    /** The current window, in which rooms count their publications. */
    this.window = 0;
  }

  /** Call it about once a second. @param {number} nowMs of a clock that never goes back */
  sweep(nowMs) {
    this.window = Math.floor(nowMs / WINDOW_MS);
  }

  /** @param {number} kind REVOCATION, SURVEY or ANSWER @param {NoticeListener} onNotice */
  listenForNotices(kind, onNotice) {
    this.listeners.set(kind, onNotice);
  }

  /** All connections of this worker. Only the hub changes the list. */
  get connections() {
    return this.everyone.members;
  }

  /** Subscribes to the broadcasts. Rejects if the broker is unavailable. */
  start() {
    return this.broker.subscribe(EVERYONE);
  }

  /** @param {Connection} connection */
  addConnection(connection) {
    this.everyone.add(connection);
    this.counters.accepted++;
    this.#countRooms();
  }

  /** Removes a connection from all rooms. May be called twice. @param {Connection} connection */
  removeConnection(connection) {
    if (connection.index < 0) return;
    connection.markClosed();
    this.everyone.delete(connection);
    for (const { name } of connection.listRooms())
      this.leave(connection, /** @type {HubRoom} */ (this.rooms.get(name)));
    this.slowConsumers.forget(connection);
    this.counters.closed++;
    this.#countRooms();
  }

  /**
   * Counts a connection as in a room while its door prepares what the client gets first. It gets no
   * publication until `join`. `leave` takes it out again.
   * @param {Connection} connection not in that room yet @param {string} name
   * @param {Promise<void>} answered resolves when its join is answered, or it has left
   */
  announce(connection, name, answered) {
    const room = this.openRoom(name);
    room.announce(connection, answered);
    this.reporter?.count(name, room.clientCount);
    return room;
  }

  /**
   * @param {Connection} connection not in that room yet, or announced @param {string} name
   * @param {RoomRequest} request answered at once, or when the broker has answered
   */
  join(connection, name, request) {
    const { since, last = 0, lastFromMs = 0, hasOwn = false, oldestMs = 0 } = request;
    const { onJoined, onRefused } = request;
    const room = this.openRoom(name);
    if (room.sync !== null) {
      room.expect(connection);
      this.reporter?.count(name, room.clientCount + 1); // first, because `addJoin` may answer at once
      room.sync.joins.addJoin(connection, {
        since,
        last,
        lastFromMs,
        hasOwn,
        oldestMs,
        onJoined,
        onRefused: (error) => {
          this.leave(connection, room);
          onRefused(error);
        },
      });
      return;
    }
    room.add(connection);
    this.reporter?.count(name, room.clientCount);
    if (room.confirming === null) return onJoined(null);
    const onConfirmed = () => {
      if (room.has(connection)) onJoined(null);
    };
    const onFailed = (/** @type {Error} */ error) => {
      if (room.has(connection)) this.leave(connection, room);
      onRefused(error);
    };
    room.confirming.then(onConfirmed, onFailed).catch((error) => connection.fail(error));
  }

  /**
   * Lets a member without a client watch a room. It never counts as a client.
   * @param {Connection} watcher @param {HubRoom} room
   * @param {Pick<RoomRequest, 'onJoined'|'onRefused'>} request
   */
  watch(watcher, room, request) {
    room.watchBy(watcher);
    this.join(watcher, room.name, { since: null, ...request });
  }

  /** @param {Connection} watcher of the room @param {HubRoom} room */
  unwatch(watcher, room) {
    watcher.markClosed();
    if (room.has(watcher)) this.leave(watcher, room);
    room.unwatchBy(watcher);
  }

  /**
   * Joins a room with history again, from a position: no presence event, and the room stays open.
   * @param {Connection} connection @param {HubRoom} room @param {RoomRequest} request
   */
  rejoin(connection, room, request) {
    room.delete(connection);
    this.join(connection, room.name, request);
  }

  /** @param {Connection} connection @param {HubRoom} room one it is in */
  leave(connection, room) {
    room.delete(connection);
    connection.withdrawAudiences(room.name);
    room.users?.leave(connection);
    this.reporter?.count(room.name, room.clientCount);
    if (room.isEmpty) this.#closeRoom(room);
  }

  /** Called by Connection.fail. @param {Connection} connection @param {unknown} error */
  onFailed({ id }, error) {
    this.counters.connectionFailures++;
    this.rareLog.warn({ err: error, connection: id }, 'a connection failed: it is closed');
  }

  /**
   * @param {string} name @param {Buffer} publication
   * @param {number} [offset] 0: the room has no history @param {string} [epoch]
   */
  broadcast(name, publication, offset = 0, epoch = '') {
    const room = this.rooms.get(name);
    if (room === undefined) {
      if (name.charCodeAt(0) === STAR) this.#notify(name, publication);
      return;
    }
    // Nobody is a member before the broker confirms the room, because no join is answered. Messages
    // may come earlier: the broker may still hold a subscription whose confirmation was late.
    if (room.confirming !== null) return;
    room.hear(this.window);
    if (room.sync !== null && offset > 0) return room.sync.arrive(publication, offset, epoch);
    if (room.members.length === 0 || !isPublication(publication))
      return this.#unsent(room, publication);
    if (room.users !== null && kindOf(publication) === KIND.PRESENCE)
      publication = room.users.arrive(publication, this.outbox.isFull(room));
    if (room.isState && kindOf(publication) === KIND.MESSAGE) return this.#malformed(name);
    this.outbox.pushPublication(
      room,
      isClaim(publication) ? this.references.resolve(publication) : publication,
    );
    if (room.sync !== null && kindOf(publication) === KIND.MESSAGE && !isTransient(publication))
      this.#unnumbered(name, room.sync);
  }

  /** @param {string} room @param {import('../recovery/room-sync.js').RoomSync} sync */
  #unnumbered(room, sync) {
    this.counters.unnumbered++;
    this.rareLog.warn(
      { room },
      'message without an offset in a room with history: another server lacks this FANFARE_HISTORY rule',
    );
    sync.unnumbered();
  }

  /** @param {HubRoom} room @param {Buffer} publication not for its members */
  #unsent({ name, members }, publication) {
    if (name === EVERYONE && NOTICES.has(kindOf(publication))) this.#notify(name, publication);
    else if (members.length > 0) this.#malformed(name);
  }

  /** @param {string} room @param {Buffer} publication for this worker */
  #notify(room, publication) {
    const onNotice = this.listeners.get(kindOf(publication));
    if (onNotice !== undefined && !onNotice(publication)) this.#malformed(room);
  }

  /** Another program or version has published it. @param {string} room */
  #malformed(room) {
    this.counters.malformed++;
    this.rareLog.warn({ room }, 'malformed publication on a room channel: dropped');
  }

  /**
   * Reads the users of a room for the answer to a client, which may hear the room's events.
   * @param {string} name of a room with presence @returns {Promise<import('./user-lists.js').UserList>}
   */
  listUsers(name) {
    const users = this.rooms.get(name)?.users;
    return users ? users.readList() : new UserLists(() => this.tracker.read(name)).read();
  }

  /** Subscribes to a room unless it is open. The caller adds a connection. @param {string} name */
  openRoom(name) {
    const open = this.rooms.get(name);
    if (open !== undefined) return open;
    const room = new HubRoom(name, this.tracker.usersOf(name));
    this.rooms.set(name, room);
    this.counters.rooms++;
    if (this.scheduler.hasHistory(name)) {
      const { outbox, references, counters } = this;
      const delivery = new RoomDelivery({ room, outbox, references, counters });
      const sync = this.scheduler.follow(name, room.prefix, delivery);
      room.follow(sync);
      this.broker.subscribe(name).then(
        () => sync.open(),
        (error) => sync.joins.refuseAll(error),
      );
    } else room.confirmBy(this.broker.subscribe(name));
    return room;
  }

  /** @param {HubRoom} room one without members */
  #closeRoom(room) {
    if (this.rooms.get(room.name) !== room) return;
    this.rooms.delete(room.name);
    this.counters.rooms--;
    if (room.sync !== null) this.scheduler.unfollow(room.sync);
    this.broker.unsubscribe(room.name);
  }

  #countRooms() {
    this.counters.connections = this.everyone.members.length;
    this.broker.reportConnections(this.counters.connections);
  }
}
