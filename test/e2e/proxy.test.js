// proxy.test.js: Fanfare behind real load balancers: HAProxy as docker/ has it, nginx as the README has it.
//
// Each client address here is one of 127.0.0.0/8, and the proxy speaks from 127.0.0.1. The same with clients in network
// namespaces is loadtest/faults/per-ip.js.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, handshakeStatus } from '../helpers/clients.js';
import { startHaproxy, startNginx } from '../helpers/proxies.js';
import { startRedis } from '../helpers/redis.js';
import { samples, startServer, until } from '../helpers/server.js';

const OPTIONS = { timeout: 60_000 };
const CAP = 5;

test('a room spans two servers behind HAProxy, and one that drains gets nobody new', OPTIONS, async (t) => {
  const redis = await startRedis(t);
  const env = { REDIS_URL: redis.url, FANFARE_LIMITS: 'off', WORKERS: '1', FANFARE_DRAIN_DELAY_MS: '4000' };
  const servers = await Promise.all([1, 2].map((i) => startServer(t, { ...env, SERVER_ID: `server-${i}` })));
  const port = await startHaproxy(
    t,
    servers.map((server) => server.port),
  );
  const clients = await Promise.all(Array.from({ length: 6 }, () => connect(t, port)));
  await Promise.all(clients.map((client) => client.join('square')));
  const ids = await Promise.all(clients.map((client) => client.ask({ type: 'hello' }, 'welcome')));
  const onFirst = ids.filter(({ serverId }) => serverId === 'server-1').length;
  assert.equal(onFirst, 3, 'leastconn has dealt them out evenly');
  clients[0].send({ type: 'message', payload: 'through two proxies' });
  for (const client of clients) assert.equal((await client.next('message')).payload, 'through two proxies');

  servers[0].kill('SIGTERM');
  await until(async () => (await fetch(`http://127.0.0.1:${servers[0].port}/readyz`)).status === 503);
  // Two checks, a second apart: then HAProxy has seen it, and the server still accepts.
  await until(async () => {
    const client = await connect(t, port);
    const { serverId } = await client.ask({ type: 'hello' }, 'welcome');
    client.socket.close();
    return serverId === 'server-2' && clients.every(({ close }) => close === null) && (await fallsToSecond(t, port));
  });
  const drained = clients.filter((_, i) => ids[i].serverId === 'server-1');
  const closes = await Promise.all(drained.map((client) => client.closed()));
  assert.deepEqual([...new Set(closes.map(({ code }) => code))], [1012]);
  for (const client of drained) assert.equal(client.all('SERVER_SHUTDOWN').length, 1);
  assert.deepEqual(await servers[0].exited, { code: 0, signal: null });
  assert.equal(await handshakeStatus(port), 101, 'the other one serves');
  assert.equal(clients.filter(({ close }) => close === null).length, 3, 'its own clients have noticed nothing');
});

for (const [name, start] of /** @type {const} */ ([
  [
    'HAProxy',
    (/** @type {import('node:test').TestContext} */ t, /** @type {number} */ port) => startHaproxy(t, [port]),
  ],
  ['nginx', startNginx],
])) {
  test(`behind ${name} each real address has a cap of its own, whatever it forges`, OPTIONS, async (t) => {
    const server = await startServer(t, {
      TRUST_PROXY: '127.0.0.1/32',
      FANFARE_MAX_CONNECTIONS_PER_IP: String(CAP),
    });
    const port = await start(t, server.port);
    for (const [localAddress, forged] of [
      ['127.0.0.2', []],
      ['127.0.0.3', ['203.0.113.9', '127.0.0.1', '127.0.0.2, 127.0.0.1']],
      ['127.0.0.4', ['127.0.0.2', 'nonsense', '']],
    ]) {
      const statuses = [];
      for (let i = 0; i < CAP; i++) {
        await connect(t, port, { localAddress: String(localAddress), headers: headers(forged, i) });
      }
      for (let i = 0; i < 4; i++) {
        statuses.push(await handshakeStatus(port, { localAddress: String(localAddress), headers: headers(forged, i) }));
      }
      assert.deepEqual(statuses, [429, 429, 429, 429], `${localAddress}`);
    }
    const metrics = samples(await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text());
    assert.equal(metrics.get('websocket_connections_total'), 3 * CAP);
    assert.equal(metrics.get('fanfare_admissions_refused_total{reason="per_ip"}'), 12);
  });
}

test('without TRUST_PROXY the header counts for nothing: all behind the proxy are one address', OPTIONS, async (t) => {
  const server = await startServer(t, { FANFARE_MAX_CONNECTIONS_PER_IP: String(CAP) });
  const port = await startHaproxy(t, [server.port]);
  for (let i = 0; i < CAP; i++) {
    await connect(t, port, { localAddress: `127.0.0.${i + 2}`, headers: { 'X-Forwarded-For': `203.0.113.${i}` } });
  }
  const headers = { 'X-Forwarded-For': '203.0.113.99' };
  assert.equal(await handshakeStatus(port, { localAddress: '127.0.0.99', headers }), 429);
});

/** @param {string|string[]} forged @param {number} i @returns {Record<string, string>} */
function headers(forged, i) {
  return forged.length === 0 ? {} : { 'X-Forwarded-For': forged[i % forged.length] };
}

/** Two in a row: leastconn would have sent one of them to the first server. @param {import('node:test').TestContext} t @param {number} port */
async function fallsToSecond(t, port) {
  const pair = await Promise.all([connect(t, port), connect(t, port)]);
  const answers = await Promise.all(pair.map((client) => client.ask({ type: 'hello' }, 'welcome')));
  for (const client of pair) client.socket.close();
  return answers.every(({ serverId }) => serverId === 'server-2');
}
