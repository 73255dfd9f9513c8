// Folding, order, retries, pauses, gaps and lanes, with a queue in memory and a fake clock.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import pino from 'pino';
import { sourceOf } from '../../src/webhooks/courier.js';
import { Delivery } from '../../src/webhooks/delivery.js';
import { LEASE_MS, laneOf } from '../../src/webhooks/queue.js';
import { MemoryQueue } from '../helpers/memory-queue.js';

const OK = Object.freeze({ outcome: 'delivered', error: '', retryAfterMs: null });
const FAILED = Object.freeze({ outcome: 'failed', error: 'status 500', retryAfterMs: null });
const BUSY = Object.freeze({ outcome: 'unavailable', error: 'status 503', retryAfterMs: null });
/** The receiver has crashed, and its proxy says so. */
const CRASHED = Object.freeze({ ...BUSY, error: 'status 502', isSuspect: true });

/** @typedef {import('../../src/webhooks/request.js').Result} Result */
/** @typedef {{id: string, type: string, data: Record<string, any>, atMs: number}} Received */

/** Lets promises settle while the clock stands still. */
async function settle() {
  for (let i = 0; i < 100; i++) await Promise.resolve();
}

/**
 * A courier with a clock that the test turns.
 * @param {import('node:test').TestContext} t
 * @param {object} [options]
 * @param {Partial<import('../../src/config/webhooks.js').Endpoint>} [options.endpoint]
 * @param {(message: Received, attempt: number) => unknown} [options.answer] a Result, or a promise
 * @param {MemoryQueue} [options.queue]
 * @param {() => number} [options.now] ascending, in ms
 */
function courier(
  t,
  { endpoint = {}, answer = () => OK, queue = new MemoryQueue(), now = () => Date.now() } = {},
) {
  if (options.clock !== t) {
    t.mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: 1_700_000_000_000 });
    options.clock = t;
  }
  /** @type {Received[]} */
  const requests = [];
  const settings = {
    name: 'one',
    url: 'http://localhost/',
    secrets: ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'],
    types: /** @type {any} */ ([
      'room.occupied',
      'room.vacated',
      'member.joined',
      'member.left',
      'user.connected',
      'message.published',
    ]),
    rooms: ['*'],
    graceMs: 3000,
    maxAgeS: 86_400,
    maxPending: 10_000,
    timeoutMs: 15_000,
    concurrency: 4,
    pusher: null,
    ...endpoint,
  };
  let isDead = false;
  const connected = queue.connect();
  for (const [name, method] of Object.entries(connected))
    Object.assign(connected, {
      [name]: (/** @type {never[]} */ ...args) =>
        isDead ? new Promise(() => {}) : /** @type {Function} */ (method)(...args),
    });
  const delivery = new Delivery({
    queue: connected,
    endpoints: [settings],
    requester: {
      post: async (_settings, { id, body }) => {
        const { type, data } = JSON.parse(body);
        const message = { id, type, data, atMs: Date.now() - 1_700_000_000_000 };
        requests.push(message);
        return /** @type {Result} */ (await answer(message, requests.length));
      },
    },
    now,
    random: () => 0.5,
    log: pino({ level: 'silent' }),
  });
  delivery.start();
  const one = /** @type {NonNullable<ReturnType<typeof delivery.endpoints.get>>} */ (
    delivery.endpoints.get('one')
  );
  const advance = async (/** @type {number} */ ms, stepMs = 50) => {
    await settle();
    for (let passed = 0; passed < ms; passed += stepMs) {
      t.mock.timers.tick(Math.min(stepMs, ms - passed));
      await settle();
    }
  };
  /** `joined u1` */
  const seen = () =>
    requests.map(({ type, data }) => `${type.split('.')[1]} ${data.user ?? data.room}`);
  /** As SIGKILL: it calls the queue no more. */
  const kill = () => {
    isDead = true;
  };
  return { delivery, endpoint: one, queue, requests, advance, seen, kill };
}
const options = { clock: /** @type {unknown} */ (null) };

