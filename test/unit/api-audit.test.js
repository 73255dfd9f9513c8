// api-audit.test.js: what an operator can read in the log about requests to the HTTP APIs
// (audited.js, audit-log.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../src/config/config.js';
import {
  CentrifugoApi,
  isApiPath as isCentrifugoPath,
} from '../../src/doors/centrifugo/http/api.js';
import { isApiPath, PusherApi } from '../../src/doors/pusher/http/api.js';
import { NO_PRESENCE } from '../../src/hub/room-users.js';
import { AuditLog } from '../../src/observability/audit-log.js';
import { API_ROUTES, createCounters } from '../../src/observability/counters.js';
import { RareLog } from '../../src/observability/rare-log.js';
import { MessageRules } from '../../src/operations/message.js';
import { ACTIONS } from '../../src/transport/http-api/audited.js';
import { HttpApi } from '../../src/transport/http-api/http-api.js';
import { createMeters } from '../../src/worker/api.js';
import { limit, start, until } from '../helpers/public-port.js';
import { signedRequest } from '../helpers/pusher-api.js';

/** @typedef {Record<string, any> & {text: string}} Line */

const APP = { id: '7', key: 'app-key', secret: 'a-secret-of-some-length' };
const MAY = 'a'.repeat(32);
const MAY_NOT = 'b'.repeat(32);
const CENTRIFUGO = 'c'.repeat(32);

/** A log that keeps its lines. */
function recorder() {
  /** @type {Line[]} */
  const lines = [];
  const add = (/** @type {object} */ fields, /** @type {string} */ text) =>
    void lines.push({ ...fields, text });
  return { lines, log: { info: add, warn: add, error: add, debug() {} } };
}

/**
 * All HTTP APIs on one public port, before a fleet without connections.
 * @param {import('node:test').TestContext} t @param {string} [trustProxy]
 * @param {() => Promise<number>} [disconnect]
 */
