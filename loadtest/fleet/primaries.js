// primaries.js: a process with the subscription proxies of simulated servers for fleet.js. A real
// primary has one.
//
// The parent sends `{id, order, ...}` and gets `{id, result}` or `{id, error}`.

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { proxyPathOf, SubscriptionProxy } from '../../src/backend/redis/subscription-proxy.js';
import { loadConfig } from '../../src/config/config.js';

/** @type {SubscriptionProxy[]} */
let proxies = [];
const folder = mkdtempSync(join(tmpdir(), 'fanfare-fleet-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

const ORDERS = {
  /**
   * @param {{env: NodeJS.ProcessEnv, count: number}} order
   * @returns {Promise<string[]>} the relay path of each server
   */
  async open({ env, count }) {
    const { config, faults } = loadConfig(env);
    if (config === null) throw new Error(faults.join());
    const log = pino({ level: 'silent' });
    proxies = Array.from({ length: count }, () => new SubscriptionProxy({ config, log }));
    const paths = proxies.map((_proxy, i) => join(folder, `${i}`, 'relay'));
    for (const [i, proxy] of proxies.entries()) {
      mkdirSync(join(folder, `${i}`));
      await proxy.start(proxyPathOf(paths[i]));
    }
    return paths;
  },

  /** @returns {Promise<PrimaryFigures>} */
  async figures() {
    const { user, system } = process.cpuUsage();
    const sums = { workers: 0, redis: 0, cut: 0, received: 0 };
    for (const proxy of proxies) {
      const { workers, redis } = proxy.subscriptions();
      sums.workers += workers;
      sums.redis += redis;
      sums.cut += proxy.cutLinks;
      sums.received += proxy.received;
    }
    return { cpuSeconds: (user + system) / 1e6, ...sums };
  },

  async close() {
    await Promise.all(proxies.map((proxy) => proxy.close()));
  },
};

/**
 * @typedef
 *   {{cpuSeconds: number, workers: number, redis: number, cut: number, received: number}}
 *   PrimaryFigures
 */

process.on('message', async (/** @type {{id: number, order: keyof typeof ORDERS}} */ message) => {
  const { id, order, ...rest } = message;
  const send = (/** @type {object} */ reply) => process.connected && process.send?.(reply);
  try {
    const carryOut = /** @type {(rest: object) => Promise<unknown>} */ (ORDERS[order]);
    send({ id, result: await carryOut(rest) });
  } catch (error) {
    send({ id, error: /** @type {Error} */ (error).stack ?? String(error) });
  }
});
// The parent has ended.
process.once('disconnect', () => process.exit(0));
