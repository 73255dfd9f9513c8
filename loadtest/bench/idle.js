// idle.js: idle connections of a server just started: the CPU of their handshakes, and what each
// keeps.
//
//   node loadtest/bench/idle.js                              one checkout, a minute and a half
//   node loadtest/bench/idle.js --others ../main,../release  several in turn, for small differences
//
// The workload idle of run.js reads the memory as it is, so that garbage and what the heap has
// reserved count, too. Here each process first collects its garbage (servers/collect.cjs): after the
// handshakes that are measured, and again with as many further connections, which need no new code.

import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { commitOf, pssKbOf } from './machine.js';
import { liveBytesOf, OPTION, preload } from './script.js';
import { quiet, startServer, stopAll } from './servers.js';
import { openAll } from './step.js';
import { findClient, Swarm } from './swarm.js';

const SOURCES = 4;
const QUIET_MS = 5000;

/** @typedef {{handshakeMs: number, heapBytes: number, kb: number}} Cost of one connection */

await experiment({
  question: 'Measures the CPU of handshakes of new servers, and the memory of an idle connection.',
  options: `others LIST | | | folders of further checkouts, separated by commas
  rounds N | whole 1..100 | 6 | rounds: each checkout has a new server in each
  connections N | whole 100..15000 | 8000 | connections, and then as many again
  workers N | whole 1..64 | 2 | workers of each server
  ${OPTION.client}`,

  variants: ({ others }) => ['', ...others.split(',').filter(Boolean)],

  async setup({ owner, variant: checkout, values: { client, workers } }) {
    owner.after(stopAll);
    const probe = preload(owner, 'collect.cjs');
    const swarm = new Swarm({ client: findClient(client), processes: 2 }).start();
    owner.after(() => swarm.close());
    const target = await startServer('fanfare', { workers, checkout, env: probe.env });
    await swarm.aim(target);
    await quiet(target, QUIET_MS);
    return { probe, swarm, target };
  },

  /** @returns {Promise<Cost>} */
  async measure({ probe, swarm, target }, { values: { connections } }) {
    const memoryOf = async () => ({
      heapBytes: await liveBytesOf(target, probe),
      kb: pssKbOf(target.pids()),
    });
    const before = target.cpuSeconds();
    await openAll(swarm, { count: connections, sources: SOURCES });
    await quiet(target, QUIET_MS);
    const handshakeMs = ((target.cpuSeconds() - before) * 1000) / connections;
    const some = await memoryOf();
    await openAll(swarm, { count: connections, group: 1, sources: SOURCES });
    await quiet(target, QUIET_MS);
    const more = await memoryOf();
    return {
      handshakeMs,
      heapBytes: (more.heapBytes - some.heapBytes) / connections,
      kb: (more.kb - some.kb) / connections,
    };
  },

  report(rounds, { connections, others }) {
    const titles = ['.', ...others.split(',').filter(Boolean)].map(commitOf);
    const costs = titles.map((_, i) => rounds.map((measured) => measured[i]));
    const rows = costs.map((own, i) => [
      titles[i],
      ranged(own, 'handshakeMs', 3),
      ratio(own, costs[0], 'handshakeMs'),
      ranged(own, 'heapBytes', 0),
      ratio(own, costs[0], 'heapBytes'),
      ranged(own, 'kb', 2),
      ratio(own, costs[0], 'kb'),
    ]);
    return {
      title: 'Idle connections',
      note: `${show(connections)} handshakes of a new server; medians and ranges of ${rounds.length} rounds`,
      lines: markdownTable(
        [
          'checkout',
          'CPU of a handshake, ms',
          '×',
          'live heap of a connection, bytes',
          '×',
          'PSS after a collection, kB',
          '×',
        ],
        rows,
        1,
      ),
      data: { titles, costs },
    };
  },
});

/** @param {readonly Cost[]} costs @param {keyof Cost} key @param {number} digits */
function ranged(costs, key, digits) {
  const figures = costs.map((cost) => cost[key]);
  const [least, most] = [Math.min(...figures), Math.max(...figures)];
  return `${show(median(figures), digits)} (${show(least, digits)}–${show(most, digits)})`;
}

/** @param {readonly Cost[]} costs @param {readonly Cost[]} first @param {keyof Cost} key */
function ratio(costs, first, key) {
  const of = (/** @type {readonly Cost[]} */ own) => median(own.map((cost) => cost[key]));
  return show(of(costs) / of(first), 3);
}
