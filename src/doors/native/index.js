// index.js: creates the commands of a worker.

import { AuthCommands } from './auth.js';
import { BroadcastCommand } from './broadcast.js';
import { Dispatcher } from './dispatch.js';
import { HistoryCommand } from './history.js';
import { JoinCommands } from './join.js';
import { createNativeDoor } from './native-door.js';
import { PresenceCommand } from './presence.js';
import { MessageCommand } from './publish.js';
import { SessionCommands } from './session.js';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Door } from '../../hub/door.js' */
/** @import { OperationParts } from '../../operations/index.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */
/** @import { Handler } from './handler.js' */

/**
 * @typedef {object} CommandParts
 * @property {import('../../config/settings.js').Config} config
 * @property {import('../../hub/hub.js').Hub} hub
 * @property {import('../../operations/index.js').Operations} operations
 * @property {{countConnections(): Promise<number>}} broker
 * @property {number} idempotencyMs how long the broker remembers an idempotency key
 * @property {import('../../recovery/history-reader.js').HistoryReader} historyReader
 * @property {{readonly isOn: boolean}} outageNotice
 * @property {import('./auth.js').Authenticator|null} [authenticator] null: no tokens
 * @property {OperationParts['admitMessage']} admitBroadcast the same for a broadcast that has passed
 *   as a message
 * @property {import('../../observability/counters.js').Counters} counters
 * @property {{observe(ms: number): void}} messageDuration
 */

/**
 * @typedef {object} Commands
 * @property {Door} door of the native protocol
 * @property {(connection: Connection, data: Buffer) => void} receive handles a text message; `data`
 *   is not used after the call
 * @property {(connection: Connection, refusal: Refusal) => void} refuse answers a connection that
 *   will be closed next
 * @property {() => void} sweep call it once a second
 * @property {() => boolean} isSettled have hooks and broker answered all publishes?
 * @property {JoinCommands} joins @property {BroadcastCommand} broadcasts
 */

/** @param {CommandParts} parts @returns {Commands} */
export function createCommands(parts) {
  const { config, hub, operations, counters, authenticator = null } = parts;
  const { lane, replies } = operations;
  const { handlers, session, joins, broadcasts } = createHandlers(parts);
  const gate =
    authenticator &&
    new AuthCommands({
      ...{ authenticator, hub, session, lane, replies },
      joins: operations.joins,
      joinCommands: joins,
    });
  if (gate !== null) {
    handlers.set('hello', gate.hello.bind(gate));
    handlers.set('auth', gate.auth.bind(gate));
  }
  const dispatcher = new Dispatcher({
    handlers,
    replies,
    admitMessage: limitsMessages(parts) ? operations.admitMessage : null,
    gate,
    lane,
    counters,
    messageDuration: parts.messageDuration,
    hasApps: hasAppTokens(config),
  });
  const receive = dispatcher.receive.bind(dispatcher);
  return {
    door: createNativeDoor({ identities: operations.identities, receive }),
    receive,
    refuse: (connection, refusal) => replies.refuse(connection, refusal),
    sweep: () => broadcasts.sweep(),
    isSettled: () => operations.publisher.unanswered === 0 && lane.isEmpty,
    joins,
    broadcasts,
  };
}

/** @param {CommandParts} parts */
function createHandlers({ operations, ...parts }) {
  const { config, hub, historyReader } = parts;
  const { tracker } = hub;
  const { maxUnsentBytes } = config;
  const { publisher, replies, reads } = operations;
  const session = new SessionCommands({
    config,
    idempotencyMs: parts.idempotencyMs,
    outageNotice: parts.outageNotice,
    replies,
  });
  const joins = new JoinCommands({ tracker, joins: operations.joins, replies });
  const messages = new MessageCommand({ publisher, replies });
  const broadcasts = new BroadcastCommand({
    clientBroadcast: config.clientBroadcast,
    hub,
    broker: parts.broker,
    publisher,
    replies,
    admitBroadcast: parts.admitBroadcast,
  });
  const histories = new HistoryCommand({ historyReader, replies, reads });
  const presences = new PresenceCommand({ hub, maxUnsentBytes, tracker, replies, reads });
  // Bound methods, because arrow functions would add a nameless frame to each command's stack.
  /** Handlers by type. @type {Map<string, Handler>} */
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
function limitsMessages({ config, operations }) {
  const hasUsers = config.tokens !== null || operations.hookGate.hooks.has('onConnect');
  return (
    config.messagesPerMinuteMode !== 'off' ||
    config.messagesPerMinutePerIpMode !== 'off' ||
    (hasUsers && config.messagesPerMinutePerUserMode !== 'off')
  );
}
