#!/usr/bin/env node
// soak.js: clients of all kinds come and go for an hour, and no process may keep anything of them.
//
//   node test/soak.js --minutes 60 [--rate 40]
//
// One server with the embedded backend and one with Redis, two workers each. WebSockets with and
// without tokens and streams of server-sent events join rooms with history and presence, publish,
// read, let their tokens expire, and leave with and without a goodbye. Names of rooms and users
// repeat, because some bounded caches keep names. Each process collects its garbage every few
// seconds. After the warm-up, the line through the rest must not rise.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readOptions } from './harness/options.js';
import { startRedis } from './harness/redis.js';
import { pause, run } from './harness/run.js';
import { NO_LIMITS, startServer, urlOf } from './harness/server.js';
import { WsClient } from './harness/ws-client.js';
import { EventClient } from './helpers/event-stream.js';
import { SECRET, token } from './helpers/tokens.js';

const { values: options } = readOptions(
  `Clients come and go, and no process of the server may keep anything of them.

  node test/run.js soak
  node test/run.js soak --minutes 8`,
  `minutes M | number 1..600 | 60 | duration, a quarter of it to warm up
  rate N | number 1..500 | 40 | visits a second to each server`,
);

const PROBE = fileURLToPath(new URL('helpers/heap-probe.cjs', import.meta.url));
const SAMPLE_MS = 5000;
const ROOMS = 400;
const USERS = 200;
/** A visit longer than this has failed. */
const VISIT_MS = 15_000;
const REST_MS = 120_000;
/**
 * The most that a process may keep of a visit on average. A room, a connection or a timer that is
 * never let go costs hundreds of bytes.
 */
const MAX_BYTES_PER_VISIT = 40;

const MAX_FAILED_SHARE = 0.002;

const BACKENDS = /** @type {const} */ (['embedded', 'redis']);

