// fields.test.js: no value in any field of any command or request makes an internal error, an error
// in the log, or the end of a worker.
//
// Each door gets its commands as clients send them, with one field replaced by each of the values
// below. Whether a value is taken or refused is for other tests.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { startRedis } from '../harness/redis.js';
import { startServer } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { KEY } from '../helpers/centrifugo-api.js';
import { APP } from '../helpers/pusher.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {Record<string, unknown>} Fields */

const EPOCH = '0123456789abcdef';
const POSITION = { epoch: EPOCH, offset: 1 };
const FANFARE_KEY = newSecret();
const ENV = {
  WORKERS: '1',
  FANFARE_LIMITS: 'off',
  FANFARE_HISTORY: 'h*=10/60s',
  FANFARE_STATE: 's*=10/60s',
  FANFARE_PRESENCE: 'p*',
  FANFARE_CENTRIFUGO: 'on',
  FANFARE_CENTRIFUGO_API_KEY: KEY,
  FANFARE_PUSHER_APP_ID: APP.id,
  FANFARE_PUSHER_APP_KEY: APP.key,
  FANFARE_PUSHER_APP_SECRET: APP.secret,
  API_KEYS: `main ${FANFARE_KEY} all`,
};
/** Fields whose numbers and positions reach a backend. */
const OF_BACKENDS = new Set(
  ['since', 'epoch', 'offset', 'before', 'after', 'sinceTime', 'recover_since'].concat([
    'limit',
    'last',
    'lastSeconds',
    'reverse',
    'issuedBefore',
  ]),
);
/** Values of each kind, at their bounds and beyond. @type {readonly unknown[]} */
const PLACES = [-1, 0.5, 2 ** 53 - 1, 1 - 2 ** 53, 1e308, POSITION, { ...POSITION, offset: -1 }];
/** @type {readonly unknown[]} */
const OTHERS = [
  null,
  true,
  '',
  'h1',
  'é\0',
  '\ud800',
  'x'.repeat(300),
  EPOCH,
  [],
  [null],
  ['h1'],
  {},
  { toString: 1 },
  { user: 'u', info: {} },
];

