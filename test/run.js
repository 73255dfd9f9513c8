// run.js: runs the test suites with node:test, all of them or those named:
// `node test/run.js unit e2e`. A program of suites.js gets the options that follow its name:
// `node test/run.js soak --minutes 10`.
//
// FANFARE_FAST_PATHS=off runs them without fast paths. TEST_HIDDEN_FIELD runs them with one private
// field of Node, ws or ioredis hidden (helpers/hidden/fields.js). TEST_TLS=on runs them with TLS
// between each test and its servers (helpers/tls/preload.js).
//
// Node's `--test` sorts its files by name, so this file runs them itself: the slow ones early, the
// others spread between them. Slow ones mostly wait for servers, and the others mostly compute, so
// together they use the processors evenly. Small files share processes.

import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { FOLDERS, NAMES, PROGRAMS, SETS } from './suites.js';

/** Runs only if it is named, and one file at a time: it takes minutes, and measures times. */
const FAULTS = 'faults';
/** `npm test` runs these suites, and the fault tests that take less than 20 s. */
const SUITES = Object.keys(FOLDERS).filter((name) => name !== FAULTS);
/** A suite leaves out these files. */
const LONG = SETS.long.files;
const SHORT_FAULTS = ['worker-killed', 'sigterm'];
/** The slow files, slowest first. One that begins last would run alone at the end. */
const SLOW = [
  'e2e/sse',
  'e2e/cluster',
  'e2e/centrifugo-streams',
  'e2e/auth',
  'unit/supervisor',
  'contract/webhook-transitions',
  'contract/history',
  'e2e/fleet',
  'e2e/proxy',
  'e2e/state',
  'unit/types',
  'e2e/pusher-js',
  'e2e/pusher-presence',
  'contract/broker',
  'e2e/http-api',
  'e2e/cli',
  'e2e/pusher-limits',
  'e2e/centrifugo-connection',
  'e2e/reload',
  'e2e/recovery',
  'unit/short-handshake-answers',
  'e2e/doctor',
  'e2e/console',
  'e2e/ops',
  'contract/occupancy',
  'e2e/pusher-channels',
  'faults/sigterm',
  'e2e/centrifugo-http',
  'e2e/redis-faults',
  'contract/fleet',
  'e2e/hooks',
  'e2e/large-messages',
  'e2e/pusher-connection',
  'security/centrifugo',
  'contract/webhook-queue',
  'e2e/pusher-http',
  'e2e/tls',
  'contract/presence-redis',
  'unit/handshakes',
  'unit/courier-process',
  'contract/presence',
  'contract/revocations',
  'contract/state',
  'faults/worker-killed',
  'e2e/webhooks-pusher',
  'contract/webhook-transitions-redis',
];
/** As many small files of a suite share a process, which loads the modules once for all of them. */
const GROUPS = { unit: 12, contract: 4, security: 4, e2e: 4 };
/** Files that need a process of their own, because they change it or measure it. */
const ALONE = [
  'unit/client-publish',
  'unit/console',
  'unit/frame-reader',
  'unit/reader-costs',
  'unit/remote-keys',
  'unit/system-memory',
];
/** How many of the slowest files are listed at the end. */
const SHOWN = 20;
/** For one file, also if it hangs. The slowest takes 50 s, and three times as long on a busy machine. */
const FILE_TIMEOUT_MS = 240_000;
const LONG_TIMEOUT_MS = 300_000;
/** faults/webhooks takes 16 minutes, because events that fail wait for their next attempt. */
const FAULTS_TIMEOUT_MS = 1_800_000;
// Four at a time left processors idle. `time` shows too little: it misses the workers of servers that
// tests kill. With those, e2e/cluster takes 0.4 of a processor, and e2e/sse 0.5.
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
  files: areFaults ? files : packed(grouped(files)),
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

/**
 * Puts small files of a suite together. A file that is named alone keeps its own process.
 * @param {readonly string[]} paths
 * @returns {string[]} the other files, and modules that import the small ones
 */
function grouped(paths) {
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-tests-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const own = new Set(paths);
  const modules = Object.entries(GROUPS).flatMap(([suite, size]) => {
    const small = paths.filter((path) => {
      const name = testNameOf(path);
      return name.startsWith(`${suite}/`) && ![...ALONE, ...SLOW, ...LONG].includes(name);
    });
    if (small.length < 2) return [];
    for (const path of small) own.delete(path);
    return Array.from({ length: Math.ceil(small.length / size) }, (_, i) => {
      const path = join(folder, `${suite}-${i + 1}.mjs`);
      const imports = small
        .slice(i * size, (i + 1) * size)
        .map((file) => `import ${JSON.stringify(pathToFileURL(file).href)};\n`);
      writeFileSync(path, imports.join(''));
      return path;
    });
  });
  return [...own, ...modules];
}

/** @param {readonly string[]} paths @returns {string[]} in the order in which they begin */
function packed(paths) {
  const rank = (/** @type {string} */ path) => SLOW.indexOf(testNameOf(path));
  const slow = paths.filter((path) => rank(path) >= 0).sort((a, b) => rank(a) - rank(b));
  const others = paths.filter((path) => rank(path) < 0);
  const step = others.length / (slow.length + 1);
  const part = (/** @type {number} */ i) =>
    others.slice(Math.round(i * step), Math.round((i + 1) * step));
  return [...slow.flatMap((path, i) => [path, ...part(i)]), ...part(slow.length)];
}
