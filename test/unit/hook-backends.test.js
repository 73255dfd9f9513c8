// hook-backends.test.js: hooks over HTTP, against real backends: what they are asked, how they may
// fail, answers that are used again, pauses.

import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer as createSocketServer } from 'node:net';
import { test } from 'node:test';
import { setImmediate as immediate } from 'node:timers/promises';
import { testBackends } from '../../src/doctor/hooks.js';
import { AnswerCache } from '../../src/hooks/answer-cache.js';
import { backendHooks } from '../../src/hooks/backends.js';
import { Hooks } from '../../src/hooks/hooks.js';
import { createHookCounters, HOOK_NAMES } from '../../src/observability/counters.js';
import { Turn } from '../../src/worker/turn.js';
import { askedOf, HOOKS_SECRET, hookBackend, listen } from '../helpers/hooks/backend.js';

const limit = { timeout: 20_000 };
const MAX_PAYLOAD = 100_000;

/**
 * @param {string} url
 * @param {{timeoutMs?: number, publicOnly?: boolean, headers?: string[], secrets?: string[]}} [options]
 */
function build(url, options = {}) {
  const { timeoutMs = 10_000, publicOnly = false, headers = ['cookie'] } = options;
  const counters = createHookCounters();
  const lines = /** @type {string[]} */ ([]);
  const log = (/** @type {any[]} */ ...[, text]) => void lines.push(text);
  const settings = { url, headers, hooks: HOOK_NAMES, secrets: options.secrets ?? [HOOKS_SECRET] };
  const functions = backendHooks(
    { backends: [settings], publicOnly },
    { maxPayloadBytes: MAX_PAYLOAD, timeoutMs, counters, log: { info: log, error: log } },
  );
  const hooks = new Hooks({
    functions,
    timeoutMs,
    concurrency: 100,
    maxPayloadBytes: MAX_PAYLOAD,
    counters,
    observe: () => {},
    turn: new Turn(),
    log: { warn: (fields) => void lines.push(String(/** @type {any} */ (fields).err?.message)) },
  });
  return { hooks, functions, counters, lines };
}

/** @param {object} [fields] */
const visitor = (fields) => ({
  ...{ id: 'c1', user: null, info: undefined, data: undefined, address: '192.0.2.1' },
  ...{ transport: 'websocket', ...fields },
});
/** @param {object} [fields] */
const handshake = (fields) => ({
  headers: { cookie: 'session=1', authorization: 'Bearer x' },
  query: new URLSearchParams('room=a&room=b&x=1'),
  ...{ token: null, user: null, address: '192.0.2.1', transport: 'websocket', ...fields },
});

/** Timers of hooks and idle sockets keep no process alive. @param {import('node:test').TestContext} t */
function stayAlive(t) {
  const timer = setInterval(() => {}, 1000);
  t.after(() => clearInterval(timer));
}

/** @param {unknown} verdict */
const codeOf = async (verdict) =>
  /** @type {import('../../src/hooks/hooks.js').Verdict} */ (await verdict).refusal?.code ??
  'allowed';

/**
 * @param {import('node:test').TestContext} t
 * @param {unknown} answer @param {Record<string, string>} [headers] of the answer
 */
async function answering(t, answer, headers = {}) {
  stayAlive(t);
  const asked = /** @type {any[]} */ ([]);
  const requests = /** @type {import('node:http').IncomingMessage[]} */ ([]);
  const { url } = await listen(t, async (request, response) => {
    requests.push(request);
    asked.push(await askedOf(request));
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    const value = typeof answer === 'function' ? answer(asked.at(-1)) : answer;
    if (value === undefined) response.writeHead(204);
    response.end(JSON.stringify(value));
  });
  return { asked, requests, ...build(url) };
}

