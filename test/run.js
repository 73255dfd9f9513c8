// run.js: runs the test suites with node:test, all of them or those named:
// `node test/run.js unit e2e`.
//
// FANFARE_FAST_PATHS=off runs them without fast paths. TEST_HIDDEN_FIELD runs them with one private
// field of Node, ws or ioredis hidden (helpers/hidden/fields.js). TEST_TLS=on runs them with TLS
// between each test and its servers (helpers/tls/preload.js).
//
// Node's `--test` sorts its files by name, so this file runs them itself, the slow ones first. It
// runs four files at a time, because tests of whole clusters mostly wait. More of them on a small
// machine measure only each other.

import { existsSync, readdirSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { fileURLToPath } from 'node:url';

/** What `npm test` runs: these suites, and the fault tests that take less than 20 s. */
const SUITES = ['unit', 'contract', 'security', 'e2e'];
/** Files of these suites that run only if they are named, or as `long`: they wait for long. */
const LONG = [
  'contract/fleet-limits',
  'e2e/ai-stream',
  'e2e/artillery',
  'e2e/balance',
  'e2e/capacity',
  'e2e/client',
  'e2e/client-shared',
  'e2e/client-sse',
  'e2e/console-page',
  'e2e/console-page-trouble',
  'e2e/examples',
  'e2e/guides',
  'e2e/hooks-processes',
  'e2e/large-messages-fleet',
  'e2e/load-scale',
  'e2e/release',
  'e2e/swarm',
  'e2e/tutorial',
];
const SHORT_FAULTS = ['worker-killed', 'sigterm', 'per-ip'];
/**
 * Runs only if it is named, and one file at a time: it takes minutes, and measures times.
 */
const FAULTS = 'faults';
/**
 * These files begin first, slowest first. A slow file that begins last would run alone at the end.
 */
const SLOW = [
  'contract/history',
  'e2e/sse',
  'unit/types',
  'contract/broker',
  'faults/sigterm',
  'contract/fleet',
  'e2e/package',
  'unit/supervisor',
  'e2e/http-api',
  'e2e/cluster',
  'e2e/auth',
  'e2e/fleet',
  'e2e/tls',
  'e2e/proxy',
  'e2e/redis-faults',
  'contract/presence',
  'e2e/bench',
  'e2e/ops',
  'faults/worker-killed',
  'e2e/prometheus',
];
/** How many of the slowest files are listed at the end. */
const SHOWN = 20;
/** For one file, also if it hangs. The slowest takes 50 s, and three times as long on a busy machine. */
const FILE_TIMEOUT_MS = 240_000;
const LONG_TIMEOUT_MS = 300_000;
const FAULTS_TIMEOUT_MS = 900_000;
const CONCURRENCY = 4;

const here = fileURLToPath(new URL('.', import.meta.url));
const given = process.argv.slice(2);
const wanted =
  given.length > 0 ? given : [...SUITES, ...SHORT_FAULTS.map((name) => `faults/${name}`)];
const files = wanted.flatMap(filesOf);
// Debian keeps haproxy, nginx and ip outside a normal user's PATH.
/** @type {NodeJS.ProcessEnv} */
const env = { ...process.env, PATH: `${process.env.PATH}:/usr/local/sbin:/usr/sbin:/sbin` };
// Tests make configurations of their own, and servers with an environment of their own.
if (env.FANFARE_FAST_PATHS === 'off') env.TEST_HIDDEN_FIELD ??= 'off';
if (env.TEST_HIDDEN_FIELD !== undefined) {
  const preload = new URL('./helpers/hidden/preload.js', import.meta.url).href;
  env.NODE_OPTIONS = `${env.NODE_OPTIONS ?? ''} --import ${preload}`;
}
if (env.TEST_TLS === 'on') {
  const preload = new URL('./helpers/tls/preload.js', import.meta.url).href;
  env.NODE_OPTIONS = `${env.NODE_OPTIONS ?? ''} --import ${preload}`;
}
process.env = env;
const areFaults = wanted.includes(FAULTS);
const areLong = files.some((file) => LONG.includes(testNameOf(file)));
const aborted = new AbortController();
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM']))
  process.once(signal, () => aborted.abort());
/** @type {[file: string, seconds: number][]} */
const times = [];
const results = run({
  files: areFaults ? files : slowestFirst(files),
  concurrency: areFaults ? 1 : CONCURRENCY,
  timeout: areFaults ? FAULTS_TIMEOUT_MS : areLong ? LONG_TIMEOUT_MS : FILE_TIMEOUT_MS,
  signal: aborted.signal,
});
results.on('test:fail', () => {
  process.exitCode = 1;
});
results.on('test:complete', ({ name, details }) => {
  if (files.includes(name)) times.push([testNameOf(name), details.duration_ms / 1000]);
});
results.on('end', () => {
  times.sort(([, one], [, other]) => other - one);
  const slowest = times.slice(0, SHOWN).map(([name, s]) => `${name} ${s.toFixed(1)} s`);
  console.log(`slowest files: ${slowest.join(', ')}`);
});
results.pipe(new spec()).pipe(process.stdout);

/**
 * @param {string} name a suite, or one of its files: `faults/sigterm`
 * @returns {string[]} ends the process if there is no such test
 */
function filesOf(name) {
  if (name === 'long') return LONG.flatMap(filesOf);
  const [suite, ...rest] = name.split('/');
  if ([...SUITES, FAULTS].includes(suite)) {
    if (rest.length === 0)
      return readdirSync(`${here}${suite}`)
        .filter((file) => file.endsWith('.test.js') && !LONG.includes(testName(suite, file)))
        .map((file) => `${here}${suite}/${file}`);
    const file = `${here}${suite}/${rest.join('/').replace(/\.test\.js$/, '')}.test.js`;
    if (existsSync(file)) return [file];
  }
  console.error(
    `no suite or test ${name}; the suites are ${[...SUITES, FAULTS, 'long'].join(', ')}`,
  );
  process.exit(64);
}

/**
 * @param {string} suite
 * @param {string} file
 */
function testName(suite, file) {
  return `${suite}/${file.replace(/\.test\.js$/, '')}`;
}

/** @param {string} path */
function testNameOf(path) {
  return testName(basename(dirname(path)), basename(path));
}

/** @param {readonly string[]} paths */
function slowestFirst(paths) {
  const rank = (/** @type {string} */ path) => SLOW.indexOf(testNameOf(path)) + 1 || 1000;
  return [...paths].sort((one, other) => rank(one) - rank(other));
}
