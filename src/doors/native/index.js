// index.js: creates the commands of a worker.

import { HookGate } from '../../operations/hook-gate.js';
import { JoinReads } from '../../operations/join-reads.js';
import { Lane } from '../../operations/lane.js';
import { PendingReads } from '../../operations/pending-reads.js';
import { AuthCommands } from './auth.js';
import { BroadcastCommand } from './broadcast.js';
import { Dispatcher } from './dispatch.js';
import { HistoryCommand } from './history.js';
import { JoinCommands } from './join.js';
import { createNativeDoor } from './native-door.js';
import { PresenceCommand } from './presence.js';
import { MessageCommand } from './publish.js';
import { Replies } from './replies.js';
import { SessionCommands } from './session.js';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Door } from '../../hub/door.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */
/** @import { Handler } from './handler.js' */

/**
 * @typedef {object} CommandParts
 * @property {import('../../config/settings.js').Config} config
 * @property {import('../../hub/hub.js').Hub} hub
 * @property {{countConnections(): Promise<number>}} broker
 * @property {import('../../hub/publisher.js').Publisher} publisher
 * @property {number} idempotencyMs how long the broker remembers an idempotency key
 * @property {import('../../recovery/scheduler.js').SyncScheduler} scheduler
 * @property {import('../../recovery/history-reader.js').HistoryReader} historyReader
 * @property {{readonly isOn: boolean}} outageNotice
 * @property {import('../../hub/room-users.js').Tracker} tracker
 * @property {import('./auth.js').Authenticator|null} [authenticator] null: no tokens
 * @property {import('./native-door.js').Entrance|null} [entrance] null: neither tokens nor hooks
 * @property {import('../../operations/hook-gate.js').HookCalls|null} [hooks] null: none
 * @property {(connection: Connection, nowMs: number, bytes: number) => number} admitMessage 0 if
 *   the message passes; above 0: seconds to wait; −1: close with 4005
 * @property {(connection: Connection, nowMs: number, bytes: number) => number} admitBroadcast the
 *   same for a broadcast that has passed as a message
 * @property {() => string} [overRateText] names the limit that refused the last message
 * @property {(connection: Connection, bytes: number) => boolean} takeFreeRead takes bytes that are
 *   read for free from the address's allowance; false: it is used up. 0 only asks
 * @property {(connection: Connection, bytes: number) => void} charge counts the bytes of a reply
 *   against the connection's rate
 * @property {import('../../observability/counters.js').Counters} counters
 * @property {import('../../worker/turn.js').Line<() => void>} presenceLine sends answers about users
 * @property {{observe(ms: number): void}} messageDuration
 * @property {{error(fields: object, text: string): void}} log
 */

/**
 * @typedef {object} Commands
 * @property {Door} door of the native protocol
 * @property {(connection: Connection, data: Buffer) => void} receive handles a text message; `data`
 *   is not used after the call
 * @property {JoinCommands['joinFor']} join
 * @property {(connection: Connection, refusal: Refusal) => void} refuse answers a connection that
 *   will be closed next
 * @property {() => void} sweep call it once a second
 * @property {() => boolean} isSettled have hooks and broker answered all publishes?
 * @property {Lane} lane @property {Replies} replies @property {JoinCommands} joins
 * @property {HookGate|null} hookGate null if there are no hooks
 * @property {PendingReads} pendingReads @property {BroadcastCommand} broadcasts
 */

