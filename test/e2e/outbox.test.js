// outbox.test.js: the relay of examples/outbox between a real PostgreSQL and a real server, killed ten
// times in the middle of a batch.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { test } from 'node:test';
import pg from 'pg';
import { createServer } from '../../src/sdk/index.js';
import { until } from '../harness/server.js';
import { startWithKey } from '../helpers/api.js';
import { connect } from '../helpers/clients.js';
import { codeWith } from '../helpers/doc-code.js';
import { root } from '../helpers/packed.js';
import { startPostgres, withoutPostgres } from '../helpers/postgres.js';
import { shared } from '../helpers/shared.js';

const OPTIONS = { timeout: 120_000, skip: withoutPostgres };
const KILLS = 10;
const WRITERS = 4;
const ROOMS = ['h.a', 'h.b', 'h.c', 'h.d', 'h.e'];

/** @typedef {{room: string, payload: any}} Seen */

const start = shared(async (owner) => {
  const [url, { server, secret }] = await Promise.all([
    startPostgres(owner),
    startWithKey(owner, { FANFARE_HISTORY: 'h.*=10000/600s' }),
  ]);
  const db = await open(owner, url);
  await db.query(readFileSync(`${root}examples/outbox/outbox.sql`, 'utf8'));
  return { url, db, secret, port: server.port };
});

/** @param {import('../harness/server.js').Owner} t @param {string} connectionString */
async function open(t, connectionString) {
  const client = new pg.Client({ connectionString });
  client.on('error', () => {});
  await client.connect();
  t.after(() => client.end());
  return client;
}

/**
 * Relays that start again when they end, as under a supervisor.
 * @param {import('node:test').TestContext} t @param {string[]} names in the paths of their requests
 * @param {string} fanfare
 */
async function startRelays(t, names, fanfare) {
  const { url, secret } = await start();
  /** @type {Map<string, import('node:child_process').ChildProcess>} */
  const relays = new Map();
  let isEnding = false;
  const run = (/** @type {string} */ name) => {
    const child = spawn(process.execPath, [`${root}examples/outbox/relay.js`], {
      env: {
        PATH: process.env.PATH,
        DATABASE_URL: url,
        FANFARE_URL: `${fanfare}/${name}`,
        API_KEY: secret,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    relays.set(name, child);
    child.on('exit', () => isEnding || run(name));
    return child;
  };
  const children = names.map(run);
  t.after(async () => {
    isEnding = true;
    for (const child of relays.values()) child.kill('SIGKILL');
  });
  await Promise.all(children.map((child) => once(child.stdout, 'data')));
  return relays;
}

/**
 * A proxy in front of the server.
 * @param {import('node:test').TestContext} t
 * @param {(relay: string, hasAnswer: boolean) => boolean|Promise<boolean>} isLost is the relay killed at this moment:
 *   before the server has the request, or before the relay has the answer?
 */
async function startProxy(t, isLost) {
  const { port } = await start();
  const proxy = createHttpServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const [, relay, path] = /^\/(\w+)(\/.*)$/.exec(request.url ?? '') ?? [];
    if (await isLost(relay, false)) return;
    const { method, headers } = request;
    const { connection: _, 'content-length': __, host: ___, ...others } = headers;
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      headers: /** @type {Record<string, string>} */ (others),
      body: Buffer.concat(parts),
    });
    const text = await answer.text();
    if (await isLost(relay, true)) return;
    const error = answer.headers.get('fanfare-error');
    response.writeHead(answer.status, error === null ? {} : { 'fanfare-error': error });
    response.end(text);
  });
  t.after(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  return `http://127.0.0.1:${/** @type {any} */ (proxy.address()).port}`;
}

/** @param {pg.Client} db @param {number} least rows that may wait */
async function drained(db, least = 0) {
  const waiting = async () => Number((await db.query('SELECT count(*) FROM outbox')).rows[0].count);
  await until(async () => (await waiting()) <= least, 60_000, 'the end of the outbox');
}

test(
  'ten relays die in mid-batch, and each row is published once, in the order of its room',
  OPTIONS,
  async (t) => {
    const { url, db, port } = await start();
    const member = await connect(t, port);
    /** @type {Seen[]} */
    const seen = [];
    member.socket.on('message', (text) => {
      const { type, room, payload } = JSON.parse(String(text));
      if (type === 'message') seen.push({ room, payload });
    });
    for (const room of ROOMS) await member.join(room);

    /** @type {Map<string, import('node:child_process').ChildProcess>} */
    let relays = new Map();
    /** Kills so far, by whether the server had published. */
    const kills = { before: 0, after: 0 };
    const sum = () => kills.before + kills.after;
    const proxy = await startProxy(t, (name, hasAnswer) => {
      // Each second request of a batch is lost, in turns before and behind the server.
      const kind = hasAnswer ? 'after' : 'before';
      const other = hasAnswer ? 'before' : 'after';
      if (sum() >= KILLS || kills[kind] > kills[other] || kills[kind] >= KILLS / 2) return false;
      kills[kind]++;
      relays.get(name)?.kill('SIGKILL');
      return true;
    });
    relays = await startRelays(t, ['one', 'two'], proxy);

    // Several writers write to the same rooms, and some of their transactions are rolled back.
    /** @type {{id: string, room: string, payload: any}[]} */
    const written = [];
    const write = async (/** @type {number} */ writer) => {
      const client = await open(t, url);
      for (let round = 0; sum() < KILLS || round < 20; round++) {
        await client.query('BEGIN');
        const rows = [];
        const room = ROOMS[(writer + round) % ROOMS.length];
        for (let i = 0; i < 3; i++) {
          const payload = { writer, round, i };
          const text = 'INSERT INTO outbox (room, payload) VALUES ($1, $2) RETURNING id';
          const { rows: inserted } = await client.query(text, [room, payload]);
          rows.push({ id: inserted[0].id, room, payload });
        }
        const isKept = round % 5 !== 4;
        await client.query(isKept ? 'COMMIT' : 'ROLLBACK');
        if (isKept) written.push(...rows);
      }
    };
    await Promise.all(Array.from({ length: WRITERS }, (_, writer) => write(writer)));
    await drained(db);
    await until(() => seen.length >= written.length, 20_000, 'the last message');
    assert.deepEqual(kills, { before: KILLS / 2, after: KILLS / 2 });
    written.sort((one, other) => Number(one.id) - Number(other.id));
    for (const room of ROOMS) {
      const inRoom = (/** @type {Seen[]} */ all) =>
        all.filter((one) => one.room === room).map(({ payload }) => JSON.stringify(payload));
      assert.deepEqual(inRoom(seen), inRoom(written), room);
    }
    assert.ok(written.length >= 100, `${written.length} rows`);
    t.diagnostic(`${written.length} rows, ${seen.length} messages, ${sum()} relays killed`);
  },
);

