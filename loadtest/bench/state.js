// state.js: what does a room with state cost, and what do members cost that do not read?
//
//   node loadtest/bench/state.js                       10,000 updates/s on 100 keys to 1,000 members; some eight minutes
//   node loadtest/bench/state.js --server fanfare-redis --seconds 20
//   node loadtest/bench/state.js --every 0 --rate 100
//
// Five runs take turns: a plain room with one message in each interval; the same with a message as
// large as all keys together; the room with state and two members, so that its cost is that of the
// publishes; with all members; and the same while a tenth of them does not read. In the end those
// read again. Each must have the map of the backend, and not many more bytes than the kernel had for
// it: some megabytes, or a tenth of one in a network namespace with small buffers:
//
//   unshare --net sh -c 'ip link set lo up; for n in tcp_rmem tcp_wmem;
//     do echo 4096 65536 65536 > /proc/sys/net/ipv4/$n; done; node loadtest/bench/state.js'

import { readFileSync } from 'node:fs';
import { Latency } from '../../test/harness/latency.js';
import { pause } from '../../test/harness/run.js';
import { WsClient } from '../../test/harness/ws-client.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { OPTION } from './script.js';
import { quiet, startServer, stopAll } from './servers.js';
import { startChild } from './webhooks-child.js';

/** @typedef {ReturnType<typeof startChild>} Child */

const ROOM = 'bench';
const SECRET = 'bench-bench-bench-bench-bench-be';
const PROCESSES = 2;
const PUBLISHERS = 4;
const TICK_MS = 10;
const WARM_MS = 5000;
const PARTS = 6;
/** A member that does not read answers no ping, and the server would close it for that. */
const NO_PINGS = Object.freeze({
  FANFARE_PING_INTERVAL_MS: '3600000',
  FANFARE_PONG_TIMEOUT_MS: '3500000',
});
const VARIANTS = Object.freeze([
  'plain room',
  'plain room, large messages',
  'room with state, two members',
  'room with state',
  'room with state, some do not read',
]);

