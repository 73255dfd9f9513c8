// churn.js: connections that come and go: does the server keep memory of them?
//
//   node loadtest/bench/churn.js                        200,000 cycles of connect, upgrade, join, leave
//   node loadtest/bench/churn.js --cycles 5000
//
// Half of the connections leave with a close frame; the client cuts off the other half. At the
// start and after each quarter, every process of the server collects its garbage
// (servers/collect.cjs) and reports the memory that is left. A leak grows from quarter to quarter.
// The first quarter also fills caches and compiles code, so the growth counts from its end.

import { setTimeout as sleep } from 'node:timers/promises';
import { markdownTable, show } from '../lib/figures.js';
import { readOptions } from '../lib/options.js';
import { pssKbOf } from './machine.js';
import { OPTION, preload, saveReport, stopOnSignal, withServer } from './script.js';
import { quiet } from './servers.js';

const QUARTERS = 4;
/** A worker that keeps more than this for each connection leaks: the smallest object is larger. */
const MAX_BYTES_PER_CYCLE = 16;
/** With fewer cycles, the memory of compiled code hides everything else. */
const MIN_CYCLES = 40_000;
/** Longer than the server keeps its subscription to an emptied room. */
const SETTLE_MS = 2500;

const { values } = readOptions(
  'Opens and closes connections, and measures the memory that the server keeps.',
  `cycles N | whole 4.. | 200000 | connections in all
  concurrency N | whole 1..10000 | 200 | connections at a time
  rooms N | whole 1..100000 | 100 | rooms they join
  ${OPTION.server}
  ${OPTION.client}
  ${OPTION.save}`,
);
const { cycles, concurrency, rooms, server, client, save } = values;
stopOnSignal();
const probe = preload('collect.cjs');
/** @typedef {{heapUsed: number, external: number, pssKb: number}} Memory of one process */
/** @type {{cycles: number, failed: number, perSecond: number, memory: Memory[]}[]} */
const points = [];

const title = await withServer({ server, client, env: probe.env }, async ({ target, swarm }) => {
  const collect = async () => {
    await quiet(target, 10_000);
    await sleep(SETTLE_MS);
    const memory = [];
    for (const pid of target.pids()) {
      const { heapUsed, external } = await probe.ask(pid);
      memory.push({ pid, heapUsed, external, pssKb: pssKbOf([pid]) });
    }
    return memory;
  };
  points.push({ cycles: 0, failed: 0, perSecond: 0, memory: await collect() });
  for (let quarter = 1; quarter <= QUARTERS; quarter++) {
    const count = Math.round(cycles / QUARTERS);
    const result = await swarm.cycle({ count, concurrency, rooms, timeoutMs: 600_000 });
    points.push({
      cycles: points[quarter - 1].cycles + result.cycles,
      failed: result.failed,
      perSecond: result.cycles / result.seconds,
      memory: await collect(),
    });
    console.log(
      `${show(points[quarter].cycles)} cycles, ${result.failed} failed, ${show(points[quarter].perSecond)}/s`,
    );
  }
  return target.title;
});
probe.end();

const [settled, last] = [points[1], points[QUARTERS]];
const growth = last.memory.map(({ heapUsed, external }, i) => {
  const kept = heapUsed + external - settled.memory[i].heapUsed - settled.memory[i].external;
  return (kept / (last.cycles - settled.cycles)) * Math.max(1, last.memory.length - 1);
});
const failed = points.reduce((sum, point) => sum + point.failed, 0);
const worst = Math.max(...growth);
const isLeak = worst > MAX_BYTES_PER_CYCLE && cycles >= MIN_CYCLES;
const verdicts = {
  failed: `${failed} connections failed`,
  steady: 'no growth',
  short: `${worst.toFixed(1)} bytes a connection in the worst process, but too few cycles to judge: code is still being compiled`,
  leak: `memory grows: ${worst.toFixed(1)} bytes a connection in the worst process`,
};
const verdict =
  verdicts[
    failed > 0 ? 'failed' : isLeak ? 'leak' : worst > MAX_BYTES_PER_CYCLE ? 'short' : 'steady'
  ];
const mb = (/** @type {Memory} */ { heapUsed, external, pssKb }) =>
  `${show(heapUsed / 1e6, 2)} + ${show(external / 1e6, 2)}, ${show(pssKb / 1000, 1)}`;
saveReport({
  script: 'churn',
  title: `${show(cycles)} connect/disconnect cycles, ${title}`,
  lines: [
    `**${verdict}** (heap and external memory in bytes per connection, from the end of the first quarter to the end of the last, by process: ${growth.map((bytes) => bytes.toFixed(2)).join(', ')})`,
    '',
    ...markdownTable(
      [
        'cycles',
        'a second',
        ...last.memory.map((_, i) =>
          i === 0 ? 'primary: heap + external, PSS, MB' : `worker ${i}`,
        ),
      ],
      points.map(({ cycles: done, perSecond, memory }) => [
        show(done),
        perSecond === 0 ? '' : show(perSecond),
        ...memory.map(mb),
      ]),
    ),
  ],
  data: { points, growth, verdict },
  save,
});
process.exit(failed > 0 || isLeak ? 1 : 0);
