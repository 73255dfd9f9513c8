// state-hooks.test.js: hooks beside rooms with state, on real servers. They find the key in
// `context.key`, and what they deny is not in the state. test/helpers/hooks/state.js has the hooks.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { connectInTurn } from '../helpers/clients.js';
import { shared } from '../helpers/shared.js';

const OPTIONS = { timeout: 60_000 };
const SECRET = newSecret();
const ENV = Object.freeze({
  ...NO_LIMITS,
  WORKERS: '2',
  FANFARE_SCHEDULING: 'round-robin',
  FANFARE_STATE: 'price.*=100/1h',
  FANFARE_HOOKS: fileURLToPath(new URL('../helpers/hooks/state.js', import.meta.url)),
  API_KEYS: `test ${SECRET} all`,
});

const started = shared((owner) => startServer(owner, ENV));

/**
 * @param {import('../helpers/clients.js').Client} client @param {object} fields
 * @returns {Promise<Record<string, any>>} the answer
 */
async function publish(client, fields) {
  const id = `${Math.random()}`;
  client.send({ type: 'message', room: 'price.eur', ...fields, id });
  return client.next((message) => message.id === id);
}

for (const backend of ['embedded', 'redis']) {
  test(
    `${backend}: onPublish finds the key, changes values, and what it denies is not in the state`,
    OPTIONS,
    async (t) => {
      const server =
        backend === 'redis'
          ? await startServer(t, { ...ENV, REDIS_URL: (await startRedis(t)).url })
          : await started();
      const [author, reader] = await connectInTurn(t, server.port, 2);
      await reader.join('price.eur');
      for (const [key, payload] of [
        ['open', 1],
        ['twice', 21],
        ['kept', 3],
      ])
        assert.equal((await publish(author, { key, payload })).type, 'ack', `${key}`);
      for (const [key, payload, text] of [
        ['fixed', 9, 'nobody changes fixed of price.eur'],
        ['kept', null, 'nobody removes it'],
      ]) {
        const { error, message } = await publish(author, { key, payload });
        assert.deepEqual([error, message], ['PERMISSION_DENIED', text], `${key}`);
      }
      // A hook may remove a key, and a refused one costs no offset.
      assert.equal((await publish(author, { key: 'gone', payload: 4 })).offset, 4);
      await reader.next(({ offset }) => offset === 4);
      assert.deepEqual(
        reader.all('message').map(({ key, payload }) => [key, payload]),
        [
          ['open', 1],
          ['twice', 42],
          ['kept', 3],
          ['gone', null],
        ],
      );
      const { body } = await apiOf(server, SECRET)('/rooms/price.eur/state');
      assert.deepEqual(
        body.entries.map((/** @type {Record<string, unknown>} */ { key, payload }) => [
          key,
          payload,
        ]),
        [
          ['open', 1],
          ['twice', 42],
          ['kept', 3],
        ],
      );
    },
  );
}

test('a message without a key is refused before the hook is asked', OPTIONS, async (t) => {
  const server = await started();
  const [client] = await connectInTurn(t, server.port, 1);
  assert.equal((await publish(client, { payload: 1 })).error, 'INVALID_MESSAGE_FORMAT');
  assert.equal(
    (await publish(client, { room: 'news', key: 'a', payload: 1 })).error,
    'INVALID_MESSAGE_FORMAT',
  );
  await client.join('news');
  client.send({ type: 'message', room: 'news', payload: 'hi' });
  assert.equal((await client.next('message')).payload, 'hi, without a key');
});

test('onJoin keeps clients out of a room with state, and its messages', OPTIONS, async (t) => {
  const server = await started();
  const [client] = await connectInTurn(t, server.port, 1);
  const body = { room: 'price.staff', key: 'a', payload: 1 };
  assert.equal((await apiOf(server, SECRET)('/publish', { body })).status, 200);
  const { error, message } = await client.ask({ type: 'join', room: 'price.staff' }, 'joined');
  assert.deepEqual([error, message], ['PERMISSION_DENIED', 'staff only']);
  const stream = await fetch(`http://127.0.0.1:${server.port}/sse?room=price.staff`);
  assert.equal(stream.status, 403);
  assert.equal(/** @type {any} */ (await stream.json()).message, 'staff only');
  await client.ask({ type: 'ping' }, 'pong');
  assert.deepEqual(client.all('message'), []);
});
