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
import { experiment } from '../lib/experiment.js';
import { markdownTable, show } from '../lib/figures.js';
import { pssKbOf } from './machine.js';
import { OPTION, preload, startBench } from './script.js';
import { quiet } from './servers.js';

const QUARTERS = 4;
/** A worker that keeps more than this for each connection leaks: the smallest object is larger. */
const MAX_BYTES_PER_CYCLE = 16;
/** With fewer cycles, the memory of compiled code hides everything else. */
const MIN_CYCLES = 40_000;
/** Longer than the server keeps its subscription to an emptied room. */
const SETTLE_MS = 2500;

/** @typedef {{heapUsed: number, external: number, pssKb: number}} Memory of one process */
/** @typedef {{cycles: number, failed: number, perSecond: number, memory: Memory[]}} Point */

await experiment({
  question: 'Opens and closes connections, and measures the memory that the server keeps.',
  options: `cycles N | whole 4.. | 200000 | connections in all
  concurrency N | whole 1..10000 | 200 | connections at a time
  rooms N | whole 1..100000 | 100 | rooms they join
  ${OPTION.server}`,

  async setup({ owner, values: { server } }) {
    const probe = preload(owner, 'collect.cjs');
    return { probe, ...(await startBench(owner, { server, env: probe.env })) };
  },

  async measure({ target, swarm, probe }, { values: { cycles, concurrency, rooms } }) {
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
    /** @type {Point[]} */
    const points = [{ cycles: 0, failed: 0, perSecond: 0, memory: await collect() }];
    for (let quarter = 1; quarter <= QUARTERS; quarter++) {
      const count = Math.round(cycles / QUARTERS);
      const result = await swarm.cycle({ count, concurrency, rooms, timeoutMs: 600_000 });
      const done = points[quarter - 1].cycles + result.cycles;
      const perSecond = result.cycles / result.seconds;
      points.push({ cycles: done, failed: result.failed, perSecond, memory: await collect() });
      console.log(`${show(done)} cycles, ${result.failed} failed, ${show(perSecond)}/s`);
    }
    return { points, server: target.title };
  },

  report([[measured]], { cycles }) {
    /** @type {{points: Point[], server: string}} */
    const { points, server } = measured;
    const [settled, last] = [points[1], points[QUARTERS]];
    const growth = last.memory.map(({ heapUsed, external }, i) => {
      const kept = heapUsed + external - settled.memory[i].heapUsed - settled.memory[i].external;
      return (kept / (last.cycles - settled.cycles)) * Math.max(1, last.memory.length - 1);
    });
    const failed = points.reduce((sum, point) => sum + point.failed, 0);
    const worst = Math.max(...growth);
    const isLeak = worst > MAX_BYTES_PER_CYCLE && cycles >= MIN_CYCLES;
    const bytes = `${worst.toFixed(1)} bytes a connection in the worst process`;
    let verdict = 'no growth';
    if (failed > 0) verdict = `${failed} connections failed`;
    else if (isLeak) verdict = `memory grows: ${bytes}`;
    else if (worst > MAX_BYTES_PER_CYCLE)
      verdict = `${bytes}, but too few cycles to judge: code is still being compiled`;
    const byProcess = growth.map((each) => each.toFixed(2)).join(', ');
    return {
      title: `${show(cycles)} connect/disconnect cycles, ${server}`,
      lines: [
        `**${verdict}** (heap and external memory in bytes per connection, from the end of the first quarter to the end of the last, by process: ${byProcess})`,
        '',
        ...markdownTable(
          [
            'cycles',
            'a second',
            'primary: heap + external, PSS, MB',
            ...last.memory.slice(1).map((_, i) => `worker ${i + 1}`),
          ],
          points.map(({ cycles: done, perSecond, memory }) => [
            show(done),
            perSecond === 0 ? '' : show(perSecond),
            ...memory.map(
              ({ heapUsed, external, pssKb }) =>
                `${show(heapUsed / 1e6, 2)} + ${show(external / 1e6, 2)}, ${show(pssKb / 1000, 1)}`,
            ),
          ]),
        ),
      ],
      data: { points, growth, verdict },
      failed: failed > 0 || isLeak,
    };
  },
});
