// operator.js: carries out the requests of the console on this worker.
//   primary --operate--> route of the HTTP API, or of this file --operated--> primary
//   primary --tail--> Tail --tailed--> primary, until `untail` or the worker drains
//
// The console may do what its API key permits; without a key, on loopback, anything.

import { isRoom } from '../protocol/decode.js';
import { toHttp } from '../protocol/refusal.js';
import { Call } from '../transport/http-api/call.js';
import { ApiFault, asRead, faultOf } from '../transport/http-api/fault.js';
import { Key } from '../transport/http-api/keys.js';
import { routesOf } from '../transport/http-api/routes.js';
import { MAX_TOP } from './fleet-wire.js';
import { Tail } from './tail.js';

/** Tails at once. The primary has the same bound. */
const MAX_TAILS = 8;
/** A count of rooms walks over all of them once for each page. */
const COUNTED_PAGE = 1000;
const MAX_COUNTED_PAGES = 10;
const NO_HASH = '0'.repeat(64);

/** @import { OperatorRequest, ToPrimary, ToWorker } from './control-messages.js' */
/** @typedef {Extract<ToWorker, {type: 'operate'|'tail'|'untail'}>} Message */

/**
 * A route of the console, as in the table of the HTTP API.
 * @typedef {{right: import('../config/api-keys.js').ApiRight,
 *   handle: (call: Call) => Promise<object|Buffer>}} Route
 */

export class Operator {
  /** @type {Map<number, Tail>} */
  #tails = new Map();
  /** @type {Map<string, Route>} */
  #routes = new Map();

  /**
   * @param {object} parts
   * @param {import('../transport/http-api/call.js').Services & {fleet: import('./fleet.js').Fleet}}
   *   parts.services
   * @param {import('../hub/hub.js').Hub} parts.hub @param {(message: ToPrimary) => void} parts.send
   */
  constructor({ services, hub, send }) {
    this.services = services;
    this.hub = hub;
    this.send = send;
    for (const { name, right, handle } of [...routesOf(services), ...readsOf(services.fleet)])
      this.#routes.set(name, { right, handle });
  }

  /** @param {Message} message */
  receive(message) {
    const { id } = message;
    if (message.type === 'operate') this.#operate(id, message.request);
    else if (message.type === 'tail') this.#tail(id, message.room);
    else {
      this.#tails.get(id)?.close();
      this.#tails.delete(id);
    }
  }

  /** Ends the tails: the worker drains. */
  close() {
    for (const id of [...this.#tails.keys()]) this.#endTail(id);
  }

  /** @param {number} id @param {OperatorRequest} request */
  async #operate(id, request) {
    try {
      const result = await this.#run(request);
      const body = Buffer.isBuffer(result) ? result.toString() : JSON.stringify(result);
      this.send({ type: 'operated', id, status: 200, body });
    } catch (error) {
      const { status, body } = toHttp(faultOf(error, this.services.log));
      this.send({ type: 'operated', id, status, body });
    }
  }

  /** @param {OperatorRequest} request */
  async #run({ route: name, params, query, body, rights, rooms }) {
    const route = this.#routes.get(name);
    if (route === undefined) throw new ApiFault('NOT_FOUND');
    const key = new Key({ name: 'console', hash: NO_HASH, rights, rooms, app: null });
    if (!key.rights.has(route.right)) throw new ApiFault('PERMISSION_DENIED');
    const { counters } = this.services;
    // The primary logs what the console does: it knows the visitor.
    const audit = { acted() {}, refused() {} };
    const meters = { take: () => 0, observe() {}, counters, audit, addressOf: () => '' };
    const url = `/?${new URLSearchParams(query)}`;
    const call = new Call(meters, { headers: {}, url }, key);
    call.routed(/** @type {Call['route']} */ (name), params);
    call.received(Buffer.from(body));
    return route.handle(call);
  }

  /** @param {number} id @param {string} room */
  #tail(id, room) {
    if (!isRoom(room) || this.#tails.size >= MAX_TAILS) {
      this.send({ type: 'tail-ended', id });
      return;
    }
    const tail = new Tail({
      hub: this.hub,
      room,
      onLines: (lines, left) => this.send({ type: 'tailed', id, lines, left }),
      onEnd: () => this.#endTail(id),
    });
    this.#tails.set(id, tail);
    tail.start();
  }

  /** @param {number} id */
  #endTail(id) {
    this.#tails.get(id)?.close();
    this.#tails.delete(id);
    this.send({ type: 'tail-ended', id });
  }
}

/**
 * The routes that only the console has. All of them are reads.
 * @param {import('./fleet.js').Fleet} fleet
 * @returns {(Route & {name: string})[]}
 */
function readsOf(fleet) {
  /** @type {(Route & {name: string})[]} */
  const routes = [
    {
      name: 'top_rooms',
      right: 'rooms',
      handle: async (call) => {
        const { by = 'connections' } = call.readQuery(['by']);
        if (by !== 'connections' && by !== 'messages') throw new ApiFault('INVALID_REQUEST');
        const { rooms, isPartial } = await fleet.top(by, MAX_TOP);
        return { rooms: rooms.filter(({ room }) => call.key.covers(room)), partial: isPartial };
      },
    },
    {
      name: 'count_rooms',
      right: 'rooms',
      handle: async (call) => countRooms(fleet, call.key, call.readQuery(['prefix']).prefix ?? ''),
    },
    {
      name: 'refused',
      right: 'presence',
      handle: async ({ key }) => {
        key.requireAllRooms();
        const { isPartial, ...refused } = await fleet.refused();
        return { ...refused, partial: isPartial };
      },
    },
    {
      name: 'workers',
      right: 'console',
      handle: async () => {
        const { workers, isPartial } = await fleet.workers();
        return { workers, partial: isPartial };
      },
    },
  ];
  return routes.map((route) => ({ ...route, handle: asRead(route.handle) }));
}

/**
 * Counts the rooms that have connections, page by page: a room may have members on several workers.
 * @param {Pick<import('./fleet.js').Fleet, 'rooms'>} fleet @param {Pick<Key, 'covers'>} key
 * @param {string} prefix
 * @returns {Promise<{count: number, more: boolean, partial: boolean}>} `more`: there are others
 *   after MAX_COUNTED_PAGES; `partial`: a worker has not answered
 */
export async function countRooms(fleet, key, prefix) {
  let count = 0;
  let after = '';
  let partial = false;
  for (let page = 0; page < MAX_COUNTED_PAGES; page++) {
    const { rooms, isPartial } = await fleet.rooms({ prefix, after, limit: COUNTED_PAGE });
    partial ||= isPartial;
    count += rooms.filter(({ room, connections }) => connections > 0 && key.covers(room)).length;
    if (rooms.length < COUNTED_PAGE) return { count, more: false, partial };
    after = rooms[rooms.length - 1].room;
  }
  return { count, more: true, partial };
}
