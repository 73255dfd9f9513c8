// redis-broker.test.js: the parts of the Redis broker that need no Redis: messages, order,
// probe, clock.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  BatchReader,
  encodeReference,
  HEAD_BYTES,
  writePublication,
} from '../../src/backend/batch.js';
import { DelayedUnsubscribe } from '../../src/backend/delayed-unsubscribe.js';
import { Inbox } from '../../src/backend/redis/inbox.js';
import { Keys } from '../../src/backend/redis/keys.js';
import { LoopbackProbe } from '../../src/backend/redis/loopback-probe.js';
import { StallAwareClock } from '../../src/backend/redis/stall-aware-clock.js';

/** @param {Buffer[]} publications */
function encode(publications) {
  const message = Buffer.alloc(
    publications.reduce((sum, { length }) => sum + HEAD_BYTES + length, 0),
  );
  let at = 0;
  for (const publication of publications) at = writePublication(message, at, publication);
  return message;
}

const keys = new Keys('p:');

/** @param {string} room */
function channelOf(room) {
  return Buffer.from(keys.channelOf(room));
}

/** @param {Buffer} message */
function split(message) {
  const seen = [];
  const at = [];
  const batch = new BatchReader(message);
  while (batch.next()) {
    seen.push(batch.publication ?? batch.id);
    at.push([batch.offset, batch.epoch]);
  }
  return { isWhole: !batch.isMalformed, seen, at };
}

/** Lets promises that are settled run. */
function turn() {
  return new Promise((resolve) => setImmediate(resolve));
}

test('a message is split into its publications and references', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 50 })), (arrays) => {
      const publications = arrays.map((array) => Buffer.from(array));
      const { isWhole, seen } = split(encode(publications));
      assert.ok(isWhole);
      assert.deepEqual(seen, publications);
    }),
  );
  assert.deepEqual(split(encodeReference('some-id')), {
    isWhole: true,
    seen: ['some-id'],
    at: [[0, '']],
  });
});

/** A position, as lua/publish-history.lua writes it. @param {string} epoch @param {number} offset */
function positionOf(epoch, offset) {
  const position = Buffer.alloc(28);
  position.writeUInt32BE(0x40000018, 0);
  position.write(epoch, 4, 'latin1');
  position.writeBigUInt64BE(BigInt(offset), 20);
  return position;
}

test('after a position, publications and references have consecutive offsets; before it they have no offset', () => {
  const epoch = '0123456789abcdef';
  const first = Number.MAX_SAFE_INTEGER - 5;
  const body = Buffer.concat([
    encode([Buffer.from('a'), Buffer.from('b')]),
    encodeReference(''),
    encode([Buffer.from('c')]),
  ]);
  const whole = split(Buffer.concat([positionOf(epoch, first), body]));
  assert.ok(whole.isWhole);
  assert.deepEqual(whole.seen.map(String), ['a', 'b', '', 'c']);
  assert.deepEqual(
    whole.at,
    [0, 1, 2, 3].map((i) => [first + i, epoch]),
  );
  const plain = split(encode([Buffer.from('a'), Buffer.from('b')]));
  assert.ok(plain.isWhole);
  assert.deepEqual(plain.at, [
    [0, ''],
    [0, ''],
  ]);
  for (let length = 1; length < 28; length++)
    assert.equal(split(positionOf(epoch, 1).subarray(0, length)).isWhole, false);
});

test('publications that wait for a body keep their offsets', async () => {
  /** @type {unknown[]} */
  const delivered = [];
  /** @type {(body: Buffer|null) => void} */
  let fetched = () => {};
  const inbox = new Inbox({
    keys,
    deliver: (_room, publication, offset, epoch) =>
      delivered.push([`${publication}`, offset, epoch]),
    fetch: (_room, id, offset, epoch) => {
      assert.deepEqual([id, offset, epoch], ['', 7, 'fedcba9876543210']);
      return new Promise((resolve) => {
        fetched = resolve;
      });
    },
    onSkipped: (reason) => assert.fail(reason),
    onMalformed: (channel) => assert.fail(channel),
    onUnknown: (room) => assert.fail(room),
  });
  inbox.receive(
    channelOf('room'),
    Buffer.concat([positionOf('fedcba9876543210', 7), encodeReference('')]),
  );
  inbox.receive(
    channelOf('room'),
    Buffer.concat([positionOf('fedcba9876543210', 8), encode([Buffer.from('b')])]),
  );
  await turn();
  fetched(Buffer.from('a'));
  await turn();
  assert.deepEqual(delivered, [
    ['a', 7, 'fedcba9876543210'],
    ['b', 8, 'fedcba9876543210'],
  ]);
});

/**
 * Forged on purpose: each is refused from the fault on, and nothing throws.
 * @type {Record<string, Buffer>}
 */
