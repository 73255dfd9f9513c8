// joins.js: how connections get into rooms and out of them, for every door.
//
//   subscribe -> room with state? -> name in presence -> hook onJoin -> member already?
//     -> room limit -> reads waiting? -> rate of reads -> hub, while later commands wait in the lane
//     -> answered -> charged -> listed in presence
//
// A join that is refused ends in one Refusal, which the door puts into its own words.

import { mayEnterRooms } from '../hub/room-limit.js';
import { isOfApp } from '../protocol/app-names.js';
import { encodeMember } from '../protocol/encode.js';
import { numberText, refusal, toClose } from '../protocol/refusal.js';
import { FaultCounts } from './fault-counts.js';

const HAS_STATE = 'The room has state (FANFARE_STATE), which only native clients can join.';
const OTHER_NAME = 'presence.user is not the user of this connection: leave it out.';

/** @import { Connection } from '../hub/connection.js' */
/** @import { Room } from '../hub/room.js' */
/** @import { Since } from '../protocol/decode.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { Joined } from '../recovery/room-joins.js' */

/**
 * What presence shows of a connection without a user. One with a user is shown as that user.
 * @typedef {object} Who
 * @property {string} [user] the name that the client has chosen; absent: its id
 * @property {Buffer|null} info JSON
 */

/**
 * @typedef {object} JoinOptions
 * @property {Since|null} since the last message that the client has; null: not given
 * @property {number} [last] how many of the latest messages to send; 0: none
 * @property {number} [lastSeconds] maximum age of these; 0: any age
 * @property {boolean} [mayReadAll] may `since` bring messages from before the resume window?
 * @property {Who|null} who null: the connection only watches presence
 * @property {boolean} [isAsked] has onJoin been asked, or does it not apply?
 * @property {(joined: Joined|null) => void} onJoined the connection is a member now: writes the
 *   reply. Null: the room has no history
 * @property {(refused: Refusal) => void} onRefused the connection is not in the room
 */

/** @type {Who} */
export const NOBODY = Object.freeze({ user: undefined, info: null });

