// client-sse.test.js: `fanfare/client/sse` on fake streams and a fake clock: requests, positions,
// recovery, refusals, silence.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Fanfare } from '../../src/client/sse/index.js';
import { at, change, message, reset, seen, seenState, synced } from '../helpers/client-messages.js';
import { slowState } from '../helpers/slow-state.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {Record<string, any>} Message */

/** A request, whose answer the test plays. */
class FakeRequest {
  /** @type {ReadableStreamDefaultController|undefined} */
  #controller;

  /** @param {URL} url @param {{signal: AbortSignal, headers: Record<string, string>}} options */
  constructor(url, { signal, headers }) {
    this.url = url;
    this.headers = headers;
    this.signal = signal;
    const { promise, resolve, reject } = withResolvers();
    this.answered = promise;
    this.resolve = resolve;
    this.reject = reject;
    signal.addEventListener('abort', () => {
      reject(signal.reason);
      this.#controller?.error(signal.reason);
    });
  }

  get rooms() {
    return this.url.searchParams.getAll('room');
  }

  get lastEventId() {
    return this.url.searchParams.get('lastEventId');
  }

  /** The stream begins. */
  async begin() {
    const body = new ReadableStream({
      start: (controller) => {
        this.#controller = controller;
      },
    });
    this.resolve(new Response(body));
    await turn();
  }

  /** @param {Message[]} messages sent in one piece */
  async send(...messages) {
    const events = messages.map((one) => `event: ${one.type}\ndata: ${JSON.stringify(one)}\n\n`);
    await this.write(events.join(''));
  }

  /** @param {string} text */
  async write(text) {
    this.#controller?.enqueue(new TextEncoder().encode(text));
    await turn();
  }

  async end() {
    this.#controller?.close();
    await turn();
  }

  /** @param {number} status @param {Record<string, string>} [headers] @param {string} [body] */
  async refuse(status, headers, body = '{}') {
    this.resolve(new Response(body, { status, headers }));
    await turn();
  }
}

function withResolvers() {
  /** @type {(response: Response) => void} */
  let resolve = () => {};
  /** @type {(reason: unknown) => void} */
  let reject = () => {};
  const promise = new Promise((...functions) => {
    [resolve, reject] = functions;
  });
  return { promise, resolve, reject };
}

/**
 * @param {TestContext} t
 * @param {import('../../src/client/sse/index.js').Options} [options]
 * @param {string} [address]
 */
function setUp(t, options, address = 'https://chat.example/sse') {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.mock.method(Math, 'random', () => 0.5);
  /** @type {FakeRequest[]} */
  const requests = [];
  t.mock.method(globalThis, 'fetch', (/** @type {string} */ url, /** @type {any} */ init) => {
    const request = new FakeRequest(new URL(url), init);
    requests.push(request);
    return request.answered;
  });
  const fanfare = new Fanfare(address, options);
  t.after(() => fanfare.close());
  /** @type {[string, number|undefined][]} */
  const states = [];
  fanfare.on('state', (state, { delayMs }) => states.push([state, delayMs]));
  /** @type {string[]} */
  const errors = [];
  fanfare.on('error', ({ code, message }) => errors.push(`${code}: ${message}`));
  return {
    fanfare,
    requests,
    states,
    errors,
    get request() {
      return requests[requests.length - 1];
    },
    /** Lets the clock run, and then promises. @param {number} ms */
    async pass(ms) {
      t.mock.timers.tick(ms);
      await turn();
    },
    /** Joins a room with history at offset 10. @param {import('../../src/client/sse/room.js').JoinOptions} [join] */
    async joined(join) {
      const room = fanfare.join('chat.1', join);
      await turn();
      await this.request.begin();
      await this.request.send({ type: 'joined', room: 'chat.1', ...at(10), recovered: false });
      return room;
    },
    /** The stream breaks, and the client has made the next request. */
    async broken() {
      await this.request.end();
      await this.pass(30_000);
    },
  };
}