/** @type {readonly Fields[]} */
const COMMANDS = [
  { type: 'join', room: 'h1', since: POSITION, id: 1 },
  { type: 'join', room: 'h1', last: 5, lastSeconds: 10 },
  { type: 'join', room: 's1', since: POSITION },
  { type: 'join', room: 'p1', presence: { user: 'u', info: {} } },
  { type: 'leave', room: 'h1' },
  { type: 'message', room: 'h1', payload: 1, idempotencyKey: 'a', echo: false, transient: true },
  { type: 'message', room: 'h1', payload: 1, expect: POSITION },
  { type: 'message', room: 's1', key: 'k', text: '1' },
  { type: 'history', room: 'h1', limit: 5, since: POSITION },
  { type: 'history', room: 'h1', limit: 5, before: POSITION },
  { type: 'history', room: 'h1', sinceTime: 1 },
  { type: 'presence', room: 'p1', limit: 10, after: 'x' },
  { type: 'broadcast', payload: 1 },
  { type: 'auth', token: 'x' },
];
/** @type {readonly Fields[]} */
const CENTRIFUGO_COMMANDS = [
  { connect: { token: '', data: {}, name: 'a', version: 'b', flag: 1, headers: { a: 'b' } } },
  { connect: { subs: { h1: { recover: true, offset: 1, epoch: EPOCH } } } },
  { subscribe: { channel: 'h1', recover: true, offset: 1, epoch: EPOCH, token: '', data: {} } },
  { subscribe: { channel: 'h1', positioned: true, recoverable: true, join_leave: true, flag: 1 } },
  { subscribe: { channel: 's1', recover: true, offset: 1, epoch: EPOCH, type: 0, delta: '' } },
  { publish: { channel: 'h1', data: 1, key: 'k', type: 0, removed: false } },
  { publish: { channel: 's1', data: 1 } },
  { history: { channel: 'h1', limit: 5, reverse: true, since: { offset: 1, epoch: '' } } },
  { presence: { channel: 'p1' } },
  { presence_stats: { channel: 'p1' } },
  { unsubscribe: { channel: 'h1' } },
  { refresh: { token: 'x' } },
  { sub_refresh: { channel: 'h1', token: 'x', type: 1 } },
  { rpc: { data: 1, method: 'x' } },
  { send: { data: 1 } },
];
const USER_DATA = '{"id":"1","watchlist":["a"]}';
/** @type {readonly Fields[]} */
const PUSHER_EVENTS = [
  { event: 'pusher:subscribe', data: { channel: 'news', auth: 'a:b', channel_data: '{}' } },
  { event: 'pusher:unsubscribe', data: { channel: 'news' } },
  { event: 'pusher:signin', data: { auth: 'a:b', user_data: USER_DATA } },
  { event: 'client-x', channel: 'private-a', data: { a: 1 } },
  { event: 'pusher:ping', data: {} },
];
/** @type {readonly [path: string, body: Fields][]} */
const REQUESTS = [
  ['publish', { room: 'h1', payload: 1, idempotencyKey: 'a', from: 'x', except: 'x' }],
  ['publish', { room: 's1', payload: 1, key: 'k' }],
  ['publish', { room: 'h1', payload: 1, expect: POSITION }],
  ['publish/batch', { messages: [{ room: 'h1', payload: 1 }] }],
  ['broadcast', { payload: 1 }],
  ['join', { user: 'u', rooms: ['h1'] }],
  ['leave', { user: 'u', rooms: ['h1'] }],
  ['presence', { users: ['a'] }],
  ['disconnect', { user: 'u', code: 4000, reason: 'x' }],
  ['disconnect', { connectionId: 'a' }],
  ['revoke', { user: 'u', issuedBefore: 1 }],
];
/** @type {readonly [method: string, body: Fields][]} */
const CENTRIFUGO_REQUESTS = [
  ['publish', { channel: 'h1', data: 1, skip_history: true, idempotency_key: 'a', tags: {} }],
  ['publish', { channel: 'h1', b64data: 'MQ==', delta: true }],
  ['broadcast', { channels: ['a'], data: 1 }],
  ['subscribe', { user: 'u', channel: 'h1', info: {}, client: 'c', session: 's', data: {} }],
  ['subscribe', { user: 'u', channel: 'h1', recover_since: POSITION, override: {} }],
  ['unsubscribe', { user: 'u', channel: 'h1' }],
  ['disconnect', { user: 'u', disconnect: { code: 4000, reason: 'x' }, whitelist: ['a'] }],
  ['refresh', { user: 'u', expired: true, expire_at: 1 }],
  ['presence', { channel: 'p1' }],
  ['presence_stats', { channel: 'p1' }],
  ['history', { channel: 'h1', limit: 1, since: POSITION, reverse: true }],
  ['history_remove', { channel: 'h1' }],
  ['channels', { pattern: 'a' }],
  ['batch', { commands: [{ publish: { channel: 'h1', data: 1 } }], parallel: true }],
];
const QUERIES = ['limit', 'since', 'before', 'after', 'sinceTime', 'key', 'prefix'];
const TEXTS = [
  ...['', 'x', '-1', '0', '1.5', '1e3', '999999999999999', '9007199254740993', '%00', '%ed%a0%80'],
  ...[`${EPOCH}:1`, `${EPOCH}:-1`, `${EPOCH}:999999999999999`, 'x'.repeat(300)],
];

/**
 * @param {Fields} fields @param {readonly unknown[]} values
 * @param {(name: string) => boolean} isReplaced
 * @returns {Generator<Fields>} copies, in each of which one field, at any depth, has another value
 */
function* replaced(fields, values, isReplaced) {
  for (const [name, value] of Object.entries(fields)) {
    if (isReplaced(name)) for (const other of values) yield { ...fields, [name]: other };
    if (typeof value !== 'object' || value === null || Array.isArray(value)) continue;
    for (const inner of replaced(/** @type {Fields} */ (value), values, isReplaced))
      yield { ...fields, [name]: inner };
  }
}

/** How many connections or requests are open at once. */
const TOGETHER = 40;

/** @template T @param {Iterable<T>} all @param {(one: T) => Promise<void>} act */
async function each(all, act) {
  const items = [...all];
  const run = async () => {
    for (let item = items.pop(); item !== undefined; item = items.pop()) await act(item);
  };
  await Promise.all(Array.from({ length: TOGETHER }, run));
}

/**
 * Sends texts, the last of which is under test.
 * @param {string} url @param {readonly string[]} texts
 * @returns {Promise<string>} its messages until a pong has come, or until the close, whose code is the
 *   last line
 */
