// slow.js: a tenth of the members does not read: what do the others notice, and what does it cost
// the server?
//
//   node loadtest/bench/slow.js                         500 members, 50 messages of 8 kB a second, 20 s, 3 rounds
//   node loadtest/bench/slow.js --members 200 --seconds 8 --rounds 1
//
// Interleaved: a run in which all read, a run in which a tenth joined and then stopped reading. The
// kernel takes some 4 MB for each of those before the server can notice, so the load must be long
// and large enough to get past that: the report says how much each was sent. The expected
// deliveries are those of the members that read: all must arrive.

import { mkdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parsedArgs } from '../lib/options.js';
import { describeMachine } from './machine.js';
import { median } from './report.js';
import { quiet, SERVERS, startServer, stopAll } from './servers.js';
import { findClient, Swarm } from './swarm.js';
import { clean, measured } from './workloads.js';

const { values: options } = parsedArgs({
  options: {
    members: { type: 'string', default: '500' },
    slow: { type: 'string', default: '0.1' },
    rate: { type: 'string', default: '50' },
    payload: { type: 'string', default: '8000' },
    seconds: { type: 'string', default: '20' },
    rounds: { type: 'string', default: '3' },
    server: { type: 'string', default: 'fanfare' },
    client: { type: 'string', default: 'auto' },
    save: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
if (options.help) {
  console.log(`node loadtest/bench/slow.js [--members 500] [--slow 0.1] [--rate 50] [--payload 8000] [--seconds 20] [--rounds 3]
  [--server ${Object.keys(SERVERS).join('|')}] [--client auto|c|node]`);
  process.exit(0);
}

const members = Number(options.members);
const slowMembers = Math.round(members * Number(options.slow));
const perSecond = Number(options.rate);
const seconds = Number(options.seconds);
const payloadBytes = Number(options.payload);
const sentMb = (perSecond * seconds * payloadBytes) / 1e6;
const client = findClient(/** @type {'auto' | 'c' | 'node'} */ (options.client));
const startedAt = new Date().toISOString();
if (sentMb < 6)
  console.error(
    `each member is sent ${sentMb.toFixed(1)} MB: too little for a slow one to be noticed; see the head of this file`,
  );
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
  process.once(signal, async () => {
    await stopAll();
    process.exit(1);
  });
}

/** @param {number} slow how many do not read */
async function run(slow) {
  const swarm = new Swarm({ client, processes: 2 }).start();
  const target = await startServer(options.server);
  try {
    await swarm.aim(target);
    const opened = await swarm.open({ count: members - slow });
    const lazy =
      slow > 0 ? await swarm.open({ count: slow, group: 1, read: false }) : { failed: 0 };
    if (opened.failed + lazy.failed > 0)
      throw new Error(`${opened.failed + lazy.failed} connections failed`);
    await swarm.run({ perSecond: 20, seconds: 1, payloadBytes: 100 });
    await quiet(target, 3000);
    const kbBefore = target.pssKb();
    let kbMost = kbBefore;
    const timer = setInterval(() => {
      kbMost = Math.max(kbMost, target.pssKb());
    }, 500);
    const step = await measured(target, () =>
      swarm.run({ perSecond, seconds, payloadBytes, drainMs: 5000 }),
    );
    clearInterval(timer);
    const { histogram, ...figures } = step;
    return {
      ...figures,
      clean: clean(step),
      kbBefore,
      kbMost,
      kbAfter: target.pssKb(),
      counters: await slowCounters(target.metricsPort),
    };
  } finally {
    await swarm.close();
    await target.close();
  }
}

/** What the server itself counted, where it has metrics. @param {number | null} port */
async function slowCounters(port) {
  if (port === null) return [];
  try {
    const text = await (
      await fetch(`http://127.0.0.1:${port}/metrics`, { signal: AbortSignal.timeout(3000) })
    ).text();
    return text.split('\n').filter((line) => /slow/.test(line) && !line.startsWith('#'));
  } catch {
    return []; // another server, without metrics
  }
}

/**
 * @type
 *   {{ round: number, all: Awaited<ReturnType<typeof run>>, tenth: Awaited<ReturnType<typeof run>> }[]}
 */
const rounds = [];
for (let round = 1; round <= Number(options.rounds); round++) {
  const all = await run(0);
  const tenth = await run(slowMembers);
  rounds.push({ round, all, tenth });
  console.log(
    `round ${round}: p99 all reading ${all.p99Ms.toFixed(1)} ms, beside ${slowMembers} that do not ${tenth.p99Ms.toFixed(1)} ms; memory at most ` +
      `${(all.kbMost / 1000).toFixed(0)} and ${(tenth.kbMost / 1000).toFixed(0)} MB; ` +
      `${all.clean && tenth.clean ? 'none lost' : `LOST: ${all.received}/${all.expected}, ${tenth.received}/${tenth.expected}`}`,
  );
}

const times = median(rounds.map(({ all, tenth }) => tenth.p99Ms / all.p99Ms));
const lost = rounds.some(({ all, tenth }) => !all.clean || !tenth.clean);
const mb = (/** @type {number} */ kb) => (kb / 1000).toFixed(0);
const text = [
  `# ${slowMembers} of ${members} members do not read, ${rounds.length} rounds, ${startedAt}`,
  '',
  `\`node loadtest/bench/slow.js ${process.argv.slice(2).join(' ')}\`: ${options.server}, ${perSecond} messages/s of ${payloadBytes} B for ${seconds} s, ${sentMb.toFixed(1)} MB for each member`,
  '',
  ...Object.entries(describeMachine()).map(([key, value]) => `- ${key}: ${value}`),
  '',
  `**p99 of those who read: × ${times.toFixed(2)}** (median of the ratios of each round); ${lost ? '**messages were lost**' : 'none lost'}`,
  '',
  '| round | who | p50, ms | p95, ms | p99, ms | max, ms | server memory before / at most / after, MB (PSS) | server CPU, s |',
  '|---:|---|---:|---:|---:|---:|---:|---:|',
  ...rounds.flatMap(({ round, all, tenth }) =>
    /** @type {const} */ ([
      ['all read', all],
      [`${slowMembers} do not`, tenth],
    ]).map(
      ([who, result]) =>
        `| ${round} | ${who} | ${[result.p50Ms, result.p95Ms, result.p99Ms, result.maxMs].map((ms) => ms.toFixed(1)).join(' | ')} | ${mb(result.kbBefore)} / ${mb(result.kbMost)} / ${mb(result.kbAfter)} | ${result.serverCpuSeconds.toFixed(2)} |`,
    ),
  ),
  '',
  // Seen from outside a slow reader's end is invisible: the close waits behind what it does not
  // read.
  ...rounds[rounds.length - 1].tenth.counters.map((line) => `    ${line}`),
  '',
].join('\n');
const path =
  options.save ??
  fileURLToPath(
    new URL(`./results/slow-${startedAt.slice(0, 16).replace(':', '')}`, import.meta.url),
  );
mkdirSync(new URL('./results/', import.meta.url), { recursive: true });
writeFileSync(`${path}.json`, `${JSON.stringify({ startedAt, rounds, times, lost }, null, 1)}\n`);
writeFileSync(`${path}.md`, text);
console.log(`\n${text}\nsaved as ${path}.md and .json`);
process.exit(lost ? 1 : 0);
