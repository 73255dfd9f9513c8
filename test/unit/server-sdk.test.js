// server-sdk.test.js: calls of fanfare/server: what they send, what they repeat, and for how long.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { API_ERRORS } from '../../src/protocol/codes.js';
import { createServer, FanfareApiError } from '../../src/sdk/index.js';
import { checkRequest, OPERATIONS, openapi } from '../helpers/openapi-requests.js';

const URL_OF_SERVER = 'https://chat.example';

/**
 * A request as it was sent, and when.
 * @typedef {{method: string, url: string, path: string, query: URLSearchParams, headers: Headers, body: any, at: number}} Sent
 */
/**
 * An answer of the API, of a proxy (`html`), or none: `broken`, `hangs`.
 * @typedef {{status?: number, body?: any, retryAfter?: number, html?: string}|'broken'|'hangs'} Answer
 */

/** @param {number} status @param {string} error @param {object} [more] @returns {Answer} */
const refused = (status, error, more) => ({ status, body: { error, message: error, ...more } });
const UNAVAILABLE = refused(503, 'UNAVAILABLE');
const UNKNOWN = refused(504, 'OUTCOME_UNKNOWN');

/**
 * A server whose answers are known before, on a clock that runs when nothing else does.
 * @param {import('node:test').TestContext} t
 * @param {Answer[]} answers the last one repeats
 */
function script(t, answers) {
  t.mock.timers.reset();
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  /** @type {Sent[]} */
  const sent = [];
  /** @param {any} url @param {any} init @returns {Promise<Response>} */
  const fetch = async (url, { method, headers, body, signal, redirect }) => {
    assert.equal(redirect, 'manual');
    const { pathname: path, searchParams: query } = new URL(url);
    const parsed = typeof body === 'string' ? JSON.parse(body) : body;
    sent.push({ method, url, path, query, headers, body: parsed, at: Date.now() });
    const answer = answers[Math.min(sent.length, answers.length) - 1];
    if (answer === 'broken') throw new TypeError('fetch failed');
    if (answer === 'hangs')
      return new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason));
      });
    const { status = 200, body: json = {}, html, retryAfter } = answer;
    const fields = { ...(retryAfter !== undefined && { 'retry-after': String(retryAfter) }) };
    if (html !== undefined) return new Response(html, { status, headers: fields });
    const all = status < 400 ? fields : { ...fields, 'fanfare-error': json.error };
    return new Response(JSON.stringify(json), { status, headers: all });
  };
  const server = createServer({ url: URL_OF_SERVER, apiKey: 'secret-key', fetch });
  /** @template T @param {Promise<T>} promise @returns {Promise<T>} */
  const settle = async (promise) => {
    let isSettled = false;
    const settled = () => {
      isSettled = true;
    };
    promise.then(settled, settled);
    while (!isSettled) {
      await new Promise((resolve) => setImmediate(resolve));
      if (!isSettled) t.mock.timers.tick(50);
    }
    return promise;
  };
  const keys = () => new Set(sent.map(({ headers }) => headers.get('idempotency-key')));
  return { server, sent, settle, keys };
}

/** @param {Promise<unknown>} promise @returns {Promise<FanfareApiError>} */
async function errorOf(promise) {
  const error = await promise.then(
    () => assert.fail('it did not fail'),
    (/** @type {unknown} */ reason) => reason,
  );
  assert.ok(error instanceof FanfareApiError, inspect(error));
  return error;
}

test('a publish is repeated with its key after 503, 504 and a broken connection', async (t) => {
  const position = { epoch: '8c1f0e6a2b9d4735', offset: 42 };
  const answers = /** @type {Answer[]} */ ([UNAVAILABLE, UNKNOWN, 'broken', { body: position }]);
  const { server, sent, settle, keys } = script(t, answers);
  const expect = { epoch: position.epoch, offset: 41 };
  const published = server.publish('chat.42', { text: 'hi' }, { expect });
  assert.deepEqual(await settle(published), position);
  assert.equal(sent.length, 4);
  assert.equal(keys().size, 1);
  const [{ method, url, headers, body }] = sent;
  assert.deepEqual([method, url], ['POST', 'https://chat.example/api/publish']);
  assert.deepEqual(body, { room: 'chat.42', payload: { text: 'hi' }, expect });
  assert.equal(headers.get('authorization'), 'Bearer secret-key');
  assert.equal(headers.get('content-type'), 'application/json');
  assert.match(String(headers.get('idempotency-key')), /^[!-~]{16,128}$/);
});

