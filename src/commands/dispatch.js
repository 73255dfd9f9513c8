// dispatch.js: what a connection may ask for, one handler each.
//
// A message is counted against the rate first, then decoded, then handled. A handler answers by
// `connection.send`; what it can't do yet (the broker has to confirm) it answers when that settles.
// The peer's faults are answers too: rows of codes.js, counted, never thrown.

import { EVERYONE } from '../hub/hub.js';
import { CLOSES } from '../protocol/codes.js';
import {
  decode,
  isRoom,
  isUser,
  MAX_INFO_BYTES,
  readPresence,
  readSince,
} from '../protocol/decode.js';
import {
  ECHO_PREFIX,
  echoSuffix,
  encodeAck,
  encodeBroadcastResult,
  encodeError,
  encodeJoined,
  encodeMembers,
  encodeNotRecovered,
  encodePong,
  encodeRoomReply,
  encodeWelcome,
  historyPrefix,
  historySuffix,
  presencePrefix,
  presenceSuffix,
} from '../protocol/encode.js';
import { encodePublication, KIND, senderOf, tagOf } from '../protocol/publication.js';

/**
 * One message in so many is timed: the two looks at the clock and the count cost 0.2 us. A power of
 * two.
 */
const TIMED_EVERY = 8;
/** Third malformed message within this time: close 4501. */
const FAULT_WINDOW_MS = 10_000;
const MAX_MALFORMED = 3;
/** A message refused for its rate is decoded for its id only up to this size. */
const MAX_REFUSED_BYTES = 4096;
/** After this time a broadcast's result no longer waits for its own delivery here. */
const BROADCAST_RESULT_MS = 2000;

/** One `presence` reply, at most: who wants more asks for the next page. */
const MAX_PRESENCE_BYTES = 256 * 1024;
/** `presence` and `history` commands that wait for their answer, all connections together. */
const MAX_WAITING_READS = 10_000;
/** Commands that wait for their connection's join, all connections together. */
const MAX_BEHIND_JOINS_BYTES = 16 * 1024 * 1024;
/** What one of them costs beside its publication. */
const WAITING_COMMAND_BYTES = 512;
const NOTHING = Buffer.alloc(0);

/** @typedef {import('../hub/connection.js').Connection} Connection */
/** @typedef {import('../protocol/decode.js').Command} Command */
/** @typedef {import('../protocol/codes.js').ErrorCode} ErrorCode */

/**
 * @typedef
 *   {{publish(room: string, publication: Buffer): Promise<{epoch: string, offset: number}|void>, countConnections(): Promise<number>}}
 *   Publisher
 */

/**
 * @typedef
 *   {{connection: Connection, id: string|number|undefined, payload: string, sinceMs: number}}
 *   PendingBroadcast
 */

