// webhook-handover.test.js: couriers that stop, die or differ in their clocks, and those that take
// over their partitions, with a queue in memory and a fake clock.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LEASE_MS, partitionOf } from '../../src/webhooks/queue.js';
import { BUSY, CRASHED, courier, FAILED, joined, left, message, OK } from '../helpers/courier.js';
import { MemoryQueue } from '../helpers/memory-queue.js';

/** @typedef {import('../helpers/courier.js').Received} Received */

test('a loss that a dead courier had only read is announced by the next one', async (t) => {
  const queue = new MemoryQueue();
  const view = queue.connect();
  queue.partitions[3].lost = 2;
  // It dies before its commit.
  assert.deepEqual(await view.lost(3), { count: 2, upTo: 2 });
  const { requests, advance } = courier(t, { queue });
  await advance(10_000);
  assert.deepEqual(
    requests.map(({ type }) => type),
    ['webhook.gap'],
  );
});

test('a courier that stops hands over what waits, with its attempts', async (t) => {
  const first = courier(t, { answer: () => FAILED });
  const { queue } = first;
  queue.record(joined('u1'));
  queue.record(message('hello'));
  await first.advance(3500);
  assert.equal(first.requests.length, 3, 'the message twice');
  const closed = first.delivery.close();
  await first.advance(2500);
  await closed;
  const second = courier(t, { queue });
  await second.advance(10_000);
  assert.deepEqual(second.seen().sort(), ['joined u1', 'published r']);
  assert.deepEqual(
    new Set(second.requests.map(({ id }) => id)),
    new Set(first.requests.map(({ id }) => id)),
  );
});

test('a courier that takes a partition with a loss sends the gap before the events stored there', async (t) => {
  const first = courier(t, { answer: () => FAILED });
  const { queue } = first;
  queue.record(joined('u1'));
  await first.advance(3500);
  const closed = first.delivery.close();
  await first.advance(2500);
  await closed;
  queue.partitions[partitionOf('r')].lost = 1;
  const second = courier(t, { queue });
  await second.advance(10_000);
  assert.deepEqual(
    second.requests.map(({ type }) => type),
    ['webhook.gap', 'member.joined'],
  );
});

test('events of a room keep their order if the clock was set back between them', async (t) => {
  const first = courier(t, { answer: () => BUSY });
  const { queue } = first;
  const wall = Date.now();
  for (const [i, at] of [wall, wall - 3000, wall + 1000].entries())
    queue.record({ ...message(`m${i}`), at });
  await first.advance(3500);
  const closed = first.delivery.close();
  await first.advance(2500);
  await closed;
  const second = courier(t, { queue });
  await second.advance(40_000);
  assert.deepEqual(
    second.requests.map(({ data }) => data.payload),
    ['m0', 'm1', 'm2'],
  );
});

test('the age of the oldest event is right, whichever partition is taken first', async (t) => {
  const { queue, advance, endpoint } = courier(t, { answer: () => BUSY });
  const rooms = Array.from({ length: 200 }, (_, i) => `r${i}`);
  const [first, last] = [0, 15].map((partition) =>
    rooms.find((room) => partitionOf(room) === partition),
  );
  queue.record(joined('new', first));
  queue.record({ ...joined('old', last), at: Date.now() - 3_600_000 });
  await advance(5000);
  assert.equal(endpoint.waiting.size, 2);
  assert.equal(Math.round(endpoint.waiting.oldestSeconds(Date.now())), 3605);
});

test('an event that has stepped aside stays aside for the next courier, and its schedule goes on', async (t) => {
  const answer = (/** @type {Received} */ { data }) => (data.user === 'poison' ? FAILED : OK);
  const first = courier(t, { answer });
  const { queue } = first;
  queue.record(joined('poison'));
  queue.record(joined('u2'));
  await first.advance(11_000);
  assert.deepEqual(first.seen(), ['joined poison', 'joined poison', 'joined poison', 'joined u2']);
  const closed = first.delivery.close();
  await first.advance(2500);
  await closed;
  const second = courier(t, { queue, answer });
  queue.record(joined('u3'));
  await second.advance(10_000);
  assert.deepEqual(second.seen(), ['joined u3'], 'its room does not wait for it');
  await second.advance(60_000);
  assert.deepEqual(
    second.seen(),
    ['joined u3', 'joined poison'],
    'the fifth attempt is minutes away',
  );
});

