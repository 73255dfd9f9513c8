// hook-gate.js: asks hooks about what a connection does: onJoin before it joins or reads a room,
// others about its messages. All other checks come first, because they cost less. The HTTP API asks
// no hooks.

import { refusal } from '../protocol/refusal.js';

/** @import { Credentials } from '../auth/credentials.js' */
/** @import { Connection } from '../hub/connection.js' */
/** @import { Refusal } from '../protocol/refusal.js' */

/**
 * @typedef {object} Verdict
 * @property {Refusal|null} refusal null: allowed
 * @property {{payload: Buffer|null, audience: string, audiences: readonly string[]}} answer the changed
 *   payload or the result, JSON; null: none. `audience` of the message instead of its own; '': the
 *   same. `audiences` of the user
 */

/** @typedef {'onJoin'|'onPublish'|'onRpc'|'onSend'} CalledHook */

/**
 * What a hook is told of a message beside its payload.
 * @typedef {{key?: string, audience?: readonly string[]}} About `key`: in a room with state
 */

/**
 * @typedef {object} HookCalls
 * @property {(hook: 'onConnect'|CalledHook) => boolean} has
 * @property {(hook: CalledHook, connection: Connection, args: readonly unknown[], about?: About) => Verdict|Promise<Verdict>}
 *   callFor the promise never rejects
 */

/**
 * @typedef {object} EarlyHookCalls
 * @property {(connection: Connection, credentials: Credentials|null, rooms: readonly string[]) => Promise<(Refusal|null)[]>}
 *   askJoins asks onJoin about each room before the connection enters; never rejects
 */

/** @type {HookCalls & EarlyHookCalls} */
export const NO_HOOKS = Object.freeze({
  has: () => false,
  callFor: () => ALLOWED,
  askJoins: async () => [],
});

export class HookGate {
  /**
   * @param {object} parts
   * @param {HookCalls & EarlyHookCalls} parts.hooks
   * @param {Pick<import('../hub/hub.js').Hub, 'rooms'>} parts.hub
   * @param {import('./lane.js').Lane} parts.lane
   * @param {Pick<import('../observability/counters.js').Counters, 'readsRefused'>} parts.counters
   */
  constructor({ hooks, hub, lane, counters }) {
    this.hooks = hooks;
    this.hub = hub;
    this.lane = lane;
    this.counters = counters;
  }

  /**
   * Asks a hook about a message, unless too many commands of the worker wait.
   * @param {CalledHook} hook which there is @param {Connection} connection
   * @param {readonly unknown[]} args @param {number} bytes that are kept meanwhile
   * @param {(verdict: Verdict) => void} act also called if the connection has closed
   * @param {About} [about] the message
   */
  askAbout(hook, connection, args, bytes, act, about) {
    if (this.lane.isFull) {
      this.counters.readsRefused++;
      return act(TOO_MANY);
    }
    const verdict = this.hooks.callFor(hook, connection, args, about);
    this.lane.after(connection, 'message', bytes, verdict, act);
  }

  /**
   * Asks onJoin, unless the connection is in the room or joining it, which has been allowed.
   * @param {Connection} connection @param {string} name of the room
   * @param {(refusal: Refusal|null) => void} act not called if the connection has closed
   */
  askToJoin(connection, name, act) {
    if (!this.hooks.has('onJoin') || this.hub.rooms.get(name)?.has(connection)) return act(null);
    const verdict = this.hooks.callFor('onJoin', connection, [name]);
    this.lane.after(connection, 'join', 0, verdict, ({ refusal, answer }) => {
      // If the HTTP API has let it in meanwhile, what that gave stays.
      const isIn = this.hub.rooms.get(name)?.has(connection) ?? false;
      if (!isIn) connection.giveAudiences(name, answer.audiences);
      // Clients take the failure of a hook for a sign that they are not in the room.
      const isDecided = isIn && refusal?.code === 'HOOK_FAILED';
      if (connection.isOpen) act(isDecided ? null : refusal);
    });
  }

  /**
   * Asks before the connection is in the hub. Null: there is no such hook.
   * @param {Connection} connection @param {Credentials|null} credentials
   * @param {readonly string[]} names of rooms
   */
  askEarly(connection, credentials, names) {
    const { hooks } = this;
    return hooks.has('onJoin') ? hooks.askJoins(connection, credentials, names) : null;
  }
}

const NO_ANSWER = Object.freeze({ payload: null, audience: '', audiences: Object.freeze([]) });
/** @type {Verdict} */
const ALLOWED = Object.freeze({ refusal: null, answer: NO_ANSWER });
/** @type {Verdict} */
const TOO_MANY = Object.freeze({
  refusal: refusal('UNAVAILABLE', undefined, 0),
  answer: NO_ANSWER,
});
