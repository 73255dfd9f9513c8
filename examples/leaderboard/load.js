// load.js: does every one of 10,000 readers end with the true top ten?
//
//   node examples/leaderboard/load.js                                        a bit over a minute
//   node examples/leaderboard/load.js --readers 100 --updates 100 --seconds 2
//
// Redis, Fanfare with two workers, the example's backend with its games, and readers of server-sent
// events run on this machine. After the games the map of each reader is compared with Redis. A latency
// is the time from the server's timestamp of a change until a reader has the bytes, and so includes up
// to 250 ms in which the server waits for newer ones.

import { fork, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { sign } from 'fanfare/server';
import { Latency } from '../../test/harness/latency.js';
import { readOptions } from '../../test/harness/options.js';
import { startRedis } from '../../test/harness/redis.js';
import { count, pause, run } from '../../test/harness/run.js';
import { NO_LIMITS, startServer } from '../../test/harness/server.js';

const { values } = readOptions(
  'Holds readers of the leaderboard, and compares the map of each with Redis.',
  `readers N | whole 1..100000 | 10000 | readers of server-sent events
  processes N | whole 1..16 | 2 | processes that hold them; each has an address of its own
  updates N | whole 1..20000 | 1000 | score updates a second
  seconds S | number 0.5..3600 | 60 | duration of the games
  workers N | whole 1..64 | 2 | workers of the server`,
);
const { readers, processes, updates, seconds, workers } = values;
/** The last changes go out within 250 ms. */
const SETTLE_MS = 10_000;
const POLL_MS = 250;
const LIMIT_MS = 120_000;

const title = `${count(readers)} readers, ${count(updates)} score updates/s for ${seconds} s`;
await run(title, measure, seconds * 1000 + LIMIT_MS);

/** @param {import('../../test/harness/run.js').Run} test */
async function measure(test) {
  const redis = await startRedis(test);
  const secret = randomBytes(32).toString('hex');
  const apiKey = randomBytes(32).toString('hex');
  const server = await startServer(test, {
    ...NO_LIMITS,
    WORKERS: String(workers),
    REDIS_URL: redis.url,
    JWT_SECRET: secret,
    API_KEYS: `leaderboard ${apiKey} publish,history`,
    FANFARE_STATE: 'leaderboard=20/1h every 250ms',
  });
  const serverUrl = `http://127.0.0.1:${server.port}`;
  const url = `${serverUrl}/sse?room=leaderboard&token=${await readerToken(secret)}`;

  const holders = Array.from({ length: processes }, () => startHolder(test));
  const startedMs = performance.now();
  await Promise.all(
    holders.map((ask, i) =>
      ask({
        step: 'open',
        url,
        count: Math.floor((readers + i) / processes),
        localAddress: `127.0.0.${2 + i}`,
      }),
    ),
  );
  test.note('readers connected', `in ${((performance.now() - startedMs) / 1000).toFixed(1)} s`);

  const written = await play(test, {
    PATH: process.env.PATH,
    SERVER_URL: serverUrl,
    REDIS_URL: redis.url,
    JWT_SECRET: secret,
    API_KEY: apiKey,
    WEB_PORT: '0',
    UPDATES_PER_SECOND: String(updates),
    GAME_SECONDS: String(seconds),
  });
  const truth = await topTen(redis);
  const latency = new Latency();
  const { events, closed, current } = await settle(holders, truth, latency);

  test.check(
    'score updates a second',
    `at least ${updates * 0.95}`,
    Math.round(written / seconds),
    written / seconds >= updates * 0.95,
  );
  test.check('readers that show the true top ten', readers, current);
  test.check('readers that were disconnected', 0, closed);
  test.note('changes received', `${count(events)}, ${count(events / readers)} by each reader`);
  test.note('from the server to a reader', latency);
}

/**
 * A process that holds readers.
 * @param {import('../../test/harness/run.js').Run} test
 * @returns {(message: object) => Promise<any>} sends a message and resolves with the answer
 */
function startHolder(test) {
  const child = fork(join(import.meta.dirname, 'readers.js'));
  test.after(() => child.kill());
  return async (message) => {
    child.send(message);
    const [answer] = await once(child, 'message');
    if (answer.error) throw new Error(answer.error);
    return answer;
  };
}

/**
 * Runs the example's backend until its games end.
 * @param {import('../../test/harness/run.js').Run} test
 * @param {NodeJS.ProcessEnv} env
 * @returns {Promise<number>} score updates
 */
async function play(test, env) {
  const backend = spawn(process.execPath, [join(import.meta.dirname, 'server.js')], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  test.after(() => backend.kill());
  for await (const line of createInterface({ input: backend.stdout })) {
    const written = /^(\d+) updates$/.exec(line);
    if (written) return Number(written[1]);
  }
  throw new Error('the backend has ended');
}

/** @param {import('../../test/harness/redis.js').RedisServer} redis @returns {Promise<string>} as readers.js has it */
async function topTen(redis) {
  const lines = (await redis.cli('ZREVRANGE', 'example:scores', '0', '9', 'WITHSCORES')).split(
    '\n',
  );
  const list = Array.from({ length: lines.length / 2 }, (_, i) => [
    lines[2 * i],
    Number(lines[2 * i + 1]),
  ]);
  // Players with the same score have no order.
  return JSON.stringify(list.sort());
}

/**
 * Waits until all readers show the top ten, or too long.
 * @param {((message: object) => Promise<any>)[]} holders
 * @param {string} truth
 * @param {Latency} latency is filled
 */
async function settle(holders, truth, latency) {
  for (const endMs = performance.now() + SETTLE_MS; ; await pause(POLL_MS)) {
    const reports = await Promise.all(holders.map((ask) => ask({ step: 'report' })));
    const sum = (/** @type {(report: any) => number} */ of) =>
      reports.reduce((total, report) => total + of(report), 0);
    for (const report of reports) latency.addDrained(report.latency);
    const current = sum(({ tops }) => tops[truth] ?? 0);
    if (current < readers && performance.now() < endMs) continue;
    return { current, events: sum(({ events }) => events), closed: sum(({ closed }) => closed) };
  }
}

/** @param {string} secret */
function readerToken(secret) {
  return sign({ user: 'reader', rooms: { join: ['leaderboard'] } }, secret);
}
