// room.js: a room's members on this worker, and the publications waiting for them. A flush walks an
// array fastest. Each member knows its position: if it leaves, the last takes its place in O(1).

import { roomPrefix } from '../protocol/frame.js';
import { hasKey, KIND, keyTextOf, kindOf } from '../protocol/publication.js';
import { publicationFlight, resyncFlight } from './flight.js';

/** @import { RoomSync } from '../recovery/room-sync.js' */
/** @import { Connection } from './connection.js' */
/** @import { Flight } from './flight.js' */
/** @import { RoomUsers } from './room-users.js' */

/** Stands for a position in `members`: the connection is joining, not yet a member. */
const JOINING = -1;

export class HubRoom {
  /** @param {string} name @param {RoomUsers|null} [users] null: the room has no presence */
  constructor(name, users = null) {
    this.name = name;
    this.users = users;
    /** @type {Connection[]} */
    this.members = [];
    /**
     * Those without a client: an operator watches the room, or a door its presence. They may be
     * joining, or refused.
     * @type {Set<Connection>|null}
     */
    this.watchers = null;
    /**
     * Connections that will join soon (Hub.announce), with the answers to their joins.
     * @type {Map<Connection, Promise<void>>|null}
     */
    this.announced = null;
    /** The broker's answer, or its refusal; null: the room is subscribed. @type {Promise<void>|null} */
    this.confirming = null;
    this.prefix = roomPrefix(name);
    /** Null: the room has neither history nor state. @type {RoomSync|null} */
    this.sync = null;
    /** Publications for the next flush. @type {Buffer[]} */
    this.waiting = [];
    this.waitingBytes = 0;
    /** The bytes that the last conflation left, in a room with state. */
    this.distinctBytes = 0;
    /** Resync marks among `waiting`. */
    this.resyncsWaiting = 0;
    /** Has the room state? Then a flush has only the newest message of each key. */
    this.isState = false;
    /** Minimum time between flushes; 0: none. */
    this.everyMs = 0;
    /** If `everyMs` is set: when the next flush may begin, on the turn's clock. */
    this.dueMs = 0;
    /** The flush under way. @type {Flight|null} */
    this.flight = null;
    /** When the rest after the last flush ends, on the turn's clock. */
    this.restsUntilMs = 0;
    /** The window of the last publication, then the publications in it and in the one before. */
    this.window = 0;
    this.heard = 0;
    this.heardBefore = 0;
  }

  /** Counts a publication. @param {number} window the current one */
  hear(window) {
    if (this.window !== window) {
      this.heardBefore = this.window === window - 1 ? this.heard : 0;
      this.heard = 0;
      this.window = window;
    }
    this.heard++;
  }

  /** @param {number} window the current one @returns {number} publications in the one before */
  heardIn(window) {
    if (this.window === window) return this.heardBefore;
    return this.window === window - 1 ? this.heard : 0;
  }

  /** Members that are clients. */
  get connectionCount() {
    return this.members.length - this.#countWatchers(isMember);
  }

  /** Clients in the room, or joining it. */
  get clientCount() {
    return this.members.length + this.joiningCount - this.#countWatchers(isInRoom);
  }

  /** Connections in the room that are not members yet. */
  get joiningCount() {
    return (this.sync?.joins.size ?? 0) + (this.announced?.size ?? 0);
  }

  /** Counts a connection as one without a client, from now on. @param {Connection} watcher */
  watchBy(watcher) {
    this.watchers ??= new Set();
    this.watchers.add(watcher);
  }

  /** @param {Connection} watcher */
  unwatchBy(watcher) {
    this.watchers?.delete(watcher);
  }