test('each publish has a key of its own, or the one that it is given', async (t) => {
  const { server, settle, keys } = script(t, [{}]);
  for (let i = 0; i < 2; i++) await settle(server.publish('a', 1));
  await settle(server.publish('a', 1, { idempotencyKey: 'order-7' }));
  assert.equal(keys().size, 3);
  assert.ok(keys().has('order-7'));
});

test('a message whose key is undefined or null has a random one', async (t) => {
  const { server, sent, settle, keys } = script(t, [{ body: { results: [{ room: 'a' }] } }]);
  for (const idempotencyKey of /** @type {any[]} */ ([undefined, null])) {
    await settle(server.publishMany([{ room: 'a', payload: 1, idempotencyKey }]));
    await settle(server.publish('a', 1, { idempotencyKey }));
  }
  assert.equal(
    new Set([sent[0], sent[2]].map(({ body }) => body.messages[0].idempotencyKey)).size,
    2,
  );
  for (const { body, headers } of sent)
    assert.match(
      body.messages?.[0].idempotencyKey ?? headers.get('idempotency-key'),
      /^[!-~]{16,}$/,
    );
  assert.equal(keys().size, 3, 'that of each publish, and none for the batches');
});

for (const status of [503, 429])
  test(`${status} is repeated after Retry-After, with some jitter`, async (t) => {
    const answer = { .../** @type {object} */ (refused(status, 'X')), retryAfter: 3 };
    const { server, sent, settle } = script(t, [answer, {}]);
    await settle(server.publish('a', 1));
    const waitMs = sent[1].at - sent[0].at;
    assert.ok(waitMs >= 3000 && waitMs <= 3300, `${waitMs} ms`);
  });

test('a wait that would exceed the time limit is not begun', async (t) => {
  const answer = { .../** @type {object} */ (refused(429, 'RATE_LIMIT_EXCEEDED')), retryAfter: 60 };
  const { server, sent, settle } = script(t, [answer, {}]);
  const error = await errorOf(settle(server.publish('a', 1)));
  assert.deepEqual(
    [error.code, error.retryAfterMs, error.retryable, sent.length],
    ['RATE_LIMIT_EXCEEDED', 60_000, true, 1],
  );
});

test('the back-off doubles up to 5 s, and the time limit ends the attempts', async (t) => {
  t.mock.method(Math, 'random', () => 0.999);
  const { server, sent, settle } = script(t, [UNAVAILABLE]);
  const error = await errorOf(settle(server.publish('a', 1)));
  assert.deepEqual([error.code, error.status, error.retryable], ['UNAVAILABLE', 503, true]);
  const waits = sent.slice(1).map(({ at }, i) => Math.round((at - sent[i].at) / 200));
  assert.deepEqual(waits.slice(0, 6), [1, 2, 4, 8, 16, 25]);
  assert.ok(sent[sent.length - 1].at - sent[0].at < 30_000);
});

test('a time limit that is too long, or no number, does not outlast the key', async (t) => {
  const { server, sent, settle } = script(t, [UNAVAILABLE]);
  await errorOf(settle(server.publish('a', 1, { timeoutMs: 3_600_000 })));
  assert.ok(sent[sent.length - 1].at - sent[0].at <= 240_000);
  sent.length = 0;
  await errorOf(settle(server.publish('a', 1, { timeoutMs: Number.NaN })));
  assert.equal(sent.length, 1);
});

test('if the outcome of an earlier attempt is unknown, the error says so', async (t) => {
  const { server, settle } = script(t, [UNKNOWN, UNAVAILABLE]);
  const error = await errorOf(settle(server.publish('a', 1)));
  assert.deepEqual([error.code, error.retryable], ['OUTCOME_UNKNOWN', false]);
});