test('a transaction waits for an earlier one that writes to the same room', OPTIONS, async (t) => {
  const { url, db, port } = await start();
  const [one, two] = [await open(t, url), await open(t, url)];
  const member = await connect(t, port);
  await member.join('h.order');
  await startRelays(t, ['one'], await startProxy(t, () => false));
  const insert = "INSERT INTO outbox (room, payload) VALUES ('h.order', $1)";
  await one.query('BEGIN');
  await one.query(insert, ['1']);
  let isWritten = false;
  const second = two.query(insert, ['2']).then(() => {
    isWritten = true;
  });
  const text = "SELECT FROM pg_stat_activity WHERE wait_event = 'advisory'";
  const isWaiting = async () => ((await db.query(text)).rowCount ?? 0) > 0;
  await until(async () => isWritten || (await isWaiting()), 20_000, 'the second transaction');
  assert.equal(isWritten, false);
  await one.query('COMMIT');
  await second;
  for (const payload of [1, 2]) assert.equal((await member.next('message')).payload, payload);
  await drained(db);
});

test('while a relay has a shard, no other one sends its rows', OPTIONS, async (t) => {
  const { db, port } = await start();
  const member = await connect(t, port);
  await member.join('h.shared');
  let requests = 0;
  /** @type {() => void} */
  let release = () => {};
  const released = new Promise((resolve) => {
    release = () => resolve(undefined);
  });
  const proxy = await startProxy(t, async (_relay, hasAnswer) => {
    if (hasAnswer) return false;
    requests++;
    await released;
    return false;
  });
  await startRelays(t, ['one', 'two'], proxy);
  const insert = "INSERT INTO outbox (room, payload) VALUES ('h.shared', $1)";
  await db.query(insert, ['1']);
  await until(() => requests === 1, 20_000, 'the request of a relay');
  const { rows } = await db.query('SELECT clock_timestamp() AS now');
  // It wakes the other relay, which finds no shard that it may take.
  await db.query(insert, ['2']);
  const text =
    "SELECT FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'idle' AND query_start > $1";
  const hasLooked = async () => ((await db.query(text, [rows[0].now])).rowCount ?? 0) > 0;
  await until(async () => requests > 1 || (await hasLooked()), 20_000, 'the other relay');
  assert.equal(requests, 1);
  release();
  for (const payload of [1, 2]) assert.equal((await member.next('message')).payload, payload);
  await drained(db);
});

test(
  'a row that is refused for good is kept with the reason, and holds up no other',
  OPTIONS,
  async (t) => {
    const { db, port } = await start();
    const member = await connect(t, port);
    await member.join('h.refused');
    const insert = 'INSERT INTO outbox (room, payload) VALUES ($1, $2)';
    await assert.rejects(db.query(insert, ['no room', '1']), /outbox_room_check/);
    for (const payload of [1, 'x'.repeat(200_000), 2])
      await db.query(insert, ['h.refused', JSON.stringify(payload)]);
    await startRelays(t, ['one'], await startProxy(t, () => false));
    for (const payload of [1, 2]) assert.equal((await member.next('message')).payload, payload);
    await drained(db, 1);
    const { rows } = await db.query('SELECT room, error FROM outbox');
    assert.deepEqual(rows, [{ room: 'h.refused', error: 'PAYLOAD_TOO_LARGE' }]);
    await db.query('DELETE FROM outbox');
  },
);

test('a commit wakes the relay', OPTIONS, async (t) => {
  const { db, port, secret } = await start();
  const member = await connect(t, port);
  await member.join('h.page');
  await startRelays(t, ['one'], await startProxy(t, () => false));
  const waitMs = performance.now();
  await db.query('CREATE TABLE IF NOT EXISTS orders (id bigint, total numeric)');
  await db.query(codeWith('docs/outbox.md', 'INSERT INTO orders').replace('chat.42', 'h.page'));
  assert.deepEqual((await member.next('message')).payload, { text: 'order 7: 12.50' });
  // Without the notification it would take the interval of 5 s.
  assert.ok(performance.now() - waitMs < 4000);
  const server = createServer({ url: `http://127.0.0.1:${port}`, apiKey: secret });
  assert.equal((await server.history('h.page')).messages.length, 1);
});
