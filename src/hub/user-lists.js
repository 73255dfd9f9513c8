// user-lists.js: lists of a room's users that clients have asked for and not got yet.
//
// The store reads a list at one moment, and the answer waits for its turn. Events that follow the
// read may reach the client before the answer. They are not repeated, so a list without them would
// stay wrong. While lists are owed, the room's events are kept, and each answer has all that came
// since it was asked for:
//
//   ask -> read of the store -> answer: the list, changed by the events since the ask
//
// An event that the list already has changes nothing, and one that still waits in the outbox may
// follow its answer. Asks that share a read share a list.

import { userHeadOf } from '../protocol/encode.js';
import { eventOf, payloadOf } from '../protocol/publication.js';

/** Events of one room that may be kept. Above that the lists owed are stale. */
const MAX_KEPT_BYTES = 4 * 1024 * 1024;
/** The objects of an event. */
const EVENT_BYTES = 200;

/** @import { PresenceSnapshot } from '../backend/presence.js' */

/** @typedef {{user: string, member: Buffer|null}} Change null: the user has left */

export class UserLists {
  #read;
  /** The lists by read of the store, the oldest first. @type {Map<Promise<PresenceSnapshot>, UserList>} */
  #owed = new Map();
  /** Since the oldest list owed was asked for. @type {Change[]} */
  #changes = [];
  #bytes = 0;
  /** The number of changes before those kept. */
  #forgotten = 0;

  /** @param {() => Promise<PresenceSnapshot>} read of the store; asks may share its promise */
  constructor(read) {
    this.#read = read;
  }

  /**
   * Reads the users for one answer. Call `release` on the list when it is written or dropped.
   * @returns {Promise<UserList>} rejects with a BrokerError if the store is unavailable
   */
  async read() {
    const reading = this.#read();
    let list = this.#owed.get(reading);
    if (list === undefined) {
      list = new UserList(this, reading, this.position);
      this.#owed.set(reading, list);
    }
    list.owed++;
    try {
      list.snapshot = await reading;
      return list;
    } catch (error) {
      list.release();
      throw error;
    }
  }

  /** @param {Buffer} publication of kind PRESENCE, in order with the room's publications */
  onEvent(publication) {
    const event = eventOf(publication);
    if (this.#owed.size === 0 || event === 'count') return;
    const payload = payloadOf(publication);
    // A copy, because the payload may be a slice of a large buffer.
    const member = event === 'join' ? Buffer.from(payload) : null;
    const change = { user: userHeadOf(payload), member };
    this.#changes.push(change);
    this.#bytes += changeBytes(change);
    if (this.#bytes > MAX_KEPT_BYTES) this.doubt();
  }

  /** An event may be missing, so no list owed can be brought up to date. */
  doubt() {
    for (const list of this.#owed.values()) list.isStale = true;
    this.#owed.clear();
    this.#forgetChanges(this.#changes.length);
  }

  /** Changes up to now. */
  get position() {
    return this.#forgotten + this.#changes.length;
  }

  /** @param {number} position @returns {Change[]} */
  since(position) {
    return this.#changes.slice(Math.max(0, position - this.#forgotten));
  }

  /** @param {UserList} list no answer needs it any more */
  end(list) {
    const { reading } = list;
    if (this.#owed.get(reading) === list) this.#owed.delete(reading);
    const [oldest] = this.#owed.values();
    this.#forgetChanges((oldest?.from ?? this.position) - this.#forgotten);
  }

  /** @param {number} count of the oldest changes */
  #forgetChanges(count) {
    if (count <= 0) return;
    for (const change of this.#changes.splice(0, count)) this.#bytes -= changeBytes(change);
    this.#forgotten += count;
  }
}

/** The users of a room, for the answers that share a read. */
export class UserList {
  /** The store's answer. @type {PresenceSnapshot} */
  snapshot = { count: 0, members: null };
  /** Answers that need it. */
  owed = 0;
  /** True: too many events came in the meantime, or one was lost. Refuse the answer. */
  isStale = false;
  #position;
  /** @type {PresenceSnapshot|null} */
  #current = null;

  /**
   * @param {UserLists} lists @param {Promise<PresenceSnapshot>} reading
   * @param {number} from the position of its first ask
   */
  constructor(lists, reading, from) {
    this.lists = lists;
    this.reading = reading;
    this.from = from;
    this.#position = from;
  }

  /** The users as of now. @returns {PresenceSnapshot} */
  attended() {
    const { lists, snapshot } = this;
    if (this.#current === null || this.#position !== lists.position) {
      this.#current = changed(snapshot, lists.since(this.from));
      this.#position = lists.position;
    }
    return this.#current;
  }

  release() {
    if (--this.owed === 0) this.lists.end(this);
  }
}

/** @param {Change} change */
function changeBytes({ user, member }) {
  return EVENT_BYTES + user.length + (member?.length ?? 0);
}

/** @param {PresenceSnapshot} snapshot @param {Change[]} changes @returns {PresenceSnapshot} */
function changed(snapshot, changes) {
  const { count, members } = snapshot;
  if (members === null || changes.length === 0) return snapshot;
  const found = new Map(members.map((member) => [userHeadOf(member), member]));
  for (const { user, member } of changes) {
    if (member === null) found.delete(user);
    else found.set(user, member);
  }
  return { count: count + found.size - members.length, members: [...found.values()] };
}
