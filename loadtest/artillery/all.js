#!/usr/bin/env node
// all.js: every scenario in turn, each in an Artillery of its own, and one table.
//
//   npm run loadtest:all                                        against ws://localhost:3000; some eleven minutes
//   npm run loadtest:all -- --only smoke,fan-out --target ws://10.0.0.7:3000
//
// Exits with 0 if every scenario met all its conditions. The output of Artillery and its figures
// are kept beside each other.

import { once } from 'node:events';
import { createWriteStream, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readOptions } from '../../test/harness/options.js';
import { count, onSignal, print, table } from '../../test/harness/run.js';
import { findArtillery, needServer, startArtillery, TARGET } from './artillery.js';

const folder = fileURLToPath(new URL('../', import.meta.url));
/** Each file of the folder; the smoke test first, for it fails soonest. */
const SCENARIOS = readdirSync(folder)
  .filter((name) => name.endsWith('.yml'))
  .map((name) => name.replace(/\.yml$/, ''))
  .sort((a, b) => Number(b === 'smoke') - Number(a === 'smoke') || a.localeCompare(b));
/**
 * A scenario that takes longer hangs. profile.yml as it is written takes nine minutes, and as long
 * for its last users.
 */
const LIMIT_MS = 1_800_000;
const KILL_MS = 10_000;
/**
 * profile.yml has 150,000 arrivals, which no one machine holds: its shape, with 1/500 of the
 * arrivals in 1/6 of the time.
 */
const SMALL_PROFILE = Object.freeze([
  { name: 'warm-up', duration: 10, arrivalCount: 2 },
  { name: 'ramp', duration: 20, arrivalCount: 20 },
  { name: 'sustained', duration: 50, arrivalCount: 100 },
  { name: 'stress', duration: 10, arrivalCount: 40 },
]);

const { values } = readOptions(
  `Runs every Artillery scenario of loadtest/ in turn, and prints one table. It needs a running server, with FANFARE_LIMITS=off.

  npm run loadtest:all
  npm run loadtest:all -- --only smoke,fan-out --target ws://10.0.0.7:3000`,
  `target URL | | ${TARGET} | the server
  only LIST | list of ${SCENARIOS.join(' ')} | ${SCENARIOS.join()} | scenarios, in this order
  full | | | the whole profile.yml, instead of 1/500 of its arrivals in 1/6 of the time
  overrides JSON | | {} | for every scenario, the same as --overrides of Artillery
  results DIR | | | where to keep the output of Artillery; without, loadtest/results/artillery-TIME`,
  {
    check: ({ values: { target, overrides } }) => {
      if (!URL.canParse(target) || !/^wss?:$/.test(new URL(target).protocol))
        return `--target is a URL that begins with ws:// or wss://, not ${target}`;
      try {
        const value = JSON.parse(overrides);
        if (typeof value !== 'object' || value === null || Array.isArray(value))
          return '--overrides is a JSON object';
      } catch (error) {
        return `--overrides is not JSON: ${/** @type {Error} */ (error).message}`;
      }
    },
    tail: 'Exit code: 0 every scenario met its conditions · 1 one did not · 2 no scenario was run',
  },
);
const { target, full } = values;
const overrides = JSON.parse(values.overrides);
const results =
  values.results ||
  `${folder}results/artillery-${new Date().toISOString().slice(0, 19).replaceAll(':', '')}`;
findArtillery();
await needServer(target);
mkdirSync(results, { recursive: true });

/** @type {import('node:child_process').ChildProcess|null} */
let current = null;
let isEnding = false;
onSignal(() => {
  isEnding = true;
  current?.kill('SIGTERM');
});

/**
 * @typedef {{name: string, seconds: number, cells: string[], failed: string[], met: boolean}}
 *   Outcome
 */
/** @type {Outcome[]} */
const outcomes = [];
for (const name of values.only) {
  if (isEnding) break;
  print(`${name} …`);
  const outcome = await runOne(name);
  outcomes.push(outcome);
  print(`${name}: ${outcome.met ? 'ok' : 'FAIL'}, ${outcome.seconds} s`);
}

print('');
table([
  [
    'scenario',
    'users',
    'failed',
    'errors',
    'deliveries',
    'p95',
    'p99',
    'lost',
    'repeated',
    'conditions',
    '',
  ],
  ...outcomes.map(({ name, cells, met }) => [name, ...cells, met ? 'ok' : 'FAIL']),
]);
for (const { name, failed } of outcomes)
  for (const condition of failed) print(`${name}: not met: ${condition}`);
const met = outcomes.filter((outcome) => outcome.met).length;
print(
  `\n${met} of ${outcomes.length} scenarios met their conditions${isEnding ? '; interrupted' : ''}`,
);
print(`what Artillery printed: ${results}`);
process.exit(met === outcomes.length && !isEnding ? 0 : 1);

/** @param {string} name @returns {Promise<Outcome>} */
async function runOne(name) {
  const [report, log] = [join(results, `${name}.json`), join(results, `${name}.log`)];
  const own = name === 'profile' && !full ? { phases: SMALL_PROFILE } : {};
  const changed = JSON.stringify({ ...overrides, config: { ...own, ...overrides.config } });
  const startedMs = performance.now();
  const child = startArtillery(
    ['--target', target, '--overrides', changed, '--output', report, `${folder}${name}.yml`],
    ['ignore', 'pipe', 'pipe'],
  );
  current = child;
  const file = createWriteStream(log);
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text) => {
      file.write(text);
      // The conditions stand at its end.
      said = (said + text).slice(-20_000);
    });
  const late = setTimeout(() => child.kill('SIGTERM'), LIMIT_MS);
  const stuck = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS + KILL_MS);
  const [code] = await once(child, 'close');
  clearTimeout(late);
  clearTimeout(stuck);
  current = null;
  file.end();
  const conditions = [...said.matchAll(/^(ok|fail): (.*)$/gm)];
  const failed = conditions
    .filter(([, verdict]) => verdict === 'fail')
    .map(([, , condition]) => condition);
  return {
    name,
    seconds: Math.round((performance.now() - startedMs) / 1000),
    cells: [...figures(report), `${conditions.length - failed.length} of ${conditions.length}`],
    failed:
      conditions.length === 0
        ? [`Artillery ended with ${code} before it had a result; ${log}`]
        : failed,
    met: code === 0 && conditions.length > 0 && failed.length === 0,
  };
}

/**
 * @param {string} report
 * @returns {string[]} users, failed, errors, deliveries, p95, p99, lost, repeated; '–' if there is
 *   none
 */
function figures(report) {
  /**
   * @type
   *   {{counters: Record<string, number>, summaries: Record<string, {p95: number, p99: number}>}}
   */
  let aggregate;
  try {
    ({ aggregate } = JSON.parse(readFileSync(report, 'utf8')));
  } catch {
    return new Array(8).fill('–'); // it ended before it had any; its exit code says so
  }
  const { counters, summaries } = aggregate;
  const errors = Object.entries(counters).filter(([name]) => name.startsWith('errors.'));
  const delivery = summaries['fanfare.delivery_ms'];
  const of = (/** @type {string} */ name) => count(counters[name] ?? 0);
  return [
    of('vusers.created'),
    of('vusers.failed'),
    count(errors.reduce((sum, [, times]) => sum + times, 0)),
    of('fanfare.delivered'),
    ...[delivery?.p95, delivery?.p99].map((ms) =>
      ms === undefined ? '–' : `${ms < 10 ? ms.toFixed(1) : count(ms)} ms`,
    ),
    of('fanfare.lost'),
    of('fanfare.repeated'),
  ];
}
