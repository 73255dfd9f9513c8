// run.js: runs the test suites with node:test, all of them or those named:
// `node test/run.js unit e2e`.
//
// Node 20's `--test` expands no globs, so this does. Two files at a time: the end-to-end suites
// start whole clusters, and more at once on a small machine measure nothing but each other.

import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** What `npm test` runs. */
const SUITES = ['unit', 'contract', 'security', 'e2e'];
/** Only where it is named: it takes minutes, and times what it does, one file at a time. */
const FAULTS = 'faults';
/** Of one file, a hung one included. */
const FILE_TIMEOUT_MS = 120_000;
const FAULTS_TIMEOUT_MS = 900_000;
const CONCURRENCY = 2;

const here = fileURLToPath(new URL('.', import.meta.url));
const wanted = process.argv.slice(2);
for (const name of wanted) {
  if (SUITES.includes(name) || name === FAULTS) continue;
  console.error(`no suite ${name}; there are ${SUITES.join(', ')} and ${FAULTS}`);
  process.exit(64);
}
const files = (wanted.length > 0 ? wanted : SUITES).flatMap((suite) =>
  readdirSync(`${here}${suite}`)
    .filter((file) => file.endsWith('.test.js'))
    .map((file) => `${here}${suite}/${file}`),
);
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