test('a backend gets the arguments of each hook, with headers by list and its signature', async (t) => {
  const { hooks, asked, requests } = await answering(t, undefined);
  const ann = visitor({ user: 'ann', info: { name: 'Ann' }, data: { role: 'admin' } });
  const { data, info } = /** @type {any} */ (ann);
  await hooks.call('onConnect', [handshake({ token: 't', user: 'ann', data: { lang: 'de' } })]);
  await hooks.call('onJoin', [ann, 'chat.1']);
  await hooks.call('onPublish', [visitor(), 'chat.1', { text: 'hi' }], { key: 'k' });
  await hooks.call('onRpc', [visitor(), 'add', undefined]);
  await hooks.call('onSend', [visitor(), 1]);
  await hooks.call('onDisconnect', [visitor()]);
  const place = { address: '192.0.2.1', transport: 'websocket' };
  const nobody = { id: 'c1', user: null, info: null, data: null, ...place };
  assert.deepEqual(asked, [
    {
      hook: 'onConnect',
      request: {
        headers: { cookie: 'session=1' },
        query: { x: '1', room: 'a' },
        ...{ token: 't', user: 'ann', ...place, data: { lang: 'de' } },
      },
    },
    {
      hook: 'onJoin',
      connection: { id: 'c1', user: 'ann', info, data, ...place },
      room: 'chat.1',
    },
    {
      ...{ hook: 'onPublish', connection: nobody, room: 'chat.1' },
      ...{ payload: { text: 'hi' }, key: 'k' },
    },
    { hook: 'onRpc', connection: nobody, method: 'add', data: null },
    { hook: 'onSend', connection: nobody, data: 1 },
    { hook: 'onDisconnect', connection: nobody },
  ]);
  const [{ headers, method, url }] = requests;
  assert.deepEqual([method, url], ['POST', '/fanfare']);
  assert.deepEqual(
    [headers['content-type'], headers['user-agent']],
    ['application/json', 'fanfare-hooks'],
  );
  assert.equal(new Set(requests.map((request) => request.headers['webhook-id'])).size, 6);
  const sockets = new Set(requests.map(({ socket }) => socket.remotePort));
  assert.equal(sockets.size, 1, 'the connection is kept');
});

test('both secrets sign while they rotate', async (t) => {
  stayAlive(t);
  const { url } = await listen(t, async (request, response) => {
    await askedOf(request);
    response.end('true');
  });
  const other = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=';
  const { hooks } = build(url, { secrets: [other, HOOKS_SECRET] });
  assert.equal(await codeOf(hooks.call('onJoin', [visitor(), 'a'])), 'allowed');
});

/** Endless bytes, as fast as the other side reads. @param {import('node:stream').Writable} out */
function flood(out) {
  const part = Buffer.alloc(65_536, ' ');
  const more = () => {
    while (!out.destroyed && out.write(part));
  };
  out.on('drain', more);
  out.on('error', () => {});
  more();
}

/**
 * Answers that refuse, with the reason that is counted.
 * @type {[string, string, import('node:http').RequestListener][]}
 */
const FAILURES = [
  ['hangs', 'timeout', () => {}],
  [
    'answers byte by byte',
    'timeout',
    (_request, response) => {
      const timer = setInterval(() => response.write(' '), 5);
      response.on('close', () => clearInterval(timer));
    },
  ],
  [
    'redirects',
    'status',
    (request, response) => {
      const isTarget = request.url === '/allowed';
      response.writeHead(isTarget ? 200 : 307, { location: '/allowed' }).end('true');
    },
  ],
  ['answers 500', 'status', (_request, response) => response.writeHead(500).end('true')],
  ['answers 403', 'status', (_request, response) => response.writeHead(403).end('true')],
  ['answers 201', 'status', (_request, response) => response.writeHead(201).end('true')],
  [
    'closes in the middle of an answer',
    'unreachable',
    (_request, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('true', () => response.destroy());
    },
  ],
  ['answers an empty text', 'answer', (_request, response) => response.end()],
  ['answers HTML', 'answer', (_request, response) => response.end('<html>true')],
  ['answers half a JSON', 'answer', (_request, response) => response.end('{"deny": "')],
  ['answers a wrong shape', 'answer', (_request, response) => response.end('{"allow":true}')],
  ['answers a list', 'answer', (_request, response) => response.end('[]')],
  ['answers null', 'answer', (_request, response) => response.end('null')],
  ['answers a text', 'answer', (_request, response) => response.end('"true"')],
  ['answers a wrong type', 'answer', (_request, response) => response.end('{"deny":1}')],
  [
    'answers with a gzip that nobody asked for',
    'answer',
    (_request, response) => response.setHeader('content-encoding', 'gzip').end('\x1f\x8b\x08'),
  ],
  [
    'answers 1 GB',
    'answer',
    (_request, response) => {
      response.writeHead(200, { 'content-length': String(1e9) });
      flood(response);
    },
  ],
  [
    'answers without end',
    'answer',
    (_request, response) => {
      response.writeHead(500);
      flood(response);
    },
  ],
  [
    'names no number of seconds',
    'answer',
    (_request, response) => response.setHeader('fanfare-cache-seconds', 'forever').end('true'),
  ],
  [
    'names too many seconds',
    'answer',
    (_request, response) => response.setHeader('fanfare-cache-seconds', '3601').end('true'),
  ],
  [
    'switches to another protocol',
    'answer',
    ({ socket }) => void socket.end('HTTP/1.1 101 x\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'),
  ],
];
for (const [name, reason, listener] of FAILURES)
  test(`a backend that ${name} refuses, and costs nothing else`, limit, async (t) => {
    stayAlive(t);
    let bytes = 0;
    const { url, server } = await listen(t, (request, response) => {
      request.resume();
      listener(request, response);
    });
    const closed = new Promise((resolve) =>
      server.on('connection', (socket) =>
        socket.on('close', () => {
          bytes += socket.bytesWritten;
          resolve(undefined);
        }),
      ),
    );
    const { hooks, counters } = build(url, reason === 'timeout' ? { timeoutMs: 200 } : {});
    assert.equal(await codeOf(hooks.call('onJoin', [visitor(), 'a'])), 'HOOK_FAILED');
    assert.equal(counters.failures[`onJoin,${/** @type {'answer'} */ (reason)}`], 1);
    if (reason === 'timeout' || name.includes('1 GB') || name.includes('end')) {
      await closed;
      assert.ok(bytes < 20_000_000, `${bytes} bytes`);
    }
    while (counters.running > 0) await immediate();
    assert.ok(hooks.isIdle);
  });

