// centrifugo-recovery.test.js: each row of recovery over the Centrifugo door, on both backends: the
// reply has all missed publications or none, and says which.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { connectionToken, sharedCentrifugo, WITH_TOKENS } from '../helpers/centrifugo.js';
import { eventually } from '../helpers/redis-worker.js';
import { shared } from '../helpers/shared.js';

/** @typedef {import('../helpers/centrifugo.js').CentrifugoClient} CentrifugoClient */
/** @typedef {import('../helpers/clients.js').Message} Message */

const OPTIONS = { timeout: 60_000 };
const KEY = 'k'.repeat(32);
const ENV = Object.freeze({
  FANFARE_HISTORY: 'h*=100/300s,short=3/300s',
  API_KEYS: `admin ${KEY} all`,
  FANFARE_LIMITS: 'enforce,messages=off,messages_per_ip=off',
});
/** The client wants error 112 if its position is lost. */
const REJECT = 2;

/** @param {CentrifugoClient} client @param {string} channel @param {readonly unknown[]} data */
async function publish(client, channel, data) {
  for (const one of data)
    assert.deepEqual(await client.errorOf('publish', { channel, data: one }), undefined);
}

/** @param {CentrifugoClient} client @param {Record<string, unknown>} request */
async function subscribe(client, request) {
  return (await client.call('subscribe', request)).subscribe;
}

/** @param {CentrifugoClient} client @param {string} channel @returns {Promise<{offset: number, epoch: string}>} */
async function positionOf(client, channel) {
  const { offset = 0, epoch } = (await client.call('history', { channel })).history;
  return { offset, epoch };
}

/** @param {Message} result @returns {unknown[]} */
const dataOf = ({ publications = [] }) => publications.map((/** @type {any} */ { data }) => data);

/** @param {number} port @param {string} room */
async function deleteHistory(port, room) {
  const { status } = await fetch(`http://127.0.0.1:${port}/api/rooms/${room}/history`, {
    method: 'DELETE',
    headers: { Authorization: `Bearer ${KEY}` },
  });
  assert.equal(status, 200);
}

const ARGS = ['--repl-diskless-sync-delay', '0'];
const startedRedis = shared((owner) => startRedis(owner, { args: ARGS }));
// Each test has channels of its own.
const BACKENDS = {
  embedded: sharedCentrifugo({ ...ENV, ...WITH_TOKENS, FANFARE_AUTH: 'optional' }),
  Redis: sharedCentrifugo(async () => ({ ...ENV, REDIS_URL: (await startedRedis()).url })),
};