/** @param {CommandParts} parts @returns {Commands} */
export function createCommands(parts) {
  const { config, hub, counters } = parts;
  const { maxRoomsPerConnection } = config;
  const { log, overRateText } = parts;
  const replies = new Replies({ maxRoomsPerConnection, counters, log, overRateText });
  const lane = new Lane({ maxSteps: config.hookCallsPerConnection, replies, counters });
  const { hooks = null, authenticator = null } = parts;
  const hookGate = hooks && new HookGate({ hooks, hub, lane, publisher: parts.publisher, replies });
  const { charge, presenceLine } = parts;
  const pendingReads = new PendingReads({ replies, charge, counters, presenceLine });
  const all = createHandlers(parts, { replies, lane, hookGate, pendingReads });
  const { handlers, session, joins, broadcasts } = all;
  const gate =
    authenticator && new AuthCommands({ authenticator, hub, joins, session, lane, replies });
  if (gate !== null) {
    handlers.set('hello', gate.hello.bind(gate));
    handlers.set('auth', gate.auth.bind(gate));
  }
  const dispatcher = new Dispatcher({
    handlers,
    replies,
    admitMessage: limitsMessages(parts) ? parts.admitMessage : null,
    gate,
    lane,
    counters,
    messageDuration: parts.messageDuration,
    hasApps: hasAppTokens(config),
  });
  const receive = dispatcher.receive.bind(dispatcher);
  return {
    door: createNativeDoor({
      hub,
      entrance: parts.entrance,
      receive,
      forget: (connection) => lane.forget(connection),
    }),
    receive,
    join: (connection, room, join) => joins.joinFor(connection, room, join),
    refuse: (connection, refusal) => replies.refuse(connection, refusal),
    sweep: () => broadcasts.sweep(),
    isSettled: () => parts.publisher.unanswered === 0 && lane.isEmpty,
    lane,
    replies,
    joins,
    hookGate,
    pendingReads,
    broadcasts,
  };
}

/**
 * @param {CommandParts} parts
 * @param {{replies: Replies, lane: Lane, hookGate: HookGate|null, pendingReads: PendingReads}} shared
 */
function createHandlers(parts, { replies, lane, hookGate, pendingReads }) {
  const { config, hub, tracker, charge, counters, historyReader } = parts;
  const { maxInlineBytes, maxUnsentBytes } = config;
  const publisher = hookGate ?? parts.publisher;
  const session = new SessionCommands({
    config,
    idempotencyMs: parts.idempotencyMs,
    outageNotice: parts.outageNotice,
    replies,
  });
  const joins = new JoinCommands({
    config,
    hub,
    scheduler: parts.scheduler,
    tracker,
    replies,
    lane,
    gate: hookGate,
    // A guest must not appear under a user's name.
    isNameFree: config.tokens === null && !parts.hooks?.has('onConnect'),
    reads: new JoinReads(parts),
    charge,
    counters,
  });
  const messages = new MessageCommand({
    publisher,
    replies,
    maxInlineBytes,
    hasState: (room) => parts.scheduler.hasState(room),
    maxValueBytes: config.stateMaxValueBytes,
    appCounters: hasAppTokens(config) ? counters.apps : null,
  });
  const broadcasts = new BroadcastCommand({
    clientBroadcast: config.clientBroadcast,
    hub,
    broker: parts.broker,
    publisher,
    replies,
    maxInlineBytes,
    admitBroadcast: parts.admitBroadcast,
  });
  const histories = new HistoryCommand({ historyReader, joins, replies, pendingReads });
  const presences = new PresenceCommand({ hub, maxUnsentBytes, tracker, replies, pendingReads });
  // Bound methods, because arrow functions would add a nameless frame to each command's stack.
  /** By type. @type {Map<string, Handler>} */
  const handlers = new Map([
    ['hello', session.hello.bind(session)],
    ['join', joins.join.bind(joins)],
    ['leave', joins.leave.bind(joins)],
    ['message', messages.message.bind(messages)],
    ['history', histories.history.bind(histories)],
    ['broadcast', broadcasts.broadcast.bind(broadcasts)],
    ['echo', session.echo.bind(session)],
    ['presence', presences.presence.bind(presences)],
    ['ping', session.ping.bind(session)],
  ]);
  return { handlers, session, joins, broadcasts };
}

/** May a token name an app? @param {import('../../config/settings.js').Config} config */
function hasAppTokens({ tokens, pusher }) {
  return tokens !== null && pusher !== null;
}

/** Does any rate of messages apply? @param {CommandParts} parts */
function limitsMessages({ config, hooks = null }) {
  const hasUsers = config.tokens !== null || hooks !== null;
  return (
    config.messagesPerMinuteMode !== 'off' ||
    config.messagesPerMinutePerIpMode !== 'off' ||
    (hasUsers && config.messagesPerMinutePerUserMode !== 'off')
  );
}