  /** @param {(watcher: Connection, room: HubRoom) => boolean} isCounted */
  #countWatchers(isCounted) {
    let count = 0;
    for (const watcher of this.watchers ?? NOBODY) if (isCounted(watcher, this)) count++;
    return count;
  }

  /** Has the outbox something to write for this room? */
  get isQueued() {
    return this.flight !== null || this.waiting.length > 0;
  }

  get isEmpty() {
    return this.members.length === 0 && this.joiningCount === 0;
  }

  /** @param {RoomSync} sync of a room with history */
  follow(sync) {
    this.sync = sync;
    this.isState = sync.isState;
    this.everyMs = sync.everyMs;
  }

  /**
   * Joins wait for the same promise, and directly after this: nothing runs in between that finds
   * the room confirmed and a join unanswered. A room that is refused is never confirmed: it closes
   * when the last of its joins has been refused.
   * @param {Promise<void>} subscribed
   */
  confirmBy(subscribed) {
    this.confirming = subscribed;
    const onConfirmed = () => {
      this.confirming = null;
    };
    subscribed.then(onConfirmed, () => {});
  }

  /** @param {Connection} connection */
  has(connection) {
    return connection.isIn(this);
  }

  /** @param {Connection} connection not in the room, or joining */
  add(connection) {
    this.announced?.delete(connection);
    connection.setPosition(this, this.members.length);
    this.members.push(connection);
  }

  /** Counts the connection as in the room, without publications yet. @param {Connection} connection */
  expect(connection) {
    this.announced?.delete(connection);
    connection.setPosition(this, JOINING);
  }

  /**
   * The connection will join later.
   * @param {Connection} connection not in the room @param {Promise<void>} answered
   */
  announce(connection, answered) {
    this.expect(connection);
    this.announced ??= new Map();
    this.announced.set(connection, answered);
  }

  /** @param {Connection} connection in the room */
  delete(connection) {
    const position = connection.positionIn(this);
    connection.removeRoom(this);
    if (position === JOINING) {
      if (this.announced?.delete(connection) !== true) this.sync?.joins.forget(connection);
      return;
    }
    if (connection.lags > 0) this.sync?.lagging?.forget(connection);
    this.flight?.exclude(connection);
    const last = /** @type {Connection} */ (this.members.pop());
    if (last === connection) return;
    this.members[position] = last;
    last.setPosition(this, position);
  }

  /**
   * Replaces a stand-in, which a door joins until it has answered its client. Nothing is missed or
   * repeated, even in the middle of a flush.
   * @param {Connection} standIn a member with the connection's number, and no unsent bytes
   * @param {Connection} connection open, and not in the room
   */
  replace(standIn, connection) {
    const position = standIn.positionIn(this);
    standIn.removeRoom(this);
    this.members[position] = connection;
    connection.setPosition(this, position);
    this.flight?.replace(standIn, connection, position);
    this.users?.replace(standIn, connection);
  }

  /** Does it read too slowly, and get messages from recovery? @param {Connection} connection */
  isLagging(connection) {
    return connection.lags > 0 && (this.sync?.lagging?.has(connection) ?? false);
  }

  /** A member holds other audiences now. @param {Connection} connection in the room, or joining */
  review(connection) {
    if (connection.positionIn(this) !== JOINING) this.sync?.review(connection);
  }

  /** @param {Connection} connection @returns {Promise<void>|null} null: it is not joining */
  joining(connection) {
    const announced = this.announced?.get(connection);
    if (announced !== undefined) return announced;
    if (this.sync !== null) return this.sync.joins.answerTo(connection);
    return this.has(connection) ? this.confirming : null;
  }

  /** @param {Buffer} publication */
  enqueue(publication) {
    this.waiting.push(publication);
    this.waitingBytes += publication.length;
  }

  /** @param {Buffer} mark */
  enqueueResync(mark) {
    this.resyncsWaiting++;
    this.enqueue(mark);
  }

  /** Removes waiting messages that newer ones supersede. Returns their number and bytes. */
  conflate() {
    const { waiting } = this;
    const kept = [];
    const seen = new Set();
    let bytes = 0;
    for (let i = waiting.length - 1; i >= 0; i--) {
      const publication = waiting[i];
      if (hasKey(publication)) {
        const key = keyTextOf(publication);
        if (seen.has(key)) {
          bytes += publication.length;
          continue;
        }
        seen.add(key);
      }
      kept.push(publication);
    }
    return this.#keepNewest(kept.reverse(), bytes);
  }

  /** Removes waiting messages with a position. Returns their number and bytes. */
  dropWaiting() {
    let bytes = 0;
    const kept = this.waiting.filter((publication) => {
      const isKept = kindOf(publication) !== KIND.POSITIONED;
      if (!isKept) bytes += publication.length;
      return isKept;
    });
    return this.#keepNewest(kept, bytes);
  }

  /** @param {Buffer[]} kept @param {number} bytes of the others */
  #keepNewest(kept, bytes) {
    const count = this.waiting.length - kept.length;
    this.waiting = kept;
    this.waitingBytes -= bytes;
    this.distinctBytes = this.waitingBytes;
    return { count, bytes };
  }

  /** A flush has begun. If any publication is left, the next is due now. @param {number} now */
  delay(now) {
    this.distinctBytes = this.waitingBytes;
    this.dueMs = this.waiting.length > 0 ? 0 : now + this.everyMs;
  }

  /**
   * Takes the waiting publications, up to `maxFlightBytes`. A resync mark is a flush of its own.
   * @param {{maxFlightBytes: number, reloadWindowMs: number}} limits @returns {Flight}
   */
  depart({ maxFlightBytes, reloadWindowMs }) {
    const mayHaveMark = this.resyncsWaiting > 0;
    if (mayHaveMark && isMark(this.waiting[0])) {
      const mark = /** @type {Buffer} */ (this.waiting.shift());
      this.waitingBytes -= mark.length;
      this.resyncsWaiting--;
      this.flight = resyncFlight(this, mark, this.members, reloadWindowMs);
      return this.flight;
    }
    let publications = this.waiting;
    let bytes = this.waitingBytes;
    if ((bytes > maxFlightBytes || mayHaveMark) && publications.length > 1) {
      bytes = publications[0].length;
      let n = 1;
      while (n < publications.length && bytes + publications[n].length <= maxFlightBytes) {
        if (mayHaveMark && isMark(publications[n])) break;
        bytes += publications[n++].length;
      }
      this.waiting = publications.slice(n);
      this.waitingBytes -= bytes;
      publications = publications.slice(0, n);
    } else {
      this.waiting = [];
      this.waitingBytes = 0;
    }
    this.flight = publicationFlight(this, publications, bytes, this.members);
    return this.flight;
  }

  /** Ends the flush. @param {number} restsUntilMs on the turn's clock */
  arrive(restsUntilMs) {
    this.flight = null;
    this.restsUntilMs = restsUntilMs;
  }
}

/** @type {ReadonlySet<Connection>} */
const NOBODY = new Set();

/** @param {Connection} connection @param {HubRoom} room */
function isInRoom(connection, room) {
  return room.has(connection);
}

/** @param {Connection} connection @param {HubRoom} room */
function isMember(connection, room) {
  return room.has(connection) && connection.positionIn(room) !== JOINING;
}

/** @param {Buffer} publication */
function isMark(publication) {
  return kindOf(publication) === KIND.RESYNC;
}

/** All connections are in this room, so each has a field for its position here. */
export class Everyone extends HubRoom {
  /** @override @param {Connection} connection */
  has(connection) {
    return connection.isOpen;
  }

  /** @override @param {Connection} connection */
  add(connection) {
    connection.setIndex(this.members.length);
    this.members.push(connection);
  }

  /** @override @param {Connection} connection */
  delete(connection) {
    const last = /** @type {Connection} */ (this.members.pop());
    if (last !== connection) {
      this.members[connection.index] = last;
      last.setIndex(connection.index);
    }
    connection.setIndex(-1);
  }
}
