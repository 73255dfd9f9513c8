// cli.test.js: the commands for a running server (src/cli/), on real servers. At least one test of
// each kind runs a command as a process. The others call it, because a process costs 0.25 s.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WebSocketServer } from 'ws';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { call } from '../helpers/cli.js';
import { connect } from '../helpers/clients.js';
import { codeWith } from '../helpers/doc-code.js';
import { shared } from '../helpers/shared.js';
import { SECRET, token } from '../helpers/tokens.js';

const MAIN = fileURLToPath(new URL('../../src/main.js', import.meta.url));
const OPTIONS = { timeout: 60_000 };
const ALL = ['*'];
const RIGHTS = { rooms: { join: ALL, publish: ALL, presence: ALL, history: ALL } };

/** @typedef {import('../harness/server.js').Owner} Owner */

/** @param {Owner} owner @param {Record<string, string>} [env] */
async function startWithKey(owner, env = {}) {
  const secret = newSecret();
  const server = await startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_HISTORY: 'h.*=100/60s, news=10/60s',
    FANFARE_PRESENCE: 'p.*',
    FANFARE_STATE: 's.*=10/60s,price.*=10/60s',
    API_KEYS: `main ${secret} all`,
    ...env,
  });
  const url = `http://127.0.0.1:${server.port}`;
  return { server, url, secret, api: apiOf(server, secret) };
}

/** Of a key that may only publish. */
const poor = newSecret();
/** Without tokens, and with tokens. */
const open = shared(async (owner) => {
  const secret = newSecret();
  const keys = `main ${secret} all; poor ${poor} publish`;
  const { server, url } = await startWithKey(owner, { WORKERS: '2', API_KEYS: keys });
  return { server, url, secret, api: apiOf(server, secret) };
});
const guarded = shared((owner) => startWithKey(owner, { JWT_SECRET: SECRET }));

/**
 * Starts a command.
 * @param {Owner} t
 * @param {readonly string[]} args
 * @param {Record<string, string>} [env]
 */
function start(t, args, env = {}) {
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: { PATH: process.env.PATH, ...env },
  });
  const exited = once(child, 'close').then(([code, signal]) => signal ?? code);
  t.after(() => child.kill('SIGKILL'));
  const said = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => (said.out += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (said.err += text));
  const lines = () =>
    said.out
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line));
  return { child, said, lines, exited };
}

/**
 * Runs a command to its end, as a process.
 * @param {Owner} t
 * @param {readonly string[]} args
 * @param {Record<string, string>} [env]
 * @param {string} [input]
 */
async function run(t, args, env, input = '') {
  const { child, said, lines, exited } = start(t, args, env);
  child.stdin.end(input);
  const code = await exited;
  return { code, ...said, lines: said.out.startsWith('{') ? lines() : [] };
}

test(
  'publish reaches the members with the bytes of the payload, by an API key',
  OPTIONS,
  async (t) => {
    const { server, url, secret, api } = await open();
    const env = { FANFARE_URL: url, FANFARE_API_KEY: secret };
    const member = await connect(t, server.port);
    await member.join('h.bytes');
    const payload = '{"n":9007199254740993,"e":1e400}';
    const first = await run(t, ['publish', 'h.bytes', payload], env);
    assert.deepEqual([first.code, first.err], [0, '']);
    const { epoch, ...rest } = first.lines[0];
    assert.deepEqual(rest, { room: 'h.bytes', offset: 1 });
    assert.match(epoch, /^[0-9a-f]{16}$/);
    assert.equal((await run(t, ['publish', 'h.bytes', '-'], env, '"from stdin"\n')).code, 0);
    assert.equal((await call(['publish', 'h.bytes', '42', '--text'], env)).code, 0);
    const { text } = await api('/rooms/h.bytes/history');
    assert.ok(text.includes(`"payload":${payload}`), text);
    const messages = await member.collect('message', 3);
    assert.deepEqual(
      messages.slice(1).map((one) => [one.payload, one.from]),
      [
        ['from stdin', ''],
        ['42', ''],
      ],
    );
  },
);

