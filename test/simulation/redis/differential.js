// differential.js: the same random commands and scripts for the model and a real redis-server. Each
// difference between their replies, or between their keys at the end, is a fault of the model.
//
//   node test/run.js simulate-redis [--seed N] [--commands 100000]
//
// redis-server is that of the PATH.

import { once } from 'node:events';
import { connect } from 'node:net';
import { parseArgs } from 'node:util';
import { startRedis } from '../../harness/redis.js';
import { commandsOf } from './generated-commands.js';
import { ReplyReader, same } from './replies.js';
import { RedisServer } from './server.js';
import { Session } from './session.js';

const BATCH = 200;

/** @typedef {(batch: string[][]) => Promise<unknown[]>} Ask answers in order */

/** @param {number} seed @returns {() => number} mulberry32, from 0 to 1 */
export function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** @param {string[]} words @returns {string} */
function encode(words) {
  return `*${words.length}\r\n${words.map((word) => `$${word.length}\r\n${word}\r\n`).join('')}`;
}

/** @param {number} port @returns {Promise<{ask: Ask, end: () => void}>} */
async function realServer(port) {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.setEncoding('latin1');
  socket.setMaxListeners(0);
  const reader = new ReplyReader();
  return {
    end: () => socket.destroy(),
    ask: (batch) =>
      new Promise((resolve, reject) => {
        /** @type {unknown[]} */
        const replies = [];
        const read = (/** @type {string} */ text) => {
          replies.push(...reader.read(text));
          if (replies.length < batch.length) return;
          socket.off('data', read);
          resolve(replies);
        };
        socket.on('data', read);
        socket.on('error', reject);
        socket.write(batch.map(encode).join(''), 'latin1');
      }),
  };
}

/** @param {RedisServer} server @returns {Ask} */
function modelServer(server) {
  const reader = new ReplyReader();
  /** @type {unknown[]} */
  let replies = [];
  const session = new Session(server, {
    write: (text) => void replies.push(...reader.read(text)),
    close: () => {},
  });
  return async (batch) => {
    replies = [];
    for (const words of batch) session.receive(encode(words));
    return replies;
  };
}

/** @param {Ask} ask @returns {Promise<Record<string, unknown>>} all keys with their values */
async function contentsOf(ask) {
  const [names] = /** @type {[string[]]} */ (await ask([['KEYS', '*']]));
  /** @type {Record<string, string[]>} */
  const READ = {
    string: ['GET'],
    hash: ['HGETALL'],
    set: ['SMEMBERS'],
    list: ['LRANGE', '0', '-1'],
    zset: ['ZRANGE', '0', '-1', 'WITHSCORES'],
    stream: ['XRANGE', '-', '+'],
  };
  const types = await ask(names.map((name) => ['TYPE', name]));
  /** @type {Record<string, unknown>} */
  const contents = {};
  for (const [i, name] of names.entries()) {
    const type = String(/** @type {{status: string}} */ (types[i]).status);
    if (type === 'none') continue;
    const [command, ...rest] = READ[type];
    const [value] = await ask([[command, name, ...rest]]);
    if (!name.endsWith(':state')) contents[name] = { type, value: comparable(name, type, value) };
  }
  return Object.fromEntries(Object.entries(contents).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/**
 * A value without what depends on the clock (`…:state` counts what has been trimmed): the order of members that came within a millisecond,
 * and how many entries of a stream of times fit into one of Redis's nodes.
 * @param {string} name @param {string} type @param {any} value @returns {unknown}
 */
function comparable(name, type, value) {
  if (name === 'visits') return sorted(JSON.parse(JSON.stringify(value).replace(/\d{13}/g, 'ms')));
  if (name.endsWith(':out') && type === 'stream') return value.slice(-20);
  const isTimed = ['workers', 'dead', 'cleared'].includes(name);
  return type === 'hash' || type === 'set' || isTimed ? sorted(value) : value;
}

/** @param {unknown} value @returns {unknown} */
function sorted(value) {
  if (!Array.isArray(value)) return value;
  return value.map((one) => JSON.stringify(one)).sort();
}

/** Commands whose replies have no order. */
const UNORDERED = new Set([
  'HGETALL',
  'HKEYS',
  'HVALS',
  'SMEMBERS',
  'SPOP',
  'KEYS',
  'SCAN',
  'HSCAN',
  'SSCAN',
]);

/** @param {{after: (fn: () => unknown) => void}} t @param {number} seed @param {number} total */
export async function compare(t, seed, total) {
  const redis = await startRedis(t);
  const real = await realServer(redis.port);
  t.after(real.end);
  const [hello] = /** @type {[string]} */ (await real.ask([['INFO', 'all']]));
  const field = (/** @type {string} */ name) => new RegExp(`${name}:(\\S+)`).exec(hello)?.[1] ?? '';
  const random = randomOf(seed);
  const server = new RedisServer({ now: Date.now, random }, { version: field('redis_version') });
  server.runId = field('run_id');
  server.replicationId = field('master_replid');
  const model = modelServer(server);
  const version = random() < 0.5 ? '3' : '2';
  for (const ask of [real.ask, model]) await ask([['HELLO', version]]);
  const fence = server.runId.slice(0, 16) + server.replicationId.slice(0, 16);
  const isValkey = field('valkey_version') !== '';
  // Nodes of streams have other sizes there.
  const next = commandsOf(random, fence, isValkey ? ['='] : undefined);
  const differences = [];
  for (let done = 0; done < total && differences.length === 0; done += BATCH) {
    const batch = Array.from({ length: BATCH }, next);
    const [theirs, ours] = [await real.ask(batch), await model(batch)];
    for (const [i, words] of batch.entries()) {
      const isUnordered = UNORDERED.has(words[0]);
      const [a, b] = isUnordered ? [flat(theirs[i]), flat(ours[i])] : [theirs[i], ours[i]];
      if (!same(a, b)) differences.push({ at: done + i, words, redis: theirs[i], model: ours[i] });
    }
    if (differences.length === 0 && done % (50 * BATCH) === 0) {
      const [a, b] = [await contentsOf(real.ask), await contentsOf(model)];
      for (const name of new Set([...Object.keys(a), ...Object.keys(b)]))
        if (!same(a[name], b[name]))
          differences.push({
            at: done,
            words: ['contents of', name],
            redis: a[name],
            model: b[name],
          });
    }
  }
  const name = isValkey
    ? `valkey ${field('valkey_version')}`
    : `redis-server ${field('redis_version')}`;
  return { version: `${name}, protocol ${version}`, differences };
}

/** @param {unknown} value @returns {unknown} */
function flat(value) {
  if (!Array.isArray(value)) return value;
  // Replies of scans have a cursor in front.
  return sorted(
    value.length === 2 && value[0] === '0' && Array.isArray(value[1]) ? value[1] : value,
  );
}

if (process.argv[1] === import.meta.filename) {
  const { values } = parseArgs({
    options: { seed: { type: 'string' }, commands: { type: 'string', default: '100000' } },
  });
  const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 32));
  /** @type {(() => unknown)[]} */
  const ends = [];
  const { version, differences } = await compare(
    { after: (fn) => void ends.push(fn) },
    seed,
    Number(values.commands),
  );
  for (const end of ends.reverse()) await end();
  for (const difference of differences.slice(0, 5))
    console.log(JSON.stringify(difference, null, 1));
  console.log(
    `${differences.length === 0 ? 'ok' : 'DIFFERENT'}: ${values.commands} commands and scripts, seed ${seed}, ${version}`,
  );
  process.exitCode = differences.length === 0 ? 0 : 1;
}
