// fleet-limits.test.js: the caps per address and per user over two servers, on real processes and a
// real Redis. test/faults/fleet-limits.test.js has the slow cases, and measures times.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRedis } from '../../loadtest/lib/redis.js';
import { scrape, startServer, until, urlOf } from '../../loadtest/lib/server.js';
import { each, WsClient } from '../../loadtest/lib/ws-client.js';
import { dial } from '../helpers/dial.js';
import { SECRET, token } from '../helpers/tokens.js';

const TIMEOUT_MS = 30_000;
/** Less than a second, and more on a busy machine. */
const SETTLE_MS = 10_000;

test('300 connections from one address to two servers settle at 100', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const servers = await Promise.all(
    ['a', 'b'].map((id) =>
      startServer(t, {
        WORKERS: '2',
        REDIS_URL: redis.url,
        SERVER_ID: id,
        FANFARE_OVERLOAD_MODE: 'off',
      }),
    ),
  );
  await until(() => seesOther(servers[0]));
  const dialled = await Promise.all(servers.map((server) => dial(urlOf(server), 150)));
  const clients = dialled.flatMap((one) => one.clients);
  t.after(() => closeAll(clients));
  const isOpen = (/** @type {WsClient} */ client) => client.isOpen;
  await until(() => clients.filter(isOpen).length <= 100, SETTLE_MS, 'the end of the excess');
  for (const { metricsPort } of servers)
    await until(async () => {
      const { values } = await scrape(metricsPort);
      return values.get('fanfare_fleet_limit_excess{limit="address"}') === 0;
    });
  assert.equal(clients.filter(isOpen).length, 100);
  const closed = clients.filter((client) => !client.isOpen);
  assert.deepEqual(new Set(closed.map(({ closeCode }) => closeCode)), new Set([4008]));
  const { answers } = await dial(urlOf(servers[1]), 5);
  assert.deepEqual(answers, { 429: 5 });
});

test('a user has the cap over two servers, whatever their address', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const env = {
    WORKERS: '1',
    REDIS_URL: redis.url,
    JWT_SECRET: SECRET,
    FANFARE_MAX_CONNECTIONS_PER_USER: '10',
    FANFARE_MAX_CONNECTIONS_PER_IP_MODE: 'off',
  };
  const servers = await Promise.all([startServer(t, env), startServer(t, env)]);
  await until(() => seesOther(servers[0]));
  /** @type {WsClient[]} */
  const clients = [];
  t.after(() => closeAll(clients));
  const headers = { Authorization: `Bearer ${token({ sub: 'alice' })}` };
  await each(20, 20, async (i) => {
    clients.push(await new WsClient(urlOf(servers[i % 2]), { headers }).open());
  });
  await until(() => clients.filter(({ isOpen }) => isOpen).length <= 10, SETTLE_MS, 'the cap');
  const gone = clients.filter(({ isOpen }) => !isOpen);
  assert.deepEqual(new Set(gone.map(({ closeCode }) => closeCode)), new Set([4504]));
  assert.equal(gone.length, 10);
});

/** @param {import('../../loadtest/lib/server.js').Server} server */
async function seesOther({ metricsPort }) {
  const { values } = await scrape(metricsPort);
  return values.get('fanfare_fleet_limit_servers') === 2;
}

/** @param {readonly WsClient[]} clients */
function closeAll(clients) {
  for (const client of clients) client.socket.destroy();
}
