// event-store.js: the rooms, users and messages of a worker that webhooks cover. The relay in the
// primary counts and records them (event-queue.js).
//
// When the link ends, the relay removes the rooms and users of its worker, so a crash leaves
// nothing behind.

import { BrokerError } from '../errors.js';
import { tagOfUser } from '../webhook-reporter.js';
import { keyText } from './broker.js';
import { readMembers } from './relay-wire.js';

/** @typedef {import('../webhook-reporter.js').EventStore} EventStore */

/** @implements {EventStore} */
export class EmbeddedEventStore {
  /** @param {import('./relay-link.js').RelayLink} link opened and closed by its owner */
  constructor(link) {
    this.link = link;
  }

  async start() {}

  async close() {}

  /** @param {string} tag @param {number} connections */
  enter(tag, connections) {
    this.link.tell({ type: 'occupy', tag, connections, isTold: false });
  }

  /** @param {string} room @param {number} connections @param {boolean} isTold */
  count(room, connections, isTold) {
    this.link.tell({ type: 'occupy', tag: room, connections, isTold });
  }

  /** @param {string} room @returns {Promise<number>} over all workers */
  async connectionsIn(room) {
    return (await this.link.ask({ type: 'connections-in', request: 0, room })).value;
  }

  /** @type {EventStore['occupied']} */
  async occupied(page) {
    const { ok, body } = await this.link.ask({ type: 'occupied', request: 0, ...page });
    if (!ok)
      throw new BrokerError('UNAVAILABLE', 'too many lists of rooms are waiting for the relay');
    return (readMembers(body).members ?? []).map((row) => {
      const [room, connections] = String(row).split(' ');
      return { room, connections: Number(connections) };
    });
  }

  /** @type {EventStore['online']} */
  async online(users) {
    const counts = await Promise.all(users.map((user) => this.connectionsIn(tagOfUser(user))));
    return users.filter((_, i) => counts[i] > 0);
  }

  /** @param {string} tag */
  exit(tag) {
    this.link.tell({ type: 'vacate', tag });
  }

  /** @param {string} room @param {import('../webhook-reporter.js').RecordedMessage} message */
  publish(room, { type: kind, mark, fields, idempotencyKey }) {
    const key = idempotencyKey === undefined ? '' : keyText(idempotencyKey);
    this.link.tell({ type: 'record', room, kind, mark, fields, key });
  }
}