test('publish without an API key comes from the user of the token', OPTIONS, async (t) => {
  const { url, secret, api } = await guarded();
  const env = { FANFARE_URL: url, FANFARE_TOKEN: token({ sub: 'ann', ...RIGHTS }) };
  const { code, lines } = await run(t, ['publish', 'h.token', '{"a":1}'], env);
  assert.deepEqual([code, lines[0].offset], [0, 1]);
  // An option wins over the variables.
  const more = ['--token', token({ sub: 'bob', ...RIGHTS })];
  const both = { ...env, FANFARE_API_KEY: secret };
  assert.equal((await call(['publish', 'h.token', '2', ...more], both)).code, 0);
  // The command is not listed itself.
  assert.equal((await run(t, ['who', 'p.token'], env)).err, 'fanfare who: nobody is in p.token\n');
  const { body } = await api('/rooms/h.token/history');
  assert.deepEqual(
    body.messages.map((/** @type {any} */ one) => [one.from, one.payload]),
    [
      ['ann', { a: 1 }],
      ['bob', 2],
    ],
  );
});

test(
  'tail begins with the last messages, goes on live, and leaves at Ctrl-C',
  OPTIONS,
  async (t) => {
    const { url, api } = await open();
    for (let i = 1; i <= 3; i++) await api('/publish', { body: { room: 'h.tail', payload: i } });
    const tail = start(t, ['tail', 'h.tail', '-n', '2'], { FANFARE_URL: url });
    await until(() => tail.lines().length === 2, 10_000, 'the last messages');
    await api('/publish', { body: { room: 'h.tail', payload: { live: true } } });
    await until(() => tail.lines().length === 3, 10_000, 'the live message');
    const { epoch, timestamp, ...line } = tail.lines()[2];
    assert.deepEqual(line, { room: 'h.tail', from: '', offset: 4, payload: { live: true } });
    assert.ok(Math.abs(timestamp - Date.now()) < 60_000 && epoch.length === 16);
    tail.child.kill('SIGINT');
    assert.equal(await tail.exited, 130);
    assert.equal(tail.said.err, 'listening to h.tail\n');
  },
);

test('publish --key sets keys of a room with state, and tail shows them', OPTIONS, async (t) => {
  const { url, secret } = await open();
  const env = { FANFARE_URL: url, FANFARE_API_KEY: secret };
  const set = (/** @type {string} */ key, /** @type {string} */ payload, by = env) =>
    call(['publish', 's.1', payload, '--key', key], by);
  const first = await set('a', '9007199254740993');
  const { epoch, ...rest } = first.lines[0];
  assert.deepEqual(rest, { room: 's.1', key: 'a', offset: 1 }, first.err);
  assert.equal((await set('b', '[1]', { ...env, FANFARE_API_KEY: '' })).code, 0);
  const tail = start(t, ['tail', 's.1', '-n', '5', '--count', '3'], { FANFARE_URL: url });
  await until(() => tail.lines().length === 2, 10_000, 'all keys');
  assert.equal((await set('b', 'null')).code, 0);
  assert.equal(await tail.exited, 0);
  assert.deepEqual(
    tail.lines().map(({ key, payload, offset }) => [key, payload, offset]),
    [
      ['a', 2 ** 53, 1],
      ['b', [1], 2],
      ['b', null, 3],
    ],
  );
  assert.equal(tail.said.err, 'listening to s.1\na room with state begins with all its keys\n');
  assert.equal(tail.lines()[0].epoch, epoch);
  const missing = await call(['publish', 's.1', '1'], env);
  assert.deepEqual([missing.code, missing.out], [65, '']);
  assert.match(missing.err, /key/);
});

