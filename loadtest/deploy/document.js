// document.js: writes the table of docs/deploy-comparison.md from the newest report.
//
//   node loadtest/deploy/document.js

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { tableOf } from './report.js';

const PAGE = new URL('../../docs/deploy-comparison.md', import.meta.url);
const RESULTS = new URL('../bench/results/', import.meta.url);
const TABLE = /(<!-- deployments -->\n)[\s\S]*?(<!-- end -->)/;

/** @param {string} page @returns {string} with the table of the newest report */
export function withDeployments(page) {
  const names = readdirSync(RESULTS).filter((name) => /^deploy-compare-.*\.json$/.test(name));
  const name = names.sort().at(-1);
  if (name === undefined) throw new Error('no report: run node loadtest/deploy/compare.js');
  const { command, machine, rounds } = JSON.parse(readFileSync(new URL(name, RESULTS), 'utf8'));
  const all = /** @type {(import('./report.js').Deployment & {load: number|null})[]} */ (
    rounds.flat()
  );
  const loads = all.map(({ load }) => load).filter((load) => load !== null);
  const range = loads.map((load) => load.toFixed(1));
  const load =
    loads.length === 0
      ? 'not recorded'
      : `${range[loads.indexOf(Math.min(...loads))]} to ${range[loads.indexOf(Math.max(...loads))]}`;
  const note = [
    `${rounds.length === 1 ? 'One round' : `${rounds.length} rounds`} of \`${command}\`: `,
    `${all[0].clients} clients, ${machine.processor}, Node ${machine.node.slice(1)}, `,
    `Redis ${machine.redis}, commit ${machine.commit}, load of the machine ${load} `,
    `([report](../loadtest/bench/results/${basename(name, '.json')}.md)).`,
  ].join('');
  return page.replace(
    TABLE,
    (_, start, end) => `${start}\n${tableOf(all).join('\n')}\n\n${note}\n\n${end}`,
  );
}

if (process.argv[1]?.endsWith('deploy/document.js'))
  writeFileSync(PAGE, withDeployments(readFileSync(PAGE, 'utf8')));