const FORGED = {
  'an epoch that is not hexadecimal': positionOf('0123456789ABCDE"', 1),
  'an offset of 0': positionOf('0123456789abcdef', 0),
  'an offset beyond the safe integers': positionOf('0123456789abcdef', 2 ** 53),
  'a reference longer than any': encodeReference('x'.repeat(65)),
  'a length beyond the end': Buffer.from('3fffffff', 'hex'),
  'a reference beyond the end': Buffer.from('ffffffff61', 'hex'),
  'a position of another length': Buffer.from('40000001', 'hex'),
};

for (const [name, message] of Object.entries(FORGED)) {
  test(`a message with ${name} is malformed, and earlier publications are delivered`, () => {
    /** @type {string[]} */
    const delivered = [];
    /** @type {string[]} */
    const malformed = [];
    const inbox = new Inbox({
      keys,
      deliver: (_room, publication) => delivered.push(`${publication}`),
      fetch: () => Promise.resolve(assert.fail('nothing is to be fetched')),
      onSkipped: (reason) => assert.fail(reason),
      onMalformed: (channel) => malformed.push(channel),
      onUnknown: (room) => assert.fail(room),
    });
    inbox.receive(
      channelOf('a'),
      Buffer.concat([encode([Buffer.from('before')]), message, encode([Buffer.from('behind')])]),
    );
    assert.deepEqual(delivered, ['before']);
    assert.deepEqual(malformed, ['room a']);
  });
}

test('a reader stops at a version that it does not know', () => {
  const known = encode([Buffer.from('known')]);
  for (const version of [1, 3, 0xffff]) {
    const item = Buffer.alloc(4);
    item.writeUInt32BE(0xc0000000 + version);
    const batch = new BatchReader(Buffer.concat([known, item, known]));
    assert.equal(batch.next(), true);
    assert.equal(batch.next(), false);
    assert.equal(batch.unknownVersion, version);
    assert.equal(batch.isMalformed, false);
  }
  const beyond = new BatchReader(Buffer.from('c0010000', 'hex'));
  assert.deepEqual([beyond.next(), beyond.isMalformed, beyond.unknownVersion], [false, true, 0]);
});

test('a message of another program is reported, and never read past its end', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (array) => {
      const { seen } = split(Buffer.from(array));
      assert.ok(seen.reduce((sum, { length }) => sum + length, 0) <= array.length);
    }),
  );
  assert.equal(split(Buffer.from('hello')).isWhole, false);
  assert.equal(split(encode([Buffer.from('whole')]).subarray(0, -1)).isWhole, false);
});

test('a room waits for a body, other rooms do not, and a body that never comes is skipped', async () => {
  /** @type {string[]} */
  const delivered = [];
  /** @type {Map<string, (body: Buffer|null) => void>} */
  const asked = new Map();
  /** @type {string[]} */
  const skipped = [];
  const inbox = new Inbox({
    keys,
    deliver: (room, publication) => delivered.push(`${room} ${publication}`),
    fetch: (_room, id) => new Promise((resolve) => asked.set(id, resolve)),
    onSkipped: (reason) => skipped.push(reason),
    onMalformed: (channel) => assert.fail(channel),
    onUnknown: (room) => assert.fail(room),
  });
  inbox.receive(channelOf('a'), encode([Buffer.from('1')]));
  inbox.receive(channelOf('a'), encodeReference('x'));
  inbox.receive(channelOf('a'), encode([Buffer.from('3')]));
  inbox.receive(channelOf('a'), encodeReference('y'));
  inbox.receive(channelOf('a'), encode([Buffer.from('5')]));
  inbox.receive(channelOf('b'), encode([Buffer.from('1')]));
  assert.deepEqual(delivered, ['a 1', 'b 1']);
  await turn();
  asked.get('y')?.(null);
  await turn();
  assert.deepEqual(delivered, ['a 1', 'b 1']);
  asked.get('x')?.(Buffer.from('2'));
  await turn();
  assert.deepEqual(delivered, ['a 1', 'b 1', 'a 2', 'a 3', 'a 5']);
  assert.equal(skipped.length, 1);
  assert.equal(inbox.heldBytes, 0);
  assert.equal(inbox.held.size, 0);
  inbox.receive(channelOf('a'), encode([Buffer.from('6')]));
  assert.equal(delivered.at(-1), 'a 6');
});

