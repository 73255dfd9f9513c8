// sessions.js: a worker's authenticated connections, by user and by the time at which their token
// expires.

import { CLOSES } from '../protocol/codes.js';
import { ExpiryWheel } from './expiry-wheel.js';
import { AppSession, Session } from './session.js';

/** Most sets for a second would have one connection. */
const PERIOD_S = 60;

/** @import { Connection } from '../hub/connection.js' */
/** @import { Identity } from './claims.js' */
/** @import { Lease } from './session.js' */

/**
 * Learns which users have connections here, for webhooks.
 * @typedef {object} UserReporter
 * @property {(user: string) => void} connect the first one
 * @property {(user: string) => void} disconnect the last one
 */

export class Sessions {
  /**
   * Most users have one connection, and a Set for each would cost 2 % of a handshake.
   * @type {Map<string, Connection|Set<Connection>>}
   */
  #users = new Map();
  /** @type {ExpiryWheel<Connection>} */
  #expiring;

  /**
   * @param {object} parts
   * @param {Pick<import('./revocations.js').Revocations, 'isRevoked'>} parts.revocations
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {UserReporter|null} [parts.reporter] null: no webhook needs it
   * @param {import('../worker/close-all.js').CloseAll} parts.closeAll
   * @param {() => number} [parts.now] ms since 1970
   */
  constructor({ revocations, counters, reporter = null, closeAll, now = Date.now }) {
    this.revocations = revocations;
    this.reporter = reporter;
    this.counters = counters;
    this.closeAll = closeAll;
    const endOf = (/** @type {Connection} */ { session }) => session.endS;
    this.#expiring = new ExpiryWheel({ endOf, periodS: PERIOD_S, now });
  }

  get users() {
    return this.#users.size;
  }

  /** @param {string} user @returns {ReadonlySet<Connection>} those on this worker */
  connectionsOf(user) {
    const connections = this.#users.get(user);
    if (connections === undefined) return NO_CONNECTIONS;
    return connections instanceof Set ? connections : new Set([connections]);
  }

  /** @param {Identity} identity */
  isRevoked(identity) {
    return this.revocations.isRevoked(identity);
  }

  /** @param {Connection} connection @param {Identity} identity @param {Lease|null} lease */
  begin(connection, identity, lease) {
    this.#beginSession(connection, identity, lease);
    this.#addToUser(identity.user, connection);
    this.counters.sessions++;
  }

  /** @param {Connection} connection with a session @param {Identity} identity */
  renewSession(connection, identity) {
    const session = /** @type {Session} */ (connection.session);
    this.#expiring.removeItem(connection);
    this.#beginSession(connection, identity, session.lease);
  }

  /** @param {Connection} connection with a session @param {number} expiresAtMs infinite: never */
  extend(connection, expiresAtMs) {
    const { identity } = /** @type {Session} */ (connection.session);
    const copy = Object.create(Object.getPrototypeOf(identity));
    this.renewSession(connection, Object.assign(copy, identity, { expiresAtMs }));
  }

  /** May be called twice. @param {Connection} connection */
  end(connection) {
    const { session } = connection;
    if (session.isAnonymous) return;
    this.#expiring.removeItem(connection);
    connection.endSession();
    this.#deleteFromUser(session.user, connection);
    session.lease?.release();
    this.counters.sessions--;
  }

  /** Closes the connections whose tokens have expired. Call it every second. */
  sweep() {
    const expired = this.#expiring.takeDue().filter(({ isOpen }) => isOpen);
    this.counters.closes.expired += expired.length;
    this.closeAll(expired, CLOSES.TOKEN_EXPIRED);
  }

  /** @param {import('../backend/revocations.js').Revocation} revocation in force */
  revoked({ user }) {
    const suspects =
      user === null
        ? [...this.#users.keys()].flatMap((name) => [...this.connectionsOf(name)])
        : [...this.connectionsOf(user)];
    const revoked = suspects.filter(
      ({ isOpen, session }) =>
        isOpen && !session.isAnonymous && this.revocations.isRevoked(session.identity),
    );
    this.counters.closes.revoked += revoked.length;
    this.closeAll(revoked, CLOSES.KICKED);
  }

  /** @param {string} user @param {Connection} connection */
  #addToUser(user, connection) {
    const present = this.#users.get(user);
    if (present === undefined) {
      this.#users.set(user, connection);
      this.reporter?.connect(user);
    } else if (present instanceof Set) present.add(connection);
    else this.#users.set(user, new Set([present, connection]));
  }

  /** @param {string} user @param {Connection} connection */
  #deleteFromUser(user, connection) {
    const present = this.#users.get(user);
    if (present instanceof Set) {
      present.delete(connection);
      if (present.size > 0) return;
    } else if (present !== connection) return;
    this.#users.delete(user);
    this.reporter?.disconnect(user);
  }

  /** @param {Connection} connection @param {Identity} identity @param {Lease|null} lease */
  #beginSession(connection, identity, lease) {
    // A token is accepted for some seconds after its expiry, which may have been swept already.
    const endS = this.#expiring.secondAfter(identity.expiresAtMs / 1000);
    const granted = connection.session.granted;
    const OwnSession = identity.app ? AppSession : Session;
    connection.beginSession(new OwnSession(identity, lease, endS, granted));
    this.#expiring.addItem(connection);
  }
}

/** @type {ReadonlySet<Connection>} */
const NO_CONNECTIONS = new Set();
