// entrance.js: calls onConnect and onDisconnect around the authentication.
//
//   handshake -> token verified -> onConnect -> open -> … -> closed -> onDisconnect
//                 a token in a command -> verified -> onConnect -> session
//
// If a token is refused, no hook is called. Without a token, onConnect may name the user, and the
// connection then counts as authenticated. When a later token names the user of an anonymous
// connection, onConnect is called again. After onConnect lets a connection in, onDisconnect is
// called once, even if the connection never opens.

import { Identity } from '../auth/claims.js';
import { ALL_ROOMS } from '../auth/rights.js';
import { tokenOf } from '../auth/token-place.js';
import { refusal, toClose } from '../protocol/refusal.js';
import { partsOf } from '../protocol/url-parts.js';
import { Visitor } from './visitor.js';

/** @import { Credentials } from '../auth/credentials.js' */
/** @import { Lease } from '../auth/session.js' */
/** @import { Connection } from '../hub/connection.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { HookName, Hooks, Verdict } from './hooks.js' */
/** @import { Transport } from './types.js' */
/** @import { IncomingMessage } from 'node:http' */

/**
 * What onConnect gets of a request.
 * @typedef {{headers: IncomingMessage['headers'], url: string, address: string,
 *   transport: Transport, data?: unknown}} Handshake `data` was sent with the token
 */

/** @typedef {{readonly name: string, readonly usesTokens: boolean, readonly asksLater?: boolean}} Door */
/** @typedef {import('../auth/verifier.js').ReadClaims} ReadClaims */

/** @type {Door} */
const NATIVE = Object.freeze({ name: 'native', usesTokens: true });

/**
 * @typedef {Pick<import('../auth/authentication.js').Authentication,
 *   'isRequired'|'checkToken'|'identify'|'admitConnection'|'leave'>} Authentication
 */

export class HookEntrance {
  /** Before the connection opens. @type {WeakMap<Credentials, {visitor: Visitor, place: Lease|null}>} */
  #requests = new WeakMap();
  /** After it has opened. @type {WeakMap<Connection, Visitor>} */
  #visitors = new WeakMap();
  /** The handshakes of visitors that a later token may name. @type {WeakMap<Visitor, Handshake>} */
  #handshakes = new WeakMap();

  /**
   * @param {object} parts @param {Hooks} parts.hooks
   * @param {Authentication|null} parts.authentication null if no tokens are configured
   * @param {Pick<import('../auth/sessions.js').Sessions, 'begin'|'end'|'isRevoked'>} parts.sessions
   *   which the authentication uses, too
   * @param {import('../auth/user-places.js').UserPlaces} parts.userPlaces
   * @param {{addConnection(connection: Connection): void, removeConnection(connection: Connection): void}} parts.hub
   */
  constructor({ hooks, authentication, sessions, userPlaces, hub }) {
    this.hooks = hooks;
    this.authentication = authentication;
    this.sessions = sessions;
    this.userPlaces = userPlaces;
    this.hub = hub;
    /** @type {(connection: Connection, refusal: Refusal) => void} */
    this.onRefused = () => {};
  }

  /** @param {(connection: Connection, refusal: Refusal) => void} onRefused called before the close */
  listen(onRefused) {
    this.onRefused = onRefused;
  }

  get isRequired() {
    return this.authentication?.isRequired ?? false;
  }

  /**
   * Checks the token of a handshake, then calls onConnect.
   * @param {IncomingMessage} request @param {string} address @param {Door} [door]
   * @returns {Credentials|Promise<Credentials>|null} never rejects; null: the door asks later
   */
  checkToken(request, address, door = NATIVE) {
    if (door.asksLater) return null;
    const { headers, url = '' } = request;
    const checked = this.authentication?.checkToken(request, address, door) ?? NOBODY;
    const token = door.usesTokens ? tokenOf(request) : null;
    return this.#askAfter(checked, { headers, url, address }, door, token);
  }

  /**
   * The same for doors whose clients send the token in a command.
   * @param {string|null} token @param {Omit<Handshake, 'transport'>} handshake
   * @param {Door} door @param {ReadClaims} read
   * @returns {Credentials|Promise<Credentials>} never rejects
   */
  identify(token, handshake, door, read) {
    const checked = this.authentication?.identify(token, handshake, door, read) ?? NOBODY;
    return this.#askAfter(checked, handshake, door, token);
  }

