// history.js: the cost of history in Redis.
//
//   node loadtest/bench/history.js                    some six minutes
//   node loadtest/bench/history.js --only server --rates 1000 --rounds 3
//
// Two parts, each without history and with it (100 publications, 300 s), in turns:
// - a server: two workers, 1,000 rooms of 10 members, messages spread over all of them, at fixed rates;
// - the broker alone, in two processes that publish to many rooms in one tick and subscribe to all of
//   them. Only the command itself is left there, and a script that does nothing shows the share of Lua.
//
// The figure is the processor time of the redis-server process (INFO's used_cpu, µs) for a
// publication.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pino from 'pino';
import { RedisBroker } from '../../src/backend/redis/broker.js';
import { createCounters } from '../../src/observability/counters.js';
import { redisSettings, startRedis } from '../../test/harness/redis.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { startBench } from './script.js';
import { clean, measured, openAll } from './step.js';

const WORKERS = 2;
const TICK_MS = 10;
const WARM_MS = 500;
const BYTES = 150;
const RULE = Object.freeze({ size: 100, ttlMs: 300_000 });

/** The load of a worker in each TICK_MS. */
const LOADS = Object.freeze([
  { rooms: 1, publications: 1 },
  { rooms: 20, publications: 1 },
  { rooms: 200, publications: 1 },
  { rooms: 1, publications: 20 },
  { rooms: 20, publications: 10 },
]);
const KINDS = Object.freeze(['plain', 'history']);
const ROOMS = Math.max(...LOADS.map(({ rooms }) => rooms));

/** @typedef {{rooms: number, publications: number, kind: string}} Load */

/** @typedef {import('../../test/harness/run.js').Run} Run */
/** @typedef {{redis: number, server: number}} Cost of a publication, us */

if (process.send !== undefined) await work(process.argv[2]);
else
  await experiment({
    question:
      'Measures the processor time of Redis for a publication, without history and with it.',
    options: `only LIST | list of server broker | server,broker | parts to run
    rates LIST | list of number 0.1..100000 | 200,1000,4000 | messages a second, of the server
    rounds N | whole 1..100 | 3 | rounds
    seconds S | number 0.5..3600 | 4 | duration of each measurement`,
    variants: ({ only }) => [
      ...(only.includes('server') ? KINDS : []),
      ...(only.includes('broker') ? ['broker'] : []),
    ],
    setup: ({ owner }) => owner,
    measure: async (owner, { values, variant }) =>
      variant === 'broker'
        ? { variant, costs: [], broker: await ofBroker(owner, values.seconds) }
        : { variant, costs: await ofServer(owner, variant, values), broker: null },
    report(rounds, { rates }) {
      const all = rounds.flat();
      const brokers = all.flatMap(({ broker }) => broker ?? []);
      const [plain, history] = KINDS.map((kind) =>
        all.filter(({ variant }) => variant === kind).map(({ costs }) => costs),
      );
      const lines = [
        ...(plain.length > 0 ? serverLines(rates, plain, history) : []),
        ...(brokers.length > 0 ? brokerLines(brokers) : []),
      ];
      return {
        title: 'The cost of history in Redis',
        note: `medians of ${rounds.length} rounds, in brackets the range`,
        lines,
        data: { lines },
      };
    },
  });

/** Processor time of a server's redis-server so far, in seconds. @param {Redis} redis */
async function cpuOf(redis) {
  const info = await redis.info('cpu');
  return [...info.matchAll(/^used_cpu_(?:user|sys):([\d.]+)/gm)].reduce(
    (sum, [, each]) => sum + Number(each),
    0,
  );
}

/**
 * @param {Run} owner
 * @param {string} kind
 * @param {import('../../test/harness/options.js').Values} values
 * @returns {Promise<Cost[]>} for each rate
 */
async function ofServer(owner, kind, { rates, seconds }) {
  /** @type {Record<string, string>} */
  const env = kind === 'history' ? { FANFARE_HISTORY: 'room-*=100/300s' } : {};
  const { target, swarm } = await startBench(owner, {
    ...{ server: 'fanfare-redis', env },
  });
  await openAll(swarm, { count: 10_000, rooms: 1000, room: 'room-', sources: 4 });
  const redis = new Redis(target.redisUrl);
  owner.after(() => redis.disconnect());
  const load = { payloadBytes: 100, everyProcess: true, publishers: 5 };
  // The first publication to a room costs more: every worker publishes to every room beforehand.
  await swarm.run({ ...load, perSecond: 4000, seconds: 3 });
  /** @type {Cost[]} */
  const costs = [];
  for (const perSecond of rates) {
    const before = await cpuOf(redis);
    const step = await measured(target, () => swarm.run({ ...load, perSecond, seconds }));
    const spent = (await cpuOf(redis)) - before;
    if (!clean(step)) throw new Error(`messages were lost at ${perSecond}/s, ${kind}`);
    const perMessage = (/** @type {number} */ s) => (s * 1e6) / step.sent;
    costs.push({ redis: perMessage(spent), server: perMessage(step.serverCpuSeconds) });
  }
  return costs;
}

/**
 * @param {readonly number[]} rates
 * @param {readonly Cost[][]} plain by round and rate
 * @param {readonly Cost[][]} history
 */
