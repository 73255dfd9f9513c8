// replay-buffer.test.js: recent publications in a worker's memory (recovery/replay-buffer.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { build, memberBehind, memberWith, offsets, range, settle } from '../helpers/recovery.js';

test('a replay buffer that was emptied while it was being filled is filled again', async () => {
  const built = build();
  const { broker, connect, publish, scheduler } = built;
  const member = await memberBehind(built, 5);
  broker.isManual = true;
  const late = connect();
  late.say({ type: 'join', room: 'h', since: { epoch: broker.stream('h').epoch, offset: 1 } });
  const [read] = broker.reads.splice(0);
  const page = broker.look('h', read);
  publish(3);
  broker.deliver();
  await settle();
  scheduler.syncs.get('h')?.replayBuffer.evict();
  read.resolve(page);
  await settle();
  broker.answer();
  await settle();
  assert.equal(late.of('joined')[0].recovered, true);
  assert.deepEqual(offsets(late.transport), range(2, 8));
  assert.deepEqual(offsets(member.transport), range(6, 8));
});

test('replay buffers share a budget, the least recently used are emptied first, and are read again when needed', async () => {
  const { broker, connect, publish, counters, scheduler } = build({ maxBufferBytes: 3000 });
  const member = connect();
  for (const room of ['h1', 'h2']) {
    member.say({ type: 'join', room });
    await settle();
    publish(7, room);
    broker.deliver();
    await settle();
  }
  assert.equal(counters.replayBuffersEvicted, 1);
  assert.ok(
    counters.replayBufferBytes > 0 && counters.replayBufferBytes <= 3000,
    `${counters.replayBufferBytes}`,
  );
  const { epoch } = broker.stream('h1');
  const { length } = broker.allReads;
  const client = connect();
  client.say({ type: 'join', room: 'h1', since: { epoch, offset: 2 } });
  await settle();
  assert.equal(broker.allReads.length, length + 1);
  assert.deepEqual(offsets(client.transport), range(3, 7));
  for (const one of [member, client]) one.say({ type: 'leave', room: 'h1' });
  member.say({ type: 'leave', room: 'h2' });
  assert.deepEqual(
    [counters.replayBufferBytes, scheduler.replayBudget.used.size, scheduler.wheel.timer],
    [0, 0, undefined],
  );
});

test('the frames of replays share the budget, and go with the replay buffer', async () => {
  const built = build({ maxBufferBytes: 3000 });
  const { connect, counters, scheduler } = built;
  const member = await memberWith(built, 5);
  const { epoch, replayBuffer } = /** @type {any} */ (scheduler.syncs.get('h'));
  const { bytes } = replayBuffer;
  assert.equal(counters.replayBufferBytes, bytes);
  const client = connect();
  client.say({ type: 'join', room: 'h', since: { epoch, offset: 1 } });
  await settle();
  assert.deepEqual(offsets(client.transport), range(2, 5));
  assert.ok(replayBuffer.replayBytes > 0);
  assert.equal(counters.replayBufferBytes, bytes + replayBuffer.replayBytes);
  // Another room takes the memory.
  client.say({ type: 'join', room: 'h2' });
  await settle();
  built.publish(12, 'h2');
  built.broker.deliver();
  await settle();
  assert.equal(counters.replayBuffersEvicted, 1);
  assert.deepEqual([replayBuffer.replayBytes, replayBuffer.replays], [0, []]);
  for (const one of [member, client]) one.say({ type: 'leave', room: 'h' });
  assert.equal(scheduler.replayBudget.used.size, 1);
});

test('a replay buffer expires when the store expires', async () => {
  const built = build({ ttlMs: 60_000 });
  const { broker, connect, clock } = built;
  await memberWith(built, 5);
  const { epoch } = broker.stream('h');
  clock.now += 60_001;
  broker.stream('h').publications = [];
  const late = connect();
  const current = connect();
  late.say({ type: 'join', room: 'h', since: { epoch, offset: 3 } });
  current.say({ type: 'join', room: 'h', since: { epoch, offset: 5 } });
  await settle();
  assert.equal(late.of('joined')[0].recovered, false);
  assert.equal(current.of('joined')[0].recovered, true);
  assert.equal(built.counters.replayBufferBytes, 0);
});
