// fleet-member.js: carries out the fleet's surveys on this worker's connections and rooms.
//
// A user is the `sub` of a token, or a name in rooms with presence if no tokens are configured.
// Walks over rooms or connections have a share of each turn, one after another, up to a bound.

import { numberOf } from '../hub/connection.js';
import { EVERYONE } from '../hub/hub.js';
import { Upstreams } from '../hub/upstreams.js';
import { CLOSES } from '../protocol/codes.js';
import { FORMAT } from '../protocol/format.js';
import { MAX_CONNECTIONS, MAX_NAMED_ROOMS } from './fleet-wire.js';

/** Rooms, users or connections for each look at the clock. */
const VISITS_PER_CLOCK = 500;
/** Walks that may wait for their turn. */
const MAX_WALKS = 1000;
/** When performance.now() was 0, in whole seconds, so that the age of a connection is stable. */
const STARTED_MS = 1000 * Math.floor(performance.timeOrigin / 1000);

/** @import { Connection } from '../hub/connection.js' */
/** @import { HubRoom } from '../hub/room.js' */
/** @import { Request, TopRoom, Verbs, WorkerInfo } from './fleet-wire.js' */

/** The number of connections, and the first MAX_CONNECTIONS. @typedef {{count: number, first: Connection[]}} Found */

export class FleetMember {
  /** The end of the last walk. @type {Promise<unknown>} */
  #lastWalk = Promise.resolve();
  #walks = 0;

