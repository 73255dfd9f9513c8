// auth.js: the command auth, the token of hello, and the rooms that a token names.

import { readSince, readToken } from '../../protocol/decode.js';
import { encodeAuthenticated } from '../../protocol/encode.js';

const BAD_TOKEN = 'token is not a string.';
/** The commands that a connection may send before it has authenticated. */
const BEFORE_TOKEN = new Set(['hello', 'auth', 'ping']);

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Gate, Handler } from './dispatch.js' */

/**
 * @typedef {Pick<import('../../auth/authentication.js').Authentication,
 *   'authenticate'|'sentNoToken'|'listen'>} Authenticator
 */

/**
 * @typedef {object} TokenCommand
 * @property {Connection} connection @property {string} token
 * @property {import('../../operations/replies.js').Id} id
 * @property {unknown} since positions in the token's rooms
 */

/** @implements {Gate} */
export class AuthCommands {
  /**
   * @param {object} parts
   * @param {Authenticator} parts.authenticator @param {import('../../hub/hub.js').Hub} parts.hub
   * @param {import('../../operations/joins.js').Joins} parts.joins
   * @param {import('./join.js').JoinCommands} parts.joinCommands
   * @param {import('./session.js').SessionCommands} parts.session
   * @param {import('../../operations/lane.js').Lane} parts.lane
   * @param {import('../../operations/replies.js').Replies} parts.replies
   */
  constructor({ authenticator, hub, joins, joinCommands, session, lane, replies }) {
    this.authenticator = authenticator;
    this.hub = hub;
    this.joins = joins;
    this.joinCommands = joinCommands;
    this.session = session;
    this.lane = lane;
    this.replies = replies;
    authenticator.listen({
      onSession: (connection) => this.#autojoin(connection, undefined),
      onRefused: (connection, refusal) => this.replies.refuse(connection, refusal),
    });
  }

  /** @type {Gate['admits']} */
  admits(connection, type) {
    if (BEFORE_TOKEN.has(type)) return true;
    this.authenticator.sentNoToken(connection);
    return false;
  }

  /** @type {Handler} */
  hello(connection, command) {
    const token = readToken(command);
    if (token === null) return this.replies.invalid(connection, command.id, BAD_TOKEN);
    // The command is a slice of a read: copies what is needed later.
    const { id, since } = command;
    if (token !== undefined) {
      this.#authenticate({ connection, token, id, since }, () =>
        this.session.welcome(connection, id),
      );
      return;
    }
    if (connection.isHeld) this.authenticator.sentNoToken(connection);
    this.session.welcome(connection, id);
    if (since !== undefined) this.#autojoin(connection, since);
  }

  /** @type {Handler} */
  auth(connection, command) {
    const token = readToken(command);
    if (token === null || token === undefined)
      return this.replies.invalid(connection, command.id, BAD_TOKEN);
    const { id } = command;
    this.#authenticate({ connection, token, id, since: undefined }, () => {
      const { session } = connection;
      if (session.isAnonymous) return; // closed meanwhile
      const { expiresAtMs } = session.identity;
      connection.send(encodeAuthenticated(session.name, expiresAtMs, id));
    });
  }

  /** @param {TokenCommand} command @param {() => void} reply */
  #authenticate({ connection, token, id, since }, reply) {
    const { isHeld, session: before } = connection;
    const answer = this.authenticator.authenticate(connection, token);
    this.lane.after(connection, 'token', 0, answer, (refusal) => {
      if (refusal === null) {
        reply();
        this.joins.expelForbidden(connection);
        this.#showUser(connection, before);
        this.#autojoin(connection, since);
        return;
      }
      // A connection that is being closed has its error already.
      if (!isHeld && connection.isOpen) this.replies.refuse(connection, refusal, id);
    });
  }

  /** @param {Connection} connection @param {Connection['session']} before the new token */
  #showUser(connection, before) {
    const { session } = connection;
    if (session.isAnonymous) return; // closed meanwhile
    const isShown = !before.isAnonymous && session.identity.hasInfoOf(before.identity);
    if (!isShown) this.joins.showUser(connection);
  }

  /**
   * Joins the token's rooms, also those that the connection is in already if the client has sent a
   * position.
   * @param {Connection} connection @param {unknown} sinces by room, as sent
   */
  #autojoin(connection, sinces) {
    const { session } = connection;
    for (const given of session.autojoin) {
      const since = readSince(positionIn(sinces, given));
      const name = session.validRoomOf(given);
      const room = name === null ? undefined : this.hub.rooms.get(name);
      if (name !== null && (!room?.has(connection) || (since !== null && room.sync !== null)))
        this.joinCommands.autojoin(connection, name, since);
    }
  }
}

/** @param {unknown} sinces @param {string} room @returns {unknown} undefined: none */
function positionIn(sinces, room) {
  if (typeof sinces !== 'object' || sinces === null || !Object.hasOwn(sinces, room))
    return undefined;
  return /** @type {Record<string, unknown>} */ (sinces)[room] ?? undefined;
}