test('bodies are fetched a few at a time, and delivered in order', async () => {
  /** @type {string[]} */
  const delivered = [];
  /** @type {{id: string, resolve: (body: Buffer) => void}[]} */
  const asked = [];
  const inbox = new Inbox({
    keys,
    deliver: (_room, publication) => delivered.push(`${publication}`),
    fetch: (_room, id) => new Promise((resolve) => asked.push({ id, resolve })),
    onSkipped: (reason) => assert.fail(reason),
    onMalformed: (channel) => assert.fail(channel),
    onUnknown: (room) => assert.fail(room),
  });
  const ids = Array.from({ length: 100 }, (_, i) => `${i}`);
  for (const id of ids) inbox.receive(channelOf('room'), encodeReference(id));
  let answered = 0;
  while (answered < ids.length) {
    await turn();
    assert.ok(asked.length <= 16);
    const { id, resolve } = /** @type {typeof asked[number]} */ (asked.pop());
    resolve(Buffer.from(id));
    answered++;
  }
  await turn();
  assert.deepEqual(delivered, ids);
});

/**
 * @param {(token: Buffer) => Promise<void>} publish @param {() => Promise<unknown>} [ping]
 * @param {number} [intervalMs]
 */
function probeOf(publish, ping = () => Promise.resolve(), intervalMs = 1500) {
  /** @type {string[]} */
  const seen = [];
  const probe = new LoopbackProbe({
    publish,
    ping,
    intervalMs: () => intervalMs,
    onRoundTrip: () => seen.push('round trip'),
    onAnswer: (isWholeBus) => seen.push(isWholeBus ? 'bus' : 'ping'),
    onMiss: () => seen.push('miss'),
    onDead: (hasAnswered) => seen.push(hasAnswered ? 'dead' : 'dead from the start'),
    onRefused: () => seen.push('refused'),
  });
  return { probe, seen };
}

test('two consecutive misses are a dead subscriber, within 5 s', () => {
  const { probe, seen } = probeOf(async () => {});
  let now = 0;
  probe.start(now);
  probe.receive(Buffer.from([0, 0, 0, 1]));
  while (!seen.includes('dead')) {
    now += 50;
    probe.tick(now);
  }
  assert.ok(now <= 4700, `${now}`);
  assert.deepEqual(seen, ['round trip', 'bus', 'miss', 'miss', 'dead']);
});

test('a subscriber that never carried a probe is reported separately', () => {
  const { probe, seen } = probeOf(async () => {});
  probe.start(0);
  probe.receive(Buffer.from([0, 0, 0, 1]));
  probe.start(100);
  for (let now = 100; !seen.includes('dead from the start'); now += 50) probe.tick(now);
  assert.deepEqual(seen, ['round trip', 'bus', 'miss', 'miss', 'dead from the start']);
});

test('a probe that is lost at rest is repeated at once, not after the longer interval', () => {
  const { probe, seen } = probeOf(async () => {}, undefined, 2950);
  probe.start(0);
  probe.receive(Buffer.from([0, 0, 0, 1]));
  probe.tick(2900);
  assert.equal(probe.token, 0);
  probe.tick(2950);
  assert.equal(probe.token, 2);
  assert.equal(probe.dueMs, 2950 + 1500);
  probe.tick(probe.dueMs);
  assert.equal(probe.token, 3);
  probe.tick(probe.dueMs);
  assert.deepEqual(seen, ['round trip', 'bus', 'miss', 'miss', 'dead']);
});

test('a probe published over a lost connection proves nothing, and its miss counts', () => {
  const { probe, seen } = probeOf(async () => {});
  probe.restart(0);
  assert.equal(probe.token, 0, 'not before the start');
  probe.start(0);
  probe.tick(1500);
  probe.restart(1600);
  probe.receive(Buffer.from([0, 0, 0, 1]));
  probe.receive(Buffer.from([0, 0, 0, 2]));
  assert.deepEqual(seen, ['miss']);
  probe.tick(3100);
  assert.deepEqual(seen, ['miss', 'miss', 'dead from the start']);
});

test('one miss is tolerated, and a late answer counts as a miss', () => {
  const { probe, seen } = probeOf(async () => {});
  probe.start(0);
  probe.tick(1500);
  probe.receive(Buffer.from([0, 0, 0, 1]));
  probe.receive(Buffer.from([0, 0, 0, 2]));
  probe.tick(3000);
  probe.tick(4500);
  assert.deepEqual(seen, ['miss', 'round trip', 'bus', 'miss']);
});

test('if publishing is refused, the probe asks the subscriber itself', async () => {
  const { probe, seen } = probeOf(() =>
    Promise.reject(Object.assign(new Error('no'), { code: 'UNAVAILABLE' })),
  );
  for (let i = 0; i < 5; i++) {
    if (i === 0) probe.start(0);
    else probe.tick(i * 1500);
    await turn();
  }
  assert.deepEqual(seen, Array(5).fill(['refused', 'ping']).flat());
});

