// rest.js: the processor time of servers in which nothing happens, by process and thread.
//
//   node loadtest/bench/rest.js                                     three minutes: all kinds of server
//   node loadtest/bench/rest.js --others ../main --only embedded    beside another checkout
//   node loadtest/bench/rest.js --clients 100                       with idle connections
//
// All servers run at the same time. Each step has the time that every thread had a processor, and how
// often it waited. V8's compilers and collectors are busy in the first minute of a process, so the
// report keeps it apart. Use a machine with nothing else to do: a wake-up costs more when caches are
// cold.

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { temporaryFolder } from '../../test/harness/redis.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { startServer, stopAll } from './servers.js';
import { openAll } from './step.js';
import { Swarm } from './swarm.js';

const FIRST_S = 60;
const ENDPOINT = {
  name: 'back-end',
  url: 'http://127.0.0.1:9/',
  secret: `whsec_${Buffer.alloc(24, 7).toString('base64')}`,
};
/** Servers by name: that of servers.js, and whether an endpoint gets webhooks. */
const KINDS = {
  embedded: { server: 'fanfare', hasWebhooks: false },
  redis: { server: 'fanfare-redis', hasWebhooks: false },
  'embedded-webhooks': { server: 'fanfare', hasWebhooks: true },
  'redis-webhooks': { server: 'fanfare-redis', hasWebhooks: true },
};
const ARGUMENTS = /** @type {const} */ (['worker', 'courier']);

/** @typedef {{ms: number, wakeUps: number}} Use */
/** @typedef {{main: Use, others: Use}} Step of a process: its main thread, and all others */
/** @typedef {{title: string, kind: string, process: string, steps: Step[]}} Row */
/** @typedef {{title: string, kind: string, target: import('./servers.js').Target}} Place */

await experiment({
  question: 'Measures the CPU of servers at rest, by process and thread.',
  options: `only LIST | list of ${Object.keys(KINDS).join(' ')} | ${Object.keys(KINDS).join()} | kinds of server
  others LIST | | | folders of further checkouts, separated by commas
  workers N | whole 1..64 | 2 | workers of each server
  clients N | whole 0..10000 | 0 | idle connections of each server
  seconds S | whole 1..3600 | 180 | duration, from the start of the last server
  step S | number 1..600 | 10 | duration of a step`,

  async setup({ owner, values: { only, others, workers, clients } }) {
    owner.after(stopAll);
    const folder = await temporaryFolder();
    owner.after(() => rm(folder, { recursive: true }));
    const webhooks = join(folder, 'webhooks.json');
    writeFileSync(webhooks, JSON.stringify([ENDPOINT]));
    /** @type {Place[]} */
    const places = [];
    for (const kind of /** @type {(keyof typeof KINDS)[]} */ (only))
      for (const checkout of ['', ...others.split(',').filter(Boolean)]) {
        const { server, hasWebhooks } = KINDS[kind];
        /** @type {Record<string, string>} */
        const env = hasWebhooks ? { FANFARE_WEBHOOKS: webhooks } : {};
        const target = await startServer(server, { workers, checkout, env });
        places.push({ title: checkout || 'this checkout', kind, target });
      }
    for (const { target } of clients > 0 ? places : []) {
      const swarm = new Swarm({ processes: 1 }).start();
      owner.after(() => swarm.close());
      await swarm.aim(target);
      await openAll(swarm, { count: clients, sources: 1 });
    }
    return places;
  },

  async measure(places, { values: { seconds, step } }) {
    const all = places.flatMap(({ title, kind, target }) =>
      target.pids().map((pid) => ({ pid, row: rowOf(title, kind, pid), before: useOf(pid) })),
    );
    for (let past = step; past <= seconds; past += step) {
      const beganMs = performance.now();
      await sleep(step * 1000);
      const share = 1000 / (performance.now() - beganMs);
      for (const one of all) {
        const after = useOf(one.pid);
        one.row.steps.push(difference(one.before, after, share));
        one.before = after;
      }
    }
    return all.map(({ row }) => row);
  },

  report([[rows]], { step, clients, workers }) {
    const first = Math.ceil(FIRST_S / step);
    /** @type {Map<string, Row[]>} */
    const groups = new Map();
    for (const row of rows) {
      const key = `${row.kind}, ${row.process}, ${row.title}`;
      groups.set(key, [...(groups.get(key) ?? []), row]);
    }
    return {
      title: 'Servers at rest',
      note: `${workers} workers, ${clients} connections; each second of a process; medians of steps of ${step} s`,
      lines: markdownTable(
        [
          ...['server', 'process', 'checkout', `ms of CPU, first ${FIRST_S} s`, 'ms of CPU, then'],
          ...['main thread', 'wake-ups of it', 'other threads', 'wake-ups of them'],
        ],
        [...groups.values()].map((group) => lineOf(group, first)),
        3,
      ),
      data: { rows },
    };
  },
});

/** @param {string} title @param {string} kind @param {number} pid @returns {Row} */
function rowOf(title, kind, pid) {
  const words = read(`/proc/${pid}/cmdline`).split('\0');
  const name = ARGUMENTS.find((argument) => words.includes(argument)) ?? 'primary';
  return { title, kind, process: name, steps: [] };
}

/** @param {readonly Row[]} group processes of one kind @param {number} first steps */
function lineOf(group, first) {
  const [{ title, kind, process: name }] = group;
  const early = group.flatMap(({ steps }) => steps.slice(0, first));
  const late = group.flatMap(({ steps }) => steps.slice(first));
  const total = (/** @type {Step} */ { main, others }) => main.ms + others.ms;
  const totals = late.map(total);
  const of = (/** @type {(step: Step) => number} */ figure) => show(median(late.map(figure)), 2);
  return [
    ...[kind, name, title, show(mean(early.map(total)), 2)],
    `${of(total)} (${show(Math.min(...totals), 2)}–${show(Math.max(...totals), 2)})`,
    ...[of(({ main }) => main.ms), of(({ main }) => main.wakeUps)],
    ...[of(({ others }) => others.ms), of(({ others }) => others.wakeUps)],
  ];
}

/** @param {readonly number[]} numbers */
function mean(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}

/** @param {number} pid @returns {Step} since the process began; threads that ended are left out */
function useOf(pid) {
  const use = { main: { ms: 0, wakeUps: 0 }, others: { ms: 0, wakeUps: 0 } };
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const part = thread === String(pid) ? use.main : use.others;
    const task = `/proc/${pid}/task/${thread}`;
    part.ms += Number(read(`${task}/schedstat`).split(' ')[0]) / 1e6;
    part.wakeUps += Number(/^voluntary_ctxt_switches:\s+(\d+)$/m.exec(read(`${task}/status`))?.[1]);
  }
  return use;
}

/** @param {Step} before @param {Step} after @param {number} share of a second that has passed */
function difference(before, after, share) {
  const of = (/** @type {Use} */ from, /** @type {Use} */ to) => ({
    ms: (to.ms - from.ms) * share,
    wakeUps: (to.wakeUps - from.wakeUps) * share,
  });
  return { main: of(before.main, after.main), others: of(before.others, after.others) };
}

/** @param {string} path */
function read(path) {
  return readFileSync(path, 'utf8');
}
