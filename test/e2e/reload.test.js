// reload.test.js: SIGHUP under clients. All new workers start first; then the old ones accept no more
// and drain one after the other. One that waits for its turn is called retired.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { connectionsPerWorker, scrape, startServer, until } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { RawClient } from '../helpers/raw-http.js';
import { shared } from '../helpers/shared.js';

const OPTIONS = { timeout: 60_000 };

/** @typedef {import('../helpers/clients.js').Client} Client */
/** @typedef {import('../harness/server.js').Server} Server */

/** Each test reloads it, and the last one ends it. */
const started = shared((owner) =>
  startServer(owner, {
    ...{ WORKERS: '2', FANFARE_LIMITS: 'off', FANFARE_SCHEDULING: 'round-robin' },
    FANFARE_RECONNECT_WINDOW_MS: '0',
  }),
);

/** @param {Server} server how often it has logged that */
const logged = ({ lines }, /** @type {string} */ text) =>
  lines.filter(({ msg }) => msg.startsWith(text)).length;

/** Sends SIGHUP and waits for one more such line of the log. @param {Server} server */
async function reload(server, /** @type {string} */ text) {
  const before = logged(server, text);
  server.kill('SIGHUP');
  await until(() => logged(server, text) > before, 20_000, text);
}

test('a reload closes each client once', OPTIONS, async (t) => {
  const server = await started();
  let isOver = false;
  /** @type {Set<Client>} */
  const present = new Set();
  /** @param {number[]} codes gets those with which the client is closed; it returns each time */
  const stay = async (codes) => {
    while (!isOver) {
      const client = await connect(t, server.port);
      present.add(client);
      const [code] = await once(client.socket, 'close');
      present.delete(client);
      if (!isOver) codes.push(code);
    }
  };
  const clients = Array.from({ length: 30 }, () => /** @type {number[]} */ ([]));
  const all = clients.map(stay);
  const areIn = async () => (await connections(server)) === clients.length;
  await until(areIn);
  await reload(server, 'reload complete');
  await until(areIn);
  assert.deepEqual(
    clients,
    clients.map(() => [1012]),
  );
  isOver = true;
  for (const client of present) client.socket.terminate();
  await Promise.all(all);
});

/**
 * The server of two workers, each with a client in the room `lobby`, in the middle of a reload: the
 * old workers are retired. The drain of the first one waits for its socket that is kept alive, 5 s
 * at most. So on a busy machine the tests must not do one thing after the other.
 * @param {import('node:test').TestContext} t
 */
async function startReload(t) {
  const server = await started();
  // Those of the test before have left.
  await until(async () => (await connections(server)) === 0);
  const completed = logged(server, 'reload complete');
  const clients = [await connect(t, server.port), await connect(t, server.port)];
  for (const client of clients) await client.join('lobby');
  const kept = [await RawClient.connect(t, server), await RawClient.connect(t, server)];
  for (const client of kept)
    assert.equal(
      (await client.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n').response()).status,
      200,
    );
  const last = server.lines.filter(({ msg, slot }) => msg === 'worker ready' && slot === 1).at(-1);
  await reload(server, 'new workers are ready');
  return {
    server,
    clients,
    /** Of the one whose turn to drain comes last. */
    pid: Number(last?.workerPid),
    drain() {
      for (const { socket } of kept) socket.destroy();
    },
    /** @param {number} [count] of reloads */
    isComplete: (count = 1) =>
      until(() => logged(server, 'reload complete') === completed + count, 30_000, 'the reload'),
  };
}

/** @param {Server} server @returns {Promise<{ready: number, workers: number}>} */
async function readiness({ metricsPort }) {
  const response = await fetch(`http://127.0.0.1:${metricsPort}/readyz`);
  return /** @type {any} */ (await response.json());
}

/** @param {Server} server @returns {Promise<number>} */
async function connections({ metricsPort }) {
  const counts = connectionsPerWorker((await scrape(metricsPort)).values).values();
  return [...counts].reduce((sum, count) => sum + count, 0);
}

/** Each gets what each other one sends. @param {Client[]} clients in the room `lobby` */
async function talk(clients) {
  const talkId = `${performance.now()}:`;
  for (const [i, client] of clients.entries())
    client.send({ type: 'message', room: 'lobby', payload: `${talkId}${i}` });
  await Promise.all(
    clients.map(async (client) => {
      const isOfTalk = (/** @type {{payload?: unknown}} */ { payload }) =>
        String(payload).startsWith(talkId);
      const heard = await client.collect(isOfTalk, clients.length);
      assert.equal(new Set(heard.map(({ payload }) => payload)).size, clients.length);
    }),
  );
}

test('a retired worker serves its clients as before, and takes no new one', OPTIONS, async (t) => {
  const { server, clients, drain, isComplete } = await startReload(t);
  const fresh = await Promise.all([connect(t, server.port), connect(t, server.port)]);
  await Promise.all(fresh.map((client) => client.join('lobby')));
  await talk([...clients, ...fresh]);
  const [count, { ready }] = await Promise.all([
    connections(server),
    readiness(server),
    clients[0].join('another'),
  ]);
  assert.deepEqual([count, ready], [4, 2]);
  drain();
  await isComplete();
  for (const { close } of clients) assert.equal(close?.code, 1012);
  for (const { close } of fresh) assert.equal(close, null);
  await talk(fresh);
});

test('a retired worker that dies is not replaced, and the reload goes on', OPTIONS, async (t) => {
  const { server, clients, pid, drain, isComplete } = await startReload(t);
  const workers = logged(server, 'worker ready');
  process.kill(pid, 'SIGKILL');
  await until(() => clients.some(({ close }) => close !== null));
  assert.deepEqual(
    clients.flatMap(({ close }) => close?.code ?? []),
    [1006],
  );
  assert.equal((await readiness(server)).ready, 2);
  const fresh = await connect(t, server.port);
  await fresh.join('lobby');
  await talk([fresh, ...clients.filter(({ close }) => close === null)]);
  drain();
  await isComplete();
  const { values } = await scrape(server.metricsPort);
  assert.equal(values.get('fanfare_worker_restarts_total') ?? 0, 0);
  assert.equal(logged(server, 'worker ready'), workers);
  assert.equal(fresh.close, null);
});

test('a second SIGHUP while retired workers wait reloads once more', OPTIONS, async (t) => {
  const { server, clients, drain, isComplete } = await startReload(t);
  server.kill('SIGHUP');
  await talk(clients);
  drain();
  await isComplete(2);
  assert.equal((await readiness(server)).ready, 2);
  for (const { close } of clients) assert.equal(close?.code, 1012);
});

test('SIGTERM while retired workers wait closes all clients with 1012', OPTIONS, async (t) => {
  const { server, clients, drain } = await startReload(t);
  const fresh = await connect(t, server.port);
  server.kill('SIGTERM');
  drain();
  assert.deepEqual(await server.exited, { code: 0, signal: null });
  for (const { close } of [...clients, fresh]) assert.equal(close?.code, 1012);
  // Workers that end close it themselves: nothing is wrong with it.
  assert.equal(logged(server, 'broker is down'), 0);
});
