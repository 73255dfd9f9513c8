// fleet-limits.test.js: the caps per address and per user over two servers, on real processes and a
// real Redis. test/faults/fleet-limits.test.js has the slow cases, and measures times.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { scrape, startServer, until, urlOf } from '../harness/server.js';
import { each, WsClient } from '../harness/ws-client.js';
import { dial } from '../helpers/dial.js';
import { SECRET, token } from '../helpers/tokens.js';

const TIMEOUT_MS = 30_000;
/** Less than a second, and more on a busy machine. */
const SETTLE_MS = 10_000;

test('two servers with one Redis', { timeout: TIMEOUT_MS }, async (t) => {
  const redis = await startRedis(t);
  const servers = await Promise.all(
    ['a', 'b'].map((id) =>
      startServer(t, {
        WORKERS: '2',
        REDIS_URL: redis.url,
        SERVER_ID: id,
        JWT_SECRET: SECRET,
        FANFARE_AUTH: 'optional',
        FANFARE_MAX_CONNECTIONS_PER_USER: '10',
        FANFARE_OVERLOAD_MODE: 'off',
      }),
    ),
  );
  for (const server of servers)
    await until(
      async () => (await figure(server, 'servers')) === 2,
      TIMEOUT_MS,
      'the first report',
    );

  await t.test('20 connections of a user settle at 10', async () => {
    const headers = { Authorization: `Bearer ${token({ sub: 'alice' })}` };
    /** @type {WsClient[]} */
    const clients = [];
    await each(20, 20, async (i) => {
      clients.push(await new WsClient(urlOf(servers[i % 2]), { headers }).open());
    });
    await settle(clients, 10, 4009);
    closeAll(clients);
  });

  await t.test('300 connections from one address settle at 100', async (t) => {
    const dialled = await Promise.all(servers.map((server) => dial(urlOf(server), 150)));
    const clients = dialled.flatMap((one) => one.clients);
    t.after(() => closeAll(clients));
    await settle(clients, 100, 4008);
    const { answers } = await dial(urlOf(servers[1]), 5);
    assert.deepEqual(answers, { 429: 5 });
    for (const server of servers)
      await until(async () => (await figure(server, 'excess{limit="address"}')) === 0);
    assert.equal(clients.filter(({ isOpen }) => isOpen).length, 100);
  });
});

/**
 * @param {readonly WsClient[]} clients
 * @param {number} cap
 * @param {number} code of those that are closed
 */
async function settle(clients, cap, code) {
  const left = () => clients.filter(({ isOpen }) => isOpen).length;
  await until(() => left() <= cap, SETTLE_MS, 'the end of the excess');
  assert.equal(left(), cap);
  const closed = clients.filter(({ isOpen }) => !isOpen);
  // On a slow machine one server may know the connections of the other before it admits its own.
  for (const { closeCode } of closed) assert.equal(closeCode, code);
}

/**
 * @param {import('../harness/server.js').Server} server
 * @param {string} name of a metric of these limits
 */
async function figure({ metricsPort }, name) {
  const { values } = await scrape(metricsPort);
  return values.get(`fanfare_fleet_limit_${name}`);
}

/** @param {readonly WsClient[]} clients */
function closeAll(clients) {
  for (const client of clients) client.socket.destroy();
}
