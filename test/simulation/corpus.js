// corpus.js: former faults. Each entry of seeds/ names the commit that mended a fault, and a plan that
// finds it, drawn from a seed or with a script. The plan fails in the program from before that commit,
// and passes in that of the commit and in the present one. Where an earlier program cannot be
// simulated, the entry has `former`: what to replace in the present program to have the fault again.
//
//   node test/simulation/corpus.js check [NAME…]           that, for all entries or those named
//   node test/simulation/corpus.js find COMMIT NAME ABOUT   tries seeds, reduces one that finds it,
//                                                           and writes the entry; options: --seeds 20
//                                                           --first 1 --chaos 60 --plan JSON --only LIST

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { print } from '../harness/run.js';
import { presentTreeWith, treeBefore, treeOf } from './old-trees.js';
import { runPlan } from './run-plan.js';
import { kindOf, shrink } from './shrink.js';
import { drawPlan, wholePlan } from './simulation.js';

const SEEDS = new URL('seeds/', import.meta.url);

/** @import { Replacement, Tree } from './old-trees.js' */
/** @import { Plan } from './simulation.js' */
/** @import { Summary } from './story.js' */
/**
 * @typedef {object} Entry
 * @property {string} about the fault @property {string} fix the commit that mended it
 * @property {string} rule that breaks without it
 * @property {string} [oldHash] how the hash of that trace began when the entry was made
 * @property {readonly Replacement[]} [former] what makes the former program of the present one
 * @property {Plan} plan
 */

/** @returns {{name: string, entry: Entry}[]} */
export function readCorpus() {
  if (!existsSync(SEEDS)) return [];
  return readdirSync(SEEDS)
    .filter((name) => name.endsWith('.json'))
    .sort()
    .map((name) => {
      const entry = JSON.parse(readFileSync(new URL(name, SEEDS), 'utf8'));
      const { plan } = entry;
      return { name: name.slice(0, -'.json'.length), entry: { ...entry, plan: wholePlan(plan) } };
    });
}

/** @param {readonly string[]} names @returns {Promise<number>} exit code */
async function check(names) {
  let failed = 0;
  for (const { name, entry } of readCorpus()) {
    if (names.length > 0 && !names.includes(name)) continue;
    const { plan, former, fix, rule } = entry;
    const before = await runIn(former ? presentTreeWith(former) : treeBefore(fix), plan);
    const mended = former ? null : await runIn(treeOf(fix), plan);
    const now = await runPlan(plan);
    const isFound = !before.isClean && kindOf(before) === rule;
    const isMended = mended === null || mended.isClean || kindOf(mended) !== rule;
    const isGood = isFound && isMended && now.isClean;
    if (!isGood) failed++;
    const where = former ? `with the fault of ${fix}` : `before ${fix}`;
    print(
      `${isGood ? 'ok' : 'FAIL'} ${name}: ${where} ${verdictOf(before)} (${before.hash.slice(0, 16)})${mended === null ? '' : `, with it ${verdictOf(mended)}`}; now ${verdictOf(now)}, ${(now.cpuMs / 1000).toFixed(1)} s of CPU`,
    );
    if (!isGood) for (const line of (now.isClean ? before : now).story ?? []) print(line);
  }
  return failed === 0 ? 0 : 1;
}

/** @param {Summary} summary */
function verdictOf(summary) {
  return summary.isClean ? 'clean' : `breaks ${kindOf(summary)}`;
}

/** @param {Tree} tree is removed @param {Plan} plan @returns {Promise<Summary>} */
async function runIn({ tree, remove }, plan) {
  try {
    return await runPlan(plan, { trees: [tree] });
  } finally {
    remove();
  }
}

/**
 * @param {string} fix @param {string} name @param {string} about
 * @param {{seeds: number, first: number, chaosMs: number, given: object, only: string[]|undefined}} options
 */
async function find(fix, name, about, { seeds, first, chaosMs, given, only }) {
  const { tree, remove } = treeBefore(fix);
  try {
    for (let seed = first; seed < first + seeds; seed++) {
      const plan = drawPlan(seed, { ...given, chaosMs, ...(only && { only }) });
      const before = await runPlan(plan, { trees: [tree] }).catch(() => null);
      if (before === null || before.isClean) continue;
      const now = await runPlan(plan);
      if (!now.isClean) {
        print(`seed ${seed} fails in this tree, too: ${kindOf(now)}`);
        continue;
      }
      print(`seed ${seed} finds it: ${kindOf(before)}`);
      const least = await shrink(plan, before, (one) => runPlan(one, { trees: [tree] }));
      const isStillClean = (await runPlan(least.plan)).isClean;
      const mended = await runIn(treeOf(fix), isStillClean ? least.plan : plan);
      if (!mended.isClean && kindOf(mended) === kindOf(before)) {
        print(`seed ${seed} fails in the program of the commit, too`);
        continue;
      }
      const chosen = isStillClean ? least : { plan, summary: before };
      /** @type {Entry} */
      const entry = {
        about,
        fix,
        rule: kindOf(chosen.summary),
        oldHash: chosen.summary.hash.slice(0, 16),
        plan: chosen.plan,
      };
      writeFileSync(new URL(`${name}.json`, SEEDS), `${JSON.stringify(entry, null, 1)}\n`);
      return 0;
    }
    print(`${seeds} seeds have not found it`);
    return 1;
  } finally {
    remove();
  }
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      seeds: { type: 'string', default: '20' },
      first: { type: 'string', default: '1' },
      chaos: { type: 'string', default: '60' },
      plan: { type: 'string', default: '{}' },
      only: { type: 'string' },
    },
  });
  const [what, ...rest] = positionals;
  process.exitCode =
    what === 'find'
      ? await find(rest[0], rest[1], rest[2] ?? '', {
          seeds: Number(values.seeds),
          first: Number(values.first),
          chaosMs: Number(values.chaos) * 1000,
          given: JSON.parse(values.plan),
          only: values.only?.split(','),
        })
      : await check(rest);
}
