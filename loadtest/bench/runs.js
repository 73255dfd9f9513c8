// runs.js: what runs of fanfare-ai cost: the time for which a part collects, many runs, a reload.
//
//   node loadtest/bench/runs.js                  parts of 10 to 160 ms and 1 to 16 KB; two minutes
//   node loadtest/bench/runs.js --part many      1,000 runs at once, each with a reader
//   node loadtest/bench/runs.js --part reload    a reload in the middle of an answer of 2,000 tokens
//
// Tokens come evenly. A latency runs from `write` to the reader's loop, so it has the time for which
// the token has collected. Producers, readers and server share the cores of this machine.

import { Latency } from '../../test/harness/latency.js';
import { pause } from '../../test/harness/run.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { startServer, stopAll } from './servers.js';
import { startChild } from './webhooks-child.js';

const SECRET = 'bench-bench-bench-bench-bench-be';
const WARM_MS = 3000;
const ANSWER_TOKENS = 2000;
const ANSWER_RATE = 75;
let names = 0;
const HEAD = [
  'parts for 1,000 tokens',
  'server CPU for them, ms',
  'bytes a reader gets for them, KB',
  'p50, ms',
  'p99, ms',
];

/**
 * Runs that go on at the same time.
 * @typedef {{about: string, everyMs: number, partKb: number, count: number, readersOfRun: number, perSecond: number, size: number}} Load
 */

await experiment({
  question: 'Measures runs of fanfare-ai.',
  options: `part NAME | one of coalesce many reload | coalesce | time and size of parts, many runs at once, or a reload
  every LIST | list of 10 20 40 80 160 320 | 10,20,40,80,160 | ms for which a part collects
  runs N | whole 1..10000 | 1000 | runs at once, of part many
  rate N | number 1..1000 | 20 | tokens a second of each of them
  seconds S | number 1..600 | 4 | duration of each measurement
  limits MODES | | off | FANFARE_LIMITS of the server
  rounds N | whole 1..20 | 1 | rounds`,

  async setup({ owner, values: { part, limits } }) {
    owner.after(stopAll);
    const processes = part === 'many' ? 2 : 1;
    const start = () =>
      startServer('fanfare', {
        env: {
          API_KEYS: `bench ${SECRET} all`,
          FANFARE_HISTORY: 'run.*=10000/1h',
          FANFARE_LIMITS: limits,
        },
      });
    const startChildren = () =>
      Array.from({ length: processes }, () => startChild(owner, './client/run-ends.js'));
    return { start, startChildren };
  },

  async measure({ start, startChildren }, { values }) {
    if (values.part === 'reload') return [await reload(await start(), startChildren()[0])];
    const measured = [];
    let target = await start();
    for (const load of loadsOf(values)) {
      // Memory is told apart by load only in a fresh server.
      if (values.part === 'many' && measured.length > 0) {
        await target.close();
        target = await start();
      }
      measured.push(await measureLoad(target, startChildren(), load, values.seconds));
    }
    return measured;
  },

  report: (rounds, values) =>
    values.part === 'reload' ? reportReload(rounds) : reportLoads(rounds, values),
});

/** @param {import('../../test/harness/options.js').Values} values @returns {Load[]} */
function loadsOf({ part, every, runs, rate }) {
  const times = every.map(Number);
  if (part === 'many')
    return times.map((/** @type {number} */ everyMs) => ({
      ...{ about: `${everyMs} ms`, everyMs, partKb: 4, count: runs, readersOfRun: 1 },
      ...{ perSecond: rate, size: 0 },
    }));
  const shared = { count: 8, readersOfRun: 2 };
  const text = times.map((/** @type {number} */ everyMs) => ({
    ...{ about: `text, ${everyMs} ms`, everyMs, partKb: 4, perSecond: 50, size: 0, ...shared },
  }));
  const bulk = times.flatMap((/** @type {number} */ everyMs) =>
    [1, 4, 16].map((partKb) => ({
      ...{ about: `bulk, ${everyMs} ms, ${partKb} KB`, everyMs, partKb },
      ...{ perSecond: 500, size: 200, ...shared, count: 4 },
    })),
  );
  return [...text, ...bulk];
}

/**
 * @param {import('./servers.js').Target} target @param {ReturnType<typeof startChild>[]} children
 * @param {Load} load @param {number} seconds
 */
