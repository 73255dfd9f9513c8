// rolling.js: replaces the servers of a trial by those of another version.

import { mainOf } from './versions.js';

/** @typedef {import('../checker/trial.js').Trial} Trial */

/**
 * Replaces all servers, one by one. The last is the first: a publisher that loses its server goes on
 * to the next one, so while the first servers are still old, some publishers are at new ones.
 * @param {Trial} trial
 * @param {string} version a folder
 * @param {() => unknown} [onMixed] called when only the first server is left
 */
export async function rollTo(trial, version, onMixed) {
  for (const server of [...trial.servers].reverse()) {
    if (server === trial.server) await onMixed?.();
    await replaceServer(trial, server, version);
  }
}

/**
 * A server drains and exits, and another version starts on its port.
 * @param {Trial} trial
 * @param {import('../checker/trial.js').Fanfare} server
 * @param {string} version a folder
 */
export async function replaceServer(trial, server, version) {
  await trial.suffer(
    {
      name: 'a server replaced by another version',
      holdMs: [0, 0],
      async inflict() {
        server.process.kill('SIGTERM');
        return async () => {
          await server.process.exited;
          server.main = mainOf(version);
          await server.start();
        };
      },
    },
    0,
  );
}

/**
 * Counts the messages of a version that the servers did not know, since each has started.
 * @param {Trial} trial
 */
export async function unknownVersions({ servers }) {
  const metrics = await Promise.all(servers.map((server) => server.metrics()));
  return metrics.reduce(
    (sum, values) => sum + (values.get('fanfare_unknown_versions_total') ?? Number.NaN),
    0,
  );
}
