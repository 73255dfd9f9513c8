// audiences.js: what do messages for some members of a room cost beside those for all?
//
//   node loadtest/bench/audiences.js                 1,000 members, 50 messages/s, a tenth restricted
//   node loadtest/bench/audiences.js --rate 100 --windows 8
//
// One server has all rooms, each with members of its own, and one room after the other gets messages
// for a window. So the rooms share a process, its compiled code and the minutes of the machine.
//
//   plain       no member holds an audience, no message names one
//   held        each member holds one of three; no message names one
//   groups      the same members, and each tenth message is for one of the three
//   sets        each member holds one of the three and one of its own, so there are as many sets as
//               members; messages as for groups
//
// Each kind is measured without history and with it. With history, members that do not see a message
// get its position, which is a write, too, but no delivery.

import { setTimeout as sleep } from 'node:timers/promises';
import { sign } from '../../src/sdk/index.js';
import { scrape } from '../../test/harness/server.js';
import { WsClient } from '../../test/harness/ws-client.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { OPTION, startBench } from './script.js';
import { openAll } from './step.js';

const SECRET = 'bench-bench-bench-bench-bench-bench';
const GROUPS = Object.freeze(['a', 'b', 'c']);
const KINDS = /** @type {const} */ (['plain', 'held', 'groups', 'sets']);
const ALL = ['*'];
const RIGHTS = Object.freeze({ join: ALL, publish: ALL, audience: ALL });
/** Each tenth message is for one audience. */
const PERIOD = 10;
const SETTLE_MS = 300;

/** @typedef {typeof KINDS[number]} Kind */
/** @typedef {{kind: Kind, hasHistory: boolean, name: string}} Place */
/** @typedef {{target: import('./servers.js').Target, swarm: import('./swarm.js').Swarm, publisher: WsClient}} Bench */

await experiment({
  question: 'Measures the CPU of deliveries in rooms with messages for some members.',
  options: `members N | whole 3..5000 | 1000 | members of each room
  rate N | whole 1..10000 | 50 | messages a second
  seconds S | whole 1..600 | 4 | duration of a window
  windows N | whole 1..1000 | 4 | windows of each room, in turn
  warm S | whole 0..600 | 3 | seconds of each room before the first window
  workers N | whole 1..64 | 2 | workers of the server
  rounds N | whole 1..100 | 1 | servers, one after the other
  ${OPTION.payload}`,

  async setup({ owner, values: { members, workers } }) {
    const env = { JWT_SECRET: SECRET, FANFARE_HISTORY: 'h.*=100/1h' };
    const { target, swarm } = await startBench(owner, { server: 'fanfare', workers, env });
    for (const [group, place] of placesOf().entries())
      await fill(target, swarm, place, group, members);
    const url = `ws://127.0.0.1:${target.port}/ws`;
    const headers = { Authorization: `Bearer ${await tokenOf('publisher', [])}` };
    const publisher = new WsClient(url, { headers });
    await publisher.open();
    owner.after(() => publisher.destroy());
    return { target, swarm, publisher };
  },

  async measure(bench, { values }) {
    const { windows, warm, seconds, members, rate } = values;
    for (const place of placesOf()) if (warm > 0) await publish(bench, place, warm, values);
    /** CPU µs a delivery, by place and window. @type {number[][]} */
    const costs = placesOf().map(() => []);
    const faults = [];
    for (let window = 0; window < windows; window++)
      for (const [i, place] of placesOf().entries()) {
        const before = await figuresOf(bench.target);
        await publish(bench, place, seconds, values);
        const after = await figuresOf(bench.target);
        const expected = deliveriesOf(place.kind, rate * seconds, members);
        const found = after.deliveries - before.deliveries;
        if (found !== expected) faults.push(`${place.name}: ${found} of ${expected} deliveries`);
        costs[i].push(((after.cpu - before.cpu) * 1e6) / expected);
      }
    return { costs, faults };
  },

  report(rounds, { members, rate, seconds, windows }) {
    const measured = rounds.flat();
    const places = placesOf();
    const all = places.map((_, i) => measured.flatMap(({ costs }) => costs[i]));
    const rows = places.map(({ kind, hasHistory }, i) => {
      const plain =
        all[places.findIndex((one) => one.kind === 'plain' && one.hasHistory === hasHistory)];
      const ratios = all[i].map((cost, window) => cost / plain[window]);
      const range = `${show(Math.min(...all[i]), 2)}–${show(Math.max(...all[i]), 2)}`;
      return [
        kind,
        hasHistory ? 'yes' : 'no',
        `${show(median(all[i]), 2)} (${range})`,
        show(median(ratios), 3),
      ];
    });
    const faults = measured.flatMap((one) => one.faults);
    return {
      title: 'Messages for some members of a room',
      note: `${members} members, ${rate} messages/s; medians of ${windows * rounds.length} windows of ${seconds} s`,
      lines: [
        ...markdownTable(
          ['room', 'history', 'server CPU, µs a delivery', '× plain, in the same turn'],
          rows,
          2,
        ),
        ...(faults.length === 0 ? [] : ['', `**Failed**: ${faults.join('; ')}`]),
      ],
      data: { measured },
      failed: faults.length > 0,
    };
  },
});

