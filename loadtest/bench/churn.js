// churn.js: connections that come and go: does anything of them stay in the server's memory?
//
//   node loadtest/bench/churn.js                        200,000 cycles of connect, upgrade, join, leave
//   node loadtest/bench/churn.js --cycles 5000
//
// Half of them leave with a close frame, half are cut off. Before, after each quarter and at the
// end every process of the server collects its garbage (servers/collect.cjs, preloaded) and says
// what is left: a leak is what grows from quarter to quarter. The first quarter also fills caches
// and compiles code, so the growth is judged from its end on.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parsedArgs } from '../lib/options.js';
import { describeMachine, pssKbOf } from './machine.js';
import { quiet, SERVERS, startServer, stopAll } from './servers.js';
import { findClient, Swarm } from './swarm.js';

const { values: options } = parsedArgs({
  options: {
    cycles: { type: 'string', default: '200000' },
    concurrency: { type: 'string', default: '200' },
    rooms: { type: 'string', default: '100' },
    server: { type: 'string', default: 'fanfare' },
    client: { type: 'string', default: 'auto' },
    save: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
if (options.help) {
  console.log(
    `node loadtest/bench/churn.js [--cycles 200000] [--concurrency 200] [--rooms 100] [--server ${Object.keys(SERVERS).join('|')}] [--client auto|c|node]`,
  );
  process.exit(0);
}

const QUARTERS = 4;
/**
 * A worker that keeps more than this of each connection, in the mean, leaks: the smallest object is
 * larger.
 */
const MAX_BYTES_PER_CYCLE = 16;

/** Below this the memory of compiled code hides everything else. */
const MIN_CYCLES = 40_000;

const cycles = Number(options.cycles);
const directory = mkdtempSync(join(tmpdir(), 'fanfare-churn-'));
const collector = fileURLToPath(new URL('./servers/collect.cjs', import.meta.url));
const startedAt = new Date().toISOString();
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
  process.once(signal, async () => {
    await stopAll();
    process.exit(1);
  });
}

const swarm = new Swarm({
  client: findClient(/** @type {'auto' | 'c' | 'node'} */ (options.client)),
  processes: 2,
}).start();
const target = await startServer(options.server, {
  env: { NODE_OPTIONS: `--require ${collector}`, BENCH_MEMORY_DIR: directory },
});

/** What every process of the server holds after a garbage collection. */
async function collect() {
  await quiet(target, 10_000);
  await sleep(2500); // longer than an emptied room lingers
  const memory = [];
  for (const pid of target.pids()) {
    const path = join(directory, `${pid}.json`);
    rmSync(path, { force: true });
    process.kill(pid, 'SIGUSR2');
    const deadline = performance.now() + 20_000;
    for (;;) {
      try {
        const { heapUsed, external, arrayBuffers } = JSON.parse(readFileSync(path, 'utf8'));
        memory.push({ pid, heapUsed, external, arrayBuffers, pssKb: pssKbOf([pid]) });
        break;
      } catch (error) {
        if (performance.now() > deadline)
          throw new Error(`process ${pid} does not say what it holds`, { cause: error });
        await sleep(20);
      }
    }
  }
  return memory;
}

/**
 * @type
 *   {{ cycles: number, failed: number, perSecond: number, memory: Awaited<ReturnType<typeof collect>> }[]}
 */
const points = [];
await swarm.aim(target);
points.push({ cycles: 0, failed: 0, perSecond: 0, memory: await collect() });
for (let quarter = 1; quarter <= QUARTERS; quarter++) {
  const count = Math.round(cycles / QUARTERS);
  const result = await swarm.cycle({
    count,
    concurrency: Number(options.concurrency),
    rooms: Number(options.rooms),
    timeoutMs: 600_000,
  });
  points.push({
    cycles: points[points.length - 1].cycles + result.cycles,
    failed: result.failed,
    perSecond: result.cycles / result.seconds,
    memory: await collect(),
  });
  console.log(
    `${points[quarter].cycles} cycles, ${result.failed} failed, ${Math.round(points[quarter].perSecond)}/s; per process after a collection: ` +
      points[quarter].memory
        .map(
          ({ heapUsed, external, pssKb }) =>
            `heap ${(heapUsed / 1e6).toFixed(2)} + ${(external / 1e6).toFixed(2)} MB, PSS ${(pssKb / 1000).toFixed(1)} MB`,
        )
        .join('; '),
  );
}
await swarm.close();
await target.close();
rmSync(directory, { recursive: true, force: true });

const settled = points[1];
const last = points[points.length - 1];
const growth = last.memory.map(({ heapUsed, external }, i) => {
  const before = settled.memory[i];
  return (
    ((heapUsed + external - before.heapUsed - before.external) / (last.cycles - settled.cycles)) *
    Math.max(1, last.memory.length - 1)
  );
});
const failed = points.reduce((sum, point) => sum + point.failed, 0);
const worst = Math.max(...growth);
const verdict =
  failed > 0
    ? `${failed} connections failed`
    : worst <= MAX_BYTES_PER_CYCLE
      ? 'no growth'
      : cycles < MIN_CYCLES
        ? `${worst.toFixed(1)} bytes a connection in the worst process, but too few cycles to tell: code is still being compiled`
        : `memory grows: ${worst.toFixed(1)} bytes a connection in the worst process`;
const text = [
  `# ${cycles.toLocaleString('en')} connect/disconnect cycles, ${target.title}, ${startedAt}`,
  '',
  `\`node loadtest/bench/churn.js ${process.argv.slice(2).join(' ')}\``,
  '',
  ...Object.entries(describeMachine()).map(([key, value]) => `- ${key}: ${value}`),
  '',
  `**${verdict}** (from the first quarter's end to the last's, bytes of heap and external memory per connection served, by process: ${growth.map((bytes) => bytes.toFixed(2)).join(', ')})`,
  '',
  `| cycles | a second | ${last.memory.map((_, i) => (i === 0 ? 'primary: heap + external, PSS, MB' : `worker ${i}`)).join(' | ')} |`,
  `|---:|---:|${last.memory.map(() => '---:|').join('')}`,
  ...points.map(
    (point) =>
      `| ${point.cycles.toLocaleString('en')} | ${point.perSecond === 0 ? '' : Math.round(point.perSecond).toLocaleString('en')} | ${point.memory
        .map(
          ({ heapUsed, external, pssKb }) =>
            `${(heapUsed / 1e6).toFixed(2)} + ${(external / 1e6).toFixed(2)}, ${(pssKb / 1000).toFixed(1)}`,
        )
        .join(' | ')} |`,
  ),
  '',
].join('\n');
const path =
  options.save ??
  fileURLToPath(
    new URL(`./results/churn-${startedAt.slice(0, 16).replace(':', '')}`, import.meta.url),
  );
mkdirSync(new URL('./results/', import.meta.url), { recursive: true });
writeFileSync(
  `${path}.json`,
  `${JSON.stringify({ startedAt, points, growth, verdict }, null, 1)}\n`,
);
writeFileSync(`${path}.md`, text);
console.log(`\n${text}\nsaved as ${path}.md and .json`);
process.exit(failed > 0 || verdict.startsWith('memory grows') ? 1 : 0);
