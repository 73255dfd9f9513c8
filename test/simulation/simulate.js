// simulate.js: runs simulated fleets, one seed after another, each in a process of its own.
//
//   node test/run.js simulate                       fresh seeds for ten minutes
//   node test/run.js simulate --seed 7 --trace FILE one seed again, all its events in a file
//   node test/run.js simulate --corpus              the seeds and schedules of test/simulation/seeds
//
// A seed that breaks an invariant is reduced and told as a story, with the command that repeats it.
// Exits with 0 if nothing was violated.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { Random } from '../checker/random.js';
import { readOptions } from '../harness/options.js';
import { print } from '../harness/run.js';
import { readCorpus } from './corpus.js';
import { FAULTS } from './faults.js';
import { runPlan } from './run-plan.js';
import { shrink } from './shrink.js';
import { drawPlan, simulate } from './simulation.js';
import { tell } from './story.js';

/** @import { Plan } from './simulation.js' */
/** @import { Summary } from './story.js' */

const { values: options, given } = readOptions(
  `Whole fleets in one thread, on virtual time: a seed repeats a run.

  node test/run.js simulate --minutes 1
  node test/run.js simulate --seed 7 --trace /tmp/trace`,
  `minutes M | number 0.01..6000 | 10 | duration, of fresh seeds
  seed N | whole 0.. | | runs this seed only
  first N | whole 0.. | | first of the seeds; without it they are fresh
  commit | | | the seeds of this commit: the same for everybody who has it
  jobs N | whole 1..64 | ${availableParallelism()} | processes at a time
  plan JSON | | | replaces parts of what the seed draws
  chaos S | number 0..36000 | 120 | virtual seconds with faults
  only LIST | list of ${Object.keys(FAULTS).join(' ')} | | faults to choose from
  corpus | | | runs the corpus
  tree DIR… | | | a checkout whose program the servers run; repeat it for servers of several versions
  trace FILE | | | writes all events of a seed
  no-shrink | | | does not reduce a seed that fails
  child | | | `,
);

/** @type {readonly string[]} */
const trees = options.tree ?? [];
const draw = (/** @type {number} */ seed) =>
  drawPlan(seed, {
    ...(options.plan ? JSON.parse(options.plan) : {}),
    chaosMs: options.chaos * 1000,
    ...(given.has('only') && { only: options.only }),
  });

if (options.child) await child();
else process.exitCode = await main();

/** Runs the plan of standard input, and prints a Summary. */
async function child() {
  const plan = JSON.parse(readFileSync(0, 'utf8'));
  const began = process.cpuUsage();
  const outcome = await simulate(plan, { keepsTrace: true, trees: options.tree });
  const { user, system } = process.cpuUsage(began);
  const { report, end, faults, hash, virtualMs, events, isClean, trace } = outcome;
  const broken = report.findings.filter(({ violations }) => violations > 0);
  /** @type {Summary} */
  const summary = {
    isClean,
    hash,
    virtualMs,
    events,
    cpuMs: (user + system) / 1000,
    checks: report.findings.reduce((sum, { checks }) => sum + checks, 0),
    deliveries: report.figures.counts.deliver ?? 0,
    inflicted: report.figures.counts.start ?? 0,
    broken: broken.map(({ id, claim, violations, examples }) => ({
      id,
      claim,
      violations,
      examples,
    })),
    faults: faults.slice(0, 5),
    end,
  };
  if (options.trace) writeFileSync(options.trace, (trace ?? []).join(''));
  const story = isClean ? [] : tell(summary, trace ?? []);
  process.stdout.write(JSON.stringify({ ...summary, story }));
  process.exit(0);
}

async function main() {
  if (options.corpus) return corpus();
  if (given.has('seed')) return one(draw(options.seed));
  const endMs = Date.now() + options.minutes * 60_000;
  const fresh = new Random(options.commit ? seedOfCommit() : Math.floor(Math.random() * 2 ** 32));
  let next = given.has('first') ? options.first : 0;
  const sum = {
    ...{ runs: 0, virtualMs: 0, cpuMs: 0, inflicted: 0, events: 0, deliveries: 0 },
    ...{ checks: 0, failed: 0 },
  };
  await Promise.all(
    Array.from({ length: options.jobs }, async () => {
      while (Date.now() < endMs) {
        const seed = given.has('first') ? next++ : fresh.below(2 ** 32);
        const plan = draw(seed);
        const summary = await runPlan(plan, { trees });
        sum.runs++;
        for (const name of /** @type {const} */ ([
          'virtualMs',
          'cpuMs',
          'inflicted',
          'events',
          'deliveries',
          'checks',
        ]))
          sum[name] += summary[name];
        if (summary.isClean) continue;
        sum.failed++;
        await explain(plan, summary);
      }
    }),
  );
  print(
    `${sum.runs} seeds, ${(sum.virtualMs / 3_600_000).toFixed(2)} virtual hours in ${(sum.cpuMs / 1000).toFixed(0)} s of CPU, ${sum.inflicted} faults, ${sum.events} events, ${sum.deliveries} deliveries, ${sum.checks} checks: ${sum.failed === 0 ? 'ok' : `${sum.failed} FAILED`}`,
  );
  return sum.failed === 0 ? 0 : 1;
}

/** Fresh for each commit, so that one that has passed keeps passing. */
function seedOfCommit() {
  const commit = execFileSync('git', ['rev-parse', 'HEAD'], { encoding: 'utf8' });
  return Number.parseInt(commit.slice(0, 8), 16);
}

/** @param {Plan} plan */
async function one(plan) {
  const summary = await runPlan(plan, { trees, trace: options.trace });
  const { hash, virtualMs, cpuMs, events, deliveries, isClean } = summary;
  print(
    `seed ${plan.seed}: ${isClean ? 'ok' : 'FAIL'}, ${(virtualMs / 1000).toFixed(0)} virtual s, ${(cpuMs / 1000).toFixed(1)} s of CPU, ${events} events, ${deliveries} deliveries, hash ${hash.slice(0, 16)}`,
  );
  if (isClean) return 0;
  await explain(plan, summary);
  return 1;
}

/** @param {Plan} plan @param {Summary} summary */
async function explain(plan, summary) {
  const {
    plan: least,
    summary: last,
    runs,
  } = options.noShrink ? { plan, summary, runs: 0 } : await shrink(plan, summary, runPlan);
  print(`\nseed ${plan.seed} FAILED; reduced by ${runs} runs:`);
  for (const line of last.story ?? []) print(line);
  const { seed, ...rest } = least;
  print(
    `repeat it: node test/run.js simulate --seed ${seed} --no-shrink --plan '${JSON.stringify(rest)}'\n`,
  );
}

/** Each entry must pass. */
async function corpus() {
  const entries = readCorpus();
  let failed = 0;
  const run = async () => {
    for (let one = entries.shift(); one !== undefined; one = entries.shift()) {
      const { name, entry } = one;
      const summary = await runPlan(entry.plan, { trees });
      if (summary.isClean) continue;
      failed++;
      print(`FAIL ${name}: ${entry.about}`);
      for (const line of summary.story ?? []) print(line);
    }
  };
  const { length } = entries;
  await Promise.all(Array.from({ length: options.jobs }, run));
  print(`${length} former faults: ${failed === 0 ? 'ok' : `${failed} FAILED`}`);
  return failed === 0 ? 0 : 1;
}