  /**
   * @param {Credentials|Promise<Credentials>} checked
   * @param {Omit<Handshake, 'transport'>} request @param {Door} door @param {string|null} token
   * @returns {Credentials|Promise<Credentials>}
   */
  #askAfter(checked, request, door, token) {
    return checked instanceof Promise
      ? checked.then((credentials) => this.#askOnConnect(request, door, token, credentials))
      : this.#askOnConnect(request, door, token, checked);
  }

  /**
   * @param {Omit<Handshake, 'transport'>} request @param {Door} door @param {string|null} token
   * @param {Credentials} credentials of the token @returns {Credentials|Promise<Credentials>}
   */
  #askOnConnect(request, door, token, credentials) {
    if (credentials.refusal !== null) return credentials;
    const { user: named = '', info = null } = credentials.identity ?? {};
    const user = named === '' ? null : named;
    const { headers, url, address, data } = request;
    const transport = transportOf(url, door);
    const visitor = new Visitor({ address, transport, user, info });
    if (!this.hooks.has('onConnect')) return this.#admitted(visitor, credentials);
    /** @type {Handshake} */
    const handshake = { headers, url, address, transport, data };
    if (user === null && this.authentication !== null && door.usesTokens && !door.asksLater)
      this.#handshakes.set(visitor, handshake);
    const verdict = this.hooks.call('onConnect', [requestOf(handshake, token, user)]);
    return verdict instanceof Promise
      ? verdict.then((answer) => this.#conclude(visitor, credentials, answer))
      : this.#conclude(visitor, credentials, verdict);
  }

