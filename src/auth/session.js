// session.js: the user and the rights of an authenticated connection. Clients of an app use bare
// names: `validRoomOf` turns them into rooms of the app. All other methods take rooms.

import { NO_AUDIENCES } from '../protocol/audiences.js';
import { isRoom } from '../protocol/decode.js';
import { asciiJson } from './claims.js';

/** A place of the user `key`, released once. @typedef {{readonly key: string, release(): void}} Lease */
/** @import { App } from '../config/pusher.js' */
/** @import { Identity } from './claims.js' */

/** The user and the rights of one connection, until its token is renewed. */
export class Session {
  /**
   * @param {Identity} identity @param {Lease|null} lease null: no limit counts by user
   * @param {number} endS the connection is closed when this second since 1970 begins
   * @param {Set<string>|null} [granted] from the previous session
   */
  constructor(identity, lease, endS, granted = null) {
    this.identity = identity;
    this.lease = lease;
    this.endS = endS;
    this.senderText = '';
    /** Rooms joined by the backend. @type {Set<string>|null} */
    this.granted = granted;
  }

  /** Allows a room whatever the token permits. @param {string} room */
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
    if (this.senderText === '') this.senderText = asciiJson(this.senderName);
    return this.senderText;
  }

  get senderName() {
    return this.identity.user;
  }

  get isAnonymous() {
    return /** @type {const} */ (false);
  }

  /** @returns {App|null} null: its token names none */
  get app() {
    return null;
  }

  /** Unique over all apps. */
  get user() {
    return this.identity.user;
  }

  /** The user's name, as clients see it. */
  get name() {
    return this.identity.user;
  }

  /** @param {unknown} name as the client sent it @returns {string|null} null: it is not valid */
  validRoomOf(name) {
    return isRoom(name) ? name : null;
  }

  get keyOwner() {
    return `user ${JSON.stringify(this.user)}`;
  }

  get autojoin() {
    return this.identity.autojoin;
  }

  /** @param {string} room */
  mayJoin(room) {
    return this.identity.mayJoin(room) || (this.granted?.has(room) ?? false);
  }

  /**
   * `mayJoin` also knows the rooms that were granted.
   * @param {import('./rights.js').RoomRight} right @param {string} room
   */
  hasRight(right, room) {
    return this.identity.rights[right].has(room);
  }

  /** The audiences that its token names for a room. @param {string} room */
  audiencesIn(room) {
    return this.identity.audiences.in(room);
  }

  get mayBroadcast() {
    return this.identity.mayBroadcast;
  }
}

/** The session of a token that names an app. */
export class AppSession extends Session {
  /** @override */
  get app() {
    return this.identity.app;
  }

  /** @override */
  get name() {
    return this.identity.name;
  }

  /** @override In native rooms, which a shared app uses, it must not look like a native user. */
  get senderName() {
    const { app, user, name } = this.identity;
    return app?.isShared ? user : name;
  }

  /** @override @param {unknown} name */
  validRoomOf(name) {
    return isRoom(name) ? this.identity.roomOf(name) : null;
  }

  /** @override @param {string} room */
  mayJoin(room) {
    const name = this.identity.nameOf(room);
    return name !== null && (this.identity.mayJoin(name) || (this.granted?.has(room) ?? false));
  }

  /** @override @param {import('./rights.js').RoomRight} right @param {string} room */
  hasRight(right, room) {
    const name = this.identity.nameOf(room);
    return name !== null && this.identity.rights[right].has(name);
  }

  /** @override @param {string} room */
  audiencesIn(room) {
    const name = this.identity.nameOf(room);
    return name === null ? NO_AUDIENCES : this.identity.audiences.in(name);
  }
}
