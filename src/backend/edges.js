// edges.js: what a worker reports for webhooks: which rooms and users it has connections of, and
// what clients publish. Loaded only if there are endpoints.
//
// A store counts the workers, and records an event when the first one enters and the last one
// leaves. A room or user is left only after the time for which an emptied room stays subscribed, so
// clients that come back cost nothing and cause no event.
//
// A store knows rooms and users by tags: a room's name, or `u:` and the user as JSON, which no room
// is called.

import { DelayedUnsubscribe } from './delayed-unsubscribe.js';

/** The largest payload that is recorded; of a larger one, the size. */
const MAX_PAYLOAD_BYTES = 16_384;

/** @typedef {(type: import('../config/webhooks.js').EventType, room?: string) => boolean} Covers */

/**
 * The backend's part. All calls keep their order for each tag. If the backend is unavailable, an
 * edge waits, and a message is lost and counted.
 * @typedef {object} EdgeStore
 * @property {() => Promise<void>} start call it when the broker has started
 * @property {() => Promise<void>} close leaves everything; may be called twice
 * @property {(tag: string) => void} enter this worker has a connection of the room or user
 * @property {(tag: string) => void} exit it has none any more
 * @property {(room: string, message: RecordedMessage) => void} publish
 */

/**
 * A client's message as JSON without braces.
 * @typedef {object} RecordedMessage
 * @property {string} whole
 * @property {string} brief with the size instead of the payload
 */

export class Edges {
  /**
   * @param {object} parts
   * @param {EdgeStore} parts.store
   * @param {Covers} parts.covers
   * @param {number} parts.lingerMs
   */
  constructor({ store, covers, lingerMs }) {
    this.store = store;
    this.covers = covers;
    this.coversUsers = covers('user.connected') || covers('user.disconnected');
    /** Does an endpoint ask for the messages of any room? */
    this.hasMessages = covers('message.published');
    /** Rooms with connections on this worker. @type {Set<string>} */
    this.occupied = new Set();
    this.lingering = new DelayedUnsubscribe(lingerMs, (tags) => {
      for (const tag of tags) store.exit(tag);
    });
  }

  /** @param {string} room @param {number} connections of clients that are in it now */
  count(room, connections) {
    const isOccupied = connections > 0;
    if (isOccupied === this.occupied.has(room)) return;
    if (!this.covers('room.occupied', room) && !this.covers('room.vacated', room)) return;
    if (isOccupied) {
      this.occupied.add(room);
      this.#enter(room);
    } else {
      this.occupied.delete(room);
      this.lingering.add(room);
    }
  }

  /** The user has a first connection on this worker. @param {string} user */
  connect(user) {
    if (this.coversUsers) this.#enter(tagOfUser(user));
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
   * @param {string} room
   * @param {object} message
   * @param {string} message.sender escaped as in JSON
   * @param {string} message.payload JSON
   * @param {number|undefined} message.offset undefined: the room has no history
   */
  publish(room, { sender, payload, offset }) {
    const head = `"room":"${room}","from":"${sender}"`;
    const place = offset === undefined ? '' : `,"offset":${offset}`;
    const bytes = Buffer.byteLength(payload);
    const brief = `${head}${place},"bytes":${bytes}`;
    const whole = bytes > MAX_PAYLOAD_BYTES ? brief : `${head}${place},"payload":${payload}`;
    this.store.publish(room, { whole, brief });
  }

  /** @param {string} tag */
  #enter(tag) {
    if (!this.lingering.delete(tag)) this.store.enter(tag);
  }

  start() {
    return this.store.start();
  }

  async close() {
    this.lingering.clear();
    await this.store.close();
  }
}

const USER = 'u:"';

/** @param {string} user */
export function tagOfUser(user) {
  return `u:${JSON.stringify(user)}`;
}

/**
 * @param {string} tag
 * @returns {string} the key of the sequence in queue.js, by which its lane is chosen
 */
export function keyOfTag(tag) {
  return tag.startsWith(USER) ? `u:${JSON.parse(tag.slice(2))}` : tag;
}

/**
 * The events of a tag's first and last connection, and their JSON without braces.
 * @param {string} tag
 * @returns {[first: EventType, last: EventType, fields: string]}
 */
export function edgesOf(tag) {
  return tag.startsWith(USER)
    ? ['user.connected', 'user.disconnected', `"user":${tag.slice(2)}`]
    : ['room.occupied', 'room.vacated', `"room":"${tag}"`];
}

/** @typedef {import('../config/webhooks.js').EventType} EventType */