test('rooms that are joined together share a request, with the token in its header', async (t) => {
  const client = setUp(t, { token: async () => 'secret' });
  for (const name of ['chat.1', 'chat.2']) client.fanfare.join(name);
  assert.equal(client.fanfare.join('chat.1'), client.fanfare.join('chat.1'));
  await turn();
  assert.equal(client.requests.length, 1);
  assert.equal(client.request.url.pathname, '/sse');
  assert.deepEqual(client.request.rooms, ['chat.1', 'chat.2']);
  assert.deepEqual(client.request.headers, { authorization: 'Bearer secret' });
  await client.request.begin();
  assert.equal(client.fanfare.state, 'connected');
});

test('events may be cut anywhere', async (t) => {
  const client = setUp(t);
  const list = seen(await client.joined());
  const text = `: \n\nid: e1:11\ndata: ${JSON.stringify(message(11))}\n\n`;
  for (const part of text) await client.request.write(part);
  assert.deepEqual(list, [11]);
});

test('a new stream goes on behind the last message, and repeats are dropped', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const list = seen(room);
  await client.request.send(message(11), message(12), message(12));
  await client.broken();
  assert.equal(client.request.lastEventId, 'e1:12');
  await client.request.begin();
  await client.request.send({ type: 'joined', room: 'chat.1', ...at(14), recovered: true });
  for (const offset of [12, 13, 14, 15]) await client.request.send(message(offset));
  assert.deepEqual(list, [11, 12, 13, 14, 15]);
  assert.deepEqual(room.position, at(15));
});

test('rooms with a position come first, and the id lists them in that order', async (t) => {
  const client = setUp(t);
  client.fanfare.join('plain');
  await client.joined();
  await client.request.send({ type: 'joined', room: 'plain' });
  const { signal } = client.request;
  client.fanfare.join('chat.2', { since: at(3, 'e2') });
  client.fanfare.join('chat.3');
  await turn();
  assert.ok(signal.aborted, 'the former stream ends');
  assert.deepEqual(client.request.rooms, ['chat.1', 'chat.2', 'plain', 'chat.3']);
  assert.equal(client.request.lastEventId, 'e1:10,e2:3,-,-');
});

test('after a gap the state is loaded before live messages continue', async (t) => {
  const client = setUp(t);
  const { loads, positions, recoverFailed } = slowState();
  const room = await client.joined({ recoverFailed });
  const list = seen(room);
  await client.request.send(message(11));
  await client.request.send({ type: 'resync', room: 'chat.1', ...at(3, 'e2'), reloadAfterMs: 700 });
  await client.request.send(message(4, 'e2'));
  await client.pass(699);
  assert.equal(loads.length, 0);
  await client.pass(1);
  assert.deepEqual([list, positions, room.position], [[11], [at(3, 'e2')], at(11)]);
  loads[0]('new');
  await turn();
  await client.request.send(message(5, 'e2'));
  assert.deepEqual(list, [11, { state: 'new' }, 4, 5]);
});

test('a plain room loads the state after each reconnect, and not at first', async (t) => {
  const client = setUp(t);
  const list = seen(client.fanfare.join('plain', { recoverFailed: () => 'state' }));
  await turn();
  await client.request.begin();
  await client.request.send({ type: 'joined', room: 'plain' });
  await client.request.send({ type: 'message', room: 'plain', payload: 1 });
  await client.broken();
  await client.request.begin();
  await client.request.send({ type: 'joined', room: 'plain' });
  await client.pass(0);
  assert.deepEqual(list, [1, { state: 'state' }]);
});

test('a state that cannot be loaded is reported and loaded again; a later gap replaces it', async (t) => {
  const client = setUp(t);
  let calls = 0;
  const room = await client.joined({
    recoverFailed: async () => {
      if (++calls === 1) throw new Error('no database');
      return calls;
    },
  });
  const list = seen(room);
  const resync = { type: 'resync', room: 'chat.1', ...at(10), reloadAfterMs: 0 };
  await client.request.send(resync);
  await client.pass(0);
  assert.deepEqual(client.errors, [
    'STATE_UNAVAILABLE: The function recoverFailed failed: no database. See docs/client.md#STATE_UNAVAILABLE',
  ]);
  await client.request.send(resync);
  await client.pass(0);
  await client.pass(30_000);
  assert.deepEqual(list, [{ state: 2 }]);
});

