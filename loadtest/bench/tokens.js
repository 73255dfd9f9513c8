#!/usr/bin/env node
// tokens.js: the cost of a token: CPU of a handshake and join with HS256, beside one without.
//
//   node loadtest/bench/tokens.js                 1,500 handshakes a second, some three minutes
//   node loadtest/bench/tokens.js --rate 500
//
// Handshakes come at a fixed rate. If the client opened connections as fast as it can, it would
// sleep more often beside the slower server, and the kernel charges each wake-up of the client to
// the server's write.
//
// In each round both servers start again. Each has a worker, and they take batches of handshakes in
// turn. The first batches show a new process, which compiles its code; the others show a warm one.

import { createHmac, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { NO_LIMITS, startServer, urlOf } from '../../test/harness/server.js';
import { closeAll, WsClient } from '../../test/harness/ws-client.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { cpuSecondsOf } from './machine.js';

const BATCH = 1000;
/** 5,000 handshakes, as many as a worker has in the workload `idle`. */
const FRESH_BATCHES = 5;
const SOURCES = 200;
const LIFETIME_S = 3600;
/** Between two batches, for the closes of the last one. */
const QUIET_MS = 300;

/** @typedef {{url: URL, pid: number, tokens: readonly string[], us: number[]}} Batches of a server; `us` has the CPU of a handshake in each */

await experiment({
  question: 'Measures the CPU that a token adds to a handshake.',
  options: `rounds N | whole 1..100 | 3 | rounds; each starts both servers again
  batches N | whole 8..1000 | 20 | batches of ${BATCH} handshakes of each server in a round
  rate N | whole 10..20000 | 1500 | handshakes a second
  users N | whole 1..${BATCH} | ${BATCH} | different tokens`,

  async setup({ owner, values: { users } }) {
    const secret = randomBytes(32).toString('hex');
    const tokens = Array.from({ length: users }, (_, i) => sign(secret, { sub: `user-${i}` }));
    const start = async (/** @type {string[]} */ using, /** @type {NodeJS.ProcessEnv} */ env) => {
      const server = await startServer(owner, { ...NO_LIMITS, WORKERS: '1', ...env });
      const pid = server.workerPids()[0];
      return /** @type {Batches} */ ({ url: new URL(urlOf(server)), pid, tokens: using, us: [] });
    };
    return [await start([], {}), await start(tokens, { JWT_SECRET: secret })];
  },

  async measure(pair, { values: { batches, rate } }) {
    for (let batch = 0; batch < batches; batch++)
      for (const server of batch % 2 === 0 ? pair : pair.toReversed())
        await openBatch(server, rate);
    const [none, hs256] = pair.map((/** @type {Batches} */ { us }) => us);
    const figures = figuresOf(none, hs256);
    console.log(figures);
    return { none, hs256, figures };
  },

  report(rounds, { rate }) {
    const measured = rounds.map(([round]) => round);
    const rows = ['first', 'warm'].map((phase) => [
      phase === 'first' ? `the first ${FRESH_BATCHES * BATCH} of a new process` : 'warm',
      ...['none', 'HS256', 'ratio'].map((key) => {
        const all = measured.map(({ figures }) => figures[`${phase} ${key}`]);
        const digits = key === 'ratio' ? 2 : 0;
        const range = [Math.min(...all), Math.max(...all)].map((one) => show(one, digits));
        return `${show(median(all), digits)} (${range.join('–')})`;
      }),
    ]);
    return {
      title: `CPU of a handshake and join at ${rate} a second, with a token and without`,
      note: `user and system time of the worker; medians of ${rounds.length} rounds, in brackets the range`,
      lines: markdownTable(['handshakes', 'no token, us', 'HS256, us', 'ratio'], rows, 1),
      data: {
        seen: {
          none: measured.map(({ none }) => none),
          HS256: measured.map(({ hs256 }) => hs256),
        },
      },
    };
  },
});

/**
 * Opens a batch of connections, lets each join a room, and closes them.
 * @param {Batches} server @param {number} rate
 */
async function openBatch({ url, pid, tokens, us }, rate) {
  const before = cpuSecondsOf([pid]);
  const startMs = performance.now();
  /** @type {Promise<WsClient>[]} */
  const opening = [];
  while (opening.length < BATCH) {
    const waitMs = startMs + (opening.length / rate) * 1000 - performance.now();
    if (waitMs > 0.5) await sleep(waitMs);
    opening.push(open(url, opening.length, tokens[opening.length % tokens.length]));
  }
  const clients = await Promise.all(opening);
  us.push(((cpuSecondsOf([pid]) - before) * 1e6) / BATCH);
  await closeAll(clients);
  await sleep(QUIET_MS);
}

/** @param {URL} url @param {number} i @param {string} [token] */
async function open(url, i, token) {
  const client = new WsClient(url, {
    localAddress: `127.0.0.${2 + (i % SOURCES)}`,
    headers: token === undefined ? {} : { Authorization: `Bearer ${token}` },
  });
  await client.open();
  await client.request({ type: 'join', room: 'bench' });
  return client;
}

/** @param {number[]} none @param {number[]} hs256 @returns {Record<string, number>} */
function figuresOf(none, hs256) {
  const first = (/** @type {number[]} */ us) =>
    us.slice(0, FRESH_BATCHES).reduce((sum, one) => sum + one, 0) / FRESH_BATCHES;
  const warm = (/** @type {number[]} */ us) => median(us.slice(FRESH_BATCHES));
  return {
    'first none': first(none),
    'first HS256': first(hs256),
    'first ratio': first(hs256) / first(none),
    'warm none': warm(none),
    'warm HS256': warm(hs256),
    'warm ratio': warm(hs256) / warm(none),
  };
}

/** @param {string} secret @param {object} claims @returns {string} a token with the rights of a usual user */
function sign(secret, claims) {
  const nowS = Math.floor(Date.now() / 1000);
  const rooms = { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] };
  const signed = [
    { alg: 'HS256', typ: 'JWT' },
    { rooms, ...claims, iat: nowS, exp: nowS + LIFETIME_S },
  ].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'));
  const text = signed.join('.');
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
}
