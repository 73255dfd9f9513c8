// handshakes.test.js: which clients get in while a hostile client, or all at once, knock at a real
// server.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { connect } from 'node:net';
import { test } from 'node:test';
import { samples, startServer, until } from '../harness/server.js';
import { handshake, RawClient } from '../helpers/raw-http.js';

const OPTIONS = { timeout: 60_000 };
const STORM = 5000;
const STORM_WITHIN_MS = 40_000;
const LIVEZ = 'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n';
const noPrlimit = spawnSync('prlimit', ['--version']).error && 'no prlimit here';

/** @param {import('../harness/server.js').Server} server */
async function scrape({ metricsPort }) {
  const response = await fetch(`http://127.0.0.1:${metricsPort}/metrics`);
  return samples(await response.text());
}

test('with few descriptors, plain HTTP and silent connections of one address do not lock out other addresses', {
  ...OPTIONS,
  skip: noPrlimit,
}, async (t) => {
  const server = await startServer(
    t,
    { WORKERS: '1' },
    { prefix: ['prlimit', '--nofile=300:300'] },
  );
  const hostile = [];
  for (let i = 0; i < 400; i++) {
    const client = await RawClient.connect(t, { port: server.port, localAddress: '127.0.0.2' });
    hostile.push(client);
    // The first answer keeps a connection alive. The others stay silent.
    if (i % 2) client.write(LIVEZ);
  }
  for (let i = 0; i < 20; i++) {
    const client = await RawClient.connect(t, {
      port: server.port,
      localAddress: `127.0.0.${10 + i}`,
    });
    assert.equal((await client.write(handshake()).response()).status, 101);
  }
  const metrics = await scrape(server);
  assert.equal(
    metrics.get('fanfare_worker_up{worker="1"}') ?? metrics.get('fanfare_worker_up{worker="0"}'),
    1,
  );
  assert.ok(Number(metrics.get('fanfare_public_sockets')) <= 161, 'the reserve is free');
  assert.ok(Number(metrics.get('fanfare_idle_sockets_closed_total{reason="descriptors"}')) > 0);
  assert.equal(metrics.get('websocket_connections_total'), 20);
});

test(
  `of ${STORM} connections in one instant, at default limits, all get 101`,
  OPTIONS,
  async (t) => {
    const server = await startServer(t);
    /** How many got which status line. @type {Map<string, number>} */
    const answers = new Map();
    let closed = 0;
    const text = handshake();
    for (let i = 0; i < STORM; i++) {
      const localAddress = `127.${1 + (i % 50)}.0.1`;
      const socket = connect({ port: server.port, host: '127.0.0.1', localAddress });
      t.after(() => socket.destroy());
      socket.once('connect', () => socket.write(text));
      socket.once('data', (data) => {
        const status = data.toString('latin1', 9, 12);
        answers.set(status, (answers.get(status) ?? 0) + 1);
      });
      socket.on('error', () => {});
      socket.once('close', () => closed++);
    }
    const count = () => [...answers.values()].reduce((sum, n) => sum + n, 0);
    await until(() => count() + closed >= STORM, STORM_WITHIN_MS, 'an answer to all');
    assert.deepEqual([...answers], [['101', STORM]]);
    const metrics = await scrape(server);
    assert.equal(metrics.get('websocket_connections_total'), STORM);
    assert.equal(metrics.get('fanfare_idle_sockets_closed_total{reason="handshakes"}'), 0);
  },
);
