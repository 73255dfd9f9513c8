// fast-paths.test.js: the fast paths of the Redis backend, on connections of ioredis to a real Redis.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { FAST_PATHS } from '../../src/observability/counters.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { startRedis } from '../harness/redis.js';
import { FIELDS, isOff } from '../helpers/hidden/fields.js';
import { passWithout } from '../helpers/hidden/without.js';
import { NO_TLS, startTlsRedis } from '../helpers/redis-tls.js';
import { start } from '../helpers/redis-worker.js';

const hidden = process.env.TEST_HIDDEN_FIELD;
const REDIS = FAST_PATHS.filter((name) => name.startsWith('redis_'));
const limit = { timeout: 30_000 };

/**
 * Publishes to a subscriber of its own, and counts the work of ioredis.
 * @param {import('node:test').TestContext} t
 * @param {{settings: import('../../src/config/redis.js').RedisSettings}} redis
 * @param {Partial<import('../../src/config/settings.js').Config>} [config]
 */
async function exchange(t, redis, config) {
  const worker = await start(t, redis, config);
  const { node } = worker;
  let emitted = 0;
  node.subscriber.redis.on('messageBuffer', (channel) => {
    if (!String(channel).includes('probe')) emitted++;
  });
  const commands = /** @type {any} */ (node.commands.redis);
  let queued = 0;
  const send = commands.sendCommand;
  commands.sendCommand = (/** @type {any} */ command, /** @type {unknown} */ stream) => {
    if (stream !== undefined) queued++;
    return send.call(commands, command, stream);
  };
  await worker.broker.subscribe('room');
  const body = Buffer.from('"hello"');
  for (let i = 0; i < 10; i++) {
    const publication = encodePublication(KIND.MESSAGE, 1e12, 0, 'ann', body, 0, body.length);
    await worker.broker.publish('room', publication);
  }
  const end = performance.now() + 5000;
  while (worker.texts.length < 10) {
    assert.ok(performance.now() < end, `${worker.texts.length} messages`);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(worker.texts.every((text) => text.endsWith('ann"hello"')));
  return { emitted, queued, paths: worker.counters.fastPaths };
}

test(
  'the fast path reads messages before ioredis and writes commands without it',
  limit,
  async (t) => {
    const { emitted, queued, paths } = await exchange(t, await startRedis(t));
    assert.equal(paths.redis_pushes === '', !isOff('redis_pushes'), paths.redis_pushes);
    assert.equal(paths.redis_commands === '', !isOff('redis_commands'), paths.redis_commands);
    assert.equal(paths.redis_reset, undefined);
    assert.equal(emitted > 0, isOff('redis_pushes'), `${emitted} messages by ioredis`);
    assert.equal(queued === 0, isOff('redis_commands'), `${queued} commands of our own`);
  },
);

test('with FANFARE_FAST_PATHS=off, ioredis reads and writes', limit, async (t) => {
  const { emitted, queued, paths } = await exchange(t, await startRedis(t), { fastPaths: 'off' });
  assert.equal(paths.redis_pushes, 'FANFARE_FAST_PATHS is off');
  assert.equal(paths.redis_commands, 'FANFARE_FAST_PATHS is off');
  assert.ok(emitted > 0);
  assert.equal(queued, 0);
});

test('an abandoned TLS connection to Redis is reset', { ...limit, skip: NO_TLS }, async (t) => {
  const tls = await startTlsRedis(t);
  const worker = await start(t, { settings: tls.settings() });
  const { paths } = { paths: worker.counters.fastPaths };
  assert.equal(paths.redis_reset === '', !isOff('redis_reset'), paths.redis_reset);
  const socket = /** @type {any} */ (worker.node.commands.redis).stream;
  const tcp = socket._handle._parent;
  let isReset = false;
  const { reset } = tcp;
  tcp.reset = (/** @type {unknown[]} */ ...parts) => {
    isReset = true;
    return reset.apply(tcp, parts);
  };
  worker.node.commands.destroy('for a test');
  await once(socket, 'close');
  assert.equal(isReset, !isOff('redis_reset'));
});

for (const [name, field] of Object.entries(FIELDS)) {
  if (!REDIS.includes(/** @type {any} */ (field.path))) continue;
  test(
    `with ${name} hidden, messages arrive, and the fast path is not in use`,
    {
      skip: hidden === undefined ? false : 'a field is hidden already',
      timeout: 60_000,
    },
    () =>
      passWithout(name, 'test/contract/fast-paths.test.js', [
        'the fast path reads messages before ioredis and writes commands without it',
        'an abandoned TLS connection to Redis is reset',
      ]),
  );
}
