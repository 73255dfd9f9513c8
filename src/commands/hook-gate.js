// hook-gate.js: asks the hooks before a connection enters or reads a room, and before a publish.
//
// All other checks come first, because they cost less. Publishes and joins by the HTTP API do not
// pass here, because the backend has decided them.

import { payloadText, withPayload } from '../protocol/publication.js';

/** @typedef {import('../hub/connection.js').Connection} Connection */
/** @typedef {import('../protocol/decode.js').Command} Command */
/** @typedef {import('./handler.js').Handler} Handler */
/** @typedef {import('./handler.js').Id} Id */
/** @typedef {import('./order.js').Kind} Kind */
/** @typedef {import('./publish.js').CommandPublisher} CommandPublisher */

/**
 * @typedef {object} HookRefusal
 * @property {import('../protocol/codes.js').ErrorCode} code
 * @property {string|undefined} message for the client; undefined: that of the code
 */

/**
 * The answer of a hook.
 * @typedef {object} Verdict
 * @property {HookRefusal|null} refusal null: allowed
 * @property {{payload: Buffer|null}} answer the changed payload, JSON; null: as it was
 */

/**
 * The hooks of a worker.
 * @typedef {object} HookCalls
 * @property {(hook: Kind|'onConnect') => boolean} has
 * @property {(hook: Kind, connection: Connection, args: readonly unknown[]) => Verdict|Promise<Verdict>}
 *   callFor the promise never rejects
 * @property {(hook: Kind) => HookRefusal} refuseBusy counts a refusal because too much waits
 */

/** @type {Verdict} */
const ALLOWED = Object.freeze({ refusal: null, answer: { payload: null } });

/** @implements {CommandPublisher} */
export class HookGate {
  /**
   * @param {object} parts
   * @param {HookCalls} parts.hooks
   * @param {Pick<import('../hub/hub.js').Hub, 'rooms'>} parts.hub
   * @param {import('./order.js').CommandOrder<Verdict>} parts.order
   * @param {CommandPublisher} parts.publisher
   * @param {import('./replies.js').Replies} parts.replies
   */
  constructor({ hooks, hub, order, publisher, replies }) {
    this.hooks = hooks;
    this.hub = hub;
    this.order = order;
    this.publisher = publisher;
    this.replies = replies;
  }

  /**
   * A handler that waits for the hooks of the commands before it.
   * @param {Handler} handler
   * @returns {Handler}
   */
  inOrder(handler) {
    return (connection, command) => {
      const held = this.order.hold(connection, command);
      if (held === 'passes') handler(connection, command);
      else if (held !== 'waits') this.#refuse(connection, this.hooks.refuseBusy(held), command.id);
    };
  }

  /**
   * Asks onJoin whether a connection may be in a room. If it is in the room, or joining it, it has
   * been allowed.
   * @param {Connection} connection
   * @param {string} name of the room
   * @param {(refusal: HookRefusal|null) => void} act not called if the connection has closed
   */
  enter(connection, name, act) {
    if (this.hub.rooms.get(name)?.has(connection)) return act(null);
    if (this.order.isFull) return act(this.hooks.refuseBusy('onJoin'));
    // Commands after a join wait even if there is no onJoin. Otherwise all their publishes would
    // take effect at once when the join is answered.
    const verdict = this.hooks.has('onJoin')
      ? this.hooks.callFor('onJoin', connection, [name])
      : ALLOWED;
    this.order.after(connection, 'onJoin', 0, verdict, ({ refusal }, done) => {
      if (connection.isOpen) act(refusal);
      const room = this.hub.rooms.get(name);
      if (room?.isJoining(connection)) room.afterJoin(connection, done);
      else done();
    });
  }

  /**
   * Publishes if onPublish allows it. When the hook has been called, the connection may close: the
   * message is published nevertheless, as without hooks. A repetition counts as one after the hook
   * has changed it, because `options` have the fingerprint of the client's payload.
   * @type {CommandPublisher['publishFor']}
   */
  publishFor(listener, connection, id, room, publication, options) {
    const publish = (/** @type {Buffer} */ allowed) =>
      this.publisher.publishFor(listener, connection, id, room, allowed, options);
    if (!this.hooks.has('onPublish')) return publish(publication);
    if (this.order.isFull) return this.#refuse(connection, this.hooks.refuseBusy('onPublish'), id);
    const payload = JSON.parse(payloadText(publication));
    const verdict = this.hooks.callFor('onPublish', connection, [room, payload]);
    const { length } = publication;
    this.order.after(connection, 'onPublish', length, verdict, ({ refusal, answer }, done) => {
      const { payload: changed } = answer;
      if (refusal !== null) this.#refuse(connection, refusal, id);
      else publish(changed === null ? publication : withPayload(publication, changed));
      done();
    });
  }

  /**
   * @param {Connection} connection
   * @param {HookRefusal} refusal
   * @param {Id} id
   */
  #refuse(connection, { code, message }, id) {
    this.replies.error(connection, code, id, undefined, message);
  }
}