export class Commands {
  /**
   * @param {object} parts
   * @param {import('../config/settings.js').Config} parts.config
   * @param {import('../hub/hub.js').Hub} parts.hub
   * @param {Publisher} parts.broker
   * @param {import('../recovery/scheduler.js').SyncScheduler} parts.recovery
   * @param {{isOn: boolean}} parts.degraded
   * @param {(connection: Connection, nowMs: number, bytes: number) => number} parts.admitMessage 0:
   *   pass; seconds to wait; −1: close with 4005
   * @param {(connection: Connection, bytes: number) => void} [parts.charge] a reply of so many
   *   bytes costs its connection's rate
   * @param {(connection: Connection, nowMs: number, bytes: number) => number} parts.admitBroadcast
   *   the same, asked after it
   * @param {import('../hub/room-users.js').Attendance|null} [parts.attendance] null: no room has
   *   presence
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {{observe(ms: number): void}} parts.messageDuration
   * @param {{debug(fields: object, text: string): void, error(fields: object, text: string): void}}
   *   parts.log
   */
  constructor({
    config,
    hub,
    broker,
    recovery,
    degraded,
    admitMessage,
    charge = () => {},
    admitBroadcast,
    attendance = null,
    counters,
    messageDuration,
    log,
  }) {
    this.config = config;
    this.hub = hub;
    this.broker = broker;
    this.recovery = recovery;
    this.degraded = degraded;
    this.admitMessage = admitMessage;
    this.charge = charge;
    // A part of what may wait for a connection, so that a reader can ask for the next page before
    // it has read this one.
    this.maxPresenceBytes = Math.min(MAX_PRESENCE_BYTES, config.maxUnsentBytes / 4);
    this.admitBroadcast = admitBroadcast;
    this.attendance = attendance;
    this.countsMessages =
      config.messagesPerMinuteMode !== 'off' || config.messagesPerMinutePerIpMode !== 'off';
    this.counters = counters;
    this.messageDuration = messageDuration;
    this.log = log;
    /** Publishes that wait for the broker's answer, all connections together. */
    this.unanswered = 0;
    /** `presence` and `history` commands that wait for their answer. */
    this.waitingReads = 0;
    /** What commands hold that wait for their connection's join. */
    this.behindJoinsBytes = 0;
    /** From here on every publish is refused with UNAVAILABLE: this worker leaves. */
    this.isDraining = false;
    /** Broadcasts whose result is owed, by tag. @type {Map<number, PendingBroadcast>} */
    this.broadcasts = new Map();
    this.nextTag = 1;
    hub.outbox.onFlushed = (room, publications) => {
      if (room === hub.everyone && this.broadcasts.size > 0) this.#resultsOf(publications);
    };
  }

  /**
   * A text message came.
   * @param {Connection} connection
   * @param {Buffer} data valid UTF-8
   */
  receive(connection, data) {
    const isTimed = (this.counters.messages++ & (TIMED_EVERY - 1)) === 0;
    const started = isTimed || this.countsMessages ? performance.now() : 0;
    const wait = this.countsMessages ? this.admitMessage(connection, started, data.length) : 0;
    if (wait !== 0) return this.#refuse(connection, data, wait);
    this.#handle(connection, data);
    if (isTimed) this.messageDuration.observe(performance.now() - started);
  }

  /**
   * Sends an error reply.
   * @param {Connection} connection
   * @param {ErrorCode} code
   * @param {string|number|undefined} id
   * @param {number} [retryAfter] seconds
   */
  error(connection, code, id, retryAfter) {
    this.counters.errors[code]++;
    connection.send(encodeError(code, Date.now(), id, retryAfter));
  }

  /** Call once a second: pays results whose own delivery did not come. */
  sweep() {
    const oldest = performance.now() - BROADCAST_RESULT_MS;
    for (const [tag, pending] of this.broadcasts) {
      if (pending.sinceMs > oldest) return; // in order of time
      this.broadcasts.delete(tag);
      this.#result(pending);
    }
  }

