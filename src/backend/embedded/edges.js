// edges.js: the rooms, users and messages of a worker that webhooks cover. The relay in the primary
// counts and records them (event-queue.js).
//
// Rooms and users go to the relay as users of one room, whose name no client can use, each with its
// number of connections. When the link ends, the relay removes them, so a crash leaves nothing
// behind.

import { tagOfUser } from '../edges.js';
import { keyText } from './broker.js';
import { EDGES_ROOM } from './relay-wire.js';

/** @typedef {import('../edges.js').EdgeStore} EdgeStore */

/** @implements {EdgeStore} */
export class EmbeddedEdges {
  /** @param {import('./relay-client.js').RelayClient} link */
  constructor(link) {
    this.link = link;
  }

  async start() {}

  async close() {}

  /** @param {string} tag @param {number} connections */
  enter(tag, connections) {
    this.link.enter(EDGES_ROOM, tag, Buffer.from(String(connections)));
  }

  /** @param {string} room @param {number} connections @param {boolean} isTold */
  count(room, connections, isTold) {
    this.link.enter(EDGES_ROOM, room, Buffer.from(`${isTold ? '+' : ''}${connections}`));
  }

  /** @param {string} room */
  connectionsIn(room) {
    return this.link.connectionsIn(room);
  }

  /** @type {EdgeStore['occupied']} */
  occupied(page) {
    return this.link.occupied(page);
  }

  /** @type {EdgeStore['online']} */
  async online(users) {
    const counts = await Promise.all(users.map((user) => this.link.connectionsIn(tagOfUser(user))));
    return users.filter((_, i) => counts[i] > 0);
  }

  /** @param {string} tag */
  exit(tag) {
    this.link.exit(EDGES_ROOM, tag);
  }

  /** @param {string} room @param {import('../edges.js').RecordedMessage} message */
  publish(room, message) {
    const { idempotencyKey: key } = message;
    this.link.recordMessage(room, message, key === undefined ? '' : keyText(key));
  }
}
