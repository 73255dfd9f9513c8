// state.test.js: rooms with state on real servers: joins, removals, recovery, SSE, the HTTP API.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { connect, connectInTurn } from '../helpers/clients.js';
import { EventClient } from '../helpers/event-stream.js';
import { shared } from '../helpers/shared.js';

const OPTIONS = { timeout: 60_000 };
const SECRET = newSecret();
const ENV = Object.freeze({
  FANFARE_LIMITS: 'off',
  FANFARE_STATE: 'price.*=100/1h, slow.*=100/1h every 200ms, small.*=2/1h, brief.*=10/1s',
  FANFARE_STATE_MAX_VALUE_BYTES: '64',
  FANFARE_SCHEDULING: 'round-robin',
  API_KEYS: `test ${SECRET} all`,
});

/** @typedef {import('../helpers/clients.js').Client} Client */
/** @typedef {Record<string, any>} Message */

/**
 * The map of a client that knows nothing but the protocol, and the faults that it has seen.
 * @param {readonly Message[]} messages
 */
function mapOf(messages, map = new Map(), at = 0) {
  /** @type {string[]} */
  const faults = [];
  let last = at;
  for (const message of messages) {
    const { type, key, payload, offset } = message;
    if ((type === 'joined' && !message.recovered) || type === 'reset') {
      map.clear();
      last = 0;
    } else if (type === 'message') {
      if (offset <= last) faults.push(`${offset} behind ${last}`);
      last = offset;
      if (payload === null) map.delete(key);
      else map.set(key, payload);
    } else if (type === 'synced') {
      if (offset < last) faults.push(`synced ${offset} behind ${last}`);
      last = offset;
    }
  }
  return { map, faults, last };
}

/** @param {ReadonlyMap<string, unknown>} map */
const sorted = (map) => [...map].sort();

/** @param {Client} client @param {string} room @param {string} key @param {unknown} payload */
async function set(client, room, key, payload) {
  const id = `${key}:${Math.random()}`;
  client.send({ type: 'message', room, key, payload, id });
  return client.next((message) => message.id === id);
}

/** @param {Client} client @param {string} room @param {object} [fields] */
async function join(client, room, fields = {}) {
  const joined = await client.ask({ type: 'join', room, ...fields }, 'joined');
  assert.equal(joined.type, 'joined', JSON.stringify(joined));
  return { joined, synced: await client.next('synced') };
}

const startedRedis = shared((t) => startRedis(t));
// Each test has rooms of its own.
const BACKENDS = {
  embedded: shared((t) => startServer(t, ENV)),
  redis: shared(async (t) => startServer(t, { ...ENV, REDIS_URL: (await startedRedis()).url })),
};

