// simulate.js: runs simulated fleets, one seed after another, each in a process of its own.
//
//   node test/run.js simulate                       fresh seeds for ten minutes
//   node test/run.js simulate --seed 7 --trace FILE one seed again, all its events in a file
//   node test/run.js simulate --corpus              the seeds and schedules of test/simulation/seeds
//
// A seed that breaks an invariant is reduced and told as a story, with the command that repeats it.
// Exits with 0 if nothing was violated.

import { spawn } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Random } from '../checker/random.js';
import { readOptions } from '../harness/options.js';
import { print } from '../harness/run.js';
import { FAULTS } from './faults.js';
import { shrink } from './shrink.js';
import { drawPlan, simulate } from './simulation.js';
import { tell } from './story.js';

const SEEDS = new URL('seeds/', import.meta.url);
const RUN_TIMEOUT_MS = 600_000;
/** Each process has functions of its own, so most run too seldom for the optimizing compiler. */
const FLAGS = ['--experimental-vm-modules', '--no-warnings', '--always-sparkplug'];

/** @import { Plan } from './simulation.js' */
/** @import { Summary } from './story.js' */

const { values: options, given } = readOptions(
  `Whole fleets in one thread, on virtual time: a seed repeats a run.

  node test/run.js simulate --minutes 1
  node test/run.js simulate --seed 7 --trace /tmp/trace`,
  `minutes M | number 0.01..6000 | 10 | duration, of fresh seeds
  seed N | whole 0.. | | runs this seed only
  first N | whole 0.. | | first of the seeds; without it they are fresh
  jobs N | whole 1..64 | ${availableParallelism()} | processes at a time
  plan JSON | | | replaces parts of what the seed draws
  chaos S | number 0..36000 | 120 | virtual seconds with faults
  only LIST | list of ${Object.keys(FAULTS).join(' ')} | | faults to choose from
  corpus | | | runs the corpus
  trace FILE | | | writes all events of a seed
  no-shrink | | | does not reduce a seed that fails
  child | | | `,
);

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
  const outcome = await simulate(plan, { keepsTrace: true });
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

/** @param {Plan} plan @param {string[]} [more] @returns {Promise<Summary>} */
function runPlan(plan, more = []) {
  return new Promise((resolve, reject) => {
    const file = fileURLToPath(import.meta.url);
    const flags = [...FLAGS, file, '--child', ...more];
    const one = spawn(process.execPath, flags, { stdio: ['pipe', 'pipe', 'inherit'] });
    const timer = setTimeout(() => one.kill('SIGKILL'), RUN_TIMEOUT_MS);
    let text = '';
    one.stdout.setEncoding('utf8').on('data', (part) => {
      text += part;
    });
    one.on('close', (code, signal) => {
      clearTimeout(timer);
      try {
        resolve(JSON.parse(text));
      } catch {
        reject(
          new Error(`seed ${plan.seed}: the run ended with ${code ?? signal}, without a result`),
        );
      }
    });
    one.stdin.on('error', () => {});
    one.stdin.end(JSON.stringify(plan));
  });
}

async function main() {
  if (options.corpus) return corpus();
  if (given.has('seed')) return one(draw(options.seed));
  const endMs = Date.now() + options.minutes * 60_000;
  const fresh = new Random(Math.floor(Math.random() * 2 ** 32));
  let next = given.has('first') ? options.first : 0;
  const sum = { runs: 0, virtualMs: 0, cpuMs: 0, events: 0, deliveries: 0, checks: 0, failed: 0 };
  await Promise.all(
    Array.from({ length: options.jobs }, async () => {
      while (Date.now() < endMs) {
        const seed = given.has('first') ? next++ : fresh.below(2 ** 32);
        const plan = draw(seed);
        const summary = await runPlan(plan);
        sum.runs++;
        for (const name of /** @type {const} */ ([
          'virtualMs',
          'cpuMs',
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
    `${sum.runs} seeds, ${(sum.virtualMs / 3_600_000).toFixed(2)} virtual hours in ${(sum.cpuMs / 1000).toFixed(0)} s of CPU, ${sum.events} events, ${sum.deliveries} deliveries, ${sum.checks} checks: ${sum.failed === 0 ? 'ok' : `${sum.failed} FAILED`}`,
  );
  return sum.failed === 0 ? 0 : 1;
}

/** @param {Plan} plan */
async function one(plan) {
  const summary = await runPlan(plan, options.trace ? ['--trace', options.trace] : []);
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
  const names = readdirSync(SEEDS).filter((name) => name.endsWith('.json'));
  let failed = 0;
  for (const name of names.sort()) {
    const { about, plan } = JSON.parse(readFileSync(new URL(name, SEEDS), 'utf8'));
    const summary = await runPlan(drawPlan(plan.seed, plan));
    print(
      `${summary.isClean ? 'ok' : 'FAIL'} ${name}: ${about} (${(summary.cpuMs / 1000).toFixed(1)} s of CPU)`,
    );
    if (summary.isClean) continue;
    failed++;
    for (const line of summary.story ?? []) print(line);
  }
  return failed === 0 ? 0 : 1;
}
