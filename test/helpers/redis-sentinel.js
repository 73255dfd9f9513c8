// redis-sentinel.js: a primary, a replica and three Sentinels, each of which can be killed, frozen
// and brought back.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  freePort,
  RedisServer,
  redisSettings,
  startRedis,
  temporaryFolder,
} from '../harness/redis.js';

const NAME = 'main';
const SENTINELS = 3;
const START_TIMEOUT_MS = 20_000;
/** Most conditions start a process. */
const POLL_MS = 100;

/**
 * Starts them; they end with the test.
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {object} [options]
 * @param {number} [options.downAfterMs] of silence until a Sentinel calls the primary down
 * @param {string[]} [options.args] of the two servers
 */
export async function startSentinels(t, { downAfterMs = 1500, args = [] } = {}) {
  const primary = await startRedis(t, { args });
  const replica = await startRedis(t, {
    args: ['--replicaof', '127.0.0.1', `${primary.port}`, ...args],
  });
  // The first synchronisation starts with the replica's next attempt, and takes a moment of its
  // own.
  await until(async () => /\nslave0:.*state=online/.test(await primary.cli('INFO', 'replication')));
  const sentinels = [];
  for (let i = 0; i < SENTINELS; i++) {
    const folder = await temporaryFolder();
    const file = join(folder, 'sentinel.conf');
    await writeFile(
      file,
      [
        `sentinel monitor ${NAME} 127.0.0.1 ${primary.port} 2`,
        `sentinel down-after-milliseconds ${NAME} ${downAfterMs}`,
        // Sentinels whose vote was split vote again after twice this time.
        `sentinel failover-timeout ${NAME} 5000`,
        `sentinel parallel-syncs ${NAME} 1`,
        '',
      ].join('\n'),
    );
    const sentinel = new RedisServer(folder, [], file);
    sentinel.port = await freePort();
    t.after(() => sentinel.end());
    await sentinel.restart();
    sentinels.push(sentinel);
  }
  // They have to know each other and the replica before they can agree on a failover.
  for (const sentinel of sentinels) {
    await until(async () => {
      const state = await sentinel.cli('SENTINEL', 'MASTER', NAME);
      const of = (/** @type {string} */ key) => new RegExp(`^${key}\n(.*)$`, 'm').exec(state)?.[1];
      return (
        of('num-other-sentinels') === `${SENTINELS - 1}` &&
        of('num-slaves') === '1' &&
        of('flags') === 'master'
      );
    });
  }
  return {
    primary,
    replica,
    sentinels,
    settings: redisSettings({
      REDIS_SENTINELS: sentinels.map(({ port }) => `127.0.0.1:${port}`).join(','),
      REDIS_SENTINEL_NAME: NAME,
    }),
  };
}

/** @param {() => Promise<boolean>} condition */
export async function until(condition) {
  const end = performance.now() + START_TIMEOUT_MS;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`not within ${START_TIMEOUT_MS} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