for (const [backend, started] of Object.entries(BACKENDS)) {
  test(
    `${backend}: a join brings the state, then changes; a position brings only changes`,
    OPTIONS,
    async (t) => {
      const server = await started();
      const [a, b, c] = await connectInTurn(t, server.port, 3);
      const first = await join(a, 'price.eur');
      assert.equal(first.joined.state, true);
      assert.deepEqual([first.joined.recovered, first.joined.offset], [false, 0]);
      assert.deepEqual(first.synced, {
        type: 'synced',
        room: 'price.eur',
        epoch: first.joined.epoch,
        offset: 0,
      });
      const ack = await set(a, 'price.eur', 'EURUSD', 1.08);
      assert.deepEqual([ack.type, ack.offset, ack.epoch], ['ack', 1, first.joined.epoch]);
      await set(a, 'price.eur', 'EURGBP', { bid: 0.85 });
      await set(a, 'price.eur', 'EURUSD', 1.09);
      await set(a, 'price.eur', '__proto__', 'a "quoted" \\ key');
      await set(a, 'price.eur', 'ключ "х"', [1]);
      await set(a, 'price.eur', 'EURGBP', null);
      const second = await join(b, 'price.eur');
      assert.deepEqual([second.joined.recovered, second.synced.offset], [false, 6]);
      assert.deepEqual(
        b.all('message').map(({ key, payload, offset }) => [key, payload, offset]),
        [
          ['EURUSD', 1.09, 3],
          ['__proto__', 'a "quoted" \\ key', 4],
          ['ключ "х"', [1], 5],
          ['EURGBP', null, 6],
        ],
      );
      await a.collect('message', 6);
      assert.deepEqual(sorted(mapOf(a.messages).map), sorted(mapOf(b.messages).map));
      await set(b, 'price.eur', 'EURUSD', 1.1);
      await a.collect('message', 7);
      const since = { epoch: first.joined.epoch, offset: 5 };
      const third = await join(c, 'price.eur', { since });
      assert.deepEqual([third.joined.recovered, third.synced.offset], [true, 7]);
      assert.deepEqual(
        c.all('message').map(({ key, payload, offset }) => [key, payload, offset]),
        [
          ['EURGBP', null, 6],
          ['EURUSD', 1.1, 7],
        ],
      );
    },
  );

  test(`${backend}: what a room with state refuses`, OPTIONS, async (t) => {
    const server = await started();
    const client = await connect(t, server.port);
    /** @type {[Message, string][]} */
    const faults = [
      [{ room: 'price.refused', payload: 1 }, 'INVALID_MESSAGE_FORMAT'],
      [{ room: 'price.refused', key: 'k', payload: 'x'.repeat(100) }, 'MESSAGE_TOO_LARGE'],
      [{ room: 'chat', key: 'k', payload: 1 }, 'INVALID_MESSAGE_FORMAT'],
    ];
    for (const [fields, error] of faults) {
      const answer = await client.ask({ type: 'message', id: 1, ...fields }, 'ack');
      assert.equal(answer.error, error, JSON.stringify(answer));
    }
    // Five mistakes, and the connection stays.
    for (const fields of [{ key: '' }, { key: 'a\u0001', echo: true }]) {
      const answer = await client.ask(
        { type: 'message', room: 'price.refused', payload: 1, ...fields },
        'ack',
      );
      assert.equal(answer.error, 'INVALID_MESSAGE_FORMAT', JSON.stringify(answer));
    }
    const silent = { type: 'message', room: 'price.refused', key: 'k', payload: 1, echo: false };
    assert.equal((await client.ask(silent, 'ack')).error, 'INVALID_MESSAGE_FORMAT');
    assert.equal((await set(client, 'small.refused', 'k1', 1)).type, 'ack');
    assert.equal((await set(client, 'small.refused', 'k2', 1)).type, 'ack');
    assert.equal((await set(client, 'small.refused', 'k3', 1)).error, 'STATE_FULL');
    assert.equal((await set(client, 'small.refused', 'k1', 2)).type, 'ack');
    assert.equal((await set(client, 'small.refused', 'k1', null)).type, 'ack');
    const ack = await set(client, 'small.refused', 'k3', 1);
    assert.deepEqual([ack.type, ack.offset], ['ack', 5]);
  });

  test(`${backend}: the HTTP API publishes and reads a state`, OPTIONS, async (t) => {
    const server = await started();
    const api = apiOf(server, SECRET);
    const client = await connect(t, server.port);
    await join(client, 'price.api');
    const one = await api('/publish', { body: { room: 'price.api', key: 'x', payload: 1 } });
    assert.deepEqual([one.status, one.body.offset], [200, 1], JSON.stringify(one.body));
    const batch = await api('/publish/batch', {
      body: {
        messages: [
          { room: 'price.api', key: 'y', payload: 2 },
          { room: 'price.api', key: 'x', payload: 3 },
          { room: 'price.api', key: 'y', payload: null },
          { room: 'price.api', key: 'z', payload: 4 },
        ],
      },
    });
    assert.equal(batch.body.failed, 0, JSON.stringify(batch.body));
    await client.next(({ type, offset }) => type === 'message' && offset === 5);
    const all = await api('/rooms/price.api/state');
    assert.equal(all.status, 200, JSON.stringify(all.body));
    assert.deepEqual([all.body.offset, all.body.more], [5, false]);
    assert.deepEqual(
      all.body.entries.map((/** @type {Message} */ { key, payload, offset, from }) => [
        key,
        payload,
        offset,
        from,
      ]),
      [
        ['x', 3, 3, ''],
        ['z', 4, 5, ''],
      ],
    );
    const named = await api('/rooms/price.api/state?key=z&key=y&key=none');
    assert.deepEqual(
      named.body.entries.map((/** @type {Message} */ { key }) => key),
      ['z'],
    );
    const bounded = await api('/rooms/price.api/state?key=z&key=x&limit=1&after=4');
    assert.deepEqual([bounded.body.entries.length, bounded.body.more], [2, false]);
    const page = await api('/rooms/price.api/state?limit=1');
    assert.deepEqual([page.body.entries.length, page.body.more], [1, true]);
    const rest = await api('/rooms/price.api/state?limit=1&after=3');
    assert.deepEqual([rest.body.entries[0].key, rest.body.more], ['z', false]);
    assert.equal((await api('/rooms/chat/state')).body.error, 'NO_STATE');
    assert.equal((await api('/rooms/price.api/history')).body.error, 'NO_HISTORY');
    const missing = await api('/publish', { body: { room: 'price.api', payload: 1 } });
    assert.deepEqual([missing.status, missing.body.field], [422, 'key']);
    const extra = await api('/publish', { body: { room: 'chat', key: 'k', payload: 1 } });
    assert.deepEqual([extra.status, extra.body.field], [422, 'key']);
    for (const key of ['a', 'b'])
      await api('/publish', { body: { room: 'small.api', key, payload: 1 } });
    const full = await api('/publish', { body: { room: 'small.api', key: 'c', payload: 1 } });
    assert.deepEqual([full.status, full.body.error], [409, 'STATE_FULL']);
    const inDoubt = await api('/rooms/price.api');
    assert.equal(inDoubt.body.offset, 5);
  });

  test(
    `${backend}: server-sent events bring a state, and go on from their position`,
    OPTIONS,
    async (t) => {
      const server = await started();
      const client = await connect(t, server.port);
      for (let i = 1; i <= 5; i++) await set(client, 'price.sse', `k${i % 3}`, i);
      const stream = await EventClient.open(t, server.port, '?room=price.sse');
      await until(() => stream.events.some(({ type }) => type === 'synced'));
      const values = stream.events.filter(({ type }) => type === 'message');
      assert.deepEqual(
        values.map(({ data, id }) => [
          JSON.parse(data).key,
          JSON.parse(data).payload,
          id.split(':')[1],
        ]),
        [
          ['k0', 3, '3'],
          ['k1', 4, '4'],
          ['k2', 5, '5'],
        ],
      );
      const { id } = /** @type {import('../helpers/event-stream.js').ServerEvent} */ (
        stream.events.at(-1)
      );
      await set(client, 'price.sse', 'k0', null);
      const back = await EventClient.open(t, server.port, `?room=price.sse&lastEventId=${id}`);
      await until(() => back.events.some(({ type }) => type === 'synced'));
      assert.deepEqual(
        back.events
          .filter(({ type }) => type === 'message')
          .map(({ data }) => JSON.parse(data).key),
        ['k0'],
      );
      const joined = back.events.find(({ type }) => type === 'joined');
      assert.equal(JSON.parse(joined?.data ?? '{}').recovered, true);
    },
  );

  test(`${backend}: a state expires as a whole, and members hear it`, OPTIONS, async (t) => {
    const server = await started();
    const client = await connect(t, server.port);
    const { joined } = await join(client, 'brief.a');
    await set(client, 'brief.a', 'k', 1);
    const reset = await client.next('reset', 30_000);
    assert.notEqual(reset.epoch, joined.epoch);
    const synced = await client.next('synced');
    assert.deepEqual([synced.epoch, synced.offset], [reset.epoch, 0]);
    assert.equal(mapOf(client.messages).map.size, 0);
  });

  test(
    `${backend}: an interval bounds the writes, and members get the newest values`,
    OPTIONS,
    async (t) => {
      const server = await started();
      const [writer, reader] = await connectInTurn(t, server.port, 2);
      await join(reader, 'slow.a');
      for (let round = 0; round < 40; round++) {
        for (let key = 0; key < 5; key++)
          writer.send({ type: 'message', room: 'slow.a', key: `k${key}`, payload: round });
        await new Promise((resolve) => setTimeout(resolve, 25));
      }
      const isLast = (/** @type {Message} */ { type, payload }) =>
        type === 'message' && payload === 39;
      await reader.collect(isLast, 5);
      const { map, faults } = mapOf(reader.messages);
      assert.deepEqual(faults, []);
      assert.deepEqual(
        sorted(map),
        [0, 1, 2, 3, 4].map((key) => [`k${key}`, 39]),
      );
      const got = reader.all('message').length;
      assert.ok(got <= 60, `${got} messages of 200: more than five in each interval`);
    },
  );
}

