// webhook-retries.test.js: retries, pauses, bounds and gaps, with a queue in memory and a fake clock.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LEASE_MS, partitionOf } from '../../src/webhooks/queue.js';
import { BUSY, CRASHED, courier, FAILED, joined, left, message, OK } from '../helpers/courier.js';
import { MemoryQueue } from '../helpers/memory-queue.js';

test('retries keep the id, on the schedule, and a poison event steps aside', async (t) => {
  const { queue, requests, advance, endpoint } = courier(t, {
    answer: ({ data }) => (data.user === 'poison' ? FAILED : OK),
  });
  queue.record(joined('poison'));
  queue.record(joined('u2'));
  await advance(4000);
  assert.equal(endpoint.health.state, 'retrying');
  await advance(41_000);
  const poison = requests.filter(({ data }) => data.user === 'poison');
  assert.equal(new Set(poison.map(({ id }) => id)).size, 1);
  const pauses = poison.slice(1).map(({ atMs }, i) => Math.round((atMs - poison[i].atMs) / 1000));
  assert.deepEqual(pauses, [1, 5, 30]);
  const other = requests.find(({ data }) => data.user === 'u2');
  assert.ok(other && other.atMs >= poison[2].atMs, 'the room waits for three attempts');
  assert.ok(other.atMs < poison[3].atMs, 'and not longer');
});

test('beside a poison event sequences ascend; it comes later with its own, and the order of its user holds', async (t) => {
  let isPoison = true;
  /** @type {(result: object) => void} */
  let end = () => {};
  const { queue, requests, advance, seen } = courier(t, {
    answer: ({ data }) => {
      if (data.user !== 'poison' || !isPoison) return OK;
      if (requests.filter((one) => one.data.user === 'poison').length <= 3) return FAILED;
      return new Promise((resolve) => {
        end = resolve;
      });
    },
  });
  queue.record(joined('poison'));
  for (const user of ['u2', 'u3', 'u4']) queue.record(joined(user));
  await advance(45_000);
  const others = requests.filter(({ data }) => data.user !== 'poison');
  assert.deepEqual(
    others.map(({ data }) => data.sequence),
    [2, 3, 4],
  );
  assert.equal(requests.at(-1)?.data.sequence, 1, 'under way, after those with a higher number');
  queue.record(left('poison'));
  queue.record(joined('u5'));
  await advance(10_000);
  assert.equal(seen().at(-1), 'joined u5');
  assert.ok(!seen().includes('left poison'), 'it waits for the answer to the transition before it');
  isPoison = false;
  end(OK);
  await advance(10_000);
  assert.deepEqual(
    requests.slice(-1).map(({ type, data }) => [type, data.user, data.sequence]),
    [['member.left', 'poison', 5]],
  );
  assert.equal(queue.pending, 0);
});

test('an event at which the receiver crashes steps aside, and delays other rooms by seconds', async (t) => {
  const { queue, requests, advance, seen } = courier(t, {
    answer: ({ data }) => (data.user === 'poison' ? CRASHED : OK),
  });
  queue.record(joined('poison'));
  queue.record(joined('u2'));
  for (let i = 0; i < 20; i++) queue.record(joined('u', `r${i}`));
  await advance(30_000);
  assert.ok(seen().includes('joined u2'), 'its room goes on');
  assert.equal(requests.filter(({ data }) => data.user === 'u').length, 20);
  await advance(300_000, 500);
  const poison = requests.filter(({ data }) => data.user === 'poison');
  assert.ok(poison.length >= 4 && poison.length <= 8, `${poison.length} attempts`);
  // A later event meets an endpoint that takes it at once.
  const before = Date.now();
  queue.record(joined('u3'));
  await advance(6000);
  assert.equal(seen().at(-1), 'joined u3');
  assert.ok(requests[requests.length - 1].atMs + 1_700_000_000_000 - before <= 5000);
});