for (const stepMs of [-600_000, 600_000])
  test(`a clock that is set by ${stepMs / 60_000} minutes delays, repeats and drops nothing`, async (t) => {
    let setMs = 0;
    const now = () => Date.now() - setMs;
    const first = courier(t, { answer: (_message, n) => (n <= 4 ? FAILED : OK), now });
    const { queue } = first;
    const wall = Date.now;
    t.mock.method(Date, 'now', () => wall() + setMs);
    queue.record(joined('u1'));
    queue.record(joined('u2', 'r2'));
    await first.advance(3500);
    assert.equal(first.requests.length, 2, 'both will be tried again');
    setMs = stepMs;
    await first.advance(2000);
    assert.equal(first.requests.length, 4, 'after a second, and not sooner than the schedule');
    await first.advance(5000);
    assert.deepEqual(first.seen().slice(4).sort(), ['joined u1', 'joined u2']);
    await first.advance(5000);
    assert.equal(first.requests.length, 6);
    assert.deepEqual(Object.values(first.endpoint.dropped), [0, 0, 0, 0, 0]);
  });

test('after a handover between clocks that differ, a retry does not wait for the difference', async (t) => {
  const first = courier(t, { answer: () => FAILED });
  const { queue } = first;
  queue.record(joined('u1'));
  await first.advance(3500);
  assert.equal(first.requests.length, 1);
  const closed = first.delivery.close();
  await first.advance(2500);
  await closed;
  for (const { pending } of queue.partitions)
    for (const [field, text] of pending) {
      const { retryAt, ...stored } = JSON.parse(text);
      pending.set(field, JSON.stringify({ ...stored, retryAt: retryAt + 600_000 }));
    }
  const second = courier(t, { queue });
  await second.advance(5000);
  assert.deepEqual(second.seen(), ['joined u1']);
});

test('a courier that stops waits for the answers under way, and begins nothing', async (t) => {
  const first = courier(t, {
    answer: () => new Promise((resolve) => setTimeout(() => resolve(OK), 1000)),
  });
  const { queue } = first;
  queue.record(joined('u1'));
  queue.record(joined('u2'));
  await first.advance(3600);
  assert.deepEqual(first.seen(), ['joined u1']);
  const closed = first.delivery.close();
  await first.advance(2500);
  await closed;
  const second = courier(t, { queue });
  await second.advance(10_000);
  assert.deepEqual([first.seen(), second.seen()], [['joined u1'], ['joined u2']]);
});

test('a courier that was suspended sends nothing from partitions that another one has taken', async (t) => {
  const first = courier(t);
  const { queue } = first;
  await first.advance(500);
  queue.record(joined('u1'));
  await first.advance(1000); // applied, and not due yet
  for (const partition of queue.partitions) {
    partition.fence++; // as if another one had taken it
    partition.leaseEnd = Date.now() + LEASE_MS;
  }
  await first.advance(8000);
  assert.deepEqual(first.seen(), []);
  for (const partition of queue.partitions) partition.leaseEnd = 0;
  await first.advance(10_000);
  assert.deepEqual(first.seen(), ['joined u1'], 'once it has the partition again');
});

test('while a worker drains, those who left wait for their return, on every server', async (t) => {
  const { queue, delivery, requests, advance, seen } = courier(t);
  await advance(1000);
  queue.record(left('gone'));
  queue.record(left('back'));
  await advance(2000);
  await queue.connect().pauseLeaves(20_000); // another server
  await advance(15_000);
  assert.deepEqual(seen(), []);
  queue.record(joined('back'));
  queue.record(joined('new', 'other'));
  await advance(4500);
  assert.deepEqual(seen(), ['joined new'], 'who came does not wait');
  await advance(2000);
  assert.deepEqual(seen(), ['joined new', 'left gone']);
  assert.ok(requests[1].atMs >= 23_000, `${requests[1].atMs}`);

  delivery.periods.pauseLeaves(10_000); // this one
  queue.record(left('later'));
  await advance(9000);
  assert.equal(requests.length, 2);
  assert.ok((await queue.connect().periods()).leavesMs > 0, 'the others know');
  await advance(3000);
  assert.equal(seen().at(-1), 'left later');
});

