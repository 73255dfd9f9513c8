// report.js: medians, ranges and ratios, as a table for people (Markdown).

import { median, show } from '../lib/figures.js';
import { NO_ECHO, TABLES } from './workloads.js';

/**
 * One measurement: a server, a workload, a round.
 * @typedef {object} Cell
 * @property {string} server
 * @property {string} title of the server
 * @property {string} workload or the part of one that is a table of its own
 * @property {number} round
 * @property {Record<string, number | null>} values
 * @property {string[]} flags
 * @property {Record<string, unknown>} detail
 * @property {number} [load] the one a search found
 * @property {number} stolenShare of the machine's time, by the hypervisor
 * @property {number} seconds
 */

/**
 * @param {readonly Cell[]} cells
 * @param {string} server
 * @param {string} workload
 * @param {string} key
 */
function figure(cells, server, workload, key) {
  const mine = cells.filter((cell) => cell.server === server && cell.workload === workload);
  const numbers = mine
    .map((cell) => cell.values[key])
    .filter((value) => typeof value === 'number' && Number.isFinite(value));
  const known = /** @type {number[]} */ (numbers);
  return {
    rounds: mine.length,
    numbers: known,
    median: known.length > 0 ? median(known) : Number.NaN,
  };
}

/**
 * The ratio of two servers within each round, then the median over the rounds: what moves the whole
 * machine from one round to the next drops out.
 * @param {readonly Cell[]} cells
 * @param {string} server
 * @param {string} base
 * @param {string} workload
 * @param {string} key
 */
export function ratio(cells, server, base, workload, key) {
  const ratios = [];
  for (const cell of cells) {
    if (cell.server !== server || cell.workload !== workload) continue;
    const other = cells.find(
      (each) => each.server === base && each.workload === workload && each.round === cell.round,
    );
    const [mine, theirs] = [cell.values[key], other?.values[key]];
    if (typeof mine === 'number' && typeof theirs === 'number' && theirs > 0)
      ratios.push(mine / theirs);
  }
  return ratios.length > 0 ? median(ratios) : Number.NaN;
}

/**
 * The servers that a figure does not tell apart: each set of at least two whose ranges over all
 * rounds have a value in common.
 * @param {readonly { title: string, numbers: readonly number[] }[]} servers
 * @returns {string[][]} titles, the set with the lowest values first
 */
export function equalSets(servers) {
  const ranges = servers
    .filter(({ numbers }) => numbers.length > 1)
    .map(({ title, numbers }) => ({
      title,
      low: Math.min(...numbers),
      high: Math.max(...numbers),
    }))
    .sort((a, b) => a.low - b.low);
  /** @type {string[][]} */
  const sets = [];
  for (const { low } of ranges) {
    const set = ranges.filter((one) => one.low <= low && low <= one.high).map(({ title }) => title);
    const last = sets.at(-1);
    if (last?.every((title) => set.includes(title))) sets.pop();
    if (set.length > 1 && !sets.some((one) => set.every((title) => one.includes(title))))
      sets.push(set);
  }
  return sets;
}

/**
 * Measurements without a figure: of servers that failed. That a server has no echo is no failure.
 * @param {readonly Cell[]} cells
 */
export function withoutFigure(cells) {
  return cells.filter(
    ({ workload, values, flags }) =>
      !values[TABLES[workload].metrics[0].key] && !flags.includes(NO_ECHO),
  );
}

/**
 * @param {object} report
 * @param {string} report.startedAt
 * @param {string} report.command
 * @param {Record<string, unknown>} report.machine
 * @param {{ lines: string[] }} report.client
 * @param {readonly Cell[]} report.cells
 * @param {string} report.base the server that ratios refer to
 * @returns {string}
 */
export function markdown({ startedAt, command, machine, client, cells, base }) {
  const servers = [...new Map(cells.map((cell) => [cell.server, cell.title]))];
  const workloads = [...new Set(cells.map((cell) => cell.workload))];
  const rounds = Math.max(0, ...cells.map((cell) => cell.round));
  const lines = [
    `# Side by side, ${startedAt}`,
    '',
    `\`${command}\`; medians of up to ${rounds} interleaved ${rounds === 1 ? 'round' : 'rounds'}, each with new processes of server and client;`,
    `in brackets the range; × is the ratio to ${base}, the median of the ratios within each round. A row is client-bound if a`,
    'process of the client used at least 90 % of a core: the server may be better. Absolute figures belong to this machine and hour; ratios last longer. ../README.md says what each means.',
    '',
    ...Object.entries(machine).map(([key, value]) => `- ${key}: ${value}`),
    ...client.lines.map((line) => `- ${line}`),
    '',
  ];
  const stolen = cells.map((cell) => cell.stolenShare);
  if (stolen.length > 0)
    lines.push(
      `- time stolen by the hypervisor: ${show(100 * median(stolen), 1)} % in the median, at most ${show(100 * Math.max(...stolen), 1)} %`,
      '',
    );

  for (const workload of workloads) {
    const { title, metrics } = TABLES[workload];
    lines.push(`## ${title}`, '');
    lines.push(
      `| server | ${metrics.map((metric) => (metric.unit && !metric.title.endsWith('/s') ? `${metric.title}, ${metric.unit}` : metric.title)).join(' | ')} | CPU client / server, s | client's busiest process, % of a core | remarks |`,
    );
    lines.push(`|---|${metrics.map(() => '---:|').join('')}---:|---:|---|`);
    for (const [server, name] of servers) {
      const mine = cells.filter((cell) => cell.server === server && cell.workload === workload);
      if (mine.length === 0) continue;
      const columns = metrics.map(({ key, digits = 0 }) => {
        const { numbers, median: middle, rounds: all } = figure(cells, server, workload, key);
        if (numbers.length === 0) return '–';
        const times = ratio(cells, server, base, workload, key);
        const range =
          numbers.length > 1
            ? ` (${show(Math.min(...numbers), digits)}–${show(Math.max(...numbers), digits)})`
            : '';
        const missing = numbers.length < all ? `, ${all - numbers.length} of ${all} failed` : '';
        return `${show(middle, digits)}${range}${Number.isFinite(times) ? ` × ${show(times, times < 10 ? 2 : 0)}` : ''}${missing}`;
      });
      const clientCpu = figure(cells, server, workload, 'clientCpuSeconds').median;
      const serverCpu = figure(cells, server, workload, 'serverCpuSeconds').median;
      const busiest = 100 * figure(cells, server, workload, 'clientBusiest').median;
      const flags = new Map();
      for (const flag of mine.flatMap((cell) => cell.flags))
        flags.set(flag, (flags.get(flag) ?? 0) + 1);
      const remarks = [...flags]
        .map(([flag, count]) => (mine.length > 1 ? `${flag} (${count} of ${mine.length})` : flag))
        .join('; ');
      lines.push(
        `| ${name} | ${columns.join(' | ')} | ${show(clientCpu, 2)} / ${show(serverCpu, 2)} | ${show(busiest)} | ${remarks.replaceAll('|', '/')} |`,
      );
    }
    lines.push('');
    for (const { key, title: name } of metrics) {
      const sets = equalSets(
        servers.map(([server, title]) => ({
          title,
          numbers: figure(cells, server, workload, key).numbers,
        })),
      );
      if (sets.length > 0)
        lines.push(
          `- Equal within noise, ${name}: ${sets.map((set) => set.join(' = ')).join('; ')}`,
        );
    }
    if (lines.at(-1) !== '') lines.push('');
  }
  return lines.join('\n');
}
