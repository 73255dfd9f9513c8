// hub.js: a worker's hub and its parts for unit tests, put together as in worker.js.

import { createCommands } from '../../src/doors/native/index.js';
import { Hub } from '../../src/hub/hub.js';
import { Outbox } from '../../src/hub/outbox.js';
import { NO_PRESENCE, PresenceTracker } from '../../src/hub/room-users.js';
import { SlowConsumers } from '../../src/hub/slow-consumers.js';
import { createCounters } from '../../src/observability/counters.js';
import { createOperations } from '../../src/operations/index.js';
import { Publisher } from '../../src/operations/publisher.js';
import { HistoryReader } from '../../src/recovery/history-reader.js';
import { OutageNotice } from '../../src/recovery/outage-notice.js';
import { SyncScheduler } from '../../src/recovery/scheduler.js';
import { FairQueue } from '../../src/transport/fair-queue.js';
import { Phase } from '../../src/worker/phase.js';
import { Turn } from '../../src/worker/turn.js';
import { FakeTransport } from './fake-transport.js';

const ignore = { observe() {} };
const silent = { debug() {}, warn() {}, error() {} };

/** The `history` of a broker without history. */
export const noHistory = () => Promise.reject(new Error('no room here has history'));

/**
 * Lets tests join a room and publish in the same tick: the broker confirms each room at once.
 * @template {Hub} H @param {H} hub @returns {H}
 */
export function confirmAtOnce(hub) {
  const openRoom = hub.openRoom.bind(hub);
  hub.openRoom = (name) => {
    const room = openRoom(name);
    room.confirming = null;
    return room;
  };
  return hub;
}

/**
 * @param {object} parts
 * @param {import('../../src/config/settings.js').Config} parts.config
 * @param {any} parts.broker
 * @param {(room: string) => {size: number, ttlMs: number}|null} [parts.historyOf]
 * @param {import('../../src/hub/room-users.js').PresenceStore} [parts.presence]
 * @param {(room: string) => boolean} [parts.covers] which rooms have presence
 * @param {import('../../src/operations/index.js').OperationParts['admitMessage']} [parts.admitMessage]
 * @param {import('../../src/operations/index.js').OperationParts['takeFreeRead']} [parts.takeFreeRead]
 * @param {(connection: import('../../src/hub/connection.js').Connection, bytes: number) => void}
 *   [parts.charge]
 * @param {(connection: import('../../src/hub/connection.js').Connection, nowMs: number, bytes: number) => number}
 *   [parts.admitBroadcast]
 * @param {import('../../src/operations/hook-gate.js').HookCalls|null} [parts.hooks]
 * @param {() => number} [parts.clock]
 * @param {number} [parts.budgetBytes] unsent bytes of the worker
 * @param {number} [parts.maxBufferBytes]
 * @param {import('../../src/hub/hub.js').Occupancy|null} [parts.reporter]
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
  admitMessage = () => 0,
  takeFreeRead = () => true,
  charge = () => {},
  admitBroadcast = () => 0,
  hooks = null,
  clock,
  budgetBytes = 1e9,
  maxBufferBytes,
  reporter = null,
  log = silent,
}) {
  const counters = createCounters();
  const slowConsumers = new SlowConsumers({ config, counters, budgetBytes, clock });
  const turn = new Turn();
  turn.sendFirst(() => broker.flush?.());
  const { maxUnsentBytes } = config;
  const reloadWindowMs = config.reconnectWindowMs;
  const outbox = new Outbox({
    slowConsumers,
    counters,
    maxUnsentBytes,
    reloadWindowMs,
    fanout: ignore,
    turn,
  });
  const scheduler = new SyncScheduler({
    broker,
    historyOf,
    counters,
    maxUnsentBytes,
    turn,
    maxBufferBytes,
    clock,
  });
  if (clock !== undefined) {
    // The test turns the wheel, too.
    const { wheel } = scheduler;
    const addToWheel = wheel.addTimetable.bind(wheel);
    wheel.addTimetable = (checked) => {
      const timetable = addToWheel(checked);
      clearInterval(wheel.timer);
      return timetable;
    };
  }
  const tracker =
    presence === undefined ? NO_PRESENCE : new PresenceTracker({ presence, covers, counters });
  const hub = new Hub({
    broker,
    outbox,
    slowConsumers,
    scheduler,
    tracker,
    reporter,
    counters,
    log,
  });
  const add = hub.addConnection.bind(hub);
  hub.addConnection = (connection) => {
    if (connection.transport instanceof FakeTransport)
      Object.assign(connection.transport, { connection, slowConsumers, hub });
    add(connection);
  };
  const outageNotice = new OutageNotice({ hub, scheduler, turn });
  const phase = new Phase();
  const publisher = new Publisher({
    ...{ config, broker, hub, phase, counters, log },
    historyOf,
  });
  const operations = createOperations({
    ...{ config, hub, broker, publisher, admitMessage, takeFreeRead, charge, counters, log },
    // Streams and tokens, which ask earlier, are tested with a whole worker.
    hooks: hooks && { askJoins: async () => [], ...hooks },
    presenceLine: turn.line('presence', (answer) => answer(), new FairQueue()),
  });
  const commands = createCommands({
    config,
    hub,
    operations,
    broker,
    idempotencyMs: 300_000,
    historyReader: new HistoryReader({ scheduler, counters }),
    outageNotice,
    admitBroadcast,
    counters,
    messageDuration: ignore,
  });
  return {
    ...{ counters, turn, slowConsumers, outbox, scheduler, hub, outageNotice, phase },
    ...{ operations, commands, publisher },
  };
}

/** A request to join a plain room whose answer no test reads. */
export const QUIET = { since: null, onJoined() {}, onRefused() {} };

/**
 * Receives a message as from a transport. Its bytes are overwritten afterwards, because the real
 * transport uses them for the next read.
 * @param {import('../../src/doors/native/index.js').Commands} commands
 * @param {import('../../src/hub/connection.js').Connection} connection
 * @param {object|string} message
 */
export function receive(commands, connection, message) {
  const bytes = Buffer.from(typeof message === 'string' ? message : JSON.stringify(message));
  commands.receive(connection, bytes);
  bytes.fill('?');
}

/** The account of a worker that is no process. @returns {import('../../src/worker/fleet-wire.js').WorkerInfo} */
export function describeWorker() {
  return {
    server: 'test',
    version: '0.0.0',
    slot: 0,
    pid: process.pid,
    state: 'ready',
    connections: 0,
    rooms: 0,
    lagMs: 0,
    memoryBytes: 1,
    uptimeS: 0,
  };
}
