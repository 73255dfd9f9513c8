// webhook-delivery.test.js: folding and order, with a queue in memory and a fake clock.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sourceOf } from '../../src/webhooks/courier.js';
import { BUSY, courier, FAILED, joined, left, OK } from '../helpers/courier.js';
import { MemoryQueue } from '../helpers/memory-queue.js';

/** @typedef {import('../../src/webhooks/request.js').Result} Result */

test('a transition is sent after the grace, with its sequence and the time of its event', async (t) => {
  const { queue, requests, advance } = courier(t);
  await advance(1000);
  queue.record({ ...joined('u1'), info: { name: 'Ann' }, count: 1 });
  await advance(2900);
  assert.equal(requests.length, 0);
  await advance(1300); // a quiet partition is read once a second
  assert.equal(requests.length, 1);
  const [{ id, type, data }] = requests;
  assert.match(id, /^evt_[\w-]{22}$/);
  assert.equal(type, 'member.joined');
  assert.deepEqual(data, {
    room: 'r',
    user: 'u1',
    info: { name: 'Ann' },
    count: 1,
    sequence: 1,
    epoch: 'e1',
  });
  await advance(2000);
  assert.equal(requests.length, 1, 'a 2xx is the end');
  assert.equal(queue.pending, 0);
});

test('a transition and its opposite within the grace cancel each other', async (t) => {
  const { queue, advance, seen, endpoint } = courier(t);
  for (let i = 0; i < 3; i++) {
    queue.record(left('u1'));
    await advance(1000);
    queue.record(joined('u1'));
    await advance(1000);
  }
  queue.record(left('u2'));
  await advance(6000);
  assert.deepEqual(seen(), ['left u2']);
  assert.equal(endpoint.cancelled, 3);
});

test('of the transitions while an endpoint is down, the net effect of each user arrives', async (t) => {
  let isDown = true;
  const { queue, advance, seen, endpoint } = courier(t, { answer: () => (isDown ? BUSY : OK) });
  queue.record(joined('u0'));
  await advance(10_000); // it is tried, so the endpoint may have heard of it
  for (let i = 0; i < 50; i++)
    for (let user = 0; user < 10; user++) {
      queue.record(i % 2 === 0 ? left(`u${user}`) : joined(`u${user}`));
      if (user === 9) queue.record(left('u9')); // a duplicate of what went before
    }
  await advance(10_000);
  assert.ok(endpoint.waiting.size <= 10, `${endpoint.waiting.size} events for 10 users`);
  isDown = false;
  await advance(60_000);
  assert.equal(endpoint.waiting.size, 0);
  const last = new Map(
    seen().map((line) => /** @type {[string, string]} */ (line.split(' ').reverse())),
  );
  assert.equal(last.get('u0'), 'joined', 'the last one wins, though it is the first again');
  assert.equal(last.get('u9'), 'left');
});

test('after an attempt without an answer, no transition is cancelled or replaced by an older one', async (t) => {
  let isDown = true;
  /** @type {string[]} */
  const heard = [];
  const { queue, advance } = courier(t, {
    answer: ({ type, data }) => {
      if (!isDown) heard.push(`${type.split('.')[1]} ${data.user}`);
      return isDown ? BUSY : OK;
    },
  });
  queue.record(joined('u1'));
  const first = queue.record(joined('u2', 'other'));
  await advance(20_000); // both are tried, so the endpoint may have heard of them
  queue.record(left('u1'));
  queue.record(joined('u1'));
  queue.record(left('u2', 'other'));
  queue.record(first); // recorded twice
  await advance(10_000);
  isDown = false;
  await advance(60_000);
  assert.deepEqual(heard.sort(), ['joined u1', 'left u2']);
});

test('what an endpoint may have heard is not cancelled', async (t) => {
  // The answer to the first request is lost.
  const { queue, advance, seen } = courier(t, {
    answer: (_message, attempt) => (attempt === 1 ? FAILED : OK),
  });
  queue.record(joined('u1'));
  await advance(3500);
  assert.deepEqual(seen(), ['joined u1']);
  queue.record(left('u1'));
  await advance(10_000);
  assert.deepEqual(seen(), ['joined u1', 'left u1']);
});

test('a transition during the request of its opposite is cancelled by the next one only if the request arrives', async (t) => {
  /** @type {(result: Result) => void} */
  let end = () => {};
  const first = new Promise((resolve) => {
    end = resolve;
  });
  const { queue, advance, seen } = courier(t, {
    answer: (_message, attempt) => (attempt === 1 ? first : OK),
  });
  queue.record(joined('u1'));
  await advance(3500);
  queue.record(left('u1'));
  await advance(1000);
  end(OK);
  await advance(500);
  queue.record(joined('u1'));
  await advance(10_000);
  assert.deepEqual(seen(), ['joined u1'], 'left and joined cancel each other');
});

test('a transition that replaces the one under way waits for its answer', async (t) => {
  /** @type {(result: Result) => void} */
  let end = () => {};
  const first = new Promise((resolve) => {
    end = resolve;
  });
  const { queue, advance, seen } = courier(t, {
    answer: (_message, attempt) => (attempt === 1 ? first : OK),
  });
  queue.record(joined('u1'));
  await advance(4500);
  queue.record(left('u1'));
  queue.record(joined('u2'));
  await advance(5000);
  assert.deepEqual(seen(), ['joined u1']);
  end(OK);
  await advance(500);
  assert.deepEqual(seen(), ['joined u1', 'left u1', 'joined u2']);
});

