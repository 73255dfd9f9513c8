// room-patterns.test.js: patterns of room names, and the texts they are read from.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../src/config/config.js';
import {
  parseHistoryRules,
  parsePresenceRules,
  RoomRules,
} from '../../src/config/room-patterns.js';

test('the first pattern that matches a room applies', () => {
  const { rules, faults } = parseHistoryRules([
    'chat.vip=500/1h',
    'chat.*=100/300s',
    'a*b=1/2m',
    '*=7/1d',
  ]);
  assert.deepEqual(faults, []);
  const history = new RoomRules(rules);
  assert.deepEqual(history.ruleFor('chat.vip'), { size: 500, ttlMs: 3_600_000 });
  assert.deepEqual(history.ruleFor('chat.'), { size: 100, ttlMs: 300_000 });
  assert.deepEqual(history.ruleFor('chat.a.b'), { size: 100, ttlMs: 300_000 });
  assert.deepEqual(history.ruleFor('ab'), { size: 1, ttlMs: 120_000 });
  assert.deepEqual(history.ruleFor('a/x/b'), { size: 1, ttlMs: 120_000 });
  assert.deepEqual(history.ruleFor('chatty'), { size: 7, ttlMs: 86_400_000 });
  assert.deepEqual(history.ruleFor('a.b'), { size: 1, ttlMs: 120_000 });
  assert.deepEqual(history.ruleFor('chat.vip'), { size: 500, ttlMs: 3_600_000 }, 'remembered');
  const { rules: more } = parsePresenceRules(['a*ba', 'x*y*y*z']);
  const presence = new RoomRules(more);
  for (const room of ['aba', 'abba', 'abababa', 'xyyz', 'xaybycz'])
    assert.equal(presence.ruleFor(room), true, room);
  for (const room of ['ba', 'ab', 'abab', 'xyz', 'xz', 'xyya'])
    assert.equal(presence.ruleFor(room), null, room);
});

test('no pattern matches the room of all connections', () => {
  assert.equal(new RoomRules(parsePresenceRules(['*']).rules).ruleFor('*'), null);
});

test('a pattern matches whole names, and a dot is a dot', () => {
  const presence = new RoomRules(parsePresenceRules(['chat.a', 'x.*']).rules);
  assert.equal(presence.ruleFor('chat.a'), true);
  for (const room of ['chatxa', 'chat.ab', 'my.chat.a', 'xyz', 'x'])
    assert.equal(presence.ruleFor(room), null, room);
});

test('many stars do not take exponential time', () => {
  const { rules } = parsePresenceRules([`${'*a'.repeat(12)}${'*'.repeat(20)}b`]);
  const started = performance.now();
  assert.equal(new RoomRules(rules).ruleFor('a'.repeat(30)), null);
  // Trying every split of the name would take hours.
  assert.ok(performance.now() - started < 10_000);
});

test('results are cached for a bounded number of rooms', () => {
  const presence = new RoomRules(parsePresenceRules(['r*']).rules);
  for (let i = 0; i < 50_000; i++) assert.equal(presence.ruleFor(`r${i}`), true);
  assert.ok(presence.remembered.size <= 20_000);
});

test('every fault is reported with the name of its setting', () => {
  const { faults } = loadConfig({
    FANFARE_HISTORY: 'chat.*, a=0/5s, b=10/5, c=10/0s, d=99999/1s, e f=1/1s',
    FANFARE_PRESENCE: 'ok.*, not[ok]',
  });
  assert.equal(
    faults.filter((fault) => fault.startsWith('FANFARE_HISTORY: ')).length,
    6,
    faults.join('\n'),
  );
  assert.deepEqual(
    faults.filter((fault) => fault.startsWith('FANFARE_PRESENCE: ')),
    ['FANFARE_PRESENCE: "not[ok]" is not a pattern of room names, as chat.* is'],
  );
});

test('the configuration holds the rules, frozen', () => {
  const { config } = loadConfig({ FANFARE_HISTORY: 'chat.*=100/300s', FANFARE_PRESENCE: 'lobby' });
  assert.deepEqual(config?.history, [{ pattern: 'chat.*', value: { size: 100, ttlMs: 300_000 } }]);
  assert.deepEqual(config?.presence, [{ pattern: 'lobby', value: true }]);
  assert.ok(Object.isFrozen(config?.history));
});
