// courier.js: the process that sends webhooks, a child of the primary.
//
// The courier is a process of its own, so that DNS, TLS and slow endpoints delay no client or
// probe. With Redis, it has its own connection, and the couriers of all servers share the
// partitions. With the embedded backend the queue is in the primary, at the other end of the IPC
// channel.
//
//   primary -> courier   answer        to a queue call
//                        test          send webhook.test to an endpoint
//                        pauseLeaves   a worker drains: send no leaves
//                        stop          release the partitions and exit
//   courier -> primary   call          a method of the queue
//                        status        once a second: endpoints for the console, metrics
//                        tested        how a test ended

import { flushLog } from '../observability/log.js';
import { createCourierMetrics } from '../observability/registry.js';
import { AddressGuard } from '../outgoing/addresses.js';
import { WebhookDelivery } from './delivery.js';
import { RemoteQueue } from './queue-channel.js';
import { Requester } from './request.js';
import { sendTest } from './test-event.js';
import { repeatTogether } from './together.js';

const STATUS_MS = 1000;
/** Time to finish requests and commits when it stops. */
const CLOSE_TIMEOUT_MS = 3000;

/** @import { Config } from '../config/settings.js' */
/** @import { WebhookSettings } from '../config/webhooks.js' */
/** @import { Result } from './request.js' */

/**
 * @typedef {object} EndpointStatus an endpoint for the console
 * @property {string} name @property {string|null} app id of its Pusher app
 * @property {string} origin of its URL, whose path may be a secret
 * @property {readonly string[]} types @property {readonly string[]} rooms
 * @property {import('./endpoint-health.js').State} state @property {number} pending
 * @property {number} oldestSeconds @property {number} delivered requests
 * @property {number} dropped events
 * @property {string} lastError '' if there was none
 * @property {number} lastErrorAt Unix time in ms; 0: never
 * @property {number} lastDeliveryAt as lastErrorAt
 */

/**
 * @typedef {object} Status
 * @property {'status'} type @property {EndpointStatus[]} endpoints
 * @property {number} partitions owned by this server
 * @property {import('../observability/aggregate.js').Snapshot[]} metrics
 */

/** @typedef {{type: 'tested', id: number, result: Result}} Tested */
/** @typedef {import('./queue-channel.js').Answer | {type: 'test', id: number, endpoint: string} | {type: 'pauseLeaves', ms: number} | {type: 'stop'}} ToCourier */
/** @typedef {import('./queue-channel.js').Call | Status | Tested} FromCourier */

/**
 * Runs until the primary stops it or exits.
 * @param {Config} config with webhooks @param {import('pino').Logger} log
 * @param {typeof import('../backend/index.js').openEventQueue} openEventQueue for a server with Redis
 */
export async function runCourier(config, log, openEventQueue) {
  // Ctrl-C in a terminal reaches the whole process group, but the primary decides what happens.
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']))
    process.on(signal, () => {});
  /** @param {unknown} error */
  const processOnFault = async (error) => {
    log.fatal({ err: error }, 'uncaught exception: courier exits');
    await flushLog();
    process.exit(1);
  };
  process.on('uncaughtException', processOnFault);
  process.on('unhandledRejection', processOnFault);
  const webhooks = /** @type {WebhookSettings} */ (config.webhooks);
  const remote = new RemoteQueue(send);
  const { queue, opened, close } =
    config.redis === null
      ? { queue: remote.queue, opened: null, close() {} }
      : await openEventQueue({ config });
  const requester = new Requester(new AddressGuard(webhooks));
  const names = webhooks.endpoints.map(({ name }) => name);
  const delivery = new WebhookDelivery({
    queue,
    endpoints: webhooks.endpoints,
    requester,
    observe: (endpoint, seconds) => metrics.seconds.get(endpoint)?.observe(seconds),
    log,
  });
  const metrics = createCourierMetrics(sourceOf(delivery), names);
  const endReports = repeatTogether(STATUS_MS, delivery.now, () =>
    send(statusOf(delivery, metrics)),
  );

  let isStopping = false;
  const stop = async () => {
    if (isStopping) return;
    isStopping = true;
    endReports();
    setTimeout(() => process.exit(1), CLOSE_TIMEOUT_MS);
    await delivery.close();
    if (process.connected) await send(statusOf(delivery, metrics));
    requester.close();
    close();
    process.exit(0);
  };
  process.on('message', (/** @type {ToCourier} */ message) => {
    if (message.type === 'answer') remote.receive(message);
    else if (message.type === 'stop') stop();
    else if (message.type === 'pauseLeaves') delivery.periods.pauseLeaves(message.ms);
    else
      sendTest(webhooks, message.endpoint, requester).then((result) =>
        send({ type: 'tested', id: message.id, result }),
      );
  });
  process.on('disconnect', stop);
  // Calls before it is connected would count as failures of Redis.
  await opened;
  // The primary may have died meanwhile.
  if (process.connected) delivery.start();
  else await stop();
}

