// slow.js: a tenth of the members does not read. Does it delay the others, and how much does it cost
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

import { scrape } from '../../test/harness/server.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { OPTION, startBench } from './script.js';
import { quiet } from './servers.js';
import { clean, measured, openAll } from './step.js';

const MIN_MB = 6;
const PARTS = 6;

await experiment({
  question: 'Measures the latency of members that read, beside members that do not.',
  options: `members N | whole 10..100000 | 500 | members of the room
  slow SHARE | number 0..1 | 0.1 | share of them that does not read
  rate N | number 0.1..100000 | 50 | messages a second
  payload BYTES | whole 64..65536 | 8000 | size of a payload
  room KIND | one of plain history | plain | whether the room has history
  seconds S | number 0.1..3600 | 20 | duration of each run
  rounds N | whole 1..100 | 3 | rounds of two runs
  ${OPTION.server}`,
  variants: (values) => {
    const mb = sentMb(values);
    if (mb < MIN_MB)
      console.error(
        `each member is sent ${mb.toFixed(1)} MB: too little for the server to notice a slow one`,
      );
    return ['all read', 'some do not'];
  },

  setup({ owner, values: { server, room, seconds } }) {
    const env = {
      FANFARE_HISTORY: 'bench=1000/300s',
      FANFARE_PING_INTERVAL_MS: `${Math.ceil(seconds * 2000 + 60_000)}`,
    };
    return startBench(owner, { server, env: room === 'history' ? env : undefined });
  },

  async measure({ target, swarm }, { values, variant }) {
    const lazy = variant === 'all read' ? 0 : lazyMembers(values);
    await openAll(swarm, { count: values.members - lazy });
    if (lazy > 0) await openAll(swarm, { count: lazy, group: 1, read: false });
    await swarm.run({ perSecond: 20, seconds: 1, payloadBytes: 100 });
    await quiet(target, 3000);
    const kbBefore = target.pssKb();
    /** @type {number[]} */
    const kbs = [];
    const timer = setInterval(() => kbs.push(target.pssKb()), 500);
    const { rate, seconds, payload: payloadBytes } = values;
    const step = await measured(target, () =>
      swarm.run({ perSecond: rate, seconds, payloadBytes, drainMs: 5000 }),
    );
    clearInterval(timer);
    // The other servers have no metrics.
    const page = await scrape(target.metricsPort ?? 0).catch(() => ({ text: '' }));
    const counters = page.text.match(/^[^#\n]*(?:slow|lagging).*$/gm) ?? [];
    const { histogram, ...figures } = step;
    const isClean = clean(step);
    const loss = isClean ? 'none lost' : `LOST: ${step.received}/${step.expected}`;
    console.log(`${variant}: p99 ${step.p99Ms.toFixed(1)} ms; ${loss}`);
    const kbMost = Math.max(kbBefore, ...kbs);
    const kbAfter = target.pssKb();
    return { ...figures, clean: isClean, kbBefore, kbs, kbMost, kbAfter, counters };
  },

  report(rounds, values) {
    const { members, rate, payload, room, seconds, server } = values;
    const lazy = lazyMembers(values);
    const times = median(rounds.map(([all, some]) => some.p99Ms / all.p99Ms));
    const lost = rounds.flat().some((run) => !run.clean);
    const runs = rounds.flatMap((round, i) =>
      round.map((run, which) => ({
        ...run,
        round: i + 1,
        who: which === 0 ? 'all read' : `${lazy} do not`,
      })),
    );
    const head = ['round', 'members', 'p50, ms', 'p95, ms', 'p99, ms', 'max, ms'];
    return {
      title: `${lazy} of ${members} members do not read, ${rounds.length} rounds`,
      note: `${server}, ${room === 'history' ? 'a room with history' : 'a plain room'}, ${rate} messages/s of ${payload} B for ${seconds} s, ${sentMb(values).toFixed(1)} MB for each member`,
      lines: [
        `**p99 of the members that read: × ${times.toFixed(2)}** (median of the ratios of each round); ${lost ? '**messages were lost**' : 'none lost'}`,
        '',
        ...markdownTable(
          [...head, 'server memory before / at most / after, MB (PSS)', 'server CPU, s'],
          runs.map((run) => [
            run.round,
            run.who,
            ...[run.p50Ms, run.p95Ms, run.p99Ms, run.maxMs].map((ms) => show(ms, 1)),
            [run.kbBefore, run.kbMost, run.kbAfter].map((kb) => show(kb / 1000)).join(' / '),
            show(run.serverCpuSeconds, 2),
          ]),
        ),
        '',
        ...runs.map(
          ({ round, who, kbs }) =>
            `- round ${round}, ${who}: server memory in each sixth of the run, at most: ${partsOf(kbs).join(', ')} MB`,
        ),
        '',
        // The client cannot see the close of a slow reader, which waits after the unread bytes.
        ...(runs.at(-1)?.counters ?? []).map((/** @type {string} */ line) => `    ${line}`),
      ],
      data: { rounds, times, lost },
      failed: lost,
    };
  },
});

/** @param {import('../../test/harness/options.js').Values} values */
function lazyMembers({ members, slow }) {
  return Math.round(members * slow);
}

/** Bytes for each member, in MB. @param {import('../../test/harness/options.js').Values} values */
function sentMb({ rate, seconds, payload }) {
  return (rate * seconds * payload) / 1e6;
}

/** The most memory in each part of a run, MB. @param {readonly number[]} kbs */
function partsOf(kbs) {
  const at = (/** @type {number} */ part) => Math.floor((kbs.length * part) / PARTS);
  return Array.from({ length: PARTS }, (_, i) =>
    show(Math.max(0, ...kbs.slice(at(i), at(i + 1))) / 1000),
  );
}