test('bytes that are not HTTP refuse', limit, async (t) => {
  stayAlive(t);
  const server = createSocketServer((socket) => {
    socket.on('error', () => {});
    socket.end('220 mail.example ESMTP\r\n');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const { hooks, counters } = build(`http://127.0.0.1:${port}/`);
  assert.equal(await codeOf(hooks.call('onConnect', [handshake()])), 'HOOK_FAILED');
  assert.equal(counters.failures['onConnect,answer'], 1);
});

for (const [name, url, options] of /** @type {const} */ ([
  ['a metadata service', 'http://169.254.169.254/', {}],
  ['a public address without TLS', 'http://192.0.2.1/', {}],
  ['a private address, if only public ones are allowed', 'https://10.0.0.1/', { publicOnly: true }],
]))
  test(`${name} is not asked`, limit, async () => {
    const { hooks, counters, lines } = build(url, options);
    assert.equal(await codeOf(hooks.call('onJoin', [visitor(), 'a'])), 'HOOK_FAILED');
    assert.equal(counters.failures['onJoin,unreachable'], 1);
    assert.match(lines[0], /is not allowed/);
  });

test('an escaped payload of the largest size fits into an answer', limit, async (t) => {
  const { hooks } = await answering(t, undefined);
  const { url } = await listen(t, (request, response) => {
    request.resume();
    const text = '\\u00e9'.repeat((MAX_PAYLOAD - 2) / 2);
    response.end(`{"payload":"${text}"}`);
  });
  const { hooks: large } = build(url);
  const verdict = await large.call('onPublish', [visitor(), 'a', 1]);
  assert.equal(verdict.answer.payload?.length, MAX_PAYLOAD);
  assert.equal(await codeOf(hooks.call('onPublish', [visitor(), 'a', 1])), 'allowed');
});

test('a connection that the backend has closed is replaced', limit, async (t) => {
  stayAlive(t);
  let requests = 0;
  const server = createSocketServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', () => {
      requests++;
      socket.write('HTTP/1.1 204 x\r\n\r\n');
      // Closes at the next request, as a backend does whose idle time ended in between.
      socket.once('data', () => socket.resetAndDestroy());
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const { hooks } = build(`http://127.0.0.1:${port}/`);
  for (let n = 0; n < 3; n++)
    assert.equal(await codeOf(hooks.call('onJoin', [visitor(), 'a'])), 'allowed');
  assert.ok(requests >= 3);
});

const A_MINUTE = { 'fanfare-cache-seconds': '60' };

test('an answer of onConnect is used again for the same question only', limit, async (t) => {
  const { hooks, asked, counters } = await answering(t, { user: 'ann', data: 1 }, A_MINUTE);
  const call = (/** @type {object} */ fields) => hooks.call('onConnect', [handshake(fields)]);
  const [first, again] = [await call({}), await call({})];
  assert.deepEqual([first.answer.user, again.answer], ['ann', first.answer]);
  assert.deepEqual([asked.length, counters.cache.hit, counters.cache.stored], [1, 1, 1]);
  const others = [
    { address: '192.0.2.2' },
    { token: 'x' },
    { user: 'bob' },
    { transport: 'sse' },
    { query: new URLSearchParams('x=2') },
    { headers: { cookie: 'session=2' } },
    { data: 1 },
  ];
  for (const other of others) await call(other);
  assert.equal(asked.length, 1 + others.length);
  // A header that the backend does not get.
  await call({ headers: { cookie: 'session=1', accept: 'x' } });
  assert.equal(asked.length, 1 + others.length);
});

test('an answer of onJoin holds for all connections of the same visitor', limit, async (t) => {
  const { hooks, asked } = await answering(
    t,
    (/** @type {any} */ { room }) => (room === 'a' ? { deny: 'no' } : undefined),
    A_MINUTE,
  );
  for (const id of ['c1', 'c2']) {
    assert.equal(await codeOf(hooks.call('onJoin', [visitor({ id }), 'a'])), 'DENIED');
    assert.equal(await codeOf(hooks.call('onJoin', [visitor({ id }), 'b'])), 'allowed');
  }
  assert.equal(asked.length, 2);
  for (const other of [{ user: 'ann' }, { data: 1 }, { info: 1 }, { address: '192.0.2.2' }])
    await hooks.call('onJoin', [visitor(other), 'a']);
  assert.equal(asked.length, 6);
  for (let n = 0; n < 2; n++) await hooks.call('onPublish', [visitor(), 'b', 1]);
  assert.equal(asked.length, 8, 'a message is never answered from memory');
});

for (const [name, answer, headers] of /** @type {const} */ ([
  ['without seconds', true, {}],
  ['of 0 seconds', true, { 'fanfare-cache-seconds': '0' }],
  ['that is wrong', { allow: true }, A_MINUTE],
]))
  test(`an answer ${name} is used once`, limit, async (t) => {
    const { hooks, asked } = await answering(t, answer, headers);
    for (let n = 0; n < 2; n++) await hooks.call('onJoin', [visitor(), 'a']);
    assert.equal(asked.length, 2);
  });

test(
  'after 20 failures in a row a backend is left alone, until one request succeeds',
  limit,
  async (t) => {
    stayAlive(t);
    const now = performance.now.bind(performance);
    let elapsedMs = 0;
    t.mock.method(performance, 'now', () => now() + elapsedMs);
    let isUp = false;
    let requests = 0;
    const { url } = await listen(t, (request, response) => {
      request.resume();
      requests++;
      response.writeHead(isUp ? 204 : 503).end();
    });
    const { hooks, counters, lines } = build(url);
    const call = () => codeOf(hooks.call('onJoin', [visitor(), 'a']));
    for (let n = 0; n < 25; n++) assert.equal(await call(), 'HOOK_FAILED');
    assert.equal(requests, 20);
    assert.deepEqual([counters.failures['onJoin,paused'], counters.paused], [5, 1]);
    assert.match(lines.join(), /20 failures in a row/);
    // The longest pause.
    elapsedMs = 1200;
    assert.deepEqual(await Promise.all([call(), call()]), ['HOOK_FAILED', 'HOOK_FAILED']);
    assert.equal(requests, 21, 'one request tries');
    assert.equal(await call(), 'HOOK_FAILED');
    assert.equal(requests, 21, 'another pause');
    elapsedMs = 2400;
    isUp = true;
    assert.deepEqual(await Promise.all([call(), call()]), ['allowed', 'HOOK_FAILED']);
    assert.deepEqual([requests, await call(), counters.paused], [22, 'allowed', 0]);
    assert.match(lines.join(), /answers again/);
  },
);

test('requests on which a backend fails do not pause it for others', limit, async (t) => {
  stayAlive(t);
  const { url } = await listen(t, async (request, response) => {
    const { payload } = await askedOf(request);
    response.writeHead(payload ?? 204).end();
  });
  const { hooks, counters } = build(url);
  const publish = (/** @type {unknown} */ payload) =>
    codeOf(hooks.call('onPublish', [visitor(), 'a', payload]));
  for (const status of [500, 422])
    for (let n = 0; n < 25; n++) assert.equal(await publish(status), 'HOOK_FAILED');
  assert.deepEqual([await publish(null), counters.paused], ['allowed', 0]);
  assert.equal(counters.failures['onPublish,status'], 50);
});

test(
  'calls that had little time left after the line do not pause the backend',
  limit,
  async (t) => {
    stayAlive(t);
    let requests = 0;
    let abort = () => {};
    const { url } = await listen(t, (request, response) => {
      request.resume();
      // Half of the answers begin.
      if (requests++ % 2 === 0) abort();
      else response.write('t');
    });
    const abortLater = () => setImmediate(abort);
    subscribe('http.client.response.finish', abortLater);
    t.after(() => unsubscribe('http.client.response.finish', abortLater));
    const { functions, counters } = build(url);
    for (let n = 0; n < 50; n++) {
      const controller = new AbortController();
      abort = () => controller.abort();
      const call = functions.onJoin?.(/** @type {any} */ (visitor()), 'a', controller);
      await assert.rejects(Promise.resolve(call), { reason: 'timeout' });
    }
    assert.deepEqual([requests, counters.paused], [50, 0]);
  },
);

test('data of too many levels is a wrong answer, and pauses nothing', limit, async (t) => {
  stayAlive(t);
  const { url } = await listen(t, (request, response) => {
    request.resume();
    response.end(`{"data":${'['.repeat(8000)}${']'.repeat(8000)}}`);
  });
  const { hooks, counters } = build(url);
  const request = { headers: {}, query: new URLSearchParams() };
  for (let n = 0; n < 25; n++)
    assert.equal(await codeOf(hooks.call('onConnect', [request])), 'HOOK_FAILED');
  assert.deepEqual([counters.failures['onConnect,answer'], counters.paused], [25, 0]);
});

test('the body of an answer to onDisconnect is ignored', limit, async (t) => {
  stayAlive(t);
  const { url } = await listen(t, (request, response) => {
    request.resume();
    response.end('<html>');
  });
  const { hooks, counters } = build(url);
  hooks.disconnected([visitor()]);
  while (!hooks.isIdle) await immediate();
  assert.deepEqual(Object.values(counters.failures).filter(Boolean), []);
});

test('the doctor asks each backend, and finds one that checks no signature', limit, async (t) => {
  const careless = await listen(t, (request, response) => {
    request.resume();
    response.end('{"deny":"no"}');
  });
  const broken = await listen(t, (request, response) => {
    request.resume();
    response.writeHead(404).end();
  });
  const careful = await hookBackend(t, { onConnect: () => false, onRpc: () => undefined });
  const of = (/** @type {string} */ url, /** @type {any[]} */ ...hooks) => ({
    ...{ url, hooks, secrets: [HOOKS_SECRET], headers: [] },
  });
  const config = {
    ...{ hookTimeoutMs: 10_000, maxMessageBytes: 1000 },
    hooks: {
      ...{ path: '', digest: '', publicOnly: false },
      backends: [
        of(careful.url, 'onConnect'),
        of(careful.url, 'onRpc'),
        of(careless.url, 'onJoin'),
        of(broken.url, 'onPublish'),
      ],
    },
  };
  const { text, isOk } = await testBackends(/** @type {any} */ (config), false);
  assert.equal(isOk, false);
  const lines = text.trimEnd().split('\n');
  const shown = lines.map((line) => line.replace(/http:\S+:\d+/g, 'URL').replace(/\d+ ms/, 'N ms'));
  assert.deepEqual(shown, [
    'ok      URL onConnect: denied, N ms',
    'ok      URL onRpc: allowed, N ms',
    'failed  URL onJoin: it does not check the signature: it answers a wrong one, N ms',
    'failed  URL onPublish: URL answered with status 404, N ms',
  ]);
});

test('kept answers are bounded in number and bytes', () => {
  const counters = createHookCounters().cache;
  let nowMs = 0;
  const cache = new AnswerCache(counters, () => nowMs);
  for (let n = 0; n < 10_001; n++) cache.keep(String(n), String(n), 60);
  assert.deepEqual([cache.find('0'), cache.find('1')], [undefined, '1']);
  assert.deepEqual([counters.evicted, counters.stored], [1, 10_001]);
  const large = 'x'.repeat(8000);
  for (let n = 0; n < 1000; n++) cache.keep(`large ${n}`, large, 60);
  assert.deepEqual([cache.find('10000'), cache.find('large 0')], [undefined, undefined]);
  let kept = 0;
  for (let n = 0; n < 1000; n++) kept += cache.find(`large ${n}`) === undefined ? 0 : 1;
  assert.ok(kept > 450 && kept * 16_000 < 8_388_608, `${kept}`);
  for (let n = 0; n < 1000; n++) cache.keep('large 999', large, 60);
  let still = 0;
  for (let n = 0; n < 1000; n++) still += cache.find(`large ${n}`) === undefined ? 0 : 1;
  assert.equal(still, kept, 'an answer that is kept again takes no more room');
  nowMs = 60_000;
  assert.equal(cache.find('large 999'), undefined);
  // What has expired makes room without being counted.
  const { evicted } = counters;
  for (let n = 0; n < kept; n++) cache.keep(`late ${n}`, large, 1);
  assert.equal(counters.evicted, evicted);
});
