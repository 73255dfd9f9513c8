// auth.test.js: tokens on real servers.

import assert from 'node:assert/strict';
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import pino from 'pino';
import { WebSocket } from 'ws';
import { createBackend } from '../../src/backend/redis/index.js';
import { loadConfig } from '../../src/config/config.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { createCounters } from '../../src/observability/counters.js';
import { ANNOUNCEMENTS } from '../../src/protocol/publication.js';
import { WorkerAuth } from '../../src/worker/auth.js';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { EventClient } from '../helpers/event-stream.js';
import { machineAt } from '../helpers/machine.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { OTHER_SECRET, SECRET, token } from '../helpers/tokens.js';

/** @typedef {import('node:test').TestContext} TestContext */

const ENV = { ...NO_LIMITS, WORKERS: '1', JWT_SECRET: SECRET };
const RIGHTS = { join: ['chat.*'], publish: ['chat.*'], presence: ['chat.*'], history: ['chat.*'] };
const nowS = () => Math.floor(Date.now() / 1000);

const sharedServer = shared((owner) => startServer(owner, ENV));
/** Rooms with history and presence. */
const sharedStore = shared((owner) =>
  startServer(owner, {
    ...ENV,
    FANFARE_HISTORY: 'h*=100/60s, chat.*=100/60s, secret.*=100/60s',
    FANFARE_PRESENCE: 'h*, chat.*, secret.*',
  }),
);

/** Tokens are optional, rates and connections of users are limited. */
const sharedLimits = shared((owner) =>
  startServer(owner, {
    ...ENV,
    FANFARE_AUTH: 'optional',
    FANFARE_PRESENCE: '*',
    FANFARE_MESSAGES_BURST_PER_USER: '3',
    FANFARE_MESSAGES_PER_MINUTE_PER_USER: '1',
    FANFARE_MESSAGES_PER_MINUTE_PER_USER_MODE: 'enforce',
    FANFARE_MAX_CONNECTIONS_PER_USER: '2',
    FANFARE_MAX_CONNECTIONS_PER_USER_MODE: 'enforce',
  }),
);