  /**
   * A fault of ours over one message costs its own connection and no other.
   * @param {Connection} connection
   * @param {Buffer} data
   */
  #handle(connection, data) {
    /** @type {Command|null|undefined} */
    let command;
    try {
      command = decode(data);
      if (command === null) return this.#malformed(connection);
      const handler = HANDLERS.get(command.type);
      if (handler === undefined) this.error(connection, 'UNKNOWN_TYPE', command.id);
      else handler(this, connection, command);
    } catch (error) {
      this.log.error({ err: error, type: command?.type }, 'command failed');
      this.error(connection, 'INTERNAL_ERROR', command?.id);
      connection.close(CLOSES.INTERNAL);
    }
  }

  /**
   * @param {Connection} connection
   * @param {Buffer} data
   * @param {number} wait
   */
  #refuse(connection, data, wait) {
    const id = wait > 0 && data.length <= MAX_REFUSED_BYTES ? decode(data)?.id : undefined;
    this.refused(connection, id, wait);
  }

  /**
   * A message is over its rate.
   * @param {Connection} connection @param {string|number|undefined} id
   * @param {number} wait seconds; below 0: it was refused too often
   */
  refused(connection, id, wait) {
    if (wait > 0) return this.error(connection, 'RATE_LIMIT_EXCEEDED', id, wait);
    this.counters.rateLimitCloses++;
    connection.close(CLOSES.RATE_LIMITED);
  }

  /**
   * @param {Connection} connection
   * @param {string|number} [id]
   */
  #malformed(connection, id) {
    this.error(connection, 'INVALID_MESSAGE_FORMAT', id);
    const faults = faultsOf(connection);
    const now = performance.now();
    if (now - faults.malformedSinceMs > FAULT_WINDOW_MS) {
      faults.malformed = 0;
      faults.malformedSinceMs = now;
    }
    if (++faults.malformed >= MAX_MALFORMED) connection.close(CLOSES.BAD_REQUESTS);
  }

  /**
   * The command's shape is not what its type asks for.
   * @param {Connection} connection @param {Command} command
   */
  malformed(connection, command) {
    this.#malformed(connection, command.id);
  }

  /**
   * @param {Connection} connection
   * @param {string|number|undefined} id
   */
  roomLimit(connection, id) {
    this.error(connection, 'ROOM_LIMIT', id);
    const faults = faultsOf(connection);
    const now = performance.now();
    if (now - faults.refusedJoinsSinceMs > FAULT_WINDOW_MS) {
      faults.refusedJoins = 0;
      faults.refusedJoinsSinceMs = now;
    }
    if (++faults.refusedJoins > this.config.maxRoomsPerConnection)
      connection.close(CLOSES.ROOM_LIMIT);
  }

  /**
   * Publishes and answers by what the broker says.
   * @param {Connection} connection
   * @param {string} room
   * @param {Buffer} publication
   * @param {string|number|undefined} id
   * @param {number} tag of a broadcast; 0 for a message
   */
  publish(connection, room, publication, id, tag) {
    if (this.isDraining) {
      this.broadcasts.delete(tag);
      return this.error(connection, 'UNAVAILABLE', id);
    }
    this.counters.publications++;
    this.unanswered++;
    this.broker.publish(room, publication).then(
      (position) => {
        this.unanswered--;
        if (id !== undefined && tag === 0) connection.send(encodeAck(id, position));
      },
      (error) => {
        this.unanswered--;
        if (tag !== 0) this.broadcasts.delete(tag);
        this.brokerError(connection, error, id);
      },
    );
  }

  /**
   * @param {Connection} connection
   * @param {unknown} error
   * @param {string|number|undefined} id
   */
  brokerError(connection, error, id) {
    const { code } = /** @type {{code?: string}} */ (error);
    if (code === 'UNAVAILABLE' || code === 'OUTCOME_UNKNOWN') {
      this.error(connection, code, id);
      return;
    }
    this.log.error({ err: error }, 'broker failed with an unexpected error');
    this.error(connection, 'INTERNAL_ERROR', id);
  }

  /**
   * Answers a command that reads. A bound holds for those that wait, whoever asks, and the bytes of
   * the reply cost as those of a message do.
   * @template T
   * @param {Connection} connection
   * @param {string|number|undefined} id
   * @param {() => Promise<T>} read
   * @param {(read: T) => {before: Buffer, text: Buffer, after: string}} reply
   */
  answer(connection, id, read, reply) {
    if (this.waitingReads >= MAX_WAITING_READS) {
      this.counters.readsRefused++;
      return this.error(connection, 'UNAVAILABLE', id);
    }
    this.waitingReads++;
    read().then(
      (result) => {
        this.waitingReads--;
        if (!connection.isOpen) return;
        const { before, text, after } = reply(result);
        this.charge(connection, text.length);
        connection.sendAround(before, text, 0, text.length, after);
      },
      (error) => {
        this.waitingReads--;
        this.brokerError(connection, error, id);
      },
    );
  }

  /**
   * Acts at once, or when the connection's join of the room has been answered. What waits so has a
   * bound in bytes for the whole worker: beyond it the command is answered UNAVAILABLE.
   * @param {import('../hub/hub.js').Room} room
   * @param {Connection} connection
   * @param {string|number|undefined} id
   * @param {number} bytes that the command holds
   * @param {() => void} act
   */
  afterJoin(room, connection, id, bytes, act) {
    const { sync, confirming } = room;
    if (sync === null ? confirming === null : !sync.joins.has(connection)) return act();
    const held = bytes + WAITING_COMMAND_BYTES;
    if (this.behindJoinsBytes + held > MAX_BEHIND_JOINS_BYTES) {
      this.counters.readsRefused++;
      return this.error(connection, 'UNAVAILABLE', id);
    }
    this.behindJoinsBytes += held;
    const actLater = () => {
      this.behindJoinsBytes -= held;
      act();
    };
    if (sync !== null) sync.afterJoin(connection, actLater);
    else confirming?.then(actLater, actLater);
  }

  /**
   * @param {PendingBroadcast} pending
   * @returns {number} its tag
   */
  expectBroadcast(pending) {
    const tag = this.nextTag;
    this.nextTag = (this.nextTag % 0xffffffff) + 1;
    this.broadcasts.set(tag, pending);
    return tag;
  }

  /** @param {readonly Buffer[]} publications that everyone here has been sent */
  #resultsOf(publications) {
    for (let i = 0; i < publications.length; i++) {
      const tag = tagOf(publications[i]);
      const pending = this.broadcasts.get(tag);
      // Other workers count their tags from 1 as well: the sender tells whose this is.
      if (pending === undefined || pending.connection.id !== senderOf(publications[i])) continue;
      this.broadcasts.delete(tag);
      this.#result(pending);
    }
  }

  /** @param {PendingBroadcast} pending */
  #result({ connection, id, payload }) {
    this.broker.countConnections().then(
      (count) => connection.send(encodeBroadcastResult(payload, count, id)),
      // The count is away; the broadcast is not. What this worker knows is the least there is.
      () => connection.send(encodeBroadcastResult(payload, this.hub.connections.length, id)),
    );
  }
}

