// broadcast.js: the command broadcast. The sender gets a result when this worker has written the
// broadcast to its connections, or BROADCAST_RESULT_MS after the broker has accepted it.

import { EVERYONE } from '../../hub/hub.js';
import { encodeBroadcastResult } from '../../protocol/encode.js';
import { KIND, senderOf, tagOf } from '../../protocol/publication.js';

const BROADCAST_RESULT_MS = 2000;
const FOR_EVERYBODY = 'A broadcast has no audience: it reaches every connection.';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Handler, Id } from './handler.js' */

/**
 * @typedef {object} PendingBroadcast
 * @property {Connection} connection @property {Id} id @property {string} payload
 * @property {number} acceptedMs Infinity: the broker has not answered
 * @property {boolean} hasResult
 */

export class BroadcastCommand {
  /**
   * @param {object} parts
   * @param {'everyone'|'granted'|'none'} parts.clientBroadcast `granted`: by token
   * @param {import('../../hub/hub.js').Hub} parts.hub
   * @param {{countConnections(): Promise<number>}} parts.broker
   * @param {Pick<import('../../operations/publisher.js').Publisher, 'publishFor'>} parts.publisher
   * @param {import('../../operations/replies.js').Replies} parts.replies
   * @param {(connection: Connection, nowMs: number, bytes: number) => number} parts.admitBroadcast
   *   0 if the broadcast passes; otherwise as `admitMessage` of dispatch.js
   */
  constructor({ clientBroadcast, hub, broker, publisher, replies, admitBroadcast }) {
    this.clientBroadcast = clientBroadcast;
    this.hub = hub;
    this.broker = broker;
    this.publisher = publisher;
    this.replies = replies;
    this.admitBroadcast = admitBroadcast;
    /** Broadcasts without a result yet, by tag. @type {Map<number, PendingBroadcast>} */
    this.pending = new Map();
    this.nextTag = 1;
    hub.outbox.listenForFlushes((room, publications) => {
      if (room === hub.everyone && this.pending.size > 0) this.#delivered(publications);
    });
  }

  /** @type {Handler} */
  broadcast(connection, { id, source, payloadStart, payloadEnd, audience }) {
    if (payloadStart < 0) return this.replies.invalid(connection, id, 'The payload is missing.');
    if (audience !== undefined) return this.replies.invalid(connection, id, FOR_EVERYBODY);
    if (!this.#mayBroadcast(connection))
      return this.replies.error(connection, 'PERMISSION_DENIED', id, this.#whyNot(connection));
    const bytes = payloadEnd - payloadStart;
    const wait = this.admitBroadcast(connection, performance.now(), bytes);
    if (wait !== 0) return this.replies.overRate(connection, id, wait);
    const payload = source.toString('utf8', payloadStart, payloadEnd);
    const tag = this.nextTag;
    this.nextTag = (tag % 0xffffffff) + 1;
    const acceptedMs = Number.POSITIVE_INFINITY;
    /** @type {PendingBroadcast} */
    const pending = { connection, id, payload, acceptedMs, hasResult: false };
    // Without an ack: the result follows.
    /** @type {import('../../operations/publisher.js').PublishListener} */
    const listener = {
      // Not before: a hook may deny it.
      onPublish: () => this.pending.set(tag, pending),
      onPublished() {
        pending.acceptedMs = performance.now();
      },
      onRefused: (_connection, _id, refused) => {
        this.pending.delete(tag);
        // If its result was sent, it was delivered, and only the broker's answer was lost.
        if (!pending.hasResult) this.replies.refuse(connection, refused, id);
      },
    };
    this.publisher.publishFor(listener, connection, id, EVERYONE, {
      ...{ kind: KIND.BROADCAST, tag, sender: connection.id },
      ...{ source, start: payloadStart, end: payloadEnd, except: '' },
      ...{ key: undefined, idempotencyKey: undefined, owner: '', app: null, mayPublish: true },
    });
  }

  /** @param {Connection} connection */
  #mayBroadcast({ session }) {
    if (session.app !== null) return false; // it would reach the connections of all apps
    if (this.clientBroadcast === 'granted') return session.mayBroadcast;
    return this.clientBroadcast === 'everyone';
  }

  /** @param {Connection} connection */
  #whyNot({ session }) {
    if (session.app !== null) return 'Clients of an app may not broadcast.';
    return this.clientBroadcast === 'granted'
      ? 'The token lacks "broadcast": true.'
      : 'Clients may not broadcast (FANFARE_CLIENT_BROADCAST is off).';
  }

  /** Sends overdue results. Call it once a second. */
  sweep() {
    const oldest = performance.now() - BROADCAST_RESULT_MS;
    for (const [tag, pending] of this.pending) {
      if (pending.acceptedMs > oldest) continue;
      this.pending.delete(tag);
      this.#sendResult(pending);
    }
  }

  /** @param {readonly Buffer[]} publications written to all connections of this worker */
  #delivered(publications) {
    for (let i = 0; i < publications.length; i++) {
      const tag = tagOf(publications[i]);
      const pending = this.pending.get(tag);
      // Other workers use the same tags, so the sender has to match.
      if (pending === undefined || pending.connection.id !== senderOf(publications[i])) continue;
      this.pending.delete(tag);
      this.#sendResult(pending);
    }
  }

  /** @param {PendingBroadcast} pending */
  #sendResult(pending) {
    const { connection, id, payload } = pending;
    pending.hasResult = true;
    this.broker.countConnections().then(
      (count) => connection.send(encodeBroadcastResult(payload, count, id)),
      // Without the count: it reached at least this worker's connections.
      () => connection.send(encodeBroadcastResult(payload, this.hub.connections.length, id)),
    );
  }
}
