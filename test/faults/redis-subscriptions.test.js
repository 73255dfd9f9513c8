// redis-subscriptions.test.js: two servers whose primaries subscribe for their workers
// (REDIS_SUBSCRIPTIONS=server): workers and primaries are killed, and Redis is frozen and restarted.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { scrape, until } from '../../loadtest/lib/server.js';
import { NEMESES } from '../checker/nemesis.js';
import { OPTIONS, smoke } from './smoke.js';

const SETTING = Object.freeze({ servers: 2, env: { REDIS_SUBSCRIPTIONS: 'server' } });

/**
 * Whether each server has its rooms through one connection.
 * @param {import('../checker/trial.js').Trial} trial
 * @param {number} least subscriptions of workers for one at Redis
 */
async function isShared({ redis, servers }, least) {
  const list = await redis.cli('CLIENT', 'LIST', 'TYPE', 'pubsub');
  if (list.split('\n').filter((line) => line.startsWith('id=')).length !== servers.length)
    return false;
  for (const { process: server } of servers) {
    const { values } = await scrape(server.metricsPort);
    const [workers, shared] = ['workers', 'redis'].map((side) =>
      Number(values.get(`fanfare_redis_shared_subscriptions{side="${side}"}`)),
    );
    if (!(shared > 0 && workers >= least * shared)) return false;
  }
  return true;
}

for (const [name, holdMs] of /** @type {const} */ ([
  ['workerKilled', 0],
  ['workerFrozen', 4000],
  ['primaryKilled', 0],
  ['serverReloaded', 0],
  ['redisFrozen', 4000],
  ['redisEmptied', 1000],
  ['subscribersKilled', 0],
]))
  test(
    `${NEMESES[name].name}, with one subscription for each server: nothing is lost`,
    OPTIONS,
    async (t) => {
      await smoke(t, SETTING, async (trial) => {
        // Ten rooms are on both workers; each worker has a channel of its own.
        assert.ok(await isShared(trial, 1.5));
        await trial.suffer(NEMESES[name], holdMs);
        // All clients may be on one worker now, or on one server.
        await until(() => isShared(trial, 1), 15_000, 'that the servers subscribe again');
      });
    },
  );