test('the same if its room is the only one', async (t) => {
  const { queue, advance, seen } = courier(t, {
    answer: ({ data }) => (data.user === 'poison' ? CRASHED : OK),
  });
  queue.record(joined('poison'));
  for (const user of ['u2', 'u3']) queue.record(joined(user));
  await advance(30_000);
  assert.deepEqual(
    seen().filter((line) => line !== 'joined poison'),
    ['joined u2', 'joined u3'],
  );
});

test('after an outage behind a proxy all events come within the longest pause, a room in order', async (t) => {
  let isDown = true;
  const { queue, requests, advance, endpoint } = courier(t, {
    answer: () => (isDown ? CRASHED : OK),
    endpoint: { concurrency: 1 },
  });
  for (let i = 0; i < 10; i++)
    for (let room = 0; room < 10; room++) queue.record(joined(`u${i}`, `r${room}`));
  await advance(600_000, 500);
  const before = requests.length;
  assert.ok(before < 30, `${before} requests to an endpoint that is down`);
  isDown = false;
  await advance(40_000, 500);
  assert.equal(endpoint.waiting.size, 0);
  const attempts = new Map();
  for (const { id } of requests) attempts.set(id, (attempts.get(id) ?? 0) + 1);
  for (let room = 0; room < 10; room++) {
    const sequences = requests
      .slice(before)
      .filter(({ id, data }) => data.room === `r${room}` && attempts.get(id) <= 3)
      .map(({ data }) => data.sequence);
    assert.deepEqual(
      sequences,
      [...sequences].sort((a, b) => a - b),
    );
  }
});

test('429, 502 to 504 and an unreachable endpoint pause the endpoint, and then one request tries', async (t) => {
  let isDown = true;
  const { queue, requests, advance, endpoint } = courier(t, {
    answer: (_message, attempt) =>
      attempt === 1 ? { ...BUSY, retryAfterMs: 20_000 } : isDown ? BUSY : OK,
    endpoint: { concurrency: 1 },
  });
  for (let i = 0; i < 8; i++) queue.record(joined('u', `r${i}`));
  await advance(4000);
  assert.equal(requests.length, 1);
  assert.equal(endpoint.health.state, 'paused');
  await advance(19_000);
  assert.equal(requests.length, 1, 'as Retry-After says');
  await advance(12_000);
  const times = requests.map(({ atMs }) => atMs);
  assert.ok(times.length >= 3 && times.length <= 5, `${times}`);
  isDown = false;
  await advance(30_000);
  assert.equal(endpoint.waiting.size, 0);
  assert.equal(endpoint.health.state, 'ok');
  assert.equal(endpoint.health.attempts.delivered, 8);
});

test('an endpoint that asks for no pause at all gets one', async (t) => {
  const { queue, requests, advance } = courier(t, {
    answer: () => ({ ...BUSY, retryAfterMs: 0 }),
  });
  queue.record(joined('u'));
  await advance(8000);
  assert.ok(requests.length >= 4 && requests.length <= 7, `${requests.length}`);
});

test('after 20 failures in a row there is one request in 30 s', async (t) => {
  const { queue, requests, advance, endpoint } = courier(t, { answer: () => FAILED });
  for (let i = 0; i < 30; i++) queue.record(joined('u', `r${i}`));
  await advance(5000);
  assert.equal(endpoint.health.state, 'failing');
  const before = requests.length;
  assert.ok(before >= 20 && before < 24, `${before}`);
  await advance(90_000, 500);
  assert.ok(requests.length - before <= 3, `${requests.length - before}`);
});

