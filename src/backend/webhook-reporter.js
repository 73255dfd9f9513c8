// webhook-reporter.js: what a worker reports for webhooks: the rooms and users that have
// connections here, and what clients publish. Loaded only if there are endpoints.
//
// A store counts the workers of a room or user. It records an event when the first worker enters,
// and when the last one leaves. A worker leaves only after `lingerMs`, as with subscriptions, so
// clients that come back within that time cause neither load nor events.
//
// A worker reports a room's number of connections COALESCE_MS after a change. The store adds up the
// numbers of all workers for occupancy.js, and tells the room's members if the room's app wants it.
//
// A store knows rooms and users by tags: a room's name, or `u:` and the user as JSON, which is not
// a valid name for a room.

import { audienceMember } from '../protocol/audiences.js';
import { DelayedUnsubscribe } from './delayed-unsubscribe.js';
import { FOLLOWED, isUserOfApp } from './occupancy.js';

/** A payload larger than this is recorded by its size only. */
const MAX_PAYLOAD_BYTES = 16_384;
/** Changes of a room's number of connections within this time are reported once. */
const COALESCE_MS = 200;
const MAX_REPORTED = 5000;

/** @typedef {(type: import('../config/webhooks.js').EventType, room?: string) => boolean} Covers */

/**
 * The backend's part. Calls for one tag keep their order. If the backend is unavailable,
 * transitions wait, and messages are lost and counted.
 * @typedef {object} EventStore
 * @property {() => Promise<void>} start call it when the broker has started
 * @property {() => Promise<void>} close leaves everything; may be called twice
 * @property {(tag: string, connections: number) => void} enter this worker has a connection of the
 *   room or user
 * @property {(tag: string) => void} exit it has none any more
 * @property {(room: string, connections: number, isTold: boolean) => void} count this worker's
 *   connections in a room that it has entered. With `isTold` the room is told the sum over all
 *   workers when it changes, and the event is recorded if an endpoint asks for it: at once, or in a
 *   large room at most once in COUNTED.pauseMs (config/webhooks.js)
 * @property {(room: string, message: RecordedMessage) => void} publish
 * @property {OccupancyStore['connectionsIn']} connectionsIn of all workers
 * @property {OccupancyStore['occupied']} occupied @property {OccupancyStore['online']} online
 */

/**
 * @typedef {object} RecordedMessage what a client or a door has done, as JSON without braces
 * @property {EventType} type
 * @property {string} mark not recorded if the room's latest marked message has the same mark. A
 *   vacated room forgets its mark. '': always recorded
 * @property {string} fields `payload` or `data` is the last one, if present. In a long queue it is
 *   replaced by the size of its JSON, `bytes`
 * @property {string} [idempotencyKey] of the publish. The message is recorded once for each key,
 *   even if the first answer was lost: the broker's record of the key says whether it has been
 * @property {boolean} [isNumbered] the room has history or state
 */

export class WebhookReporter {
  /**
   * @param {object} parts @param {EventStore} parts.store @param {Covers} parts.covers
   * @param {(room: string) => boolean} [parts.counts] is the room told its number of connections?
   * @param {number} parts.lingerMs
   */
  constructor({ store, covers, counts = () => false, lingerMs }) {
    this.store = store;
    this.covers = covers;
    this.counts = counts;
    this.coversUsers = covers('user.connected') || covers('user.disconnected');
    /** Does an endpoint ask for the messages of any room? */
    this.hasMessages = covers('message.published');
    /** Connections on this worker, by room. @type {Map<string, number>} */
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

  /** @param {string} room @param {number} connections in it now */
  count(room, connections) {
    const before = this.connections.get(room) ?? 0;
    if (connections === before) return;
    if (before === 0) {
      if (!this.counts(room) && !FOLLOWED.some((type) => this.covers(type, room))) return;
      this.#enterRoom(room, connections);
    }
    if (connections > 0) this.connections.set(room, connections);
    else {
      this.connections.delete(room);
      this.lingering.add(room);
    }
    this.changed.add(room);
    this.timer ??= setTimeout(() => this.#reportEdges(), COALESCE_MS).unref();
  }

  #reportEdges() {
    this.timer = undefined;
    let rest = MAX_REPORTED;
    for (const room of this.changed) {
      if (rest-- === 0) {
        this.timer = setTimeout(() => this.#reportEdges(), COALESCE_MS).unref();
        return;
      }
      this.changed.delete(room);
      this.store.count(room, this.connections.get(room) ?? 0, this.counts(room));
    }
  }

  /** The user's first connection on this worker has opened. @param {string} user */
  connect(user) {
    if (this.coversUsers && !isUserOfApp(user)) this.#enterRoom(tagOfUser(user), 1);
  }

  /** The user's last connection on this worker has closed. @param {string} user */
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
   * @param {string} [message.audience] of readAudience; '': everybody
   * @param {string} [message.idempotencyKey] of the publish, which may be a repeated one
   */
  publish(room, { sender, payload, offset, key, audience = '', idempotencyKey }) {
    const head = `"room":"${room}","from":"${sender}"`;
    const name = key === undefined ? '' : `,"key":"${key}"`;
    const place = offset === undefined ? name : `,"offset":${offset}${name}`;
    const bytes = Buffer.byteLength(payload);
    const what = bytes > MAX_PAYLOAD_BYTES ? `"bytes":${bytes}` : `"payload":${payload}`;
    const fields = `${head}${place}${audienceMember(audience)},${what}`;
    const isNumbered = offset !== undefined;
    const type = 'message.published';
    this.store.publish(room, { type, mark: '', fields, idempotencyKey, isNumbered });
  }

  /**
   * A door reports events of its own, for the endpoints of its apps:
   *
   *   services.reporter?.report(room, 'client.event', { event, socket_id, user_id }, { data })
   *   services.reporter?.report(room, 'cache.missed', {}, { mark: `${epoch}:${offset}` })
   *
   * The first when the broker has accepted the event, the second when a subscriber found no event
   * in the cache at this position. Only events that an endpoint asks for are recorded.
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
  #enterRoom(tag, connections) {
    if (!this.lingering.delete(tag)) this.store.enter(tag, connections);
  }

  start() {
    return this.store.start();
  }

  async close() {
    this.lingering.forgetRooms();
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

/** @param {string} tag @returns {string} the key in queue.js, which chooses its partition */
export function keyOfTag(tag) {
  return isTagOfUser(tag) ? `u:${JSON.parse(tag.slice(2))}` : tag;
}

/**
 * The events for a tag's first and last connection ('' if no endpoint asks for it), and their JSON
 * without braces.
 * @param {string} tag @param {Covers} covers
 * @returns {[first: EventType|'', last: EventType|'', fields: string]}
 */
export function transitionsOf(tag, covers) {
  if (isTagOfUser(tag)) return ['user.connected', 'user.disconnected', `"user":${tag.slice(2)}`];
  const wanted = (/** @type {EventType} */ type) => (covers(type, tag) ? type : '');
  return [wanted('room.occupied'), wanted('room.vacated'), `"room":"${tag}"`];
}

/** @typedef {import('../config/webhooks.js').EventType} EventType */
/** @typedef {import('./occupancy.js').OccupancyStore} OccupancyStore */