test('a later refusal does not hide an unknown outcome, unless it is a conflict', async (t) => {
  for (const [answer, code] of /** @type {[Answer, string][]} */ ([
    [refused(401, 'UNAUTHORIZED'), 'OUTCOME_UNKNOWN'],
    [{ status: 404, html: '<html>' }, 'OUTCOME_UNKNOWN'],
    [refused(409, 'CONFLICT'), 'CONFLICT'],
    [refused(409, 'IDEMPOTENCY_CONFLICT'), 'IDEMPOTENCY_CONFLICT'],
  ])) {
    const { server, sent, settle } = script(t, ['broken', answer, {}]);
    const error = await errorOf(settle(server.publish('a', 1)));
    assert.deepEqual([error.code, sent.length], [code, 2]);
  }
});

test('a refusal that time does not change is thrown at once', async (t) => {
  const position = { epoch: '8c1f0e6a2b9d4735', offset: 42 };
  for (const [answer, expected] of /** @type {[Answer, object][]} */ ([
    [
      refused(422, 'INVALID_FIELD', { field: 'room' }),
      { code: 'INVALID_FIELD', status: 422, field: 'room' },
    ],
    [refused(409, 'CONFLICT', { position }), { code: 'CONFLICT', status: 409, position }],
    [refused(401, 'UNAUTHORIZED'), { code: 'UNAUTHORIZED', status: 401 }],
    [refused(500, 'INTERNAL_ERROR'), { code: 'INTERNAL_ERROR', status: 500 }],
  ])) {
    const { server, sent, settle } = script(t, [answer, {}]);
    const error = await errorOf(settle(server.publish('a', 1)));
    assert.deepEqual({ ...error }, { ...error, ...expected, retryable: false, name: error.name });
    assert.equal(sent.length, 1);
  }
});

test('a deletion whose outcome is unknown is not repeated, one that was refused is', async (t) => {
  for (const [answer, attempts] of /** @type {[Answer, number][]} */ ([
    [UNKNOWN, 1],
    ['broken', 1],
    [UNAVAILABLE, 2],
  ])) {
    const { server, sent, settle } = script(t, [answer, {}]);
    await settle(server.deleteHistory('a')).catch(() => {});
    assert.equal(sent.length, attempts);
  }
});

test('an attempt without an answer ends after 10 s, and is repeated with its key', async (t) => {
  const { server, sent, settle, keys } = script(t, ['hangs', {}]);
  await settle(server.publish('a', 1));
  const waitMs = sent[1].at - sent[0].at;
  assert.ok(waitMs >= 10_000 && waitMs <= 10_300, `${waitMs} ms`);
  assert.equal(keys().size, 1);
});

test('an answer of a proxy is not taken for one of Fanfare', async (t) => {
  for (const [status, code, attempts] of /** @type {[number, string, number][]} */ ([
    // Whether the server has seen the request is not known.
    [502, 'OUTCOME_UNKNOWN', 2],
    [503, 'OUTCOME_UNKNOWN', 2],
    [429, 'RATE_LIMIT_EXCEEDED', 2],
    [200, 'UNEXPECTED_ANSWER', 1],
    [301, 'UNEXPECTED_ANSWER', 1],
    [404, 'UNEXPECTED_ANSWER', 1],
  ])) {
    const html = status === 503 ? '{"error":"UNAVAILABLE"}' : '<html>';
    const { server, sent, settle } = script(t, [{ status, html }, {}]);
    // No time for a second attempt.
    const error = await errorOf(settle(server.publish('a', 1, { timeoutMs: 0 })));
    assert.deepEqual([error.code, error.status], [code, status]);
    assert.match(error.message, /^POST https:.* answered \d+, which is no answer of Fanfare$/);
    sent.length = 0;
    await settle(server.publish('a', 1)).catch(() => {});
    assert.equal(sent.length, attempts, `${status}`);
  }
});

test('a read without an answer is unavailable, and is repeated', async (t) => {
  const { server, sent, settle } = script(t, ['broken', { status: 502, html: '' }, { body: {} }]);
  await settle(server.rooms());
  assert.equal(sent.length, 3);
  const error = await errorOf(settle(script(t, ['broken']).server.rooms({ timeoutMs: 0 })));
  assert.deepEqual([error.code, error.retryable], ['UNAVAILABLE', true]);
  assert.match(error.message, /GET https:\/\/chat\.example\/api\/rooms$/);
});

