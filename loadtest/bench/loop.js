// loop.js: a room of 20,000 members on two workers: how late is the event loop?
//
//   node loadtest/bench/loop.js                           20,000 members at 2, 5, 10 and 50 messages a second, about a minute
//   node loadtest/bench/loop.js --members 5000 --rates 10
//
// A flush over a large room must yield, or reads, pings, joins and other rooms wait for it.
// servers/delay.cjs, preloaded into each process of the server, measures the delay. The run fails
// if a message is lost, or if the p99 of the worst worker is above --limit.

import { experiment } from '../lib/experiment.js';
import { markdownTable, show } from '../lib/figures.js';
import { demandMachine } from './machine.js';
import { OPTION, preload, startBench } from './script.js';
import { quiet } from './servers.js';
import { clean, measured, openAll } from './step.js';

const SOURCES = 4;
const PROCESSES = 2;

await experiment({
  question: 'Measures the event-loop delay of the workers while a large room is written to.',
  options: `members N | whole 1..1000000 | 20000 | members of the room
  rates LIST | list of number 0.1..100000 | 2,5,10,50 | messages a second, one run each
  seconds S | number 0.1..3600 | 6 | duration of each run
  limit MS | number 0..60000 | 50 | p99 of the delay above which the run fails
  workers N | whole 1..64 | 2 | workers of the server
  ${OPTION.server}
  ${OPTION.payload}`,

  async setup({ owner, values: { members, workers, server } }) {
    demandMachine({ connections: members, workers, processes: PROCESSES, sources: SOURCES });
    const probe = preload(owner, 'delay.cjs');
    const parts = { server, workers, processes: PROCESSES, env: probe.env };
    return { probe, ...(await startBench(owner, parts)) };
  },

  async measure({ target, swarm, probe }, { values }) {
    const { members, rates, seconds, limit, payload: payloadBytes } = values;
    /** @type {(string|number)[][]} */
    const rows = [];
    /** @type {string[]} */
    const failures = [];
    /** The largest delays of all workers since the last call; the primary has no connections. */
    const delays = async () => {
      const seen = await Promise.all(target.pids().slice(1).map(probe.ask));
      return ['p50Ms', 'p99Ms', 'maxMs'].map((key) => Math.max(...seen.map((one) => one[key])));
    };
    await openAll(swarm, { count: members, sources: SOURCES, timeoutMs: 120_000 });
    await swarm.run({ perSecond: 5, seconds: 2, payloadBytes, drainMs: 10_000 });
    for (const perSecond of rates) {
      await quiet(target, 5000);
      await delays();
      const step = await measured(target, () =>
        swarm.run({ perSecond, seconds, payloadBytes, drainMs: 15_000 }),
      );
      const loop = await delays();
      const figures = [...loop, step.p50Ms, step.p99Ms].map((ms) => show(ms, 1));
      const deliveries = `${step.received} of ${step.expected}`;
      rows.push([perSecond, ...figures, deliveries, show(step.serverCpuSeconds, 2)]);
      console.log(
        `${perSecond} messages/s: loop p99 ${figures[1]} ms, delivery p99 ${figures[4]} ms`,
      );
      if (!clean(step)) failures.push(`messages were lost at ${perSecond}/s`);
      if (loop[1] > limit) failures.push(`p99 is ${loop[1].toFixed(1)} ms at ${perSecond}/s`);
    }
    return { rows, failures, server: target.title };
  },

  report([[{ rows, failures, server }]], { members, workers, seconds, limit }) {
    const head = ['messages/s', 'loop p50, ms', 'loop p99, ms', 'loop max, ms', 'delivery p50, ms'];
    return {
      title: `Event-loop delay with ${members} members in a room`,
      note: `${server}, ${workers} workers, the worst of them; ${seconds} s for each rate`,
      lines: [
        failures.length === 0
          ? `**Within ${limit} ms** at the 99th percentile; none lost`
          : `**Failed**: ${failures.join('; ')}`,
        '',
        ...markdownTable([...head, 'delivery p99, ms', 'deliveries', 'server CPU, s'], rows),
      ],
      data: { rows, failures },
      failed: failures.length > 0,
    };
  },
});