test('no more than 1,000 messages wait for the state', async (t) => {
  const client = setUp(t);
  const { loads, recoverFailed } = slowState();
  const list = seen(await client.joined({ recoverFailed }));
  await client.request.send({ type: 'resync', room: 'chat.1', ...at(10), reloadAfterMs: 0 });
  await client.pass(0);
  for (let offset = 11; offset <= 1012; offset++) await client.request.send(message(offset));
  await client.pass(0);
  assert.equal(loads.length, 2);
  loads[0]('old');
  await turn();
  assert.deepEqual(list, []);
  loads[1]('new');
  await turn();
  assert.deepEqual(list, [{ state: 'new' }, 1012]);
});

test('a broken stream is replaced after full jitter that doubles, and 30 s reset it', async (t) => {
  const client = setUp(t);
  client.fanfare.join('chat.1');
  await turn();
  for (const stableMs of [0, 0, 0, 30_001]) {
    await client.request.begin();
    await client.request.write(': \n\n');
    await client.pass(stableMs);
    await client.broken();
  }
  const delays = client.states.flatMap(([, delayMs]) => delayMs ?? []);
  assert.deepEqual(delays, [500, 1000, 2000, 500]);
});

for (const [name, play, delay] of /** @type {const} */ ([
  [
    'a drain',
    (/** @type {FakeRequest} */ request) =>
      request.send(
        { type: 'SERVER_SHUTDOWN', reconnectAfterMs: 4321 },
        { type: 'close', code: 1012, reason: 'service restart' },
      ),
    4321,
  ],
  [
    'an overload',
    (/** @type {FakeRequest} */ request) =>
      request.send({ type: 'close', code: 1013, reason: 'overload' }),
    15_000,
  ],
]))
  test(`after ${name} the client waits as long as the protocol demands`, async (t) => {
    const client = setUp(t);
    await client.joined();
    await play(client.request);
    await client.request.end();
    assert.deepEqual(client.states.at(-1), ['waiting', delay]);
  });

test('a refusal with Retry-After, or by a proxy, is tried again; others end the client', async (t) => {
  const client = setUp(t);
  client.fanfare.join('chat.1');
  await turn();
  await client.request.refuse(503, { 'retry-after': '7' });
  assert.deepEqual(client.states.at(-1), ['waiting', 7500]);
  await client.pass(7500);
  // A proxy has answered: during a deploy, or because it refuses for a while.
  for (const status of [429, 408, 425, 404, 403, 401, 502]) {
    await client.request.refuse(status);
    assert.equal(client.states.at(-1)?.[0], 'waiting', `${status}`);
    await client.pass(30_000);
  }
  await client.request.refuse(403, { 'fanfare-error': 'origin' });
  assert.deepEqual(client.states.at(-1), ['closed', undefined]);
  assert.deepEqual(client.errors, ['REFUSED: refused: HTTP 403']);
  client.fanfare.connect();
  await turn();
  assert.equal(client.requests.length, 10, 'connect() tries again');
});

test('a refusal has the reason of its body, if that has one', async (t) => {
  const client = setUp(t);
  client.fanfare.join('chat.1');
  await turn();
  const reason = 'Room limit reached.';
  const own = { 'fanfare-error': 'ROOM_LIMIT' };
  await client.request.refuse(400, own, JSON.stringify({ error: 'ROOM_LIMIT', message: reason }));
  assert.equal(client.fanfare.state, 'closed');
  assert.equal(client.errors.at(-1), `REFUSED: refused: HTTP 400: ${reason}`);
  client.fanfare.connect();
  await turn();
  await client.request.refuse(404, { 'fanfare-error': 'not_found' }, '<html>');
  assert.equal(client.fanfare.state, 'closed');
  assert.equal(client.errors.at(-1), 'REFUSED: refused: HTTP 404');
});

test('a listener of `waiting` may close the client', async (t) => {
  const client = setUp(t);
  await client.joined();
  client.fanfare.on('state', (state) => void (state === 'waiting' && client.fanfare.close()));
  await client.request.end();
  await client.pass(60_000);
  assert.equal(client.fanfare.state, 'closed');
});

test('a URL may have a query', async (t) => {
  const client = setUp(t, {}, 'https://chat.example/sse?tenant=7#top');
  await client.joined({ since: at(3) });
  const { url, rooms, lastEventId } = client.request;
  assert.equal(url.searchParams.get('tenant'), '7');
  assert.deepEqual([rooms, lastEventId], [['chat.1'], 'e1:3']);
});

