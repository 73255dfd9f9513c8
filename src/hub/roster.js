// roster.js: the users of a room, as its members on this worker know them.
//
// Clients of some doors get the list of users once, when they subscribe, then each change once, and
// never ask again. So their room has one list, which is read from the store and then changed by
// each event on its way to the outbox:
//
//   broker -> arrive: does it change the list? -> outbox -> members
//
// An event that changes the list is marked (asRosterChange). Encoders leave out the others. A
// member that enters gets the list without the changes that still wait in the outbox, because they
// will follow. So list and events match, without a record per client.
//
// The list is read again when events may be missing. Members then get the difference.

import { asRosterChange, eventOf, isRosterChange, payloadText } from '../protocol/publication.js';

/** @import { Connection } from './connection.js' */
/** @import { Hub } from './hub.js' */
/** @import { HubRoom } from './room.js' */
/** @import { Follower } from './room-users.js' */

/** @typedef {'join'|'leave'} Change */

/**
 * @template {{readonly user: string}} M a member, as the door knows it
 * @implements {Follower}
 */
export class Roster {
  /** Members by user. @type {Map<string, M>} */
  #members = new Map();
  /** Has the store's list been read? Until then no event changes the list. */
  isRead = false;
  isReading = false;
  /** May events be missing? */
  isDoubtful = false;

  /**
   * @param {object} parts @param {Pick<Hub, 'listUsers'|'counters'>} parts.hub
   * @param {HubRoom} parts.room
   * @param {(text: string) => M|null} parts.decode reads a member; null: another form
   * @param {(event: Change, member: M) => void} parts.onChange the list has changed
   * @param {(event: Change, member: M) => void} parts.onCorrected members missed this change
   * @param {(connection: Connection) => void} parts.onLeft a connection has left the room
   */
  constructor({ hub, room, decode, onChange, onCorrected, onLeft }) {
    this.hub = hub;
    this.room = room;
    this.decode = decode;
    this.onChange = onChange;
    this.onCorrected = onCorrected;
    this.onLeft = onLeft;
    room.users?.follow(this);
  }

  close() {
    const { users } = this.room;
    if (users?.roster === this) users.follow(null);
  }

  get size() {
    return this.#members.size;
  }

  /** @param {string} user */
  has(user) {
    return this.#members.has(user);
  }

  /** Has this worker a connection of the user? @param {string} user */
  isHere(user) {
    return this.room.users?.isHere(user) ?? false;
  }

  /** Events may be missing: the owner should call `read` soon. */
  doubt() {
    this.isDoubtful = true;
  }

  /** @param {Buffer} publication of kind PRESENCE @returns {Buffer} marked if it changes the list */
  arrive(publication) {
    if (!this.isRead) return publication;
    const event = eventOf(publication);
    if (event === 'count') return publication;
    const member = this.decode(payloadText(publication));
    return member !== null && this.#change(event, member)
      ? asRosterChange(publication)
      : publication;
  }

  /** Does a change of the user wait in the outbox? @param {string} user */
  isWaiting(user) {
    const { waiting } = this.room;
    return waiting.some((one) => isRosterChange(one) && this.#userOf(one) === user);
  }

  /** The list for a member that has just entered the room. @returns {Iterable<M>} */
  forNewMember() {
    const { waiting } = this.room;
    if (!waiting.some(isRosterChange)) return this.#members.values();
    const members = new Map(this.#members);
    for (let i = waiting.length - 1; i >= 0; i--) {
      if (!isRosterChange(waiting[i])) continue;
      const member = /** @type {M} */ (this.decode(payloadText(waiting[i])));
      if (eventOf(waiting[i]) === 'join') members.delete(member.user);
      else members.set(member.user, member);
    }
    return members.values();
  }

  /**
   * Reads the list from the store, for the first time or again.
   * @returns {Promise<'read'|'large'|'unavailable'>} large: the store lists no users of this room
   */
  async read() {
    this.isReading = true;
    this.isDoubtful = false;
    let list;
    try {
      list = await this.hub.listUsers(this.room.name);
    } catch {
      this.doubt();
      return 'unavailable';
    } finally {
      this.isReading = false;
    }
    try {
      return this.#takeList(list);
    } finally {
      list.release();
    }
  }

  /** @param {import('./user-lists.js').UserList} list @returns {'read'|'large'|'unavailable'} */
  #takeList(list) {
    if (list.isStale) {
      this.hub.counters.readsRefused++;
      this.doubt();
      return 'unavailable';
    }
    const { members } = list.attended();
    if (members === null) return 'large';
    /** @type {Map<string, M>} */
    const found = new Map();
    for (const one of members) {
      const member = this.decode(one.toString());
      if (member !== null) found.set(member.user, member);
    }
    if (this.isRead) this.#correct(found);
    else {
      this.#members = found;
      this.isRead = true;
    }
    return 'read';
  }

  /** @param {ReadonlyMap<string, M>} found in the store */
  #correct(found) {
    const changing = this.#changing();
    const correct = (/** @type {Change} */ event, /** @type {M} */ member) => {
      // A correction would overtake the event, so this user waits for the next read.
      if (changing.has(member.user)) this.doubt();
      else if (this.#change(event, member)) this.onCorrected(event, member);
    };
    for (const [user, member] of this.#members) if (!found.has(user)) correct('leave', member);
    for (const [user, member] of found) if (!this.#members.has(user)) correct('join', member);
  }

  /** Users whose changes are on their way to the members. */
  #changing() {
    const { flight, waiting } = this.room;
    const users = new Set();
    for (const publications of [flight?.publications ?? [], waiting])
      for (const one of publications) if (isRosterChange(one)) users.add(this.#userOf(one));
    return users;
  }

  /** @param {Buffer} publication that changed the list */
  #userOf(publication) {
    return this.decode(payloadText(publication))?.user;
  }

  /** @param {Change} event @param {M} member @returns {boolean} false: the list has it already */
  #change(event, member) {
    const { user } = member;
    const members = this.#members;
    if (event === 'join') {
      if (members.has(user)) return false;
      members.set(user, member);
    } else {
      // If the user is on this worker, the event is old.
      if (!members.has(user) || this.isHere(user)) return false;
      members.delete(user);
    }
    this.onChange(event, member);
    return true;
  }
}