test('publish --audience says for whom the message is', OPTIONS, async () => {
  const { url, secret, api } = await guarded();
  const tokenOf = (/** @type {object} */ claims, rooms = {}) =>
    token({ sub: 'ann', rooms: { ...RIGHTS.rooms, ...rooms }, ...claims });
  const byKey = { FANFARE_URL: url, FANFARE_API_KEY: secret };
  const byToken = { FANFARE_URL: url, FANFARE_TOKEN: tokenOf({}, { audience: ALL }) };
  const publish = (/** @type {Record<string, string>} */ env, /** @type {string[]} */ names) =>
    call(['publish', 'h.eyes', '1', ...names.flatMap((name) => ['--audience', name])], env);
  const first = await publish(byKey, ['staff', 'vip']);
  assert.deepEqual([first.code, first.lines[0].audience], [0, ['staff', 'vip']], first.err);
  assert.equal((await publish(byToken, ['vip'])).code, 0);
  assert.equal((await publish(byToken, [])).code, 0);
  const lines = ['publish', 'h.eyes', '--lines', '--audience', 'staff'];
  for (const env of [byKey, byToken])
    assert.equal((await call(lines, env, { input: '2\n' })).code, 0);
  const { body } = await api('/rooms/h.eyes/history');
  assert.deepEqual(
    body.messages.map((/** @type {any} */ one) => one.audience),
    [['staff', 'vip'], ['vip'], undefined, ['staff'], ['staff']],
  );
  const seenBy = async (/** @type {object} */ claims) => {
    const env = { FANFARE_URL: url, FANFARE_TOKEN: tokenOf(claims) };
    const { lines: seen } = await call(['history', 'h.eyes'], env);
    return seen.map(({ offset }) => offset);
  };
  assert.deepEqual(await seenBy({}), [3]);
  assert.deepEqual(await seenBy({ audiences: ['vip'] }), [1, 2, 3]);
  const many = await publish(byKey, [...'abcde']);
  assert.deepEqual([many.code, many.out], [65, '']);
  assert.match(many.err, /1 to 4 different names/);
  const refused = await publish({ FANFARE_URL: url, FANFARE_TOKEN: tokenOf({}) }, ['vip']);
  assert.deepEqual([refused.code, refused.out], [77, '']);
  assert.match(refused.err, /rooms\.audience/);
});

test('at Ctrl-C tail closes its connection, and does not break it', OPTIONS, async (t) => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  t.after(() => server.close());
  const closed = new Promise((resolve) => {
    server.on('connection', (socket) => {
      socket.on('close', resolve);
      socket.on('message', (data) => {
        const { type, id, room } = JSON.parse(String(data));
        const reply = type === 'hello' ? { type: 'welcome', limits: {} } : { type: 'joined', room };
        socket.send(JSON.stringify({ ...reply, id }));
      });
    });
  });
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const tail = start(t, ['tail', 'a'], { FANFARE_URL: `ws://127.0.0.1:${port}` });
  await until(() => tail.said.err.includes('listening'), 10_000, 'the join');
  tail.child.kill('SIGINT');
  assert.equal(await closed, 1000);
  assert.equal(await tail.exited, 130);
});

test('tail reconnects when its worker dies, and misses nothing', OPTIONS, async (t) => {
  const { server, url, api } = await open();
  const tail = start(t, ['tail', 'h.killed'], { FANFARE_URL: url });
  await until(() => tail.said.err.includes('listening'), 10_000, 'the join');
  const publish = async (/** @type {number} */ payload) => {
    const send = () => api('/publish', { body: { room: 'h.killed', payload } });
    await until(async () => (await send().catch(() => null))?.status === 200);
  };
  await publish(1);
  await until(() => tail.lines().length === 1, 10_000, 'a message');
  const { body } = await api('/connections?room=h.killed');
  const { worker } = body.connections[0];
  const isIts = (/** @type {any} */ { msg, slot }) => msg === 'worker ready' && slot === worker;
  const { workerPid } = await server.line(isIts, 1000);
  process.kill(workerPid, 'SIGKILL');
  for (let i = 2; i <= 20; i++) await publish(i);
  await until(() => tail.lines().length >= 20, 30_000, 'all messages');
  assert.deepEqual(
    tail.lines().map(({ payload, offset }) => [payload, offset]),
    Array.from({ length: 20 }, (_, i) => [i + 1, i + 1]),
  );
  assert.match(tail.said.err, /connection lost \(1006\), trying again in \d+\.\d s\n/);
  assert.match(tail.said.err, /connected again, nothing was missed\n/);
});

test('rooms are listed page by page', OPTIONS, async (t) => {
  const { server, url, secret } = await open();
  const env = { FANFARE_URL: `${url.replace('http', 'ws')}/ws`, FANFARE_API_KEY: secret };
  const member = await connect(t, server.port);
  for (const room of ['before', 'page.1', 'page.2', 'page.3', 'within']) await member.join(room);
  const args = ['rooms', '--prefix', 'page.', '--limit', '2'];
  const first = await call(args, env);
  assert.deepEqual(first.lines, [
    { room: 'page.1', connections: 1 },
    { room: 'page.2', connections: 1 },
  ]);
  assert.equal(first.err, 'There may be more: --after page.2\n');
  const second = await call([...args, '--after', 'page.2'], env);
  assert.deepEqual(second.lines, [{ room: 'page.3', connections: 1 }]);
  assert.equal(second.err, '');
});

