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
import { markdownTable, median, show } from '../lib/figures.js';
import { readOptions } from '../lib/options.js';
import { redisSettings, startRedis } from '../lib/redis.js';
import { OPTION, saveReport, stopOnSignal, withServer } from './script.js';
import { clean, measured, openAll } from './workloads.js';

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

if (process.send === undefined) await measure();
else await work(process.argv[2]);

async function measure() {
  const { values } = readOptions(
    'Measures the processor time of Redis for a publication, without history and with it.',
    `only LIST | list of server broker | server,broker | parts to run
    rates LIST | | 200,1000,4000 | messages a second, of the server
    rounds N | whole 1..100 | 3 | rounds
    seconds S | number 0.5..3600 | 4 | duration of each measurement
    ${OPTION.save}`,
  );
  const { only, rates, rounds, seconds, save } = values;
  stopOnSignal();
  /** @type {string[]} */
  const lines = [];
  if (only.includes('server'))
    lines.push(...(await ofServer(rates.split(',').map(Number), rounds, seconds)), '');
  if (only.includes('broker')) lines.push(...(await ofBroker(rounds, seconds)), '');
  const note = `medians of ${rounds} rounds, in brackets the range`;
  saveReport({
    script: 'history',
    title: 'The cost of history in Redis',
    note,
    lines,
    data: { lines },
    save,
  });
}

/** Processor time of a server's redis-server so far, in seconds. @param {Redis} redis */
async function cpuOf(redis) {
  const info = await redis.info('cpu');
  return [...info.matchAll(/^used_cpu_(?:user|sys):([\d.]+)/gm)].reduce(
    (sum, [, each]) => sum + Number(each),
    0,
  );
}

/**
 * @param {number[]} rates messages a second
 * @param {number} rounds
 * @param {number} seconds
 * @returns {Promise<string[]>}
 */
async function ofServer(rates, rounds, seconds) {
  /** @type {Record<string, {redis: number[], server: number[]}[]>} by kind, a cell a rate */
  const micros = Object.fromEntries(
    KINDS.map((kind) => [kind, rates.map(() => ({ redis: [], server: [] }))]),
  );
  for (let round = 0; round < rounds; round++) {
    for (const kind of KINDS) {
      /** @type {Record<string, string>} */
      const env = kind === 'history' ? { FANFARE_HISTORY: 'room-*=100/300s' } : {};
      await withServer(
        { server: 'fanfare-redis', client: 'auto', env },
        async ({ target, swarm }) => {
          await openAll(swarm, { count: 10_000, rooms: 1000, room: 'room-', sources: 4 });
          const redis = new Redis(target.redisUrl);
          const load = { payloadBytes: 100, everyProcess: true, publishers: 5 };
          // Every worker has published to every room: the first publication to a room costs more.
          await swarm.run({ ...load, perSecond: 4000, seconds: 3 });
          for (const [i, perSecond] of rates.entries()) {
            const before = await cpuOf(redis);
            const step = await measured(target, () => swarm.run({ ...load, perSecond, seconds }));
            const spent = (await cpuOf(redis)) - before;
            if (!clean(step)) throw new Error(`messages were lost at ${perSecond}/s, ${kind}`);
            micros[kind][i].redis.push((spent * 1e6) / step.sent);
            micros[kind][i].server.push((step.serverCpuSeconds * 1e6) / step.sent);
          }
          redis.disconnect();
        },
      );
    }
  }
  const row = (/** @type {number} */ rate, /** @type {number} */ i) => {
    const cells = /** @type {const} */ (['redis', 'server']).flatMap((whose) => {
      const [plain, history] = KINDS.map((kind) => micros[kind][i][whose]);
      return [figure(plain), figure(history), figure(ratiosOf(history, plain), 2)];
    });
    return [rate, ...cells];
  };
  const head = ['messages/s', 'Redis, plain, µs', 'with history, µs', '×'];
  return shown([
    '## A server: 2 workers, 1,000 rooms of 10 members',
    '',
    ...markdownTable([...head, 'server, plain, µs', 'with history, µs', '×'], rates.map(row)),
  ]);
}

/**
 * @param {number} rounds
 * @param {number} seconds
 * @returns {Promise<string[]>}
 */
async function ofBroker(rounds, seconds) {
  /** @type {(() => unknown)[]} */
  const ends = [];
  const server = await startRedis({ after: (end) => ends.unshift(end) });
  try {
    const redis = new Redis(server.url);
    ends.unshift(() => redis.disconnect());
    /** @type {(string|number)[][]} */
    const rows = [];
    const workers = Array.from({ length: WORKERS }, () => fork(import.meta.filename, [server.url]));
    ends.unshift(() => {
      for (const worker of workers) worker.kill();
    });
    await Promise.all(workers.map((worker) => once(worker, 'message')));
    /**
     * @param {Load|null} load
     * @returns {Promise<number>} accepted so far, by all
     */
    const ask = async (load) => {
      const answers = workers.map((worker) => once(worker, 'message'));
      for (const worker of workers) worker.send({ load });
      return (await Promise.all(answers)).reduce((sum, [accepted]) => sum + accepted, 0);
    };
    for (const { rooms, publications } of LOADS) {
      /** @type {Record<string, number[]>} */
      const micros = { plain: [], history: [] };
      let rate = 0;
      for (let round = 0; round < rounds; round++) {
        for (const kind of KINDS) {
          await ask({ rooms, publications, kind });
          await sleep(WARM_MS);
          const [acceptedBefore, cpuBefore] = [await ask(null), await cpuOf(redis)];
          await sleep(seconds * 1000);
          const [accepted, spent] = [
            (await ask(null)) - acceptedBefore,
            (await cpuOf(redis)) - cpuBefore,
          ];
          micros[kind].push((spent / accepted) * 1e6);
          rate = accepted / seconds;
        }
      }
      const { plain, history } = micros;
      const ratio = figure(ratiosOf(history, plain), 2);
      rows.push([
        `${rooms} × ${publications}`,
        Math.round(rate),
        figure(plain),
        figure(history),
        ratio,
      ]);
    }
    await ask({ rooms: 0, publications: 0, kind: 'plain' });
    const idle = [];
    const sha = String(await redis.script('LOAD', 'return 1'));
    for (let round = 0; round < rounds; round++) {
      const before = await cpuOf(redis);
      for (let i = 0; i < 100; i++) {
        const pipeline = redis.pipeline();
        for (let j = 0; j < 200; j++)
          pipeline.evalsha(sha, 2, 'a', 'b', '1', '2', '3', '4', Buffer.alloc(BYTES));
        await pipeline.exec();
      }
      idle.push((((await cpuOf(redis)) - before) * 1e6) / 20_000);
    }
    return shown([
      '## The broker alone: 2 processes, each tick of 10 ms',
      '',
      ...markdownTable(
        ['rooms × publications a tick', 'publications/s', 'plain, µs', 'with history, µs', '×'],
        rows,
      ),
      '',
      `A script that does nothing, 200 in a write: ${figure(idle)} µs.`,
    ]);
  } finally {
    for (const end of ends) await end();
  }
}

/** @param {string[]} lines */
function shown(lines) {
  console.log(lines.join('\n'));
  return lines;
}

/**
 * @param {number[]} some
 * @param {number[]} base
 */
function ratiosOf(some, base) {
  return some.map((each, i) => each / base[i]);
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