test('a token is kept until it is refused; a function is called again, also after a new one', async (t) => {
  let calls = 0;
  const client = setUp(t, { token: () => `token ${++calls}` });
  await client.joined();
  await client.broken();
  assert.equal(client.request.headers.authorization, 'Bearer token 1');
  await client.request.refuse(401, {}, '{"error":"TOKEN_EXPIRED","message":"Expired."}');
  await client.pass(30_000);
  assert.equal(client.request.headers.authorization, 'Bearer token 2');
  assert.deepEqual(client.errors, []);
  await client.request.begin();
  await client.request.send({ type: 'close', code: 4001, reason: 'token expired' });
  await client.broken();
  assert.equal(client.request.headers.authorization, 'Bearer token 3');
  await client.request.refuse(401, {}, '{"error":"INVALID_TOKEN","message":"Not valid."}');
  assert.equal(client.errors.at(-1), 'INVALID_TOKEN: Not valid.');
  await client.pass(30_000);
  assert.equal(client.request.headers.authorization, 'Bearer token 4');
});

test('a function that returns no token is not called for ever', async (t) => {
  const client = setUp(t, { token: () => '' });
  client.fanfare.join('chat.1');
  await turn();
  const own = { 'fanfare-error': 'INVALID_TOKEN' };
  await client.request.refuse(401, own, '{"error":"INVALID_TOKEN","message":"No token."}');
  assert.equal(client.fanfare.state, 'closed');
});

test('a room that is joined or left after close() waits for connect()', async (t) => {
  const client = setUp(t);
  await client.joined();
  await client.fanfare.close();
  client.fanfare.join('chat.2');
  client.fanfare.join('chat.3').leave();
  await turn();
  assert.deepEqual([client.fanfare.state, client.requests.length], ['closed', 1]);
  client.fanfare.connect();
  await turn();
  assert.deepEqual(client.request.rooms, ['chat.2']);
});

test('after close() the token is new, because the user may be', async (t) => {
  let calls = 0;
  const client = setUp(t, { token: () => `token ${++calls}` });
  await client.joined();
  await client.fanfare.close();
  client.fanfare.connect();
  await client.joined();
  assert.equal(client.request.headers.authorization, 'Bearer token 2');
});

test('a token that comes after close() is not kept', async (t) => {
  /** @type {((token: string) => void)[]} */
  const answers = [];
  const client = setUp(t, { token: () => new Promise((resolve) => answers.push(resolve)) });
  client.fanfare.join('chat.1');
  await turn();
  await client.fanfare.close();
  client.fanfare.connect();
  client.fanfare.join('chat.1');
  await turn();
  answers[1]('bob');
  answers[0]('ann');
  await turn();
  await client.request.begin();
  await client.broken();
  assert.equal(client.request.headers.authorization, 'Bearer bob');
  assert.equal(client.requests.length, 2, 'none for the series that close() ended');
});

test('a token callback that fails is reported and called again', async (t) => {
  let calls = 0;
  const client = setUp(t, {
    token: () => {
      if (++calls === 1) throw new Error('no backend');
      return 'token';
    },
  });
  client.fanfare.join('chat.1');
  await turn();
  assert.deepEqual(
    [client.errors, client.requests.length],
    [
      [
        'TOKEN_UNAVAILABLE: The token function failed: no backend. See docs/client.md#TOKEN_UNAVAILABLE',
      ],
      0,
    ],
  );
  await client.pass(500);
  assert.equal(client.requests.length, 1);
});

test('a token callback that does not answer within 15 s is reported and called again', async (t) => {
  /** @type {{resolve: (token: string) => void, reject: (error: Error) => void}[]} */
  const calls = [];
  const token = () => new Promise((resolve, reject) => calls.push({ resolve, reject }));
  const client = setUp(t, { token });
  client.fanfare.join('chat.1');
  await turn();
  await client.pass(15_000);
  const reported = [
    'TOKEN_UNAVAILABLE: The token function failed: it took longer than 15 s. See docs/client.md#TOKEN_UNAVAILABLE',
  ];
  assert.deepEqual([client.errors, client.fanfare.state], [reported, 'waiting']);
  await client.pass(500);
  calls[0].reject(new Error('too late'));
  await client.pass(14_999);
  calls[1].resolve('token');
  await turn();
  assert.equal(client.request.headers.authorization, 'Bearer token');
  await client.pass(14_999);
  assert.deepEqual([client.errors, client.fanfare.state], [reported, 'connecting']);
  await client.pass(1);
  assert.equal(client.fanfare.state, 'waiting');
});