test(
  'who lists users, connections if there is no presence, and fails if nobody is there',
  OPTIONS,
  async (t) => {
    const { server, url, secret } = await open();
    const env = { FANFARE_URL: url, FANFARE_API_KEY: secret };
    const member = await connect(t, server.port);
    const presence = { user: 'ann', info: { colour: 'red' } };
    await member.ask({ type: 'join', room: 'p.who', presence }, 'joined');
    await member.join('who');
    const { connectionId } = await member.ask({ type: 'hello' }, 'welcome');
    const users = [{ user: 'ann', info: { colour: 'red' } }];
    const ofRoom = async () => (await call(['who', 'p.who'], env)).lines;
    assert.deepEqual(await until(async () => (await ofRoom()).length > 0 && ofRoom()), users);
    // As a client, which is not listed itself.
    assert.deepEqual((await call(['who', 'p.who'], { FANFARE_URL: url })).lines, users);
    for (const args of [
      ['who', 'who'],
      ['who', 'p.who', '--connections'],
    ]) {
      const { lines } = await call(args, env);
      assert.deepEqual(
        [lines.length, lines[0].id, lines[0].transport],
        [1, connectionId, 'websocket'],
      );
    }
    const nobody = await call(['who', 'nobody.here'], env);
    assert.deepEqual([nobody.code, nobody.out], [1, '']);
    assert.equal(nobody.err, 'fanfare who: nobody is in nobody.here\n');
  },
);

test(
  'publish --lines publishes each line in order, and names the line that is refused',
  OPTIONS,
  async () => {
    const { url, secret, api } = await open();
    const env = { FANFARE_URL: url, FANFARE_API_KEY: secret };
    const args = ['publish', 'h.lines', '--lines'];
    const all = await call(args, env, { input: '{"n":1}\n\n9007199254740993\n"three"' });
    assert.deepEqual(
      all.lines.map(({ room, offset }) => [room, offset]),
      [1, 2, 3].map((offset) => ['h.lines', offset]),
      all.err,
    );
    // As a client, and as texts.
    const texts = await call([...args, '--text'], { FANFARE_URL: url }, { input: 'a\nb\n' });
    assert.deepEqual(
      texts.lines.map(({ offset }) => offset),
      [4, 5],
      texts.err,
    );
    const { text } = await api('/rooms/h.lines/history');
    assert.match(
      text,
      /"payload":\{"n":1\}.*"payload":9007199254740993.*"payload":"three".*"a".*"b"/,
    );
    const bad = await call(args, env, { input: '6\nseven\n8\n' });
    assert.deepEqual([bad.code, bad.lines.length], [65, 1]);
    assert.match(bad.err, /line 2: PAYLOAD is not JSON.* \(1 published before\)/);
  },
);

test('publish --lines waits for the rate limit', OPTIONS, async (t) => {
  const { url } = await startWithKey(t, {
    FANFARE_LIMITS: 'enforce',
    FANFARE_MESSAGES_RATE: '60/min burst 3',
  });
  const args = ['publish', 'h.slow', '--lines'];
  const { code, lines, err } = await call(args, { FANFARE_URL: url }, { input: '1\n2\n3\n4\n' });
  assert.deepEqual([code, lines.length], [0, 4], err);
  assert.match(err, /rate limit reached: waiting \d\.\d s\n/);
});

