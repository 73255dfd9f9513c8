// edges.js: the rooms, users and messages of a worker that webhooks cover: the relay in the primary
// counts and records them (event-queue.js).
//
// The relay has them as the users of one room, whose name no client can use. When the link ends, it
// removes them, so a crash leaves nothing behind.

import { EDGES_ROOM } from './relay-wire.js';

const NO_MEMBER = Buffer.alloc(0);

/** @typedef {import('../edges.js').EdgeStore} EdgeStore */

/**
 * The part of a RelayClient that is needed.
 * @typedef {object} RelayLink
 * @property {(room: string, user: string, member: Buffer) => void} enter
 * @property {(room: string, user: string) => void} exit
 * @property {(room: string, message: import('../edges.js').RecordedMessage) => void} recordMessage
 */

/** @implements {EdgeStore} */
export class EmbeddedEdges {
  /** @param {RelayLink} link */
  constructor(link) {
    this.link = link;
  }

  async start() {}

  async close() {}

  /** @param {string} tag */
  enter(tag) {
    this.link.enter(EDGES_ROOM, tag, NO_MEMBER);
  }

  /** @param {string} tag */
  exit(tag) {
    this.link.exit(EDGES_ROOM, tag);
  }

  /** @param {string} tag @param {number} connections */
  recount(tag, connections) {
    this.link.enter(EDGES_ROOM, tag, Buffer.from(String(connections)));
  }

  /** @param {string} room @param {import('../edges.js').RecordedMessage} message */
  publish(room, message) {
    this.link.recordMessage(room, message);
  }
}