for (const [backend, start] of Object.entries(BACKENDS))
  describe(`recovery (${backend})`, () => {
    test('all rows of a subscribe with recover', OPTIONS, async (t) => {
      const { connect } = await start(t);
      const client = await connect();
      const publisher = await connect();
      const again = async (/** @type {string} */ channel, /** @type {object} */ request) => {
        await client.call('unsubscribe', { channel });
        return subscribe(client, { channel, recover: true, ...request });
      };
      assert.deepEqual(await again('plain', { offset: 0, epoch: '' }), { was_recovering: true });
      const unused = await again('hUnused', { offset: 0, epoch: '' });
      assert.deepEqual([unused.recovered, unused.offset], [true, undefined], 'a new room');
      const first = await subscribe(client, { channel: 'h' });
      const { epoch, ...others } = first;
      assert.deepEqual(others, { recoverable: true, positioned: true });
      await publish(publisher, 'h', [1, 2, 3, 4, 5]);
      assert.deepEqual(await again('h', { offset: 5, epoch }), {
        ...first,
        offset: 5,
        was_recovering: true,
        recovered: true,
      });
      const missed = await again('h', { offset: 2, epoch });
      assert.deepEqual([missed.recovered, missed.offset, dataOf(missed)], [true, 2, [3, 4, 5]]);
      assert.deepEqual(
        missed.publications.map((/** @type {any} */ { offset }) => offset),
        [3, 4, 5],
      );
      assert.deepEqual(dataOf(await again('h', { offset: 4, epoch: '' })), [5], 'any epoch');
      const lost = { ...first, offset: 5, was_recovering: true };
      assert.deepEqual(await again('h', { offset: 2, epoch: 'f'.repeat(16) }), lost);
      assert.deepEqual(await again('h', { offset: 6, epoch }), lost, 'above the top');
      await client.call('unsubscribe', { channel: 'h' });
      const refused = { channel: 'h', recover: true, offset: 2, epoch: 'other', flag: REJECT };
      assert.equal(await client.errorOf('subscribe', refused), 112);
      assert.equal(await client.errorOf('subscribe', { ...refused, epoch }), undefined);
      assert.equal(await client.errorOf('subscribe', refused), 105, 'it is subscribed now only');
    });

    test('a gap is never filled in part', OPTIONS, async (t) => {
      const { connect } = await start(t);
      const client = await connect();
      const { epoch } = await subscribe(client, { channel: 'short' });
      await client.call('unsubscribe', { channel: 'short' });
      await publish(client, 'short', [1, 2, 3, 4, 5]);
      const at = (/** @type {number} */ offset) =>
        subscribe(client, { channel: 'short', recover: true, offset, epoch });
      const lost = await at(1);
      assert.deepEqual(
        [lost.recovered, lost.was_recovering, lost.offset, lost.publications],
        [undefined, true, 5, undefined],
      );
      await client.call('unsubscribe', { channel: 'short' });
      assert.deepEqual(dataOf(await at(2)), [3, 4, 5]);
    });

    test('live publications follow the reply without a gap or a repeat', OPTIONS, async (t) => {
      const { connect } = await start(t);
      const publisher = await connect();
      const { epoch } = await subscribe(publisher, { channel: 'hLive' });
      let isOver = false;
      const flood = (async () => {
        for (let i = 1; !isOver; i++) await publish(publisher, 'hLive', [i]);
      })();
      const reader = await connect();
      /** In the order of messages. */
      const offsets = () =>
        reader.messages.flatMap(({ push, subscribe: result }) =>
          [...(result?.publications ?? []), ...(push?.pub ? [push.pub] : [])].map(
            (/** @type {any} */ { offset }) => offset,
          ),
        );
      for (let round = 0; round < 30; round++) {
        const { length } = reader.publications('hLive');
        const offset = offsets().at(-1) ?? 0;
        const result = await subscribe(reader, { channel: 'hLive', recover: true, offset, epoch });
        assert.equal(result.recovered, true);
        await reader.collect(({ push }) => push?.pub !== undefined, length + 1);
        await reader.call('unsubscribe', { channel: 'hLive' });
      }
      const all = offsets();
      assert.deepEqual(
        all,
        all.map((_, i) => i + 1),
      );
      isOver = true;
      await flood;
    });

    test(
      'a stream that ends tells its members by 2500, and they recover nothing of it',
      OPTIONS,
      async (t) => {
        const { connect, port } = await start(t);
        const [client, other] = [await connect(), await connect()];
        const { epoch } = await subscribe(client, { channel: 'hEnded' });
        await subscribe(other, { channel: 'hEnded' });
        await publish(client, 'hEnded', [1, 2]);
        await deleteHistory(port, 'hEnded');
        const ended = {
          channel: 'hEnded',
          unsubscribe: { code: 2500, reason: 'insufficient state' },
        };
        assert.deepEqual(await client.push('unsubscribe'), ended);
        assert.deepEqual(await other.push('unsubscribe'), ended);
        await publish(client, 'hEnded', [3]);
        const result = await subscribe(client, {
          channel: 'hEnded',
          recover: true,
          offset: 2,
          epoch,
        });
        assert.deepEqual(
          [result.recovered, result.was_recovering, result.offset],
          [undefined, true, 1],
        );
        assert.notEqual(result.epoch, epoch);
        await publish(client, 'hEnded', [4]);
        await client.next(({ push }) => push?.pub?.data === 4);
        // Nothing may come after the unsubscribe: a client would take it for its position.
        await other.call('ping');
        assert.deepEqual(
          other.publications('hEnded').map(({ data }) => data),
          [1, 2],
        );
        assert.equal(await other.errorOf('unsubscribe', { channel: 'hEnded' }), undefined);
      },
    );
  });