await experiment({
  question: 'Measures a room with state beside a plain room, and members of it that do not read.',
  options: `members N | whole 10..16000 | 1000 | members of the room
  slow SHARE | number 0..0.9 | 0.1 | share of them that does not read in the last run
  rate N | whole 1..100000 | 10000 | updates a second
  keys N | whole 1..1000 | 100 | keys they go to, in turn
  every MS | whole 0..10000 | 100 | interval of the room with state; 0: none
  payload BYTES | whole 8..16000 | 40 | size of a value
  seconds S | number 1..3600 | 60 | duration of each run
  rounds N | whole 1..100 | 1 | rounds of five runs
  part PART | one of all slow | all | slow: only the last two runs
  ${OPTION.server}`,
  variants: ({ part }) => (part === 'all' ? VARIANTS : VARIANTS.slice(3)),

  async setup({ owner, values: { server, keys, every } }) {
    owner.after(stopAll);
    const rule = `${ROOM}=${keys}/1h${every > 0 ? ` every ${every}ms` : ''}`;
    const target = await startServer(server, {
      env: { FANFARE_STATE: rule, ...NO_PINGS, API_KEYS: `b ${SECRET} all` },
    });
    return { target, children: [0, 1].map(() => startChild(owner, './client/state-members.js')) };
  },

  async measure({ target, children }, { values, variant }) {
    const isState = variant.startsWith('room with state');
    const { seconds } = values;
    const url = `ws://127.0.0.1:${target.port}/ws`;
    const room = isState ? ROOM : 'plain';
    const members = variant === VARIANTS[2] ? PROCESSES : values.members;
    const slow = variant === VARIANTS[4] ? Math.round(values.members * values.slow) : 0;
    const part = (/** @type {number} */ count, /** @type {number} */ i) =>
      Math.floor((count + i) / PROCESSES);
    await Promise.all(
      children.map((/** @type {Child} */ child, /** @type {number} */ i) =>
        child.ask('open', {
          ...{ url, room, count: part(members, i), late: part(slow, i) },
          localAddress: `127.0.0.${2 + i}`,
        }),
      ),
    );
    const publisher = await startPublisher(url, room, values, variant);
    await pause(WARM_MS);
    for (const child of children) await child.ask('pause');
    for (const child of children) await child.ask('drain');
    const sentBefore = publisher.sent;
    const cpuBefore = target.cpuSeconds();
    const redisBefore = target.redisCpuSeconds();
    /** @type {number[]} */
    const kbs = [target.pssKb()];
    const startedMs = performance.now();
    while (performance.now() - startedMs < seconds * 1000) {
      await pause(Math.min(1000, seconds * 100));
      kbs.push(target.pssKb());
    }
    const took = (performance.now() - startedMs) / 1000;
    const cpu = (target.cpuSeconds() - cpuBefore) / took;
    const redisCpu = (target.redisCpuSeconds() - redisBefore) / took;
    const rate = (publisher.sent - sentBefore) / took;
    const drained = await Promise.all(
      children.map((/** @type {Child} */ child) => child.ask('drain')),
    );
    const late = slow > 0 ? await wakeUp(children, publisher, target, values) : null;
    publisher.stop();
    const latency = new Latency();
    for (const each of drained) latency.addDrained(each.latency);
    const readers = Math.max(1, members - slow);
    const bytes = sum(drained, ({ bytes: each }) => each) / readers / took;
    const open = sum(drained, ({ open: each }) => each);
    const [p50, p99] = [latency.percentile(50), latency.percentile(99)];
    console.log(`${variant}: ${cpu.toFixed(3)} CPU-s/s, p99 ${p99} ms, ${Math.round(rate)}/s`);
    for (const child of children) await child.ask('close');
    await quiet(target, 3000);
    const lost = members - open;
    return { variant, cpu, redisCpu, rate, p50, p99, bytes, kbs, lost, late };
  },

  report(rounds, values) {
    const { members, rate, keys, every, payload, seconds, server } = values;
    const middle = (/** @type {number} */ which, /** @type {(run: any) => number} */ of) =>
      median(rounds.map((round) => of(round.find(({ variant }) => variant === VARIANTS[which]))));
    const cpu = (/** @type {number} */ which) => middle(which, (run) => run.cpu);
    const runs = rounds.flat();
    const lates = runs.flatMap(({ late }) => late?.members ?? []);
    const wrong = lates.filter(({ isTrue }) => !isTrue).length;
    const lost = sum(runs, (run) => run.lost);
    const most = Math.max(0, ...lates.map(({ bytes }) => bytes));
    const costs = () => {
      const deliver = cpu(3) - cpu(2);
      const [small, large] = [cpu(0), cpu(1)];
      const times = (/** @type {number} */ of, /** @type {number} */ by) => `× ${show(of / by, 2)}`;
      return `- **delivering it costs ${times(deliver, large)} of a plain room with as many writes and bytes**, ${times(deliver, small)} of one with small messages; with the publishes ${times(cpu(3), large)} and ${times(cpu(3), small)}`;
    };
    return {
      title: `A room with state: ${rate} updates/s on ${keys} keys to ${members} members`,
      note: `${server}, every ${every} ms, values of ${payload} B, ${seconds} s each, ${rounds.length} rounds, a socket’s buffers up to ${bufferKb('tcp_wmem')} + ${bufferKb('tcp_rmem')} KB`,
      lines: [
        ...(values.part === 'all' ? [costs()] : []),
        `- **p99 of the members that read, beside those that do not: × ${show(middle(4, (run) => run.p99) / middle(3, (run) => run.p99), 2)}**`,
        `- **members that had not read: ${lates.length}, ${wrong} with a wrong map, at most ${show(most / 1000)} KB for each of them**; the state has ${show(median(runs.flatMap(({ late }) => (late ? [late.stateBytes] : []))) / 1000, 1)} KB; connections lost: ${lost}`,
        '',
        ...markdownTable(
          [
            'run',
            'published/s',
            'server CPU, s/s',
            'Redis CPU, s/s',
            'KB/s for each member',
            'p50, ms',
            'p99, ms',
            'memory before / at most, MB (PSS)',
          ],
          runs.map((run) => [
            run.variant,
            show(run.rate),
            show(run.cpu, 3),
            show(run.redisCpu, 3),
            show(run.bytes / 1000, 1),
            show(run.p50 ?? 0, 1),
            show(run.p99 ?? 0, 1),
            `${show(run.kbs[0] / 1000)} / ${show(Math.max(...run.kbs) / 1000)}`,
          ]),
          1,
        ),
        '',
        ...runs.map(
          ({ variant, kbs }) =>
            `- ${variant}: memory in each sixth of the run, at most: ${partsOf(kbs).join(', ')} MB`,
        ),
      ],
      data: { rounds },
      failed: wrong > 0 || lost > 0,
    };
  },
});

