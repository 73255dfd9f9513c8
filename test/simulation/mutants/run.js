// run.js: plants one bug after the other into a copy of the tree, runs the tests of its area, and
// prints which of them found it.
//
//   node test/simulation/mutants/run.js [--suite unit,contract,simulation] [--area state]
//     [--only NAME,NAME]
//     [--seconds 120] [--first SEED] [--json FILE]
//
// Seconds are those of the clock for tests, and of the processor for simulated runs. The area chooses
// the shape of these (areas.js): topology, clients and faults. A seed that fails without the bug, too,
// counts for nothing.
//
// The copy has hard links to the files of the tree; the changed file is a new one. A suite ends with
// its first failing file, and begins no file after its seconds. First all files run without a bug: one
// that then takes several times as long hangs, which finds the bug, too.

import { spawn } from 'node:child_process';
import {
  copyFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Random } from '../../checker/random.js';
import { runPlan } from '../run-plan.js';
import { kindOf } from '../shrink.js';
import { drawPlan, isPossible } from '../simulation.js';
import { AREAS } from './areas.js';
import { MUTANTS } from './list.js';

/** @import { Mutant } from './list.js' */

/**
 * @typedef {object} Found
 * @property {string} suite @property {string} file @property {string} test
 */
/**
 * How a suite looks for a bug.
 * @typedef {(tree: string, mutant: Mutant, seconds: number) => Promise<Omit<Found, 'suite'>|null>} Suite
 */

/** Does a seed fail without a bug? By area and seed. @type {Map<string, boolean>} */
const failing = new Map();
/** How long a file takes without a bug, in ms, by path. @type {Map<string, number>} */
const usual = new Map();
const COPIED = ['src', 'test', 'docs', 'examples', 'loadtest', 'ops', 'package.json', 'README.md'];
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** By name. @type {Record<string, Suite>} */
const SUITES = {
  unit: (tree, { area }, seconds) => runFiles(tree, 'unit', AREAS[area].unit, seconds),
  contract: (tree, { area }, seconds) => runFiles(tree, 'contract', AREAS[area].contract, seconds),
  simulation: runSeeds,
};
/** A short run meets fewer faults, but most seeds need few. */
const CHAOS_MS = 20_000;
/** Few kinds of faults in a run meet each other often. */
const MOST_FAULTS = 5;

const { values } = parseArgs({
  options: {
    suite: { type: 'string', default: 'unit,contract' },
    area: { type: 'string' },
    only: { type: 'string' },
    seconds: { type: 'string', default: '120' },
    first: { type: 'string', default: '1' },
    json: { type: 'string' },
  },
});
const only = values.only?.split(',');
const wanted = MUTANTS.filter(
  ({ name, area }) =>
    (only === undefined || only.includes(name)) &&
    (values.area === undefined || values.area === area),
);
const suites = values.suite.split(',');
const unknown = suites.filter((name) => !(name in SUITES));
if (wanted.length === 0 || unknown.length > 0) {
  console.error(`no such bug, area or suite; suites: ${Object.keys(SUITES).join(', ')}`);
  process.exit(64);
}
const tree = mkdtempSync(join(tmpdir(), 'fanfare-mutants-'));
process.on('exit', () => rmSync(tree, { recursive: true, force: true }));
process.on('SIGINT', () => process.exit(130));
process.on('SIGTERM', () => process.exit(143));
await copyTree();
await checkTests();
const rows = [];
for (const mutant of wanted) {
  rows.push(await look(mutant));
  if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(rows, null, 2));
}
const found = rows.filter((row) => row.found !== null).length;
console.log(`\n${found} of ${rows.length} found`);

/** Hard links, and the packages of the tree. */
async function copyTree() {
  const paths = COPIED.map((name) => join(ROOT, name));
  await exitOf(spawn('cp', ['-al', ...paths, tree]));
  symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
}

/** Tests that fail without a bug would find every one. */
async function checkTests() {
  const areas = new Map(wanted.map((mutant) => [mutant.area, mutant]));
  for (const mutant of areas.values())
    for (const suite of suites.filter((name) => name !== 'simulation')) {
      const by = await SUITES[suite](tree, mutant, 600);
      if (by === null) continue;
      console.error(`${suite}/${by.file} fails without a planted bug: ${by.test}`);
      process.exit(1);
    }
}