test('410 ends an endpoint: nothing more is sent, what is dropped is counted, and a gap after a reload says so', async (t) => {
  const queue = new MemoryQueue();
  const GONE = { outcome: 'gone', error: 'status 410', retryAfterMs: null };
  const first = courier(t, { queue, answer: () => GONE, endpoint: { concurrency: 1 } });
  for (let i = 0; i < 5; i++) queue.record(joined('u', `r${i}`));
  await first.advance(5000);
  queue.record(joined('u', 'later'));
  queue.record(left('u', 'r1'));
  await first.advance(10_000);
  assert.equal(first.requests.length, 1);
  assert.equal(first.endpoint.health.state, 'gone');
  assert.equal(first.endpoint.dropped.gone, 7);
  await first.delivery.close();

  // Nobody has mended it: it is still gone, and the gaps still wait.
  const second = courier(t, { queue, answer: () => GONE, endpoint: { concurrency: 1 } });
  await second.advance(5000);
  assert.deepEqual(
    second.requests.map(({ type }) => type),
    ['webhook.gap'],
  );
  await second.delivery.close();

  const { requests, advance } = courier(t, { queue });
  await advance(5000);
  assert.ok(requests.length > 0 && requests.every(({ type }) => type === 'webhook.gap'));
  const dropped = requests.reduce((sum, { data }) => sum + data.dropped, 0);
  assert.equal(dropped, 7);
  queue.record(joined('u', 'r1'));
  await advance(5000);
  assert.equal(requests.at(-1)?.type, 'member.joined');
  assert.equal(queue.pending, 0);
});

test('several requests that are answered with 410 are one line of the log', async (t) => {
  const { queue, requests, advance, endpoint } = courier(t, {
    answer: () => ({ outcome: 'gone', error: 'status 410', retryAfterMs: null }),
  });
  const logged = t.mock.method(endpoint.health.log, 'error');
  for (let i = 0; i < 4; i++) queue.record(joined('u', `r${i}`));
  await advance(5000);
  assert.equal(requests.length, 4);
  assert.equal(logged.mock.callCount(), 1);
  assert.equal(endpoint.dropped.gone, 4);
});

test('published messages are bounded: the oldest ones are dropped, and a gap is announced first', async (t) => {
  let isDown = true;
  const { queue, requests, advance, endpoint, seen } = courier(t, {
    answer: () => (isDown ? BUSY : OK),
    endpoint: { maxPending: 5, concurrency: 1 },
  });
  for (let i = 1; i <= 20; i++) queue.record(message(i));
  await advance(500);
  assert.equal(endpoint.dropped.overflow, 15);
  assert.ok(queue.pending <= 6);
  isDown = false;
  const before = requests.length;
  await advance(60_000);
  const [gap, ...rest] = requests.slice(before);
  assert.equal(gap.type, 'webhook.gap');
  assert.equal(gap.data.dropped, 15);
  assert.match(gap.data.since, /^2023-11-14T/);
  assert.deepEqual(rest.map(({ data }) => data.payload).slice(-4), [17, 18, 19, 20]);
  assert.equal(seen().length, requests.length);
});

test('an event that is too old is dropped, counted and announced', async (t) => {
  let isDown = true;
  const { queue, requests, advance, endpoint } = courier(t, {
    answer: () => (isDown ? BUSY : OK),
    endpoint: { maxAgeS: 60 },
  });
  queue.record(joined('u1'));
  await advance(70_000, 200);
  isDown = false;
  await advance(60_000, 200);
  assert.equal(endpoint.dropped.expired, 1);
  assert.equal(requests.at(-1)?.type, 'webhook.gap');
  assert.equal(endpoint.waiting.size, 0);
});

test('entries that the bound of a partition has dropped are announced to every endpoint', async (t) => {
  const { queue, requests, advance, endpoint } = courier(t);
  queue.partitions[partitionOf('r')].lost = 7;
  queue.record(joined('u1'));
  await advance(10_000);
  assert.equal(endpoint.dropped.lost, 7);
  assert.deepEqual(
    requests.map(({ type }) => type),
    ['webhook.gap', 'member.joined'],
  );
});

test('a loss is announced once, also in a partition to which nothing comes any more', async (t) => {
  const { queue, requests, advance } = courier(t);
  await advance(10_000);
  queue.partitions[3].lost = 2;
  await advance(10_000);
  queue.partitions[3].lost = 3;
  await advance(10_000);
  assert.deepEqual(
    requests.map(({ type, data }) => [type, data.dropped]),
    [
      ['webhook.gap', 2],
      ['webhook.gap', 1],
    ],
  );
});

