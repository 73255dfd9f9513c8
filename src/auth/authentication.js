// authentication.js: authenticates connections by tokens, and closes them when the tokens expire.
//
//   handshake with a token    -> verified before the answer -> session, or closed with a code
//   handshake without one     -> `required`: the lobby, for 5 s; `optional`: anonymous
//   hello or auth with a token -> session, or the renewal of one
//
// Before a session begins, the hook onConnect is asked: by hooks/entrance.js for a handshake, by
// `confirm` for a command.
//
// If the token of a handshake is refused, the answer is still 101, because pages see only close
// codes.

import { REFUSALS } from '../protocol/codes.js';
import { refusal, toClose } from '../protocol/refusal.js';
import { TokenError } from './token-error.js';
import { tokenOf } from './token-place.js';
import { UserPlaces } from './user-places.js';

const OTHER_USER =
  'The token names another user than that of the connection. Open a new connection for it.';

/** @import { Connection } from '../hub/connection.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { AppPlaces } from './app-places.js' */
/** @import { Identity } from './claims.js' */
/** @import { Credentials } from './credentials.js' */
/** @import { Session } from './session.js' */
/** @import { ReadClaims } from './verifier.js' */

/**
 * @callback Confirm
 * @param {Connection} connection without a session
 * @param {string} token @param {Credentials} credentials of the token, without a refusal
 * @returns {Credentials|Promise<Credentials>} the same, or a refusal after releasing the lease; the
 *   promise never rejects
 */

export class Authentication {
  /**
   * @param {object} parts @param {import('../config/settings.js').Config} parts.config
   * @param {import('./verifier.js').TokenVerifier} parts.verifier
   * @param {import('./sessions.js').Sessions} parts.sessions
   * @param {import('./lobby.js').Lobby} parts.lobby
   * @param {{addConnection(connection: Connection): void, removeConnection(connection: Connection): void}} parts.hub
   * @param {import('../backend/places.js').Places} parts.places
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {AppPlaces|null} [parts.appPlaces] null: there are no apps
   * @param {(user: string) => void} [parts.onUserRefused] at the limit of connections
   * @param {{error(fields: object, text: string): void}} parts.log
   */
  constructor(parts) {
    const { config, verifier, sessions, lobby, hub, places, counters, log } = parts;
    this.isRequired = config.auth === 'required';
    this.verifier = verifier;
    this.sessions = sessions;
    this.lobby = lobby;
    this.hub = hub;
    const { onUserRefused, appPlaces = null } = parts;
    this.userPlaces = new UserPlaces({ config, places, counters, onRefused: onUserRefused });
    this.appPlaces = appPlaces;
    this.counters = counters;
    this.log = log;
    /** @type {Confirm} */
    this.confirm = (_connection, _token, credentials) => credentials;
    /** @type {(connection: Connection) => void} */
    this.onSession = () => {};
    /** @type {(connection: Connection, refusal: Refusal) => void} */
    this.onRefused = () => {};
  }

  /**
   * @param {object} listeners
   * @param {(connection: Connection) => void} listeners.onSession a handshake's token was accepted
   * @param {(connection: Connection, refusal: Refusal) => void} listeners.onRefused before a close
   */
  listen({ onSession, onRefused }) {
    this.onSession = onSession;
    this.onRefused = onRefused;
  }

  /** @param {Confirm} confirm */
  confirmBy(confirm) {
    this.confirm = confirm;
  }

  /**
   * @param {import('node:http').IncomingMessage} request @param {string} [_address]
   * @param {{readonly usesTokens: boolean, readonly asksLater?: boolean}} [door] absent: native
   * @returns {Credentials|Promise<Credentials>|null} null: no token. The promise never rejects.
   */
  checkToken(request, _address, door) {
    if (door?.usesTokens === false || door?.asksLater) return null;
    const token = tokenOf(request);
    return token === null ? null : this.#credentialsOf(token);
  }

  /**
   * Checks a token from a command of a door's client.
   * @param {string|null} token
   * @param {unknown} _handshake @param {unknown} _door
   * @param {ReadClaims} read @returns {Credentials|Promise<Credentials>|null} as `check`
   */
  identify(token, _handshake, _door, read) {
    return token === null ? null : this.#credentialsOf(token, read);
  }

  /**
   * @param {Connection} connection @param {Credentials|null} credentials null: no token
   * @param {(connection: Connection) => void} [onSession] instead of the usual listener
   */
  admitConnection(connection, credentials, onSession = this.onSession) {
    if (credentials === null) {
      if (this.isRequired && connection.transport.door.usesTokens)
        this.lobby.admitGuest(connection);
      else this.hub.addConnection(connection);
      return;
    }
    const refused = credentials.refusal ?? this.#lateRefusal(credentials);
    if (refused !== null) return this.#refuseToken(connection, refused);
    this.hub.addConnection(connection);
    // A door may accept tokens without a user, and decides what they permit.
    if (credentials.identity?.user !== '') this.#beginSession(connection, credentials);
    onSession(connection);
  }