export class Joins {
  /**
   * @param {object} parts @param {import('../config/settings.js').Config} parts.config
   * @param {import('../hub/hub.js').Hub} parts.hub
   * @param {import('./replies.js').Replies} parts.replies
   * @param {import('./lane.js').Lane} parts.lane
   * @param {Pick<import('./hook-gate.js').HookGate, 'enter'>|null} parts.gate
   * @param {boolean} parts.isNameFree may a connection without a user choose its name in presence?
   * @param {import('./join-reads.js').JoinReads} parts.reads
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ config, hub, replies, lane, gate, isNameFree, reads, counters }) {
    this.config = config;
    const most = numberText(config.maxRoomsPerConnection);
    this.roomLimitText = `Room limit reached: ${most} for a connection (FANFARE_MAX_ROOMS_PER_CONNECTION).`;
    this.refusedJoins = new FaultCounts(config.maxRoomsPerConnection);
    this.hub = hub;
    this.replies = replies;
    this.lane = lane;
    this.gate = gate;
    this.isNameFree = isNameFree;
    this.reads = reads;
    this.counters = counters;
  }

  /**
   * The door has checked the rights of its client.
   * @param {Connection} connection @param {string} name @param {JoinOptions} join
   */
  subscribe(connection, name, join) {
    if (this.#lacksState(connection, name))
      return join.onRefused(refusal('PERMISSION_DENIED', HAS_STATE));
    if (!this.#mayAppearAs(connection, join.who))
      return join.onRefused(refusal('PERMISSION_DENIED', OTHER_NAME));
    if (join.isAsked) return this.#enter(connection, name, join);
    this.ask(connection, name, (refused) => {
      if (refused === null) this.#enter(connection, name, join);
      else join.onRefused(refusal(refused.code, refused.message, 0));
    });
  }

  /** @param {Connection} connection @param {string} name @returns {boolean} false: not in it */
  unsubscribe(connection, name) {
    const room = this.hub.rooms.get(name);
    if (!room?.has(connection)) return false;
    this.hub.leave(connection, room);
    return true;
  }

  /** Is it in the room, or joining it? @param {Connection} connection @param {string} name */
  isIn(connection, name) {
    return this.hub.rooms.get(name)?.has(connection) ?? false;
  }

  /**
   * Joins a room at the backend's request, whatever token and hooks permit.
   * @param {Connection} connection @param {string} name @param {string} user '': it has none
   * @returns {boolean} false: the connection has closed or reached its room limit, its app or door
   *   does not allow it, or too many reads wait
   */
  joinAs(connection, name, user) {
    const { session, transport, isOpen } = connection;
    const { door } = transport;
    if (!isOpen) return false; // the hub would not remove it again
    if (door.backendJoins === 'none' || !canName(session, name)) return false;
    if (!this.isIn(connection, name)) {
      if (this.#lacksState(connection, name) || this.#faultOf(connection, name) !== null)
        return false;
      this.#join(connection, name, {
        since: null,
        who: { user: user || undefined, info: null },
        onJoined: (joined) => door.entered(connection, name, joined),
        onRefused: (refused) => this.replies.refuse(connection, refused),
      });
    }
    session.grant(name);
    return true;
  }

  /**
   * Takes a connection out of a room at the backend's request.
   * @param {Connection} connection @param {string} name @returns {boolean} false: not in it
   */
  remove(connection, name) {
    const { session, transport } = connection;
    if (transport.door.backendJoins === 'none' && isOfApp(name)) return false;
    session.withdraw(name);
    const room = this.hub.rooms.get(name);
    if (room === undefined || !room.has(connection)) return false;
    this.expel(connection, room, 'removed');
    return true;
  }

  /** Takes a connection out of the rooms that its new token forbids. @param {Connection} connection */
  expelForbidden(connection) {
    for (const { name } of connection.listRooms()) {
      if (connection.session.mayJoin(name)) continue;
      const room = this.hub.rooms.get(name);
      if (room !== undefined) this.expel(connection, room, 'permission');
    }
  }

  /**
   * Takes a connection out of a room, and tells it why. A join under way is answered first.
   * @param {Connection} connection @param {Room} room @param {'removed'|'permission'} reason
   */
  expel(connection, room, reason) {
    const { name } = room;
    const act = () => {
      if (!room.has(connection)) return;
      if (reason === 'permission' && connection.session.mayJoin(name)) return;
      this.hub.leave(connection, room);
      const { door } = connection.transport;
      door.expelled(connection, name, reason);
      const text = door.encodeLeft(name, reason);
      if (text !== null) connection.send(text);
    };
    const joining = room.joining(connection);
    if (joining === null) act();
    else joining.then(act, act).catch((error) => connection.fail(error));
  }

  /**
   * Asks the hook onJoin, if there is one. Reads of a room need the permission to join, too.
   * @type {import('./hook-gate.js').HookGate['enter']}
   */
  ask(connection, name, act) {
    if (this.gate === null) act(null);
    else this.gate.enter(connection, name, act);
  }

  /**
   * As `ask`, and answers a command that is refused.
   * @param {Connection} connection @param {string} name @param {import('./replies.js').Id} id
   * @param {() => void} act
   */
  askFor(connection, name, id, act) {
    this.ask(connection, name, (refused) => {
      if (refused === null) act();
      else this.replies.error(connection, refused.code, id, refused.message);
    });
  }

  /** @param {Connection} connection @param {string} name @param {JoinOptions} join */
  #enter(connection, name, join) {
    const { hub } = this;
    const room = hub.rooms.get(name);
    if (room?.has(connection)) {
      if (!isReplay(connection, room, join)) return join.onRefused(refusal('ALREADY_JOINED'));
      hub.rejoin(connection, room, this.#requestOf(connection, name, join));
      return this.awaitJoin(connection, name);
    }
    const refused = this.#faultOf(connection, name);
    if (refused === null) return this.#join(connection, name, join);
    join.onRefused(refused);
    if (refused.code === 'ROOM_LIMIT' && this.refusedJoins.isTooMany(connection))
      connection.close(toClose(refused));
  }

  /** @param {Connection} connection @param {string} name @param {JoinOptions} join */
  #join(connection, name, join) {
    this.hub.join(connection, name, this.#requestOf(connection, name, join));
    this.awaitJoin(connection, name);
  }

  /**
   * Why a connection cannot enter another room now.
   * @param {Connection} connection @param {string} name @returns {Refusal|null}
   */
  #faultOf(connection, name) {
    if (!this.mayEnterAnother(connection)) return refusal('ROOM_LIMIT', this.roomLimitText);
    return this.isFull(name) ? refusal('UNAVAILABLE', undefined, 0) : null;
  }

