// pusher-http-faults.test.js: Pusher's HTTP API when the broker fails, places are taken, or a body
// is not what was signed (doors/pusher/http/api.js, events.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BrokerError } from '../../src/backend/errors.js';
import { loadConfig } from '../../src/config/config.js';
import { isApiPath, ownPath, PusherApi } from '../../src/doors/pusher/http/api.js';
import { NO_PRESENCE } from '../../src/hub/room-users.js';
import { createCounters } from '../../src/observability/counters.js';
import { MessageRules } from '../../src/operations/message.js';
import { limit, start, until } from '../helpers/public-port.js';
import { writeApps } from '../helpers/pusher.js';
import { signedRequest } from '../helpers/pusher-api.js';

const APP = { id: '1', key: 'key', secret: 'a-secret-of-some-length' };
const ONE_APP = {
  FANFARE_PUSHER_APP_ID: APP.id,
  FANFARE_PUSHER_APP_KEY: APP.key,
  FANFARE_PUSHER_APP_SECRET: APP.secret,
};
const EVENT = { name: 'n', channels: ['a', 'b', 'c'], data: 'd' };

/**
 * A public port with the API.
 * @param {import('node:test').TestContext} t
 * @param {object} [parts]
 * @param {(room: string, publication: Buffer) => Promise<void>} [parts.publish] the broker
 * @param {Record<string, string>} [parts.env]
 * @param {object} [parts.fleet]
 */