/** @param {WebhookDelivery} delivery @returns {import('../observability/metrics.js').CourierSource} */
export function sourceOf(delivery) {
  const { endpoints, partitions } = delivery;
  const all = [...endpoints.values()];
  /** @param {(one: typeof all[number]) => number} read */
  const byName = (read) => Object.fromEntries(all.map((one) => [one.name, read(one)]));
  /** @param {(one: typeof all[number]) => Record<string, number>} read */
  const byTwo = (read) =>
    Object.fromEntries(
      all.flatMap((one) =>
        Object.entries(read(one)).map(([key, value]) => [`${one.name},${key}`, value]),
      ),
    );
  return {
    pending: () => byName(({ waiting }) => waiting.size),
    oldestSeconds: () => byName(({ waiting }) => waiting.oldestSeconds(Date.now())),
    up: () =>
      byName(({ health }) => (health.state === 'gone' || health.state === 'failing' ? 0 : 1)),
    attempts: () => byTwo((one) => one.health.attempts),
    dropped: () => byTwo((one) => one.dropped),
    cancelled: () => byName((one) => one.cancelled),
    partitions: () => partitions.filter(({ isOwned }) => isOwned).length,
    size: () => delivery.size,
  };
}

/**
 * @param {WebhookDelivery} delivery @param {ReturnType<typeof createCourierMetrics>} metrics
 * @returns {Status}
 */
function statusOf({ endpoints, partitions }, metrics) {
  const now = Date.now();
  return {
    type: 'status',
    partitions: partitions.filter(({ isOwned }) => isOwned).length,
    endpoints: [...endpoints.values()].map((one) => endpointStatusOf(one, now)),
    metrics: metrics.snapshot(),
  };
}

/**
 * @param {import('./endpoint.js').EndpointQueue} endpoint @param {number} now
 * @returns {EndpointStatus}
 */
function endpointStatusOf({ name, settings, health, waiting, dropped }, now) {
  return {
    name,
    app: settings.pusher?.app.id ?? null,
    origin: new URL(settings.url).origin,
    types: settings.types,
    rooms: settings.rooms,
    state: health.state,
    pending: waiting.size,
    oldestSeconds: waiting.oldestSeconds(now),
    delivered: health.attempts.delivered,
    dropped: Object.values(dropped).reduce((sum, count) => sum + count, 0),
    lastError: health.lastError,
    lastErrorAt: health.lastErrorAt,
    lastDeliveryAt: health.lastDeliveryAt,
  };
}

/** Resolves when the message is written. @param {FromCourier} message @returns {Promise<void>} */
function send(message) {
  return new Promise((resolve) => {
    // After an error `disconnect` follows: the primary has exited.
    if (process.connected) process.send?.(message, undefined, undefined, () => resolve());
    else resolve();
  });
}
