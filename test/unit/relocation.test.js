import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Connection } from '../../src/hub/connection.js';
import { createCounters } from '../../src/observability/counters.js';
import { MAX_PENDING, Relocations } from '../../src/worker/relocation.js';
import { FakeTransport } from '../helpers/fake-transport.js';

/** @param {import('node:test').TestContext} t @param {number} [count] */
function build(t, count = 100) {
  const counters = createCounters();
  const transports = Array.from({ length: count }, () => new FakeTransport());
  const connections = transports.map((transport) => new Connection(transport, '::1'));
  const health = { isSteady: true };
  const relocations = new Relocations({
    hub: { connections },
    isSteady: () => health.isSteady,
    counters,
  });
  t.after(() => relocations.close());
  const closed = () => transports.filter((transport) => transport.closed !== null);
  return { counters, transports, connections, health, relocations, closed };
}

test('a connection gets its own delay, and is closed a moment later', (t) => {
  const { counters, transports, connections, relocations } = build(t);
  relocations.closeAged(connections[0], 1000);
  relocations.closeDue(1499);
  const [{ type, reconnectAfterMs }] = transports[0].messages();
  assert.equal(type, 'SERVER_SHUTDOWN');
  assert.ok(reconnectAfterMs >= 100 && reconnectAfterMs < 1000);
  assert.equal(transports[0].closed, null);
  relocations.closeDue(1500);
  assert.deepEqual(transports[0].closed, { code: 4007, reason: 'maximum age' });
  assert.deepEqual(counters.relocated, { age: 1, rebalance: 0 });
});

test('an order of the primary closes connections at random with 4006', (t) => {
  const { counters, relocations, closed } = build(t, 1000);
  relocations.rebalance(10, 0);
  relocations.closeDue(500);
  const [first] = closed();
  assert.deepEqual(first.closed, { code: 4006, reason: 'rebalance' });
  assert.ok(closed().length > 5 && closed().length <= 10);
  assert.equal(counters.relocated.rebalance, closed().length);
});

test('the delays of the clients differ', (t) => {
  const { transports, relocations } = build(t, 200);
  relocations.rebalance(200, 0);
  const delays = new Set(
    transports.flatMap((one) => one.messages().map(({ reconnectAfterMs }) => reconnectAfterMs)),
  );
  assert.ok(delays.size > 50, `${delays.size} delays`);
});

test('an unsteady worker closes nothing', (t) => {
  const { connections, health, relocations, closed } = build(t);
  health.isSteady = false;
  relocations.closeAged(connections[0], 0);
  relocations.rebalance(10, 0);
  relocations.closeDue(10_000);
  assert.equal(closed().length, 0);
  assert.equal(relocations.pending.size, 0);
});

test('a connection that expires twice gets one notice', (t) => {
  const { transports, connections, relocations } = build(t);
  relocations.closeAged(connections[0], 0);
  relocations.closeAged(connections[0], 100);
  assert.equal(transports[0].messages().length, 1);
});

test('a client that leaves by itself does not count as relocated', (t) => {
  const { counters, connections, relocations } = build(t);
  relocations.closeAged(connections[0], 0);
  connections[0].markClosed();
  relocations.closeDue(500);
  assert.equal(counters.relocated.age, 0);
  assert.equal(relocations.pending.size, 0);
});

test('a client that knows no notice is closed after its delay, because it returns at once', (t) => {
  const { counters, transports, connections, relocations, closed } = build(t, 400);
  for (const transport of transports.slice(0, 300))
    transport.door = { ...transport.door, encodeShutdown: () => null };
  for (const connection of connections) relocations.closeAged(connection, 0);
  relocations.closeDue(499);
  assert.equal(closed().length, 0);
  const counts = [500, 600, 800, 1000, 1200, 1400, 1600].map((nowMs) => {
    relocations.closeDue(nowMs);
    return closed().length;
  });
  assert.equal(counts[0], 100, 'those that have their notice');
  assert.equal(counts[6], 400);
  for (const [i, count] of counts.entries()) {
    // Between 600 and 1500 ms.
    const expected =
      100 + 300 * Math.min(1, Math.max(0, [500, 600, 800, 1000, 1200, 1400, 1600][i] - 600) / 900);
    assert.ok(Math.abs(count - expected) < 60, `${counts}`);
  }
  assert.ok(transports.slice(0, 300).every((transport) => transport.writes.length === 0));
  assert.deepEqual(counters.relocated, { age: 400, rebalance: 0 });
});

test('the connections on their way are bounded', (t) => {
  const { connections, relocations, closed } = build(t, MAX_PENDING + 100);
  for (const connection of connections) relocations.closeAged(connection, 0);
  relocations.closeDue(500);
  assert.equal(closed().length, MAX_PENDING);
});

test('after a close of the worker no connection is relocated', (t) => {
  const { connections, relocations, closed } = build(t);
  relocations.closeAged(connections[0], 0);
  relocations.close();
  relocations.closeDue(10_000);
  assert.equal(closed().length, 0);
});
