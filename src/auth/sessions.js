// sessions.js: a worker's authenticated connections, by user and by the minute in which their token
// expires. They are closed in the second of the expiry, but there are only sets for minutes: most
// sets for a second would have one connection. Each sweep looks at one set.

import { CLOSES } from '../protocol/codes.js';
import { AppSession, Session } from './session.js';

const MINUTE_S = 60;

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
  /** Connections by the minute since 1970 in which they are closed. @type {Map<number, Set<Connection>>} */
  #expiring = new Map();
  #sweptS;

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
    this.now = now;
    this.#sweptS = Math.floor(now() / 1000);
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
    deleteFrom(this.#expiring, minuteOf(session.endS), connection);
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
    connection.endSession();
    this.#deleteFromUser(session.user, connection);
    deleteFrom(this.#expiring, minuteOf(session.endS), connection);
    session.lease?.release();
    this.counters.sessions--;
  }

  /** Closes the connections whose tokens have expired. Call it every second. */
  sweep() {
    const nowS = Math.floor(this.now() / 1000);
    const sweptS = this.#sweptS;
    this.#sweptS = nowS;
    const expired = [];
    for (const minute of this.#minutes(minuteOf(sweptS + 1), minuteOf(nowS))) {
      for (const connection of this.#expiring.get(minute) ?? NO_CONNECTIONS) {
        const endS = connection.session.endS;
        if (endS > sweptS && endS <= nowS && connection.isOpen) expired.push(connection);
      }
    }
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

  /**
   * Minutes that may have connections. If the clock jumped, there are fewer sets than minutes.
   * @param {number} from @param {number} to
   */
  #minutes(from, to) {
    return to - from > this.#expiring.size
      ? [...this.#expiring.keys()].filter((minute) => minute >= from && minute <= to)
      : Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => from + i);
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
    const endS = Math.max(Math.ceil(identity.expiresAtMs / 1000), this.#sweptS + 1);
    const granted = connection.session.granted;
    const OwnSession = identity.app ? AppSession : Session;
    connection.beginSession(new OwnSession(identity, lease, endS, granted));
    addTo(this.#expiring, minuteOf(endS), connection);
  }
}

/** @param {number} second since 1970 */
function minuteOf(second) {
  return Math.floor(second / MINUTE_S);
}

/** @type {ReadonlySet<Connection>} */
const NO_CONNECTIONS = new Set();

/** @param {Map<number, Set<Connection>>} map @param {number} key @param {Connection} connection */
function addTo(map, key, connection) {
  const set = map.get(key);
  if (set === undefined) map.set(key, new Set([connection]));
  else set.add(connection);
}

/** @param {Map<number, Set<Connection>>} map @param {number} key @param {Connection} connection */
function deleteFrom(map, key, connection) {
  const set = map.get(key);
  if (set?.delete(connection) && set.size === 0) map.delete(key);
}