  /**
   * @param {object} parts @param {import('../hub/hub.js').Hub} parts.hub
   * @param {Pick<import('../operations/joins.js').Joins, 'joinAs'|'remove'>} parts.joins
   * @param {Pick<import('../auth/sessions.js').Sessions, 'connectionsOf'|'extend'>|null}
   *   parts.sessions null: no tokens
   * @param {Pick<import('../auth/sessions.js').Sessions, 'connectionsOf'|'extend'>|null}
   *   [parts.signedIn] with connections that signed in through another door
   * @param {Pick<import('../recovery/scheduler.js').SyncScheduler, 'onDeleted'>} parts.scheduler
   * @param {Pick<import('../admission/refused.js').RefusedNames, 'mostRefused'|'forgotten'>} parts.refused
   * @param {Pick<import('../admission/rate-limit.js').RateLimiter, 'refusedOf'>} parts.limiter
   * @param {import('./turn.js').Line<() => void>} parts.surveys walks over rooms and connections
   * @param {import('./close-all.js').CloseAll} parts.closeAll
   * @param {import('../hub/upstreams.js').Upstreams} [parts.upstreams]
   * @param {() => WorkerInfo} parts.describe
   */
  constructor(parts) {
    const { hub, joins, sessions, signedIn = sessions, scheduler, refused, limiter } = parts;
    const { surveys, closeAll, upstreams = new Upstreams(), describe } = parts;
    this.hub = hub;
    this.joins = joins;
    this.sessions = sessions;
    this.signedIn = signedIn;
    this.scheduler = scheduler;
    this.refused = refused;
    this.limiter = limiter;
    this.surveys = surveys;
    this.closeAll = closeAll;
    this.upstreams = upstreams;
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
        return this.#join(args);
      case 'leave':
        return this.#leave(args);
      case 'renew':
        return this.#renew(args);
      case 'deliver':
        return this.deliver(args.session, Buffer.from(args.messages, 'base64')) ? 1 : 0;
      case 'connections':
        return this.#listOf(openOf(await this.#connectionsOf(args.user)));
      case 'find':
        return this.#listOf(await this.#find(args));
      case 'top':
        return this.#top(args);
      case 'refused':
        return { ...this.refused.mostRefused(), forgotten: this.refused.forgotten };
      case 'describe':
        return this.describe();
    }
  }

  /**
   * @param {string} session @param {Buffer} messages of its client
   * @returns {boolean} false: this worker has no such stream
   */
  deliver(session, messages) {
    return this.upstreams.deliver(session, messages);
  }

  /** @param {Verbs['rooms']['args']} args @returns {Promise<Verbs['rooms']['result']|null>} */
  async #rooms({ prefix, after, limit }) {
    const first = new FirstRooms(limit);
    const isWhole = await this.#walkRooms(({ name, connectionCount }) => {
      if (name > after && connectionCount > 0 && name.startsWith(prefix))
        first.addRoom(name, connectionCount);
      return 1;
    });
    return isWhole ? first.sorted() : null;
  }

  /** @param {readonly string[]} users @returns {Promise<number[]|null>} their positions */
  async #online(users) {
    const { sessions, signedIn } = this;
    const isSignedIn = (/** @type {string} */ user) =>
      [...(signedIn?.connectionsOf(user) ?? [])].some(({ isOpen }) => isOpen);
    if (sessions !== null) return positionsOf(users, isSignedIn);
    // A guest may choose its name in presence, but not to be a user of an app.
    const [ofDoors, others] = [users.filter(isOfDoor), users.filter((user) => !isOfDoor(user))];
    const wanted = new Set(others.map((user) => JSON.stringify(user)));
    const found = new Set(ofDoors.filter(isSignedIn).map((user) => JSON.stringify(user)));
    if (wanted.size === 0) return positionsOf(users, (user) => found.has(JSON.stringify(user)));
    const isWhole = await this.#walkRooms((room) => {
      if (room.users === null) return 1;
      room.users.findUsers(wanted, found);
      return 1 + Math.min(wanted.size, room.users.connections.size);
    });
    return isWhole ? positionsOf(users, (user) => found.has(JSON.stringify(user))) : null;
  }

  /** @param {Verbs['disconnect']['args']} args @returns {Promise<number|null>} */
  async #disconnect(args) {
    const { code, reason } = args;
    const close = reason === undefined ? closeOf(code) : { code, reason };
    const found =
      args.connectionId === null
        ? await this.#targeted(args)
        : this.#connectionOf(args.connectionId);
    if (found === null) return null;
    const open = found.filter(({ isOpen }) => isOpen);
    this.closeAll(open, close);
    return open.length;
  }

  /**
   * @param {Verbs['join']['args']} args
   * @returns {Promise<number|null>} connections that are in all of the rooms, or about to be
   */
  async #join(args) {
    const { rooms, audiences } = args;
    const user = 'of' in args ? args.of.user : args.user;
    const found = await this.#targeted(args);
    if (found === null) return null;
    return found.filter(
      (connection) =>
        rooms.filter((room) => this.joins.joinAs(connection, room, user, audiences)).length ===
        rooms.length,
    ).length;
  }

  /**
   * @param {Verbs['leave']['args']} args
   * @returns {Promise<number|null>} connections that have left at least one of the rooms
   */
  async #leave(args) {
    const { rooms } = args;
    const found = await this.#targeted(args);
    if (found === null) return null;
    return found.filter(
      (connection) => rooms.filter((room) => this.joins.remove(connection, room)).length > 0,
    ).length;
  }

  /** @param {Verbs['renew']['args']} args @returns {Promise<number|null>} */
  async #renew({ of, expiresAtMs }) {
    const found = await this.#targeted({ of });
    if (found === null) return null;
    const at = expiresAtMs === 0 ? Number.POSITIVE_INFINITY : expiresAtMs;
    return found.filter((connection) => {
      const { session, isOpen, transport } = connection;
      if (this.signedIn === null || !isOpen || session.isAnonymous) return false;
      this.signedIn.extend(connection, at);
      const text = transport.door.encodeRenewed?.(connection, at) ?? null;
      if (text !== null) connection.send(text);
      return true;
    }).length;
  }

  /**
   * @param {{user?: string|null, of?: import('./fleet-wire.js').Some}} target all connections of the
   *   user, or some
   * @returns {Promise<Connection[]|null>} null: too many walks wait
   */
  async #targeted({ user, of }) {
    if (of === undefined) return this.#connectionsOf(user ?? '');
    const { only, except } = of;
    if (only === null) {
      const found = await this.#connectionsOf(of.user);
      return found?.filter(({ id }) => !except.includes(id)) ?? null;
    }
    const [one] = this.#connectionOf(only);
    if (one === undefined) return [];
    if (one.session.user === of.user) return [one];
    const found = of.user === '' ? [] : await this.#connectionsOf(of.user);
    return found?.filter((connection) => connection === one) ?? null;
  }

  /** @param {Found|null} found @returns {Verbs['find']['result']|null} */
  #listOf(found) {
    if (found === null) return null;
    const { server, slot } = this.describe();
    return { count: found.count, listed: found.first.map((one) => this.#row(one, server, slot)) };
  }

  /** @param {Connection} connection @param {string} server @param {number} worker */
  #row(connection, server, worker) {
    const { id, address, transport, roomCount, session, lags, openedS } = connection;
    const names = connection.listRooms().map(({ name }) => name);
    return {
      id,
      address,
      transport: transportOf(transport),
      app: session.app?.id ?? transport.door.appOf?.(connection) ?? undefined,
      roomCount,
      rooms: names.slice(0, MAX_NAMED_ROOMS),
      server,
      user: session.user,
      unsentBytes: transport.pendingBytes,
      worker,
      connectedAt: STARTED_MS + 1000 * openedS,
      laggingRooms: lags,
      refusedMessages: this.limiter.refusedOf(connection, performance.now()),
    };
  }

  /** @param {Verbs['find']['args']} place @returns {Promise<Found|null>} null: too many walks wait */
  async #find({ address, connectionId, room = null }) {
    if (room !== null) return this.#membersOf(room);
    if (address !== null) return this.#connectionsFrom(address);
    return openOf(this.#connectionOf(connectionId ?? ''));
  }

  /** @param {string} name @returns {Found} */
  #membersOf(name) {
    const room = this.hub.rooms.get(name);
    const first = [];
    for (const member of room?.members ?? []) {
      if (first.length === MAX_CONNECTIONS) break;
      // An operator who watches the room is a member, and not in the hub's list.
      if (member.isOpen && member.index >= 0) first.push(member);
    }
    return { count: room?.connectionCount ?? 0, first };
  }

  /** @param {string} id @returns {Connection[]} one or none */
  #connectionOf(id) {
    const number = numberOf(id);
    const found =
      number === 0 ? undefined : this.hub.connections.find((one) => one.number === number);
    return found === undefined || found.id !== id ? [] : [found];
  }

  /**
   * One that opens or closes meanwhile may be missing.
   * @param {string} address as limits count it
   * @returns {Promise<Found|null>} null: too many walks wait
   */
  async #connectionsFrom(address) {
    /** @type {Found} */
    const found = { count: 0, first: [] };
    const isWhole = await this.#walk(
      // A copy, because a close moves the last connection to another position.
      () => [...this.hub.connections],
      (connection) => {
        if (connection.address !== address || !connection.isOpen) return 1;
        found.count++;
        if (found.first.length < MAX_CONNECTIONS) found.first.push(connection);
        return 1;
      },
    );
    return isWhole ? found : null;
  }

  /** @param {Verbs['top']['args']} args @returns {Promise<Verbs['top']['result']|null>} */
  async #top({ by, limit }) {
    const { window } = this.hub;
    const top = new TopRooms(by, limit);
    const isWhole = await this.#walkRooms((room) => {
      if (room.connectionCount > 0)
        top.addRoom(room.name, room.connectionCount, room.heardIn(window));
      return 1;
    });
    return isWhole ? top.largest() : null;
  }

  /** @param {string} user @returns {Promise<Connection[]|null>} null: too many walks wait */
  async #connectionsOf(user) {
    if (this.sessions !== null) return [...this.sessions.connectionsOf(user)];
    if (isOfDoor(user)) return [...(this.signedIn?.connectionsOf(user) ?? [])];
    /** @type {Set<Connection>} */
    const found = new Set();
    const isWhole = await this.#walkRooms(({ users }) => {
      const connections = users?.connectionsOf(user) ?? [];
      for (const connection of connections) found.add(connection);
      return 1 + connections.length;
    });
    return isWhole ? [...found] : null;
  }

  /**
   * @param {(room: HubRoom) => number} visit returns the cost of the visit
   * @returns {Promise<boolean>} false: too many walks wait
   */
  #walkRooms(visit) {
    return this.#walk(
      () => this.hub.rooms.values(),
      (room) => (room.name === EVERYONE ? 0 : visit(room)),
    );
  }

  /**
   * Visits all of them, in slices, when the walks before have ended.
   * @template T @param {() => Iterable<T>} all called when the walk begins
   * @param {(one: T) => number} visit returns the cost of the visit
   * @returns {Promise<boolean>} false: too many walks wait
   */
  async #walk(all, visit) {
    if (this.#walks >= MAX_WALKS) return false;
    this.#walks++;
    const walk = this.#lastWalk
      .then(() => this.#visitAll(all(), visit))
      .finally(() => {
        this.#walks--;
      });
    // A walk that fails must not fail the walks after it.
    this.#lastWalk = walk.catch(() => {});
    await walk;
    return true;
  }

  /** @template T @param {Iterable<T>} all @param {(one: T) => number} visit */
  async #visitAll(all, visit) {
    const { surveys } = this;
    let cost = 0;
    for (const one of all) {
      cost += visit(one);
      if (cost < VISITS_PER_CLOCK) continue;
      cost = 0;
      if (surveys.isSpent()) await new Promise((resolve) => surveys.push(() => resolve(null)));
    }
  }
}

