// presence.js: the users of one room, and each handle's view of them.
//
// Events are not replayed, so the client requests the list after each join and each broker outage.
// Events that arrive before the list is complete are applied to it afterwards.

import { Emitter } from './emitter.js';
import { RETRY_MS } from './limits.js';

/** @import { Client } from './client.js' */

/** @typedef {{user: string, info?: any}} Member */
/** Changes by user; null: the user left. @typedef {Map<string, Member|null>} Changes */

/** The list that all handles of a room share. */
export class Users {
  #room;
  #client;
  #handles;
  #isWatched = false;
  /** @type {Map<string, Member>} */
  _members = new Map();
  _count = 0;
  /**
   * Events since the current list was requested. Null: no request is open. Undefined: the
   * connection is not in the room.
   * @type {Changes|null|undefined}
   */
  #changes;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;

  /** @param {string} room @param {Client} client @param {Iterable<{presence: Presence}>} handles */
  constructor(room, client, handles) {
    this.#room = room;
    this.#client = client;
    this.#handles = handles;
  }

  /** Requests the list for a new listener. */
  _watch() {
    this.#isWatched = true;
    if (this.#changes === null) this._refresh();
  }

  _refresh() {
    this._stop();
    this.#changes = null;
    if (this.#isWatched) this.#askForMembers((this.#changes = new Map()), new Map());
  }

  _stop() {
    this.#changes = undefined;
    clearTimeout(this.#timer);
  }

  /** @param {import('./wire.js').Message} push */
  _receive({ event, member }) {
    const { user } = member;
    const change = event === 'join' ? member : null;
    const { size } = this._members;
    // Emitted before the list, one event would look like the whole list.
    if (this.#changes) this.#changes.set(user, change);
    else if (this.#isWatched) {
      this.#apply(user, change);
      this._count += this._members.size - size;
      this.#changed();
    }
  }

  /** @param {Changes} changes @param {Map<string, Member>} found @param {string} [after] */
  #askForMembers(changes, found, after) {
    this.#client._request({ type: 'presence', room: this.#room, after }, (error, reply) => {
      if (changes !== this.#changes) return;
      if (error) {
        if (!error.retryable) {
          this.#changes = null;
          return this.#client._report(error);
        }
        this.#timer = setTimeout(() => this._refresh(), error.retryAfterMs ?? RETRY_MS);
        return;
      }
      let last;
      for (const member of reply.members ?? []) {
        last = member.user;
        found.set(last, member);
      }
      if (reply.more) return this.#askForMembers(changes, found, last);
      this._members = found;
      for (const [user, change] of changes) this.#apply(user, change);
      this.#changes = null;
      this._count = reply.count;
      this.#changed();
    });
  }

  /** @param {string} user @param {Member|null} change */
  #apply(user, change) {
    if (change) this._members.set(user, change);
    else this._members.delete(user);
  }

  #changed() {
    for (const { presence } of this.#handles)
      presence.emit('change', presence.members, this._count);
  }
}

/** @extends {Emitter<{change: [members: Member[], count: number]}>} */
export class Presence extends Emitter {
  #users;

  /** @param {Users} users */
  constructor(users) {
    super();
    this.#users = users;
  }

  /** Empty before the first `change`, and in rooms that are too large for a list. */
  get members() {
    return [...this.#users._members.values()];
  }

  /** Number of users, even if the room is too large for a list. */
  get count() {
    return this.#users._count;
  }

  /**
   * New listeners get the whole list first.
   * @override
   * @type {Emitter<{change: [members: Member[], count: number]}>['on']}
   */
  on(event, listener) {
    this.#users._watch();
    return super.on(event, listener);
  }
}

/**
 * A connection is listed as one user: the last one named. With only `false`, it is not listed.
 * @param {unknown[]} wishes `presence` options of all joins
 */
export function presenceOf(wishes) {
  return wishes.reduce(
    (found, wish) => wish || found || (wish === found ? wish : undefined),
    /** @type {unknown} */ (false),
  );
}
