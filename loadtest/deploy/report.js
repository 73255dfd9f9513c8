// report.js: the table of a comparison of deployments. docs/deploy-comparison.md has it, too, and a
// test computes it again from the figures of the report.

import { markdownTable, median, show } from '../lib/figures.js';

/**
 * One system in one round.
 * @typedef {object} Deployment
 * @property {string} name
 * @property {string} title
 * @property {number} downP50Seconds
 * @property {number} downP99Seconds
 * @property {number} away clients that were not back in the end
 * @property {number} disconnects
 * @property {number} clients
 * @property {number} refusedHandshakes
 * @property {number} failedJoins
 * @property {number} lost
 * @property {number} twice
 * @property {number} peakHandshakesPerSecond
 * @property {readonly number[]} stopSeconds
 */

/** @type {[string, (one: Deployment) => number, number][]} title, figure, digits */
const COLUMNS = [
  ['seconds without connection, p50', (one) => one.downP50Seconds, 1],
  ['p99', (one) => one.downP99Seconds, 1],
  ['disconnects of a client', (one) => one.disconnects / one.clients, 2],
  ['failed handshakes', (one) => one.refusedHandshakes + one.failedJoins, 0],
  ['messages lost', (one) => one.lost, 0],
  ['messages twice', (one) => one.twice, 0],
  ['most handshakes/s at a server', (one) => one.peakHandshakesPerSecond, 0],
  ['seconds until a server has stopped', (one) => Math.max(...one.stopSeconds), 0],
];

/** @param {readonly Deployment[]} deployments of all rounds @returns {string[]} Markdown */
export function tableOf(deployments) {
  const names = [...new Set(deployments.map(({ name }) => name))];
  const rows = names.map((name) => {
    const mine = deployments.filter((one) => one.name === name);
    return [mine[0].title, ...COLUMNS.map(([, figure, digits]) => cell(mine.map(figure), digits))];
  });
  return markdownTable(['', ...COLUMNS.map(([title]) => title)], rows, 1);
}

/** @param {readonly number[]} values of the rounds @param {number} digits */
function cell(values, digits) {
  const middle = show(median(values), digits);
  const [low, high] = [show(Math.min(...values), digits), show(Math.max(...values), digits)];
  return low === high ? middle : `${middle} (${low}–${high})`;
}
