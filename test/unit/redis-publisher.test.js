// redis-publisher.test.js: the outcome of a publish over Redis when the answer is late.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Keys } from '../../src/backend/redis/keys.js';
import { RedisPublisher } from '../../src/backend/redis/publisher.js';

const TIMEOUT_MS = 300;

/** A publisher whose Redis answers when the test says so. */
function build() {
  /** Written and unanswered. @type {{resolve: (reply: unknown) => void}[]} */
  const commands = [];
  const clock = { nowMs: 0 };
  /** @type {string[]} */
  const destroyed = [];
  const redis = {
    sendCommand: (/** @type {any} */ command) => void commands.push(command),
    stream: { write() {} },
  };
  const connection = {
    redis,
    isWritable: true,
    destroy: (/** @type {string} */ reason) => void destroyed.push(reason),
  };
  const publisher = new RedisPublisher({
    connection: /** @type {any} */ (connection),
    clock: /** @type {any} */ (clock),
    keys: new Keys('test:'),
    isSharded: false,
    maxPubsubBytes: 1000,
    timeoutMs: TIMEOUT_MS,
    onRefused() {},
  });
  /** @param {Promise<void>} published */
  const outcomeOf = (published) =>
    published.then(
      () => 'accepted',
      ({ code }) => code,
    );
  const publish = (/** @type {string} */ room, key = '') =>
    outcomeOf(
      key === ''
        ? publisher.publish(room, Buffer.from('x'))
        : publisher.publishOnce(room, Buffer.from('x'), key, ''),
    );
  return { publisher, publish, commands, clock, destroyed };
}

for (const key of ['', 'key'])
  test(`a slow answer that does not come in time leaves the outcome unknown${key && ', with an idempotency key'}`, async () => {
    const { publisher, publish, commands, clock, destroyed } = build();
    const [answered, late, next] = [publish('a', key), publish('b', key), publish('c', key)];
    publisher.flush();
    // Redis answers, but slowly: so the connection is not given up.
    clock.nowMs = TIMEOUT_MS - 50;
    commands[0].resolve(1);
    assert.equal(await answered, 'accepted');
    clock.nowMs = TIMEOUT_MS + 10;
    publisher.unanswered.expireLate(clock.nowMs);
    // Redis has perhaps published them, so a promise that it has not would be false.
    assert.equal(await late, 'OUTCOME_UNKNOWN');
    assert.equal(await next, 'OUTCOME_UNKNOWN');
    assert.deepEqual(destroyed, []);
    assert.equal(publisher.unanswered.messages, 2, 'they take place until Redis answers');
    for (const command of commands.slice(1)) command.resolve(1);
    assert.equal(publisher.unanswered.messages, 0);
    assert.equal(publisher.unanswered.bytes, 0);
  });

test('without any answer the connection is given up, and what was never written was certainly not accepted', async () => {
  const { publisher, publish, clock, destroyed } = build();
  const written = publish('a');
  publisher.flush();
  const gathered = publish('b');
  clock.nowMs = TIMEOUT_MS;
  publisher.unanswered.expireLate(clock.nowMs);
  assert.equal(destroyed.length, 1);
  /** @type {any} */ (publisher.connection).isWritable = false;
  publisher.flush();
  assert.equal(await gathered, 'UNAVAILABLE');
  // ioredis rejects the commands of a connection that ends.
  for (const { messages } of publisher.unanswered.batches)
    for (const message of messages) message.reject(new Error('Connection is closed.'));
  assert.equal(await written, 'OUTCOME_UNKNOWN');
  assert.equal(publisher.unanswered.messages, 0);
});