/** The first rooms by name, out of any number. */
export class FirstRooms {
  /** @param {number} limit above 0 */
  constructor(limit) {
    this.limit = limit;
    /** Counts of rooms, at most twice the limit. @type {Map<string, number>} */
    this.rooms = new Map();
    /** Rooms above this name are not among the first; empty if no room was dropped. */
    this.bound = '';
  }

  /** Adds connections to a room. @param {string} name @param {number} connections */
  addRoom(name, connections) {
    if (this.bound !== '' && name > this.bound) return;
    this.rooms.set(name, (this.rooms.get(name) ?? 0) + connections);
    if (this.rooms.size >= 2 * this.limit) this.#cut();
  }

  /** @returns {[string, number][]} in the order of their names */
  sorted() {
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
  /** @param {'connections'|'messages'} by @param {number} limit above 0 */
  constructor(by, limit) {
    this.column = by === 'connections' ? 1 : 2;
    this.limit = limit;
    /** Candidates, at most twice the limit. @type {Map<string, TopRoom>} */
    this.rooms = new Map();
    /** Rooms with less are not among the first; -1: no room was dropped. */
    this.bound = -1;
  }

  /**
   * @param {string} name @param {number} connections adds up over the workers
   * @param {number} heard messages: each worker with a member of the room hears all of them
   */
  addRoom(name, connections, heard) {
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

  /** @returns {TopRoom[]} most first */
  largest() {
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

/** @param {readonly Connection[]|null} connections @returns {Found|null} null: there is no list */
function openOf(connections) {
  if (connections === null) return null;
  const open = connections.filter(({ isOpen }) => isOpen);
  return { count: open.length, first: open.slice(0, MAX_CONNECTIONS) };
}

/** Other doors name users after their app, `~123:ann`, also without tokens. @param {string} user */
function isOfDoor(user) {
  return user.startsWith('~');
}

/**
 * @param {import('../hub/connection.js').Transport} transport
 * @returns {import('./fleet-wire.js').TransportName}
 */
function transportOf({ door, format }) {
  if (door.name !== 'native') return /** @type {'pusher'} */ (door.name);
  return format < FORMAT.EVENTS ? 'websocket' : 'sse';
}

/** @param {readonly string[]} users @param {(user: string) => boolean} isOnline */
function positionsOf(users, isOnline) {
  return users.flatMap((user, position) => (isOnline(user) ? position : []));
}

/** @param {number} code @returns {{code: number, reason: string}} our row, if the code is ours */
function closeOf(code) {
  const row = Object.values(CLOSES).find((close) => close.code === code);
  return row ?? { code, reason: CLOSES.KICKED.reason };
}
