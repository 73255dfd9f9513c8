// identities.js: who connections are, for every door: they enter the hub as their token or the hook
// onConnect names them, may sign in or renew their token later, and leave.

import { refusal } from '../protocol/refusal.js';

/** @import { Identity } from '../auth/claims.js' */
/** @import { Credentials } from '../auth/credentials.js' */
/** @import { Lease } from '../auth/session.js' */
/** @import { ReadClaims } from '../auth/verifier.js' */
/** @import { Connection } from '../hub/connection.js' */
/** @import { RefusalCode } from '../protocol/codes.js' */
/** @import { Refusal } from '../protocol/refusal.js' */

/**
 * Lets connections into the hub, after the hook onConnect.
 * @typedef {Pick<import('../auth/authentication.js').Authentication,
 *   'isRequired'|'identify'|'admitConnection'|'leave'>} Entrance
 */

/**
 * @typedef {object} IdentityParts
 * @property {Pick<import('../hub/hub.js').Hub, 'addConnection'|'removeConnection'>} hub
 * @property {Pick<import('./lane.js').Lane, 'after'|'forget'>} lane
 * @property {Pick<import('./waiting-joins.js').WaitingJoins, 'forgetConnection'>} waiting
 * @property {Entrance|null} [entrance] null if neither tokens nor hooks are configured
 * @property {Pick<import('../auth/sessions.js').Sessions, 'begin'|'renewSession'|'end'|'isRevoked'>}
 *   [sessions] of connections with a user
 * @property {Pick<import('../auth/user-places.js').UserPlaces, 'isOff'|'takePlace'>} [userPlaces] limits
 *   connections per user
 * @property {Pick<import('../auth/verifier.js').TokenVerifier, 'verify'>|null} [verifier] null if no
 *   tokens are configured
 */

export class Identities {
  /** @param {IdentityParts} parts */
  constructor({ hub, lane, waiting, entrance = null, sessions, userPlaces, verifier = null }) {
    this.hub = hub;
    this.lane = lane;
    this.waiting = waiting;
    this.entrance = entrance;
    this.sessions = sessions;
    this.userPlaces = userPlaces;
    this.verifier = verifier;
  }

  /** Must each connection have a token? */
  get isRequired() {
    return this.entrance?.isRequired ?? false;
  }

  /**
   * Checks the token that a command brings, then asks onConnect.
   * @param {string|null} token
   * @param {Parameters<Entrance['identify']>[1]} handshake @param {Parameters<Entrance['identify']>[2]} door
   * @param {ReadClaims} readClaims
   * @returns {Credentials|Promise<Credentials>|null} never rejects; null: nothing checks it
   */
  identify(token, handshake, door, readClaims) {
    return this.entrance?.identify(token, handshake, door, readClaims) ?? null;
  }

  /**
   * Lets a connection into the hub, or refuses it there.
   * @param {Connection} connection @param {Credentials|null} credentials
   * @param {(connection: Connection) => void} [onSession] in place of the usual listener
   */
  enterSession(connection, credentials, onSession) {
    if (this.entrance === null) this.hub.addConnection(connection);
    else this.entrance.admitConnection(connection, credentials, onSession);
  }

  /** Its socket is closed. Its waiting commands are lost. @param {Connection} connection */
  leave(connection) {
    this.waiting.forgetConnection(connection);
    if (this.entrance === null) {
      this.sessions?.end(connection);
      this.hub.removeConnection(connection);
    } else this.entrance.leave(connection);
    this.lane.forget(connection);
  }

  /**
   * Verifies the token of a command. Later commands wait.
   * @param {Connection} connection @param {string} token @param {ReadClaims} readClaims
   * @param {'join'|'token'} kind of commands that do not wait
   * @param {(identity: Identity|null, code: RefusalCode|'', told: string) => void} act not called if
   *   the connection has closed. Null: refused by that code; `told`: why, if clients are told
   */
  verifyToken(connection, token, readClaims, kind, act) {
    const { verifier } = this;
    if (verifier === null) return act(null, 'NO_TOKENS', '');
    const verified = async () => {
      try {
        return {
          identity: await verifier.verify(token, readClaims),
          code: /** @type {RefusalCode|''} */ (''),
          told: '',
        };
      } catch (error) {
        const { code, told = '' } = /** @type {{code?: unknown, told?: string}} */ (error);
        if (typeof code !== 'string') throw error;
        return { identity: null, code: /** @type {RefusalCode} */ (code), told };
      }
    };
    this.lane.after(connection, kind, token.length, verified(), ({ identity, code, told }) => {
      if (!connection.isOpen) return;
      // It may be revoked by now.
      if (identity !== null && this.isRevoked(identity)) act(null, 'INVALID_TOKEN', '');
      else act(identity, code, told);
    });
  }

  /**
   * Takes a place for the user of a connection that is in the hub, and begins its session. It
   * replaces one that a hook has named. Later commands wait.
   * @param {Connection} connection @param {Identity} identity
   * @param {(refused: Refusal|null) => void} act not called if the connection has closed
   */
  signIn(connection, identity, act) {
    if (this.userPlaces === undefined || this.userPlaces.isOff) {
      this.#beginSession(connection, identity, null);
      return act(null);
    }
    const placed = this.userPlaces.takePlace(identity).catch(() => UNCOUNTED);
    this.lane.after(connection, 'token', 0, placed, ({ lease, refusal: refused }) => {
      if (!connection.isOpen) return lease?.release();
      if (refused === null) this.#beginSession(connection, identity, lease);
      act(refused);
    });
  }

  /** @param {Connection} connection @param {Identity} identity @param {Lease|null} lease */
  #beginSession(connection, identity, lease) {
    this.sessions?.end(connection);
    this.sessions?.begin(connection, identity, lease);
  }

  /** @param {Connection} connection which has signed in */
  signOut(connection) {
    this.sessions?.end(connection);
  }

  /** A new token of the same user. @param {Connection} connection @param {Identity} identity */
  renewIdentity(connection, identity) {
    if (!connection.session.isAnonymous) this.sessions?.renewSession(connection, identity);
  }

  /** @param {Identity} identity */
  isRevoked(identity) {
    return this.sessions?.isRevoked(identity) ?? false;
  }
}

/** The primary is gone. @type {Credentials} */
const UNCOUNTED = Object.freeze({
  identity: null,
  lease: null,
  refusal: refusal('UNAVAILABLE'),
});
