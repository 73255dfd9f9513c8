// together.js: what does a delivery cost in several checkouts of Fanfare, a room each, all at once?
//
//   node loadtest/bench/together.js --others ../main,../release          2 minutes
//   node loadtest/bench/together.js --others ../main --copies 2          each twice: what is noise?
//   node loadtest/bench/together.js --others ../main --warm 3 --seconds 5 --windows 12
//
// run.js measures one server after the other, so its rows move with the machine. Here all servers
// run at the same time, each with a room and clients of its own, and what disturbs a window disturbs
// all of them alike. The load has to be far below what the machine can take: add up 10 µs a delivery.

import { setTimeout as sleep } from 'node:timers/promises';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { OPTION } from './script.js';
import { startServer, stopAll } from './servers.js';
import { clean, openAll } from './step.js';
import { Swarm } from './swarm.js';

const SOURCES = 4;

/** @typedef {{title: string, target: import('./servers.js').Target, swarm: Swarm}} Place */

await experiment({
  question: 'Measures the CPU of deliveries in several checkouts of Fanfare at the same time.',
  options: `others LIST | | | folders of further checkouts, separated by commas
  copies N | whole 1..8 | 1 | servers of each checkout
  members N | whole 1..19000 | 1000 | members of the room of each server
  rate N | number 0.1..1000 | 10 | messages a second to each
  warm S | number 0..3600 | 30 | seconds before the first window
  windows N | whole 1..1000 | 6 | windows
  seconds S | number 1..3600 | 10 | duration of each
  workers N | whole 1..64 | 2 | workers of each server
  ${OPTION.payload}`,

  async setup({ owner, values: { others, copies, members, workers } }) {
    owner.after(stopAll);
    const checkouts = ['', ...others.split(',').filter(Boolean)];
    /** @type {Place[]} */
    const places = [];
    for (let copy = 1; copy <= copies; copy++)
      for (const checkout of checkouts) {
        const swarm = new Swarm({ processes: 1 }).start();
        owner.after(() => swarm.close());
        const target = await startServer('fanfare', { workers, checkout });
        await swarm.aim(target);
        await openAll(swarm, { count: members, sources: SOURCES });
        places.push({ title: checkout || 'this checkout', target, swarm });
      }
    return places;
  },

  async measure(places, { values }) {
    const { rate: perSecond, warm, windows, seconds, payload: payloadBytes } = values;
    const load = { perSecond, seconds: warm + windows * seconds + 1, payloadBytes };
    // The servers' messages do not coincide.
    const runs = places.map(async ({ swarm }, i) => {
      await sleep((1000 / perSecond) * (i / places.length));
      return swarm.run(load);
    });
    await sleep(warm * 1000);
    /** CPU µs a delivery, by place and window. @type {number[][]} */
    const costs = places.map(() => []);
    const deliveries = perSecond * seconds * values.members;
    for (let window = 0; window < windows; window++) {
      const before = places.map(({ target }) => target.cpuSeconds());
      const beganMs = performance.now();
      await sleep(seconds * 1000);
      const share = (performance.now() - beganMs) / (seconds * 1000);
      for (const [i, { target }] of places.entries())
        costs[i].push(((target.cpuSeconds() - before[i]) * 1e6) / (deliveries * share));
    }
    const results = await Promise.all(runs);
    return places.map(({ title }, i) => {
      const { expected, received, lost } = results[i];
      return { title, costs: costs[i], expected, received, lost, isClean: clean(results[i]) };
    });
  },

  report([[measured]], { members, rate, seconds, windows }) {
    const [first] = measured;
    const rows = measured.map(({ title, costs, received, expected }) => [
      title,
      `${show(median(costs), 2)} (${show(Math.min(...costs), 2)}–${show(Math.max(...costs), 2)})`,
      show(median(costs.map((cost, i) => cost / first.costs[i])), 3),
      `${received} of ${expected}`,
    ]);
    const isComplete = measured.every(({ isClean }) => isClean);
    return {
      title: `A delivery in ${measured.length} servers at once`,
      note: `${members} members each, ${rate} messages/s; medians of ${windows} windows of ${seconds} s`,
      lines: [
        ...markdownTable(
          [
            'checkout',
            'server CPU, µs a delivery',
            '× the first, in the same window',
            'deliveries',
          ],
          rows,
          1,
        ),
        ...(isComplete ? [] : ['', '**Failed**: deliveries are missing']),
      ],
      data: { measured },
      failed: !isComplete,
    };
  },
});
