// edges.js: what a worker reports for webhooks: which rooms and users it has connections of, and
// what clients publish. Loaded only if there are endpoints.
//
// A store counts the workers, and records an event when the first one enters and the last one
// leaves. A room or user is left only after the time for which an emptied room stays subscribed, so
// clients that come back cost nothing and cause no event.
//
// A worker reports the connections in a room COALESCE_MS after they changed. The store adds the
// workers up, for occupancy.js, and tells the room's members if the room's app wants that.
//
// A store knows rooms and users by tags: a room's name, or `u:` and the user as JSON, which no room
// is called.

import { DelayedUnsubscribe } from './delayed-unsubscribe.js';
import { FOLLOWED, isUserOfApp } from './occupancy.js';

/** The largest payload that is recorded; of a larger one, the size. */
const MAX_PAYLOAD_BYTES = 16_384;
/** Changes of a room's number of connections within this time are one. */
const COALESCE_MS = 200;
const MAX_REPORTED = 5000;

/** @typedef {(type: import('../config/webhooks.js').EventType, room?: string) => boolean} Covers */

/**
 * The backend's part. All calls keep their order for each tag. If the backend is unavailable, an
 * edge waits, and a message is lost and counted.
 * @typedef {object} EdgeStore
 * @property {() => Promise<void>} start call it when the broker has started
 * @property {() => Promise<void>} close leaves everything; may be called twice
 * @property {(tag: string, connections: number) => void} enter this worker has a connection of the
 *   room or user
 * @property {(tag: string) => void} exit it has none any more
 * @property {(room: string, connections: number, isTold: boolean) => void} count this worker has
 *   so many connections of a room that it has entered. `isTold`: if the sum over all workers is
 *   another than the last one told, the room is told, and the event recorded if an endpoint asks
 *   for it: at once, or, in a large room, COUNTED.pauseMs of config/webhooks.js after the last time
 * @property {(room: string, message: RecordedMessage) => void} publish
 * @property {OccupancyStore['connectionsIn']} connectionsIn of all workers
 * @property {OccupancyStore['occupied']} occupied @property {OccupancyStore['online']} online
 */

/**
 * @typedef {object} RecordedMessage what a client or a door has done, as JSON without braces
 * @property {EventType} type
 * @property {string} mark if the latest one of the room with a mark had the same, it is not recorded.
 *   A vacated room forgets it. '': always recorded
 * @property {string} fields the last one is `payload` or `data`, if it has any: a backlog has the
 *   size of its JSON instead, as `bytes`
 * @property {string} [idempotencyKey] of the publish. The broker's record of the key is marked, so a
 *   repeated publish is not recorded again, and one whose first answer was lost is
 * @property {boolean} [isNumbered] the room has history or state
 */

export class Edges {
  /**
   * @param {object} parts @param {EdgeStore} parts.store @param {Covers} parts.covers
   * @param {(room: string) => boolean} [parts.counts] are the room's members told how many they are?
   * @param {number} parts.lingerMs
   */
  constructor({ store, covers, counts = () => false, lingerMs }) {
    this.store = store;
    this.covers = covers;
    this.counts = counts;
    this.coversUsers = covers('user.connected') || covers('user.disconnected');
    /** Does an endpoint ask for the messages of any room? */
    this.hasMessages = covers('message.published');
    /** On this worker, by room. @type {Map<string, number>} */
    this.connections = new Map();
    /** Rooms whose count has not been reported. @type {Set<string>} */
    this.changed = new Set();
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    this.lingering = new DelayedUnsubscribe(lingerMs, (tags) => {
      for (const tag of tags) {
        this.changed.delete(tag);
        store.exit(tag);
      }
    });
  }