/** @param {import('./harness/run.js').Run} test */
async function soak(test) {
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-soak-'));
  test.after(() => rmSync(folder, { recursive: true, force: true }));
  const redis = await startRedis(test);
  const servers = [];
  for (const backend of BACKENDS) {
    const server = await startServer(test, {
      ...NO_LIMITS,
      JWT_SECRET: SECRET,
      FANFARE_AUTH: 'optional',
      FANFARE_HISTORY: 'h.*=50/10s',
      FANFARE_PRESENCE: '*',
      NODE_OPTIONS: `--require ${PROBE}`,
      HEAP_PROBE: folder,
      ...(backend === 'redis' && { REDIS_URL: redis.url }),
    });
    servers.push({ backend, server, visits: 0, failures: 0 });
  }
  const pids = servers.flatMap(({ server }) => [server.pid, ...server.workerPids()]);
  const startedMs = Date.now();
  const endMs = startedMs + options.minutes * 60_000;
  const warmMs = startedMs + (options.minutes * 60_000) / 4;
  const sampler = setInterval(() => {
    for (const pid of pids) process.kill(pid, 'SIGPROF');
  }, SAMPLE_MS);
  test.after(() => clearInterval(sampler));
  await Promise.all(servers.map((one) => visitAll(one, endMs)));
  clearInterval(sampler);
  const minutes = (endMs - startedMs) / 60_000;
  for (const { backend, server, visits, failures } of servers) {
    test.note(`${backend}: visits a minute`, Math.round(visits / minutes));
    // A machine that is busy with other things may let a few time out.
    const most = Math.ceil(visits * MAX_FAILED_SHARE);
    test.check(`${backend}: visits that failed`, `<= ${most}`, failures, failures <= most);
    const workers = server.workerPids();
    test.check(
      `${backend}: workers that lived from start to end`,
      2,
      workers.filter((pid) => pids.includes(pid)).length,
    );
    for (const pid of [server.pid, ...workers]) {
      const samples = readFileSync(join(folder, `${pid}`), 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
      const kept = samples.filter(([ms]) => ms >= warmMs);
      const perMinute = slope(kept) * 60_000;
      const name = pid === server.pid ? 'primary' : `worker ${workers.indexOf(pid) + 1}`;
      test.note(`${backend}, ${name}: MB by tenth of the time`, tenths(kept).join(' '));
      const perVisit = perMinute / (visits / minutes);
      test.check(
        `${backend}, ${name}: bytes kept of a visit`,
        `<= ${MAX_BYTES_PER_VISIT}`,
        `${perVisit.toFixed(1)} (${(perMinute / 1024).toFixed(1)} kB a minute)`,
        perVisit <= MAX_BYTES_PER_VISIT,
      );
    }
  }
}

/**
 * @param {{server: import('./harness/server.js').Server, visits: number, failures: number}} one
 * @param {number} endMs
 */
async function visitAll(one, endMs) {
  /** @type {Set<Promise<void>>} */
  const underWay = new Set();
  while (Date.now() < endMs) {
    const n = one.visits++;
    const visit = VISITS[n % VISITS.length](one.server, n)
      .catch((error) => {
        if (++one.failures <= 3) console.error(error);
      })
      .finally(() => underWay.delete(visit));
    underWay.add(visit);
    await pause(1000 / options.rate);
  }
  await Promise.all(underWay);
}

/** @typedef {import('./harness/server.js').Server} Server */

/** @param {string} kind h: with history */
const room = (/** @type {string} */ kind) => `${kind}.${Math.floor(Math.random() * ROOMS)}`;

/** @type {((server: Server, n: number) => Promise<void>)[]} */
const VISITS = [
  (server, n) => talk(server, { isGuest: true, n }),
  (server, n) => talk(server, { isGuest: false, n }),
  (server, n) => talk(server, { isGuest: false, n }),
  (server, n) => listen(server, [room('h'), room('h'), room('plain')], n),
  (server) => expire(server),
];

/**
 * A WebSocket that uses each command.
 * @param {Server} server @param {{isGuest: boolean, n: number}} visit
 */
async function talk(server, { isGuest, n }) {
  const client = await new WsClient(urlOf(server)).open();
  await client.request({ type: 'hello', ...(!isGuest && { token: visitor(n) }) });
  const rooms = [room('h'), room('plain')];
  for (const name of rooms) {
    const joined = await client.request({ type: 'join', room: name, last: 5 });
    await client.request({ type: 'message', room: name, payload: { n } });
    await client.request({ type: 'presence', room: name });
    if (name === rooms[0]) {
      await client.request({ type: 'history', room: name, limit: 5 });
      await client.request({ type: 'leave', room: name });
      const { epoch, offset } = joined;
      await client.request({ type: 'join', room: name, since: { epoch, offset } });
    }
  }
  if (n % 2 === 0) client.destroy();
  else await client.close();
}

/**
 * A stream that gets its rooms' first events.
 * @param {Server} server @param {string[]} rooms @param {number} n
 */
async function listen(server, rooms, n) {
  const query = rooms.map((name) => `room=${name}`).join('&');
  const stream = new EventClient(server.port, `?${query}`, {
    Authorization: `Bearer ${visitor(n)}`,
  });
  await stream.collect('joined', new Set(rooms).size);
  stream.close();
}

/** A WebSocket whose token expires: the server closes it. @param {Server} server */
async function expire(server) {
  const client = await new WsClient(urlOf(server)).open();
  const exp = Math.floor(Date.now() / 1000) + 3;
  client.send(JSON.stringify({ type: 'hello', token: visitor(0, { exp }) }));
  client.send(JSON.stringify({ type: 'join', room: room('h') }));
  const timer = setTimeout(() => client.destroy(), VISIT_MS);
  await client.closed;
  clearTimeout(timer);
  if (client.closeCode !== 4001) throw new Error(`closed with ${client.closeCode}, not 4001`);
}

/** @param {number} n @param {Record<string, unknown>} [claims] */
function visitor(n, claims = {}) {
  const all = ['*'];
  return token({
    sub: `user-${n % USERS}`,
    rooms: { join: all, publish: all, presence: all, history: all },
    ...claims,
  });
}

/**
 * @param {readonly [ms: number, bytes: number][]} samples
 * @returns {string[]} the median of each tenth, in MB
 */
function tenths(samples) {
  return Array.from({ length: 10 }, (_, i) => {
    const [from, to] = [i, i + 1].map((n) => Math.floor((n * samples.length) / 10));
    const bytes = samples.slice(from, to).map(([, one]) => one);
    return (bytes.sort((a, b) => a - b)[bytes.length >> 1] / 2 ** 20).toFixed(2);
  });
}

/**
 * The median slope of all pairs of samples (Theil and Sen), which single outliers do not move.
 * @param {readonly [ms: number, bytes: number][]} samples
 * @returns {number} bytes a millisecond
 */
function slope(samples) {
  const slopes = samples.flatMap(([ms, bytes], i) =>
    samples.slice(i + 1).map(([laterMs, later]) => (later - bytes) / (laterMs - ms)),
  );
  return slopes.sort((a, b) => a - b)[slopes.length >> 1];
}

await run(`a soak of ${options.minutes} minutes`, soak, options.minutes * 60_000 + REST_MS);