test(
  'channels of the server are told by 3010, and recover nothing of a stream that ended',
  OPTIONS,
  async (t) => {
    const { connect, port } = await BACKENDS.embedded(t);
    const token = connectionToken({ channels: ['hServer'], rooms: { publish: ['*'] } });
    const client = await connect({ token });
    await publish(client, 'hServer', [1, 2]);
    const { epoch } = client.welcome.subs.hServer;
    await deleteHistory(port, 'hServer');
    assert.equal(await client.closeCode(), 3010);
    const again = await connect({ token, subs: { hServer: { recover: true, offset: 2, epoch } } });
    const { hServer: h } = again.welcome.subs;
    assert.deepEqual([h.recovered, h.was_recovering], [undefined, true]);
    assert.notEqual(h.epoch, epoch);
  },
);

describe('Redis itself', () => {
  const start = BACKENDS.Redis;

  test(
    'a rollback of Redis is told: recovered is false, before and after the fork',
    OPTIONS,
    async (t) => {
      const { connect } = await start(t);
      const [redis, stale] = [await startedRedis(), await startRedis(t, { args: ARGS })];
      const isLinked = async (
        /** @type {typeof redis} */ { port },
        /** @type {typeof redis} */ to,
      ) => {
        await to.cli('REPLICAOF', '127.0.0.1', `${port}`);
        await eventually(async () =>
          (await to.cli('INFO', 'replication')).includes('master_link_status:up'),
        );
      };
      const client = await connect();
      const { epoch } = await subscribe(client, { channel: 'hFork' });
      await isLinked(redis, stale);
      await publish(client, 'hFork', [1, 2, 3]);
      await eventually(async () => {
        const keys = await stale.cli('KEYS', '*');
        return keys.includes('history');
      });
      await stale.cli('REPLICAOF', 'NO', 'ONE');
      await publish(client, 'hFork', ['lost 4', 'lost 5']);
      await isLinked(stale, redis);
      await redis.cli('REPLICAOF', 'NO', 'ONE');
      await client.push('unsubscribe', 30_000);
      await eventually(
        async () =>
          (await client.errorOf('publish', { channel: 'hFork', data: 'new 4' })) === undefined,
      );
      const now = await positionOf(client, 'hFork');
      assert.notEqual(now.epoch, epoch);
      for (const offset of [3, 5]) {
        const visitor = await connect();
        const result = await subscribe(visitor, { channel: 'hFork', recover: true, offset, epoch });
        assert.equal(result.recovered, undefined, `offset ${offset}`);
        assert.equal(result.was_recovering, true);
        assert.deepEqual([result.epoch, result.offset], [now.epoch, now.offset]);
        assert.equal(result.publications, undefined);
      }
    },
  );

  // The last test of this Redis.
  test('while Redis is unavailable, commands get a temporary error 100', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const redis = await startedRedis();
    const client = await connect();
    await subscribe(client, { channel: 'hDown' });
    await redis.kill();
    const temporary = { code: 100, message: 'internal server error', temporary: true };
    await eventually(
      async () =>
        (await client.call('publish', { channel: 'hDown', data: 1 })).error?.temporary === true,
    );
    for (const [method, request] of /** @type {[string, Record<string, unknown>][]} */ ([
      ['publish', { channel: 'hDown', data: 1 }],
      ['subscribe', { channel: 'h2' }],
      ['history', { channel: 'h3', limit: 1 }],
    ]))
      assert.deepEqual((await client.call(method, request)).error, temporary, method);
    assert.equal(client.close, null);
  });
});