  /**
   * Is it a room with state, and a client that does not know the keys of its messages?
   * @param {Connection} connection @param {string} name
   */
  #lacksState({ transport }, name) {
    return !transport.door.takesState && this.hub.scheduler.hasState(name);
  }

  /** Are too many reads waiting for another room to open? Counts it. @param {string} name */
  isFull(name) {
    const { hub, counters } = this;
    const { scheduler } = hub;
    const isFull = !hub.rooms.has(name) && scheduler.isFull && scheduler.hasHistory(name);
    if (isFull) counters.readsRefused++;
    return isFull;
  }

  /** Checks the room limit; in the mode `observe` only counts. @param {Connection} connection */
  mayEnterAnother({ roomCount }) {
    return mayEnterRooms(this.config, this.counters, roomCount);
  }

  /**
   * Delays a connection's commands until its join is answered, so that it gets its own messages.
   * @param {Connection} connection @param {string} name
   */
  awaitJoin(connection, name) {
    const joining = this.hub.rooms.get(name)?.joining(connection) ?? null;
    if (joining !== null) this.lane.awaitJoin(connection, joining);
  }

  /**
   * @param {Connection} connection @param {string} name @param {JoinOptions} join
   * @returns {import('../hub/hub.js').RoomRequest}
   */
  #requestOf(connection, name, join) {
    const { since, last = 0, lastSeconds = 0, mayReadAll = false, who } = join;
    const { reads, counters } = this;
    const read = reads.admit(connection, name, null);
    return {
      since,
      last,
      lastFromMs: lastSeconds === 0 ? 0 : Date.now() - lastSeconds * 1000,
      oldestMs: since === null || mayReadAll ? 0 : reads.resumeFromMs,
      onJoined: (joined) => {
        if (joined === null && since !== null) counters.recoveries.insufficient++;
        join.onJoined(joined);
        reads.pay(connection, name, joined, read);
        this.attend(connection, name, who);
      },
      onRefused: (error) => join.onRefused(this.replies.refusalOf(error)),
    };
  }

  /**
   * Lists a member in presence.
   * @param {Connection} connection @param {string} name @param {Who|null} who
   */
  attend(connection, name, who) {
    if (who === null) return;
    const room = this.hub.rooms.get(name);
    // It may have left meanwhile, or be a user already after an earlier join.
    if (!room?.has(connection) || room.users?.has(connection)) return;
    const { session } = connection;
    if (session.isAnonymous) room.users?.join(connection, who.user ?? connection.id, who.info);
    else room.users?.join(connection, session.name, session.identity.info);
  }

  /**
   * Presence shows the user and the `info` of a new token.
   * @param {Connection} connection with a session
   */
  showUser(connection) {
    const { session } = connection;
    if (session.isAnonymous) return;
    const { info } = session.identity;
    for (const { name } of connection.listRooms()) {
      const users = this.hub.rooms.get(name)?.users ?? null;
      if (users === null || !users.has(connection)) continue;
      if (users.userOf(connection) === session.name)
        users.update(connection, encodeMember(session.name, info));
      else {
        users.leave(connection);
        users.join(connection, session.name, info);
      }
    }
  }

  /**
   * The name in presence is that of the user, and free only if neither tokens nor hooks name users.
   * @param {Connection} connection @param {Who|null} who
   */
  #mayAppearAs({ session }, who) {
    if (who?.user === undefined) return true;
    return session.isAnonymous ? this.isNameFree : session.name === who.user;
  }
}

/** @param {Connection['session']} session @param {string} room */
function canName(session, room) {
  return session.isAnonymous ? !isOfApp(room) : session.identity.nameOf(room) !== null;
}

/**
 * Does another join of the same room bring messages? The token may have joined it before the client
 * could send its position, or a later handle wants older messages.
 * @param {Connection} connection @param {Room} room @param {JoinOptions} join
 */
function isReplay({ transport }, { sync }, { since, last = 0 }) {
  return transport.door.repeatsJoins && sync !== null && (since !== null || last > 0);
}