function serverLines(rates, plain, history) {
  const row = (/** @type {number} */ rate, /** @type {number} */ i) => {
    const cells = /** @type {const} */ (['redis', 'server']).flatMap((whose) =>
      comparison(
        plain.map((costs) => costs[i][whose]),
        history.map((costs) => costs[i][whose]),
      ),
    );
    return [rate, ...cells];
  };
  const head = ['messages/s', 'Redis, plain, µs', 'with history, µs', '×'];
  return [
    '## A server: 2 workers, 1,000 rooms of 10 members',
    '',
    ...markdownTable([...head, 'server, plain, µs', 'with history, µs', '×'], rates.map(row)),
    '',
  ];
}

/**
 * @param {Run} owner
 * @param {number} seconds
 * @returns {Promise<{loads: Record<string, number>[], idle: number}>} us of Redis for a publication
 *   and publications a second, by load; and us for a script that does nothing
 */
async function ofBroker(owner, seconds) {
  const server = await startRedis(owner);
  const redis = new Redis(server.url);
  owner.after(() => redis.disconnect());
  const workers = Array.from({ length: WORKERS }, () => fork(import.meta.filename, [server.url]));
  owner.after(() => {
    for (const worker of workers) worker.kill();
  });
  await Promise.all(workers.map((worker) => once(worker, 'message')));
  /** @type {(load: Load|null) => Promise<number>} publications accepted so far, by all */
  const ask = async (load) => {
    const answers = workers.map((worker) => once(worker, 'message'));
    for (const worker of workers) worker.send({ load });
    return (await Promise.all(answers)).reduce((sum, [accepted]) => sum + accepted, 0);
  };
  /** @type {Record<string, number>[]} */
  const loads = [];
  for (const { rooms, publications } of LOADS) {
    /** @type {Record<string, number>} */
    const costs = {};
    for (const kind of KINDS) {
      await ask({ rooms, publications, kind });
      await sleep(WARM_MS);
      const before = { accepted: await ask(null), cpu: await cpuOf(redis) };
      await sleep(seconds * 1000);
      const accepted = (await ask(null)) - before.accepted;
      costs[kind] = (((await cpuOf(redis)) - before.cpu) / accepted) * 1e6;
      costs.rate = accepted / seconds;
    }
    loads.push(costs);
  }
  await ask({ rooms: 0, publications: 0, kind: 'plain' });
  const sha = String(await redis.script('LOAD', 'return 1'));
  const before = await cpuOf(redis);
  for (let i = 0; i < 100; i++) {
    const pipeline = redis.pipeline();
    for (let j = 0; j < 200; j++)
      pipeline.evalsha(sha, 2, 'a', 'b', '1', '2', '3', '4', Buffer.alloc(BYTES));
    await pipeline.exec();
  }
  return { loads, idle: (((await cpuOf(redis)) - before) * 1e6) / 20_000 };
}

/** @param {readonly {loads: Record<string, number>[], idle: number}[]} rounds */
function brokerLines(rounds) {
  const rows = LOADS.map(({ rooms, publications }, i) => {
    const of = (/** @type {string} */ key) => rounds.map(({ loads }) => loads[i][key]);
    const rate = Math.round(of('rate').at(-1) ?? 0);
    return [`${rooms} × ${publications}`, rate, ...comparison(of('plain'), of('history'))];
  });
  return [
    '## The broker alone: 2 processes, each tick of 10 ms',
    '',
    ...markdownTable(
      ['rooms × publications a tick', 'publications/s', 'plain, µs', 'with history, µs', '×'],
      rows,
    ),
    '',
    `A script that does nothing, 200 in a write: ${figure(rounds.map(({ idle }) => idle))} µs.`,
    '',
  ];
}

/** @param {number[]} plain @param {number[]} history both by round */
function comparison(plain, history) {
  const ratios = history.map((each, i) => each / plain[i]);
  return [figure(plain), figure(history), figure(ratios, 2)];
}

/** A worker: publishes until the parent ends it. @param {string} redisUrl */
async function work(redisUrl) {
  const broker = new RedisBroker({
    config: {
      redis: redisSettings({ REDIS_URL: redisUrl }),
      redisPrefix: 'bench:',
      redisTimeoutMs: 5000,
      maxPubsubBytes: 65_536,
      roomLingerMs: 1000,
      historyFence: 'strict',
      fastPaths: 'on',
    },
    log: pino({ level: 'warn' }),
    counters: createCounters(),
    workerId: `${process.pid}`,
    historyOf: (room) => (room.startsWith('history') ? RULE : null),
  });
  await broker.start({ onPublication: () => {}, onState: () => {} });
  for (const kind of ['plain', 'history'])
    await Promise.all(Array.from({ length: ROOMS }, (_, i) => broker.subscribe(`${kind}-${i}`)));
  const publication = Buffer.alloc(BYTES, 'a');
  let accepted = 0;
  /** @type {Load|null} */
  let load = null;
  setInterval(() => {
    if (load === null) return;
    for (let i = 0; i < load.rooms; i++) {
      for (let j = 0; j < load.publications; j++) {
        broker.publish(`${load.kind}-${i}`, publication).then(
          () => accepted++,
          (error) => console.error(error.message),
        );
      }
    }
  }, TICK_MS);
  process.on('message', (/** @type {{load: Load|null}} */ message) => {
    load = message.load ?? load;
    process.send?.(accepted);
  });
  process.on('disconnect', () => process.exit());
  process.send?.('ready');
}

/**
 * @param {number[]} values
 * @param {number} [digits]
 * @returns {string} the median, and the range
 */
function figure(values, digits = 1) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return `${show(median(values), digits)} (${show(least, digits)}–${show(most, digits)})`;
}
