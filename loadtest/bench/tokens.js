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
// In each round both servers start anew. Each has one worker, and they take batches of handshakes in
// turn. The first batches show a new process, which compiles its code; the others show a warm one.

import { createHmac, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { markdownTable, median, show } from '../lib/figures.js';
import { readOptions } from '../lib/options.js';
import { NO_LIMITS, startServer, urlOf } from '../lib/server.js';
import { closeAll, WsClient } from '../lib/ws-client.js';
import { OPTION, saveReport } from './script.js';

const BATCH = 1000;
/** 5,000 handshakes, as many as a worker has in the workload `idle`. */
const FRESH_BATCHES = 5;
const SOURCES = 200;
const LIFETIME_S = 3600;
/** Between two batches, for the closes of the last one. */
const QUIET_MS = 300;

const { values } = readOptions(
  'Measures the CPU that a token adds to a handshake.',
  `rounds N | whole 1..100 | 3 | rounds; each starts both servers anew
  batches N | whole 8..1000 | 20 | batches of ${BATCH} handshakes of each server in a round
  rate N | whole 10..20000 | 1500 | handshakes a second
  users N | whole 1..${BATCH} | ${BATCH} | different tokens
  ${OPTION.save}`,
);
const { rounds, batches, rate, users, save } = values;
const secret = randomBytes(32).toString('hex');
const tokens = Array.from({ length: users }, (_, i) => sign({ sub: `user-${i}` }));

/** @type {(() => unknown)[]} */
const cleanups = [];
const owner = { after: (/** @type {() => unknown} */ cleanup) => void cleanups.push(cleanup) };
/** CPU of each batch in us, by server and round. */
const seen = { none: /** @type {number[][]} */ ([]), HS256: /** @type {number[][]} */ ([]) };

for (let round = 0; round < rounds; round++) {
  try {
    const pair = [
      await start({ batches: seen.none, tokens: [], env: {} }),
      await start({ batches: seen.HS256, tokens, env: { JWT_SECRET: secret } }),
    ];
    for (let batch = 0; batch < batches; batch++)
      for (const server of batch % 2 === 0 ? pair : pair.toReversed()) await measure(server);
  } finally {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  }
  console.log(`round ${round + 1}:`, figuresOf(round));
}

const all = seen.none.map((_, round) => figuresOf(round));
const phases = /** @type {const} */ (['first', 'warm']);
const rows = phases.map((phase) => [
  phase === 'first' ? `the first ${FRESH_BATCHES * BATCH} of a new process` : 'warm',
  ...['none', 'HS256', 'ratio'].map((key) => {
    const figures = all.map((figure) => figure[`${phase} ${key}`]);
    const digits = key === 'ratio' ? 2 : 0;
    const range = [Math.min(...figures), Math.max(...figures)].map((one) => show(one, digits));
    return `${show(median(figures), digits)} (${range.join('–')})`;
  }),
]);
saveReport({
  script: 'tokens',
  title: `CPU of a handshake and join at ${rate} a second, with a token and without`,
  note: `user and system time of the worker; medians of ${rounds} rounds, in brackets the range`,
  lines: markdownTable(['handshakes', 'no token, us', 'HS256, us', 'ratio'], rows, 1),
  data: { seen },
  save,
});
process.exit(0);

/**
 * @param {object} parts
 * @param {number[][]} parts.batches of all rounds
 * @param {readonly string[]} parts.tokens empty: handshakes have none
 * @param {NodeJS.ProcessEnv} parts.env
 */
async function start({ batches, tokens, env }) {
  const server = await startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    ...env,
  });
  /** @type {number[]} */
  const us = [];
  batches.push(us);
  return { url: new URL(urlOf(server)), pid: server.workerPids()[0], tokens, us };
}

/**
 * Opens a batch of connections, lets each join a room, and closes them.
 * @param {Awaited<ReturnType<typeof start>>} server
 */
async function measure({ url, pid, tokens, us }) {
  const before = cpuUs(pid);
  const startMs = performance.now();
  /** @type {Promise<WsClient>[]} */
  const opening = [];
  while (opening.length < BATCH) {
    const waitMs = startMs + (opening.length / rate) * 1000 - performance.now();
    if (waitMs > 0.5) await sleep(waitMs);
    opening.push(open(url, opening.length, tokens[opening.length % tokens.length]));
  }
  const clients = await Promise.all(opening);
  us.push((cpuUs(pid) - before) / BATCH);
  await closeAll(clients);
  await sleep(QUIET_MS);
}

/**
 * @param {URL} url
 * @param {number} i
 * @param {string} [token]
 */
async function open(url, i, token) {
  const client = new WsClient(url, {
    localAddress: `127.0.0.${2 + (i % SOURCES)}`,
    headers: token === undefined ? {} : { Authorization: `Bearer ${token}` },
  });
  await client.open();
  await client.request({ type: 'join', room: 'bench' });
  return client;
}

/** @param {number} round @returns {Record<string, number>} */
function figuresOf(round) {
  const of = (/** @type {number[]} */ us) => ({
    first: us.slice(0, FRESH_BATCHES).reduce((sum, one) => sum + one, 0) / FRESH_BATCHES,
    warm: median(us.slice(FRESH_BATCHES)),
  });
  const none = of(seen.none[round]);
  const hs256 = of(seen.HS256[round]);
  return {
    'first none': none.first,
    'first HS256': hs256.first,
    'first ratio': hs256.first / none.first,
    'warm none': none.warm,
    'warm HS256': hs256.warm,
    'warm ratio': hs256.warm / none.warm,
  };
}

/** @param {object} claims @returns {string} a token with the rights of a usual user */
function sign(claims) {
  const nowS = Math.floor(Date.now() / 1000);
  const rooms = { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] };
  const signed = [
    { alg: 'HS256', typ: 'JWT' },
    { rooms, ...claims, iat: nowS, exp: nowS + LIFETIME_S },
  ].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'));
  const text = signed.join('.');
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
}

/** User and system time of all threads, in us. @param {number} pid */
function cpuUs(pid) {
  let ns = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`))
    ns += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]);
  return ns / 1000;
}