/** @param {Connection} connection */
function faultsOf(connection) {
  connection.faults ??= {
    malformed: 0,
    malformedSinceMs: Number.NEGATIVE_INFINITY,
    refusedJoins: 0,
    refusedJoinsSinceMs: Number.NEGATIVE_INFINITY,
  };
  return connection.faults;
}

/** @typedef {(commands: Commands, connection: Connection, command: Command) => void} Handler */

/** Every command there is. @type {ReadonlyMap<string, Handler>} */
export const HANDLERS = new Map(
  /** @type {[string, Handler][]} */ ([
    ['hello', hello],
    ['join', join],
    ['leave', leave],
    ['message', message],
    ['history', history],
    ['broadcast', broadcast],
    ['echo', echo],
    ['presence', presence],
    ['ping', ping],
  ]),
);

/** @type {Handler} */
function hello({ config, degraded }, connection, { id }) {
  const { serverId, pingIntervalMs, maxMessageBytes, maxRoomsPerConnection, messagesPerMinute } =
    config;
  const limits = {
    maxMessageBytes,
    maxRooms: config.maxRoomsPerConnectionMode === 'enforce' ? maxRoomsPerConnection : undefined,
    messagesPerMinute: config.messagesPerMinuteMode === 'enforce' ? messagesPerMinute : undefined,
  };
  connection.isGreeted = true;
  const welcome = { connectionId: connection.id, serverId, heartbeatMs: pingIntervalMs, limits };
  connection.send(encodeWelcome({ ...welcome, degraded: degraded.isOn }, id));
}

