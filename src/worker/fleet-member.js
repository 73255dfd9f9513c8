// fleet-member.js: carries out the surveys of the fleet on this worker's connections and rooms.
//
// A user is the `sub` of a token. If no tokens are configured, a user is a name in rooms with
// presence. A walk over all rooms takes slices of a turn, and walks follow each other, so that a
// worker with 100,000 rooms stays responsive. Walks that wait are bounded.

import { setImmediate } from 'node:timers/promises';

import { closeAll } from '../auth/sessions.js';
import { numberOf } from '../hub/connection.js';
import { EVERYONE } from '../hub/hub.js';
import { CLOSES } from '../protocol/codes.js';
import { FORMAT } from '../protocol/format.js';
import { MAX_CONNECTIONS, MAX_NAMED_ROOMS } from './fleet-wire.js';

/** Rooms and users looked at in one turn of the event loop: about a millisecond. */
const SLICE = 5000;
/** The most walks that wait for their turn. */
const MAX_WALKS = 1000;

/** @typedef {import('../hub/connection.js').Connection} Connection */
/** @typedef {import('../hub/room.js').Room} Room */
/** @typedef {import('./fleet-wire.js').Verbs} Verbs */
/** @typedef {import('./fleet-wire.js').Request} Request */

export class FleetMember {
  /** The end of the last walk. @type {Promise<unknown>} */
  #lastWalk = Promise.resolve();
  #walks = 0;

  /**
   * @param {object} parts
   * @param {import('../hub/hub.js').Hub} parts.hub
   * @param {Pick<import('../commands/join.js').JoinCommands, 'joinAs'|'remove'>} parts.joins
   * @param {Pick<import('../auth/sessions.js').Sessions, 'connectionsOf'>|null} parts.sessions null
   *   if no tokens are configured
   * @param {Pick<import('../recovery/scheduler.js').SyncScheduler, 'onDeleted'>} parts.scheduler
   * @param {Pick<import('../admission/refused.js').Refused, 'list'|'forgotten'>} parts.refused
   * @param {() => import('./fleet-wire.js').WorkerInfo} parts.describe
   */
  constructor({ hub, joins, sessions, scheduler, refused, describe }) {
    this.hub = hub;
    this.joins = joins;
    this.sessions = sessions;
    this.scheduler = scheduler;
    this.refused = refused;
    this.describe = describe;
  }