test('history prints a page, and a note says how to get the next one', OPTIONS, async () => {
  const { url, secret, api } = await open();
  for (let i = 1; i <= 5; i++) await api('/publish', { body: { room: 'h.page', payload: i } });
  for (const key of [secret, '']) {
    const env = { FANFARE_URL: url, FANFARE_API_KEY: key };
    const offsets = async (/** @type {string[]} */ ...more) => {
      const { code, lines, err } = await call(['history', 'h.page', ...more], env);
      assert.equal(code, 0, err);
      return { offsets: lines.map(({ offset }) => offset), err, line: lines[0] };
    };
    const latest = await offsets('-n', '2');
    assert.deepEqual(latest.offsets, [4, 5]);
    const [, before = ''] = /older messages: --before (\S+)\n/.exec(latest.err) ?? [];
    assert.deepEqual((await offsets('--before', before, '-n', '2')).offsets, [2, 3]);
    const since = await offsets('--since', before.replace(/\d+$/, '1'), '-n', '2');
    assert.deepEqual(since.offsets, [2, 3]);
    assert.match(since.err, /newer messages: --since [0-9a-f]{16}:3\n/);
    assert.deepEqual((await offsets('--since-time', '2001-01-01T00:00:00Z')).offsets.length, 5);
    const { timestamp, epoch, ...line } = latest.line;
    assert.deepEqual(line, { room: 'h.page', from: '', offset: 4, payload: 4 });
  }
  const none = await call(['history', 'plain'], { FANFARE_URL: url });
  assert.deepEqual([none.code, none.err], [1, 'fanfare history: plain has no history\n']);
});

test(
  'connections are found, disconnected and revoked by the name of their user',
  OPTIONS,
  async (t) => {
    const { server, url, secret } = await guarded();
    const env = { FANFARE_URL: url, FANFARE_API_KEY: secret };
    const dial = () =>
      connect(t, `ws://127.0.0.1:${server.port}/ws?token=${token({ sub: 'zoe', ...RIGHTS })}`);
    const first = await dial();
    const { connectionId } = await first.ask({ type: 'hello' }, 'welcome');
    for (const by of [
      ['--user', 'zoe'],
      ['--id', connectionId],
    ]) {
      const { lines, err } = await call(['connections', ...by], env);
      assert.deepEqual([lines.length, lines[0]?.id, lines[0]?.user], [1, connectionId, 'zoe'], err);
    }
    const closed = once(first.socket, 'close');
    const one = await call(['disconnect', '--connection', connectionId, '--code', '4321'], env);
    assert.deepEqual(one.lines, [{ connectionId, connections: 1 }], one.err);
    assert.equal((await closed)[0], 4321);
    const second = await dial();
    const gone = once(second.socket, 'close');
    const all = await call(['disconnect', '--user', 'zoe'], env, { isTerminal: true });
    assert.deepEqual([all.code, all.out], [0, '1 connection of zoe closed\n'], all.err);
    await gone;
    const none = await call(['connections', '--user', 'zoe'], env);
    assert.deepEqual(
      [none.code, none.err],
      [1, 'fanfare connections: no connection of user zoe\n'],
    );
    const revoked = await call(['revoke', '--user', 'zoe'], env);
    assert.deepEqual([revoked.code, revoked.lines[0].user], [0, 'zoe'], revoked.err);
    const refused = await call(['tail', 'h.1'], {
      FANFARE_URL: url,
      FANFARE_TOKEN: token({ sub: 'zoe', ...RIGHTS }),
    });
    assert.equal(refused.code, 77, refused.err);
  },
);

test('servers lists all workers, for a key with the right console', OPTIONS, async () => {
  const { url, secret } = await open();
  const { lines, err } = await call(['servers'], { FANFARE_URL: url, FANFARE_API_KEY: secret });
  assert.deepEqual(
    lines.map(({ worker, state }) => [worker, state]),
    [
      [0, 'ready'],
      [1, 'ready'],
    ],
    err,
  );
  const denied = await call(['servers'], { FANFARE_URL: url, FANFARE_API_KEY: poor });
  assert.deepEqual([denied.code, denied.out], [77, '']);
});

/** @type {[what: string, args: string[], env: Record<string, string>, code: number, says: RegExp][]} */
const FAILURES = [
  ['no ROOM', ['tail'], {}, 64, /expected ROOM\nSee fanfare tail --help\n$/],
  [
    'an unknown option',
    ['rooms', '--lmit', '1'],
    {},
    64,
    /unknown option --lmit; did you mean --limit/,
  ],
  ['a limit of 0', ['rooms', '--limit', '0'], {}, 64, /--limit is a whole number from 1 to 1,000/],
  ['no URL', ['tail', 'a', '--url', 'chat'], {}, 64, /the URL is not like/],
  ['no JSON', ['publish', 'a', 'hello'], {}, 65, /PAYLOAD is not JSON. To send a text, add --text/],
  ['no room name', ['publish', 'a b', '1'], {}, 65, /A room is 1 to 200 characters/],
  ['no key', ['rooms'], { FANFARE_API_KEY: '' }, 77, /set FANFARE_API_KEY/],
  ['a wrong key', ['rooms'], { FANFARE_API_KEY: 'wrong' }, 77, /No API key has the secret.*401/],
  [
    'no server for the API',
    ['rooms'],
    { FANFARE_URL: 'http://127.0.0.1:CLOSED' },
    69,
    /cannot reach .*ECONNREFUSED/,
  ],
  [
    'no server for a client',
    ['tail', 'a'],
    { FANFARE_URL: 'ws://127.0.0.1:CLOSED' },
    69,
    /cannot reach ws:/,
  ],
];

