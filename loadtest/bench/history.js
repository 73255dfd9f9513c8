// history.js: what history costs Redis: `node loadtest/bench/history.js [--rounds 5] [--seconds 2]`.
//
// Two workers publish to the same rooms and subscribe to all of them, at a fixed rate, first without history and then with
// (100 publications, 300 s). The figure is the processor time of the redis-server process (INFO's used_cpu, µs) for a
// publication; both ways take turns in every round, on the same Redis and in the same processes.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { parseArgs } from 'node:util';
import pino from 'pino';
import { RedisBroker } from '../../src/broker/redis.js';
import { createStats } from '../../src/stats.js';
import { redisSettings, startRedis } from '../../test/helpers/redis.js';

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
const ROOMS = Math.max(...LOADS.map(({ rooms }) => rooms));

/** @typedef {{rooms: number, publications: number, kind: string}} Load */

if (process.send === undefined) await measure();
else await work(process.argv[2]);

async function measure() {
  const { values } = parseArgs({
    options: { rounds: { type: 'string', default: '5' }, seconds: { type: 'string', default: '2' } },
  });
  /** @type {(() => unknown)[]} */
  const ends = [];
  const redis = await startRedis({ after: (end) => ends.unshift(end) });
  try {
    const workers = Array.from({ length: WORKERS }, () => fork(import.meta.filename, [redis.url]));
    ends.unshift(() => {
      for (const worker of workers) worker.kill();
    });
    await Promise.all(workers.map((worker) => once(worker, 'message')));
    const cpu = async () => {
      const info = await redis.cli('INFO', 'cpu');
      return [...info.matchAll(/^used_cpu_(?:user|sys):([\d.]+)/gm)].reduce((sum, [, each]) => sum + Number(each), 0);
    };
    /** @param {Load|null} load @returns {Promise<number>} accepted so far, by all */
    const ask = async (load) => {
      const answers = workers.map((worker) => once(worker, 'message'));
      for (const worker of workers) worker.send({ load });
      return (await Promise.all(answers)).reduce((sum, [accepted]) => sum + accepted, 0);
    };
    console.log('| rooms × publications a tick | publications/s | plain, µs | with history, µs | × |');
    console.log('|---:|---:|---:|---:|---:|');
    for (const { rooms, publications } of LOADS) {
      /** @type {Record<string, number[]>} */
      const micros = { plain: [], history: [] };
      let rate = 0;
      for (let round = 0; round < Number(values.rounds); round++) {
        for (const kind of ['plain', 'history']) {
          await ask({ rooms, publications, kind });
          await sleep(WARM_MS);
          const [acceptedBefore, cpuBefore] = [await ask(null), await cpu()];
          await sleep(Number(values.seconds) * 1000);
          const [accepted, seconds] = [(await ask(null)) - acceptedBefore, (await cpu()) - cpuBefore];
          micros[kind].push((seconds / accepted) * 1e6);
          rate = accepted / Number(values.seconds);
        }
      }
      const ratios = micros.history.map((each, i) => each / micros.plain[i]);
      console.log(
        `| ${rooms} × ${publications} | ${Math.round(rate)} | ${figure(micros.plain)} | ${figure(micros.history)} | ${figure(ratios, 2)} |`,
      );
    }
  } finally {
    for (const end of ends) await end();
  }
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
    stats: createStats(),
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

/** The median, and the range. @param {number[]} values @param {number} [digits] */
function figure(values, digits = 1) {
  const sorted = [...values].sort((a, b) => a - b);
  const [least, median, most] = [sorted[0], sorted[sorted.length >> 1], sorted[sorted.length - 1]].map((value) =>
    value.toFixed(digits),
  );
  return `${median} (${least}–${most})`;
}

/** @param {number} ms */
function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
