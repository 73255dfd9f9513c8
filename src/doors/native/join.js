// join.js: the commands join and leave.

import { mayEnterRooms } from '../../hub/room-limit.js';
import { isOfApp } from '../../protocol/app-names.js';
import {
  MAX_INFO_BYTES,
  MAX_LAST,
  MAX_LAST_SECONDS,
  readLatest,
  readPresence,
  readSince,
} from '../../protocol/decode.js';
import {
  encodeJoined,
  encodeJoinedState,
  encodeLeaveReply,
  encodeLeft,
  encodeMember,
  encodeNotReplayed,
} from '../../protocol/encode.js';
import { numberText } from '../../protocol/refusal.js';

/**
 * A client without the right to read history gets messages after its position up to this age, and
 * any client gets them free of charge. The drain's window is added. Tunnels and network changes
 * take less.
 */
const RESUME_WINDOW_MS = 120_000;
const BAD_PRESENCE = 'presence is false, or an object with a user of 1 to 128 characters and info.';
const BAD_LAST = `last is a whole number from 1 to ${MAX_LAST}, lastSeconds to ${MAX_LAST_SECONDS}.`;
const OTHER_NAME = 'presence.user is not the user of this connection: leave it out.';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Room } from '../../hub/room.js' */
/** @import { JoiningUser, Since } from '../../protocol/decode.js' */
/** @import { Joined } from '../../recovery/room-joins.js' */
/** @import { Handler, Id } from './handler.js' */

/**
 * A join by a transport.
 * @typedef {object} TransportJoin
 * @property {Since|null} since @property {number} last the latest messages to send; 0: none
 * @property {number} lastSeconds maximum age of these; 0: any age
 * @property {boolean} isPresent is the user listed, if the room has presence?
 * @property {(joined: Joined|null) => void} onJoined writes the reply; null: no history
 * @property {() => void} onRefused called after the error reply
 */

/**
 * `who` null: the connection only watches presence. `onJoined` replaces the reply.
 * @typedef {Partial<Pick<TransportJoin, 'last'|'lastSeconds'|'onRefused'>> & {id: Id,
 *   who: JoiningUser|null, since: Since|null, onJoined?: TransportJoin['onJoined']|null}} Joining
 */

export class JoinCommands {
  /**
   * @param {object} parts @param {import('../../config/settings.js').Config} parts.config
   * @param {import('../../hub/hub.js').Hub} parts.hub
   * @param {import('../../recovery/scheduler.js').SyncScheduler} parts.scheduler
   * @param {import('../../hub/room-users.js').Tracker} parts.tracker
   * @param {import('./replies.js').Replies} parts.replies
   * @param {import('../../operations/lane.js').Lane} parts.lane
   * @param {Pick<import('../../operations/hook-gate.js').HookGate, 'enter'>|null} [parts.gate]
   * @param {boolean} parts.isNameFree may a connection without a user choose its name in presence?
   * @param {import('../../operations/join-reads.js').JoinReads} parts.reads
   * @param {(connection: Connection, bytes: number) => void} parts.charge
   * @param {import('../../observability/counters.js').Counters} parts.counters
   */
  constructor({
    config,
    hub,
    scheduler,
    tracker,
    replies,
    lane,
    gate = null,
    isNameFree,
    reads,
    charge,
    counters,
  }) {
    this.config = config;
    this.resumeWindowMs = RESUME_WINDOW_MS + config.reconnectWindowMs;
    this.isNameFree = isNameFree;
    this.hub = hub;
    this.scheduler = scheduler;
    this.tracker = tracker;
    this.replies = replies;
    this.lane = lane;
    this.gate = gate;
    this.reads = reads;
    this.charge = charge;
    this.counters = counters;
  }

