// run.js: runs the test suites with node:test, all of them or those named:
// `node test/run.js unit e2e`.
//
// FANFARE_FAST_PATHS=off runs them without fast paths. TEST_HIDDEN_FIELD runs them with one private
// field of Node, ws or ioredis hidden (helpers/hidden/fields.js). TEST_TLS=on runs them with TLS
// between each test and its servers (helpers/tls/preload.js).
//
// Node 20's `--test` expands no globs, so this file does. It runs three files at a time, because
// tests of whole clusters mostly wait. More of them on a small machine measure only each other.

import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** What `npm test` runs: these suites, and the fault tests that take less than a minute. */
const SUITES = ['unit', 'contract', 'security', 'e2e'];
/** Files of these suites that run only if they are named, or as `long`: they wait for long. */
const LONG = [
  'contract/fleet-limits',
  'e2e/ai-stream',
  'e2e/balance',
  'e2e/client',
  'e2e/client-shared',
  'e2e/examples',
  'e2e/tutorial',
];
const SHORT_FAULTS = ['worker-killed', 'sigterm', 'redis-away', 'per-ip', 'rate-limit'];
/**
 * Runs only if it is named, and one file at a time: it takes minutes, and measures times.
 */
const FAULTS = 'faults';
/** For one file, also if it hangs. */
const FILE_TIMEOUT_MS = 120_000;
const FAULTS_TIMEOUT_MS = 900_000;
const CONCURRENCY = 3;

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
const areFaults = wanted.includes(FAULTS);
const options = [
  '--test',
  `--test-concurrency=${areFaults ? 1 : CONCURRENCY}`,
  `--test-timeout=${areFaults ? FAULTS_TIMEOUT_MS : FILE_TIMEOUT_MS}`,
  '--test-reporter=spec',
];
const child = spawn(process.execPath, [...options, ...files], { stdio: 'inherit', env });
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM']))
  process.on(signal, () => child.kill(signal));
child.on('exit', (code) => process.exit(code ?? 1));

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
