// newest.js: tries the newest Node, ws, ioredis, Redis and Valkey, and says what breaks:
//
//   node test/run.js newest                  all of them; an hour on two cores, and the network
//   node test/run.js newest ws ioredis@5     these, and such a version
//
// It works in a clone of the last commit, in the temporary folder, so the tree stays as it is. What
// fails runs again, because a busy machine fails some tests by chance. It ends with 1 if something
// breaks. CI runs it once a week (.ci/newest), so that we meet a change before our users do.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { NODE_LINES } from '../src/doctor/versions.js';
import { countsOf, failuresOf, newestOf, verdictOf } from './helpers/newest.js';

/** @import { Failure, Trial } from './helpers/newest.js' */

const HOUR_MS = 3_600_000;
const root = fileURLToPath(new URL('..', import.meta.url));
const NODE_PACKAGE = `node-${process.platform}-${process.arch}`;
/** Real servers on real sockets. */
const SERVER = ['e2e/handshakes', 'e2e/http-api', 'e2e/sse', 'e2e/tls', 'e2e/cluster', 'e2e/ops'];
/** What a change of the library reaches. @type {Readonly<Record<string, readonly string[]>>} */
const SUITES = Object.freeze({
  ws: ['unit', 'security', 'contract/fast-paths', 'e2e/handshakes', 'e2e/tls', 'e2e/cluster'],
  ioredis: ['unit', 'contract', 'e2e/redis-faults', 'e2e/redis-topologies', 'e2e/cluster'],
});

/** What a change of Redis reaches beside the contracts: topologies, histories, outages. */
const REDIS = [
  ...['e2e/redis-faults', 'e2e/redis-topologies', 'e2e/redis-newer', 'e2e/forged', 'e2e/state'],
  ...['e2e/redis-history-epochs', 'e2e/redis-history-reads', 'e2e/redis-history-writes'],
  ...['faults/redis', 'faults/redis-passwords', 'faults/redis-topologies', 'faults/cluster-loss'],
];

/** @type {Readonly<Record<string, (version: string) => Promise<Trial | Trial[]>>>} */
const PARTS = Object.freeze({
  node: tryNode,
  ws: (version) => tryLibrary('ws', version),
  ioredis: (version) => tryLibrary('ioredis', version),
  redis: () => tryServer('redis-newest'),
  valkey: () => tryServer('valkey-newest'),
});

const wanted = process.argv.slice(2).map((name) => name.split('@'));
for (const [name] of wanted)
  if (!(name in PARTS)) {
    console.error(`newest: no such part: ${name}; there are ${Object.keys(PARTS).join(', ')}`);
    process.exit(64);
  }
const copy = mkdtempSync(join(tmpdir(), 'fanfare-newest-'));
// Programs that a signal has ended with this one may still write there.
process.on('exit', () => rmSync(copy, { recursive: true, force: true, maxRetries: 10 }));
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM']))
  process.once(signal, () => process.exit(1)); // the programs get it, too, or end with their pipe

await mustRun('git', ['clone', '--quiet', root, copy]);
await mustRun('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']);
/** @type {Trial[]} */
const trials = [];
for (const [name, version] of wanted.length > 0 ? wanted : Object.keys(PARTS).map((one) => [one]))
  trials.push(...[await PARTS[name](version ?? '')].flat());
const { text, breaks } = verdictOf(trials);
console.log(`\n${text}`);
process.exitCode = breaks ? 1 : 0;

/** @param {string} version '' is the newest @returns {Promise<Trial>} */
async function tryNode(version) {
  const chosen = version || (await newestIn(NODE_PACKAGE));
  const line = chosen.split('.')[0];
  const note = line in NODE_LINES ? '' : `${line} is a new line: add it to src/doctor/versions.js`;
  const env = { NODES: chosen };
  const run = (/** @type {readonly string[]} */ suites) =>
    tests('bash', ['test/nodes.sh'], suites, env);
  return judge(`Node ${chosen}`, ['unit', 'contract', 'security', ...SERVER], run, note);
}