  /** @param {string} room @param {number} connections of clients that are in it now */
  count(room, connections) {
    const before = this.connections.get(room) ?? 0;
    if (connections === before) return;
    if (before === 0) {
      if (!this.counts(room) && !FOLLOWED.some((type) => this.covers(type, room))) return;
      this.#enter(room, connections);
    }
    if (connections > 0) this.connections.set(room, connections);
    else {
      this.connections.delete(room);
      this.lingering.add(room);
    }
    this.changed.add(room);
    this.timer ??= setTimeout(() => this.#report(), COALESCE_MS).unref();
  }

  #report() {
    this.timer = undefined;
    let rest = MAX_REPORTED;
    for (const room of this.changed) {
      if (rest-- === 0) {
        this.timer = setTimeout(() => this.#report(), COALESCE_MS).unref();
        return;
      }
      this.changed.delete(room);
      this.store.count(room, this.connections.get(room) ?? 0, this.counts(room));
    }
  }

  /** The user has a first connection on this worker. @param {string} user */
  connect(user) {
    if (this.coversUsers && !isUserOfApp(user)) this.#enter(tagOfUser(user), 1);
  }

  /** The user's last connection on this worker is gone. @param {string} user */
  disconnect(user) {
    if (this.coversUsers) this.lingering.add(tagOfUser(user));
  }

  /** @param {string} room */
  coversMessages(room) {
    return this.covers('message.published', room);
  }

  /**
   * The broker has accepted a client's message.
   * @param {string} room @param {object} message @param {string} message.sender escaped as in JSON
   * @param {string} message.payload JSON
   * @param {number|undefined} message.offset undefined: the room has no history
   * @param {string} [message.key] of a room with state, escaped as in JSON
   * @param {string} [message.idempotencyKey] of the publish, which may be a repeated one
   */
  publish(room, { sender, payload, offset, key, idempotencyKey }) {
    const head = `"room":"${room}","from":"${sender}"`;
    const name = key === undefined ? '' : `,"key":"${key}"`;
    const place = offset === undefined ? name : `,"offset":${offset}${name}`;
    const bytes = Buffer.byteLength(payload);
    const what = bytes > MAX_PAYLOAD_BYTES ? `"bytes":${bytes}` : `"payload":${payload}`;
    const fields = `${head}${place},${what}`;
    const isNumbered = offset !== undefined;
    const type = 'message.published';
    this.store.publish(room, { type, mark: '', fields, idempotencyKey, isNumbered });
  }

  /**
   * A door reports what only it knows, for the endpoints of its apps:
   *
   *   backend.edges?.report(room, 'client.event', { event, socket_id, user_id }, { data })
   *   backend.edges?.report(room, 'cache.missed', {}, { mark: `${joined.epoch}:${joined.offset}` })
   *
   * the first when the broker has accepted the event, the second when a subscriber has found no
   * event in the cache at this position. Only what an endpoint asks for is recorded.
   * @param {string} room @param {typeof import('../config/webhooks.js').DOOR_TYPES[number]} type
   * @param {Readonly<Record<string, string|undefined>>} fields
   * @param {{data?: string, mark?: string}} [options] `data`: recorded up to 16 kB of JSON, else
   *   its size; `mark`: as in RecordedMessage
   */
  report(room, type, fields, { data, mark = '' } = {}) {
    if (!this.covers(type, room)) return;
    const head = JSON.stringify({ room, ...fields }).slice(1, -1);
    const text = JSON.stringify(data) ?? '';
    const bytes = Buffer.byteLength(text);
    const what = bytes > MAX_PAYLOAD_BYTES ? `,"bytes":${bytes}` : `,"data":${text}`;
    this.store.publish(room, { type, mark, fields: head + (text === '' ? '' : what) });
  }

  /** @param {string} tag @param {number} connections */
  #enter(tag, connections) {
    if (!this.lingering.delete(tag)) this.store.enter(tag, connections);
  }

  start() {
    return this.store.start();
  }

  async close() {
    this.lingering.clear();
    clearTimeout(this.timer);
    await this.store.close();
  }
}

const USER = 'u:"';

/** @param {string} tag */
export function isTagOfUser(tag) {
  return tag.startsWith(USER);
}

/** @param {string} user */
export function tagOfUser(user) {
  return `u:${JSON.stringify(user)}`;
}

/** @param {string} tag @returns {string} the key in queue.js, which chooses its lane */
export function keyOfTag(tag) {
  return isTagOfUser(tag) ? `u:${JSON.parse(tag.slice(2))}` : tag;
}

/**
 * The events of a tag's first and last connection, and their JSON without braces. '' instead of one
 * that is not wanted: a room may be followed for other events.
 * @param {string} tag @param {Covers} covers
 * @returns {[first: EventType|'', last: EventType|'', fields: string]}
 */
export function edgesOf(tag, covers) {
  if (isTagOfUser(tag)) return ['user.connected', 'user.disconnected', `"user":${tag.slice(2)}`];
  const wanted = (/** @type {EventType} */ type) => (covers(type, tag) ? type : '');
  return [wanted('room.occupied'), wanted('room.vacated'), `"room":"${tag}"`];
}

/** @typedef {import('../config/webhooks.js').EventType} EventType */
/** @typedef {import('./occupancy.js').OccupancyStore} OccupancyStore */