/** A port without a listener. */
async function closedPort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  server.close();
  await once(server, 'close');
  return port;
}

/** Those that run as processes: one that asks no server, one that is refused, one without a server. */
const PROCESSES = ['no ROOM', 'a wrong key', 'no server for a client'];
for (const [what, args, env, code, says] of FAILURES) {
  test(`${what} ends with exit code ${code} and a reason`, OPTIONS, async (t) => {
    const { url, secret } = await open();
    /** @type {Record<string, string>} */
    const all = {
      FANFARE_URL: url,
      ...(args[0] === 'rooms' && { FANFARE_API_KEY: secret }),
      ...env,
    };
    all.FANFARE_URL = all.FANFARE_URL.replace('CLOSED', String(await closedPort()));
    const failed = PROCESSES.includes(what) ? await run(t, args, all) : await call(args, all);
    assert.deepEqual([failed.code, failed.out], [code, ''], failed.err);
    assert.match(failed.err, says);
    assert.ok(failed.err.startsWith(`fanfare ${args[0]}: `) && !failed.err.includes('    at '));
    assert.ok(!failed.err.includes('wrong'), 'a key is not printed');
  });
}

test('a server without API keys, and without its rights, is told apart', OPTIONS, async (t) => {
  const none = await startWithKey(t, { API_KEYS: '' });
  const off = await call(['rooms'], { FANFARE_URL: none.url, FANFARE_API_KEY: poor });
  assert.deepEqual([off.code, off.out], [1, '']);
  assert.match(off.err, /has no HTTP API \(status 404\): the server needs API_KEYS/);
  const { url } = await open();
  const denied = await call(['rooms'], { FANFARE_URL: url, FANFARE_API_KEY: poor });
  assert.deepEqual([denied.code, denied.out], [77, '']);
  assert.match(denied.err, /The API key .* lacks the right/);
});

test(
  'a client without a token, or with one that has expired, is refused with a hint',
  OPTIONS,
  async () => {
    const { url } = await guarded();
    const nobody = await call(['tail', 'h.1'], { FANFARE_URL: url });
    assert.equal(nobody.code, 77, nobody.err);
    assert.match(nobody.err, /if the server requires tokens, set FANFARE_TOKEN/);
    const nowS = Math.floor(Date.now() / 1000);
    const old = token({ ...RIGHTS, iat: nowS - 120, exp: nowS - 60 });
    const late = await call(['tail', 'h.1'], { FANFARE_URL: url, FANFARE_TOKEN: old });
    assert.equal(late.code, 77, late.err);
    assert.doesNotMatch(late.err, /set FANFARE_TOKEN/);
  },
);

test('a reader that ends, as head does, ends tail without an error', OPTIONS, async (t) => {
  const { url, api } = await open();
  for (let i = 1; i <= 50; i++) await api('/publish', { body: { room: 'h.head', payload: i } });
  const tail = start(t, ['tail', 'h.head', '--last', '1'], { FANFARE_URL: url });
  await until(() => tail.lines().length === 1, 10_000, 'a line');
  tail.child.stdout.destroy();
  await api('/publish', { body: { room: 'h.head', payload: 'one more' } });
  assert.equal(await tail.exited, 0);
  assert.equal(tail.said.err, 'listening to h.head\n');
});

const noScript =
  spawnSync('script', ['--version']).error !== undefined && 'no script (util-linux) here';

/** @param {string} command of fanfare @param {Record<string, string>} env */
function onTerminal(command, env) {
  const { stdout } = spawnSync(
    'script',
    ['-qec', `${process.execPath} ${MAIN} ${command}`, '/dev/null'],
    { env: { PATH: process.env.PATH, TERM: 'xterm', SHELL: '/bin/sh', ...env }, timeout: 20_000 },
  );
  return String(stdout).replaceAll('\r', '');
}

