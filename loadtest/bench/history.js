// history.js: what history costs Redis.
//
//   node loadtest/bench/history.js                    some six minutes
//   node loadtest/bench/history.js --only server --rates 1000 --rounds 3
//
// Twice, each first without history and then with (100 publications, 300 s), in turns:
// - a server: two workers, 1,000 rooms of 10 members, messages spread over all of them, at fixed rates;
// - the broker alone, in two processes that publish to many rooms in one tick and subscribe to all of them: there nothing but
//   the command itself is left, and a script that does nothing shows what is Lua's. More than any one server gets to.
//
// The figure is the processor time of the redis-server process (INFO's used_cpu, µs) for a
// publication.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import pino from 'pino';
import { RedisBroker } from '../../src/backend/redis/broker.js';
import { createCounters } from '../../src/observability/counters.js';
import { parsedArgs } from '../lib/options.js';
import { redisSettings, startRedis } from '../lib/redis.js';
import { describeMachine } from './machine.js';
import { startServer, stopAll } from './servers.js';
import { findClient, Swarm } from './swarm.js';
import { clean, measured } from './workloads.js';

const WORKERS = 2;
const TICK_MS = 10;
const WARM_MS = 500;
const BYTES = 150;
const RULE = Object.freeze({ size: 100, ttlMs: 300_000 });

/** What a worker publishes each TICK_MS. */
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
  const { values: options } = parsedArgs({
    options: {
      only: { type: 'string', default: 'server,broker' },
      rates: { type: 'string', default: '200,1000,4000' },
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '4' },
      save: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (options.help) {
    console.log(
      'node loadtest/bench/history.js [--only server,broker] [--rates 200,1000,4000] [--rounds 3] [--seconds 4] [--save PATH]',
    );
    return;
  }
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
    process.once(signal, async () => {
      await stopAll();
      process.exit(1);
    });
  }
  const startedAt = new Date().toISOString();
  const [rounds, seconds] = [Number(options.rounds), Number(options.seconds)];
  const lines = [];
  for (const part of options.only.split(',')) {
    if (part === 'server')
      lines.push(...(await ofServer(options.rates.split(',').map(Number), rounds, seconds)), '');
    else if (part === 'broker') lines.push(...(await ofBroker(rounds, seconds)), '');
    else throw new Error(`--only ${part}: server or broker`);
  }
  const text = [
    `# What history costs Redis, ${startedAt}`,
    '',
    `\`node loadtest/bench/history.js ${process.argv.slice(2).join(' ')}\`: medians of ${rounds} rounds, in brackets the range`,
    '',
    ...Object.entries(describeMachine()).map(([key, value]) => `- ${key}: ${value}`),
    '',
    ...lines,
  ].join('\n');
  const path =
    options.save ??
    fileURLToPath(
      new URL(`./results/history-${startedAt.slice(0, 16).replace(':', '')}`, import.meta.url),
    );
  mkdirSync(new URL('./results/', import.meta.url), { recursive: true });
  writeFileSync(`${path}.md`, text);
  console.log(`\n${text}\nsaved as ${path}.md`);
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
  const client = findClient('auto');
  /** @type {Record<string, {redis: number[], server: number[]}[]>} by kind, a cell a rate */
  const micros = Object.fromEntries(
    KINDS.map((kind) => [kind, rates.map(() => ({ redis: [], server: [] }))]),
  );
  for (let round = 0; round < rounds; round++) {
    for (const kind of KINDS) {
      /** @type {(() => unknown)[]} */
      const ends = [];
      try {
        const { url } = await startRedis({ after: (end) => ends.unshift(end) });
        const redis = new Redis(url);
        ends.unshift(() => redis.disconnect());
        /** @type {Record<string, string>} */
        const history = kind === 'history' ? { FANFARE_HISTORY: 'room-*=100/300s' } : {};
        const target = await startServer('fanfare', { env: { REDIS_URL: url, ...history } });
        ends.unshift(() => target.close());
        const swarm = new Swarm({ client, processes: 2 }).start();
        ends.unshift(() => swarm.close());
        await swarm.aim(target);
        const opened = await swarm.open({ count: 10_000, rooms: 1000, room: 'room-', sources: 4 });
        if (opened.failed > 0) throw new Error(`${opened.failed} connections failed`);
        const load = { payloadBytes: 100, everyProcess: true, publishers: 5 };
        // Every room has been published to by every worker: what the first time costs comes once.
        await swarm.run({ ...load, perSecond: 4000, seconds: 3 });
        for (const [i, rate] of rates.entries()) {
          const before = await cpuOf(redis);
          const step = await measured(target, () =>
            swarm.run({ ...load, perSecond: rate, seconds }),
          );
          const spent = (await cpuOf(redis)) - before;
          if (!clean(step)) throw new Error(`messages were lost at ${rate}/s, ${kind}`);
          micros[kind][i].redis.push((spent * 1e6) / step.sent);
          micros[kind][i].server.push((step.serverCpuSeconds * 1e6) / step.sent);
        }
      } finally {
        for (const end of ends) await end();
      }
    }
  }
  const row = (/** @type {number} */ rate, /** @type {number} */ i) => {
    const cells = /** @type {const} */ (['redis', 'server']).flatMap((whose) => {
      const [plain, history] = KINDS.map((kind) => micros[kind][i][whose]);
      return [figure(plain), figure(history), figure(ratiosOf(history, plain), 2)];
    });
    return `| ${rate} | ${cells.join(' | ')} |`;
  };
  return shown([
    '## A server: 2 workers, 1,000 rooms of 10 members',
    '',
    '| messages/s | Redis, plain, µs | with history, µs | × | server, plain, µs | with history, µs | × |',
    '|---:|---:|---:|---:|---:|---:|---:|',
    ...rates.map(row),
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
    const lines = [
      '## The broker alone: 2 processes, each tick of 10 ms',
      '',
      '| rooms × publications a tick | publications/s | plain, µs | with history, µs | × |',
      '|---:|---:|---:|---:|---:|',
    ];
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
      lines.push(
        `| ${rooms} × ${publications} | ${Math.round(rate)} | ${figure(micros.plain)} | ${figure(micros.history)} | ${figure(ratiosOf(micros.history, micros.plain), 2)} |`,
      );
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
    lines.push('', `A script that does nothing, 200 in a write: ${figure(idle)} µs.`);
    return shown(lines);
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

/** A worker: does as it is told until it is killed. @param {string} redisUrl */
async function work(redisUrl) {
  const broker = new RedisBroker({
    config: {
      redis: redisSettings({ REDIS_URL: redisUrl }),
      redisPrefix: 'bench:',
      redisTimeoutMs: 5000,
      maxPubsubBytes: 65_536,
      roomLingerMs: 1000,
      historyFence: 'strict',
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
 * The median, and the range.
 * @param {number[]} values
 * @param {number} [digits]
 */
function figure(values, digits = 1) {
  const sorted = [...values].sort((a, b) => a - b);
  const [least, median, most] = [
    sorted[0],
    sorted[sorted.length >> 1],
    sorted[sorted.length - 1],
  ].map((value) => value.toFixed(digits));
  return `${median} (${least}–${most})`;
}

/** @param {number} ms */
function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
