// webhooks.js: the cost of webhooks when the endpoint is down, and when it is slow.
//
//   node loadtest/bench/webhooks.js                     down for 10 minutes, 10,000 users in motion, Redis
//   node loadtest/bench/webhooks.js --backend embedded --minutes 3
//   node loadtest/bench/webhooks.js --part slow         1,000 events a second, 200 ms for each request
//
// `down`: the endpoint refuses connections while users join and leave. Then it is back, and its
// model of who is where, by the events that it got, must become the truth of the clients.
//
// `slow`: three servers have the same load in turns: without webhooks, with an endpoint that answers
// at once, and with a slow one. The figure is the processor time of the workers.

import { writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startRedis, temporaryFolder } from '../../test/harness/redis.js';
import { NO_LIMITS, scrape, startServer, urlOf } from '../../test/harness/server.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { cpuSecondsOf, pssKbOf } from './machine.js';
import { startChild } from './webhooks-child.js';

const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
const CLIENT_PROCESSES = 2;
/** The courier measures its queue this often. */
const SAMPLE_MS = 15_000;
const CALM_MS = 180_000;
/** Of `slow`: users that leave by a command instead of closing the connection. */
const SEATS_PER_CONNECTION = 50;
/** Between two windows, so that the backlog of the last one drains. */
const PAUSE_MS = 1000;

/** @typedef {import('../../test/harness/run.js').Run} Run */
/** @typedef {import('../../test/harness/options.js').Values} Values */
/** @typedef {ReturnType<typeof startChild>} Child */
/** @typedef {import('../../test/harness/server.js').Server} Server */
/** @typedef {{server: Server, redis: import('../../test/harness/redis.js').RedisServer|null, users: Child[]}} Place a server and its clients */

await experiment({
  question: 'Measures webhooks to an endpoint that is down or slow.',
  options: `part NAME | one of down slow | down | which measurement: down or slow
  backend NAME | one of redis embedded | redis | where events are recorded: redis or embedded
  users N | whole 10..100000 | 10000 | users in motion
  rooms N | whole 50..100000 | 2000 | rooms they are in, all with presence
  concurrency N | whole 1..64 | 4 | requests at once to the endpoint
  down
  minutes M | number 0.1..600 | 10 | how long the endpoint is down
  moves N | whole 1..10000 | 500 | joins and leaves a second
  slow
  events N | whole 1..10000 | 1000 | joins and leaves a second
  delay MS | whole 0..10000 | 200 | what the endpoint takes for a request
  windows N | whole 1..100 | 6 | rounds of measurements
  seconds S | number 1..600 | 10 | duration of each`,

  setup({ owner }) {
    return owner;
  },

  measure: (owner, { values }) =>
    values.part === 'down' ? whileDown(owner, values) : whileSlow(owner, values),

  report: ([[measured]]) => measured,
});

/**
 * @param {Run} owner @param {Values} values
 * @param {number|null} port of the endpoint; null: no webhooks
 * @param {number} seatsPerConnection
 * @returns {Promise<Place>} with all users in their rooms
 */
async function startPlace(owner, values, port, seatsPerConnection) {
  const { backend, users, rooms, concurrency } = values;
  const redis = backend === 'redis' ? await startRedis(owner) : null;
  /** @type {Record<string, string>} */
  const env = { ...NO_LIMITS, WORKERS: '2', FANFARE_PRESENCE: 'chat.*' };
  if (redis !== null) env.REDIS_URL = redis.url;
  if (port !== null) {
    const folder = await temporaryFolder();
    owner.after(() => rm(folder, { recursive: true }));
    env.FANFARE_WEBHOOKS = join(folder, 'webhooks.json');
    const url = `http://127.0.0.1:${port}/`;
    const endpoint = { name: 'back-end', url, secret: SECRET, concurrency };
    writeFileSync(env.FANFARE_WEBHOOKS, JSON.stringify([endpoint]));
  }
  const server = await startServer(owner, env);
  const children = Array.from({ length: CLIENT_PROCESSES }, () =>
    startChild(owner, 'client/users.js'),
  );
  const share = Math.floor(users / CLIENT_PROCESSES);
  const target = urlOf(server);
  await Promise.all(
    children.map((child, i) =>
      child.ask('open', { target, first: i * share, users: share, rooms, seatsPerConnection }),
    ),
  );
  return { server, redis, users: children };
}

