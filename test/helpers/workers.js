// workers.js: kills the workers of a real server.

import { until } from '../harness/server.js';

/** @typedef {import('../harness/server.js').Server} Server */

/** How many workers have begun to serve so far. @param {Server} server */
export const ready = ({ lines }) => lines.filter(({ msg }) => msg === 'worker ready').length;

/** How many reloads have ended so far, and with them their old workers. @param {Server} server */
export const reloads = ({ lines }) => lines.filter(({ msg }) => msg === 'reload complete').length;

/**
 * Kills a worker and waits for the next one. While another worker lives, the port stays open.
 * @param {Server} server @param {number} pid
 */
export async function killWorker(server, pid) {
  const before = ready(server);
  process.kill(pid, 'SIGKILL');
  await until(() => ready(server) > before, 20_000, 'a new worker');
}