/** @returns {Place[]} */
function placesOf() {
  return [false, true].flatMap((hasHistory) =>
    KINDS.map((kind) => ({ kind, hasHistory, name: `${hasHistory ? 'h' : 'p'}.${kind}` })),
  );
}

/** @param {string} user @param {string[]} audiences */
function tokenOf(user, audiences) {
  return sign({ user, rooms: RIGHTS, audiences }, SECRET);
}

/**
 * Opens the members of a room.
 * @param {Bench['target']} target @param {Bench['swarm']} swarm @param {Place} place
 * @param {number} group of the swarm @param {number} members
 */
async function fill(target, swarm, { kind, name }, group, members) {
  const isOwn = kind === 'sets';
  const parts = isOwn ? members : GROUPS.length;
  for (let part = 0; part < parts; part++) {
    const count = isOwn ? 1 : sizeOf(part, members);
    // Backwards, so that groups have the sizes of sizeOf.
    const own = [GROUPS[isOwn ? GROUPS.length - 1 - (part % GROUPS.length) : part]];
    if (isOwn) own.push(`own-${part}`);
    if (kind === 'plain') own.pop();
    const headers = `Authorization: Bearer ${await tokenOf(`${kind}-${part}`, own)}\r\n`;
    await swarm.aim({ ...target, profile: { ...target.profile, headers } });
    await openAll(swarm, { count, room: name, group, sources: 4 });
  }
}

/** For whom a message is. @param {Kind} kind @param {number} n @returns {string[]|undefined} */
function audienceOf(kind, n) {
  if (kind === 'plain' || kind === 'held' || n % PERIOD !== 0) return undefined;
  return [GROUPS[(n / PERIOD) % GROUPS.length]];
}

/** Members that hold one of the three. @param {number} group @param {number} members */
function sizeOf(group, members) {
  return Math.floor((members + group) / GROUPS.length);
}

/** @param {Kind} kind @param {number} messages @param {number} members */
function deliveriesOf(kind, messages, members) {
  let count = 0;
  for (let n = 0; n < messages; n++) {
    const audience = audienceOf(kind, n);
    count += audience === undefined ? members : sizeOf(GROUPS.indexOf(audience[0]), members);
  }
  return count;
}

/**
 * At fixed times.
 * @param {Bench} bench @param {Place} place @param {number} seconds
 * @param {import('../../test/harness/options.js').Values} values
 */
async function publish({ publisher }, { kind, name }, seconds, { rate, payload }) {
  const startMs = performance.now();
  const text = 'x'.repeat(payload);
  for (let n = 0; n < rate * seconds; n++) {
    const waitMs = startMs + (n * 1000) / rate - performance.now();
    if (waitMs > 0) await sleep(waitMs);
    const audience = audienceOf(kind, n);
    publisher.send(JSON.stringify({ type: 'message', room: name, payload: text, audience }));
  }
  await sleep(SETTLE_MS);
}

/** @param {Bench['target']} target */
async function figuresOf(target) {
  const { values } = await scrape(Number(target.metricsPort));
  return { deliveries: Number(values.get('fanfare_deliveries_total')), cpu: target.cpuSeconds() };
}