  /** @type {Handler} */
  join(connection, command) {
    const { replies } = this;
    const { id } = command;
    const { session } = connection;
    const name = session.roomOf(command.room);
    if (name === null) return replies.invalidRoom(connection, id, command.room);
    if (!session.mayJoin(name)) return replies.forbidden(connection, id, 'join');
    const who = this.tracker.covers(name) ? readPresence(command) : null;
    if (who === undefined) return replies.invalid(connection, id, BAD_PRESENCE);
    if (who?.info && who.info.length > MAX_INFO_BYTES) {
      const [bytes, max] = [who.info.length, MAX_INFO_BYTES].map(numberText);
      const text = `presence.info has ${bytes} bytes, over the limit of ${max} bytes.`;
      return replies.error(connection, 'MESSAGE_TOO_LARGE', id, text);
    }
    if (who !== null && !this.#mayAppearAs(connection, who))
      return replies.error(connection, 'PERMISSION_DENIED', id, OTHER_NAME);
    const latest = readLatest(command.last, command.lastSeconds);
    if (latest === null) return replies.invalid(connection, id, BAD_LAST);
    // The right to join covers missed messages (#oldestFor), but no earlier ones.
    if (latest.last > 0 && !session.mayReadHistory(name))
      return replies.forbidden(connection, id, 'history');
    const { last, lastSeconds } = latest;
    const joining = { id, who, since: readSince(command.since), last, lastSeconds };
    this.askFor(connection, name, id, () => this.#enter(connection, name, joining));
  }

  /**
   * @param {Connection} connection with a session @param {string} name of a room in its token
   * @param {Since|null} since
   */
  autojoin(connection, name, since) {
    const who = this.tracker.covers(name) ? { user: undefined, info: null } : null;
    this.ask(connection, name, (refusal) => {
      if (refusal === null) this.#enter(connection, name, { id: undefined, who, since });
      else if (refusal.code === 'DENIED') connection.send(encodeLeft(name, 'permission'));
      else this.replies.error(connection, refusal.code, undefined, refusal.message);
    });
  }

  /**
   * For a transport whose clients send no commands, and which has asked the hooks.
   * @param {Connection} connection not in the room, but may join it @param {string} name
   * @param {TransportJoin} join
   */
  joinFor(connection, name, { isPresent, ...join }) {
    const who = isPresent && this.tracker.covers(name) ? { user: undefined, info: null } : null;
    this.#enter(connection, name, { id: undefined, who, ...join });
  }

  /**
   * Joins a room at the backend's request, whatever token and hooks permit.
   * @param {Connection} connection @param {string} name @param {string} user '': it has none
   * @returns {boolean} false: the connection has closed or reached its room limit, or its app or
   *   door does not allow it
   */
  joinAs(connection, name, user) {
    const { session, transport, isOpen } = connection;
    if (!isOpen) return false; // the hub would not remove it again
    if (!transport.door.usesTokens) return false; // the client would not know
    if (!canName(session, name)) return false;
    if (this.hub.rooms.get(name)?.has(connection)) {
      session.grant(name);
      return true;
    }
    const { entered } = transport.door;
    // Clients of other doors do not know the keys of a room with state.
    if (entered !== undefined && this.scheduler.hasState(name)) return false;
    if (!this.mayEnterAnother(connection)) return false;
    session.grant(name);
    const isListed = entered === undefined && this.tracker.covers(name);
    const who = isListed ? { user: user || undefined, info: null } : null;
    const onJoined =
      entered === undefined
        ? null
        : (/** @type {Joined|null} */ joined) => entered(connection, name, joined);
    this.#admit(connection, name, { id: undefined, who, since: null, onJoined });
    return true;
  }

  /** @param {Connection} connection @param {string} name @returns {boolean} false: not in it */
  remove(connection, name) {
    const { session, transport } = connection;
    // The client would not know.
    if (!transport.door.usesTokens && isOfApp(name)) return false;
    session.withdraw(name);
    const room = this.hub.rooms.get(name);
    if (room === undefined || !room.has(connection)) return false;
    this.expel(connection, room, 'removed');
    return true;
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
      door.expelled?.(connection, name, reason);
      const text = door.encodeLeft(name, reason);
      if (text !== null) connection.send(text);
    };
    const joining = room.joining(connection);
    if (joining === null) act();
    else joining.then(act, act).catch((error) => connection.fail(error));
  }

  /** Asks the hook onJoin, if there is one. @type {import('../../operations/hook-gate.js').HookGate['enter']} */
  ask(connection, name, act) {
    if (this.gate === null) act(null);
    else this.gate.enter(connection, name, act);
  }

  /**
   * As `ask`, and answers a command that is refused. Reads need the permission to join, too.
   * @param {Connection} connection @param {string} name @param {Id} id @param {() => void} act
   */
  askFor(connection, name, id, act) {
    this.ask(connection, name, (refusal) => {
      if (refusal === null) act();
      else this.replies.error(connection, refusal.code, id, refusal.message);
    });
  }

  /** @param {Connection} connection @param {string} name @param {Joining} join */
  #enter(connection, name, join) {
    const { hub, replies } = this;
    const room = hub.rooms.get(name);
    if (room?.has(connection)) {
      if (!isReplay(room, join)) return replies.error(connection, 'ALREADY_JOINED', join.id);
      hub.rejoin(connection, room, this.#requestOf(connection, name, join));
      return this.awaitJoin(connection, name);
    }
    if (!this.mayEnterAnother(connection)) return replies.roomLimit(connection, join.id);
    this.#admit(connection, name, join);
  }

  /** @param {Connection} connection @param {string} name @param {Joining} join */
  #admit(connection, name, join) {
    if (this.isFull(name)) {
      this.replies.error(connection, 'UNAVAILABLE', join.id);
      return join.onRefused?.();
    }
    this.hub.join(connection, name, this.#requestOf(connection, name, join));
    this.awaitJoin(connection, name);
  }

  /** Are too many reads waiting for another room to open? Counts it. @param {string} name */
  isFull(name) {
    const { hub, scheduler, counters } = this;
    const isFull = !hub.rooms.has(name) && scheduler.isFull && scheduler.hasHistory(name);
    if (isFull) counters.readsRefused++;
    return isFull;
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
   * @param {Connection} connection @param {string} name @param {Joining} join
   * @returns {import('../../hub/hub.js').RoomRequest}
   */
  #requestOf(connection, name, join) {
    const { id, who, since, last = 0, lastSeconds = 0, onJoined = null, onRefused } = join;
    const { roomCount } = connection;
    return {
      since,
      last,
      lastFromMs: lastSeconds === 0 ? 0 : Date.now() - lastSeconds * 1000,
      oldestMs: since === null ? 0 : this.#oldestFor(connection, name),
      onJoined: (joined) => {
        if (onJoined !== null) onJoined(joined);
        else if (joined === null) {
          if (since !== null) this.counters.recoveries.insufficient++;
          connection.send(encodeNotReplayed(name, since !== null, last > 0, id));
        } else if (joined.isState) connection.send(encodeJoinedState(name, joined, id));
        else connection.send(encodeJoined(name, joined, id, last > 0));
        if (joined !== null && joined.bytes > 0) {
          const { reads } = this;
          const isFree =
            this.isResumed(joined) &&
            reads.take(connection, name, roomCount) &&
            reads.takeFreeRead(connection, joined.bytes);
          if (!isFree) this.charge(connection, joined.bytes);
        }
        this.#attend(connection, name, who);
      },
      onRefused: (error) => {
        this.replies.brokerError(connection, error, id);
        onRefused?.();
      },
    };
  }

  /**
   * Is a replay within the resume window? Then the first one in a room is free (join-reads.js).
   * @param {Joined} joined
   */
  isResumed({ recovered, acceptedMs }) {
    return recovered && acceptedMs >= this.resumeFromMs;
  }

  /** Start of the resume window, in ms since 1970. */
  get resumeFromMs() {
    return Date.now() - this.resumeWindowMs;
  }

  /**
   * The oldest message that a position may bring. A client can claim any position, and the right to
   * join must not open the whole history.
   * @param {Connection} connection @param {string} name
   * @returns {number} ms since 1970, by the clock of the worker that accepted the message
   */
  #oldestFor({ session }, name) {
    return session.mayReadHistory(name) ? 0 : this.resumeFromMs;
  }

