// courier.js: the process that sends webhooks, a child of the primary.
//
// A process of its own, so that DNS, TLS and slow endpoints delay no client or probe. With Redis,
// the courier has its own connection, and the couriers of all servers share the lanes. With the
// embedded backend the queue is in the primary, at the other end of the IPC channel.
//
//   primary -> courier   answer   to a queue call
//                        test     send webhook.test to an endpoint
//                        hold     a worker drains: hold back leaves
//                        stop     release the lanes and exit
//   courier -> primary   call     a method of the queue
//                        status   once a second: endpoints for the console, metrics
//                        tested   how a test ended

import { flushLog } from '../observability/log.js';
import { createCourierMetrics } from '../observability/registry.js';
import { AddressGuard } from './addresses.js';
import { Delivery } from './delivery.js';
import { RemoteQueue } from './queue-channel.js';
import { Requester } from './request.js';
import { sendTest } from './test-event.js';

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
 * @property {import('./endpoint.js').State} state @property {number} pending
 * @property {number} oldestSeconds @property {number} delivered requests
 * @property {number} dropped events
 * @property {string} lastError '' if there was none
 * @property {number} lastErrorAt Unix time in ms; 0: never
 * @property {number} lastDeliveryAt as lastErrorAt
 */

/**
 * @typedef {object} Status
 * @property {'status'} type @property {EndpointStatus[]} endpoints
 * @property {number} lanes owned by this server
 * @property {import('../observability/aggregate.js').Snapshot[]} metrics
 */

/** @typedef {{type: 'tested', id: number, result: Result}} Tested */
/** @typedef {import('./queue-channel.js').Answer | {type: 'test', id: number, endpoint: string} | {type: 'hold', ms: number} | {type: 'stop'}} ToCourier */
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
  const delivery = new Delivery({
    queue,
    endpoints: webhooks.endpoints,
    requester,
    observe: (endpoint, seconds) => metrics.seconds.get(endpoint)?.observe(seconds),
    log,
  });
  const metrics = createCourierMetrics(sourceOf(delivery), names);
  const report = setInterval(() => send(statusOf(delivery, metrics)), STATUS_MS);

  let isStopping = false;
  const stop = async () => {
    if (isStopping) return;
    isStopping = true;
    clearInterval(report);
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
    else if (message.type === 'hold') delivery.hold(message.ms);
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

/** @param {Delivery} delivery @returns {import('../observability/metrics.js').CourierSource} */
export function sourceOf(delivery) {
  const { endpoints, lanes } = delivery;
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
    pending: () => byName((one) => one.pending),
    oldestSeconds: () => byName((one) => one.oldestSeconds(Date.now())),
    up: () => byName(({ state }) => (state === 'gone' || state === 'failing' ? 0 : 1)),
    attempts: () => byTwo((one) => one.attempts),
    dropped: () => byTwo((one) => one.dropped),
    cancelled: () => byName((one) => one.cancelled),
    lanes: () => lanes.filter(({ isOwned }) => isOwned).length,
    size: () => delivery.size,
  };
}

/**
 * @param {Delivery} delivery @param {ReturnType<typeof createCourierMetrics>} metrics
 * @returns {Status}
 */
function statusOf({ endpoints, lanes }, metrics) {
  const now = Date.now();
  return {
    type: 'status',
    lanes: lanes.filter(({ isOwned }) => isOwned).length,
    endpoints: [...endpoints.values()].map((one) => ({
      name: one.name,
      app: one.settings.pusher?.app.id ?? null,
      origin: new URL(one.settings.url).origin,
      types: one.settings.types,
      rooms: one.settings.rooms,
      state: one.state,
      pending: one.pending,
      oldestSeconds: one.oldestSeconds(now),
      delivered: one.attempts.delivered,
      dropped: Object.values(one.dropped).reduce((sum, count) => sum + count, 0),
      lastError: one.lastError,
      lastErrorAt: one.lastErrorAt,
      lastDeliveryAt: one.lastDeliveryAt,
    })),
    metrics: metrics.snapshot(),
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
