// hub.js: a worker's hub and its parts, put together for unit tests as worker.js does.

import { Commands } from '../../src/commands/dispatch.js';
import { Hub } from '../../src/hub/hub.js';
import { Outbox } from '../../src/hub/outbox.js';
import { Attendance } from '../../src/hub/room-users.js';
import { SlowConsumers } from '../../src/hub/slow-consumers.js';
import { createCounters } from '../../src/observability/counters.js';
import { Degraded } from '../../src/recovery/outage-notice.js';
import { SyncScheduler } from '../../src/recovery/scheduler.js';
import { FakeTransport } from './fake-transport.js';

const ignore = { observe() {} };
const silent = { debug() {}, warn() {}, error() {} };

/** What a broker without history answers. */
export const noHistory = () => Promise.reject(new Error('no room here has history'));

/**
 * @param {object} parts
 * @param {import('../../src/config/settings.js').Config} parts.config
 * @param {any} parts.broker
 * @param {(room: string) => {size: number, ttlMs: number}|null} [parts.historyOf]
 * @param {ConstructorParameters<typeof Attendance>[0]['presence']} [parts.presence]
 * @param {(room: string) => boolean} [parts.covers] which rooms have presence
 * @param {(connection: import('../../src/hub/connection.js').Connection, bytes: number) => void}
 *   [parts.charge]
 * @param {() => number} [parts.clock]
 * @param {number} [parts.budgetBytes] unsent bytes of the worker
 * @param {number} [parts.maxWindowBytes]
 * @param
 *   {{debug(fields: object, text: string): void, warn(fields: object, text: string): void, error(fields: object, text: string): void}}
 *   [parts.log]
 */
export function buildHub({
  config,
  broker,
  historyOf = () => null,
  presence,
  covers = () => true,
  charge,
  clock,
  budgetBytes = 1e9,
  maxWindowBytes,
  log = silent,
}) {
  const counters = createCounters();
  const slowConsumers = new SlowConsumers({ config, counters, budgetBytes, clock });
  const { maxUnsentBytes } = config;
  const reloadWindowMs = config.reconnectWindowMs;
  const outbox = new Outbox({
    slowConsumers,
    counters,
    maxUnsentBytes,
    reloadWindowMs,
    fanout: ignore,
    flushSeconds: ignore,
  });
  const recovery = new SyncScheduler({
    broker,
    historyOf,
    outbox,
    slowConsumers,
    counters,
    maxUnsentBytes,
    maxWindowBytes,
    clock,
  });
  const hub = new Hub({ broker, outbox, slowConsumers, recovery, counters, log });
  const add = hub.add.bind(hub);
  hub.add = (connection) => {
    if (connection.transport instanceof FakeTransport)
      Object.assign(connection.transport, { connection, slowConsumers });
    add(connection);
  };
  const degraded = new Degraded({ hub, recovery });
  const commands = new Commands({
    config,
    hub,
    broker,
    recovery,
    degraded,
    attendance: presence === undefined ? null : new Attendance({ presence, covers, counters }),
    admitMessage: () => 0,
    charge,
    admitBroadcast: () => 0,
    counters,
    messageDuration: ignore,
    log,
  });
  return { counters, slowConsumers, outbox, recovery, hub, degraded, commands };
}

/**
 * A message as a transport hands it over: its bytes are the next read's as soon as it has been
 * received.
 * @param {import('../../src/commands/dispatch.js').Commands} commands
 * @param {import('../../src/hub/connection.js').Connection} connection
 * @param {object|string} message
 */
export function receive(commands, connection, message) {
  const bytes = Buffer.from(typeof message === 'string' ? message : JSON.stringify(message));
  commands.receive(connection, bytes);
  bytes.fill('?');
}