test('the live clock does not count a stall, and lets the event loop turn after one', async (t) => {
  let ticks = 0;
  const clock = new StallAwareClock({ tickMs: 10 }, () => {
    ticks++;
    return 0;
  });
  clock.start();
  t.after(() => clock.close());
  await new Promise((resolve) => setTimeout(resolve, 50));
  const [nowMs, before] = [clock.nowMs, ticks];
  const end = performance.now() + 1200;
  while (performance.now() < end) {
    // Nothing else runs.
  }
  // The timer that is due, and nothing after it.
  await new Promise((resolve) => setTimeout(resolve, 0));
  assert.ok(clock.nowMs - nowMs <= 520, `${clock.nowMs - nowMs}`);
  assert.ok(ticks - before <= 1);
});

test('the live clock rests until something is due, and is exact in its rest', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let monotonicMs = 1000;
  t.mock.method(performance, 'now', () => monotonicMs);
  const pass = (/** @type {number} */ ms) => {
    for (let i = 0; i < ms; i += 10) {
      monotonicMs += 10;
      t.mock.timers.tick(10);
    }
  };
  /** @type {number[]} */
  const ticks = [];
  let dueMs = 700;
  const clock = new StallAwareClock({ tickMs: 50 }, (nowMs) => {
    ticks.push(nowMs);
    return dueMs;
  });
  clock.start();
  t.after(() => clock.close());
  pass(400);
  assert.deepEqual(ticks, [50]);
  assert.equal(clock.nowMs, 400);
  pass(400);
  assert.deepEqual(ticks, [50, 800], 'the remainder of the rest, and some time for a beat');
  dueMs = Number.POSITIVE_INFINITY;
  pass(50); // a tick in 50 ms, because 700 was over
  assert.deepEqual(ticks, [50, 800, 850]);
  clock.hurry();
  assert.equal(clock.nowMs, 850);
  pass(50);
  assert.deepEqual(ticks, [50, 800, 850, 900]);
  pass(1100);
  assert.deepEqual(ticks, [50, 800, 850, 900, 2000], 'the longest rest');
});

test('the live clock ticks with the beats of the worker, and not beside them', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let monotonicMs = 1000;
  t.mock.method(performance, 'now', () => monotonicMs);
  /** @type {number[]} */
  const ticks = [];
  const clock = new StallAwareClock({ tickMs: 50, restMs: 1050 }, (nowMs) => {
    ticks.push(nowMs);
    return 1950;
  });
  clock.beat();
  assert.deepEqual(ticks, [], 'it has not started');
  clock.start();
  for (let ms = 10; ms <= 2000; ms += 10) {
    monotonicMs += 10;
    t.mock.timers.tick(10);
    if (ms % 1000 === 100) clock.beat();
  }
  assert.deepEqual(ticks, [50, 100, 1100]);
  monotonicMs += 100;
  clock.beat();
  assert.deepEqual(ticks, [50, 100, 1100, 2100]);
  clock.close();
  clock.beat();
  t.mock.timers.tick(5000);
  assert.deepEqual(ticks, [50, 100, 1100, 2100]);
});

test('the live clock never goes back, if it is read first after a stall in its rest', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let monotonicMs = 1000;
  t.mock.method(performance, 'now', () => monotonicMs);
  /** @type {number[]} */
  const ticks = [];
  const clock = new StallAwareClock({ tickMs: 50 }, (nowMs) => {
    ticks.push(nowMs);
    return nowMs + 500;
  });
  clock.start();
  t.after(() => clock.close());
  monotonicMs += 50;
  t.mock.timers.tick(50);
  monotonicMs += 499;
  t.mock.timers.tick(499);
  monotonicMs += 10_000; // the process is stopped; then a message is published, before the tick
  const readMs = clock.nowMs;
  assert.equal(readMs, 50 + 600 + 450);
  t.mock.timers.tick(1);
  assert.deepEqual(ticks, [50], 'the event loop reads the answers first');
  monotonicMs += 50;
  t.mock.timers.tick(49);
  assert.deepEqual(ticks, [50, readMs + 50]);
});

test('rooms linger for their time each, in order', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  /** @type {string[][]} */
  const over = [];
  const linger = new DelayedUnsubscribe(100, (rooms) => over.push(rooms));
  /** @param {number} ms */
  const pass = (ms) => {
    nowMs += ms;
    t.mock.timers.tick(ms);
  };
  linger.add('a');
  pass(50);
  linger.add('b');
  linger.add('c');
  assert.equal(linger.delete('c'), true);
  pass(50);
  assert.deepEqual(over, [['a']]);
  linger.add('d');
  pass(50);
  assert.deepEqual(over, [['a'], ['b']]);
  assert.deepEqual(linger.forgetRooms(), ['d']);
  pass(500);
  assert.equal(over.length, 2);
});
