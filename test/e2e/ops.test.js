import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { samples, spawnServer, startServer, until } from '../harness/server.js';
import { fallen } from '../helpers/counters.js';
import { RawClient } from '../helpers/raw-http.js';
import { shared } from '../helpers/shared.js';

const OPTIONS = { timeout: 60_000 };
/** It gives up no worker that a test stops for a moment. */
const started = shared((owner) => startServer(owner, { FANFARE_WORKER_TIMEOUT_MS: '30000' }));

/** @param {{metricsPort: number}} server @returns {Promise<string>} */
async function scrape(server) {
  const response = await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`);
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
  return response.text();
}

/** @param {import('node:test').TestContext} t @param {number} port @param {number} count */
async function chatter(t, port, count) {
  for (let i = 0; i < count; i++) {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
    t.after(() => socket.terminate());
    socket.on('error', () => {});
    await once(socket, 'open');
    const answer = once(socket, 'message');
    socket.send('{"type":"echo","payload":1}');
    await answer;
  }
}

test(
  'the metrics of all workers are added up, under the names that dashboards use',
  OPTIONS,
  async (t) => {
    // The first test of this server: its counters begin at 0.
    const server = await started();
    await chatter(t, server.port, 6);
    const values = samples(await scrape(server));
    assert.equal(values.get('websocket_connections_total'), 6);
    assert.equal(values.get('websocket_messages_total'), 6);
    // Which worker accepts is the kernel's to say.
    const [first, second] = [0, 1].map(
      (slot) => values.get(`fanfare_worker_connections{worker="${slot}"}`) ?? Number.NaN,
    );
    assert.equal(first + second, 6);
    // One message in eight is timed, the first of each worker among them.
    assert.equal(
      values.get('websocket_message_duration_ms_count'),
      Math.sign(first) + Math.sign(second),
    );
    assert.equal(values.get('fanfare_worker_up{worker="0"}'), 1);
    assert.equal(values.get('fanfare_worker_up{worker="1"}'), 1);
    assert.equal(values.get('fanfare_broker_up'), 1);
    for (const name of [
      'nodejs_heap_used_bytes',
      'nodejs_heap_size_used_bytes',
      'process_resident_memory_bytes',
    ])
      assert.ok((values.get(name) ?? 0) > 0, name);
  },
);

test(
  'an address at which the server cannot listen is named with its setting, and with what to do',
  OPTIONS,
  async (t) => {
    const taken = createServer();
    taken.listen(0, '127.0.0.1');
    await once(taken, 'listening');
    t.after(() => taken.close());
    const { port } = /** @type {import('node:net').AddressInfo} */ (taken.address());
    /** @type {[Record<string, string>, string][]} */
    const cases = [
      [
        { METRICS_PORT: String(port) },
        `127.0.0.1:${port} (METRICS_PORT) is in use: set another port, METRICS_PORT=9464 for example`,
      ],
      [
        { WORKERS: '2', HOST: '127.0.0.1', PORT: String(port) },
        `127.0.0.1:${port} (PORT) is in use: set another port`,
      ],
      // TEST-NET-3 (RFC 5737)
      [{ HOST: '203.0.113.9' }, '203.0.113.9 (HOST) is no address of this machine (EADDRNOTAVAIL)'],
      [
        { METRICS_HOST: '203.0.113.9' },
        '203.0.113.9 (METRICS_HOST) is no address of this machine (EADDRNOTAVAIL)',
      ],
    ];
    for (const [env, why] of cases) {
      const server = spawnServer(t, { WORKERS: '1', ...env });
      const { code } = await server.exited;
      assert.equal(code, 1);
      const serious = server.lines.filter(
        ({ level, msg }) => level >= 40 && msg !== 'fanfare stopped',
      );
      assert.deepEqual(
        serious.map(({ level, msg, err }) => ({ level, msg, err })),
        [{ level: 60, msg: `cannot start: ${why}`, err: undefined }],
      );
    }
  },
);

test('promtool finds no fault with a real scrape but with fixed names', {
  ...OPTIONS,
  skip: spawnSync('promtool', ['--version']).error && 'no promtool here',
}, async (t) => {
  const server = await started();
  await chatter(t, server.port, 2);
  const { stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
    input: await scrape(server),
    encoding: 'utf8',
  });
  const fixed =
    /^(redis_publish_lag_ms|websocket_connections_total|websocket_message_duration_ms|nodejs_active_\w+) /;
  assert.deepEqual(
    `${stdout}${stderr}`.split('\n').filter((line) => line !== '' && !fixed.test(line)),
    [],
  );
});

test('livez, readyz and other paths answer as documented', OPTIONS, async () => {
  const server = await started();
  const url = `http://127.0.0.1:${server.metricsPort}`;
  const live = await fetch(`${url}/livez`);
  assert.equal(live.status, 200);
  assert.equal(live.headers.get('x-powered-by'), null);
  const ready = await fetch(`${url}/readyz`);
  assert.equal(ready.status, 200);
  assert.deepEqual(await ready.json(), { status: 'ready', ready: 2, workers: 2, draining: false });
  const nothing = await fetch(`${url}/nothing`);
  assert.equal(nothing.status, 404);
  assert.equal(/** @type {any} */ (await nothing.json()).error, 'NOT_FOUND');
  assert.equal((await fetch(`${url}/%zz`)).status, 404);
  assert.equal((await fetch(`http://127.0.0.1:${server.port}/metrics`)).status, 404);
});