test(
  'if Redis has no memory left, a message is refused and nothing has changed',
  OPTIONS,
  async (t) => {
    const [redis, server] = [await startedRedis(), await BACKENDS.redis()];
    const client = await connect(t, server.port);
    await join(client, 'price.memory');
    await set(client, 'price.memory', 'x', 1);
    await redis.cli('CONFIG', 'SET', 'maxmemory', '1');
    assert.equal((await set(client, 'price.memory', 'x', 2)).error, 'UNAVAILABLE');
    assert.equal((await set(client, 'price.unused', 'x', 2)).error, 'UNAVAILABLE');
    await redis.cli('CONFIG', 'SET', 'maxmemory', '0');
    const ack = await set(client, 'price.memory', 'x', 3);
    assert.deepEqual([ack.type, ack.offset], ['ack', 2]);
    // The publisher's own push may come after the reply.
    await until(() => mapOf(client.messages).map.get('x') === 3);
    assert.deepEqual(sorted(mapOf(client.messages).map), [['x', 3]]);
  },
);

// The last test of this Redis.
test(
  'two servers over one Redis have one state, and a restart of Redis is a reset to what it has',
  OPTIONS,
  async (t) => {
    const [redis, one] = [await startedRedis(), await BACKENDS.redis()];
    // The second server learns the rules from the first.
    const env = { FANFARE_LIMITS: 'off', REDIS_URL: redis.url, WORKERS: '1' };
    const other = await startServer(t, env);
    const [a, b] = [await connect(t, one.port), await connect(t, other.port)];
    const { joined } = await join(a, 'price.two');
    await join(b, 'price.two');
    for (let i = 0; i < 20; i++)
      await set(i % 2 === 0 ? a : b, 'price.two', `k${i % 7}`, i % 5 === 0 ? null : i);
    await until(() => [a, b].every(({ messages }) => mapOf(messages).last === 20));
    assert.deepEqual(sorted(mapOf(a.messages).map), sorted(mapOf(b.messages).map));
    await redis.kill();
    await redis.restart();
    for (const client of [a, b]) {
      const reset = await client.next('reset', 30_000);
      assert.notEqual(reset.epoch, joined.epoch);
      await client.next('synced');
    }
    assert.equal((await set(b, 'price.two', 'after', 1)).type, 'ack');
    await until(() => [a, b].every(({ messages }) => mapOf(messages).map.size === 1));
    for (const client of [a, b])
      assert.deepEqual(
        [sorted(mapOf(client.messages).map), mapOf(client.messages).faults],
        [[['after', 1]], []],
      );
  },
);
