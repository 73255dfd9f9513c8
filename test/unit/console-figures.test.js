// The figures of the console's page, which have no browser in them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FleetFigures } from '../../src/console/fleet-figures.js';
import { Outages } from '../../src/console/outages.js';
import { countRooms } from '../../src/worker/operator.js';

// The page has the types of browsers, and these tests those of Node.
const page = new URL('../../src/console/page/', import.meta.url);
const { inSpans } = await import(String(new URL('samples.js', page)));

/** @param {object} fields */
const worker = (fields) => ({
  server: 'web-1',
  version: '1',
  slot: 0,
  pid: 1,
  state: 'ready',
  connections: 0,
  rooms: 0,
  lagMs: 0,
  memoryBytes: 1,
  uptimeS: 1000,
  messages: 0,
  deliveries: 0,
  refused: 0,
  errors: 0,
  ...fields,
});

/** @param {...number} states of `fanfare_broker_up`, by worker */
const workers = (...states) => states.map((state) => new Map([['fanfare_broker_up', state]]));

test('an outage begins with the first worker without the broker and ends with the last', () => {
  /** @type {unknown[]} */
  const changes = [];
  const outages = new Outages((...change) => changes.push(change));
  outages.addSample(1000, workers(1, 1));
  outages.addSample(4000, workers(1, 0));
  assert.deepEqual(outages.state, { sinceMs: 4000, without: 1, workers: 2 });
  outages.addSample(7000, workers(0, 0));
  assert.deepEqual(outages.state, { sinceMs: 4000, without: 2, workers: 2 });
  outages.addSample(10_000, workers(1, 0));
  outages.addSample(13_000, workers(1, 1));
  assert.deepEqual(outages.state, { sinceMs: null, without: 0, workers: 2 });
  assert.deepEqual(changes, [
    [4000, 'outage', 0],
    [13_000, 'back', 9000],
  ]);
});

test('a sample that no worker has answered changes nothing', () => {
  const outages = new Outages(() => {});
  outages.addSample(1000, workers(0));
  outages.addSample(4000, []);
  outages.addSample(7000, [new Map()]);
  assert.deepEqual(outages.state, { sinceMs: 1000, without: 1, workers: 1 });
});

test('events are counted in spans of the clock', () => {
  const lines = [{ chart: 'errors', name: 'A', values: [1, null, 2, null, 4] }];
  const figures = inSpans([29_000, 32_000, 35_000, 62_000, 65_000], lines, 30_000);
  assert.deepEqual(figures.times, [0, 30_000, 60_000]);
  assert.deepEqual(figures.lines[0].values, [1, 2, 4]);
});

test('a span without a value stays empty', () => {
  const lines = [{ chart: 'errors', name: 'A', values: [null, 0] }];
  assert.deepEqual(inSpans([0, 30_000], lines, 30_000).lines[0].values, [null, 0]);
});

/** @param {import('../../src/console/fleet-figures.js').WorkerInfo[][]} answers of surveys */
function fleetOf(...answers) {
  /** @type {[number, string, string][]} */
  const changes = [];
  let asked = 0;
  const fleet = new FleetFigures({
    survey: async () => {
      const workers = answers[asked++] ?? answers.at(-1);
      if (workers === undefined) throw new Error('no worker is ready');
      return { workers, partial: false };
    },
    onChange: (...change) => changes.push(change),
  });
  const states = () =>
    fleet.overview().servers.map(({ name, seenMs, state }) => `${name} ${seenMs} ${state}`);
  return { fleet, changes, states, asked: () => asked };
}

test('while no page is open, servers of a large fleet ask less often', async () => {
  const all = Array.from({ length: 40 }, (_, i) =>
    Array.from({ length: 4 }, (_, slot) => worker({ server: `web-${i}`, slot, pid: slot })),
  ).flat();
  const { fleet, asked } = fleetOf(all);
  for (const ms of [0, 10_000, 20_000, 31_000]) await fleet.update(ms, true);
  assert.equal(asked(), 1, '40 servers with 160 workers: each 32 s, 200 answers a second');
  await fleet.update(32_000, true);
  assert.equal(asked(), 2);
  fleet.pageAsked(33_000);
  assert.equal(asked(), 3);
});

test('the figures of all servers are sums, with rates from two surveys', () => {
  const { fleet } = fleetOf();
  assert.equal(fleet.sums(null), null);
  fleet.addSurvey(0, [worker({}), worker({ server: 'web-2', connections: 7, refused: 3 })], false);
  assert.equal(fleet.sums(null)?.connections, 7);
  assert.equal(fleet.sums(null)?.messages, null);
  fleet.addSurvey(
    5000,
    [
      worker({ messages: 50, connections: 1, state: 'draining' }),
      worker({ server: 'web-2', connections: 8, messages: 50, refused: 5 }),
    ],
    false,
  );
  assert.deepEqual(fleet.sums(null), {
    workers: 2,
    ready: 1,
    connections: 9,
    messages: 20,
    deliveries: 0,
    refused: 2,
    errors: 0,
  });
  assert.equal(fleet.sums('web-2')?.messages, 10);
  assert.equal(fleet.sums('web-2')?.refused, 2);
});

test('a worker that was replaced counts from 0, and none counts below it', () => {
  const { fleet } = fleetOf();
  fleet.addSurvey(0, [worker({ errors: 1000 })], false);
  fleet.addSurvey(5000, [worker({ pid: 2, uptimeS: 3, errors: 4 })], false);
  assert.equal(fleet.sums(null)?.errors, 4);
});

