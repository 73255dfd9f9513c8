// centrifugo-http-faults.test.js: Centrifugo's server API when the broker fails, workers do not
// answer, or places are taken (doors/centrifugo/http/).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BrokerError } from '../../src/backend/errors.js';
import { loadConfig } from '../../src/config/config.js';
import { CentrifugoApi, isApiPath } from '../../src/doors/centrifugo/http/api.js';
import { NO_PRESENCE } from '../../src/hub/room-users.js';
import { createCounters } from '../../src/observability/counters.js';
import { MessageRules } from '../../src/operations/message.js';
import { createMeters } from '../../src/worker/api.js';
import { KEY } from '../helpers/centrifugo-api.js';
import { limit, start, until } from '../helpers/public-port.js';

const BROADCAST = { channels: ['a', 'b', 'c'], data: 1 };

/**
 * A public port with the API.
 * @param {import('node:test').TestContext} t
 * @param {object} [parts]
 * @param {(room: string) => Promise<unknown>} [parts.publish] the broker
 * @param {Record<string, string>} [parts.env]
 * @param {object} [parts.fleet]
 */
async function startApi(t, { publish = async () => {}, env = {}, fleet = {} } = {}) {
  const { config, faults } = loadConfig({
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_CENTRIFUGO_API_KEY: KEY,
    JWT_SECRET: 's'.repeat(32),
    ...env,
  });
  assert.ok(config, faults.join());
  const counters = createCounters();
  const phase = { isDraining: false, isSettling: false };
  const log = { errors: 0, error: () => void log.errors++, info() {}, warn() {} };
  const api = new CentrifugoApi(
    /** @type {any} */ ({
      config,
      publisher: { publish, rules: new MessageRules(config, () => null) },
      fleet,
      tracker: NO_PRESENCE,
      historyOf: () => null,
      historyReader: {},
      phase,
      meters: createMeters({ config, counters, log: /** @type {any} */ (log) }, { observe() {} }),
      log,
    }),
  );
  const door = {
    /** @param {string} path @returns {'api'|null} */
    route: (path) => (isApiPath(path, '/centrifugo/api') ? 'api' : null),
    door: /** @type {any} */ (undefined),
    api,
  };
  const { connect } = await start(t, { doors: [door] });
  /** @param {string} method @param {unknown} request @param {string} [head] more of it */
  const send = async (method, request, head = '') => {
    const text = JSON.stringify(request);
    const client = await connect();
    client.write(
      `POST /centrifugo/api/${method} HTTP/1.1\r\nHost: a\r\nX-API-Key: ${KEY}\r\n${head}Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
    );
    const { status, body, headers } = await client.response();
    return { status, headers, ...JSON.parse(body) };
  };
  return { send, api, counters: counters.api, phase, log };
}

test('a broadcast says which channels the broker has refused', limit, async (t) => {
  /** @type {string[]} */
  const rooms = [];
  const { send, counters, log } = await startApi(t, {
    publish: async (room) => {
      rooms.push(room);
      if (room === 'b') throw new BrokerError('UNAVAILABLE', 'away');
      return { epoch: 'e', offset: 1 };
    },
  });
  const { status, result } = await send('broadcast', BROADCAST);
  const accepted = { result: { epoch: 'e', offset: 1 } };
  const [a, b, c] = result.responses;
  assert.deepEqual([status, a, b.error.code, c], [200, accepted, 100, accepted]);
  assert.deepEqual(rooms, ['a', 'b', 'c'], 'all of them in one go');
  assert.deepEqual([counters.messages, log.errors], [3, 0]);
});

test(
  'an unknown outcome is error 100, and an error of ours says nothing of itself',
  limit,
  async (t) => {
    for (const [error, lines] of /** @type {[Error, number][]} */ ([
      [new BrokerError('OUTCOME_UNKNOWN', 'no answer'), 0],
      [new TypeError('ours'), 1],
    ])) {
      const { send, log } = await startApi(t, { publish: () => Promise.reject(error) });
      const publish = { channel: 'a', data: 1 };
      const answer = await send('publish', publish);
      assert.deepEqual([answer.status, answer.error.code, log.errors], [200, 100, lines]);
      assert.doesNotMatch(answer.error.message, /ours/);
      const mode = 'X-Centrifugo-Error-Mode: transport\r\n';
      const bare = await send('publish', publish, mode);
      assert.deepEqual([bare.status, bare.code], [500, 100]);
    }
  },
);

test('a worker that does not answer makes error 100 of counts and actions', limit, async (t) => {
  const unknown = () => Promise.reject(new BrokerError('OUTCOME_UNKNOWN', 'no answer'));
  const { send } = await startApi(t, {
    fleet: {
      rooms: async () => ({ rooms: [{ room: 'a', connections: 1 }], isPartial: true }),
      disconnect: unknown,
      join: unknown,
      leave: unknown,
      renew: unknown,
    },
  });
  const expireAt = Math.ceil(Date.now() / 1000) + 100;
  const user = { user: 'ann', channel: 'a', expire_at: expireAt };
  for (const [method, request] of /** @type {[string, object][]} */ ([
    ['channels', {}],
    ['disconnect', { user: 'ann' }],
    ['subscribe', { user: 'ann', channel: 'a' }],
    ['unsubscribe', user],
    ['refresh', user],
    ['refresh', { user: 'ann', expired: true }],
  ]))
    assert.equal((await send(method, request)).error?.code, 100, method);
});

test('what the methods ask the fleet for', limit, async (t) => {
  /** @type {unknown[]} */
  const calls = [];
  const note =
    (/** @type {string} */ verb) =>
    async (/** @type {unknown[]} */ ...args) =>
      calls.push([verb, ...args]);
  const verbs = ['disconnect', 'join', 'leave', 'renew'];
  const fleet = Object.fromEntries(verbs.map((verb) => [verb, note(verb)]));
  const { send } = await startApi(t, { fleet });
  const expireAt = Math.ceil(Date.now() / 1000) + 100;
  for (const [method, request] of /** @type {[string, object][]} */ ([
    ['subscribe', { user: 'ann', channel: '$a' }],
    ['unsubscribe', { user: 'ann', channel: 'a' }],
    ['disconnect', { user: 'ann' }],
    ['disconnect', { user: 'ann', disconnect: { code: 4000 } }],
    ['disconnect', { user: 'ann', client: 'unknown' }],
    ['refresh', { user: 'ann', expire_at: expireAt }],
    ['refresh', { user: 'ann', expire_at: 1 }],
  ]))
    assert.deepEqual((await send(method, request)).result, {}, method);
  const ann = { user: 'ann', except: [] };
  assert.deepEqual(calls, [
    ['join', ann, ['~c:/da']],
    ['leave', ann, ['a']],
    ['disconnect', ann, undefined, undefined],
    // Without a reason, Centrifugo's clients would come back.
    ['disconnect', ann, 4000, 'force disconnect'],
    ['renew', ann, (expireAt + 25) * 1000],
    ['disconnect', ann, 4001],
  ]);
});

test(
  'requests beyond the places get 503, and a drain waits for those under way',
  limit,
  async (t) => {
    /** @type {((value?: unknown) => void)[]} */
    const accept = [];
    const publish = () => new Promise((resolve) => accept.push(resolve));
    const env = { FANFARE_API_MAX_REQUESTS: '1' };
    const { send, api, counters, phase } = await startApi(t, { publish, env });
    const first = send('broadcast', BROADCAST);
    await until(() => accept.length === 3);
    const busy = await send('broadcast', BROADCAST);
    assert.deepEqual([busy.status, busy.error.code, counters.refused.busy], [503, 100, 1]);
    assert.equal(busy.headers['retry-after'], '1');
    phase.isDraining = true;
    let isDrained = false;
    const drained = api.drain(60_000).then(() => {
      isDrained = true;
    });
    const late = await send('broadcast', BROADCAST);
    assert.deepEqual([late.status, counters.refused.draining], [503, 1]);
    assert.equal(isDrained, false);
    for (const one of accept) one();
    assert.equal((await first).status, 200);
    await drained;
  },
);

test('commands of a batch wait for each other, unless they may be parallel', limit, async (t) => {
  /** @type {((value?: unknown) => void)[]} */
  const accept = [];
  const publish = () => new Promise((resolve) => accept.push(resolve));
  const { send } = await startApi(t, { publish });
  const commands = Array(20).fill({ publish: { channel: 'a', data: 1 } });
  for (const [isParallel, most] of /** @type {const} */ ([
    [false, 1],
    [true, 8],
  ])) {
    accept.length = 0;
    const answer = send('batch', { commands, parallel: isParallel });
    await until(() => accept.length === most);
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(accept.length, most);
    for (let i = 0; i < 20; i++) {
      await until(() => accept.length > i);
      accept[i]();
    }
    assert.equal((await answer).replies.length, 20);
  }
});

test('all channels of both spaces are listed, page by page', limit, async (t) => {
  const names = Array.from({ length: 2500 }, (_, i) => `c${String(i).padStart(4, '0')}`);
  const all = [...names, '~1:c', '~c:/dx', '~c:c/h7', '~c:plain', '~c:/zz'];
  const rooms = all.map((room) => ({ room, connections: 1 }));
  const { send } = await startApi(t, {
    fleet: {
      rooms: async (
        /** @type {{prefix: string, after: string, limit: number}} */ {
          prefix,
          after,
          limit: most,
        },
      ) => ({
        rooms: rooms.filter(({ room }) => room.startsWith(prefix) && room > after).slice(0, most),
        isPartial: false,
      }),
    },
  });
  const list = async (/** @type {string} */ pattern) =>
    Object.keys((await send('channels', { pattern })).result.channels);
  assert.equal((await list('')).length, 2502);
  assert.deepEqual(await list('$*'), ['$x']);
  assert.deepEqual(await list('c*7'), [...names.filter((name) => name.endsWith('7')), 'c#7']);
});

test('paths are those of the API only as they are written', () => {
  for (const path of ['/centrifugo/api/publish', '/centrifugo/api', '/centrifugo/api/'])
    assert.ok(isApiPath(path, '/centrifugo/api'), path);
  for (const path of ['/centrifugo', '/centrifugo/apis', '/Centrifugo/api/publish', '/'])
    assert.ok(!isApiPath(path, '/centrifugo/api'), path);
});

test('a batch above the burst of the key passes when that is full', limit, async (t) => {
  const { send } = await startApi(t, { env: { FANFARE_API_MESSAGES_RATE: '60/min burst 8' } });
  const commands = Array(10).fill({ broadcast: BROADCAST });
  const { replies } = await send('batch', { commands });
  const codes = replies.map((/** @type {any} */ one) => one.error?.code ?? 0);
  assert.deepEqual(codes, Array(10).fill(0));
  assert.equal((await send('publish', { channel: 'a', data: 1 })).status, 429);
});