async function startApis(t, trustProxy = 'loopback', disconnect = async () => 0) {
  const { config, faults } = loadConfig({
    API_KEYS: `ops ${MAY} all; reader ${MAY_NOT} rooms`,
    FANFARE_PUSHER_APP_ID: APP.id,
    FANFARE_PUSHER_APP_KEY: APP.key,
    FANFARE_PUSHER_APP_SECRET: APP.secret,
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_CENTRIFUGO_API_KEY: CENTRIFUGO,
    JWT_SECRET: 's'.repeat(32),
    TRUST_PROXY: trustProxy,
  });
  assert.ok(config, faults.join());
  const counters = createCounters([APP.id]);
  const { lines, log } = recorder();
  const meters = createMeters(
    { config, counters, log: /** @type {any} */ (log) },
    { observe() {} },
  );
  const services = /** @type {any} */ ({
    config,
    publisher: { publish: async () => {}, rules: new MessageRules(config, () => null) },
    broker: { countConnections: async () => 0 },
    fleet: {
      disconnect,
      join: async () => 0,
      leave: async () => 0,
      renew: async () => 0,
      deleteHistory: async () => {},
    },
    revoke: async () => ({ keepUntilMs: 1000 }),
    tracker: NO_PRESENCE,
    historyOf: () => ({}),
    stateOf: () => null,
    historyReader: {},
    blobs: null,
    phase: { isDraining: false, isSettling: false },
    readiness: () => null,
    counters,
    log,
  });
  const doorOf = (/** @type {any} */ api, /** @type {(path: string) => boolean} */ isPath) => ({
    route: (/** @type {string} */ path) => (isPath(path) ? /** @type {const} */ ('api') : null),
    door: /** @type {any} */ (undefined),
    api,
  });
  const { connect, server } = await start(t, {
    env: { FANFARE_LIMITS: 'off' }, // no limit asks for the address
    api: new HttpApi({ ...services, ...meters }),
    doors: [
      doorOf(new PusherApi({ ...services, meters }), isApiPath),
      doorOf(new CentrifugoApi({ ...services, meters }), (path) =>
        isCentrifugoPath(path, '/centrifugo/api'),
      ),
    ],
  });
  /** @type {Awaited<ReturnType<typeof connect>>[]} */
  const clients = [];
  /** @param {string} method @param {string} path @param {string} head @param {unknown} [body] */
  const send = async (method, path, head, body) => {
    const text = body === undefined ? '' : JSON.stringify(body);
    const client = await connect();
    clients.push(client);
    client.write(
      `${method} ${path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\n${head}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
    );
    return (await client.response()).status;
  };
  return { lines, send, clients, server };
}

const key = (/** @type {string} */ secret) => `Authorization: Bearer ${secret}`;
const { path: TERMINATE } = signedRequest(APP, '/apps/7/users/ann/terminate_connections', {
  body: '{}',
});

/**
 * A request, and what its line has: key, action, subject and outcome.
 * @type {Readonly<Record<string, [args: [string, string, string, unknown?], fields: object]>>}
 */
const REQUESTS = {
  broadcast: [
    ['POST', '/api/broadcast', key(MAY), { payload: 'private-text' }],
    { api: 'http', key: 'ops', action: 'broadcast', outcome: 'done' },
  ],
  delete_history: [
    ['DELETE', '/api/rooms/news/history', key(MAY)],
    { api: 'http', key: 'ops', action: 'delete_history', room: 'news', outcome: 'done' },
  ],
  disconnect: [
    ['POST', '/api/disconnect', key(MAY), { user: 'ann' }],
    { api: 'http', key: 'ops', action: 'disconnect', user: 'ann', outcome: 'done' },
  ],
  'disconnect by connection': [
    ['POST', '/api/disconnect', key(MAY), { connectionId: '0123456789abcdef0123456789abcdef' }],
    { api: 'http', key: 'ops', action: 'disconnect' },
  ],
  'disconnect that names nobody': [
    ['POST', '/api/disconnect', key(MAY), {}],
    { api: 'http', key: 'ops', action: 'disconnect', outcome: 'INVALID_FIELD' },
  ],
  'disconnect without the right': [
    ['POST', '/api/disconnect', key(MAY_NOT), { user: 'ann' }],
    { api: 'http', key: 'reader', action: 'disconnect', outcome: 'PERMISSION_DENIED' },
  ],
  join: [
    ['POST', '/api/users/ann/join', key(MAY), { rooms: ['news'] }],
    { api: 'http', key: 'ops', action: 'join', user: 'ann', rooms: ['news'], outcome: 'done' },
  ],
  leave: [
    ['POST', '/api/users/ann/leave', key(MAY), { rooms: ['news'] }],
    { api: 'http', key: 'ops', action: 'leave', user: 'ann', rooms: ['news'], outcome: 'done' },
  ],
  revoke: [
    ['POST', '/api/revoke', key(MAY), { user: 'ann' }],
    { api: 'http', key: 'ops', action: 'revoke', user: 'ann', outcome: 'done' },
  ],
  'revoke by token': [
    ['POST', '/api/revoke', key(MAY), { tokenId: 'jti-1' }],
    { api: 'http', key: 'ops', action: 'revoke', tokenId: 'jti-1', outcome: 'done' },
  ],
  pusher_terminate: [
    ['POST', TERMINATE, 'X: y', {}],
    { api: 'pusher', key: 'app-key', app: '7', action: 'terminate', user: 'ann', outcome: 'done' },
  ],
  ...Object.fromEntries(
    /** @type {const} */ ([
      ['disconnect', { user: 'ann' }, { user: 'ann', outcome: 'done' }],
      ['history_remove', { channel: 'news' }, { channel: 'news', outcome: 'done' }],
      ['refresh', { user: 'ann', expired: true }, { user: 'ann', outcome: 'done' }],
      ['subscribe', { user: 'ann', channel: 'news' }, { user: 'ann', channel: 'news' }],
      ['unsubscribe', { user: 'ann', channel: 'news' }, { user: 'ann', channel: 'news' }],
    ]).map(([action, body, fields]) => [
      `centrifugo_${action}`,
      [
        ['POST', `/centrifugo/api/${action}`, `X-API-Key: ${CENTRIFUGO}`, body],
        { api: 'centrifugo', key: '1', action, ...fields },
      ],
    ]),
  ),
  'centrifugo_disconnect of nobody': [
    ['POST', '/centrifugo/api/disconnect', `X-API-Key: ${CENTRIFUGO}`, {}],
    { api: 'centrifugo', key: '1', action: 'disconnect', outcome: 107 },
  ],
  'centrifugo_disconnect in a batch': [
    [
      'POST',
      '/centrifugo/api/batch',
      `X-API-Key: ${CENTRIFUGO}`,
      { commands: [{ publish: { channel: 'a', data: 1 } }, { disconnect: { user: 'bob' } }] },
    ],
    { api: 'centrifugo', key: '1', action: 'disconnect', user: 'bob', outcome: 'done' },
  ],
};

test('each action through an API leaves one line, without secrets', limit, async (t) => {
  const { lines, send } = await startApis(t);
  for (const [name, [args, fields]] of Object.entries(REQUESTS)) {
    lines.length = 0;
    await send(...args);
    assert.equal(lines.length, 1, name);
    const [line] = lines;
    assert.equal(line.text, 'API action', name);
    assert.equal(line.address, '192.0.2.7', name);
    for (const [field, value] of Object.entries(fields))
      assert.deepEqual(line[field], value, `${name}: ${field}`);
    assert.doesNotMatch(JSON.stringify(line), /private-text|aaaa|bbbb|cccc|auth_signature/, name);
  }
});

test('a client that does not wait for the answer does not hide its address', limit, async (t) => {
  let carryOut = (/** @type {number} */ _connections) => {};
  const { lines, send, clients, server } = await startApis(
    t,
    '',
    () =>
      new Promise((resolve) => {
        carryOut = resolve;
      }),
  );
  const before = carryOut;
  send('POST', '/api/disconnect', key(MAY), { user: 'ann' }).catch(() => {});
  await until(() => carryOut !== before);
  clients[0].socket.resetAndDestroy();
  await until(() => server.openSockets === 0);
  carryOut(0);
  await until(() => lines.length > 0);
  assert.deepEqual([lines[0].action, lines[0].address], ['disconnect', '127.0.0.1']);
});

/** They read, or publish, or are not one action. */
const NOT_LOGGED = new Set([
  ...['publish', 'publish_batch', 'create_upload', 'pusher_events', 'pusher_batch_events'],
  ...['centrifugo_publish', 'centrifugo_broadcast', 'centrifugo_rpc', 'centrifugo_batch'],
  ...['servers', 'rooms', 'room', 'history', 'state', 'presence', 'query_presence', 'connections'],
  ...['connection', 'pusher_channels', 'pusher_channel', 'pusher_users', 'centrifugo_presence'],
  ...['centrifugo_presence_stats', 'centrifugo_history', 'centrifugo_channels', 'centrifugo_info'],
  'unknown',
]);

test('each route is an action, or is named as one that leaves no line', () => {
  for (const route of API_ROUTES) {
    assert.notEqual(ACTIONS.has(/** @type {any} */ (route)), NOT_LOGGED.has(route), route);
    if (ACTIONS.has(/** @type {any} */ (route))) assert.ok(route in REQUESTS, route);
  }
});

test('requests without a valid key are logged once a minute for each address', limit, async (t) => {
  const { lines, send } = await startApis(t);
  const wrong = 'd'.repeat(32);
  assert.equal(await send('POST', '/api/revoke', key(wrong), { user: 'ann' }), 401);
  assert.equal(await send('GET', '/api/rooms', 'X: y'), 401);
  assert.equal(await send('POST', '/centrifugo/api/info', `X-API-Key: ${wrong}`, {}), 401);
  assert.equal(await send('GET', '/apps/7/channels?auth_key=app-key', 'X: y'), 401);
  assert.equal(await send('GET', '/apps/8/channels', 'X: y'), 404);
  assert.equal(lines.length, 1);
  const { reason, ...line } = lines[0];
  const expected = { api: 'http', address: '192.0.2.7', unsaid: 0, text: 'API key refused' };
  assert.deepEqual(line, expected);
  assert.match(reason, /API key/);
  assert.doesNotMatch(JSON.stringify(lines), /dddd/);
});

test('a rare line has one place for each source, and a bounded number of them', () => {
  const { lines, log } = recorder();
  let now = 0;
  const rare = new RareLog(log, () => now);
  for (const source of ['a', 'a', 'b', 'a']) rare.warn({ source }, 'refused', source);
  assert.deepEqual(
    lines.map(({ source }) => source),
    ['a', 'b'],
  );
  now = 60_000;
  rare.warn({ source: 'a' }, 'refused', 'a');
  assert.equal(lines.at(-1)?.unsaid, 2);
  for (let i = 0; i < 5000; i++) rare.warn({ source: `s${i}` }, 'refused', `s${i}`);
  assert.ok(rare.kinds.size <= 1001, `${rare.kinds.size} sources`);
  assert.ok(lines.length <= 1005, `${lines.length} lines`);
  now = 120_000;
  rare.warn({ source: 'new' }, 'refused', 'new');
  assert.equal(lines.at(-1)?.source, 'new');
  assert.ok(rare.kinds.size <= 2, 'sources of the last minute are forgotten');
});

test('a name of any length makes a short line', () => {
  const { lines, log } = recorder();
  const subject = {
    user: 'x'.repeat(1_500_000),
    rooms: Array.from({ length: 5000 }, (_, i) => `r.${i}`),
    token: 'secret',
    connectionId: { of: 'another kind' },
  };
  new AuditLog(log).acted({
    ...{ api: 'console', key: 'ops', action: 'join', subject, address: '::1', outcome: 'done' },
  });
  assert.ok(JSON.stringify(lines).length < 2000);
  assert.equal(lines[0].user, `${'x'.repeat(200)}… (1500000 characters)`);
  assert.equal(lines[0].rooms.at(-1), 'and 4980 more');
  assert.equal(lines[0].token, undefined);
});