/**
 * Publishes to the room, evenly, until it is stopped.
 * @param {string} url @param {string} room @param {import('../../test/harness/options.js').Values} values
 * @param {string} variant
 */
async function startPublisher(url, room, { rate, keys, every, payload }, variant) {
  const clients = await Promise.all(
    Array.from({ length: PUBLISHERS }, () => new WsClient(url).open()),
  );
  const isState = variant.startsWith('room with state');
  const isLarge = variant === VARIANTS[1];
  // A change has some 170 bytes beside its value.
  const padding = 'x'.repeat(isLarge ? keys * (payload + 170) : payload);
  const perSecond = isState ? rate : 1000 / Math.max(every, 1);
  const publisher = { sent: 0, stop: () => clearInterval(timer) };
  let due = 0;
  let lastMs = performance.now();
  const timer = setInterval(() => {
    const nowMs = performance.now();
    due += ((nowMs - lastMs) / 1000) * perSecond;
    lastMs = nowMs;
    for (; due >= 1; due--) {
      const n = publisher.sent++;
      const key = isState ? `"key":"key-${n % keys}",` : '';
      const value = `${n} ${padding}`.slice(0, padding.length);
      const text = `{"type":"message","room":"${room}",${key}"payload":"${value}"}`;
      // A key has one publisher, so its updates keep their order.
      clients[(n % keys) % PUBLISHERS].send(text);
    }
  }, TICK_MS);
  return publisher;
}

/**
 * Members that have not read read again, when nothing is published any more.
 * @param {Child[]} children
 * @param {Awaited<ReturnType<typeof startPublisher>>} publisher
 * @param {{port: number}} target @param {import('../../test/harness/options.js').Values} values
 */
async function wakeUp(children, publisher, { port }, { keys }) {
  publisher.stop();
  const answers = await Promise.all(children.map((child) => child.ask('resume')));
  const response = await fetch(`http://127.0.0.1:${port}/api/rooms/${ROOM}/state?limit=${keys}`, {
    headers: { Authorization: `Bearer ${SECRET}` },
  });
  const { entries, offset } = /** @type {any} */ (await response.json());
  const truth = new Map(entries.map((/** @type {any} */ { key, payload }) => [key, payload]));
  const members = answers.flatMap(({ late }) =>
    late.map((/** @type {any} */ { map, ...member }) => ({
      ...member,
      isTrue:
        member.isOpen &&
        member.offset === offset &&
        map.length === truth.size &&
        map.every((/** @type {[string, string]} */ [key, value]) => truth.get(key) === value),
    })),
  );
  return { members, stateBytes: JSON.stringify(entries).length };
}

/** @template T @param {readonly T[]} list @param {(one: T) => number} of */
function sum(list, of) {
  return list.reduce((total, one) => total + of(one), 0);
}

/** The most that the kernel keeps for a socket. @param {'tcp_wmem'|'tcp_rmem'} name */
function bufferKb(name) {
  const bytes = readFileSync(`/proc/sys/net/ipv4/${name}`, 'utf8').trim().split(/\s+/)[2];
  return Math.round(Number(bytes) / 1024);
}

/** The most memory in each part of a run, MB. @param {readonly number[]} kbs */
function partsOf(kbs) {
  const at = (/** @type {number} */ part) => Math.floor((kbs.length * part) / PARTS);
  return Array.from({ length: PARTS }, (_, i) =>
    show(Math.max(0, ...kbs.slice(at(i), at(i + 1))) / 1000),
  );
}
