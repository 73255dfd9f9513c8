import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RateLimiter } from '../../src/admission/rate-limit.js';
import { MAX_NAMES, RefusedNames } from '../../src/admission/refused.js';
import { loadConfig } from '../../src/config/config.js';
import { createCounters } from '../../src/observability/counters.js';
import { TopRooms } from '../../src/worker/fleet-member.js';

test('whoever is refused most stays, however many others come, and no count is too high', () => {
  const refused = new RefusedNames();
  const times = { worst: 300, second: 200 };
  let others = 0;
  for (let i = 0; i < 5000; i++) {
    if (i % 16 === 0 && times.worst-- > 0) refused.countRefusal('messages', 'worst');
    if (i % 24 === 0 && times.second-- > 0) refused.countRefusal('connections', 'second');
    refused.countRefusal('messages', `other-${others++}`);
  }
  const { addresses } = refused.mostRefused();
  assert.ok(addresses.length <= 2 * MAX_NAMES);
  assert.deepEqual(addresses.slice(0, 2), [
    ['worst', 0, 300],
    ['second', 200, 0],
  ]);
  assert.deepEqual(addresses[2].slice(1), [0, 1]);
  assert.ok(refused.forgotten > 4000);
});

test('refusals are forgotten after two windows', () => {
  const refused = new RefusedNames();
  refused.sweep(300_000);
  refused.countRefusal('messages', 'a', 'alice');
  refused.sweep(599_000);
  refused.sweep(600_000);
  refused.countRefusal('messages', 'a');
  assert.deepEqual(refused.mostRefused(), { addresses: [['a', 0, 2]], users: [['alice', 0, 1]] });
  refused.sweep(900_000);
  assert.deepEqual(refused.mostRefused(), { addresses: [['a', 0, 1]], users: [] });
  refused.sweep(1_200_000);
  assert.deepEqual(refused.mostRefused(), { addresses: [], users: [] });
});

test('a message that a limit refuses is counted for its address and its user', () => {
  const { config } = loadConfig({
    FANFARE_MESSAGES_PER_MINUTE: '2',
    FANFARE_BROADCASTS_PER_MINUTE_PER_IP: '1',
    FANFARE_CLIENT_BROADCAST: 'on',
  });
  assert.ok(config);
  const refused = new RefusedNames();
  const limiter = new RateLimiter(config, createCounters(), refused);
  const connection = { rate: null };
  for (let i = 0; i < config.messagesBurst; i++)
    assert.equal(limiter.admitMessage(connection, '192.0.2.1', 1000, 10, 'alice'), 0);
  assert.deepEqual(refused.mostRefused(), { addresses: [], users: [] });
  for (let i = 0; i < 2; i++)
    assert.notEqual(limiter.admitMessage(connection, '192.0.2.1', 1000, 10, 'alice'), 0);
  assert.deepEqual(refused.mostRefused(), {
    addresses: [['192.0.2.1', 0, 2]],
    users: [['alice', 0, 2]],
  });
  for (let i = 0; i < config.broadcastsBurstPerIp + 1; i++)
    limiter.admitBroadcast(connection, '192.0.2.2', 1000, 10);
  assert.deepEqual(refused.mostRefused().addresses[1], ['192.0.2.2', 0, 1]);
});

test('the first rooms are kept in bounded memory, in any order of arrival', () => {
  const top = new TopRooms('connections', 10);
  const count = 10_007;
  for (let i = 0; i < count; i++) {
    const n = (i * 7919) % count;
    top.addRoom(`room-${n}`, n, 1);
    assert.ok(top.rooms.size < 20);
  }
  assert.deepEqual(
    top.largest().map(([, connections]) => connections),
    Array.from({ length: 10 }, (_, i) => count - 1 - i),
  );
});
