// run.js: runs the test suites with node:test, all of them or those named:
// `node test/run.js unit e2e`. A program of suites.js gets the options that follow its name:
// `node test/run.js soak --minutes 10`.
//
// FANFARE_FAST_PATHS=off runs them without fast paths. TEST_HIDDEN_FIELD runs them with one private
// field of Node, ws or ioredis hidden (helpers/hidden/fields.js). TEST_TLS=on runs them with TLS
// between each test and its servers (helpers/tls/preload.js).
//
// Node's `--test` sorts its files by name, so this file runs them itself, the slow ones first. It
// runs four files at a time, because tests of whole clusters mostly wait. More of them on a small
// machine measure only each other.

import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { fileURLToPath } from 'node:url';
import { FOLDERS, NAMES, PROGRAMS, SETS } from './suites.js';

/** Runs only if it is named, and one file at a time: it takes minutes, and measures times. */
const FAULTS = 'faults';
/** `npm test` runs these suites, and the fault tests that take less than 20 s. */
const SUITES = Object.keys(FOLDERS).filter((name) => name !== FAULTS);
/** A suite leaves out these files. */
const LONG = SETS.long.files;
const SHORT_FAULTS = ['worker-killed', 'sigterm', 'per-ip'];
/**
 * These files begin first, slowest first. A slow file that begins last would run alone at the end.
 */
const SLOW = [
  'e2e/sse',
  'e2e/centrifugo-connection',
  'e2e/cluster',
  'unit/types',
  'contract/history',
  'e2e/auth',
  'unit/webhook-delivery',
  'e2e/pusher-js',
  'e2e/fleet',
  'contract/webhook-edges',
  'unit/supervisor',
  'contract/fleet',
  'contract/broker',
  'contract/webhook-queue',
  'unit/short-handshake-answers',
  'security/centrifugo',
  'e2e/proxy',
  'e2e/http-api',
  'e2e/cli',
  'e2e/webhooks-pusher',
  'e2e/redis-faults',
  'unit/tls',
  'contract/revocations',
  'e2e/pusher-channels',
  'e2e/package',
  'e2e/pusher-presence',
  'faults/sigterm',
  'e2e/tls',
  'contract/presence',
  'contract/presence-redis',
  'unit/foreign-writes',
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
// Files wait more than they compute: four at a time used 1.3 of two processors.
const CONCURRENCY = 5;

const here = fileURLToPath(new URL('.', import.meta.url));
const given = process.argv.slice(2);
if (given.includes('--help') && !(given[0] in PROGRAMS)) {
  const usage = 'node test/run.js [SUITE | SUITE/FILE]...\nnode test/run.js PROGRAM [OPTION]...\n';
  console.log([usage, ...NAMES.map(([name, about]) => `${name.padEnd(16)}${about}`)].join('\n'));
  process.exit(0);
}
if (given[0] in PROGRAMS) process.exit(await runProgram(given[0], given.slice(1)));
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
const areFaults = given.length > 0 && files.some((file) => testNameOf(file).startsWith(FAULTS));
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
  if (name in SETS) return SETS[name].files.flatMap(filesOf);
  const [suite, ...rest] = name.split('/');
  if (suite in FOLDERS) {
    if (rest.length === 0)
      return readdirSync(`${here}${suite}`)
        .filter((file) => file.endsWith('.test.js') && !LONG.includes(testName(suite, file)))
        .map((file) => `${here}${suite}/${file}`);
    const file = `${here}${suite}/${rest.join('/').replace(/\.test\.js$/, '')}.test.js`;
    if (existsSync(file)) return [file];
  }
  console.error(`no suite or test ${name}; node test/run.js --help lists them`);
  process.exit(64);
}

/**
 * @param {string} name of PROGRAMS
 * @param {readonly string[]} options
 * @returns {Promise<number>} its exit code
 */
function runProgram(name, options) {
  const { command, env } = PROGRAMS[name];
  const [program, ...args] = [...command.split(' '), ...options];
  const cwd = fileURLToPath(new URL('..', import.meta.url));
  const child = spawn(program, args, { cwd, stdio: 'inherit', env: { ...process.env, ...env } });
  // Ctrl-C reaches the program without our help, which ends when it has cleaned up.
  process.on('SIGINT', () => {});
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  return new Promise((resolve) => {
    child.on('error', (error) => {
      console.error(error.message);
      resolve(1);
    });
    child.on('exit', (code) => resolve(code ?? 1));
  });
}

/** @param {string} suite @param {string} file */
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