/** @param {string} name of a package @param {string} version @returns {Promise<Trial>} */
async function tryLibrary(name, version) {
  const { version: ours } = JSON.parse(
    readFileSync(join(copy, 'node_modules', name, 'package.json'), 'utf8'),
  );
  const chosen = version || (await newestIn(name));
  if (chosen === ours) return { name: `${name} ${ours}`, note: 'we have the newest already' };
  await mustRun('npm', ['install', '--no-save', '--no-audit', '--no-fund', `${name}@${chosen}`]);
  const trial = await judge(`${name} ${chosen}, after ${ours}`, SUITES[name], suites());
  await mustRun('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']);
  return trial;
}

/** @param {string} name of test/redis-versions.sh @returns {Promise<Trial | Trial[]>} */
async function tryServer(name) {
  const run = () => tests('bash', ['test/redis-versions.sh'], [name], {});
  const { code, output } = await run();
  const title = /^Redis server v=(\S+)|^Valkey server v=(\S+)/m.exec(output);
  const version = title === null ? name : title[1] ? `Redis ${title[1]}` : `Valkey ${title[2]}`;
  if (output.includes('not to be had here')) return { name, note: 'it is not to be had here' };
  const others = (/** @type {readonly string[]} */ files) =>
    tests('bash', ['test/redis-versions.sh', name, '--'], files, {});
  return [
    await judge(`${version}, contracts`, [name], run, '', { code, output }),
    await judge(`${version}, real servers and faults`, REDIS, others),
  ];
}

function suites() {
  return (/** @type {readonly string[]} */ names) =>
    tests(process.execPath, ['test/run.js'], names, {});
}

/** @typedef {{code: number, output: string}} Run */

/**
 * Runs tests, and those files alone that have failed.
 * @param {string} name
 * @param {readonly string[]} names of suites and files
 * @param {(names: readonly string[]) => Promise<Run>} run
 * @param {string} [note]
 * @param {Run} [first] if it is over already
 * @returns {Promise<Trial>}
 */
async function judge(name, names, run, note = '', first) {
  const { code, output } = first ?? (await run(names));
  const counts = countsOf(output);
  if (code === 0) return { name, note, counts, failures: [] };
  const failed = failuresOf(output);
  const files = [...new Set(failed.map(({ file }) => file))];
  if (files.length === 0) return { name, note, counts, failures: [], lost: output.slice(-2000) };
  // redis-versions.sh runs a whole suite and takes no names of files.
  const again = first === undefined ? await run(files) : await run(names);
  const remaining = again.code === 0 ? [] : failuresOf(again.output);
  const is = (/** @type {Failure} */ one) => (/** @type {Failure} */ other) =>
    one.file === other.file && one.name === other.name;
  return {
    name,
    note,
    counts,
    failures: remaining,
    chance: failed.filter((one) => !remaining.some(is(one))),
  };
}

/**
 * @param {string} program @param {readonly string[]} args @param {readonly string[]} names
 * @param {NodeJS.ProcessEnv} env
 * @returns {Promise<Run>}
 */
function tests(program, args, names, env) {
  return start(program, [...args, ...names], env);
}

/** @param {string} program @param {readonly string[]} args */
async function mustRun(program, args) {
  const { code } = await start(program, args, {});
  if (code !== 0) throw new Error(`${program} ${args.join(' ')} ended with ${code}`);
}

/**
 * Keeps the output, and shows it.
 * @param {string} program @param {readonly string[]} args @param {NodeJS.ProcessEnv} more
 * @param {boolean} [isShown]
 * @returns {Promise<Run>}
 */
function start(program, args, more, isShown = true) {
  console.log(`> ${program} ${args.join(' ')}`);
  const child = spawn(program, args, {
    cwd: copy,
    env: { ...process.env, ...more },
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: HOUR_MS,
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text) => {
    output += text;
    if (isShown) process.stdout.write(text);
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve({ code: code ?? 1, output }));
  });
}

/** @param {string} name of a package of npm @returns {Promise<string>} its newest release */
async function newestIn(name) {
  const { code, output } = await start('npm', ['view', name, 'versions', '--json'], {}, false);
  if (code !== 0) throw new Error(`npm knows no versions of ${name}`);
  return newestOf(JSON.parse(output));
}