test('on a terminal people get columns in colour, and control characters are escaped', {
  ...OPTIONS,
  skip: noScript,
}, async (t) => {
  const { server, url, secret, api } = await open();
  const env = { FANFARE_URL: url, FANFARE_API_KEY: secret };
  const member = await connect(t, server.port);
  for (const room of ['t.a', 't.long-name']) await member.join(room);
  const rooms = onTerminal('rooms --prefix t.', env);
  assert.equal(
    rooms,
    '\x1b[2mROOM         CONNECTIONS\x1b[22m\nt.a                    1\nt.long-name            1\n',
  );
  assert.ok(!onTerminal('rooms --prefix t.', { ...env, NO_COLOR: '1' }).includes('\x1b'));
  assert.deepEqual(JSON.parse(onTerminal('rooms --prefix t.a --json', env)), {
    room: 't.a',
    connections: 1,
  });
  await api('/publish', { body: '{"room":"h.evil","payload":"\\u009b2J\\u202ehi"}' });
  const tail = onTerminal('tail h.evil --last 1 --count 1', { ...env, NO_COLOR: '1' });
  assert.match(tail, /^\d\d:\d\d:\d\d {2}\(backend\) {5}"\\u009b2J\\u202ehi"$/m);
});

test('the example of docs/cli.md for a room with state runs', OPTIONS, async () => {
  const { url, secret } = await open();
  const code = codeWith('docs/cli.md', '--key EURUSD').replaceAll(
    'npx fanfare',
    `"${process.execPath}" "${MAIN}"`,
  );
  const { status, stdout, stderr } = spawnSync('bash', ['-ec', code], {
    env: { PATH: process.env.PATH, FANFARE_URL: url, FANFARE_API_KEY: secret },
    encoding: 'utf8',
    timeout: 50_000,
  });
  assert.equal(status, 0, stderr);
  const lines = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.deepEqual(
    lines.map(({ key, offset, payload }) => [key, offset, payload]),
    [
      ['EURUSD', 1, undefined],
      ['EURUSD', 1, 1.08],
      ['EURUSD', 2, undefined],
    ],
  );
});

test('the example of docs/cli.md runs', OPTIONS, async (t) => {
  const { server, url, secret } = await open();
  const member = await connect(t, server.port);
  await member.join('news');
  const code = codeWith('docs/cli.md', 'fanfare publish news')
    .replaceAll('npx fanfare', `"${process.execPath}" "${MAIN}"`)
    .replaceAll('http://localhost:3000', url);
  const { status, stdout, stderr } = spawnSync('bash', ['-ec', code], {
    env: { PATH: process.env.PATH, API_KEY: secret },
    encoding: 'utf8',
    timeout: 50_000,
  });
  assert.equal(status, 0, stderr);
  const lines = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.deepEqual(
    lines.map(({ offset = 0, connections = 0, transport = '' }) => [
      offset,
      connections,
      transport,
    ]),
    [
      [1, 0, ''],
      [2, 0, ''],
      [0, 1, ''],
      [0, 0, 'websocket'],
      [1, 0, ''],
    ],
  );
  assert.deepEqual(lines[4].payload, { text: 'hello' });
});

test('the examples of docs/cli.md for lines and for a check run', OPTIONS, async (t) => {
  const { url, secret } = await open();
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-cli-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'fanfare.env');
  const env = { PATH: process.env.PATH, FANFARE_URL: url, FANFARE_API_KEY: secret };
  const run = (/** @type {string} */ part) => {
    const code = codeWith('docs/cli.md', part)
      .replaceAll('npx fanfare', `"${process.execPath}" "${MAIN}"`)
      .replaceAll('/etc/fanfare.env', file);
    return spawnSync('bash', ['-ec', code], { env, encoding: 'utf8', timeout: 50_000 });
  };
  const { status, stdout, stderr } = run('--lines');
  assert.deepEqual([status, stdout.trim().split('\n').length], [0, 2], stderr);
  writeFileSync(file, 'WORKERS=2\n');
  assert.equal(run('fanfare.env').status, 0);
  writeFileSync(file, 'WORKERS=many\n');
  const invalid = run('fanfare.env');
  assert.equal(invalid.status, 78);
  assert.match(invalid.stderr, /WORKERS: "many" is not an integer/);
});