test('a stream without a sign of life for a heartbeat and 10 s is dropped', async (t) => {
  const client = setUp(t, { heartbeatMs: 20_000 });
  await client.joined();
  await client.pass(29_999);
  await client.request.write(': \n\n');
  await client.pass(29_999);
  assert.equal(client.fanfare.state, 'connected');
  await client.pass(1);
  assert.equal(client.fanfare.state, 'waiting');
  assert.ok(client.requests[0].signal.aborted);
});

test('a stream that lasted 30 s and fell silent ends a series of failed attempts', async (t) => {
  const client = setUp(t);
  await client.joined();
  for (const delayMs of [500, 1000]) {
    await client.request.end();
    assert.equal(client.states.at(-1)?.[1], delayMs);
    await client.pass(delayMs);
    await client.request.begin();
  }
  await client.pass(40_000);
  assert.deepEqual(client.states.at(-1), ['waiting', 500]);
  // A request without an answer does not. It has 15 s, as in `fanfare/client`.
  await client.pass(500);
  await client.pass(14_999);
  assert.equal(client.fanfare.state, 'connecting');
  await client.pass(1);
  assert.deepEqual(client.states.at(-1), ['waiting', 1000]);
});

test('a listener of `left` may join again, also while the client closes', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const join = () => client.fanfare.join('chat.1');
  /** @type {import('../../src/client/sse/index.js').Room[]} */
  const next = [];
  room.on('left', () => next.push(join()));
  room.leave();
  assert.notEqual(next[0], room);
  await turn();
  assert.deepEqual(client.request.rooms, ['chat.1']);
  next[0].on('left', () => next.push(join()));
  await client.fanfare.close();
  await turn();
  assert.deepEqual([next.length, client.requests.length, client.fanfare.state], [2, 2, 'closed']);
});

test('a room that a listener of `left` joins while the client closes is kept', async (t) => {
  const client = setUp(t);
  const first = client.fanfare.join('chat.1');
  client.fanfare.join('chat.2');
  first.on('left', () => client.fanfare.join('chat.2'));
  await client.fanfare.close();
  client.fanfare.connect();
  await turn();
  assert.deepEqual(client.request?.rooms, ['chat.2']);
});

test('a room that the server ends is left, and the stream goes on without it', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  client.fanfare.join('chat.2');
  await turn();
  await client.request.begin();
  let hasLeft = false;
  room.on('left', () => {
    hasLeft = true;
  });
  const list = seen(room);
  await client.request.send({ type: 'left', room: 'chat.1', reason: 'removed' }, message(11));
  assert.deepEqual([hasLeft, list], [true, []]);
  assert.deepEqual(client.request.rooms, ['chat.2']);
  client.fanfare.join('chat.2').leave();
  await client.pass(60_000);
  assert.equal(client.fanfare.state, 'idle');
});

test('broadcasts, outages and errors are events of the client; close ends rooms', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  /** @type {unknown[]} */
  const list = [];
  client.fanfare.on('broadcast', (payload) => list.push(payload));
  client.fanfare.on('degraded', (degraded) => list.push(degraded));
  room.on('left', () => list.push('left'));
  await client.request.send({ type: 'broadcast', payload: null });
  await client.request.send({ type: 'degraded', degraded: true });
  await client.request.send({ type: 'error', error: 'UNAVAILABLE', message: 'later' });
  await client.fanfare.close();
  assert.deepEqual(list, [null, true, 'left']);
  assert.deepEqual(client.errors, ['UNAVAILABLE: later']);
  await client.pass(60_000);
  assert.equal(client.requests.length, 1);
});