  /**
   * @param {Visitor} visitor @param {Credentials} credentials of the token
   * @param {Verdict} verdict @returns {Credentials|Promise<Credentials>}
   */
  #conclude(visitor, credentials, verdict) {
    const refused = this.#refusalOf(credentials, verdict);
    if (refused !== null) return refused;
    const { answer } = verdict;
    const { user, info, audiences } = answer;
    visitor.welcome(answer);
    if (user !== null) this.#handshakes.delete(visitor);
    if (user === null || credentials.identity !== null)
      return this.#admitted(visitor, holding(credentials, audiences));
    const named = Identity.named(user, info).withAudiences(audiences);
    if (this.userPlaces.isOff)
      return this.#admitted(visitor, { identity: named, lease: null, refusal: null });
    return this.#place(visitor, named);
  }

  /**
   * Releases the token's lease if onConnect refuses.
   * @param {Credentials} credentials @param {Verdict} verdict
   * @returns {Credentials|null} null: not refused
   */
  #refusalOf({ identity, lease }, { refusal: refused, answer: { user, info, audiences } }) {
    const isOther = identity !== null && user !== null && (user !== identity.user || info !== null);
    const isNobody = audiences.length > 0 && user === null && !identity?.user;
    if (refused === null && !isOther && !isNobody) return null;
    lease?.release();
    const fault = isOther ? 'a user for a connection with a token' : 'audiences without a user';
    return refusedBy(refused ?? this.hooks.reject('onConnect', `onConnect returned ${fault}`));
  }

  /** Calls onConnect for a later token. @type {import('../auth/authentication.js').Confirm} */
  async confirm(connection, token, credentials) {
    const visitor = this.#visitors.get(connection);
    const handshake = visitor && this.#handshakes.get(visitor);
    if (visitor === undefined || handshake === undefined) return credentials;
    const user = credentials.identity?.user ?? null;
    const verdict = await this.hooks.call('onConnect', [requestOf(handshake, token, user)]);
    const refused = this.#refusalOf(credentials, verdict);
    if (refused !== null) return refused;
    // If the token was revoked meanwhile, the authentication refuses it. onConnect is called again
    // for the next token.
    if (this.sessions.isRevoked(/** @type {Identity} */ (credentials.identity))) return credentials;
    this.#handshakes.delete(visitor);
    visitor.welcome(verdict.answer);
    return holding(credentials, verdict.answer.audiences);
  }

  /** Takes a place of the user. @param {Visitor} visitor @param {Identity} identity */
  async #place(visitor, identity) {
    let placed;
    try {
      placed = await this.userPlaces.takePlace(identity);
    } catch {
      placed = refusedBy(refusal('HOOK_FAILED')); // the relay is unavailable
    }
    if (placed.refusal === null) return this.#admitted(visitor, placed);
    this.#left(visitor);
    return placed;
  }

  /** @param {Visitor} visitor @param {Credentials} credentials */
  #admitted(visitor, { identity, lease: place }) {
    // The HTTP server releases the lease when the socket closes, even if no connection opened.
    const release = () => {
      place?.release();
      this.#left(visitor);
    };
    const credentials = { identity, lease: { key: place?.key ?? '', release }, refusal: null };
    this.#requests.set(credentials, { visitor, place });
    return credentials;
  }

  /**
   * Asks onJoin before the connection enters.
   * @param {Connection} connection @param {Credentials|null} credentials
   * @param {readonly string[]} rooms
   * @returns {Promise<(Refusal|null)[]>} for each room; null: the connection may join
   */
  askJoins(connection, credentials, rooms) {
    this.#openConnection(connection, credentials);
    return Promise.all(
      rooms.map(async (room) => {
        const { refusal: refused, answer } = await this.callFor('onJoin', connection, [room]);
        connection.giveAudiences(room, answer.audiences);
        return refused;
      }),
    );
  }

  /** @param {HookName} hook */
  has(hook) {
    return this.hooks.has(hook);
  }

  /**
   * @param {'onJoin'|'onPublish'|'onRpc'|'onSend'} hook @param {Connection} connection
   * @param {readonly unknown[]} args @param {import('../operations/hook-gate.js').About} [about]
   */
  callFor(hook, connection, args, about) {
    return this.hooks.call(hook, [this.#visitors.get(connection), ...args], about);
  }

  /**
   * @param {Connection} connection @param {Credentials|null} credentials of `check`
   * @param {(connection: Connection) => void} [onSession] in place of the usual listener
   */
  admitConnection(connection, credentials, onSession) {
    const place = this.#openConnection(connection, credentials);
    const { authentication } = this;
    const { identity, refusal: refused } = credentials ?? NOBODY;
    if (refused !== null) {
      this.onRefused(connection, refused);
      return connection.close(toClose(refused));
    }
    if (identity !== null && identity.rights === ALL_ROOMS) {
      this.hub.addConnection(connection);
      // Only the user's place: a sign-in may end this session long before the connection closes.
      return this.sessions.begin(connection, identity, place);
    }
    if (authentication === null) return this.hub.addConnection(connection);
    authentication.admitConnection(connection, identity === null ? null : credentials, onSession);
  }

  /** May be called twice. @param {Connection} connection */
  leave(connection) {
    const visitor = this.#visitors.get(connection);
    visitor?.close();
    if (this.authentication !== null) this.authentication.leave(connection);
    else {
      this.sessions.end(connection);
      this.hub.removeConnection(connection);
    }
    if (visitor !== undefined) this.#left(visitor);
  }

  /**
   * @param {Connection} connection @param {Credentials|null} credentials
   * @returns {Lease|null} the place of its user
   */
  #openConnection(connection, credentials) {
    const request = credentials === null ? undefined : this.#requests.get(credentials);
    if (request === undefined) return null;
    const { visitor, place } = request;
    visitor.open(connection);
    this.#visitors.set(connection, visitor);
    return place;
  }

  /** @param {Visitor} visitor */
  #left(visitor) {
    if (visitor.isGone) return;
    visitor.leave();
    if (this.hooks.has('onDisconnect')) this.hooks.disconnected([visitor]);
  }
}

/** @param {string} url @param {Door} door @returns {Transport} */
function transportOf(url, door) {
  if (door.name !== NATIVE.name) return /** @type {Transport} */ (door.name);
  return url.startsWith('/sse') ? 'sse' : 'websocket';
}

/**
 * @param {Handshake} handshake @param {string|null} token @param {string|null} user of the token
 * @returns {import('./types.js').ConnectRequest}
 */
function requestOf({ headers, url, address, transport, data }, token, user) {
  const query = new URLSearchParams(partsOf(url).query);
  const request = { headers: { ...headers }, address, token, query, user, transport };
  return data === undefined ? request : { ...request, data };
}

/** @type {Credentials} */
const NOBODY = Object.freeze({ identity: null, lease: null, refusal: null });

/** @param {Credentials} credentials @param {readonly string[]} audiences which the user holds, too */
function holding(credentials, audiences) {
  const { identity } = credentials;
  if (identity === null || audiences.length === 0) return credentials;
  return { ...credentials, identity: identity.withAudiences(audiences) };
}

/** @param {Refusal} refused @returns {Credentials} */
function refusedBy(refused) {
  return { ...NOBODY, refusal: refused };
}
