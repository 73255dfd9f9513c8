// joins.js: how connections get into rooms and out of them, for every door.
//
//   subscribe -> room with state? -> name in presence -> hook onJoin -> member already?
//     -> room limit -> reads waiting? -> rate of reads -> hub, while later commands wait in the lane
//     -> charged -> answered -> listed in presence
//
// A join that is refused ends in one Refusal, which the door puts into its own words.

import { isOfApp } from '../protocol/app-names.js';
import { encodeMember } from '../protocol/encode.js';
import { numberText, refusal, toClose } from '../protocol/refusal.js';
import { FaultCounts } from './fault-counts.js';
import { WaitingJoins } from './waiting-joins.js';

const HAS_STATE = 'The room has state (FANFARE_STATE), which only native clients can join.';
const OTHER_NAME = 'presence.user is not the user of this connection: leave it out.';

/** @import { Connection } from '../hub/connection.js' */
/** @import { HubRoom } from '../hub/room.js' */
/** @import { Since } from '../protocol/decode.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { Joined } from '../recovery/room-joins.js' */
/** @import { RosterMember } from '../protocol/door-texts.js' */
/** @import { AdmittedRead } from './join-reads.js' */
/** @import { Listed, RosterRequest } from './roster-joins.js' */

/**
 * What presence shows of a connection without a user. One with a user is shown as that user.
 * @typedef {object} Who
 * @property {string} [user] the name that the client has chosen; absent: its id
 * @property {Buffer|null} info JSON
 * @property {Buffer} [member] as encodeMember writes it, perhaps with fields of the door
 */

/**
 * @typedef {object} JoinOptions
 * @property {Since|null} since the last message that the client has; null: not given
 * @property {number} [last] how many of the latest messages to send; 0: none
 * @property {number} [lastSeconds] maximum age of these; 0: any age
 * @property {boolean} [mayReadAll] may `since` bring messages from before the resume window?
 * @property {Who|null} who null: the connection only watches presence
 * @property {boolean} [hasOwn] do the latest messages include those that exclude this connection?
 * @property {() => boolean} [mayJoin] has the client the right to join, when its join has waited?
 *   Absent: its session has all its rights
 * @property {boolean} [isAsked] has onJoin been asked?
 * @property {boolean} [isOwn] a room of the door, which no client has named: neither onJoin nor the
 *   room limit apply
 * @property {Listed|null} [listed] it gets the list of the room's users, and appears there
 * @property {number|null} [readCost] bytes of the message as which a join that reads counts; null:
 *   each join of this door has counted as a message already
 * @property {(joined: Joined|null, paidBytes: number, users: Iterable<RosterMember>) => void}
 *   onJoined the connection is a member now: writes the reply. Null: the room has no history.
 *   `paidBytes`: of what is not free. `users`: the list, if it is `listed`
 * @property {(refused: Refusal) => void} onRefused the connection is not in the room. ROOM_FULL for
 *   a client that waits: not yet
 */

/** @type {readonly RosterMember[]} */
const NO_USERS = Object.freeze([]);

/** @type {Who} */
export const NOBODY = Object.freeze({ user: undefined, info: null });

export class Joins {
  /** Rooms that it will leave when its join is answered. @type {WeakMap<Connection, Set<string>>} */
  #removals = new WeakMap();

  /**
   * @param {object} parts @param {import('../config/settings.js').Config} parts.config
   * @param {import('../hub/hub.js').Hub} parts.hub
   * @param {import('./replies.js').Replies} parts.replies
   * @param {import('./lane.js').Lane} parts.lane
   * @param {Pick<import('./hook-gate.js').HookGate, 'askToJoin'|'askEarly'>} parts.gate
   * @param {boolean} parts.isNameFree may a connection without a user choose its name in presence?
   * @param {import('./join-reads.js').JoinReads} parts.reads
   * @param {Pick<import('./roster-joins.js').RosterJoins, 'joinWithList'>} parts.rosters
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ config, hub, replies, lane, gate, isNameFree, reads, rosters, counters }) {
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
    this.rosters = rosters;
    this.waiting = new WaitingJoins(replies);
    this.counters = counters;
  }

  /**
   * The door has checked the rights of its client.
   * @param {Connection} connection @param {string} name @param {JoinOptions} join
   * @returns {void}
   */
  subscribe(connection, name, join) {
    if (join.isOwn) return this.#enterRoom(connection, name, join);
    if (connection.transport.door.waitsToJoin !== true)
      return this.#askToEnter(connection, name, join);
    const again = (/** @type {JoinOptions['onRefused']} */ onRefused) =>
      this.#askToEnter(connection, name, { ...join, onRefused });
    this.waiting.tryToJoin(connection, name, again, join.onRefused);
  }