/** @param {string} user @param {string} [room] */
const joined = (user, room = 'r') => ({ type: /** @type {const} */ ('member.joined'), room, user });
/** @param {string} user @param {string} [room] */
const left = (user, room = 'r') => ({ type: /** @type {const} */ ('member.left'), room, user });
/** @param {unknown} payload @param {string} [room] */
const message = (payload, room = 'r') => ({
  type: /** @type {const} */ ('message.published'),
  room,
  payload,
});

test('an edge is sent after the grace, with its sequence and the time of its event', async (t) => {
  const { queue, requests, advance } = courier(t);
  await advance(1000);
  queue.record({ ...joined('u1'), info: { name: 'Ann' }, count: 1 });
  await advance(2900);
  assert.equal(requests.length, 0);
  await advance(1300); // a quiet lane is read once a second
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

test('an edge and its opposite within the grace cancel each other', async (t) => {
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

test('of the edges while an endpoint is down, the net effect of each user arrives', async (t) => {
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
  assert.ok(endpoint.pending <= 10, `${endpoint.pending} effects for 10 users`);
  isDown = false;
  await advance(60_000);
  assert.equal(endpoint.pending, 0);
  const last = new Map(
    seen().map((line) => /** @type {[string, string]} */ (line.split(' ').reverse())),
  );
  assert.equal(last.get('u0'), 'joined', 'the last one wins, though it is the first again');
  assert.equal(last.get('u9'), 'left');
});

test('after an attempt without an answer, no edge is cancelled or replaced by an older one', async (t) => {
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

test('a gap that the endpoint refuses steps aside, and the rest follows', async (t) => {
  const { queue, requests, advance } = courier(t, {
    answer: ({ type }) => (type === 'webhook.gap' ? FAILED : OK),
  });
  queue.lanes[laneOf('r')].lost = 7;
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

test('an edge during the request of its opposite is cancelled by the next one only if the request arrives', async (t) => {
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

test('an edge that replaces the one under way waits for its answer', async (t) => {
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

test('retries keep the id, on the schedule, and a poison event steps aside', async (t) => {
  const { queue, requests, advance, endpoint } = courier(t, {
    answer: ({ data }) => (data.user === 'poison' ? FAILED : OK),
  });
  queue.record(joined('poison'));
  queue.record(joined('u2'));
  await advance(4000);
  assert.equal(endpoint.state, 'retrying');
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
  assert.ok(!seen().includes('left poison'), 'it waits for the answer to the edge before it');
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
  assert.equal(endpoint.pending, 0);
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
  assert.equal(endpoint.state, 'paused');
  await advance(19_000);
  assert.equal(requests.length, 1, 'as Retry-After says');
  await advance(12_000);
  const times = requests.map(({ atMs }) => atMs);
  assert.ok(times.length >= 3 && times.length <= 5, `${times}`);
  isDown = false;
  await advance(30_000);
  assert.equal(endpoint.pending, 0);
  assert.equal(endpoint.state, 'ok');
  assert.equal(endpoint.attempts.delivered, 8);
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
  assert.equal(endpoint.state, 'failing');
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
  assert.equal(first.endpoint.state, 'gone');
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
  assert.equal(endpoint.pending, 0);
});

test('entries that the bound of a lane has dropped are announced to every endpoint', async (t) => {
  const { queue, requests, advance, endpoint } = courier(t);
  queue.lanes[laneOf('r')].lost = 7;
  queue.record(joined('u1'));
  await advance(10_000);
  assert.equal(endpoint.dropped.lost, 7);
  assert.deepEqual(
    requests.map(({ type }) => type),
    ['webhook.gap', 'member.joined'],
  );
});

test('a loss is announced once, also in a lane to which nothing comes any more', async (t) => {
  const { queue, requests, advance } = courier(t);
  await advance(10_000);
  queue.lanes[3].lost = 2;
  await advance(10_000);
  queue.lanes[3].lost = 3;
  await advance(10_000);
  assert.deepEqual(
    requests.map(({ type, data }) => [type, data.dropped]),
    [
      ['webhook.gap', 2],
      ['webhook.gap', 1],
    ],
  );
});

test('an edge that waits while the endpoint reads the state again is not cancelled', async (t) => {
  const { queue, advance, seen } = courier(t, { endpoint: { graceMs: 10_000 } });
  queue.record(joined('u1'));
  queue.record(joined('u2'));
  await advance(12_000);
  queue.record(left('u1'));
  queue.lanes[3].lost = 1;
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
  assert.equal(seen().length, 5, 'later edges cancel each other again');
});

test('a loss that a dead courier had only read is announced by the next one', async (t) => {
  const queue = new MemoryQueue();
  const view = queue.connect();
  queue.lanes[3].lost = 2;
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
  for (const { pending } of queue.lanes)
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

test('a courier that was suspended sends nothing from lanes that another one has taken', async (t) => {
  const first = courier(t);
  const { queue } = first;
  await first.advance(500);
  queue.record(joined('u1'));
  await first.advance(1000); // folded, and not due yet
  for (const lane of queue.lanes) {
    lane.fence++; // as if another one had taken it
    lane.leaseEnd = Date.now() + LEASE_MS;
  }
  await first.advance(8000);
  assert.deepEqual(first.seen(), []);
  for (const lane of queue.lanes) lane.leaseEnd = 0;
  await first.advance(10_000);
  assert.deepEqual(first.seen(), ['joined u1'], 'once it has the lane again');
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

test('the metrics have the latest size of the queue', async (t) => {
  const { delivery, queue, advance } = courier(t, { endpoint: { graceMs: 60_000 } });
  const source = sourceOf(delivery);
  queue.record(joined('u1'));
  await advance(20_000);
  assert.equal(source.size().pending, 1);
});

test('an event that was recorded twice is sent once', async (t) => {
  const { queue, advance, seen } = courier(t);
  const event = queue.record(joined('u1'));
  queue.record({ ...event });
  await advance(10_000);
  assert.deepEqual(seen(), ['joined u1']);
});

test('while a worker drains, those who left wait for their return, on every server', async (t) => {
  const { queue, delivery, requests, advance, seen } = courier(t);
  await advance(1000);
  queue.record(left('gone'));
  queue.record(left('back'));
  await advance(2000);
  await queue.connect().hold(20_000); // another server
  await advance(15_000);
  assert.deepEqual(seen(), []);
  queue.record(joined('back'));
  queue.record(joined('new', 'other'));
  await advance(4500);
  assert.deepEqual(seen(), ['joined new'], 'who came is not kept back');
  await advance(2000);
  assert.deepEqual(seen(), ['joined new', 'left gone']);
  assert.ok(requests[1].atMs >= 23_000, `${requests[1].atMs}`);

  delivery.hold(10_000); // this one
  queue.record(left('later'));
  await advance(9000);
  assert.equal(requests.length, 2);
  assert.ok((await queue.connect().held()).leavesMs > 0, 'the others know');
  await advance(3000);
  assert.equal(seen().at(-1), 'left later');
});

for (const seed of [1, 2, 3, 4])
  test(`after random edges, lost answers and dead couriers, the receiver is right (seed ${seed})`, async (t) => {
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
  assert.ok(endpoint.pending <= 10_000, `${endpoint.pending} effects`);
  assert.equal(queue.pending, endpoint.pending);
  assert.equal(endpoint.dropped.overflow, 0);
});

test('a courier that starts during a drain knows of it, and gives stored edges their grace', async (t) => {
  const first = courier(t);
  const { queue } = first;
  queue.record(left('u1'));
  queue.record(joined('u2', 'other'));
  await first.advance(1000);
  await queue.connect().hold(20_000);
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

test('stored effects of an endpoint that this server does not know stay for a day', async (t) => {
  const queue = new MemoryQueue();
  const body = (/** @type {number} */ at) =>
    JSON.stringify({ event: { ...joined('u'), seq: 1, epoch: 'e', at }, certain: true });
  const nowMs = 1_700_000_000_000;
  queue.lanes[0].pending.set('["new","member","r","u"]', body(nowMs - 1000));
  queue.lanes[0].pending.set('["old","member","r","u"]', body(nowMs - 90_000_000));
  queue.lanes[0].pending.set('not JSON', 'neither');
  const { advance, queue: same } = courier(t, { queue });
  same.record(joined('x'));
  for (let i = 0; i < 40; i++) same.record(joined('x', `r${i}`)); // each lane has a commit
  await advance(10_000);
  assert.deepEqual([...queue.lanes[0].pending.keys()], ['["new","member","r","u"]']);
});
