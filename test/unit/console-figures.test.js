// The figures of the console's page, which have no browser in them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Outages } from '../../src/console/outages.js';

// The page has the types of browsers, and these tests those of Node.
const page = new URL('../../src/console/page/', import.meta.url);
const { inSpans } = await import(String(new URL('store.js', page)));
const { Fleet } = await import(String(new URL('fleet.js', page)));

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
  outages.add(1000, workers(1, 1));
  outages.add(4000, workers(1, 0));
  assert.deepEqual(outages.state, { sinceMs: 4000, without: 1, workers: 2 });
  outages.add(7000, workers(0, 0));
  assert.deepEqual(outages.state, { sinceMs: 4000, without: 2, workers: 2 });
  outages.add(10_000, workers(1, 0));
  outages.add(13_000, workers(1, 1));
  assert.deepEqual(outages.state, { sinceMs: null, without: 0, workers: 2 });
  assert.deepEqual(changes, [
    [4000, 'outage', 0],
    [13_000, 'back', 9000],
  ]);
});

test('a sample that no worker has answered changes nothing', () => {
  const outages = new Outages(() => {});
  outages.add(1000, workers(0));
  outages.add(4000, []);
  outages.add(7000, [new Map()]);
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

test('the figures of all servers are sums, with rates from two surveys', () => {
  const fleet = new Fleet();
  assert.equal(fleet.sums(null), null);
  fleet.add(0, [worker({}), worker({ server: 'web-2', connections: 7, refused: 3 })], false);
  assert.equal(fleet.sums(null).connections, 7);
  assert.equal(fleet.sums(null).messages, null);
  fleet.add(
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
  assert.equal(fleet.sums('web-2').messages, 10);
  assert.equal(fleet.sums('web-2').refused, 2);
});

test('a worker that was replaced counts from 0, and none counts below it', () => {
  const fleet = new Fleet();
  fleet.add(0, [worker({ errors: 1000 })], false);
  fleet.add(5000, [worker({ pid: 2, uptimeS: 3, errors: 4 })], false);
  assert.equal(fleet.sums(null).errors, 4);
});

test('a worker of an older version has no rates', () => {
  const old = worker({ messages: undefined, deliveries: undefined });
  const fleet = new Fleet();
  fleet.add(0, [old], false);
  fleet.add(5000, [old], false);
  assert.equal(fleet.sums(null).messages, null);
  assert.equal(fleet.sums(null).errors, 0);
});

test('a server that no longer answers stays with its time, then is forgotten', () => {
  const fleet = new Fleet();
  fleet.add(0, [worker({}), worker({ server: 'web-2' })], false);
  fleet.add(5000, [worker({})], false);
  const seen = () =>
    fleet
      .servers()
      .map((/** @type {any} */ { name, seenMs, isGone }) => [name, seenMs, isGone].join(' '));
  assert.deepEqual(seen(), ['web-1 5000 false', 'web-2 0 true']);
  assert.equal(fleet.sums('web-2'), null);
  fleet.add(16 * 60_000, [worker({})], false);
  assert.deepEqual(seen(), ['web-1 960000 false']);
});