test('a signal ends a call while it waits and while it is under way', async (t) => {
  const reason = new Error('the request has ended');
  for (const answer of /** @type {Answer[]} */ ([
    { .../** @type {object} */ (UNAVAILABLE), retryAfter: 20 },
    'hangs',
  ])) {
    const { server, sent, settle } = script(t, [answer]);
    const control = new AbortController();
    setTimeout(() => control.abort(reason), 1000);
    await assert.rejects(settle(server.publish('a', 1, { signal: control.signal })), reason);
    await assert.rejects(settle(server.publish('a', 1, { signal: control.signal })), reason);
    assert.equal(sent.length, 1);
  }
});

test('of several messages only those not accepted are repeated, in order, each with its key', async (t) => {
  const [a, b, c] = ['a', 'b', 'c'].map((room) => ({ room, payload: room }));
  const { server, sent, settle } = script(t, [
    {
      body: {
        results: [
          { room: 'a', error: 'UNAVAILABLE', message: '' },
          { room: 'b', epoch: 'e', offset: 1 },
          { room: 'c', error: 'OUTCOME_UNKNOWN', message: '' },
        ],
        failed: 2,
      },
    },
    { body: { results: [{ room: 'a' }, { room: 'c', epoch: 'e', offset: 2 }], failed: 0 } },
  ]);
  const published = server.publishMany([a, { ...b, idempotencyKey: 'b-7' }, c]);
  assert.deepEqual(await settle(published), [
    { room: 'a' },
    { room: 'b', epoch: 'e', offset: 1 },
    { room: 'c', epoch: 'e', offset: 2 },
  ]);
  const [first, second] = sent.map(({ body }) => body.messages);
  assert.equal(first[1].idempotencyKey, 'b-7');
  assert.equal(new Set(first.map((/** @type {any} */ one) => one.idempotencyKey)).size, 3);
  assert.deepEqual(second, [first[0], first[2]]);
});

test('a message that stays refused rejects, with what became of each', async (t) => {
  const position = { epoch: 'e', offset: 7 };
  const { server, sent, settle } = script(t, [
    {
      body: {
        results: [
          { room: 'b', error: 'CONFLICT', message: 'elsewhere', position },
          { room: 'a', error: 'UNAVAILABLE', message: '' },
        ],
        failed: 2,
      },
    },
    { body: { results: [{ room: 'a' }], failed: 0 } },
  ]);
  const error = await errorOf(settle(server.publish(['b', 'a'], 1)));
  assert.deepEqual(
    [error.code, error.message, error.position],
    ['CONFLICT', 'elsewhere', position],
  );
  const [other, one] = error.results ?? [];
  assert.deepEqual([one, other.room, other.error?.code], [{ room: 'a' }, 'b', 'CONFLICT']);
  assert.deepEqual(
    sent.map(({ body }) => body.rooms),
    [['b', 'a'], ['a']],
  );
  assert.equal(new Set(sent.map(({ headers }) => headers.get('idempotency-key'))).size, 1);
});

test('a large message goes to the bucket, which may need a second attempt, then is published', async (t) => {
  const url = 'https://bucket.example/messages/1?signature=secret';
  const announced = { upload: '1', method: 'PUT', url, headers: { 'x-amz-a': 'b' }, expires: 0 };
  const { server, sent, settle } = script(t, [
    { body: announced },
    { status: 503, html: '<Error/>' },
    { html: '' },
    { body: { epoch: 'e', offset: 1 } },
  ]);
  const file = new Blob(['hello'], { type: 'text/plain' });
  assert.deepEqual(await settle(server.publishFile('a', file)), { epoch: 'e', offset: 1 });
  assert.deepEqual(sent[0].body, {
    bytes: 5,
    sha256: '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824',
    contentType: 'text/plain',
  });
  for (const { method, url: to, headers, body } of sent.slice(1, 3)) {
    assert.deepEqual([method, to, Buffer.from(body).toString()], ['PUT', url, 'hello']);
    assert.deepEqual([...headers], [['x-amz-a', 'b']], 'not the key of the API');
  }
  assert.deepEqual(sent[3].body, { room: 'a', upload: '1' });
  const other = script(t, [{ body: announced }, { status: 403, html: '<Error/>' }]);
  const error = await errorOf(other.settle(other.server.publishFile('a', 'hello')));
  assert.deepEqual([error.code, error.status], ['UNEXPECTED_ANSWER', 403]);
  assert.doesNotMatch(error.message, /signature/);
});

