// idle.js: the workload idle in several checkouts of Fanfare, in turn.
//
//   node loadtest/bench/idle.js --others ../main,../release  two minutes for each checkout
//   node loadtest/bench/idle.js --rounds 20                  one checkout: what is noise?
//
// run.js reads the memory of a server as it is, with its garbage. Here each process also collects
// (servers/collect.cjs), so that the live heap shows small differences.

import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { commitOf } from './machine.js';
import { liveBytesOf, preload, startBench } from './script.js';
import { WORKLOADS } from './workloads.js';

const SOURCES = 4;
const COLUMNS = Object.freeze([
  { key: 'cpuMsPerHandshake', title: 'CPU of a handshake, ms', digits: 3 },
  { key: 'liveKbPerConnection', title: 'live heap of a connection, kB', digits: 3 },
  { key: 'kbPerConnection', title: 'PSS of a connection, kB', digits: 2 },
]);

/** @typedef {Record<string, number|null>} Values of the workload, by the metric's key */

await experiment({
  question: 'Measures handshakes and idle connections of new servers of several checkouts.',
  options: `others LIST | | | folders of further checkouts, separated by commas
  rounds N | whole 1..100 | 6 | servers of each checkout, in turn
  workers N | whole 1..64 | 2 | workers of each server`,

  variants: ({ others }) => ['', ...others.split(',').filter(Boolean)],

  async setup({ owner, variant: checkout, values: { workers } }) {
    const probe = preload(owner, 'collect.cjs');
    const bench = await startBench(owner, {
      ...{ server: 'fanfare', workers, checkout, env: probe.env },
    });
    return { ...bench, liveBytes: () => liveBytesOf(bench.target, probe) };
  },

  /** @returns {Promise<Values>} */
  async measure(bench) {
    const rest = { quick: false, payloadBytes: 0, sources: SOURCES, log: console.log };
    const { values, flags } = await WORKLOADS.idle.run({ ...bench, ...rest });
    for (const flag of flags) console.log(`! ${flag}`);
    return values;
  },

  report(rounds, { others }) {
    const titles = ['.', ...others.split(',').filter(Boolean)].map(commitOf);
    const costs = titles.map((_, i) => rounds.map((measured) => measured[i]));
    return {
      title: 'Idle connections',
      note: `medians, ranges and ratios to the first row; ${rounds.length} new servers of each`,
      lines: markdownTable(
        ['checkout', ...COLUMNS.flatMap(({ title }) => [title, '×'])],
        costs.map((own, i) => [
          titles[i],
          ...COLUMNS.flatMap(({ key, digits }) => cells(own, costs[0], key, digits)),
        ]),
        1,
      ),
      data: { titles, costs },
      failed: rounds.flat().some((values) => COLUMNS.some(({ key }) => values[key] == null)),
    };
  },
});

/**
 * @param {readonly Values[]} own @param {readonly Values[]} first @param {string} key
 * @param {number} digits @returns {string[]} the figure with its range, and the ratio
 */
function cells(own, first, key, digits) {
  const of = (/** @type {readonly Values[]} */ all) =>
    all.map((values) => values[key] ?? Number.NaN);
  const figures = of(own);
  const range = `${show(Math.min(...figures), digits)}–${show(Math.max(...figures), digits)}`;
  return [
    `${show(median(figures), digits)} (${range})`,
    show(median(figures) / median(of(first)), 3),
  ];
}