  /** @param {Connection} connection @param {string} name @param {JoinOptions} join */
  #askToEnter(connection, name, join) {
    const fault = this.#stateFault(connection, name) ?? this.#nameFault(connection, join.who);
    if (fault !== null) return join.onRefused(fault);
    if (join.isAsked) return this.#enterRoom(connection, name, join);
    const wasGranted = isGranted(connection, name);
    this.gate.askToJoin(connection, name, (refused) => {
      if (refused === null) this.#enterLater(connection, name, join, wasGranted);
      else join.onRefused(refusal(refused.code, refused.message, 0));
    });
  }

  /** @param {Connection} connection @param {string} name @returns {boolean} false: not in it */
  unsubscribe(connection, name) {
    this.waiting.cancelJoin(connection, name);
    const room = this.hub.rooms.get(name);
    if (!room?.has(connection)) return false;
    this.hub.leave(connection, room);
    return true;
  }

  /** Ends a membership without a word. Its next read is free. @type {Joins['unsubscribe']} */
  end(connection, name) {
    this.reads.giveBack(connection, name);
    return this.unsubscribe(connection, name);
  }

  /**
   * Lets a stand-in collect the messages of a room for a connection that is not in the hub yet, and
   * about which onJoin has been asked.
   * @param {Connection} standIn @param {string} name
   * @param {Pick<JoinOptions, 'since'|'mayReadAll'|'onRefused'> & {onJoined: (joined: Joined|null) => void}}
   *   join
   */
  prepare(standIn, name, join) {
    const refused = this.#stateFault(standIn, name) ?? this.#readsFault(name);
    if (refused !== null) return join.onRefused(refused);
    const { since, mayReadAll = false } = join;
    this.hub.join(standIn, name, {
      since,
      oldestMs: this.#oldestMs(since, mayReadAll),
      onJoined: (joined) => {
        this.#countLost(since, joined);
        join.onJoined(joined);
      },
      onRefused: (error) => join.onRefused(this.replies.refusalOf(error)),
    });
  }

  /**
   * Puts the connection, which is in the hub now, in the place of its stand-in.
   * @param {Connection} connection @param {Connection} standIn a member @param {string} name
   * @param {Joined|null} joined of the stand-in @param {Who} who
   * @returns {number} bytes of messages that were not free
   */
  adopt(connection, standIn, name, joined, who) {
    const room = /** @type {import('../hub/room.js').HubRoom} */ (this.hub.rooms.get(name));
    const read = this.reads.admit(connection, name, null);
    this.#mayEnterAnother(connection); // counts it; limitFault has been asked before
    const paidBytes = this.reads.pay(connection, name, joined, read);
    room.replace(standIn, connection);
    this.attend(connection, name, who);
    return paidBytes;
  }

  /**
   * May a connection without rooms enter them all? For requests that a part would not help. Each of
   * them counts when it is entered.
   * @param {number} rooms @returns {Refusal|null} null: it may
   */
  limitFault(rooms) {
    const { maxRoomsPerConnection: max, maxRoomsPerConnectionMode: mode } = this.config;
    return rooms > max && mode === 'enforce' ? refusal('ROOM_LIMIT', this.roomLimitText) : null;
  }

  /** Is it in the room, or joining it? @param {Connection} connection @param {string} name */
  isIn(connection, name) {
    return this.hub.rooms.get(name)?.has(connection) ?? false;
  }

  /**
   * Joins a room at the backend's request, whatever token and hooks permit.
   * @param {Connection} connection @param {string} name @param {string} user '': it has none
   * @param {readonly string[]} [audiences] that it holds in the room instead of those given before
   * @returns {boolean} false: the connection has closed or reached its room limit, its app or door
   *   does not allow it, or too many reads wait
   */
  joinAs(connection, name, user, audiences) {
    const { session, transport, isOpen } = connection;
    const { door } = transport;
    if (!isOpen) return false; // the hub would not remove it again
    if (door.backendJoins === 'none' || !canName(session, name)) return false;
    if (this.isIn(connection, name)) {
      // The removal that waits would have taken what was given before.
      const isKept = this.#removals.get(connection)?.delete(name) ?? false;
      const given = isKept ? (audiences ?? []) : audiences;
      if (given !== undefined) connection.giveAudiences(name, given);
      session.grant(name);
      return true;
    }
    const fault = this.#stateFault(connection, name) ?? this.#faultOf(connection, name);
    if (fault !== null) return false;
    const hadGrant = isGranted(connection, name);
    session.grant(name);
    if (audiences !== undefined) connection.giveAudiences(name, audiences);
    const read = this.reads.admit(connection, name, null);
    const join = {
      since: null,
      who: { user: user || undefined, info: null },
      onJoined: (/** @type {Joined|null} */ joined) => door.entered(connection, name, joined),
      onRefused: (/** @type {Refusal} */ refused) => {
        // Leaving the room has withdrawn the audiences. The token may be another one meanwhile.
        if (!hadGrant) connection.session.withdraw(name);
        this.replies.refuse(connection, refused);
      },
    };
    this.#join(connection, name, join, read);
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
    if (!this.isIn(connection, name)) return false;
    const removals = this.#removals.get(connection) ?? new Set();
    this.#removals.set(connection, removals.add(name));
    this.#whenAnswered(connection, name, () => {
      // Unless the backend has joined it again meanwhile.
      if (removals.delete(name)) this.expel(connection, name, 'removed');
    });
    return true;
  }

  /** Takes a connection out of the rooms that its new token forbids. @param {Connection} connection */
  expelForbidden(connection) {
    for (const { name } of connection.listRooms()) {
      if (!connection.session.mayJoin(name)) this.expel(connection, name, 'permission');
    }
  }

  /**
   * Takes a connection out of a room, and tells it why. A join under way is answered first. The
   * next read is free again, as the server has ended the membership.
   * @param {Connection} connection @param {string} name @param {'removed'|'permission'} reason
   */
  expel(connection, name, reason) {
    this.#whenAnswered(connection, name, () => {
      if (!this.isIn(connection, name)) return;
      if (reason === 'permission' && connection.session.mayJoin(name)) return;
      this.end(connection, name);
      const { door } = connection.transport;
      door.expelled(connection, name, reason);
      const text = door.encodeLeft(name, reason);
      if (text !== null) connection.send(text);
    });
  }

  /**
   * Acts when no join of the connection is under way in the room. Behind one that is answered, the
   * client may have sent another one.
   * @param {Connection} connection @param {string} name @param {() => void} act
   */
  #whenAnswered(connection, name, act) {
    const joining = this.#answerOf(connection, name);
    if (joining === null) return act();
    const again = () => this.#whenAnswered(connection, name, act);
    joining.then(again, again).catch((error) => connection.fail(error));
  }

  /**
   * Asks the hook about rooms before the connection is in the hub.
   * @param {Connection} connection
   * @param {import('../auth/credentials.js').Credentials|null} credentials
   * @param {readonly string[]} names
   * @returns {Promise<(Refusal|null)[]>|null} by room; it never rejects. Null: there is no hook
   */
  askEarly(connection, credentials, names) {
    const asked = this.gate.askEarly(connection, credentials, names);
    // So that a drain waits for the answer.
    this.#awaitAnswer(connection, asked);
    return asked;
  }

  /**
   * Asks the hook onJoin, if there is one, and answers a command that is refused. Reads of a room
   * need the permission to join, too.
   * @param {Connection} connection @param {string} name @param {import('./replies.js').Id} id
   * @param {() => void} act
   */
  askFor(connection, name, id, act) {
    this.gate.askToJoin(connection, name, (refused) => {
      if (refused === null) act();
      else this.replies.error(connection, refused.code, id, refused.message);
    });
  }

  /**
   * The join has waited. A grant of the backend may have ended meanwhile.
   * @param {Connection} connection @param {string} name @param {JoinOptions} join
   * @param {boolean} wasGranted
   */
  #enterLater(connection, name, join, wasGranted) {
    if (isForbidden(connection, name, join, wasGranted))
      join.onRefused(refusal('PERMISSION_DENIED'));
    else this.#enterRoom(connection, name, join);
  }

  /** @param {Connection} connection @param {string} name @param {JoinOptions} join */
  #enterRoom(connection, name, join) {
    const { hub } = this;
    const room = hub.rooms.get(name);
    if (room?.has(connection)) {
      if (!isReplay(connection, room, join)) return join.onRefused(refusal('ALREADY_JOINED'));
      const joining = room.joining(connection);
      if (joining !== null) return this.#enterAfter(joining, connection, name, join);
      const read = this.reads.admit(connection, name, null);
      hub.rejoin(connection, room, this.#requestOf(connection, name, join, read));
      return this.#awaitAnswer(connection, this.#answerOf(connection, name));
    }
    const refused = join.isOwn ? this.#readsFault(name) : this.#faultOf(connection, name);
    if (refused === null) return this.#readForJoin(connection, name, join);
    join.onRefused(refused);
    if (refused.code === 'ROOM_LIMIT' && this.refusedJoins.isTooMany(connection))
      connection.close(toClose(refused));
  }

  /**
   * Joins when the join under way is answered, because each of them gets an answer.
   * @param {Promise<void>} joining @param {Connection} connection @param {string} name
   * @param {JoinOptions} join
   */
  #enterAfter(joining, connection, name, join) {
    const { lane } = this;
    if (lane.isFull) {
      this.counters.readsRefused++;
      return join.onRefused(refusal('UNAVAILABLE', undefined, 0));
    }
    const wasGranted = isGranted(connection, name);
    const enter = () => {
      if (!connection.isOpen) return;
      if (this.isIn(connection, name) || join.isOwn) return this.#enterRoom(connection, name, join);
      if (isForbidden(connection, name, join, wasGranted))
        return join.onRefused(refusal('PERMISSION_DENIED'));
      // The membership that allowed it has ended, so onJoin has to allow it.
      this.#askToEnter(connection, name, join);
    };
    const entered = joining.then(enter, enter).catch((error) => connection.fail(error));
    lane.awaitJoin(connection, entered, true);
  }

  /** @param {Connection} connection @param {string} name @param {JoinOptions} join */
  #readForJoin(connection, name, join) {
    const { since, last = 0, readCost = null } = join;
    const isRead = since !== null || last > 0;
    const read = this.reads.admit(connection, name, isRead ? readCost : null);
    if (read.wait === 0) return this.#join(connection, name, join, read);
    const refused = this.replies.overRateRefusal(connection, read.wait);
    if (refused !== null) join.onRefused(refused);
  }

  /**
   * @param {Connection} connection @param {string} name @param {JoinOptions} join
   * @param {AdmittedRead} read
   */
  #join(connection, name, join, read) {
    const request = this.#requestOf(connection, name, join, read);
    if (join.listed != null) {
      const answered = this.rosters.joinWithList(connection, name, join.listed, request);
      return this.#awaitAnswer(connection, answered);
    }
    this.hub.join(connection, name, request);
    this.#awaitAnswer(connection, this.#answerOf(connection, name));
  }

  /**
   * Why a connection cannot enter another room now.
   * @param {Connection} connection @param {string} name @returns {Refusal|null}
   */
  #faultOf(connection, name) {
    if (!this.#mayEnterAnother(connection)) return refusal('ROOM_LIMIT', this.roomLimitText);
    return this.#readsFault(name);
  }

  /** Messages of rooms with state have keys. @param {Connection} connection @param {string} name */
  #stateFault({ transport }, name) {
    const isOther = !transport.door.takesState && this.hub.scheduler.hasState(name);
    return isOther ? refusal('PERMISSION_DENIED', HAS_STATE) : null;
  }

  /** Are too many reads waiting for another room to open? Counts it. @param {string} name */
  #readsFault(name) {
    const { hub, counters } = this;
    const { scheduler } = hub;
    if (hub.rooms.has(name) || !scheduler.isOverloaded || !scheduler.hasHistory(name)) return null;
    counters.readsRefused++;
    return refusal('READS_WAIT', undefined, 0);
  }

  /**
   * Checks the room limit. In the mode `observe` a room above it is only counted.
   * @param {Connection} connection
   */
  #mayEnterAnother({ roomCount }) {
    const { maxRoomsPerConnection: max, maxRoomsPerConnectionMode: mode } = this.config;
    if (roomCount < max || mode === 'off') return true;
    if (mode === 'observe') this.counters.observed.rooms++;
    return mode === 'observe';
  }

  /** Null: it is answered. @param {Connection} connection @param {string} name */
  #answerOf(connection, name) {
    return this.hub.rooms.get(name)?.joining(connection) ?? null;
  }

  /**
   * Delays a connection's commands until its join is answered, so that it gets its own messages.
   * @param {Connection} connection @param {Promise<unknown>|null} answered
   */
  #awaitAnswer(connection, answered) {
    if (answered !== null) this.lane.awaitJoin(connection, answered);
  }

  /**
   * @param {Connection} connection @param {string} name @param {JoinOptions} join
   * @param {AdmittedRead} read @returns {RosterRequest}
   */
  #requestOf(connection, name, join, read) {
    const { since, last = 0, lastSeconds = 0, hasOwn, mayReadAll = false, who } = join;
    const { reads } = this;
    return {
      since,
      last,
      hasOwn,
      lastFromMs: lastSeconds === 0 ? 0 : Date.now() - lastSeconds * 1000,
      oldestMs: this.#oldestMs(since, mayReadAll),
      onJoined: (joined, users = NO_USERS) => {
        this.#countLost(since, joined);
        join.onJoined(joined, reads.pay(connection, name, joined, read), users);
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
    // The connection may have left meanwhile, or be a user already after an earlier join. One that
    // is closing, perhaps because its user was revoked, does not appear any more.
    if (!room?.has(connection) || room.users?.has(connection) || !connection.isOpen) return;
    const { session } = connection;
    if (session.isAnonymous)
      room.users?.join(connection, who.user ?? connection.id, who.info, who.member);
    else room.users?.join(connection, session.name, session.identity.info);
  }

  /**
   * Presence shows the user and the `info` of a new token.
   * @param {Connection} connection @param {Who} [who] of a connection without a user
   */
  showUser(connection, who) {
    const { session } = connection;
    if (session.isAnonymous && who?.member === undefined) return;
    for (const { name } of connection.listRooms()) {
      const users = this.hub.rooms.get(name)?.users ?? null;
      if (users === null || !users.has(connection)) continue;
      if (session.isAnonymous) users.update(connection, /** @type {Buffer} */ (who?.member));
      else if (users.userOf(connection) === session.name)
        users.update(connection, encodeMember(session.name, session.identity.info));
      else {
        users.leave(connection);
        users.join(connection, session.name, session.identity.info);
      }
    }
  }

  /**
   * The name in presence is that of the user, and free only if neither tokens nor hooks name users.
   * @param {Connection} connection @param {Who|null} who
   */
  #nameFault({ session }, who) {
    if (who?.user === undefined) return null;
    const mayAppear = session.isAnonymous ? this.isNameFree : session.name === who.user;
    return mayAppear ? null : refusal('PERMISSION_DENIED', OTHER_NAME);
  }

  /** @param {Since|null} since @param {boolean} mayReadAll */
  #oldestMs(since, mayReadAll) {
    return since === null || mayReadAll ? 0 : this.reads.resumeFromMs;
  }

  /** @param {Since|null} since @param {Joined|null} joined null: no history after a position */
  #countLost(since, joined) {
    if (joined === null && since !== null) this.counters.recoveries.insufficient++;
  }
}

/** Has a backend granted it the room? @param {Connection} connection @param {string} room */
function isGranted({ session }, room) {
  return session.granted?.has(room) ?? false;
}

/**
 * Has it lost the grant on which its join relied?
 * @param {Connection} connection @param {string} room @param {JoinOptions} join
 * @param {boolean} wasGranted
 */
function isForbidden(connection, room, { mayJoin }, wasGranted) {
  if (!wasGranted || isGranted(connection, room)) return false;
  return !(mayJoin?.() ?? connection.session.mayJoin(room));
}

/** @param {Connection['session']} session @param {string} room */
function canName(session, room) {
  return session.isAnonymous ? !isOfApp(room) : session.identity.nameOf(room) !== null;
}

/**
 * Does another join of the same room bring messages? The token may have joined it before the client
 * could send its position, or a later handle wants older messages.
 * @param {Connection} connection @param {HubRoom} room @param {JoinOptions} join
 */
function isReplay({ transport }, { sync }, { since, last = 0 }) {
  return transport.door.repeatsJoins && sync !== null && (since !== null || last > 0);
}