/** @param {Place} place @param {number} perSecond @param {number} closes */
async function churn({ users }, perSecond, closes) {
  const each = { perSecond: perSecond / users.length, closes };
  await Promise.all(users.map((child) => child.ask('churn', each)));
}

/** @param {Place} place */
async function rest({ users }) {
  const all = await Promise.all(users.map((child) => child.ask('rest')));
  const members = /** @type {string[]} */ (all.flatMap(({ truth }) => truth));
  const rooms = new Set(members.map((one) => one.split(' ')[0]));
  return {
    members: new Set(members),
    rooms,
    moves: sumOf(all.map(({ moves }) => moves)),
    failed: sumOf(all.map(({ failed }) => failed)),
  };
}

/** @param {readonly number[]} numbers */
function sumOf(numbers) {
  return numbers.reduce((sum, one) => sum + one, 0);
}

/** The workers and the courier of a server. @param {Server} server */
function processesOf(server) {
  const courier = server.courierPid();
  return {
    workers: server.workerPids(),
    couriers: courier === null ? [] : [courier],
    primary: server.pid,
  };
}

/** @param {Place} place */
async function redisMb({ redis }) {
  const info = (await redis?.cli('INFO', 'memory')) ?? '';
  return Number(/^used_memory:(\d+)/m.exec(info)?.[1] ?? Number.NaN) / 1e6;
}

/** @param {Place} place */
async function sampleOf(place) {
  const { values } = await scrape(place.server.metricsPort);
  const { couriers, primary } = processesOf(place.server);
  const metric = (/** @type {string} */ name) => values.get(`fanfare_webhooks_${name}`) ?? 0;
  return {
    entries: metric('queue_entries'),
    pending: metric('pending{endpoint="back-end"}'),
    cancelled: metric('cancelled_total{endpoint="back-end"}'),
    queueMb: metric('queue_bytes') / 1e6,
    redisMb: await redisMb(place),
    courierMb: pssKbOf(couriers) / 1000,
    primaryMb: pssKbOf([primary]) / 1000,
  };
}

/**
 * @param {Run} owner @param {Values} values
 * @returns {Promise<import('../lib/experiment.js').Report>}
 */
async function whileDown(owner, values) {
  const { minutes, moves: perSecond, users, backend } = values;
  const receiver = startChild(owner, 'servers/receiver.js');
  const { port } = await receiver.ask('up', { secret: SECRET, delay: 0 });
  const place = await startPlace(owner, values, port, 1);
  const opened = await settle(receiver, await rest(place));
  const startMs = performance.now();
  /** @type {(Awaited<ReturnType<typeof sampleOf>> & {at: string, state: string, moves: number, requests: number})[]} */
  const samples = [];
  const sample = async (/** @type {string} */ state) => {
    const at = `${show((performance.now() - startMs) / 1000)} s`;
    const { requests } = await receiver.ask('report');
    const counts = await Promise.all(place.users.map((child) => child.ask('count')));
    const moves = sumOf(counts.map((one) => one.moves));
    const one = { at, state, moves, requests, ...(await sampleOf(place)) };
    samples.push(one);
    console.log(Object.values(rowOf(one)).join('\t'));
  };
  await sleep(SAMPLE_MS + 1000);
  await sample('before');
  await receiver.ask('down');
  await churn(place, perSecond, 0.5);
  const endMs = performance.now() + minutes * 60_000;
  while (performance.now() < endMs) {
    await sleep(Math.min(SAMPLE_MS, endMs - performance.now()));
    await sample('down');
  }
  const truth = await rest(place);
  await sleep(SAMPLE_MS + 1000); // the queue's size of the last moves
  await sample('down, at rest');
  const peak = samples.at(-1);
  await receiver.ask('up', { secret: SECRET, delay: 0 });
  const back = await settle(receiver, truth);
  await sleep(SAMPLE_MS + 1000);
  const last = await settle(receiver, truth);
  await sample('after');
  const isRight = opened.isRight && back.isRight && last.isRight;
  const bound = users + values.rooms;
  const most = Math.max(...samples.map(({ pending }) => pending));
  const gaps = back.gaps.length;
  return {
    title: `Webhooks: the endpoint is down for ${minutes} minutes, ${backend}`,
    note: `${show(users)} users, ${show(truth.moves)} joins and leaves (${truth.failed} failed)`,
    lines: [
      `**The receiver's model ${isRight ? 'equals the truth' : 'IS WRONG'}**: ${show(truth.members.size)} members in ${show(truth.rooms.size)} rooms, ${show(back.seconds, 1)} s after the endpoint was back; ${show(back.requests - (peak?.requests ?? 0))} requests, ${gaps} gaps. **At most ${show(most)} events waited**, of ${show(bound)} users and rooms.`,
      '',
      ...markdownTable(
        Object.keys(rowOf(samples[0])),
        samples.map((one) => Object.values(rowOf(one))),
        2,
      ),
      '',
      ...(isRight
        ? []
        : last.differences.slice(0, 20).map((/** @type {string} */ one) => `    ${one}`)),
    ],
    data: {
      samples,
      back,
      truth: { ...truth, members: truth.members.size, rooms: truth.rooms.size },
    },
    failed: !isRight || most > bound + 16 || truth.failed > 0,
  };
}

