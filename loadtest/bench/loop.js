// loop.js: a room of 20,000 on two workers: how late do their event loops come to everything else?
//
//   node loadtest/bench/loop.js                           20,000 members at 2, 5, 10 and 50 messages a second, about a minute
//   node loadtest/bench/loop.js --members 5000 --rates 10
//
// A flush over a large room must yield, or reads, pings, joins and other rooms wait for it.
// servers/delay.cjs, preloaded into process of the server, takes the time. Fails where a message is
// lost or the worst worker's p99 is above --limit.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parsedArgs } from '../lib/options.js';
import { describeMachine } from './machine.js';
import { checkMachine } from './machine-check.js';
import { quiet, SERVERS, startServer, stopAll } from './servers.js';
import { findClient, Swarm } from './swarm.js';
import { clean, measured } from './workloads.js';

const { values: options } = parsedArgs({
  options: {
    members: { type: 'string', default: '20000' },
    rates: { type: 'string', default: '2,5,10,50' },
    seconds: { type: 'string', default: '6' },
    limit: { type: 'string', default: '50' },
    server: { type: 'string', default: 'fanfare' },
    workers: { type: 'string', default: '2' },
    payload: { type: 'string', default: '100' },
    client: { type: 'string', default: 'auto' },
    save: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
if (options.help) {
  console.log(`node loadtest/bench/loop.js [--members 20000] [--rates 2,5,10,50] [--seconds 6] [--limit 50] [--server ${Object.keys(SERVERS).join('|')}]
  [--workers 2] [--payload 100] [--client auto|c|node] [--save PATH]`);
  process.exit(0);
}

const members = Number(options.members);
const workers = Number(options.workers);
const payloadBytes = Number(options.payload);
const seconds = Number(options.seconds);
const limitMs = Number(options.limit);
const processes = 2;
const sources = 4;
const check = checkMachine({ connections: members, workers, processes, sources });
if (check.problems.length > 0) {
  for (const problem of check.problems) console.error(`missing: ${problem}`);
  process.exit(1);
}
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
  process.once(signal, async () => {
    await stopAll();
    process.exit(1);
  });
}

const startedAt = new Date().toISOString();
const directory = mkdtempSync(join(tmpdir(), 'fanfare-loop-'));
const preloaded = fileURLToPath(new URL('./servers/delay.cjs', import.meta.url));
const swarm = new Swarm({
  client: findClient(/** @type {'auto' | 'c' | 'node'} */ (options.client)),
  processes,
}).start();
const target = await startServer(options.server, {
  workers,
  env: { NODE_OPTIONS: `--require ${preloaded}`, BENCH_DELAY_DIR: directory },
});

/**
 * What each process of the server has seen since it was last asked; the primary, which has no
 * connections, is left out.
 */
async function delays() {
  const seen = [];
  for (const pid of target.pids().slice(1)) {
    const path = join(directory, `${pid}.json`);
    rmSync(path, { force: true });
    process.kill(pid, 'SIGUSR2');
    const deadline = performance.now() + 20_000;
    for (;;) {
      try {
        seen.push(
          /** @type {{p50Ms: number, p99Ms: number, maxMs: number}} */ (
            JSON.parse(readFileSync(path, 'utf8'))
          ),
        );
        break;
      } catch (cause) {
        if (performance.now() > deadline)
          throw new Error(`process ${pid} does not answer`, { cause });
        await sleep(20);
      }
    }
  }
  return {
    p50Ms: Math.max(...seen.map(({ p50Ms }) => p50Ms)),
    p99Ms: Math.max(...seen.map(({ p99Ms }) => p99Ms)),
    maxMs: Math.max(...seen.map(({ maxMs }) => maxMs)),
  };
}

const lines = [
  '| messages/s | loop p50, ms | loop p99, ms | loop max, ms | delivery p50, ms | delivery p99, ms | deliveries | server CPU, s |',
  '|---:|---:|---:|---:|---:|---:|---:|---:|',
];
/** @type {string[]} */
const failures = [];
try {
  await swarm.aim(target);
  const opened = await swarm.open({ count: members, sources, timeoutMs: 120_000 });
  if (opened.failed > 0) throw new Error(`${opened.failed} of ${members} connections failed`);
  await swarm.run({ perSecond: 5, seconds: 2, payloadBytes, drainMs: 10_000 });
  for (const rate of options.rates.split(',').map(Number)) {
    await quiet(target, 5000);
    await delays();
    const step = await measured(target, () =>
      swarm.run({ perSecond: rate, seconds, payloadBytes, drainMs: 15_000 }),
    );
    const loop = await delays();
    lines.push(
      `| ${rate} | ${[loop.p50Ms, loop.p99Ms, loop.maxMs, step.p50Ms, step.p99Ms].map((ms) => ms.toFixed(1)).join(' | ')} | ${step.received} of ${step.expected} | ${step.serverCpuSeconds.toFixed(2)} |`,
    );
    console.log(lines.at(-1));
    if (!clean(step)) failures.push(`messages were lost at ${rate}/s`);
    if (loop.p99Ms > limitMs) failures.push(`p99 is ${loop.p99Ms.toFixed(1)} ms at ${rate}/s`);
  }
} catch (error) {
  failures.push(error instanceof Error ? error.message : String(error));
}
await swarm.close();
await target.close();
rmSync(directory, { recursive: true, force: true });

const text = [
  `# Event-loop delay with ${members} members in a room, ${startedAt}`,
  '',
  `\`node loadtest/bench/loop.js ${process.argv.slice(2).join(' ')}\`: ${target.title}, ${workers} workers, the worst of them; ${seconds} s for each rate`,
  '',
  ...Object.entries(describeMachine()).map(([key, value]) => `- ${key}: ${value}`),
  '',
  failures.length === 0
    ? `**Within ${limitMs} ms** at the 99th percentile; none lost`
    : `**Failed**: ${failures.join('; ')}`,
  '',
  ...lines,
  '',
].join('\n');
const path =
  options.save ??
  fileURLToPath(
    new URL(`./results/loop-${startedAt.slice(0, 16).replace(':', '')}`, import.meta.url),
  );
mkdirSync(new URL('./results/', import.meta.url), { recursive: true });
writeFileSync(`${path}.md`, text);
console.log(`\n${text}\nsaved as ${path}.md`);
process.exit(failures.length === 0 ? 0 : 1);
