// slow.js: a tenth of the members does not read: does this delay the others, and what does it cost
// the server?
//
//   node loadtest/bench/slow.js                         500 members, 50 messages of 8 kB a second, 20 s, 3 rounds
//   node loadtest/bench/slow.js --members 200 --seconds 8 --rounds 1
//   node loadtest/bench/slow.js --room history --slow 0.5 --seconds 60 --rounds 1
//
// Two runs take turns: in one all members read; in the other a tenth joined and then stopped
// reading. In a room with history the server keeps them, so its memory must stay the same: it is
// listed over the time of the run. Its ping interval is then longer than the run, because members
// that never read answer no ping.
// The kernel takes some 4 MB for each of those before the server can notice, so the load
// must be long and large enough to get past that. The expected deliveries are those of the members
// that read: all must arrive.

import { markdownTable, median, show } from '../lib/figures.js';
import { readOptions } from '../lib/options.js';
import { scrape } from '../lib/server.js';
import { OPTION, saveReport, stopOnSignal, withServer } from './script.js';
import { quiet } from './servers.js';
import { clean, measured, openAll } from './workloads.js';

const MIN_MB = 6;
const { values } = readOptions(
  'Measures the latency of members that read, beside members that do not.',
  `members N | whole 10..100000 | 500 | members of the room
  slow SHARE | number 0..1 | 0.1 | share of them that does not read
  rate N | number 0.1..100000 | 50 | messages a second
  payload BYTES | whole 64..65536 | 8000 | size of a payload
  room KIND | one of plain history | plain | whether the room has history
  seconds S | number 0.1..3600 | 20 | duration of each run
  rounds N | whole 1..100 | 3 | rounds of two runs
  ${OPTION.server}
  ${OPTION.client}
  ${OPTION.save}`,
);
const { members, slow, rate, payload, room, seconds, server, client, save } = values;
const { rounds: roundCount } = values;
const slowMembers = Math.round(members * slow);
const sentMb = (rate * seconds * payload) / 1e6;
if (sentMb < MIN_MB)
  console.error(
    `each member is sent ${sentMb.toFixed(1)} MB: too little for the server to notice a slow one`,
  );
stopOnSignal();

const PARTS = 6;
const env =
  room === 'history'
    ? {
        FANFARE_HISTORY: 'bench=1000/300s',
        FANFARE_PING_INTERVAL_MS: `${Math.ceil(seconds * 2000 + 60_000)}`,
      }
    : undefined;

/** @param {number} lazy members that do not read */
const run = (lazy) =>
  withServer({ server, client, env }, async ({ target, swarm }) => {
    await openAll(swarm, { count: members - lazy });
    if (lazy > 0) await openAll(swarm, { count: lazy, group: 1, read: false });
    await swarm.run({ perSecond: 20, seconds: 1, payloadBytes: 100 });
    await quiet(target, 3000);
    const kbBefore = target.pssKb();
    /** @type {number[]} */
    const kbs = [];
    const timer = setInterval(() => kbs.push(target.pssKb()), 500);
    const step = await measured(target, () =>
      swarm.run({ perSecond: rate, seconds, payloadBytes: payload, drainMs: 5000 }),
    );
    clearInterval(timer);
    // The other servers have no metrics.
    const page = await scrape(target.metricsPort ?? 0).catch(() => ({ text: '' }));
    const counters = page.text.match(/^[^#\n]*(?:slow|lagging).*$/gm) ?? [];
    const { histogram, ...figures } = step;
    const kbMost = Math.max(kbBefore, ...kbs);
    const kbAfter = target.pssKb();
    return { ...figures, clean: clean(step), kbBefore, kbs, kbMost, kbAfter, counters };
  });

/** @typedef {Awaited<ReturnType<typeof run>>} Outcome */
/** @type {{all: Outcome, tenth: Outcome}[]} */
const rounds = [];
while (rounds.length < roundCount) {
  const [all, tenth] = [await run(0), await run(slowMembers)];
  rounds.push({ all, tenth });
  console.log(
    `round ${rounds.length}: p99 all reading ${all.p99Ms.toFixed(1)} ms, beside ${slowMembers} that do not ${tenth.p99Ms.toFixed(1)} ms; ` +
      `${all.clean && tenth.clean ? 'none lost' : `LOST: ${all.received}/${all.expected}, ${tenth.received}/${tenth.expected}`}`,
  );
}

const times = median(rounds.map(({ all, tenth }) => tenth.p99Ms / all.p99Ms));
const lost = rounds.some(({ all, tenth }) => !all.clean || !tenth.clean);
/** @type {(round: number, who: string, result: Outcome) => (string|number)[]} */
const row = (
  round,
  who,
  { p50Ms, p95Ms, p99Ms, maxMs, kbBefore, kbMost, kbAfter, serverCpuSeconds },
) => [
  round,
  who,
  ...[p50Ms, p95Ms, p99Ms, maxMs].map((ms) => show(ms, 1)),
  [kbBefore, kbMost, kbAfter].map((kb) => show(kb / 1000)).join(' / '),
  show(serverCpuSeconds, 2),
];
/**
 * The most memory in each part of a run, MB.
 * @param {readonly number[]} kbs
 */
const partsOf = (kbs) =>
  Array.from({ length: PARTS }, (_, i) =>
    kbs.slice(Math.floor((kbs.length * i) / PARTS), Math.floor((kbs.length * (i + 1)) / PARTS)),
  ).map((part) => show(Math.max(0, ...part) / 1000));
const head = ['round', 'members', 'p50, ms', 'p95, ms', 'p99, ms', 'max, ms'];
saveReport({
  script: 'slow',
  title: `${slowMembers} of ${members} members do not read, ${rounds.length} rounds`,
  note: `${server}, ${room === 'history' ? 'a room with history' : 'a plain room'}, ${rate} messages/s of ${payload} B for ${seconds} s, ${sentMb.toFixed(1)} MB for each member`,
  lines: [
    `**p99 of the members that read: × ${times.toFixed(2)}** (median of the ratios of each round); ${lost ? '**messages were lost**' : 'none lost'}`,
    '',
    ...markdownTable(
      [...head, 'server memory before / at most / after, MB (PSS)', 'server CPU, s'],
      rounds.flatMap(({ all, tenth }, i) => [
        row(i + 1, 'all read', all),
        row(i + 1, `${slowMembers} do not`, tenth),
      ]),
    ),
    '',
    ...rounds.flatMap(({ all, tenth }, i) =>
      [all, tenth].map(
        ({ kbs }, which) =>
          `- round ${i + 1}, ${which === 0 ? 'all read' : `${slowMembers} do not`}: server memory in each sixth of the run, at most: ${partsOf(kbs).join(', ')} MB`,
      ),
    ),
    '',
    // The client cannot see the close of a slow reader: it waits behind the bytes that were not read.
    ...rounds[rounds.length - 1].tenth.counters.map((/** @type {string} */ line) => `    ${line}`),
  ],
  data: { rounds, times, lost },
  save,
});
process.exit(lost ? 1 : 0);
