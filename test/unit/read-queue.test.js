// read-queue.test.js: reads of the broker take turns (recovery/read-queue.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { build, settle } from '../helpers/recovery.js';

test('reads of rooms that have closed meanwhile are left out, and other reads take their turn', async () => {
  const built = build({ isManual: true });
  const { connect, broker, scheduler } = built;
  const client = connect();
  for (let i = 0; i < 64; i++) client.say({ type: 'join', room: `h-busy-${i}` });
  for (const { resolve } of broker.subscribing.splice(0)) resolve();
  await settle();
  assert.equal(broker.allReads.length, 64);
  for (let round = 0; round < 30; round++) {
    const churning = connect();
    for (let i = 0; i < 100; i++) churning.say({ type: 'join', room: `h-${round}-${i}` });
    for (const { resolve } of broker.subscribing.splice(0)) resolve();
    await settle();
    assert.equal(scheduler.reads.waiting.size, 100);
    built.hub.removeConnection(churning.connection);
    assert.equal(scheduler.reads.waiting.size, 0);
  }
  const last = connect();
  last.say({ type: 'join', room: 'h-last' });
  for (const { resolve } of broker.subscribing.splice(0)) resolve();
  await settle();
  broker.answer();
  await settle();
  assert.equal(broker.allReads.length, 65, 'none of the closed rooms was read');
  assert.equal(broker.allReads[64].room, 'h-last');
  assert.equal(scheduler.reads.active, 64);
});

test('reads are bounded, and all of them are done', async () => {
  const { broker, connect } = build({
    isManual: true,
    env: { FANFARE_MAX_ROOMS_PER_CONNECTION: '500' },
  });
  const client = connect();
  for (let i = 0; i < 500; i++) client.say({ type: 'join', room: `h${i}` });
  for (const { resolve } of broker.subscribing) resolve();
  await settle();
  let most = 0;
  for (let i = 0; i < 500; i++) {
    most = Math.max(most, broker.reads.length);
    broker.answer();
    await turn();
  }
  assert.equal(client.of('joined').length, 500);
  assert.ok(most <= 64 && most > 10, `${most}`);
});