test('a transition that waits while the endpoint reads the state again is not cancelled', async (t) => {
  const { queue, advance, seen } = courier(t, { endpoint: { graceMs: 10_000 } });
  queue.record(joined('u1'));
  queue.record(joined('u2'));
  await advance(12_000);
  queue.record(left('u1'));
  queue.partitions[3].lost = 1;
  await advance(8000);
  assert.deepEqual(seen(), ['joined u1', 'joined u2', 'gap undefined']);
  // The endpoint has read that u1 is not there.
  queue.record(joined('u1'));
  // And this one leaves and returns in the time of the gap.
  queue.record(left('u2'));
  await advance(1000);
  queue.record(joined('u2'));
  await advance(12_000);
  assert.deepEqual(seen().slice(3), ['joined u1', 'joined u2']);
  await advance(40_000);
  queue.record(left('u1'));
  queue.record(joined('u1'));
  await advance(12_000);
  assert.equal(seen().length, 5, 'later transitions cancel each other again');
});

test('a queue that is new, or has lost everything, gives one gap without a number, before all else', async (t) => {
  const queue = new MemoryQueue();
  queue.partitions[0].isUnknown = true;
  const { advance, requests, seen, endpoint } = courier(t, { queue });
  queue.record(joined('u1'));
  await advance(60_000);
  assert.deepEqual(seen(), ['gap undefined', 'joined u1']);
  assert.equal(requests[0].data.dropped, 0);
  assert.equal(endpoint.dropped.lost, 0);
});

test('partitions that are quiet read together, and renew their leases together', async (t) => {
  const queue = new MemoryQueue();
  const connect = queue.connect.bind(queue);
  /** @type {Record<'read'|'renew', number[]>} */
  const times = { read: [], renew: [] };
  queue.connect = () => {
    const calls = connect();
    const { read, renew } = calls;
    calls.read = (...args) => {
      times.read.push(Date.now());
      return read(...args);
    };
    calls.renew = (...args) => {
      times.renew.push(Date.now());
      return renew(...args);
    };
    return calls;
  };
  const { advance } = courier(t, { queue });
  for (let i = 0; i < 40; i++) {
    queue.record(joined('u', `room ${i}`));
    await advance(130 + i);
  }
  await advance(5000);
  times.read = [];
  times.renew = [];
  await advance(20_000);
  assert.equal(times.read.length, 16 * 20);
  assert.equal(times.renew.length, 16 * 8);
  assert.equal(new Set(times.read).size, 20);
  assert.equal(new Set(times.renew).size, 8);
});

test('a room has one request at a time, in the order of its sequence, and other rooms do not wait', async (t) => {
  let slow = 0;
  let most = 0;
  const { queue, requests, advance } = courier(t, {
    answer: async ({ data }) => {
      if (data.room !== 'slow') return OK;
      most = Math.max(most, ++slow);
      await new Promise((resolve) => setTimeout(resolve, 1000));
      slow--;
      return OK;
    },
  });
  for (let i = 1; i <= 5; i++) queue.record(joined(`u${i}`, 'slow'));
  for (let i = 1; i <= 5; i++) queue.record(joined(`u${i}`, 'quick'));
  await advance(4000);
  assert.equal(requests.filter(({ data }) => data.room === 'quick').length, 5);
  await advance(8000);
  const slowOnes = requests.filter(({ data }) => data.room === 'slow');
  assert.deepEqual(
    slowOnes.map(({ data }) => data.sequence),
    [1, 2, 3, 4, 5],
  );
  assert.equal(most, 1);
});

test('no more requests than the concurrency are under way', async (t) => {
  let now = 0;
  let most = 0;
  const { queue, requests, advance } = courier(t, {
    endpoint: { concurrency: 3 },
    answer: async () => {
      most = Math.max(most, ++now);
      await new Promise((resolve) => setTimeout(resolve, 100));
      now--;
      return OK;
    },
  });
  for (let i = 0; i < 40; i++) queue.record(joined('u', `r${i}`));
  await advance(10_000);
  assert.equal(requests.length, 40);
  assert.equal(most, 3);
});

test('an event that was recorded twice is sent once', async (t) => {
  const { queue, advance, seen } = courier(t);
  const event = queue.record(joined('u1'));
  queue.record({ ...event });
  await advance(10_000);
  assert.deepEqual(seen(), ['joined u1']);
});

test('rooms and types that an endpoint does not want are not sent to it', async (t) => {
  const { queue, advance, seen } = courier(t, {
    endpoint: { rooms: ['chat.*'], types: ['member.joined', 'user.connected'] },
  });
  queue.record(joined('u1', 'chat.1'));
  queue.record(left('u2', 'chat.1'));
  queue.record(joined('u3', 'other'));
  queue.record({ type: 'user.connected', user: 'u4' });
  await advance(6000);
  assert.deepEqual(seen().sort(), ['connected u4', 'joined u1']);
});

test('the metrics have the latest size of the queue', async (t) => {
  const { delivery, queue, advance } = courier(t, { endpoint: { graceMs: 60_000 } });
  const source = sourceOf(delivery);
  queue.record(joined('u1'));
  await advance(20_000);
  assert.equal(source.size().pending, 1);
});