  /**
   * @param {Request} request
   * @returns {Promise<Verbs[Request['verb']]['result']|null>} null: too many walks wait
   */
  async carryOut({ verb, args }) {
    switch (verb) {
      case 'rooms':
        return this.#rooms(args);
      case 'room':
        return this.hub.rooms.get(args.room)?.connectionCount ?? 0;
      case 'forget':
        this.scheduler.onDeleted(args.room, args.epoch);
        return 0;
      case 'online':
        return this.#online(args.users);
      case 'disconnect':
        return this.#disconnect(args);
      case 'join':
        return this.#join(args.user, args.rooms);
      case 'leave':
        return this.#leave(args.user, args.rooms);
      case 'connections':
        return this.#list(args.user);
      case 'find':
        return this.#listOf(
          args.address === null
            ? this.#connectionOf(args.connectionId ?? '')
            : await this.#connectionsFrom(args.address),
        );
      case 'top':
        return this.#top(args);
      case 'refused':
        return { ...this.refused.list(), forgotten: this.refused.forgotten };
      case 'describe':
        return this.describe();
    }
  }

  /** @param {Verbs['rooms']['args']} args @returns {Promise<Verbs['rooms']['result']|null>} */
  async #rooms({ prefix, after, limit }) {
    const first = new FirstRooms(limit);
    const isWhole = await this.#walk(({ name, connectionCount }) => {
      if (name > after && connectionCount > 0 && name.startsWith(prefix))
        first.add(name, connectionCount);
      return 1;
    });
    return isWhole ? first.list() : null;
  }

  /**
   * @param {readonly string[]} users
   * @returns {Promise<number[]|null>} positions of those that are online
   */
  async #online(users) {
    const { sessions } = this;
    if (sessions !== null)
      return positionsOf(users, (user) =>
        [...sessions.connectionsOf(user)].some(({ isOpen }) => isOpen),
      );
    const wanted = new Set(users.map((user) => JSON.stringify(user)));
    /** @type {Set<string>} */
    const found = new Set();
    const isWhole = await this.#walk((room) => {
      if (room.users === null) return 1;
      room.users.find(wanted, found);
      return 1 + Math.min(wanted.size, room.users.connections.size);
    });
    return isWhole ? positionsOf(users, (user) => found.has(JSON.stringify(user))) : null;
  }

  /** @param {Verbs['disconnect']['args']} args @returns {Promise<number|null>} */
  async #disconnect({ user, connectionId, code }) {
    const found =
      user === null ? this.#connectionOf(connectionId) : await this.#connectionsOf(user);
    if (found === null) return null;
    const open = found.filter(({ isOpen }) => isOpen);
    closeAll(open, { code, reason: reasonOf(code) });
    return open.length;
  }

  /**
   * @param {string} user
   * @param {readonly string[]} rooms
   * @returns {Promise<number|null>} connections that are in all of the rooms, or about to be
   */
  async #join(user, rooms) {
    const found = await this.#connectionsOf(user);
    if (found === null) return null;
    return found.filter(
      (connection) =>
        rooms.filter((room) => this.joins.joinAs(connection, room, user)).length === rooms.length,
    ).length;
  }

  /**
   * @param {string} user
   * @param {readonly string[]} rooms
   * @returns {Promise<number|null>} connections that have left at least one of the rooms
   */
  async #leave(user, rooms) {
    const found = await this.#connectionsOf(user);
    if (found === null) return null;
    return found.filter(
      (connection) => rooms.filter((room) => this.joins.remove(connection, room)).length > 0,
    ).length;
  }

  /** @param {string} user @returns {Promise<Verbs['connections']['result']|null>} */
  async #list(user) {
    const found = await this.#connectionsOf(user);
    return found === null ? null : this.#listOf(found);
  }

  /** @param {readonly Connection[]} found @returns {Verbs['connections']['result']} */
  #listOf(found) {
    const { server } = this.describe();
    const open = found.filter(({ isOpen }) => isOpen);
    const listed = open.slice(0, MAX_CONNECTIONS).map((connection) => {
      const { id, address, transport, roomCount, session } = connection;
      const rooms = connection.listRooms().slice(0, MAX_NAMED_ROOMS);
      const names = rooms.map(({ name }) => name);
      return {
        id,
        address,
        transport: /** @type {'websocket'|'sse'} */ (
          transport.format < FORMAT.EVENTS ? 'websocket' : 'sse'
        ),
        roomCount,
        rooms: names,
        server,
        user: session.user,
        unsentBytes: transport.pendingBytes,
      };
    });
    return { count: open.length, listed };
  }

  /**
   * @param {string} id
   * @returns {Connection[]} one or none
   */
  #connectionOf(id) {
    const number = numberOf(id);
    const found =
      number === 0 ? undefined : this.hub.connections.find((one) => one.number === number);
    return found === undefined || found.id !== id ? [] : [found];
  }

  /**
   * Looks at all connections, in slices. One that opens or closes meanwhile may be missing.
   * @param {string} address as limits count it
   * @returns {Promise<Connection[]>}
   */
  async #connectionsFrom(address) {
    const all = [...this.hub.connections];
    /** @type {Connection[]} */
    const found = [];
    for (let i = 0; i < all.length; i += SLICE) {
      if (i > 0) await setImmediate();
      for (const connection of all.slice(i, i + SLICE))
        if (connection.address === address) found.push(connection);
    }
    return found;
  }

  /** @param {Verbs['top']['args']} args @returns {Promise<Verbs['top']['result']|null>} */
  async #top({ by, limit }) {
    const { window } = this.hub;
    const top = new TopRooms(by, limit);
    const isWhole = await this.#walk((room) => {
      if (room.connectionCount > 0) top.add(room.name, room.connectionCount, room.heardIn(window));
      return 1;
    });
    return isWhole ? top.list() : null;
  }

  /**
   * @param {string} user
   * @returns {Promise<Connection[]|null>} null: too many walks wait
   */
  async #connectionsOf(user) {
    if (this.sessions !== null) return [...this.sessions.connectionsOf(user)];
    /** @type {Set<Connection>} */
    const found = new Set();
    const isWhole = await this.#walk(({ users }) => {
      const connections = users?.connectionsOf(user) ?? [];
      for (const connection of connections) found.add(connection);
      return 1 + connections.length;
    });
    return isWhole ? [...found] : null;
  }

  /**
   * Visits all rooms, in slices, when the walks before have ended.
   * @param {(room: Room) => number} visit returns the cost of the visit
   * @returns {Promise<boolean>} false: too many walks wait
   */
  async #walk(visit) {
    if (this.#walks >= MAX_WALKS) return false;
    this.#walks++;
    const walk = this.#lastWalk
      .then(() => this.#visitAll(visit))
      .finally(() => {
        this.#walks--;
      });
    // A walk that fails must not fail the walks behind it.
    this.#lastWalk = walk.catch(() => {});
    await walk;
    return true;
  }

  /** @param {(room: Room) => number} visit */
  async #visitAll(visit) {
    let cost = 0;
    for (const room of this.hub.rooms.values()) {
      if (room.name === EVERYONE) continue;
      cost += visit(room);
      if (cost < SLICE) continue;
      cost = 0;
      await setImmediate();
    }
  }
}

