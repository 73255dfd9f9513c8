// A simulated run is determined by its seed, and finds a fault of the program.

import assert from 'node:assert/strict';
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { ACTS } from '../simulation/acts.js';
import { KINDS } from '../simulation/cast.js';
import { CHECKS } from '../simulation/checks.js';
import { readCorpus } from '../simulation/corpus.js';
import { FAULTS } from '../simulation/faults.js';
import { asFunctionBody } from '../simulation/modules.js';
import { MUTANTS } from '../simulation/mutants/list.js';
import { runPlan } from '../simulation/run-plan.js';
import { drawPlan } from '../simulation/simulation.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** Small enough for a second of processor time. */
const SMALL = {
  topology: /** @type {const} */ ('redis'),
  servers: 2,
  workers: 1,
  hasWebhooks: false,
  hasPusher: false,
  load: {
    ...{ clients: 8, rooms: 4, hasHistory: true, roomsPerClient: 2, publishers: 2, rate: 10 },
    ...{ isMixed: false, hasCentrifugo: false },
  },
  chaosMs: 5000,
};

test('the same seed gives the same trace', async () => {
  const plan = drawPlan(7, SMALL);
  const [one, again] = await Promise.all([runPlan(plan), runPlan(plan)]);
  assert.ok(one.isClean, one.story?.join('\n'));
  assert.ok(one.deliveries > 100, `${one.deliveries} deliveries`);
  assert.equal(one.hash, again.hash);
});

test('a plan is JSON, and the draw of a seed does not change', () => {
  const plan = drawPlan(7, SMALL);
  assert.deepEqual(JSON.parse(JSON.stringify(plan)), plan);
  assert.deepEqual(drawPlan(7, SMALL), plan);
  assert.notDeepEqual(drawPlan(8, SMALL), plan);
  for (const { faults } of plan.schedule)
    for (const { name } of faults) assert.ok(name in FAULTS, name);
});

test('a file of the program becomes a function of what it imports, and keeps its lines', () => {
  const text = [
    'import a, { b as c,',
    "  d } from './x.js';",
    "import * as all from 'node:os';",
    "/** @type {import('./y.js').Y} */",
    'export const { e, f: g } = all;',
    'export function h() {',
    "  return [c, d, import.meta.url, import('./y.js')];",
    '}',
    "export { i as j } from './z.js';",
    'export { a };',
  ].join('\n');
  const { body, imports, exports } = asFunctionBody(text);
  assert.deepEqual(imports.sort(), ['./x.js', './z.js', 'node:os']);
  assert.equal(body.split('\n').length, text.split('\n').length);
  assert.match(body, /^\/\*\* @type \{import\('\.\/y\.js'\)\.Y\} \*\/$/m);
  const run = new Function('$imported', '$meta', '$load', `${body}; return {${exports}};`);
  const imported = { './x.js': { default: 1, b: 2, d: 3 }, 'node:os': { e: 4, f: 5 } };
  const made = run(
    { ...imported, './z.js': { i: 6 } },
    { url: 'u' },
    (/** @type {string} */ y) => y,
  );
  const { h, ...rest } = made;
  assert.deepEqual(rest, { a: 1, e: 4, g: 5, j: 6 });
  assert.deepEqual(h(), [2, 3, 'u', './y.js']);
});

test('scripts of the corpus name acts, clients and checks, and former code fits the present files', () => {
  for (const { name, entry } of readCorpus()) {
    for (const { do: act, as, that } of entry.plan.script ?? []) {
      assert.ok(act in ACTS, `${name}: ${act}`);
      if (act === 'enter') assert.ok(as in KINDS, `${name}: ${as}`);
      if (act === 'check') assert.ok(that in CHECKS, `${name}: ${that}`);
    }
    for (const { file, find, replace } of entry.former ?? []) {
      const parts = readFileSync(join(ROOT, file), 'utf8').split(find);
      assert.equal(parts.length, 2, `${name}: ${file} has ${parts.length - 1} times: ${find}`);
      assert.notEqual(find, replace, name);
    }
  }
});

test('a planted bug breaks a rule', async (t) => {
  const tree = temporaryFolder(t);
  cpSync(join(ROOT, 'src'), join(tree, 'src'), { recursive: true });
  cpSync(join(ROOT, 'package.json'), join(tree, 'package.json'));
  symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
  const bug = MUTANTS.find(({ name }) => name === 'joins-replay-without-first');
  assert.ok(bug);
  const path = join(tree, bug.file);
  writeFileSync(
    path,
    readFileSync(path, 'utf8').replace(bug.find, () => bug.replace),
  );
  const load = { ...SMALL.load, isBusy: true };
  const plan = drawPlan(7, { ...SMALL, load, only: ['clientsReset'] });
  const { broken } = await runPlan(plan, { trees: [tree] });
  assert.ok(broken.length > 0);
});