test('a gap that the endpoint refuses steps aside, and the rest follows', async (t) => {
  const { queue, requests, advance } = courier(t, {
    answer: ({ type }) => (type === 'webhook.gap' ? FAILED : OK),
  });
  queue.partitions[partitionOf('r')].lost = 7;
  queue.record(message('hello'));
  await advance(10_000);
  assert.deepEqual(
    requests.map(({ type }) => type),
    ['webhook.gap', 'webhook.gap', 'webhook.gap', 'message.published'],
  );
});

test('without a lease nothing is sent, also if the queue is unreachable', async (t) => {
  const { queue, requests, advance } = courier(t, { answer: () => BUSY });
  queue.record(joined('u1'));
  await advance(4200);
  const before = requests.length;
  queue.isDown = true;
  await advance(60_000);
  const last = requests.at(-1);
  assert.ok(last && last.atMs < 4200 + LEASE_MS, `a request at ${last?.atMs} ms`);
  queue.isDown = false;
  await advance(40_000);
  assert.ok(requests.length > before);
});

test('while the queue is unreachable nothing is lost or sent twice', async (t) => {
  const { queue, advance, seen } = courier(t);
  queue.record(joined('u1'));
  await advance(2000);
  queue.isDown = true;
  await advance(5000);
  assert.deepEqual(seen(), []);
  queue.isDown = false;
  queue.record(joined('u2'));
  await advance(10_000);
  assert.deepEqual(seen(), ['joined u1', 'joined u2']);
  assert.equal(queue.pending, 0);
});

test('a partition whose commits fail is logged and counted, while the other partitions succeed', async (t) => {
  const { delivery, queue, advance, seen } = courier(t);
  const rooms = Array.from({ length: 100 }, (_, i) => `r${i}`);
  const [bad, good] = [3, 4].map((partition) =>
    rooms.find((room) => partitionOf(room) === partition),
  );
  const { commit } = delivery.queue;
  let isRefused = true;
  t.mock.method(
    delivery.queue,
    'commit',
    async (/** @type {Parameters<typeof commit>} */ ...args) => {
      if (isRefused && args[0] === 3) throw new Error('refused');
      return commit(...args);
    },
  );
  /** @type {unknown[]} */
  const lines = [];
  const add = (/** @type {unknown} */ fields) => lines.push(fields);
  t.mock.method(delivery.log, 'warn', add);
  t.mock.method(delivery.log, 'info', add);
  queue.record(joined('ann', bad));
  queue.record(joined('bob', good));
  await advance(30_000);
  assert.deepEqual(seen(), ['joined bob']);
  assert.deepEqual(lines, [{ partition: 3, why: 'refused', unsaid: 0 }]);
  assert.ok(delivery.size.failures > 10, `${delivery.size.failures} failures`);
  isRefused = false;
  await advance(5000);
  assert.deepEqual(seen(), ['joined bob', 'joined ann']);
  assert.deepEqual(lines.slice(1), ['webhooks: the queue is available again']);
});

test('a courier that loses all its partitions says so once', async (t) => {
  const { delivery, advance } = courier(t);
  await advance(2000);
  /** @type {unknown[]} */
  const lines = [];
  t.mock.method(delivery.log, 'warn', (/** @type {unknown} */ fields) => lines.push(fields));
  t.mock.method(delivery.queue, 'renew', async () => false);
  await advance(5000);
  const why = 'another courier has taken it over, or Redis lost its data';
  assert.deepEqual(lines, [{ partition: 0, why, unsaid: 0 }]);
});

test('an endpoint that is down while 10,000 users come and go costs one effect for each', async (t) => {
  const { queue, advance, endpoint } = courier(t, { answer: () => BUSY });
  const isIn = new Set();
  for (let step = 0; step < 60_000; step++) {
    const user = `u${(step * 7919) % 10_000}`;
    queue.record(isIn.has(user) ? left(user, `r${step % 50}`) : joined(user, `r${step % 50}`));
    if (!isIn.delete(user)) isIn.add(user);
    if (step % 6000 === 5999) await advance(20_000, 1000);
  }
  await advance(60_000, 1000);
  assert.ok(endpoint.waiting.size <= 10_000, `${endpoint.waiting.size} events`);
  assert.equal(queue.pending, endpoint.waiting.size);
  assert.equal(endpoint.dropped.overflow, 0);
});
