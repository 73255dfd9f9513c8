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
      heartbeat.unwatchConnection(connection);
    };
    heartbeat.watchConnection(connection);
    return { connection, transport };
  });
  let now = 0;
  const run = (/** @type {number} */ ms, /** @type {() => void} */ each = () => {}) => {
    for (const end = now + ms; now + heartbeat.stepMs <= end; ) {
      now += heartbeat.stepMs;
      heartbeat.pingDue(now);
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

test('a door may close a silent connection with a code; the second time it is terminated', () => {
  const { members, run, counters } = build({ connections: 2 });
  const [{ connection, transport }, other] = members;
  const silentClose = { code: 4201, reason: 'no pong' };
  transport.door = { ...transport.door, silentClose };
  const keep = () => {
    other.connection.isAlive = true;
  };
  // Its place decides when it is checked first: after 10.25 to 40 s. The second check is 30 s later.
  run(40_000, keep);
  assert.deepEqual([transport.closed, transport.terminated], [silentClose, false]);
  assert.equal(connection.isOpen, false);
  assert.equal(counters.heartbeatTimeouts, 1);
  run(30_000, keep);
  assert.equal(transport.terminated, true);
  assert.deepEqual([other.transport.closed, other.transport.terminated], [null, false]);
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
  for (const { connection } of members.filter((_, i) => i % 3 === 0))
    heartbeat.unwatchConnection(connection);
  heartbeat.unwatchConnection(members[0].connection);
  run(30_000, () => {
    for (const { connection } of members) connection.isAlive = true;
  });
  assert.deepEqual(
    members.map(({ transport }) => transport.pings),
    members.map((_, i) => (i % 3 === 0 ? 0 : 1)),
  );
});

test('connections reach their maximum age one by one, in its last quarter', () => {
  const counters = createCounters();
  /** @type {Map<Connection, number>} */
  const ends = new Map();
  // The wheel begins with the first connection, by the clock of the process.
  const begin = performance.now();
  let now = begin;
  const heartbeat = new Heartbeat({
    intervalMs: 30_000,
    timeoutMs: 10_000,
    maxAgeMs: 3_600_000,
    onAge: (connection) => {
      ends.set(connection, now);
      heartbeat.unwatchConnection(connection);
    },
    counters,
  });
  for (let i = 0; i < 1000; i++) {
    const connection = new Connection(new FakeTransport(), '::1');
    connection.isAlive = true;
    heartbeat.watchConnection(connection);
  }
  const alive = () => {
    for (const place of heartbeat.places) for (const one of place) one.markAlive();
  };
  for (; now < begin + 3_700_000; now += heartbeat.stepMs) {
    heartbeat.pingDue(now);
    alive();
  }
  assert.equal(ends.size, 1000);
  const times = [...ends.values()].map((ms) => ms - begin);
  assert.ok(Math.min(...times) >= 2_700_000, `${Math.min(...times)}`);
  assert.ok(Math.max(...times) <= 3_631_000, `${Math.max(...times)}`);
  // 1,000 over 900 s: a minute has 67 of them.
  for (let from = 2_760_000; from < 3_540_000; from += 60_000) {
    const ended = times.filter((ms) => ms >= from && ms < from + 60_000).length;
    assert.ok(ended > 20 && ended < 150, `${ended} within a minute`);
  }
});

test('without a maximum age no connection has one', () => {
  const { members, run } = build({ connections: 10 });
  run(30_000);
  assert.ok(members.every(({ connection }) => connection.endsS === 0));
});
