// slow-consumers.test.js: connections that read too slowly (hub/slow-consumers.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { QUIET } from '../helpers/hub.js';
import { build, payloads, publication } from '../helpers/hub-members.js';

test('a publication without its sender counts as before for a slow consumer and for the queue', async () => {
  const { hub, connect, counters } = build();
  const [one, two] = [connect(), connect()];
  for (const { connection } of [one, two]) hub.join(connection, 'r', QUIET);
  one.transport.pendingBytes = 1e9;
  hub.broadcast('r', publication(1, one.connection.id));
  hub.broadcast('r', publication(2));
  await turn();
  assert.equal(one.transport.closed?.code, 4003);
  assert.deepEqual([counters.deliveries, counters.queueDepth], [2, 0]);
});

test('a connection that falls behind its limit is closed as a slow consumer, and the others get everything', async () => {
  const { hub, connect, counters } = build({
    env: { FANFARE_MAX_UNSENT_BYTES: '200000', FANFARE_MAX_MESSAGE_BYTES: '100000' },
  });
  const slow = connect();
  const quick = connect();
  slow.transport.isStuck = true;
  for (const { connection } of [slow, quick]) hub.join(connection, 'r', QUIET);
  for (let i = 0; i < 10; i++) {
    hub.broadcast('r', publication('x'.repeat(50_000)));
    await turn();
  }
  assert.equal(slow.transport.closed?.code, 4003);
  assert.ok(slow.transport.pendingBytes <= 200_000);
  assert.equal(counters.slow.closed, 1);
  assert.equal(payloads(quick.transport).length, 10);
});

test('a connection that closes with unsent bytes leaves nothing among the slow consumers', async () => {
  const { hub, connect, slowConsumers } = build();
  const slow = connect();
  hub.join(slow.connection, 'r', QUIET);
  slow.transport.isStuck = true;
  hub.broadcast('r', publication('waits'));
  await turn();
  assert.equal(slowConsumers.lagging.size, 1);
  hub.removeConnection(slow.connection);
  assert.equal(slowConsumers.lagging.size, 0);
});

test('with the policy drop, publications are left out until the connection has caught up', async () => {
  const { hub, connect, counters } = build({
    env: {
      FANFARE_MAX_UNSENT_BYTES: '200000',
      FANFARE_MAX_MESSAGE_BYTES: '100000',
      FANFARE_SLOW_CONSUMER: 'drop',
    },
  });
  const slow = connect();
  slow.transport.isStuck = true;
  hub.join(slow.connection, 'r', QUIET);
  for (let i = 0; i < 10; i++) {
    hub.broadcast('r', publication(String(i).repeat(50_000)));
    await turn();
  }
  assert.equal(slow.transport.closed, null);
  assert.ok(counters.slow.dropped > 0);
  slow.transport.pendingBytes = 0;
  slow.transport.isStuck = false;
  hub.broadcast('r', publication('after'));
  await turn();
  assert.equal(payloads(slow.transport).at(-1), 'after');
});

test('the age of the oldest unsent byte counts, even if nothing more is sent', async () => {
  const { hub, connect, clock, slowConsumers } = build();
  const slow = connect();
  const moving = connect();
  for (const { connection, transport } of [slow, moving]) {
    transport.isStuck = true;
    hub.join(connection, 'r', QUIET);
  }
  hub.broadcast('r', publication('first'));
  await turn();
  hub.broadcast('r', publication('second'));
  await turn();
  for (let second = 1; second <= 12; second++) {
    clock.now = second * 1000;
    moving.transport.pendingBytes = Math.max(1, moving.transport.pendingBytes - 50);
    if (second === 6) {
      hub.broadcast('r', publication('third'));
      await turn();
    }
    slowConsumers.sweep();
  }
  assert.equal(slow.transport.closed?.code, 4003);
  assert.equal(moving.transport.closed, null);
});

test('a connection that sends commands and does not read is closed as a slow consumer, for every command', async () => {
  for (const policy of ['close', 'drop']) {
    for (const type of ['echo', 'ping', 'hello', 'nonsense', 'join', 'presence']) {
      const { connect, counters } = build({
        env: {
          FANFARE_MAX_UNSENT_BYTES: '20000',
          FANFARE_MAX_MESSAGE_BYTES: '10000',
          FANFARE_SLOW_CONSUMER: policy,
        },
      });
      const { transport, say } = connect();
      transport.isStuck = true;
      for (let i = 0; i < 2000 && transport.closed === null; i++) {
        say({ type, payload: 'x'.repeat(9000), room: 'r' });
        if (i % 50 === 49) await turn(); // reads are answered in a later one
      }
      assert.equal(transport.closed?.code, 4003, type);
      assert.ok(transport.pendingBytes <= 20_000, type);
      assert.deepEqual(counters.slow, { closed: 1, dropped: 0, shed: 0 }, type);
    }
  }
});

test('one unread reply counts by its age, and in the budget of the worker', () => {
  const { connect, clock, slowConsumers, counters } = build({ budgetBytes: 10_000 });
  const [old, large] = [connect(), connect()];
  for (const { transport } of [old, large]) transport.isStuck = true;
  old.say({ type: 'ping' });
  large.say({ type: 'echo', payload: 'x'.repeat(11_000) });
  slowConsumers.sweep();
  assert.equal(large.transport.closed?.code, 4003);
  assert.equal(counters.slow.shed, 1);
  clock.now = 10_001;
  slowConsumers.sweep();
  assert.equal(old.transport.closed?.code, 4003);
  assert.equal(counters.slow.closed, 1);
});

test('with the policy drop, a connection that takes no byte is closed after the time of a missed ping', () => {
  const { connect, clock, slowConsumers, counters, config } = build({
    env: { FANFARE_SLOW_CONSUMER: 'drop' },
  });
  const [mute, moving] = [connect(), connect()];
  for (const { transport, say } of [mute, moving]) {
    transport.isStuck = true;
    say({ type: 'echo', payload: 'x'.repeat(5000) });
  }
  const end = config.pingIntervalMs + config.pongTimeoutMs;
  for (clock.now = 0; clock.now <= end; clock.now += 1000) {
    moving.transport.pendingBytes--;
    slowConsumers.sweep();
    assert.equal(mute.transport.closed, null, `after ${clock.now} ms`);
  }
  for (let i = 0; i < 12; i++) {
    clock.now += 1000;
    moving.transport.pendingBytes--;
    slowConsumers.sweep();
  }
  assert.equal(mute.transport.closed?.code, 4003);
  assert.equal(moving.transport.closed, null);
  assert.equal(counters.slow.closed, 1);
});

test('a worker over its budget of unsent bytes sheds the largest first', async () => {
  const { hub, connect, slowConsumers, counters } = build({ budgetBytes: 100_000 });
  const large = connect();
  const small = connect();
  for (const { connection, transport } of [large, small]) {
    transport.isStuck = true;
    hub.join(connection, 'r', QUIET);
    transport.write(Buffer.alloc(1));
  }
  hub.broadcast('r', publication('x'.repeat(40_000)));
  await turn();
  large.transport.pendingBytes += 60_000;
  slowConsumers.sweep();
  assert.equal(large.transport.closed?.code, 4003);
  assert.equal(small.transport.closed, null);
  assert.equal(counters.slow.shed, 1);
});