test('requests that want to leave HTTP do no harm to the operations port', OPTIONS, async (t) => {
  const server = await started();
  const port = server.metricsPort;
  const body = 'Host: a\r\nContent-Length: 9\r\n';
  const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\n';
  for (const end of /** @type {const} */ (['rest', 'end', 'reset'])) {
    for (const request of [
      `GET /livez HTTP/1.1\r\n${body}${upgrade}\r\nhalf`,
      `GET /livez HTTP/1.1\r\nHost: a\r\n${upgrade}\r\n`,
      `CONNECT a:80 HTTP/1.1\r\n${body}\r\nhalf`,
      'CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n',
    ]) {
      const client = await RawClient.connect(t, { port });
      client.write(request);
      if (request.startsWith('GET')) assert.equal((await client.response()).status, 200);
      else await client.closed(); // there is no tunnel
      if (end === 'rest') client.write('and more');
      else if (end === 'end') client.socket.end();
      else client.socket.resetAndDestroy();
    }
  }
  assert.equal((await fetch(`http://127.0.0.1:${port}/readyz`)).status, 200);
  assert.ok(server.lines.every(({ level }) => level < 40));
});

test(
  'a scrape during which a worker hangs ends in about a second, and no counter falls',
  OPTIONS,
  async (t) => {
    const server = await started();
    await chatter(t, server.port, 4);
    const before = await scrape(server);
    const [hung] = server.workerPids();
    process.kill(hung, 'SIGSTOP');
    const startedMs = performance.now();
    const [during] = await Promise.all([scrape(server), scrape(server), scrape(server)]);
    const tookMs = performance.now() - startedMs;
    // It begins half a second after the one before.
    assert.ok(tookMs < 1800, `${tookMs} ms`);
    assert.deepEqual(fallen(before, during), []);
    const values = samples(during);
    assert.equal(
      (values.get('fanfare_worker_up{worker="0"}') ?? 0) +
        (values.get('fanfare_worker_up{worker="1"}') ?? 0),
      1,
    );
    process.kill(hung, 'SIGCONT');
    const after = await until(async () => {
      const text = await scrape(server);
      const now = samples(text);
      return now.get('fanfare_worker_up{worker="0"}') === 1 &&
        now.get('fanfare_worker_up{worker="1"}') === 1
        ? text
        : '';
    });
    assert.deepEqual(fallen(during, after), []);
  },
);

test(
  'no scrape fails and no counter falls while workers are killed and replaced',
  OPTIONS,
  async (t) => {
    const server = await started();
    await chatter(t, server.port, 6);
    let last = await scrape(server);
    const messages = samples(last).get('websocket_messages_total') ?? 0;
    assert.ok(messages >= 6, `${messages}`);
    const restarts = () => samples(last).get('fanfare_worker_restarts_total') ?? 0;
    for (let death = 1; death <= 2; death++) {
      process.kill(server.workerPids()[0], 'SIGKILL');
      await until(async () => {
        const next = await scrape(server);
        assert.deepEqual(fallen(last, next), []);
        last = next;
        const now = samples(next);
        return (
          restarts() === death &&
          now.get('fanfare_worker_up{worker="0"}') === 1 &&
          now.get('fanfare_worker_up{worker="1"}') === 1
        );
      });
    }
    assert.equal(samples(last).get('websocket_messages_total'), messages);
  },
);

test(
  'no counter falls over a rolling reload, whose last figures are not lost',
  OPTIONS,
  async (t) => {
    const server = await started();
    await chatter(t, server.port, 4);
    const before = await scrape(server);
    const messages = samples(before).get('websocket_messages_total') ?? 0;
    await chatter(t, server.port, 4);
    server.kill('SIGHUP');
    await server.line(({ msg }) => msg === 'reload complete', 30_000);
    // The departure is booked when the channel has ended, a moment after the exit.
    const after = await until(async () => {
      const text = await scrape(server);
      return samples(text).get('websocket_connections_total') === 0 ? text : '';
    });
    assert.deepEqual(fallen(before, after), []);
    assert.equal(samples(after).get('websocket_messages_total'), messages + 4);
    assert.equal(samples(after).get('fanfare_reloads_total'), 1);
  },
);
