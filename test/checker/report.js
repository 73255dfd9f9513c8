// report.js: checks a record and describes the findings.

import { count, print, table } from '../harness/run.js';
import { Checker } from './checker.js';
import { readRecord } from './record.js';

/** @typedef {import('./checker.js').Report} Report */

/** @param {string} path @returns {Report} */
export function checkRecord(path) {
  const checker = new Checker();
  for (const event of readRecord(path)) checker.see(event);
  return checker.report();
}

/** @param {Report} report */
export function printReport({ isComplete, isClean, findings, figures }) {
  table([
    ['', 'anomaly', 'checks', 'found'],
    ...findings.map(({ id, anomaly, checks, violations }) => [
      id,
      anomaly,
      count(checks),
      count(violations),
    ]),
  ]);
  print('');
  table([['figure', ''], ...figures.rows()]);
  for (const { id, claim, violations, examples } of findings) {
    if (violations === 0) continue;
    print(`\n${id}: ${claim}. ${count(violations)} times it did not hold:`);
    for (const example of examples) print(`  ${example}`);
  }
  const unasked = findings.filter(({ checks }) => checks === 0).map(({ id }) => id);
  if (unasked.length > 0) print(`\nnever put to the test: ${unasked.join(', ')}`);
  if (!isComplete) print('\nthe record has no end: what must hold at the end was not checked');
  print(`\n${isClean ? 'ok' : 'FAIL'}: ${count(sum(findings))} violations`);
}

/** @param {Report['findings']} findings */
function sum(findings) {
  return findings.reduce((total, { violations }) => total + violations, 0);
}