/** @param {Mutant} mutant */
async function look(mutant) {
  const { name, area, file, find, replace } = mutant;
  const path = join(tree, file);
  const text = readFileSync(path, 'utf8');
  const beganMs = performance.now();
  /** @type {Found|null} */
  let found = null;
  rmSync(path);
  writeFileSync(
    path,
    text.replace(find, () => replace),
  );
  for (const suite of suites) {
    const by = await SUITES[suite](tree, mutant, Number(values.seconds));
    if (by === null) continue;
    found = { suite, ...by };
    break;
  }
  rmSync(path);
  copyFileSync(join(ROOT, file), path);
  const seconds = Math.round((performance.now() - beganMs) / 1000);
  const by = found === null ? 'not found' : `${found.suite}/${found.file}: ${found.test}`;
  console.log(`| ${name} | ${area} | ${by} | ${seconds} s |`);
  return { name, area, found, seconds };
}

/**
 * @param {string} tree @param {string} suite @param {readonly string[]} files
 * @param {number} seconds @returns {Promise<Omit<Found, 'suite'>|null>}
 */
async function runFiles(tree, suite, files, seconds) {
  const endMs = performance.now() + seconds * 1000;
  for (const file of files) {
    if (performance.now() > endMs) return null;
    const test = await runFile(tree, `test/${suite}/${file}.test.js`);
    if (test !== null) return { file, test };
  }
  return null;
}

/**
 * Seed after seed, until one fails or the time is over.
 * @param {string} tree @param {Mutant} mutant @param {number} seconds of the processor
 * @returns {Promise<Omit<Found, 'suite'>|null>}
 */
async function runSeeds(tree, { area }, seconds) {
  const { runs } = AREAS[area];
  let cpuMs = 0;
  for (let seed = Number(values.first); cpuMs < seconds * 1000; seed++) {
    const { faults, ...part } = runs[seed % runs.length];
    const only = someOf(possible(faults, part), new Random(seed));
    const plan = drawPlan(seed, { chaosMs: CHAOS_MS, ...part, only });
    const outcome = await outcomeOf(plan, tree);
    cpuMs += outcome.cpuMs;
    if (outcome.broke === null) continue;
    const key = `${area} ${seed}`;
    if (!failing.has(key)) failing.set(key, await failsAnyway(plan));
    if (failing.get(key)) continue;
    return { file: `seed ${seed}, ${Math.round(cpuMs / 1000)} s of CPU`, test: outcome.broke };
  }
  return null;
}

/** @param {import('../simulation.js').Plan} plan */
async function failsAnyway(plan) {
  const { broke } = await outcomeOf(plan, ROOT);
  if (broke === null) return false;
  const { seed, ...rest } = plan;
  console.log(`seed ${seed} fails without a bug, too (${broke}):
  node test/run.js simulate --seed ${seed} --plan '${JSON.stringify(rest)}'`);
  return true;
}

/** @param {readonly string[]} faults @param {import('./areas.js').Part} part */
function possible(faults, { topology = 'redis', hasWebhooks = false }) {
  return faults.filter((name) => isPossible(name, { topology, hasWebhooks, only: faults }));
}

/** @param {readonly string[]} faults @param {Random} random */
function someOf(faults, random) {
  return random.shuffled(faults).slice(0, 1 + random.below(MOST_FAULTS));
}

/**
 * @param {import('../simulation.js').Plan} plan @param {string} tree
 * @returns {Promise<{cpuMs: number, broke: string|null}>} which rule broke
 */
async function outcomeOf(plan, tree) {
  const beganMs = performance.now();
  try {
    const summary = await runPlan(plan, { trees: [tree] });
    return { cpuMs: summary.cpuMs, broke: summary.isClean ? null : kindOf(summary) };
  } catch (error) {
    // A bug may end the process, or keep it busy until it is killed.
    const { message } = /** @type {Error} */ (error);
    return { cpuMs: performance.now() - beganMs, broke: message };
  }
}

/** @param {string} tree @param {string} path @returns {Promise<string|null>} the test that failed */
async function runFile(tree, path) {
  // Its own group, so that a file that hangs ends with the servers that it has started.
  const child = spawn(process.execPath, ['--test', '--test-reporter=tap', path], {
    cwd: tree,
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (piece) => {
    text += piece;
  });
  const beganMs = performance.now();
  let isLate = false;
  const kill = () => {
    isLate = true;
    process.kill(-Number(child.pid), 'SIGKILL');
  };
  const timer = setTimeout(kill, 20_000 + 4 * (usual.get(path) ?? 60_000));
  const code = await exitOf(child);
  clearTimeout(timer);
  if (!usual.has(path)) usual.set(path, performance.now() - beganMs);
  if (isLate) return 'hangs';
  return code === 0 ? null : (/^\s*not ok \d+ - (.*)$/m.exec(text)?.[1] ?? 'ends with an error');
}

/** @param {import('node:child_process').ChildProcess} child @returns {Promise<number>} */
function exitOf(child) {
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code) => resolve(code ?? 1));
  });
}