test('a broken connection and 504 of a real server are repeated with the same key', async (t) => {
  /** @type {unknown[]} */
  const keys = [];
  const http = createHttpServer((request, response) => {
    keys.push(request.headers['idempotency-key']);
    if (keys.length === 1) return void request.socket.destroy();
    response.writeHead(keys.length === 2 ? 504 : 200, {
      'content-type': 'application/json',
      ...(keys.length === 2 && { 'fanfare-error': 'OUTCOME_UNKNOWN' }),
    });
    response.end(keys.length === 2 ? '{"error":"OUTCOME_UNKNOWN","message":""}' : '{}');
  });
  t.after(() => http.close());
  await once(http.listen(0, '127.0.0.1'), 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (http.address());
  const server = createServer({ url: `http://127.0.0.1:${port}/`, apiKey: 'key' });
  assert.deepEqual(await server.publish('a', 1), {});
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
  http.closeAllConnections();
});

/** A call for each operation of the API. @type {(server: import('../../src/sdk/index.js').FanfareServer) => Promise<unknown>[]} */
const CALLS = (server) => {
  const position = { epoch: '8c1f0e6a2b9d4735', offset: 41 };
  return [
    server.publish('a', 1, { except: 'c1', expect: position }),
    server.publish('s', 1, { key: 'k', expect: { offset: 0 } }),
    server.publish(['a', 'b'], { text: 'hi' }),
    server.publishMany([{ room: 'a', payload: null, expect: position, except: 'c1' }]),
    server.publishFile('a', new Uint8Array([1]), { contentType: 'image/png', expect: position }),
    server.broadcast({ notice: 1 }),
    server.rooms({ prefix: 'chat.', after: 'chat.1', limit: 5 }),
    server.room('a/b'),
    server.history('a', { limit: 5, since: position }),
    server.history('a', { before: position }),
    server.history('a', { sinceTime: 1 }),
    server.deleteHistory('a'),
    server.state('a', { keys: ['k', 'l'] }),
    server.state('a', { limit: 5, after: 40 }),
    server.presence('a', { limit: 5, after: 'ann' }),
    server.countUsers(['a']),
    server.online(['ann']),
    server.connections({ user: 'ann' }, { limit: 5 }),
    server.connections({ room: 'a' }),
    server.connections({ address: '10.0.0.1' }),
    server.connection('c1'),
    server.disconnect({ user: 'ann', code: 4500 }),
    server.disconnect({ connectionId: 'c1' }),
    server.join('ann', ['a']),
    server.leave('a/n', ['a']),
    server.revoke({ user: 'ann', issuedBefore: 1 }),
    server.revoke({ tokenId: 't' }),
    server.servers(),
  ];
};

test('the methods cover the API, with the bodies and parameters of openapi.yaml', async (t) => {
  const answer = {
    results: [{}, {}],
    messages: [],
    method: 'PUT',
    url: 'https://bucket/',
    headers: {},
  };
  const { server, sent, settle } = script(t, [{ body: { ...answer, upload: 'u' } }]);
  await settle(Promise.all(CALLS(server)));
  const seen = sent
    .filter(({ method }) => method !== 'PUT')
    .map(({ query, headers, ...request }) =>
      checkRequest({ ...request, query: query.keys(), hasKey: headers.has('idempotency-key') }),
    );
  assert.deepEqual([...new Set(seen)].sort(), OPERATIONS.toSorted());
});

test('a name that a path cannot hold, and a state of no keys, are refused and not sent', async (t) => {
  const { server, sent } = script(t, [{}]);
  for (const [call, field] of /** @type {const} */ ([
    [() => server.history('..'), 'room'],
    [() => server.deleteHistory('.'), 'room'],
    [() => server.join('..', ['a']), 'user'],
    [() => server.leave('.', ['a']), 'user'],
    [() => server.state('prices', { keys: [] }), 'keys'],
  ]))
    await assert.rejects(call, { code: 'INVALID_FIELD', field });
  assert.deepEqual(sent, []);
});

test('a message of a history is a position', async (t) => {
  const epoch = '8c1f0e6a2b9d4735';
  const messages = [{ payload: 1, from: '', timestamp: 0, offset: 7 }];
  const { server, sent, settle } = script(t, [{ body: { messages, epoch, offset: 9 } }]);
  const page = await settle(server.history('a'));
  const [expect] = page.messages;
  await settle(server.history('a', { before: expect }));
  assert.equal(sent[1].query.get('before'), `${epoch}:7`);
  await settle(server.publish('a', 1, { expect }));
  await settle(server.publishMany([{ room: 'a', payload: 1, expect }])).catch(() => {});
  for (const body of [sent[2].body, sent[3].body.messages[0]])
    assert.deepEqual(body.expect, { epoch, offset: 7 });
});

/** The compiler holds it equal to the type. @type {Record<import('../../src/sdk/index.js').Code, true>} */
const CODES = {
  INVALID_REQUEST: true,
  INVALID_JSON: true,
  UNAUTHORIZED: true,
  PERMISSION_DENIED: true,
  NOT_FOUND: true,
  NO_HISTORY: true,
  NO_STATE: true,
  NO_PRESENCE: true,
  NO_TOKENS: true,
  NO_BUCKET: true,
  NO_UPLOAD: true,
  NO_CONNECTION: true,
  METHOD_NOT_ALLOWED: true,
  REQUEST_TIMEOUT: true,
  IDEMPOTENCY_CONFLICT: true,
  CONFLICT: true,
  STATE_FULL: true,
  BODY_TOO_LARGE: true,
  PAYLOAD_TOO_LARGE: true,
  UNSUPPORTED_MEDIA_TYPE: true,
  INVALID_FIELD: true,
  RATE_LIMIT_EXCEEDED: true,
  INTERNAL_ERROR: true,
  UNAVAILABLE: true,
  OUTCOME_UNKNOWN: true,
  bad_request: true,
  request_timeout: true,
  handshakes_per_ip: true,
  UNEXPECTED_ANSWER: true,
  INVALID_SIGNATURE: true,
};

test('the type of codes has those of the API and of HTTP, and two of the library', () => {
  const own = ['UNEXPECTED_ANSWER', 'INVALID_SIGNATURE'];
  const documented = openapi.components.schemas.ErrorCode.enum;
  assert.deepEqual(Object.keys(CODES).sort(), [...documented, ...own].sort());
  for (const code of Object.keys(API_ERRORS)) assert.ok(code in CODES, code);
});

test('a missing key or a wrong address is refused when the server is made', () => {
  const url = URL_OF_SERVER;
  assert.throws(() => createServer({ url, apiKey: undefined }), /apiKey: .* API_KEYS/);
  assert.throws(() => createServer({ url: 'wss://chat.example', apiKey: 'k' }), /url: .* https:/);
  assert.throws(() => createServer({ url: 'chat', apiKey: 'k' }), TypeError);
});

test('no log of a server shows its key', () => {
  const server = createServer({ url: URL_OF_SERVER, apiKey: 'secret-key' });
  assert.doesNotMatch(inspect(server, { depth: 9, showHidden: true }), /secret-key/);
  assert.doesNotMatch(JSON.stringify(server), /secret-key/);
});

test('a room has the payload of the narrowest pattern that matches', async () => {
  /** @typedef {{'*': {any: true}, 'chat.*': {text: string}, 'chat.lobby': {lobby: 1}, news: string}} Rooms */
  const options = { url: URL_OF_SERVER, apiKey: 'k', fetch: async () => new Response('{}') };
  /** @type {import('../../src/sdk/index.js').FanfareServer<Rooms>} */
  const server = createServer(options);
  /** @type {import('../../src/sdk/index.js').FanfareServer<Omit<Rooms, '*'>>} */
  const closed = createServer(options);
  await Promise.all([
    server.publish('chat.42', { text: 'hi' }),
    server.publish('chat.lobby', { lobby: 1 }),
    server.publish('news', 'text'),
    server.publish('else', { any: true }),
    // @ts-expect-error: the lobby has a payload of its own
    server.publish('chat.lobby', { text: 'hi' }),
    // @ts-expect-error: a message of a chat has a text
    server.publish('chat.42', { any: true }),
    // @ts-expect-error: no pattern matches
    closed.publish('else', { any: true }),
    // @ts-expect-error: news are texts
    closed.publish(['news'], 1).catch(() => {}),
    // @ts-expect-error: a message of a chat has a text
    closed.publishMany([{ room: 'chat.1', payload: 1 }]).catch(() => {}),
  ]);
});
