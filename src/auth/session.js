// session.js: the user and the rights of an authenticated connection.

import { asciiJson } from './claims.js';

/**
 * A place among the connections of a user; it is given back once. `key` is that of the user.
 * @typedef {{readonly key: string, release(): void}} Lease
 */
/** @import { Identity } from './claims.js' */

/** One connection has it until its token is renewed. */
export class Session {
  /**
   * @param {Identity} identity @param {Lease|null} lease null: no limit counts by user
   * @param {number} endS the second since 1970 at whose start the connection is closed
   * @param {Set<string>|null} [granted] of the session before
   */
  constructor(identity, lease, endS, granted = null) {
    this.identity = identity;
    this.lease = lease;
    this.endS = endS;
    this.senderText = '';
    /** Rooms that the backend has joined the connection to. @type {Set<string>|null} */
    this.granted = granted;
  }

  /** @param {string} room that the connection may be in, whatever its tokens permit */
  grant(room) {
    this.granted ??= new Set();
    this.granted.add(room);
  }

  /** @param {string} room */
  withdraw(room) {
    this.granted?.delete(room);
  }

  /** `from` of the connection's publications: ASCII that can stand in JSON. */
  get sender() {
    if (this.senderText === '') this.senderText = asciiJson(this.identity.user);
    return this.senderText;
  }

  get isAnonymous() {
    return /** @type {const} */ (false);
  }

  get user() {
    return this.identity.user;
  }

  get keyOwner() {
    return `user ${JSON.stringify(this.user)}`;
  }

  get autojoin() {
    return this.identity.autojoin;
  }

  /** @param {string} room */
  mayJoin(room) {
    return mayJoin(this.identity, room) || (this.granted?.has(room) ?? false);
  }

  /** @param {string} room */
  mayPublish(room) {
    return this.identity.rights.publish.has(room);
  }

  /** @param {string} room */
  mayReadPresence(room) {
    return this.identity.rights.presence.has(room);
  }

  /** @param {string} room */
  mayReadHistory(room) {
    return this.identity.rights.history.has(room);
  }

  get mayBroadcast() {
    return this.identity.mayBroadcast;
  }
}

/** @param {Identity} identity @param {string} room */
export function mayJoin({ rights, autojoin }, room) {
  return rights.join.has(room) || autojoin.includes(room);
}