/** @param {{at: string, state: string, moves: number, requests: number, entries: number, pending: number, cancelled: number, queueMb: number, redisMb: number, courierMb: number, primaryMb: number}} one */
function rowOf(one) {
  return {
    time: one.at,
    endpoint: one.state,
    moves: show(one.moves),
    requests: show(one.requests),
    entries: show(one.entries),
    pending: show(one.pending),
    cancelled: show(one.cancelled),
    'queue, MB': show(one.queueMb, 1),
    'Redis, MB': show(one.redisMb, 1),
    'courier, MB': show(one.courierMb),
    'primary, MB': show(one.primaryMb),
  };
}

/**
 * Waits until the receiver's model is the truth, for CALM_MS at most.
 * @param {Child} receiver @param {Awaited<ReturnType<typeof rest>>} truth
 */
async function settle(receiver, truth) {
  const startMs = performance.now();
  for (;;) {
    const { members, occupied, ...report } = await receiver.ask('report');
    const differences = [
      ...differ('member', truth.members, new Set(members)),
      ...differ('room', truth.rooms, new Set(occupied)),
    ];
    const isRight = differences.length === 0;
    const seconds = (performance.now() - startMs) / 1000;
    if (isRight || performance.now() - startMs > CALM_MS)
      return { isRight, seconds, differences, ...report };
    await sleep(100);
  }
}

/** @param {string} kind @param {Set<string>} wanted @param {Set<string>} found */
function differ(kind, wanted, found) {
  return [
    ...[...wanted].filter((one) => !found.has(one)).map((one) => `${kind} missing: ${one}`),
    ...[...found].filter((one) => !wanted.has(one)).map((one) => `${kind} too many: ${one}`),
  ];
}

/** @typedef {Record<'workers'|'primary'|'courier'|'redis', number>} Cpu percent of a core */
/** @typedef {Cpu & {perSecond: number, sent: number, p50Ms: number|null, p99Ms: number|null, pending: number}} Window */

/** @typedef {{name: string, place: Place, receiver: Child, seen: Window[]}} Setting */

/**
 * @param {Run} owner @param {Values} values
 * @returns {Promise<import('../lib/experiment.js').Report>}
 */
