#!/usr/bin/env node
// all.js: every fault in turn, and a table of what was required and observed.
//
//   node loadtest/faults/all.js [name …]     worker-killed, sigterm, redis-away, per-ip, rate-limit
//
// Exits with 0 where all of it was met. Each runs in a process of its own, which cleans up behind
// itself.

import { fork } from 'node:child_process';
import { print, table } from '../lib/run.js';

/** Arguments by name; some run twice. @type {readonly [string, string[]][]} */
const FAULTS = [
  ['worker-killed', []],
  ['sigterm', []],
  ['sigterm', ['--redis']],
  ['redis-away', []],
  ['per-ip', []],
  ['rate-limit', []],
];

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !FAULTS.some(([known]) => known === name));
if (unknown.length > 0) throw new Error(`no such fault: ${unknown.join(', ')}`);

/** @type {import('../lib/run.js').Result[]} */
const results = [];
/** @type {import('node:child_process').ChildProcess|null} */
let current = null;
let isEnding = false;
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
  process.on(signal, () => {
    isEnding = true;
    // The terminal's Ctrl-C has reached it, too; it takes the first one.
    current?.kill('SIGTERM');
  });
}

for (const [name, args] of FAULTS) {
  if (isEnding || (wanted.length > 0 && !wanted.includes(name))) continue;
  results.push(await runOne(name, args));
}

print('');
table([
  ['line and check', 'required', 'observed', ''],
  ...results.flatMap(({ title, seconds, rows, error }) => [
    [title, '', `${seconds} s`, error === '' && rows.every(({ met }) => met) ? 'ok' : 'FAIL'],
    ...rows.map(({ what, required, observed, met }) => [
      `  ${what}`,
      required,
      observed,
      met ? 'ok' : 'FAIL',
    ]),
    ...(error === '' ? [] : [[`  ${error.split('\n')[0]}`, '', '', 'FAIL']]),
  ]),
]);
const met = results.filter(({ rows, error }) => error === '' && rows.every((row) => row.met));
print(`\n${met.length} of ${results.length} met`);
process.exit(met.length === results.length && results.length > 0 ? 0 : 1);

/**
 * @param {string} name
 * @param {readonly string[]} args
 * @returns {Promise<import('../lib/run.js').Result>}
 */
function runOne(name, args) {
  return new Promise((resolve) => {
    /** @type {import('../lib/run.js').Result} */
    let result = { title: name, seconds: 0, rows: [], error: 'it ended without a result' };
    const child = fork(new URL(`./${name}.js`, import.meta.url), args);
    current = child;
    child.on('message', (message) => {
      result = /** @type {import('../lib/run.js').Result} */ (message);
    });
    child.on('exit', (code) => {
      current = null;
      if (code !== 0 && result.error === '' && result.rows.every((row) => row.met))
        result.error = `it ended with ${code}`;
      resolve(result);
    });
  });
}