/** The first rooms by name, out of any number. */
export class FirstRooms {
  /** @param {number} limit above 0 */
  constructor(limit) {
    this.limit = limit;
    /** At most twice the limit. @type {Map<string, number>} */
    this.rooms = new Map();
    /** Rooms above this name are not among the first; empty if no room was dropped. */
    this.bound = '';
  }

  /** Adds connections to a room. @param {string} name @param {number} connections */
  add(name, connections) {
    if (this.bound !== '' && name > this.bound) return;
    this.rooms.set(name, (this.rooms.get(name) ?? 0) + connections);
    if (this.rooms.size >= 2 * this.limit) this.#cut();
  }

  /** @returns {[string, number][]} in the order of their names */
  list() {
    this.#cut();
    return [...this.rooms];
  }

  #cut() {
    const sorted = [...this.rooms].sort(([a], [b]) => (a < b ? -1 : 1));
    if (sorted.length > this.limit) this.bound = sorted[this.limit - 1][0];
    this.rooms = new Map(sorted.slice(0, this.limit));
  }
}

/** The rooms with the most connections, or the most messages, out of any number. */
export class TopRooms {
  /**
   * @param {'connections'|'messages'} by
   * @param {number} limit above 0
   */
  constructor(by, limit) {
    this.column = by === 'connections' ? 1 : 2;
    this.limit = limit;
    /** At most twice the limit. @type {Map<string, import('./fleet-wire.js').TopRoom>} */
    this.rooms = new Map();
    /** Rooms with less are not among the first; -1: no room was dropped. */
    this.bound = -1;
  }

  /**
   * @param {string} name
   * @param {number} connections adds up over the workers
   * @param {number} heard messages: each worker with a member of the room hears all of them
   */
  add(name, connections, heard) {
    const known = this.rooms.get(name);
    if (known !== undefined) {
      known[1] += connections;
      known[2] = Math.max(known[2], heard);
      return;
    }
    if ((this.column === 1 ? connections : heard) <= this.bound) return;
    this.rooms.set(name, [name, connections, heard]);
    if (this.rooms.size >= 2 * this.limit) this.#cut();
  }

  /** @returns {import('./fleet-wire.js').TopRoom[]} most first */
  list() {
    this.#cut();
    return [...this.rooms.values()];
  }

  #cut() {
    const { column, limit } = this;
    const sorted = [...this.rooms.values()].sort(
      (one, other) => Number(other[column]) - Number(one[column]) || (one[0] < other[0] ? -1 : 1),
    );
    if (sorted.length > limit) this.bound = Number(sorted[limit - 1][column]);
    this.rooms = new Map(sorted.slice(0, limit).map((room) => [room[0], room]));
  }
}

/** @param {readonly string[]} users @param {(user: string) => boolean} isOnline */
function positionsOf(users, isOnline) {
  return users.flatMap((user, position) => (isOnline(user) ? position : []));
}

/** @param {number} code */
function reasonOf(code) {
  const row = Object.values(CLOSES).find((close) => close.code === code);
  return row?.reason ?? CLOSES.KICKED.reason;
}