async function whileSlow(owner, values) {
  const { events, delay, windows, backend, concurrency } = values;
  /** @type {Setting[]} */
  const settings = [];
  for (const [name, delayMs] of /** @type {[string, number|null][]} */ ([
    ['no webhooks', null],
    ['endpoint at once', 0],
    [`endpoint ${delay} ms`, delay],
  ])) {
    const receiver = startChild(owner, 'servers/receiver.js');
    const { port } = await receiver.ask('up', { secret: SECRET, delay: delayMs ?? 0 });
    const used = delayMs === null ? null : port;
    const place = await startPlace(owner, values, used, SEATS_PER_CONNECTION);
    settings.push({ name, place, receiver, seen: [] });
  }
  // Unmeasured: code is compiled.
  for (const { place, receiver } of settings) await window(place, receiver, values);
  for (let i = 0; i < windows; i++)
    for (const { name, place, receiver, seen } of i % 2 === 0 ? settings : settings.toReversed()) {
      const one = await window(place, receiver, values);
      seen.push(one);
      console.log(
        `${name.padEnd(16)}: workers ${show(one.workers, 1)} %, ${show(one.perSecond)} events/s`,
      );
    }
  const [none, atOnce, slow] = settings;
  const ratio = (/** @type {Setting} */ one, /** @type {Setting} */ other) =>
    one.seen.map(({ workers }, i) => workers / other.seen[i].workers);
  const slowness = ratio(slow, atOnce);
  const webhooks = ratio(slow, none);
  const range = (/** @type {number[]} */ all, /** @type {number} */ digits) =>
    `${show(median(all), digits)} (${[Math.min(...all), Math.max(...all)].map((one) => show(one, digits)).join('–')})`;
  const row = (
    /** @type {string} */ title,
    /** @type {(one: Window) => number|null} */ read,
    digits = 1,
  ) => [
    title,
    ...settings.map(({ seen }) =>
      range(
        seen.map((one) => read(one) ?? Number.NaN),
        digits,
      ),
    ),
  ];
  let failed = 0;
  for (const { place } of settings) failed += (await rest(place)).failed;
  const [last] = slow.seen.slice(-1);
  return {
    title: `Webhooks: ${show(events)} events/s into an endpoint that takes ${delay} ms, ${backend}`,
    note: `${windows} rounds of windows; medians, in brackets the range; processor time of each group of processes as % of a core`,
    lines: [
      `**Workers' CPU: × ${range(slowness, 3)}** of that with an endpoint that answers at once, × ${range(webhooks, 3)} of that without webhooks`,
      '',
      ...markdownTable(
        ['', ...settings.map(({ name }) => name)],
        [
          row('events/s of the clients', (one) => one.perSecond, 0),
          row('two workers, %', (one) => one.workers),
          row('primary, %', (one) => one.primary),
          row('Redis, %', (one) => one.redis),
          row('courier, %', (one) => one.courier),
          row(`requests/s (${concurrency} at once)`, (one) => one.sent),
          row('age of an event at the endpoint, p50, s', (one) => one.p50Ms && one.p50Ms / 1000),
          row('the same, p99, s', (one) => one.p99Ms && one.p99Ms / 1000),
          row('events that wait', (one) => one.pending, 0),
        ],
        1,
      ),
    ],
    data: {
      seen: Object.fromEntries(settings.map(({ name, seen }) => [name, seen])),
      slowness,
      webhooks,
    },
    failed: failed > 0 || last.pending > values.users + values.rooms,
  };
}

/**
 * @param {Place} place @param {Child} receiver @param {Values} values
 * @returns {Promise<Window>}
 */
async function window(place, receiver, { events, seconds }) {
  const { workers, couriers, primary } = processesOf(place.server);
  const redis = place.redis?.process?.pid;
  const groups = { workers, courier: couriers, primary: [primary], redis: redis ? [redis] : [] };
  const read = () => Object.entries(groups).map(([name, pids]) => [name, cpuSecondsOf(pids)]);
  const { moves } = await rest(place);
  const { requests } = await receiver.ask('report');
  const before = Object.fromEntries(read());
  const startMs = performance.now();
  await churn(place, events, 0);
  await sleep(seconds * 1000);
  const after = await rest(place);
  const passed = (performance.now() - startMs) / 1000;
  const cpu = /** @type {Cpu} */ (
    Object.fromEntries(
      read().map(([name, s]) => [name, (100 * (Number(s) - before[name])) / passed]),
    )
  );
  if (processesOf(place.server).workers.join() !== workers.join())
    throw new Error('the server has replaced a worker: is something else running?');
  const report = await receiver.ask('report');
  const { pending } = await sampleOf(place);
  await sleep(PAUSE_MS);
  return {
    ...cpu,
    perSecond: (after.moves - moves) / passed,
    sent: couriers.length === 0 ? 0 : (report.requests - requests) / passed,
    p50Ms: couriers.length === 0 ? null : report.p50Ms,
    p99Ms: couriers.length === 0 ? null : report.p99Ms,
    pending,
  };
}
