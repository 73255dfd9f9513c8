// hook-gate.js: asks the hooks before a connection joins or reads a room, and before it publishes.
// All other checks come first, because they cost less. The HTTP API asks no hooks.

import { hasKey, keyOf, payloadText, withPayload } from '../protocol/publication.js';

/** @import { Connection } from '../hub/connection.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { Id } from './replies.js' */
/** @import { CommandPublisher } from '../doors/native/publish.js' */

/**
 * @typedef {object} Verdict
 * @property {Refusal|null} refusal null: allowed
 * @property {{payload: Buffer|null}} answer the changed payload or the result, JSON; null: none
 */

/** @typedef {'onJoin'|'onPublish'|'onRpc'|'onSend'} CalledHook */

/**
 * @typedef {object} HookCalls
 * @property {(hook: 'onConnect'|CalledHook) => boolean} has
 * @property {(hook: CalledHook, connection: Connection, args: readonly unknown[], key?: string) => Verdict|Promise<Verdict>}
 *   callFor the promise never rejects
 */

/** @implements {CommandPublisher} */
export class HookGate {
  /**
   * @param {object} parts
   * @param {HookCalls} parts.hooks @param {Pick<import('../hub/hub.js').Hub, 'rooms'>} parts.hub
   * @param {import('./lane.js').Lane} parts.lane @param {CommandPublisher} parts.publisher
   * @param {import('./replies.js').Replies} parts.replies
   */
  constructor({ hooks, hub, lane, publisher, replies }) {
    this.hooks = hooks;
    this.hub = hub;
    this.lane = lane;
    this.publisher = publisher;
    this.replies = replies;
  }

  /**
   * Asks onJoin, unless the connection is in the room or joining it, which has been allowed.
   * @param {Connection} connection @param {string} name of the room
   * @param {(refusal: Refusal|null) => void} act not called if the connection has closed
   */
  enter(connection, name, act) {
    if (!this.hooks.has('onJoin') || this.hub.rooms.get(name)?.has(connection)) return act(null);
    const verdict = this.hooks.callFor('onJoin', connection, [name]);
    this.lane.after(connection, 'join', 0, verdict, ({ refusal }) => {
      if (connection.isOpen) act(refusal);
    });
  }

  /**
   * Publishes if onPublish allows it, even if the connection has closed. The fingerprint in
   * `options` is that of the client's payload, so repetitions are found whatever the hook changes.
   * @type {CommandPublisher['publishFor']}
   */
  publishFor(listener, connection, id, room, publication, options) {
    const publish = (/** @type {Buffer} */ allowed) =>
      this.publisher.publishFor(listener, connection, id, room, allowed, options);
    if (!this.hooks.has('onPublish')) return publish(publication);
    if (this.lane.isFull) return this.lane.refuse(connection, id);
    const payload = JSON.parse(payloadText(publication));
    const key = hasKey(publication) ? keyOf(publication) : undefined;
    const verdict = this.hooks.callFor('onPublish', connection, [room, payload], key);
    const { length } = publication;
    this.lane.after(connection, 'message', length, verdict, ({ refusal, answer }) => {
      const { payload: changed } = answer;
      if (refusal !== null) this.#refuse(connection, refusal, id);
      else publish(changed === null ? publication : withPayload(publication, changed));
    });
  }

  /** @param {Connection} connection @param {Refusal} refusal @param {Id} id */
  #refuse(connection, { code, message }, id) {
    this.replies.error(connection, code, id, message);
  }
}