async function heard(url, texts) {
  const socket = new WebSocket(url);
  /** @type {string[]} */
  const messages = [];
  socket.on('message', (data) => messages.push(String(data)));
  await once(socket, 'open');
  for (const text of texts) socket.send(text);
  const closed = once(socket, 'close').then(([code]) => void messages.push(`close ${code}`));
  // Answers of the broker come after the pong.
  const pong = once(socket, 'pong').then(() => new Promise((resolve) => setTimeout(resolve, 20)));
  socket.ping();
  await Promise.race([closed, pong]);
  socket.terminate();
  return messages.join('\n');
}

// Of all fields, backends see only the places in a stream.
for (const [backend, values, isReplaced] of /** @type {const} */ ([
  ['embedded', [...PLACES, ...OTHERS], () => true],
  ['redis', PLACES, (/** @type {string} */ name) => OF_BACKENDS.has(name)],
]))
  test(`${backend}: no field makes an internal error`, { timeout: 120_000 }, async (t) => {
    const env = backend === 'redis' ? { ...ENV, REDIS_URL: (await startRedis(t)).url } : ENV;
    const variants = (/** @type {readonly Fields[]} */ all) =>
      all.flatMap((fields) => [...replaced(fields, values, isReplaced)]);
    assert.notEqual(variants(COMMANDS).length, 0);
    const server = await startServer(t, env);
    const [worker] = server.workerPids();
    const host = `127.0.0.1:${server.port}`;
    /** @param {string} path @param {string} key @param {Fields} body */
    const post = async (path, key, body) => {
      const headers = { Authorization: `Bearer ${key}`, 'X-API-Key': key };
      const text = JSON.stringify(body);
      const response = await fetch(`http://${host}${path}`, {
        method: 'POST',
        headers: { ...headers, 'Content-Type': 'application/json' },
        body: text,
      });
      const answer = await response.text();
      const isWell = response.status !== 500 && !/"code":100[,}]/.test(answer);
      assert.ok(isWell, `${path} ${text}: ${response.status} ${answer}`);
    };
    const filled = [
      '{"type":"message","room":"h1","payload":0}',
      '{"type":"message","room":"s1","key":"k","payload":0}',
    ];
    await each(variants(COMMANDS), async (command) => {
      const text = JSON.stringify(command);
      const answer = await heard(`ws://${host}/ws`, [...filled, text]);
      assert.doesNotMatch(answer, /INTERNAL_ERROR|close 1(006|011)/, text);
    });
    await each(variants(CENTRIFUGO_COMMANDS), async (command) => {
      const text = JSON.stringify({ id: 9, ...command });
      const before = 'connect' in command ? [] : ['{"id":1,"connect":{}}'];
      const answer = await heard(`ws://${host}/connection/websocket`, [...before, text]);
      assert.doesNotMatch(answer, /"code":100[,}]|close 1(006|011)/, text);
    });
    // No event of Pusher has such a field.
    const events = backend === 'embedded' ? PUSHER_EVENTS : [];
    await each(variants(events), async (event) => {
      const text = JSON.stringify(event);
      const answer = await heard(`ws://${host}/app/${APP.key}?protocol=7`, [text]);
      assert.doesNotMatch(answer, /"code":4200|close 1(006|011)/, text);
    });
    for (const [path, body] of REQUESTS)
      await each(variants([body]), (fields) => post(`/api/${path}`, FANFARE_KEY, fields));
    for (const [method, body] of CENTRIFUGO_REQUESTS)
      await each(variants([body]), (fields) => post(`/centrifugo/api/${method}`, KEY, fields));
    const paths = ['', '/h1/history', '/s1/state', '/p1/presence', '/h1/connections'];
    const urls = paths.flatMap((path) =>
      QUERIES.flatMap((name) => TEXTS.map((text) => `/api/rooms${path}?${name}=${text}`)),
    );
    await each(urls, async (url) => {
      const headers = { Authorization: `Bearer ${FANFARE_KEY}` };
      const response = await fetch(`http://${host}${url}`, { headers });
      assert.notEqual(response.status, 500, `${url}: ${await response.text()}`);
    });
    assert.deepEqual(server.workerPids(), [worker], 'the same worker');
    assert.deepEqual(
      server.lines.filter(({ level }) => level >= 50),
      [],
    );
  });