test('a room with state has a map, which a new stream continues or fills anew', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1');
  const list = seenState(room);
  const joined = { type: 'joined', room: 'chat.1', state: true, ...at(10), recovered: false };
  await turn();
  await client.request.begin();
  await client.request.send(joined, change('a', 1, 4), change('b', 1, 9), synced(10));
  await client.request.send(change('b', null, 11));
  await client.broken();
  assert.equal(client.request.lastEventId, 'e1:11');
  await client.request.begin();
  await client.request.send({ ...joined, recovered: true, ...at(12) }, change('a', 2, 12));
  assert.deepEqual(room.state, new Map([['a', 2]]));
  await client.broken();
  assert.equal(client.request.lastEventId, 'e1:12');
  await client.request.begin();
  await client.request.send({ ...joined, ...at(1, 'e2') }, reset(1, 'e3'), synced(1, 'e3'));
  assert.deepEqual(list, [
    ['joined', false],
    ['a', 1, undefined],
    ['b', 1, undefined],
    ['synced', 10],
    ['b', null, 1],
    ['joined', true],
    ['a', 2, 1],
    ['reset', 0],
    ['joined', false],
    ['reset', 0],
    ['synced', 1],
  ]);
  assert.deepEqual([room.state, room.position], [new Map(), at(1, 'e3')]);
});

test('`since` of the application has no map to continue, so the stream begins anew', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1', { since: at(8) });
  await turn();
  const joined = { type: 'joined', room: 'chat.1', state: true, ...at(10), recovered: true };
  assert.equal(client.request.lastEventId, 'e1:8');
  await client.request.begin();
  await client.request.send(joined);
  await turn();
  assert.deepEqual([client.requests.length, client.request.lastEventId], [2, '-']);
  await client.request.begin();
  await client.request.send({ ...joined, recovered: false }, change('a', 1, 4), synced(10));
  assert.deepEqual(room.state, new Map([['a', 1]]));
});

test('a state that will be loaded again does not keep a program alive', async (t) => {
  /** @type {FakeRequest[]} */
  const requests = [];
  t.mock.method(globalThis, 'fetch', (/** @type {string} */ url, /** @type {any} */ init) => {
    requests.push(new FakeRequest(new URL(url), init));
    return requests[0].answered;
  });
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
  const before = timers();
  const fanfare = new Fanfare('https://chat.example/sse');
  const room = fanfare.join('chat.1', {
    since: at(1),
    recoverFailed: () => Promise.reject(new Error('no database')),
  });
  const failed = new Promise((resolve) => room.on('error', resolve));
  await turn();
  const [request] = requests;
  await request.begin();
  await request.send({ type: 'resync', room: 'chat.1', ...at(10), reloadAfterMs: 0 });
  // A program that is alive, as this one is here.
  const alive = setInterval(() => {}, 1000);
  await failed;
  clearInterval(alive);
  await turn();
  await fanfare.close();
  assert.equal(timers(), before);
});

test('an id without an event moves the position', async (t) => {
  const all = setUp(t);
  const room = await all.joined();
  const list = seen(room);
  // The id of an event counts after it.
  const event = `id: e1:11\ndata: ${JSON.stringify(message(11))}\n\n`;
  await all.request.write(`${event}:\nid: e1:`);
  assert.deepEqual([list, room.position], [[11], at(11)]);
  await all.request.write('13\n\n');
  assert.deepEqual([list, room.position], [[11], at(13)]);
  await all.broken();
  assert.equal(all.request.lastEventId, 'e1:13');
});

test('an id of several rooms moves each of them', async (t) => {
  const all = setUp(t);
  const [one, two] = [all.fanfare.join('chat.1'), all.fanfare.join('chat.2')];
  await turn();
  await all.request.begin();
  await all.request.send({ type: 'joined', room: 'chat.1', ...at(10), recovered: false });
  await all.request.send({ type: 'joined', room: 'chat.2', ...at(5, 'e2'), recovered: false });
  await all.request.write('id: -,e2:7,e1:12\n\n');
  assert.deepEqual([one.position, two.position], [at(12), at(7, 'e2')]);
  // Positions of a while ago, or of another epoch, move nothing.
  await all.request.write('id: e1:11,e3:20\n\n');
  assert.deepEqual([one.position, two.position], [at(12), at(7, 'e2')]);
});