  /** May be called twice. @param {Connection} connection */
  leave(connection) {
    this.lobby.removeGuest(connection);
    this.sessions.end(connection);
    this.hub.removeConnection(connection);
  }

  /**
   * Reads the token of a command. If it is refused, a connection in the lobby is closed. Any other
   * stays as it was, unless a hook refuses its user. Never rejects.
   * @param {Connection} connection @param {string} token @returns {Promise<Refusal|null>}
   */
  async authenticate(connection, token) {
    const { session, isHeld } = connection;
    this.lobby.received(connection, true);
    const credentials = session.isAnonymous
      ? await this.#confirmed(connection, token)
      : await this.#renewalOf(session, token);
    if (!connection.isOpen) {
      credentials.lease?.release();
      return refusal('PERMISSION_DENIED');
    }
    const refused = credentials.refusal ?? this.#lateRefusal(credentials);
    if (refused !== null) {
      if (isHeld || REFUSALS[refused.code].isFinal) {
        this.lobby.removeGuest(connection);
        this.#refuseToken(connection, refused);
      }
      return refused;
    }
    this.lobby.removeGuest(connection);
    if (isHeld) this.hub.addConnection(connection);
    if (session.isAnonymous) this.#beginSession(connection, credentials);
    else this.sessions.renewSession(connection, /** @type {Identity} */ (credentials.identity));
    return null;
  }

  /** A connection that may lack a session has sent a command without a token. @param {Connection} connection */
  sentNoToken(connection) {
    this.lobby.received(connection, false);
  }

  /** @param {Connection} connection @param {Credentials} credentials */
  #beginSession(connection, { identity, lease }) {
    this.sessions.begin(connection, /** @type {Identity} */ (identity), lease);
  }

  /**
   * Has the token been revoked since its verification, when there was no connection to close yet?
   * @param {Credentials} credentials without a refusal @returns {Refusal|null}
   */
  #lateRefusal({ identity, lease }) {
    if (!this.sessions.isRevoked(/** @type {Identity} */ (identity))) return null;
    lease?.release();
    return refusal('INVALID_TOKEN');
  }

  /** @param {Connection} connection @param {Refusal} refused */
  #refuseToken(connection, refused) {
    this.onRefused(connection, refused);
    connection.close(toClose(refused));
  }

  /** Never throws. @param {string} token @param {ReadClaims} [read] */
  #credentialsOf(token, read) {
    try {
      const identity = this.verifier.verify(token, read);
      if (identity instanceof Promise || identity.app !== null || !this.userPlaces.isOff)
        return this.#placeFor(identity);
      return { identity, lease: null, refusal: null };
    } catch (error) {
      return refusedBy(this.#refusalOf(error));
    }
  }

  /** @param {Connection} connection @param {string} token @returns {Promise<Credentials>} */
  async #confirmed(connection, token) {
    const credentials = await this.#credentialsOf(token);
    return credentials.refusal === null && connection.isOpen
      ? this.confirm(connection, token, credentials)
      : credentials;
  }

  /** @param {Session} session @param {string} token @returns {Promise<Credentials>} */
  async #renewalOf(session, token) {
    try {
      const identity = await this.verifier.verify(token);
      // Another user would be in rooms, and in presence, under two names.
      return identity.user === session.user
        ? { identity, lease: null, refusal: null }
        : refusedBy(refusal('PERMISSION_DENIED', OTHER_USER));
    } catch (error) {
      return refusedBy(this.#refusalOf(error));
    }
  }

  /** @param {Identity|Promise<Identity>} verified @returns {Promise<Credentials>} never rejects */
  async #placeFor(verified) {
    try {
      const identity = await verified;
      if (identity.user === '') return { identity, lease: null, refusal: null };
      const placed = await this.userPlaces.takePlace(identity);
      const { app } = identity;
      if (app === null || placed.refusal !== null) return placed;
      return await /** @type {AppPlaces} */ (this.appPlaces).takePlace(app, placed);
    } catch (error) {
      return refusedBy(this.#refusalOf(error));
    }
  }

  /** @param {unknown} error of the verifier, or of the places @returns {Refusal} */
  #refusalOf(error) {
    if (error instanceof TokenError) return error;
    // UNAVAILABLE: the relay could not be asked for a place. Otherwise it is our fault.
    if (/** @type {{code?: unknown}} */ (error).code !== 'UNAVAILABLE')
      this.log.error({ err: error }, 'a token could not be checked');
    return refusal('UNAVAILABLE');
  }
}

/** @param {Refusal} refused @returns {Credentials} */
function refusedBy(refused) {
  return { identity: null, lease: null, refusal: refused };
}