  /** @type {Handler} */
  leave(connection, { id, room: given }) {
    const { hub, replies } = this;
    const name = connection.session.roomOf(given);
    if (name === null) return replies.invalidRoom(connection, id, given);
    const room = hub.rooms.get(name);
    if (room === undefined || !room.has(connection))
      return replies.error(connection, 'NOT_IN_ROOM', id);
    hub.leave(connection, room);
    connection.send(encodeLeaveReply(name, id));
  }

  /** Checks the room limit; in the mode `observe` only counts. @param {Connection} connection */
  mayEnterAnother({ roomCount }) {
    return mayEnterRooms(this.config, this.counters, roomCount);
  }

  /** @param {Connection} connection @param {string} name @param {JoiningUser|null} who */
  #attend(connection, name, who) {
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
   * @param {Connection} connection @param {JoiningUser} who
   */
  #mayAppearAs({ session }, { user }) {
    if (user === undefined) return true;
    return session.isAnonymous ? this.isNameFree : session.name === user;
  }
}

/** @param {Connection['session']} session @param {string} room */
function canName(session, room) {
  return session.isAnonymous ? !isOfApp(room) : session.identity.nameOf(room) !== null;
}

/**
 * Does another join of the same room bring messages? The token may have joined it before the client
 * could send its position, or a later handle wants older messages.
 * @param {Room} room @param {Joining} join
 */
function isReplay({ sync }, { since, last = 0 }) {
  return sync !== null && (since !== null || last > 0);
}
