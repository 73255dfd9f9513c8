// report.js: the figures of a fleet in Markdown.

import { markdownTable, show } from '../lib/figures.js';
import { perSecond } from './readings.js';

/** @typedef {import('./readings.js').Rates} Rates */

/** @param {Rates} rates */
function deliveries({ delivered }) {
  return Object.values(delivered).reduce((total, n) => total + n, 0);
}

/** @param {Record<string, Rates>} results of each phase @returns {string[]} */
export function commandTable(results) {
  const names = [
    ...new Set(Object.values(results).flatMap(({ commands }) => Object.keys(commands))),
  ];
  return [
    'Commands a second, and µs of each, as Redis counts them:',
    '',
    ...markdownTable(
      ['command', ...Object.keys(results)],
      names
        .sort()
        .map((name) => [
          name,
          ...Object.values(results).map(({ commands: { [name]: c } }) =>
            c === undefined ? '' : `${show(c.perSecond, 1)} × ${show(c.usec, 2)}`,
          ),
        ]),
      1,
    ),
  ];
}

/** @param {Rates} rates */
export function travelTime({ delays }) {
  const at = (/** @type {number} */ percent) => show(delays.percentile(percent) ?? Number.NaN, 2);
  return `${at(50)} ms, p99 ${at(99)} ms`;
}

/**
 * @param {Record<string, Rates>} results
 * @param {{workers: number, rooms: number}} fleet
 * @returns {string[]} the report about one Redis
 */
export function singleRedisReport(results, { workers, rooms: roomCount }) {
  const rows = Object.entries(results).map(([phase, rates]) => [
    phase,
    show(perSecond(rates.commands)),
    show(deliveries(rates)),
    show(rates.delivered.beat),
    show(100 * rates.cpu, 1),
    show(rates.aofBytes / 1000, 1),
    show(rates.outputBytes / 1000),
  ]);
  const head = ['phase', 'commands/s', 'deliveries/s', 'beats', 'CPU, % of a core'];
  const lines = [
    `# ${show(workers)} workers, one Redis`,
    '',
    ...markdownTable([...head, 'AOF, kB/s', 'output, kB/s'], rows, 1),
    '',
  ];
  const { idle, rooms, 'fan-out': fanOut } = results;
  if (idle !== undefined) lines.push(workerAtRest(idle, workers));
  if (idle !== undefined && rooms !== undefined) {
    const checks = rooms.checks / roomCount;
    const check = (1e6 * (rooms.cpu - idle.cpu)) / rooms.checks;
    lines.push(
      `A quiet room: ${show(checks, 3)} position checks a second of ` +
        `${show(check, 2)} µs of Redis CPU and ` +
        `${show((rooms.aofBytes - idle.aofBytes) / rooms.checks, 1)} bytes of AOF each; ` +
        `1,000,000 rooms take ${show(checks * check, 2)} of a core.`,
    );
  }
  if (fanOut !== undefined && fanOut.delays.count > 0)
    lines.push(`A publication to the room of all workers arrives after ${travelTime(fanOut)}.`);
  return [...lines, '', ...commandTable(results)];
}

/** @param {Rates} idle @param {number} workers */
export function workerAtRest(idle, workers) {
  const beats = idle.delivered.beat / workers;
  return (
    `A worker: ${show((1e6 * idle.cpu) / workers, 1)} µs of Redis CPU a second, ` +
    `${show(idle.aofBytes / workers, 1)} bytes of AOF a second. ` +
    `It sends ${show(beats / workers, 3)} beats a second of ` +
    `${show(idle.beatBytes / idle.delivered.beat)} bytes, and receives ${show(beats, 1)}.`
  );
}

/**
 * A phase in a cluster.
 * @typedef {object} ClusterPhase
 * @property {string} name
 * @property {Rates} rates
 * @property {string[]} [facts] more about it, as sentences
 */

/**
 * @param {ClusterPhase[]} phases
 * @param {{workers: number, rooms: number, memberships: number}} fleet
 * @returns {string[]} the report about a cluster
 */
export function clusterReport(phases, { workers, rooms, memberships }) {
  const rows = phases.map(({ name, rates }) => {
    const primaries = rates.nodes.filter(({ isPrimary }) => isPrimary);
    return [
      name,
      show(rates.seconds, 1),
      show(perSecond(rates.commands)),
      show(deliveries(rates)),
      primaries.map(({ cpu }) => show(100 * cpu, 1)).join(', '),
      show(100 * (rates.cpu - primaries.reduce((sum, { cpu }) => sum + cpu, 0)), 1),
      show(rates.workersCpu, 2),
      show(rates.inputBytes / 1000),
      show(rates.outputBytes / 1000),
      show(rates.probeMisses),
      show(rates.reconnects),
    ];
  });
  const head = [
    ...['phase', 'seconds', 'commands/s', 'deliveries/s', 'CPU of each primary, % of a core'],
    ...['replicas, %', 'workers, cores', 'input, kB/s', 'output, kB/s', 'missed probes'],
    'reconnects',
  ];
  return [
    `# ${show(workers)} workers and ${show(rooms)} rooms on a Redis Cluster`,
    '',
    `Three primaries with a replica each; ${show(memberships)} subscriptions of workers to rooms.`,
    '',
    ...markdownTable(head, rows, 1),
    '',
    ...phases.flatMap(({ name, facts = [] }) => facts.map((fact) => `- ${name}: ${fact}`)),
    '',
    ...commandTable(Object.fromEntries(phases.map(({ name, rates }) => [name, rates]))),
  ];
}
