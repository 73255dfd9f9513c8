// run.js: runs test suites with node:test: `node test/run.js`, `node test/run.js unit e2e`,
// `node test/run.js faults/sigterm`.
//
// Node 20's `--test` expands no globs, so this file does. It runs two files at a time, because the
// end-to-end suites start whole clusters: more of them on a small machine measure only each other.

import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** What `npm test` runs: these suites, and the fault tests that take less than a minute. */
const SUITES = ['unit', 'contract', 'security', 'e2e'];
const SHORT_FAULTS = ['worker-killed', 'sigterm', 'redis-away', 'per-ip', 'rate-limit'];
/**
 * Runs only if it is named, and one file at a time: it takes minutes, and measures times.
 */
const FAULTS = 'faults';
/** For one file, also if it hangs. */
const FILE_TIMEOUT_MS = 120_000;
const FAULTS_TIMEOUT_MS = 900_000;
const CONCURRENCY = 2;

const here = fileURLToPath(new URL('.', import.meta.url));
const given = process.argv.slice(2);
const wanted =
  given.length > 0 ? given : [...SUITES, ...SHORT_FAULTS.map((name) => `faults/${name}`)];
const files = wanted.flatMap(filesOf);
// Debian keeps haproxy, nginx and ip outside a normal user's PATH.
const env = { ...process.env, PATH: `${process.env.PATH}:/usr/local/sbin:/usr/sbin:/sbin` };
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
  const [suite, ...rest] = name.split('/');
  if ([...SUITES, FAULTS].includes(suite)) {
    if (rest.length === 0)
      return readdirSync(`${here}${suite}`)
        .filter((file) => file.endsWith('.test.js'))
        .map((file) => `${here}${suite}/${file}`);
    const file = `${here}${suite}/${rest.join('/').replace(/\.test\.js$/, '')}.test.js`;
    if (existsSync(file)) return [file];
  }
  console.error(`no suite or test ${name}; the suites are ${[...SUITES, FAULTS].join(', ')}`);
  process.exit(64);
}