/** @type {Handler} */
function join(commands, connection, command) {
  const { id, room: name, since } = command;
  const { hub, config, counters, attendance } = commands;
  if (!isRoom(name)) return commands.error(connection, 'INVALID_ROOM', id);
  const who = attendance?.covers(name) ? readPresence(command) : null;
  if (who === undefined) return commands.malformed(connection, command);
  if (who?.info && who.info.length > MAX_INFO_BYTES)
    return commands.error(connection, 'MESSAGE_TOO_LARGE', id);
  const room = hub.rooms.get(name);
  if (room?.has(connection)) return commands.error(connection, 'ALREADY_JOINED', id);
  if ((connection.rooms?.size ?? 0) >= config.maxRoomsPerConnection) {
    const mode = config.maxRoomsPerConnectionMode;
    if (mode === 'enforce') return commands.roomLimit(connection, id);
    if (mode === 'observe') counters.observed.rooms++;
  }
  if (
    room === undefined &&
    commands.recovery.isFull &&
    commands.recovery.historyOf(name) !== null
  ) {
    counters.readsRefused++;
    return commands.error(connection, 'UNAVAILABLE', id);
  }
  const { sync } = hub.room(name);
  if (sync !== null) {
    return sync.join(connection, {
      since: readSince(since),
      onJoined: (joined) => {
        connection.send(encodeJoined(name, joined, id));
        attend(commands, connection, name, who);
      },
      onRefused: (error) => commands.brokerError(connection, error, id),
    });
  }
  const confirmed = hub.join(connection, name);
  const hasSince = readSince(since) !== null;
  const reply = hasSince ? encodeNotRecovered(name, id) : encodeRoomReply('joined', name, id);
  if (hasSince) counters.recoveries.insufficient++;
  if (confirmed === null) {
    connection.send(reply);
    attend(commands, connection, name, who);
  } else {
    confirmed.then(
      () => {
        connection.send(reply);
        attend(commands, connection, name, who);
      },
      (error) => commands.brokerError(connection, error, id),
    );
  }
}

/**
 * Makes a connection that has joined one of the room's users.
 * @param {Commands} commands
 * @param {Connection} connection
 * @param {string} name
 * @param {import('../protocol/decode.js').JoiningUser|null} who null: nobody, it only watches, or the room
 *   has no presence
 */
function attend({ hub, attendance }, connection, name, who) {
  if (who === null || attendance === null) return;
  const room = hub.rooms.get(name);
  // It may be gone, where the broker had to confirm the room first.
  if (room?.has(connection)) attendance.join(connection, room, who.user ?? connection.id, who.info);
}

/** @type {Handler} */
function presence(commands, connection, command) {
  const { id, room: name, limit, after } = command;
  const { hub, attendance } = commands;
  if (!isRoom(name)) return commands.error(connection, 'INVALID_ROOM', id);
  if (!isLimit(limit) || !(after === undefined || isUser(after)))
    return commands.malformed(connection, command);
  const room = hub.rooms.get(name);
  if (room === undefined || !room.has(connection))
    return commands.error(connection, 'NOT_IN_ROOM', id);
  /** @param {{count: number, members: readonly Buffer[]|null}} attended */
  const reply = ({ count, members }) => {
    const request = {
      after,
      limit: limit ?? Number.POSITIVE_INFINITY,
      maxBytes: commands.maxPresenceBytes,
    };
    const page = members === null ? null : encodeMembers({ members, ...request });
    return {
      before: presencePrefix(name, page !== null),
      text: page?.text ?? NOTHING,
      after: presenceSuffix(count, page, id),
    };
  };
  const read = async () => (attendance?.covers(name) ? attendance.presence.read(name) : NOBODY);
  // Behind its own join, whose user it is to see.
  commands.afterJoin(room, connection, id, 0, () => commands.answer(connection, id, read, reply));
}

/** @type {{count: number, members: readonly Buffer[]}} */
const NOBODY = { count: 0, members: [] };

/**
 * @param {unknown} limit
 * @returns {limit is number|undefined}
 */
function isLimit(limit) {
  return limit === undefined || (Number.isSafeInteger(limit) && /** @type {number} */ (limit) > 0);
}

