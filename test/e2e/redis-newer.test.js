// redis-newer.test.js: messages and keys in Redis that a newer version of Fanfare has written.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { writePublication } from '../../src/backend/batch.js';
import { RedisRevocations } from '../../src/backend/redis/revocations.js';
import { parseHistoryRules } from '../../src/config/room-patterns.js';
import { writePosition } from '../../src/protocol/position.js';
import { startRedis } from '../harness/redis.js';
import { eventually, outcome, start } from '../helpers/redis-worker.js';

const { rules: history } = parseHistoryRules(['kept.*=100/60s']);
const PREFIX = 'faults:';
const KEY = { idempotencyKey: 'a-key-of-the-publisher', fingerprint: 'first' };

/** @typedef {import('../helpers/redis-worker.js').Worker} Worker */

/** @param {import('node:test').TestContext} t */
async function startWorker(t) {
  const worker = await start(t, await startRedis(t), { history });
  return { worker, redis: worker.node.commands.redis };
}

/**
 * A message of the next version: a publication, and then one in a form that only that version reads.
 * @param {string} text of the first publication
 * @param {import('../../src/protocol/position.js').Position} [position] of the first publication
 */
function newerMessage(text, position) {
  const message = Buffer.alloc(100);
  let at = 0;
  if (position !== undefined) {
    at = message.writeUInt32BE(0x40000018, 0);
    writePosition(message, at, position.epoch, position.offset);
    at += 24;
  }
  if (text !== '') at = writePublication(message, at, Buffer.from(text));
  at = message.writeUInt32BE(0xc0000003, at);
  at += message.write('of another form', at);
  return message.subarray(0, at);
}

/**
 * Publishes as the next version does.
 * @param {Worker} worker @param {string} room @param {string} text
 */
async function publishNewer({ broker, node }, room, text = '') {
  const { redis } = node.commands;
  const { epoch, offset } = await broker.history(room, { after: 0, limit: 0 });
  const meta = `${PREFIX}history:{${room}}:meta`;
  const [incarnation] = await redis.hkeys(meta);
  const last = offset + (text === '' ? 1 : 2);
  const message = newerMessage(text, { epoch, offset: offset + 1 });
  await redis.hset(meta, incarnation, last + 1);
  await redis.xadd(`${PREFIX}history:{${room}}:stream`, `${last}`, 'm', message);
  await redis.publish(`${PREFIX}room:{${room}}`, message);
}

/**
 * @param {Worker} worker
 * @param {Partial<import('../../src/backend/broker.js').ReadRequest>} [request]
 */
async function read({ broker }, request) {
  const page = await broker.history('kept.a', { after: 0, limit: 100, ...request });
  return { ...page, publications: page.publications.map(String) };
}

test('a message of a newer version is dropped and counted, and earlier publications are delivered', async (t) => {
  const { worker, redis } = await startWorker(t);
  await worker.broker.subscribe('plain');
  for (let i = 0; i < 2; i++)
    await redis.publish(`${PREFIX}room:{plain}`, newerMessage(`readable ${i}`));
  await worker.broker.publish('plain', Buffer.from('later'));
  await eventually(() => worker.texts.length === 3);
  assert.deepEqual(worker.texts, ['readable 0', 'readable 1', 'later']);
  assert.equal(worker.counters.unknownVersions, 2);
  assert.equal(worker.counters.malformed, 0);
  assert.deepEqual(worker.lost, []);
  const lines = worker.lines.filter(({ version }) => version === 3);
  assert.equal(lines.length, 1, 'one line a minute');
});

test('in a room with history the owner learns of a message of a newer version', async (t) => {
  const { worker } = await startWorker(t);
  await worker.broker.subscribe('kept.a');
  await worker.broker.publish('kept.a', Buffer.from('one'));
  await publishNewer(worker, 'kept.a');
  await eventually(() => worker.lost.length > 0);
  assert.deepEqual(worker.lost, ['kept.a']);
  assert.deepEqual(worker.texts, ['one']);
});

test('messages of a newer version in a history are gaps, and a page has none', async (t) => {
  const { worker } = await startWorker(t);
  const { broker } = worker;
  await broker.publish('kept.a', Buffer.from('one'));
  await publishNewer(worker, 'kept.a', 'two');
  for (const text of ['four', 'five']) await broker.publish('kept.a', Buffer.from(text));
  const { epoch } = await read(worker);
  // There are older ones, which a reader of this version cannot have.
  const back = { epoch, offset: 5, first: 4, publications: ['four', 'five'], hasOlder: false };
  assert.deepEqual(await read(worker), back);
  assert.deepEqual(await read(worker, { after: 2 }), back);
  const forward = { ...back, first: 1, publications: ['one', 'two'] };
  assert.deepEqual(await read(worker, { isForward: true }), forward);
  assert.deepEqual(await read(worker, { after: 2, isForward: true }), back);
  await publishNewer(worker, 'kept.a');
  const { offset, publications } = await read(worker);
  assert.deepEqual({ offset, publications }, { offset: 6, publications: [] });
});

for (const room of ['kept.a', 'plain']) {
  const name = (/** @type {Worker} */ { broker }) =>
    room === 'plain'
      ? broker.keys.onceOf(room, KEY.idempotencyKey)
      : broker.keys.idempotencyOf(room, KEY.idempotencyKey);

  test(`${room}: fields that a newer version appends to an idempotency key are ignored`, async (t) => {
    const { worker, redis } = await startWorker(t);
    const { broker } = worker;
    const first = await broker.publish(room, Buffer.from('one'), KEY);
    await redis.append(name(worker), ':another:field');
    assert.deepEqual(await broker.publish(room, Buffer.from('one'), KEY), first);
    const other = broker.publish(room, Buffer.from('two'), { ...KEY, fingerprint: 'second' });
    assert.equal(await outcome(other), 'IDEMPOTENCY_CONFLICT');
  });

  test(`${room}: an idempotency key whose value is of another version publishes nothing`, async (t) => {
    const { worker, redis } = await startWorker(t);
    const { broker } = worker;
    await broker.subscribe(room);
    await redis.set(name(worker), '@2 of another form');
    const expected = room === 'plain' ? 'OK' : 'OUTCOME_UNKNOWN';
    assert.equal(await outcome(broker.publish(room, Buffer.from('again'), KEY)), expected);
    await broker.publish(room, Buffer.from('next'));
    await eventually(() => worker.texts.length > 0);
    assert.deepEqual(worker.texts, ['next']);
  });
}

test('fields that a newer version appends to a revocation stay, and the revocation holds', async (t) => {
  const { worker, redis } = await startWorker(t);
  const revocations = new RedisRevocations({ connection: worker.node.commands, prefix: PREFIX });
  const one = { user: 'ada', tokenId: null, issuedBeforeMs: 5, keepUntilMs: Date.now() + 60_000 };
  await revocations.add(one);
  const entries = `${PREFIX}{revocations}:entries`;
  const [field] = await redis.hkeys(entries);
  await redis.hset(entries, field, `${await redis.hget(entries, field)} another field`);
  await revocations.add({ ...one, issuedBeforeMs: 7 });
  assert.deepEqual(await revocations.read(), [{ ...one, issuedBeforeMs: 7 }]);
  assert.match(`${await redis.hget(entries, field)}`, /^7 \d+ another field$/);
});
