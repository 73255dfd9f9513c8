// room-index.js: the rooms with connections, by name, and how many each worker has (occupancy.js).
//   webhooks:{*}:rooms         sorted set of `<room> <session>`, all with the score 0
//   webhooks:{*}:connections   hash: `<room> <session>` -> connections
//
// A session adds a room here after it has added it to its own list, and removes it before: so the
// worker that cleans up after it finds the room (presence-session.js). A space sorts before all
// characters of a room's name.

import { BrokerError } from '../errors.js';
import { isTagOfUser } from '../webhook-reporter.js';
import { readScript } from './scripts.js';

const CHUNK_ROOMS = 500;
/** Read in one call: some 0.5 ms of Redis' time. */
const PAGE_ENTRIES = 500;
const RETRY_MS = 1000;

/** @import { OccupancyStore, OccupiedRoom } from '../occupancy.js' */

/**
 * @typedef {object} Scripts
 * @property {(...args: (string|number)[]) => Promise<number>} webhooksCount
 * @property
 *   {(...args: (string|number)[]) => Promise<[entries: string[], counts: string[]]>} webhooksRooms
 */

export class RoomIndex {
  /** The counts of this worker, by room. @type {Map<string, number>} */
  #counts = new Map();
  /** Rooms whose count Redis does not have yet. @type {Set<string>} */
  #changed = new Set();
  #isWriting = false;
  /** @type {NodeJS.Timeout|undefined} */
  #retry;

  /**
   * @param {object} parts @param {import('./presence-session.js').Connection} parts.connection
   * @param {import('./partition-keys.js').PartitionKeys} parts.keys
   * @param {() => string} parts.session the current one
   */
  constructor({ connection, keys, session }) {
    this.connection = connection;
    this.keys = [keys.ofFleet('rooms'), keys.ofFleet('connections')];
    this.session = session;
    for (const [name, file] of /** @type {const} */ ([
      ['webhooksCount', 'count-connections'],
      ['webhooksRooms', 'occupied-rooms'],
    ]))
      connection.redis.defineCommand(name, { numberOfKeys: 2, lua: readScript(file) });
    this.scripts = /** @type {Scripts} */ (/** @type {unknown} */ (connection.redis));
  }

  /** @param {string} tag @param {number} connections of this worker, for `add` */
  set(tag, connections) {
    if (!isTagOfUser(tag)) this.#counts.set(tag, connections);
  }

  /** Sends the count to Redis. @param {string} room @param {number} connections */
  reportCount(room, connections) {
    this.#counts.set(room, connections);
    this.#changed.add(room);
    if (this.#changed.size === 1) setImmediate(() => this.#write());
  }

  /** @param {string} tag without connections on this worker */
  delete(tag) {
    this.#counts.delete(tag);
    this.#changed.delete(tag);
  }

  close() {
    clearTimeout(this.#retry);
    this.#changed.clear();
  }

  /** @param {string} session @param {readonly string[]} tags */
  add(session, tags) {
    return this.#change('add', session, tags);
  }

  /** @param {string} session of any worker @param {readonly string[]} tags */
  remove(session, tags) {
    return this.#change('remove', session, tags);
  }

  async #write() {
    if (this.#isWriting) return;
    this.#isWriting = true;
    clearTimeout(this.#retry);
    for (let isDone = true; isDone && this.#changed.size > 0; ) {
      const rooms = [...this.#changed];
      this.#changed.clear();
      try {
        // The script ignores rooms that are not added yet: `add` sends their count.
        await this.#change('set', this.session(), rooms);
      } catch {
        for (const room of rooms) this.#changed.add(room);
        this.#retry = setTimeout(() => this.#write(), RETRY_MS).unref();
        isDone = false;
      }
    }
    this.#isWriting = false;
  }

  /** @param {'add'|'set'|'remove'} step @param {string} session @param {readonly string[]} tags */
  async #change(step, session, tags) {
    const rooms = tags.filter((tag) => !isTagOfUser(tag));
    for (let i = 0; i < rooms.length; i += CHUNK_ROOMS) {
      const args = rooms
        .slice(i, i + CHUNK_ROOMS)
        .flatMap((room) => [`${room} ${session}`, this.#counts.get(room) ?? 0]);
      await this.scripts.webhooksCount(...this.keys, step, ...args);
    }
  }

  /** @param {string} room @returns {Promise<number>} */
  async connectionsIn(room) {
    let sum = 0;
    for await (const { connections } of this.#readPage(`[${room} `, `(${room}!`))
      sum += connections;
    return sum;
  }

  /**
   * All occupied rooms, and perhaps some that are about to be, or were until now.
   * @type {OccupancyStore['occupied']}
   */
  async occupied({ prefix, after, limit }) {
    /** @type {OccupiedRoom[]} */
    const rooms = [];
    const from = after >= prefix && after !== '' ? `[${after}!` : `[${prefix}`;
    const to = prefix === '' ? '+' : `(${prefix}\x7f`;
    let current = { room: '', connections: 0 };
    const end = () => {
      if (current.room !== '') rooms.push(current);
    };
    for await (const { room, connections } of this.#readPage(from, to)) {
      if (room === current.room) {
        current = { room, connections: current.connections + connections };
        continue;
      }
      end();
      if (rooms.length === limit) return rooms;
      current = { room, connections };
    }
    end();
    return rooms;
  }

  /**
   * @param {string} from @param {string} to as ZRANGEBYLEX has them
   * @returns {AsyncGenerator<OccupiedRoom>} of each session
   */
  async *#readPage(from, to) {
    for (let start = from; ; ) {
      const [entries, counts] = await this.#page(start, to);
      for (const [i, entry] of entries.entries())
        yield { room: entry.slice(0, entry.indexOf(' ')), connections: Number(counts[i]) };
      if (entries.length < PAGE_ENTRIES) return;
      start = `(${entries[entries.length - 1]}`;
    }
  }

  /** @param {string} from @param {string} to */
  async #page(from, to) {
    if (!this.connection.isWritable) throw new BrokerError('UNAVAILABLE', 'Redis is unavailable');
    try {
      return await this.scripts.webhooksRooms(...this.keys, from, to, PAGE_ENTRIES);
    } catch (cause) {
      throw new BrokerError('UNAVAILABLE', 'cannot read the rooms', { cause });
    }
  }
}