async function startApi(t, { publish = async () => {}, env = {}, fleet = {} } = {}) {
  const { config } = loadConfig({
    ...(env.FANFARE_PUSHER_APPS === undefined ? ONE_APP : {}),
    ...env,
  });
  assert.ok(config);
  const counters = createCounters([APP.id]);
  const phase = { isDraining: false, isSettling: false };
  const log = { errors: 0, error: () => void log.errors++ };
  const api = new PusherApi(
    /** @type {any} */ ({
      config,
      publisher: { publish, rules: new MessageRules(config, () => null) },
      fleet,
      tracker: NO_PRESENCE,
      historyOf: () => null,
      historyReader: {},
      phase,
      counters,
      meters: {
        take: () => 0,
        observe() {},
        counters,
        audit: { acted() {}, refused() {} },
        addressOf: () => '',
      },
      readiness: () => (phase.isDraining ? 'draining' : null),
      log,
    }),
  );
  const door = {
    /** @param {string} path @returns {'api'|null} */
    route: (path) => (isApiPath(path) ? 'api' : null),
    door: /** @type {any} */ (undefined),
    api,
  };
  const { connect } = await start(t, { doors: [door] });
  /** @param {string} path @param {unknown} [body] @param {{sent?: string}} [more] */
  const send = async (path, body, { sent } = {}) => {
    const request = signedRequest(APP, `/apps/1${path}`, { body });
    const text = sent ?? request.body ?? '';
    const client = await connect();
    client.write(
      `${request.method} ${request.path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
    );
    const { status, body: answer, headers } = await client.response();
    return { status, headers, ...JSON.parse(answer) };
  };
  return { send, api, counters: counters.api, phase, connect, log };
}

test('the request fails if the broker refuses one of its channels', limit, async (t) => {
  /** @type {string[]} */
  const rooms = [];
  const { send, counters } = await startApi(t, {
    publish: async (room) => {
      rooms.push(room);
      if (room === '~1:b') throw new BrokerError('UNAVAILABLE', 'away');
    },
  });
  const { status, code, headers } = await send('/events', EVENT);
  assert.deepEqual([status, code], [503, 503]);
  assert.equal(headers['retry-after'], '1');
  assert.deepEqual(rooms, ['~1:a', '~1:b', '~1:c'], 'all of them in one go');
  assert.equal(counters.messages, 3);
});

test('the data of an event is bounded by the app, however many quotes it has', limit, async (t) => {
  /** @type {number[]} */
  const bytes = [];
  const apps = [{ ...APP, maxEventBytes: 102_400 }];
  const env = { FANFARE_PUSHER_APPS: writeApps(t, /** @type {any} */ (apps)) };
  const { send } = await startApi(t, {
    env,
    publish: async (_room, publication) => void bytes.push(publication.length),
  });
  const event = { name: 'n', channel: 'a', data: '"'.repeat(102_400) };
  assert.equal((await send('/events', event)).status, 200);
  assert.ok(bytes[0] > 204_800, 'the payload is larger than its data');
  const larger = await send('/events', { ...event, data: 'x'.repeat(102_401) });
  assert.equal(larger.status, 413);
  assert.match(larger.error, /102,401 bytes, over the limit of 102,400 bytes \("maxEventBytes" of/);
});

test(
  'an unknown outcome is 503, too, and an error of ours 500 with log lines',
  limit,
  async (t) => {
    for (const [error, status, lines] of /** @type {[Error, number, number][]} */ ([
      [new BrokerError('OUTCOME_UNKNOWN', 'no answer'), 503, 0],
      [new TypeError('ours'), 500, EVENT.channels.length],
    ])) {
      const { send, log } = await startApi(t, { publish: () => Promise.reject(error) });
      const answer = await send('/events', EVENT);
      assert.deepEqual([answer.status, answer.code, log.errors], [status, status, lines]);
      assert.doesNotMatch(answer.error, /ours/);
    }
  },
);

test('the answer comes after the broker has accepted every channel', limit, async (t) => {
  /** @type {(() => void)[]} */
  const accept = [];
  const publish = () =>
    new Promise((/** @type {(value: void) => void} */ resolve) => accept.push(resolve));
  const { send, counters } = await startApi(t, { publish });
  let isAnswered = false;
  const answer = send('/events', EVENT).then((result) => {
    isAnswered = true;
    return result;
  });
  await until(() => accept.length === 3);
  accept[0]();
  accept[1]();
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isAnswered, false);
  assert.equal(counters.inFlight, 1);
  accept[2]();
  assert.equal((await answer).status, 200);
  await until(() => counters.inFlight === 0);
});

test('a body that is not the signed one is refused, and nothing is published', limit, async (t) => {
  const { send, counters } = await startApi(t);
  const sent = JSON.stringify({ ...EVENT, data: 'e' });
  const { status, error } = await send('/events', EVENT, { sent });
  assert.equal(status, 401);
  assert.match(error, /body_md5/);
  assert.equal(counters.messages, 0);
});

test('a body above the limit is refused by its length', limit, async (t) => {
  const { send, counters } = await startApi(t, { env: { FANFARE_API_MAX_BODY_BYTES: '102400' } });
  const { status, code } = await send('/events', 'x'.repeat(102_401));
  assert.deepEqual([status, code], [413, 413]);
  assert.equal(counters.refused.body_size, 1);
});

test(
  'requests beyond the places get 503, and a drain waits for those under way',
  limit,
  async (t) => {
    /** @type {(() => void)[]} */
    const accept = [];
    const publish = () =>
      new Promise((/** @type {(value: void) => void} */ resolve) => accept.push(resolve));
    const { send, api, counters, phase } = await startApi(t, {
      publish,
      env: { FANFARE_API_MAX_REQUESTS: '1' },
    });
    const first = send('/events', EVENT);
    await until(() => accept.length === 3);
    const busy = await send('/events', EVENT);
    assert.deepEqual([busy.status, counters.refused.busy], [503, 1]);
    phase.isDraining = true;
    let isDrained = false;
    const drained = api.drain(60_000).then(() => {
      isDrained = true;
    });
    const late = await send('/events', EVENT);
    assert.deepEqual([late.status, counters.refused.draining], [503, 1]);
    assert.equal(isDrained, false);
    for (const one of accept) one();
    assert.equal((await first).status, 200);
    await drained;
  },
);

test(
  'counts that a worker has not answered are 503, and not a smaller number',
  limit,
  async (t) => {
    const { send } = await startApi(t, {
      fleet: {
        rooms: async () => ({ rooms: [], isPartial: true }),
        room: async () => ({ connections: 1, isPartial: true }),
        disconnect: () => Promise.reject(new BrokerError('OUTCOME_UNKNOWN', 'no answer')),
      },
    });
    for (const path of ['/channels', '/channels/a'])
      assert.equal((await send(path)).status, 503, path);
    assert.equal((await send('/users/7/terminate_connections', {})).status, 503);
  },
);

test('all channels are listed, page by page, and those of users are not', limit, async (t) => {
  const all = Array.from({ length: 2500 }, (_, i) => `~1:c${String(i).padStart(4, '0')}/e`);
  const rooms = [...all, '~1:u:7', '~1:zz'].map((room) => ({ room, connections: 1 }));
  const { send } = await startApi(t, {
    fleet: {
      rooms: async (
        /** @type {{prefix: string, after: string, limit: number, except: string}} */ page,
      ) => ({
        rooms: rooms
          .filter(({ room }) => room.startsWith(page.prefix) && room > page.after)
          .filter(({ room }) => page.except === '~1:u:' || room === 'asked for users, too')
          .slice(0, page.limit),
        isPartial: false,
      }),
    },
  });
  const { channels } = await send('/channels');
  assert.equal(Object.keys(channels).length, 2501);
  assert.deepEqual(
    [channels['c2499='], channels.zz, channels['#server-to-user-7']],
    [{}, {}, undefined],
  );
});

test('a signed-in user is disconnected by the name that its app gives it', limit, async (t) => {
  /** @type {unknown[]} */
  const targets = [];
  const { send } = await startApi(t, {
    fleet: { disconnect: async (/** @type {unknown} */ target) => targets.push(target) },
  });
  assert.equal((await send('/users/a%3Ab/terminate_connections', {})).status, 200);
  assert.deepEqual(targets, [{ user: '~1:a:b' }]);
});

test('the health check follows readiness', limit, async (t) => {
  const { connect, phase } = await startApi(t);
  const client = await connect();
  const get = async () =>
    (await client.write('GET /up HTTP/1.1\r\nHost: a\r\n\r\n').response()).status;
  assert.equal(await get(), 200);
  phase.isDraining = true;
  assert.equal(await get(), 503);
});

test('paths are those of the API only as they are written', () => {
  for (const path of ['/apps/1/events', '/apps/1', '/users/1/terminate_connections', '/up'])
    assert.ok(isApiPath(path), path);
  for (const path of [
    '/apps',
    '/apps/',
    '/Apps/1/x',
    '/users/1',
    '/users//terminate_connections',
    '/upx',
  ])
    assert.ok(!isApiPath(path), path);
  assert.equal(ownPath('/ws/apps/1', '/ws'), '/apps/1');
  assert.equal(ownPath('/wsx/apps/1', '/ws'), '/wsx/apps/1');
  assert.equal(ownPath('/apps/1', '/ws'), '/apps/1');
  assert.equal(ownPath('/apps/1', ''), '/apps/1');
});
