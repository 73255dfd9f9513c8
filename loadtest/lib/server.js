// server.js: real servers for a load test: Fanfare, redis-server, HAProxy; and what their metrics
// say.
//
// Ports are free ones. The processes are those of the end-to-end tests (test/helpers), and end with
// the run.

import { samples, spawnServer } from '../../test/helpers/server.js';

export { freePort, RedisServer, startRedis } from '../../test/helpers/redis.js';
export { fallen, samples, until } from '../../test/helpers/server.js';

/** @typedef {import('../../test/helpers/server.js').Server} Server */

/**
 * Starting takes 1 s of processor time for four workers, which a busy machine may be slow to give.
 */
const READY_TIMEOUT_MS = 30_000;
const SCRAPE_TIMEOUT_MS = 3000;

/** The settings of a run that is not about a limit. */
export const NO_LIMITS = Object.freeze({ FANFARE_LIMITS: 'off', LOG_LEVEL: 'info' });

/**
 * Starts Fanfare and waits until it serves.
 * @param {{after: (cleanup: () => unknown) => void}} test ends it
 * @param {Record<string, string>} env
 * @returns {Promise<Server>} rejects with what it said where it does not start
 */
export async function startServer(test, env) {
  const server = spawnServer(/** @type {import('node:test').TestContext} */ (test), env);
  const ready = await Promise.race([
    server.line(({ msg }) => String(msg).startsWith('fanfare is ready'), READY_TIMEOUT_MS),
    server.exited.then(({ code }) => {
      throw new Error(
        `the server ended with ${code}:\n${server.lines.map((line) => line.msg).join('\n')}\n${server.stderr()}`,
      );
    }),
  ]);
  return { ...server, port: ready.port, metricsPort: ready.metricsPort };
}

/** @param {Pick<Server, 'port'>} server */
export function urlOf(server) {
  return `ws://127.0.0.1:${server.port}/ws`;
}

/**
 * One scrape.
 * @param {number|string} where the operations port of a server here, or the URL of any page of
 *   metrics
 * @returns {Promise<{text: string, values: Map<string, number>}>} rejects where it does not answer
 *   with 200 in time
 */
export async function scrape(where) {
  const url = typeof where === 'number' ? `http://127.0.0.1:${where}/metrics` : where;
  const response = await fetch(url, { signal: AbortSignal.timeout(SCRAPE_TIMEOUT_MS) });
  const text = await response.text();
  if (response.status !== 200)
    throw new Error(`${new URL(url).pathname} answered ${response.status}`);
  return { text, values: samples(text) };
}

/**
 * Connections of each worker, by its slot.
 * @param {ReadonlyMap<string, number>} values
 * @returns {Map<string, number>}
 */
export function connectionsPerWorker(values) {
  /** @type {Map<string, number>} */
  const result = new Map();
  for (const [name, value] of values) {
    const match = /^fanfare_worker_connections\{worker="(\d+)"\}$/.exec(name);
    if (match) result.set(match[1], value);
  }
  return result;
}

/**
 * @param {number} metricsPort
 * @returns {Promise<Record<string, any>>} what /readyz says, with its HTTP `status`
 */
export async function readiness(metricsPort) {
  const response = await fetch(`http://127.0.0.1:${metricsPort}/readyz`, {
    signal: AbortSignal.timeout(SCRAPE_TIMEOUT_MS),
  });
  const body = /** @type {object} */ (await response.json());
  return { ...body, status: response.status };
}