test('a worker of an older version has no rates', () => {
  const old = worker({ messages: undefined, deliveries: undefined });
  const { fleet } = fleetOf();
  fleet.addSurvey(0, [old], false);
  fleet.addSurvey(5000, [old], false);
  assert.equal(fleet.sums(null)?.messages, null);
  assert.equal(fleet.sums(null)?.errors, 0);
});

test('surveys that are far apart, while no page is open, have rates as well', () => {
  const { fleet } = fleetOf();
  fleet.addSurvey(0, [worker({})], false);
  fleet.addSurvey(12_000, [worker({ messages: 60 })], false);
  assert.equal(fleet.sums(null)?.messages, 5);
});

test('a server that misses two surveys is dead: an event, then forgotten, and another if it returns', () => {
  const { fleet, changes, states } = fleetOf();
  const both = [worker({}), worker({ server: 'web-2' })];
  fleet.addSurvey(0, both, false);
  fleet.addSurvey(5000, [worker({})], false);
  assert.deepEqual(states(), ['web-1 5000 here', 'web-2 0 late']);
  assert.deepEqual(changes, []);
  fleet.addSurvey(10_000, [worker({})], false);
  assert.deepEqual(states(), ['web-1 10000 here', 'web-2 0 dead']);
  assert.deepEqual(changes, [[10_000, 'gone', 'web-2 does not answer']]);
  assert.equal(fleet.sums('web-2'), null);
  fleet.addSurvey(15_000, both, false);
  assert.deepEqual(changes[1], [15_000, 'returned', 'web-2 answers again']);
  assert.deepEqual(states(), ['web-1 15000 here', 'web-2 15000 here']);
  fleet.addSurvey(16 * 60_000, [worker({})], false);
  assert.deepEqual(states(), ['web-1 960000 here']);
});

test('a worker that misses one survey makes no event', () => {
  const { fleet, changes } = fleetOf();
  for (const [i, server] of ['web-2', 'web-1', 'web-2', 'web-1'].entries())
    fleet.addSurvey(i * 3000, [worker({ server })], true);
  assert.deepEqual(changes, []);
});

test('a server that drained before it went has left, which is no alarm', () => {
  const { fleet, changes, states } = fleetOf();
  fleet.addSurvey(0, [worker({}), worker({ server: 'web-2', state: 'draining' })], false);
  for (const atMs of [3000, 6000]) fleet.addSurvey(atMs, [worker({})], false);
  assert.deepEqual(states(), ['web-1 6000 here', 'web-2 0 left']);
  assert.deepEqual(changes, [[6000, 'gone', 'web-2 has left after a drain']]);
});

test('all samples ask while a page is open, every third otherwise, and doubt asks at once', async () => {
  const both = [worker({}), worker({ server: 'web-2' })];
  const { fleet, asked } = fleetOf(both, both, both, [worker({})], [worker({})]);
  /** @type {number[]} */
  const times = [];
  for (let nowMs = 0; nowMs < 60_000; nowMs += 3000) {
    const before = asked();
    if (nowMs === 24_000) fleet.pageAsked(nowMs);
    await fleet.update(nowMs, true);
    if (asked() > before) times.push(nowMs);
  }
  // From 24 to 39 s somebody watched; the doubt at 30 s was over before.
  assert.deepEqual(times, [0, 12_000, 24_000, 27_000, 30_000, 33_000, 36_000, 48_000]);
  const alone = fleetOf(both);
  await alone.fleet.update(0, false);
  assert.equal(alone.asked(), 0, 'a server without others is asked only for a page');
});

test('the list of servers waits for a survey if there is no recent one', async () => {
  const { fleet, states, asked } = fleetOf([worker({})]);
  await fleet.refresh(5000);
  assert.deepEqual([states(), asked()], [['web-1 5000 here'], 1]);
  await fleet.refresh(9000);
  assert.equal(asked(), 1);
  await fleet.refresh(60_000);
  assert.deepEqual([states(), asked()], [['web-1 60000 here'], 2]);
});

test('a survey that fails keeps the servers, with the reason', async () => {
  const { fleet, states } = fleetOf();
  fleet.addSurvey(0, [worker({})], false);
  fleet.pageAsked(1);
  await fleet.update(1, true);
  assert.deepEqual([fleet.overview().fault, states()], ['no worker is ready', ['web-1 0 here']]);
});

test('rooms are counted page by page, up to a bound', async () => {
  const rooms = (/** @type {number} */ count) =>
    Array.from({ length: count }, (_, i) => ({
      room: `r${String(i).padStart(6, '0')}`,
      connections: 1,
    }));
  const fleetWith = (/** @type {number} */ total) => ({
    rooms: async ({ after = '', limit = 100 } = {}) => ({
      rooms: rooms(total)
        .filter(({ room }) => room > after)
        .slice(0, limit),
      isPartial: false,
    }),
  });
  const key = { covers: () => true };
  const count = (/** @type {number} */ total) => countRooms(fleetWith(total), key, '');
  assert.deepEqual(await count(5000), { count: 5000, more: false, partial: false });
  assert.deepEqual(await count(0), { count: 0, more: false, partial: false });
  assert.deepEqual(await count(12_000), { count: 10_000, more: true, partial: false });
  const some = await countRooms(fleetWith(3), { covers: (room) => room.endsWith('1') }, '');
  assert.equal(some.count, 1);
});
