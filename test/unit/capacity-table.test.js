import assert from 'node:assert/strict';
import { test } from 'node:test';
import { markdown, withTable } from '../../loadtest/lib/capacity-table.js';
import { forTerminal, showMs } from '../../loadtest/lib/figures.js';
import { BUCKETS, bucketOf, meanMs } from '../harness/latency.js';

const LOAD = {
  messagesPerSecond: 1234.4,
  deliveriesPerSecond: 98765,
  meanMs: 3.14,
  p99Ms: 20.06,
  serverCores: 1.204,
  clientCores: 0.7,
  clientBusiest: 0.5,
  cpuPerMillion: 9.87,
  stolenCores: 0,
};
/** @type {import('../../loadtest/lib/capacity-table.js').Row} */
const ROW = {
  connections: 5000,
  date: '2026-01-02',
  commit: 'abc1234',
  workers: 2,
  processes: 2,
  rooms: 316,
  serverMb: 123.4,
  kbPerConnection: 5.55,
  systemKbPerConnection: 30,
  handshakeCpuMs: 0.456,
  restCores: 0.01,
  everyday: { ...LOAD, p99Ms: 4 },
  most: 1763,
  held: { ...LOAD, clientBusiest: 0.9 },
};
const RESULTS = { machine: {}, limitP99Ms: 250, seconds: 10, payloadBytes: 100, rows: [ROW] };

test('a row has the connections held, their latency, and a mark if the client was the limit', () => {
  const text = markdown(RESULTS);
  assert.ok(
    text.includes('| 5,000 | 1,234 | 98,765 | 3.1 | 20.1 | 1.20 | 0.70 (the limit) | 9.9 |'),
    text,
  );
  assert.ok(text.includes('| 5,000 | 1,234 | 98,765 | 3.1 | 4.0 | 1.20 | 0.70 | 9.9 |'), text);
  assert.ok(
    text.includes('| 5,000 | 316 | 2 | 123 | 5.6 | 30.0 | 0.46 | 0.01 | 2026-01-02, abc1234 |'),
    text,
  );
});

test('a connection’s share of memory is left out if it is noise', () => {
  const text = markdown({
    ...RESULTS,
    rows: [{ ...ROW, connections: 1000, kbPerConnection: -1.2 }],
  });
  assert.ok(text.includes('| 1,000 | 316 | 2 | 123 | – | 30.0 | 0.46 |'), text);
});

test('the tables are written between the marks, and the rest of the page stays', () => {
  const readme =
    'before\n<!-- capacity: npm run capacity -- --readme -->\nold\n<!-- end -->\nafter\n';
  const once = withTable(readme, 'new');
  assert.equal(
    once,
    'before\n<!-- capacity: npm run capacity -- --readme -->\nnew\n<!-- end -->\nafter\n',
  );
  assert.equal(withTable(once, 'new'), once);
  assert.throws(() => withTable('no marks', 'new'));
});

test('the average covers the counted latencies only', () => {
  const histogram = new Float64Array(BUCKETS);
  histogram[bucketOf(100)] = 3;
  histogram[bucketOf(500_000)] = 1;
  assert.ok(Math.abs(meanMs(histogram) - 125.075) < 2, String(meanMs(histogram)));
  assert.ok(Number.isNaN(meanMs(new Float64Array(BUCKETS))));
});

test('on a terminal each number of connections is a column, and the lines fit', () => {
  const row = { ...ROW, connections: 50_000 };
  const text = forTerminal(markdown({ ...RESULTS, rows: [ROW, row] }));
  assert.doesNotMatch(text, /[|`]|---|\*\*/);
  const lines = text.split('\n');
  const at = lines.findIndex((line) => line.startsWith('connections'));
  const table = lines.slice(at, lines.indexOf('', at));
  assert.match(table[0], /^connections +5,000 +50,000$/);
  assert.match(table[1], /^messages\/s +1,234 +1,234$/);
  assert.equal(new Set(table.map(({ length }) => length)).size, 1, text);
  assert.ok(table[0].length <= 80, text);
  assert.equal(
    forTerminal('| a | bc |\n| --- | ---: |\n| long | 1 |\n| 2 | 3 |'),
    'a   long  2\nbc     1  3\n',
  );
});

test('a latency has as many digits as are sensible', () => {
  assert.equal(showMs(132.096), '132 ms');
  assert.equal(showMs(2.0476), '2.0 ms');
  assert.equal(showMs(1321.9), '1,322 ms');
});