/** @type {Handler} */
function leave(commands, connection, { id, room: name }) {
  const { hub } = commands;
  if (!isRoom(name)) return commands.error(connection, 'INVALID_ROOM', id);
  const room = hub.rooms.get(name);
  if (room === undefined || !room.has(connection))
    return commands.error(connection, 'NOT_IN_ROOM', id);
  // Its join is answered first: a connection's commands on one room take effect in their order.
  commands.afterJoin(room, connection, id, 0, () => {
    if (room.has(connection)) hub.leave(connection, room);
    connection.send(encodeRoomReply('left', name, id));
  });
}

/** @type {Handler} */
function message(commands, connection, command) {
  const { id, source, payloadStart, textStart } = command;
  if (payloadStart < 0 === textStart < 0) return commands.malformed(connection, command);
  const name = command.room ?? onlyRoom(connection);
  if (name === undefined) return commands.error(connection, 'ROOM_REQUIRED', id);
  if (!isRoom(name)) return commands.error(connection, 'INVALID_ROOM', id);
  const publication =
    payloadStart < 0
      ? encodePublication(
          KIND.MESSAGE,
          Date.now(),
          0,
          connection.id,
          source,
          textStart,
          command.textEnd,
        )
      : encodePublication(
          KIND.MESSAGE,
          Date.now(),
          0,
          connection.id,
          source,
          payloadStart,
          command.payloadEnd,
        );
  const room = commands.hub.rooms.get(name);
  // Who sends right behind its own join wants to see its message: it waits for that join.
  if (
    room !== undefined &&
    (room.confirming !== null || room.sync !== null) &&
    room.has(connection)
  ) {
    const { length } = publication;
    commands.afterJoin(room, connection, id, length, () =>
      commands.publish(connection, name, publication, id, 0),
    );
  } else {
    commands.publish(connection, name, publication, id, 0);
  }
}

/** @type {Handler} */
function history(commands, connection, command) {
  const { id, room: name, limit } = command;
  if (!isRoom(name)) return commands.error(connection, 'INVALID_ROOM', id);
  if (!isLimit(limit)) return commands.malformed(connection, command);
  const since = readSince(command.since);
  commands.answer(
    connection,
    id,
    () => commands.recovery.history(name, limit, since),
    ({ messages, position }) => ({
      before: historyPrefix(name),
      text: messages,
      after: historySuffix(position, id),
    }),
  );
}

/** @type {Handler} */
function broadcast(commands, connection, command) {
  const { id, source, payloadStart, payloadEnd } = command;
  if (payloadStart < 0) return commands.malformed(connection, command);
  if (!commands.config.clientBroadcast) return commands.error(connection, 'PERMISSION_DENIED', id);
  const wait = commands.admitBroadcast(connection, performance.now(), payloadEnd - payloadStart);
  if (wait !== 0) return commands.refused(connection, id, wait);
  const payload = source.toString('utf8', payloadStart, payloadEnd);
  const tag = commands.expectBroadcast({ connection, id, payload, sinceMs: performance.now() });
  const publication = encodePublication(
    KIND.BROADCAST,
    Date.now(),
    tag,
    connection.id,
    source,
    payloadStart,
    payloadEnd,
  );
  commands.publish(connection, EVERYONE, publication, id, tag);
}

/** @type {Handler} */
function echo(commands, connection, command) {
  const { id, source, payloadStart, payloadEnd } = command;
  if (payloadStart < 0) return commands.malformed(connection, command);
  connection.sendAround(ECHO_PREFIX, source, payloadStart, payloadEnd, echoSuffix(id));
}

/** @type {Handler} */
function ping(_commands, connection, { id }) {
  connection.send(encodePong(id));
}

/**
 * @param {Connection} connection
 * @returns {string|undefined} the room it is in, where that is exactly one
 */
function onlyRoom(connection) {
  if (connection.rooms?.size !== 1) return undefined;
  for (const room of connection.rooms.keys()) return room.name;
}
