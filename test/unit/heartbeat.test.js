import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Connection } from '../../src/hub/connection.js';
import { Heartbeat } from '../../src/hub/heartbeat.js';
import { createCounters } from '../../src/observability/counters.js';
import { FakeTransport } from '../helpers/fake-transport.js';

function build({ intervalMs = 30_000, timeoutMs = 10_000, connections = 1000 } = {}) {
  const counters = createCounters();
  const heartbeat = new Heartbeat({ intervalMs, timeoutMs, counters });
  const members = Array.from({ length: connections }, () => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '::1');
    transport.terminate = () => {
      transport.terminated = true;
      heartbeat.remove(connection);
    };
    heartbeat.add(connection);
    return { connection, transport };
  });
  let now = 0;
  const run = (/** @type {number} */ ms, /** @type {() => void} */ each = () => {}) => {
    for (const end = now + ms; now + heartbeat.stepMs <= end; ) {
      now += heartbeat.stepMs;
      heartbeat.step(now);
      each();
    }
  };
  const stall = (/** @type {number} */ ms) => {
    now += ms;
  };
  return { counters, heartbeat, members, run, stall };
}

test('pings are spread evenly over the period', () => {
  const { members, run } = build();
  let before = 0;
  let most = 0;
  run(30_000, () => {
    const pings = members.reduce((sum, { transport }) => sum + transport.pings, 0);
    most = Math.max(most, pings - before);
    before = pings;
  });
  assert.equal(before, 1000, 'each was asked once');
  assert.ok(most <= 9, `at most ${most} in one step of 250 ms`);
});

test('a peer that sends nothing after a ping is terminated; any data counts as alive', () => {
  const { members, run, counters } = build();
  const [dead, alive] = members;
  run(60_000, () => {
    for (const member of members) if (member !== dead) member.connection.isAlive = true;
  });
  assert.ok(dead.transport.terminated);
  assert.ok(!alive.transport.terminated);
  assert.equal(counters.heartbeatTimeouts, 1);
});

test('if the event loop stalled, no peer is terminated for it', () => {
  const { members, run, stall } = build({ connections: 100 });
  run(5000, () => {});
  stall(20_000); // everything the peers sent meanwhile is still unread
  run(200);
  assert.equal(members.filter(({ transport }) => transport.terminated).length, 0);
});

test('a removed connection gets no ping, and each other connection gets one per period', () => {
  const { heartbeat, members, run } = build({ connections: 100 });
  for (const { connection } of members.filter((_, i) => i % 3 === 0)) heartbeat.remove(connection);
  heartbeat.remove(members[0].connection);
  run(30_000, () => {
    for (const { connection } of members) connection.isAlive = true;
  });
  assert.deepEqual(
    members.map(({ transport }) => transport.pings),
    members.map((_, i) => (i % 3 === 0 ? 0 : 1)),
  );
});