for (const seed of [1, 2, 3, 4])
  test(`after random transitions, lost answers and dead couriers, the receiver is right (seed ${seed})`, async (t) => {
    let state = seed;
    // Numerical Recipes: enough for a test, and the same in each run.
    const random = () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state / 2 ** 32;
    };
    const one = (/** @type {number} */ below) => Math.floor(random() * below);
    /** The users of rooms: `r1 u2`. @type {Set<string>} */
    const truth = new Set();
    const model = new Map();
    let isCalm = false;
    const answer = (/** @type {Received} */ { type, data }) => {
      const kind = random();
      // One third is lost: before the receiver has it, or after.
      if (!isCalm && kind < 0.2) return [FAILED, BUSY, CRASHED][Math.floor(15 * kind)];
      const key = `${data.room} ${data.user}`;
      if (data.sequence > (model.get(key)?.sequence ?? 0))
        model.set(key, { sequence: data.sequence, isIn: type === 'member.joined' });
      return !isCalm && kind < 0.33 ? (kind < 0.27 ? FAILED : CRASHED) : OK;
    };
    const queue = new MemoryQueue();
    let current = courier(t, { queue, answer });
    for (let step = 0; step < 400; step++) {
      const [room, user] = [`r${one(4)}`, `u${one(8)}`];
      const key = `${room} ${user}`;
      queue.record(truth.has(key) ? left(user, room) : joined(user, room));
      if (!truth.delete(key)) truth.add(key);
      await current.advance(one(700), 100);
      if (random() < 0.02) {
        // It is killed: nothing is handed over, and its leases end by themselves.
        current.kill();
        current = courier(t, { queue, answer });
      }
    }
    isCalm = true;
    await current.advance(150_000, 250);
    const heard = [...model].filter(([, { isIn }]) => isIn).map(([key]) => key);
    assert.deepEqual(heard.sort(), [...truth].sort());
    assert.equal(queue.pending, 0);
  });

test('a courier that starts during a drain knows of it, and gives stored transitions their grace', async (t) => {
  const first = courier(t);
  const { queue } = first;
  queue.record(left('u1'));
  queue.record(joined('u2', 'other'));
  await first.advance(1000);
  await queue.connect().pauseLeaves(20_000);
  const closed = first.delivery.close();
  await first.advance(100);
  await closed;
  const second = courier(t, { queue });
  queue.record(left('u2', 'other'));
  await second.advance(10_000);
  assert.deepEqual(second.seen(), []);
  queue.record(joined('u1'));
  await second.advance(30_000);
  assert.deepEqual(second.seen(), []);
});

test('stored events of an endpoint that this server does not know stay for a day', async (t) => {
  const queue = new MemoryQueue();
  const body = (/** @type {number} */ at) =>
    JSON.stringify({ event: { ...joined('u'), seq: 1, epoch: 'e', at }, certain: true });
  const nowMs = 1_700_000_000_000;
  queue.partitions[0].pending.set('["new","member","r","u"]', body(nowMs - 1000));
  queue.partitions[0].pending.set('["old","member","r","u"]', body(nowMs - 90_000_000));
  queue.partitions[0].pending.set('not JSON', 'neither');
  const { advance, queue: same } = courier(t, { queue });
  same.record(joined('x'));
  for (let i = 0; i < 40; i++) same.record(joined('x', `r${i}`)); // each partition has a commit
  await advance(10_000);
  assert.deepEqual([...queue.partitions[0].pending.keys()], ['["new","member","r","u"]']);
});