/** @param {{metricsPort: number}} server */
const metricsOf = async ({ metricsPort }) =>
  (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();

/** A client that remembers all messages it gets. */
class Client {
  /**
   * @param {TestContext} t
   * @param {{port: number}} server
   * @param {{token?: string, by?: 'header'|'subprotocol'|'query'}} [how]
   */
  constructor(t, { port }, { token: text, by = 'header' } = {}) {
    const query = text !== undefined && by === 'query' ? `?token=${text}` : '';
    const offered =
      text !== undefined && by === 'subprotocol' ? ['fanfare', `fanfare.token.${text}`] : [];
    const headers =
      text !== undefined && by === 'header' ? { Authorization: `Bearer ${text}` } : {};
    this.ws = new WebSocket(`ws://127.0.0.1:${port}/ws${query}`, offered, { headers });
    /** @type {any[]} */
    this.messages = [];
    /** @type {{code: number, reason: string}|null} */
    this.closed = null;
    this.ws.on('message', (data) => void this.messages.push(JSON.parse(String(data))));
    this.ws.on('close', (code, reason) => {
      this.closed = { code, reason: String(reason) };
    });
    this.ws.on('error', () => {});
    t.after(() => this.ws.terminate());
  }

  async open() {
    await until(() => this.ws.readyState === WebSocket.OPEN || this.closed !== null, 5000, 'open');
    return this;
  }

  /** @param {object} command */
  send(command) {
    this.ws.send(JSON.stringify(command));
  }

  /** @param {(message: any) => boolean} predicate @param {string} [name] */
  async got(predicate, name = String(predicate)) {
    await until(
      () => this.messages.some(predicate),
      5000,
      `${name} in ${JSON.stringify(this.messages)}`,
    );
    return this.messages.find(predicate);
  }

  /** @param {object} command with an id */
  async ask(command) {
    this.send(command);
    return this.got((message) => message.id === /** @type {any} */ (command).id);
  }

  async close() {
    await until(() => this.closed !== null, 8000, 'close');
    return /** @type {{code: number, reason: string}} */ (this.closed);
  }
}

for (const by of /** @type {const} */ (['header', 'subprotocol', 'query'])) {
  test(`a token in the ${by} of the handshake lets a connection in as its user`, async (t) => {
    const server = await sharedServer();
    const text = token({ rooms: RIGHTS });
    const client = await new Client(t, server, { token: text, by }).open();
    if (by === 'subprotocol') assert.equal(client.ws.protocol, 'fanfare');
    assert.equal((await client.ask({ type: 'hello', id: 1 })).userId, 'alice');
    assert.equal((await client.ask({ type: 'join', room: 'chat.1', id: 2 })).type, 'joined');
    assert.equal(
      (await client.ask({ type: 'message', room: 'chat.1', text: 'a', id: 3 })).type,
      'ack',
    );
    assert.equal((await client.got(({ type }) => type === 'message')).from, 'alice');
    const [, payload, signature] = text.split('.');
    const all = JSON.stringify(server.lines) + server.stderr() + (await metricsOf(server));
    for (const secret of [payload, signature, SECRET]) assert.ok(!all.includes(secret));
  });
}

test('the first hello may carry the token, and commands behind it wait for it', async (t) => {
  const server = await sharedServer();
  const client = await new Client(t, server).open();
  client.send({ type: 'join', room: 'chat.1', id: 1 });
  client.send({ type: 'hello', token: token({ rooms: RIGHTS }), id: 2 });
  client.send({ type: 'join', room: 'chat.2', id: 3 });
  client.send({ type: 'message', room: 'chat.2', payload: [1], id: 4 });
  await client.got(({ type }) => type === 'message');
  const early = await client.got(({ id }) => id === 1);
  assert.equal(early.error, 'PERMISSION_DENIED');
  assert.match(early.message, /token is required/);
  const order = client.messages
    .filter(({ id }) => id !== undefined)
    .map(({ id, type }) => [id, type]);
  assert.deepEqual(order.slice(0, 3), [
    [1, 'error'],
    [2, 'welcome'],
    [3, 'joined'],
  ]);
});

/** @param {number} seconds from now */
const inS = (seconds) => Math.floor(Date.now() / 1000) + seconds;

for (const [name, text, error, code] of /** @type {[string, () => string, string, number][]} */ ([
  ['an invalid token', () => token({}, OTHER_SECRET), 'INVALID_TOKEN', 4500],
  ['an expired token', () => token({ iat: 1, exp: 2 }), 'TOKEN_EXPIRED', 4001],
  ['a token of a clock ahead', () => token({ iat: inS(60) }), 'TOKEN_NOT_YET_VALID', 4002],
])) {
  test(`${name} is answered and closed with ${code}, in the handshake and in hello`, async (t) => {
    const server = await sharedServer();
    const first = new Client(t, server, { token: text() });
    assert.equal((await first.close()).code, code);
    assert.equal(first.messages[0].error, error);
    const second = await new Client(t, server).open();
    second.send({ type: 'hello', token: text(), id: 1 });
    assert.equal((await second.close()).code, code);
    assert.equal(second.messages[0].error, error);
  });
}

test('a room outside the rights is answered the same, whether it exists or not', async (t) => {
  const server = await sharedStore();
  const inside = await new Client(t, server, { token: token({ rooms: { join: ['*'] } }) }).open();
  await inside.ask({ type: 'join', room: 'secret.1', id: 1 });
  const outside = await new Client(t, server, { token: token({ rooms: RIGHTS }) }).open();
  for (const command of [
    { type: 'join' },
    { type: 'message', payload: 1 },
    { type: 'history' },
    { type: 'history', sinceTime: 0 },
    { type: 'history', before: { epoch: '0'.repeat(16), offset: 1 } },
    { type: 'presence' },
  ]) {
    const answers = [];
    for (const room of ['secret.1', 'secret.2']) {
      const { timestamp, id, ...rest } = await outside.ask({
        ...command,
        room,
        id: `${command.type} ${room}`,
      });
      assert.equal(rest.error, 'PERMISSION_DENIED');
      const right = command.type === 'message' ? 'publish' : command.type;
      assert.equal(rest.message, `The token's rooms.${right} does not name this room.`);
      answers.push(rest);
    }
    assert.deepEqual(answers[0], answers[1]);
  }
  assert.equal(
    (await outside.ask({ type: 'broadcast', payload: 1, id: 9 })).error,
    'PERMISSION_DENIED',
  );
});

test('the latest messages of a room need the right to its history, missed ones do not', async (t) => {
  const server = await sharedStore();
  const writer = await new Client(t, server, { token: token({ rooms: RIGHTS }) }).open();
  const { epoch } = await writer.ask({ type: 'message', room: 'chat.latest', payload: 1, id: 1 });
  const rooms = { join: ['chat.*'] };
  const reader = await new Client(t, server, { token: token({ sub: 'bob', rooms }) }).open();
  const join = { type: 'join', room: 'chat.latest' };
  for (const latest of [{ last: 1 }, { lastSeconds: 60 }, { last: 1, lastSeconds: 60 }])
    assert.equal((await reader.ask({ ...join, ...latest, id: 1 })).error, 'PERMISSION_DENIED');
  const since = { epoch, offset: 0 };
  assert.equal((await reader.ask({ ...join, since, id: 2 })).recovered, true);
  assert.equal((await writer.ask({ ...join, last: 1, id: 2 })).replayed, 1);
});

test('presence shows the user and info of the token, and no other name', async (t) => {
  const server = await sharedStore();
  const text = token({ rooms: RIGHTS, info: { name: 'A' } });
  const client = await new Client(t, server, { token: text }).open();
  const claim = { type: 'join', room: 'chat.shown', presence: { user: 'bob' }, id: 1 };
  assert.equal((await client.ask(claim)).error, 'PERMISSION_DENIED');
  const own = { type: 'join', room: 'chat.shown', presence: { user: 'alice', info: 'x' }, id: 2 };
  assert.equal((await client.ask(own)).type, 'joined');
  const { members } = await client.ask({ type: 'presence', room: 'chat.shown', id: 3 });
  assert.deepEqual(members, [{ user: 'alice', info: { name: 'A' } }]);
});

test('in optional mode a connection without a token is anonymous, and takes no name', async (t) => {
  const server = await sharedLimits();
  const client = await new Client(t, server).open();
  const claim = { type: 'join', room: 'a', presence: { user: 'alice' }, id: 1 };
  assert.equal((await client.ask(claim)).error, 'PERMISSION_DENIED');
  assert.equal((await client.ask({ type: 'join', room: 'a', id: 2 })).type, 'joined');
  const bad = await client.ask({ type: 'auth', token: 'x', id: 3 });
  assert.equal(bad.error, 'INVALID_TOKEN');
  assert.equal(client.closed, null);
});

test('presence shows the user whom a later token names, and no longer the connection', async (t) => {
  const server = await sharedLimits();
  const [client, watcher] = [
    await new Client(t, server).open(),
    await new Client(t, server).open(),
  ];
  for (const one of [watcher, client]) await one.ask({ type: 'join', room: 'late', id: 1 });
  const rooms = { join: ['late'] };
  await client.ask({ type: 'auth', token: token({ sub: 'late', info: 7, rooms }), id: 2 });
  const { members } = await watcher.ask({ type: 'presence', room: 'late', id: 3 });
  assert.equal(members.length, 2);
  assert.deepEqual(
    members.filter((/** @type {any} */ { user }) => user === 'late'),
    [{ user: 'late', info: 7 }],
  );
});

// They mostly wait.
describe('times', { concurrency: true }, () => {
  test('a silent connection without a token is closed with 4011 after 5 s, and gets no broadcast', async (t) => {
    const server = await sharedStore();
    const speaker = await new Client(t, server, { token: token({ broadcast: true }) }).open();
    let id = 0;
    const listeners = async () =>
      (await speaker.ask({ type: 'broadcast', payload: 'all', id: ++id })).listenerCount;
    // Those of the tests before have left.
    await until(async () => (await listeners()) === 1);
    const silent = await new Client(t, server).open();
    const sinceMs = performance.now();
    assert.equal(await listeners(), 1);
    assert.equal((await silent.close()).code, 4011);
    assert.ok(performance.now() - sinceMs > 4500);
    assert.deepEqual(silent.messages, []);
  });

  test('auth renews a token: rooms that it does not allow are left, the others stay', async (t) => {
    const server = await sharedServer();
    const text = token({ exp: nowS() + 3, rooms: RIGHTS });
    const client = await new Client(t, server, { token: text }).open();
    await client.ask({ type: 'join', room: 'chat.1', id: 1 });
    await client.ask({ type: 'join', room: 'chat.2', id: 2 });
    const exp = nowS() + 600;
    const rooms = { join: ['chat.1'], publish: ['chat.*'] };
    const renewed = await client.ask({ type: 'auth', token: token({ exp, rooms }), id: 3 });
    assert.deepEqual(
      [renewed.type, renewed.userId, renewed.expiresAt],
      ['authenticated', 'alice', exp * 1000],
    );
    const left = await client.got(({ type }) => type === 'left');
    assert.deepEqual([left.room, left.reason], ['chat.2', 'permission']);
    const other = await client.ask({ type: 'auth', token: token({ sub: 'bob' }), id: 4 });
    assert.equal(other.error, 'PERMISSION_DENIED');
    // Beyond the end of the first token.
    await until(() => nowS() > exp - 600 + 4, 10_000, 'the first token has expired');
    await client.ask({ type: 'message', room: 'chat.2', payload: 'no', id: 5 });
    await client.ask({ type: 'message', room: 'chat.1', payload: 'yes', id: 6 });
    await client.got(({ type }) => type === 'message');
    const received = client.messages.filter(({ type }) => type === 'message');
    assert.deepEqual(
      received.map(({ payload }) => payload),
      ['yes'],
    );
  });

  test('a token that expires closes its connection with 4001', async (t) => {
    const server = await sharedServer();
    const client = await new Client(t, server, { token: token({ exp: nowS() + 2 }) }).open();
    assert.equal((await client.close()).code, 4001);
  });
});

test('autojoin joins the rooms of the token', async (t) => {
  const server = await sharedStore();
  const text = token({ autojoin: ['user.7', 'h.auto'], rooms: { publish: ['*'] } });
  const client = await new Client(t, server, { token: text }).open();
  await client.got(({ type, room }) => type === 'joined' && room === 'user.7');
  await client.got(({ type, room, epoch }) => type === 'joined' && room === 'h.auto' && epoch);
  await client.ask({ type: 'message', room: 'user.7', payload: 1, id: 1 });
  await client.got(({ type }) => type === 'message');
});

test('a client recovers the rooms that its token joins: by hello with since, or by a join', async (t) => {
  const server = await sharedStore();
  const rooms = { publish: ['*'], presence: ['h'] };
  const text = token({ autojoin: ['h', 'plain'], rooms });
  const isIn = (/** @type {any} */ { type, room }) => type === 'joined' && room === 'h';
  const payloadsOf = (/** @type {Client} */ { messages }) =>
    messages.filter(({ type, room }) => type === 'message' && room === 'h').map((m) => m.payload);
  const writer = await new Client(t, server, {
    token: token({ sub: 'writer', rooms: { ...rooms, join: ['h'] } }),
  }).open();
  await writer.ask({ type: 'join', room: 'h', id: 'in' });
  let next = 0;
  const publish = () => writer.ask({ type: 'message', room: 'h', payload: ++next, id: next });
  const { epoch } = await publish();
  await publish();
  await publish();
  const since = { epoch, offset: 1 };

  const first = await new Client(t, server).open();
  first.send({ type: 'hello', token: text, since: { h: since, other: since }, id: 1 });
  assert.equal((await first.got(isIn)).recovered, true);
  await publish();
  await until(() => payloadsOf(first).length === 3, 5000, 'three messages');
  assert.deepEqual(payloadsOf(first), [2, 3, 4]);

  const later = await new Client(t, server, { token: text }).open();
  assert.equal((await later.got(isIn)).recovered, false);
  const hello = { type: 'hello', since: { h: { epoch, offset: 2 }, plain: since }, id: 1 };
  assert.equal((await later.ask(hello)).type, 'welcome');
  await later.got((message) => isIn(message) && message.recovered);
  const again = await later.ask({ type: 'join', room: 'h', since: { epoch, offset: 3 }, id: 2 });
  assert.deepEqual([again.type, again.offset, again.recovered], ['joined', 4, true]);
  await publish();
  await until(() => payloadsOf(later).includes(5), 5000, 'the live message');
  assert.deepEqual(payloadsOf(later), [3, 4, 4, 5]);
  assert.equal((await later.ask({ type: 'join', room: 'h', id: 3 })).error, 'ALREADY_JOINED');
  const plain = await later.ask({ type: 'join', room: 'plain', since, id: 4 });
  assert.equal(plain.error, 'ALREADY_JOINED');
  const rejoin = await writer.ask({ type: 'join', room: 'h', since, id: 'again' });
  assert.deepEqual([rejoin.type, rejoin.recovered], ['joined', true], 'also rooms it has joined');

  // Presence has counted each connection once: when both have left, the user is gone.
  const { members } = await writer.ask({ type: 'presence', room: 'h', id: 'who' });
  assert.deepEqual(members.map((/** @type {any} */ { user }) => user).sort(), ['alice', 'writer']);
  const events = () =>
    writer.messages
      .filter(({ type, member }) => type === 'presence' && member?.user === 'alice')
      .map(({ event }) => event);
  await until(() => events().length > 0, 5000, 'the join of the user');
  assert.deepEqual(events(), ['join']);
  for (const { ws } of [first, later]) ws.close();
  await until(() => events().length === 2, 5000, 'the leave of the user');
});

test('all connections of a user share a rate of messages, and other users have their own', async (t) => {
  const server = await sharedLimits();
  const [one, two] = [
    await new Client(t, server, { token: token() }).open(),
    await new Client(t, server, { token: token() }).open(),
  ];
  for (const [client, id] of /** @type {[Client, number][]} */ ([
    [one, 1],
    [two, 2],
    [one, 3],
  ]))
    assert.equal((await client.ask({ type: 'ping', id })).type, 'pong');
  const refused = await two.ask({ type: 'ping', id: 4 });
  assert.equal(refused.error, 'RATE_LIMIT_EXCEEDED');
  assert.ok(refused.retryAfter > 30, `${refused.retryAfter} s`);
  const bob = await new Client(t, server, { token: token({ sub: 'bob' }) }).open();
  assert.equal((await bob.ask({ type: 'ping', id: 5 })).type, 'pong');
});

test('a user with as many connections as allowed gets no other', async (t) => {
  const server = await sharedLimits();
  const carol = () => new Client(t, server, { token: token({ sub: 'carol' }) });
  const clients = [];
  for (let i = 0; i < 2; i++) clients.push(await carol().open());
  assert.equal((await carol().close()).code, 4009);
  const dave = await new Client(t, server, { token: token({ sub: 'dave' }) }).open();
  assert.equal((await dave.ask({ type: 'ping', id: 1 })).type, 'pong');
  clients[0].ws.close();
  await clients[0].close();
  const isAdmitted = async () => {
    const fourth = await carol().open();
    fourth.send({ type: 'ping', id: 1 });
    const hasAnswer = () => fourth.messages.some(({ id }) => id === 1);
    await until(() => fourth.closed !== null || hasAnswer(), 5000, 'an answer');
    return fourth.closed === null;
  };
  // Its worker may hear a moment later that there is a place.
  await until(isAdmitted, 5000, 'a free place');
});

test('a revocation closes WebSockets and streams on two servers; a server that starts while Redis is away accepts no token until it is back, and then knows the revocation', async (t) => {
  const redis = await startRedis(t);
  const env = { ...ENV, REDIS_URL: redis.url, FANFARE_REDIS_PREFIX: 'auth:' };
  const servers = [await startServer(t, env), await startServer(t, env)];
  const text = token({ jti: 't1', iat: nowS() - 2, rooms: RIGHTS });
  const clients = [];
  const streams = [];
  for (const server of servers) {
    clients.push(await new Client(t, server, { token: text }).open());
    streams.push(await EventClient.open(t, server.port, `?room=chat.1&token=${text}`));
  }
  const bystander = await new Client(t, servers[0], { token: token({ sub: 'bob' }) }).open();
  for (const client of clients) await client.ask({ type: 'ping', id: 1 });
  for (const stream of streams) await stream.collect('joined');
  const revoker = await redisRevoker(t, env);
  const sinceMs = performance.now();
  await revoker.revoke({ user: 'alice', issuedBeforeMs: Date.now() });
  for (const client of clients) assert.equal((await client.close()).code, 4503);
  for (const stream of streams) {
    assert.equal((await stream.collect('close'))[0].code, 4503);
    await stream.ended();
  }
  t.diagnostic(`all ended ${Math.round(performance.now() - sinceMs)} ms after the revocation`);
  assert.equal((await bystander.ask({ type: 'ping', id: 2 })).type, 'pong');

  const again = new Client(t, servers[1], { token: text });
  assert.equal((await again.close()).code, 4500);
  const returned = await EventClient.open(t, servers[1].port, `?room=chat.1&token=${text}`);
  assert.equal(returned.status, 401);
  redis.freeze();
  const late = await startServer(t, env);
  assert.equal((await new Client(t, late, { token: token() }).close()).code, 1006);
  redis.thaw();
  await until(
    async () => (await new Client(t, late, { token: token() }).open()).closed === null,
    15_000,
    'a connection with a token',
  );
  assert.equal((await new Client(t, late, { token: text }).close()).code, 4500);
  // While Redis is down, a server that has read the list still knows it.
  redis.freeze();
  assert.equal((await new Client(t, late, { token: text }).close()).code, 4500);
  const fresh = await new Client(t, late, { token: token({ iat: nowS() + 2 }) }).open();
  assert.equal((await fresh.ask({ type: 'ping', id: 3 })).type, 'pong');
  redis.thaw();
});

test('a revocation closes the connections of the user, who cannot return, also after a restart with FANFARE_STATE_DIR', async (t) => {
  const secret = newSecret();
  const env = { ...ENV, FANFARE_STATE_DIR: temporaryFolder(t), API_KEYS: `main ${secret} all` };
  const server = await startServer(t, env);
  // Older than the revocation, however long the servers take to start.
  const how = { token: token({ iat: nowS() - 9 }) };
  const client = await new Client(t, server, how).open();
  await client.ask({ type: 'ping', id: 1 });
  const { status, body } = await apiOf(server, secret)('/revoke', { body: { user: 'alice' } });
  assert.equal(status, 200);
  assert.ok(body.keptUntil > Date.now() / 1000);
  assert.equal((await client.close()).code, 4503);
  assert.equal((await new Client(t, server, how).close()).code, 4500);
  server.kill('SIGTERM');
  await server.exited;
  assert.equal((await new Client(t, await startServer(t, env), how).close()).code, 4500);
});

/**
 * A worker's part of authentication in this process: the HTTP API will call it on a server.
 * @param {TestContext} t @param {Record<string, string>} env
 */
async function redisRevoker(t, env) {
  const { config } = loadConfig(env);
  assert.ok(config?.tokens);
  const log = pino({ level: 'silent' });
  const counters = createCounters();
  const backend = createBackend({
    config,
    log,
    counters,
    workerId: 'revoker',
    historyRules: new RoomRules([]),
    announcements: ANNOUNCEMENTS,
    machine: machineAt(''),
    events: { onPublishLag() {}, onRoundTrip() {} },
  });
  t.after(() => backend.close());
  const { broker } = backend;
  await broker.start({ onPublication() {}, onLost() {}, onState() {} });
  await until(() => broker.state === 'up', 5000, 'the broker');
  return new WorkerAuth({
    config,
    settings: config.tokens,
    hub: /** @type {any} */ ({ listenForNotices() {} }),
    backend: /** @type {any} */ (backend),
    counters: counters.auth,
    closeAll() {},
    log,
  });
}

test('a key is rotated by SIGHUP through its file, and no client under load is refused', {
  timeout: 60_000,
}, async (t) => {
  const file = join(temporaryFolder(t), 'jwt-secret');
  const write = (/** @type {string[]} */ ...secrets) => {
    writeFileSync(`${file}.new`, secrets.map((secret) => `${secret}\n`).join(''));
    renameSync(`${file}.new`, file);
  };
  write(SECRET);
  const env = { ...NO_LIMITS, WORKERS: '1', JWT_SECRET_FILE: file };
  const server = await startServer(t, { ...env, FANFARE_RECONNECT_WINDOW_MS: '0' });
  const reload = async () => {
    const done = server.lines.filter(({ msg }) => msg === 'reload complete').length;
    server.kill('SIGHUP');
    const isDone = () => server.lines.filter(({ msg }) => msg === 'reload complete').length > done;
    await until(isDone, 30_000, 'the reload');
  };

  // What the backend signs with; clients come with it all the time, and stay until they are told.
  let signer = SECRET;
  /** @type {Map<string, number>} how many visits ended so */
  const ends = new Map();
  let isOver = false;
  const visitors = Array.from({ length: 3 }, async () => {
    while (!isOver) {
      const client = await new Client(t, server, { token: token({}, signer) }).open();
      if (client.closed === null) client.send({ type: 'hello', id: 1 });
      const isWelcome = () => client.messages.some(({ id }) => id === 1);
      await until(() => isWelcome() || client.closed !== null, 10_000, 'a welcome');
      const end = isWelcome() ? 'welcome' : String(client.closed?.code);
      ends.set(end, (ends.get(end) ?? 0) + 1);
      client.ws.terminate();
    }
  });
  const moreVisits = async () => {
    const before = ends.get('welcome') ?? 0;
    await until(() => (ends.get('welcome') ?? 0) > before + 20, 20_000, 'more visits');
  };

  await moreVisits();
  write(OTHER_SECRET, SECRET);
  await reload();
  await moreVisits();
  signer = OTHER_SECRET;
  await moreVisits();
  write(OTHER_SECRET);
  await reload();
  await moreVisits();
  isOver = true;
  await Promise.all(visitors);
  ends.delete('welcome');
  // Its worker was replaced: it was in, or its handshake had just begun. Without a load balancer a
  // client tries such a handshake again.
  for (const code of ['1012', '1006']) ends.delete(code);
  assert.deepEqual([...ends], []);
  const late = new Client(t, server, { token: token({}, SECRET) });
  assert.equal((await late.close()).code, 4500);
});
