// client-state.test.js: the maps of `fanfare/client` and `fanfare/client/sse` in rooms with state,
// against real servers whose workers die.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fanfare } from '../../src/client/node.js';
import { Fanfare as StreamFanfare } from '../../src/client/sse/index.js';
import { startRedis } from '../harness/redis.js';
import { startServer, until, urlOf } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { killWorker } from '../helpers/workers.js';

const ROOM = 'price.eur';
const QUICK = { firstDelayMs: 100, maxDelayMs: 1000 };
const KEYS = 20;

/** @param {Iterable<[string, unknown]>} entries */
const sorted = (entries) => [...entries].sort();

for (const backend of ['embedded', 'redis']) {
  test(`${backend}: maps follow changes and removals while workers die`, {
    timeout: 90_000,
  }, async (t) => {
    const secret = newSecret();
    const redis = backend === 'redis' ? await startRedis(t) : null;
    const server = await startServer(t, {
      FANFARE_LIMITS: 'off',
      FANFARE_STATE: 'price.*=100/1h',
      FANFARE_SCHEDULING: 'round-robin',
      FANFARE_RECONNECT_WINDOW_MS: '500',
      WORKERS: '2',
      API_KEYS: `test ${secret} all`,
      ...(redis && { REDIS_URL: redis.url }),
    });
    const api = apiOf(server, secret);
    const url = urlOf(server);
    const clients = Array.from({ length: 3 }, () => new Fanfare(url, QUICK));
    const stream = new StreamFanfare(`http://127.0.0.1:${server.port}/sse`, QUICK);
    for (const client of [...clients, stream]) t.after(() => client.close());
    for (const client of clients) client.on('error', () => {});
    stream.on('error', () => {});
    const joined = clients.map((client) => client.join(ROOM));
    const rooms = [...joined, stream.join(ROOM)];
    /** Offsets that did not rise, of each room. @type {string[]} */
    const faults = [];
    let resets = 0;
    for (const room of /** @type {import('../../src/client/node.js').Room[]} */ (rooms)) {
      let last = 0;
      room.on('reset', () => {
        last = 0;
        resets++;
      });
      room.on('change', ({ offset, key }) => {
        if (offset <= last) faults.push(`${key}: ${offset} after ${last}`);
        last = offset;
      });
    }
    /** @type {Map<string, number>} */
    const truth = new Map();
    const publish = async (/** @type {number} */ n) => {
      const key = `key-${(n * 7) % KEYS}`;
      const payload = n % 3 === 0 ? null : n;
      // A worker that dies may have accepted it or not: the next value of the key counts.
      const send = async () => {
        const answer = await api('/publish', { body: { room: ROOM, key, payload } });
        return answer.status === 200;
      };
      await until(() => send().catch(() => false), 20_000, 'a publish');
      if (payload === null) truth.delete(key);
      else truth.set(key, payload);
    };
    for (let n = 1; n <= 120; n++) {
      await publish(n);
      if (n % 50 === 30) await killWorker(server, server.workerPids()[0]);
    }
    const shown = () => rooms.map(({ state }) => JSON.stringify(sorted(state ?? [])));
    const wanted = JSON.stringify(sorted(truth));
    await until(() => shown().every((one) => one === wanted), 20_000, 'equal maps').catch(() =>
      assert.deepEqual(
        shown(),
        rooms.map(() => wanted),
      ),
    );
    const { body } = await api(`/rooms/${ROOM}/state`);
    const entries = body.entries.map((/** @type {any} */ { key, payload }) => [key, payload]);
    assert.deepEqual(sorted(entries), sorted(truth));
    assert.deepEqual(faults, []);
    assert.equal(resets, 0, 'the epoch is the same, so each reconnect continues');
    for (const { position } of rooms)
      assert.deepEqual(position, { epoch: body.epoch, offset: body.offset });
  });
}