async function measureLoad(target, children, { about, ...load }, seconds) {
  const url = `http://${target.host}:${target.port}`;
  const kbBefore = target.pssKb();
  const count = load.count / children.length;
  const start = (/** @type {typeof children[0]} */ child) =>
    child.ask('start', { ...load, count, url, name: String(names++), apiKey: SECRET });
  await Promise.all(children.map(start));
  await pause(WARM_MS);
  await Promise.all(children.map((child) => child.ask('drain')));
  const cpuBefore = target.cpuSeconds();
  const beganMs = performance.now();
  await pause(1000 * seconds);
  const drained = await Promise.all(children.map((child) => child.ask('drain')));
  const took = (performance.now() - beganMs) / 1000;
  const cpu = target.cpuSeconds() - cpuBefore;
  const kb = (target.pssKb() - kbBefore) / load.count;
  const ended = await Promise.all(children.map((child) => child.ask('end')));
  const latency = new Latency();
  for (const one of drained) latency.addDrained(one.latency);
  const sum = (/** @type {string} */ name) => drained.reduce((all, one) => all + one[name], 0);
  const read = sum('tokens');
  const tokens = read / load.readersOfRun;
  const measured = {
    ...{ about, kb, cores: cpu / took, published: sum('parts') / took },
    share: tokens / (load.count * load.perSecond * took),
    parts: (1000 * sum('parts')) / tokens,
    cpuMs: (1e6 * cpu) / tokens,
    readKb: sum('bytes') / read,
    p50: latency.percentile(50) ?? Number.NaN,
    p99: latency.percentile(99) ?? Number.NaN,
    failures: ended.reduce((all, one) => all + one.failures, 0),
  };
  console.log(`${about}: ${measured.cpuMs.toFixed(1)} ms, p99 ${measured.p99.toFixed(0)} ms`);
  return measured;
}

/** @typedef {Awaited<ReturnType<typeof measureLoad>>} Measured */

/** @param {any[][][]} rounds of experiment.js: by round and variant, of which there is one */
function reportLoads(rounds, /** @type {any} */ { part, runs, rate, seconds, limits }) {
  const isMany = part === 'many';
  /** @type {Measured[][]} */
  const measured = rounds.map(([one]) => one);
  const rows = measured[0].map(({ about }, i) => {
    const of = (/** @type {keyof Measured} */ name) =>
      median(measured.map((round) => Number(round[i][name])));
    const cells = [show(of('parts')), show(of('cpuMs')), show(of('readKb'), 1)];
    const all = [about, ...cells, show(of('p50')), show(of('p99'))];
    if (!isMany) return all;
    const more = [show(of('published')), show(of('cores'), 2), show(of('kb')), of('share') * 100];
    return [...all, ...more.slice(0, 3), `${show(Number(more[3]))} %`];
  });
  const failures = measured.flat().reduce((all, one) => all + one.failures, 0);
  const more = ['parts/s', 'server CPU, cores', 'memory of a run, kB (PSS)', 'tokens in time'];
  return {
    title: isMany ? `${runs} runs at once, ${rate} tokens/s each` : 'Runs: time and size of parts',
    note: `${seconds} s each, ${rounds.length} rounds, limits ${limits}; text: 50 tokens/s; bulk: 500 chunks/s of 200 characters`,
    lines: [
      `- runs or readers that failed: ${failures}`,
      '',
      ...markdownTable(['parts', ...HEAD, ...(isMany ? more : [])], rows, 1),
    ],
    data: { rounds },
    failed: failures > 0,
  };
}

/** @param {import('./servers.js').Target} target @param {ReturnType<typeof startChild>} child */
async function reload(target, child) {
  const url = `http://${target.host}:${target.port}`;
  await child.ask('start', {
    ...{ name: 'reload', count: 1, readersOfRun: 0, perSecond: ANSWER_RATE, size: 0 },
    ...{ everyMs: 40, partKb: 4, url, apiKey: SECRET },
  });
  await pause((1000 * ANSWER_TOKENS) / 2 / ANSWER_RATE);
  await child.ask('reload');
  /** @type {any[]} */
  const reloads = [];
  while (reloads.length < 10) reloads.push(await child.ask('reload'));
  await child.ask('end');
  return reloads;
}

/** @param {any[][][]} rounds */
function reportReload(rounds) {
  const reloads = rounds.flat(3);
  const [{ tokens, parts, bytes }] = reloads;
  const ms = reloads.map((one) => one.ms);
  return {
    title: `A reload in the middle of an answer of ${ANSWER_TOKENS} tokens`,
    lines: [
      `- ${tokens} tokens in ${parts} parts: **${show(bytes / 1000)} KB in ${show(median(ms))} ms** (${show(Math.min(...ms))} to ${show(Math.max(...ms))}), from the new client to the last of these tokens`,
    ],
    data: { rounds },
  };
}
