// The webhooks of apps of Pusher clients: their form, checked by Pusher's own library, when they are
// sent, and which rooms are recorded for them. The courier's clock is a fake.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import pino from 'pino';
import Pusher from 'pusher';
import { Webhook } from 'standardwebhooks';
import { loadConfig } from '../../src/config/config.js';
import { signedHeaders } from '../../src/protocol/webhook-signature.js';
import { WebhookDelivery } from '../../src/webhooks/delivery.js';
import { formOf } from '../../src/webhooks/form.js';
import { blocksOf } from '../helpers/doc-code.js';
import { MemoryQueue } from '../helpers/memory-queue.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const KEY = '278d425bdf160c739803';
const SECRET = '7ad3773142a6692b25b8';
const URL = 'https://app.example/hooks';
const EVENTS = [
  'channel_occupied',
  'channel_vacated',
  'member_added',
  'member_removed',
  'client_event',
  'cache_miss',
  'subscription_count',
];
const DELIVERED = Object.freeze({ outcome: 'delivered', error: '', retryAfterMs: null });
const FAILED = Object.freeze({ outcome: 'failed', error: 'status 500', retryAfterMs: null });

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../../src/webhooks/message.js').Message} Message */

/**
 * @param {TestContext} t @param {object[]} webhooks of the app
 * @param {{app?: object, env?: Record<string, string>}} [options]
 */
function load(t, webhooks, { app = {}, env = {} } = {}) {
  const path = join(temporaryFolder(t), 'apps.json');
  const given = webhooks.map((one) => ({ url: URL, events: EVENTS, ...one }));
  const one = { id: '7', key: KEY, secret: SECRET, webhooks: given, ...app };
  writeFileSync(path, JSON.stringify([one, { id: '8', key: 'other', secret: SECRET }]));
  return loadConfig({ FANFARE_PUSHER_APPS: path, ...env });
}

/** @param {Parameters<typeof load>} args */
function settingsOf(...args) {
  const { config, faults } = load(...args);
  assert.deepEqual(faults, []);
  assert.ok(config?.webhooks);
  return config.webhooks;
}

/** As Pusher's library reads it. @param {Message} message */
function read({ body, headers = {} }) {
  const pusher = new Pusher({ appId: '7', key: KEY, secret: SECRET, host: 'localhost' });
  const webhook = pusher.webhook({
    headers: { ...headers, 'content-type': 'application/json' },
    rawBody: body,
  });
  assert.ok(webhook.isValid(), body);
  return { events: webhook.getEvents(), atMs: webhook.getTime().getTime() };
}

/** An event's name, channel and user. @param {any} event */
function textOf({ name, channel, user_id = '', event = '' }) {
  return `${name} ${channel} ${user_id}${event}`.trim();
}

/**
 * A courier with one app's endpoint, and a clock that the test turns.
 * @param {TestContext} t
 * @param {object} [options]
 * @param {object} [options.webhook]
 * @param {(texts: string[], attempt: number) => import('../../src/webhooks/request.js').Result} [options.answer]
 */
function courier(t, { webhook = {}, answer = () => DELIVERED } = {}) {
  t.mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: 1_700_000_000_000 });
  const queue = new MemoryQueue();
  const { endpoints } = settingsOf(t, [webhook]);
  /** @type {{texts: string[], atMs: number}[]} */
  const requests = [];
  const delivery = new WebhookDelivery({
    queue: queue.connect(),
    endpoints,
    requester: {
      post: async (_endpoint, message) => {
        const texts = read(message).events.map(textOf);
        requests.push({ texts, atMs: Date.now() - 1_700_000_000_000 });
        return answer(texts, requests.length);
      },
    },
    now: () => Date.now(),
    random: () => 0.5,
    log: pino({ level: 'silent' }),
  });
  delivery.start();
  const settle = async () => {
    for (let i = 0; i < 100; i++) await Promise.resolve();
  };
  const advance = async (/** @type {number} */ ms) => {
    await settle();
    for (let passed = 0; passed < ms; passed += 50) {
      t.mock.timers.tick(50);
      await settle();
    }
  };
  const seen = () => requests.flatMap(({ texts }) => texts);
  return {
    queue,
    requests,
    advance,
    seen,
    delivery,
    endpoint: [...delivery.endpoints.values()][0],
  };
}

const ROOM = '~7:presence-a';
/** @typedef {import('../../src/config/webhooks.js').EventType} EventType */
/** @param {EventType} type @param {object} [more] */
const event = (type, more = {}) => ({ type, room: ROOM, ...more });
/** @param {string} user */
const joined = (user) => event('member.joined', { user });
/** @param {string} user */
const left = (user) => event('member.left', { user });
const occupied = event('room.occupied');
const vacated = event('room.vacated');

test('each event has the fields of its kind, and both signatures are right', (t) => {
  const [endpoint] = settingsOf(t, [{ headers: { 'X-Team': 'a' } }]).endpoints;
  const form = formOf(endpoint);
  const at = Date.now();
  const common = { room: ROOM, seq: 1, epoch: '1', at };
  const message = form.messageOf([
    { ...common, type: 'room.occupied' },
    { ...common, type: 'room.vacated', room: '~7:a/eb/cc/sd' },
    { ...common, type: 'member.joined', user: '2', info: { name: 'Ann' }, count: 1 },
    { ...common, type: 'member.left', user: '2', count: 0 },
    {
      ...common,
      type: 'client.event',
      event: 'client-x',
      data: '{"a":1}',
      socket_id: '1.2',
      user_id: '2',
    },
    { ...common, type: 'client.event', event: 'client-y', data: 'text', socket_id: '1.2' },
    { ...common, type: 'cache.missed', room: '~7:cache-a' },
    { ...common, type: 'room.counted', room: '~7:a', count: 3 },
  ]);
  const channel = 'presence-a';
  assert.deepEqual(read(message), {
    atMs: at,
    events: [
      { name: 'channel_occupied', channel },
      { name: 'channel_vacated', channel: 'a=b,c;d' },
      { name: 'member_added', channel, user_id: '2' },
      { name: 'member_removed', channel, user_id: '2' },
      {
        name: 'client_event',
        channel,
        event: 'client-x',
        data: '{"a":1}',
        socket_id: '1.2',
        user_id: '2',
      },
      { name: 'client_event', channel, event: 'client-y', data: 'text', socket_id: '1.2' },
      { name: 'cache_miss', channel: 'cache-a' },
      { name: 'subscription_count', channel: 'a', subscription_count: 3 },
    ],
  });
  assert.deepEqual(Object.keys(message.headers ?? {}), [
    'x-team',
    'x-pusher-key',
    'x-pusher-signature',
  ]);
  const { secrets } = endpoint;
  const standard = signedHeaders(secrets, message.id, message.body, Math.floor(at / 1000));
  new Webhook(Buffer.from(SECRET).toString('base64')).verify(message.body, standard);
});

test('the signature is that of the published vector, by the first secret', (t) => {
  const [endpoint] = settingsOf(t, [{}], {
    app: { secret: undefined, secrets: [SECRET, 'a-second-secret-that-verifies'] },
  }).endpoints;
  const common = { seq: 1, epoch: '1', at: 1_327_078_148_132 };
  const { body, headers } = formOf(endpoint).messageOf([
    { ...common, type: 'room.occupied', room: '~7:test_channel' },
  ]);
  assert.equal(
    body,
    '{"time_ms":1327078148132,"events":[{"name":"channel_occupied","channel":"test_channel"}]}',
  );
  assert.equal(
    headers?.['x-pusher-signature'],
    '709fdb84c03664445f7698120b0edf0acc1ab1c8c6e93a0368c61841d6b998aa',
  );
  assert.equal(headers?.['x-pusher-key'], KEY);
});

test('an endpoint wants the channels of its app that its filters allow', (t) => {
  const wants = (
    /** @type {object} */ webhook,
    /** @type {object} */ app,
    /** @type {string} */ room,
  ) => {
    const [endpoint] = settingsOf(t, [webhook], { app }).endpoints;
    return formOf(endpoint).wants({ type: 'room.occupied', room, seq: 1, epoch: '1', at: 1 });
  };
  assert.ok(wants({}, {}, '~7:a'));
  for (const room of ['~8:a', '~77:a', 'a', '~7:u:a', '~7:a b'])
    assert.equal(wants({}, {}, room), false, room);
  assert.ok(wants({ startsWith: 'a=', endsWith: '=b' }, {}, '~7:a/ex/eb'));
  assert.ok(wants({ startsWith: 'a-b', endsWith: '-b' }, {}, '~7:a-b'), 'both may overlap');
  assert.equal(wants({ endsWith: 'e' }, {}, '~7:a/e'), false, 'an escape is not part of a name');
  assert.equal(wants({ startsWith: 'b' }, {}, '~7:a'), false);
  assert.equal(wants({ events: ['channel_vacated'] }, {}, '~7:a'), false);
  const shared = { shared: true };
  assert.ok(wants({}, shared, 'a'));
  assert.equal(wants({}, shared, 'a/b'), false, 'no channel has this name');
  for (const room of ['~7:a', '~7:u:a']) assert.equal(wants({}, shared, room), false, room);
});

test('what an endpoint wants is recorded, and nothing of other apps and of native rooms', (t) => {
  const { covers } = bound(settingsOf(t, [{ startsWith: 'private-' }]));
  assert.ok(covers('room.occupied', '~7:private-a'));
  assert.ok(covers('client.event', '~7:private-a'));
  for (const room of ['private-a', '~8:private-a', '~7:a', '~7:u:private-a', '~7:u:a'])
    for (const type of /** @type {const} */ (['room.occupied', 'member.left', 'client.event']))
      assert.equal(covers(type, room), false, `${type} ${room}`);
  assert.ok(covers('cache.missed', '~7:private-cache-a'));
  assert.equal(covers('cache.missed', '~7:private-a'), false, 'it has no cache');
  assert.equal(covers('cache.missed', '~7:cache-a'), false, 'another prefix');
  assert.equal(covers('user.connected'), false);
  const all = bound(settingsOf(t, [{ startsWith: 'private-cache-x' }, { endsWith: 'z' }])).covers;
  assert.ok(all('cache.missed', '~7:presence-cache-a') && all('room.vacated', '~7:a'));
  assert.equal(all('room.vacated', '~7:u:a'), false, 'the room of a user');
});

test('the rooms of an app are known from the backend, those of its users aside', (t) => {
  const settings = settingsOf(t, [{}]);
  const knows = (/** @type {string} */ prefix, /** @type {string|null} */ except = null) =>
    settings.coversPrefix('room.occupied', prefix, except);
  assert.equal(knows('~7:'), false, 'those of users are not recorded');
  assert.equal(knows('~7:', '~7:u:'), true);
  assert.equal(knows('~7:presence-'), true);
  assert.equal(knows('~7:u:', '~8:u:'), false);
  assert.equal(knows('~8:', '~8:u:'), false);
});

/** @param {ReturnType<typeof settingsOf>} settings */
function bound(settings) {
  return { covers: settings.covers.bind(settings) };
}

test('channels without members are counted if their app wants it, without any endpoint', (t) => {
  const settings = settingsOf(t, [], { app: { webhooks: undefined, subscriptionCount: true } });
  assert.equal(settings.hasEndpoints, false);
  assert.ok(settings.counts('~7:a') && settings.counts('~7:private-a'));
  for (const room of ['~7:presence-a', '~7:u:a', '~8:a', 'a'])
    assert.equal(settings.counts(room), false, room);
  assert.equal(settings.covers('room.counted', '~7:a'), false);
  const shared = load(t, [], { app: { subscriptionCount: true, shared: true } });
  assert.equal(shared.config?.webhooks, null, 'native members would not understand it');
  assert.equal(load(t, []).config?.webhooks, null);
});

test('a native endpoint for all rooms hears nothing of the rooms of apps', (t) => {
  const path = join(temporaryFolder(t), 'webhooks.json');
  const secret = `whsec_${Buffer.alloc(24).toString('base64')}`;
  writeFileSync(path, JSON.stringify([{ url: URL, secret, rooms: ['*'] }]));
  const settings = settingsOf(t, [{ events: ['cache_miss'] }], { env: { FANFARE_WEBHOOKS: path } });
  assert.deepEqual(
    settings.endpoints.map(({ name }) => name),
    ['app.example', 'pusher:7:app.example'],
  );
  assert.ok(settings.covers('room.occupied', 'a'));
  assert.equal(settings.covers('room.occupied', '~7:a'), false);
  assert.ok(settings.coversPrefix('room.occupied', 'a'));
  assert.equal(
    settings.coversPrefix('room.occupied', '~7:', '~7:u:'),
    false,
    'not from the backend',
  );
  const form = formOf(settings.endpoints[0]);
  const rest = { type: /** @type {const} */ ('room.occupied'), seq: 1, epoch: '1', at: 1 };
  assert.ok(form.wants({ ...rest, room: 'a' }));
  assert.equal(form.wants({ ...rest, room: '~7:a' }), false);
});

test('endpoints of apps have names of their own; headers and ports of Fanfare are refused', (t) => {
  const names = settingsOf(t, [{}, { startsWith: 'a' }]).endpoints.map(({ name }) => name);
  assert.deepEqual(names, ['pusher:7:app.example', 'pusher:7:app.example:2']);
  for (const name of ['X-Pusher-Key', 'content-TYPE', 'Webhook-Id', 'Host', 'Transfer-Encoding'])
    assert.match(
      load(t, [{ headers: { [name]: 'x' } }]).faults.join(),
      /: apps\[0\]\.webhooks\[0\]\.headers: has a header field that is Fanfare's own$/,
    );
  const { faults } = load(t, [{ url: 'http://a.example:9090/' }]);
  assert.match(faults.join(), /apps\[0\]\.webhooks\[0\]\.url: its port is that of METRICS_PORT$/);
});

test('who comes is sent at once, who goes after 3 s; neither waits for the other', async (t) => {
  const { queue, requests, advance, seen } = courier(t);
  for (const one of [occupied, joined('1'), joined('2')]) queue.record(one);
  await advance(1100);
  assert.deepEqual(seen(), [
    'channel_occupied presence-a',
    'member_added presence-a 1',
    'member_added presence-a 2',
  ]);
  queue.record(left('1'));
  await advance(1500);
  queue.record(joined('3'));
  await advance(1100);
  assert.deepEqual(seen().slice(3), ['member_added presence-a 3'], 'it overtakes who left before');
  await advance(1500);
  assert.deepEqual(seen().slice(4), ['member_removed presence-a 1']);
  for (const one of [left('2'), left('3'), vacated]) queue.record(one);
  await advance(2900);
  assert.equal(requests.length, 5);
  await advance(1200);
  assert.deepEqual(seen().slice(5), [
    'member_removed presence-a 2',
    'member_removed presence-a 3',
    'channel_vacated presence-a',
  ]);
});

test('who goes does not wait for an event that is tried again', async (t) => {
  const { queue, advance, seen } = courier(t, {
    answer: ([text]) => (text.endsWith(' 9') ? FAILED : DELIVERED),
  });
  queue.record(left('1'));
  await advance(2500);
  queue.record(joined('9'));
  await advance(1500);
  assert.ok(seen().includes('member_removed presence-a 1'), seen().join());
});

test('a channel is occupied before its members join, and vacated after they left', async (t) => {
  const { queue, advance, seen } = courier(t);
  for (const one of [joined('1'), joined('2'), joined('3'), occupied]) queue.record(one);
  await advance(1100);
  assert.deepEqual(seen(), [
    'channel_occupied presence-a',
    'member_added presence-a 1',
    'member_added presence-a 2',
    'member_added presence-a 3',
  ]);
  for (const one of [left('1'), vacated, left('2'), left('3')]) queue.record(one);
  await advance(5000);
  assert.deepEqual(seen().slice(4), [
    'member_removed presence-a 1',
    'member_removed presence-a 2',
    'member_removed presence-a 3',
    'channel_vacated presence-a',
  ]);
});

test('a vacated channel that is occupied again within 3 s sends neither', async (t) => {
  const { queue, advance, seen, endpoint } = courier(t);
  queue.record(occupied);
  await advance(1100);
  queue.record(vacated);
  await advance(1000);
  queue.record(occupied);
  await advance(8000);
  assert.deepEqual(seen(), ['channel_occupied presence-a']);
  assert.equal(endpoint.cancelled, 1);
});

test('an event is tried again for less than five minutes, with pauses up to a minute', async (t) => {
  const { queue, requests, advance, endpoint } = courier(t, { answer: () => FAILED });
  queue.record(occupied);
  await advance(400_000);
  const pauses = requests.slice(1).map(({ atMs }, i) => atMs - requests[i].atMs);
  assert.deepEqual(
    pauses.map((ms) => Math.round(ms / 1000)),
    [1, 2, 4, 8, 16, 32, 60, 60, 60],
  );
  assert.ok(/** @type {{atMs: number}} */ (requests.at(-1)).atMs <= 290_000);
  assert.equal(endpoint.dropped.expired, 1);
  assert.equal(endpoint.waiting.size, 0, 'no gap is announced in this form');
});

test('who left is held back by drains for half of the time that remains', async (t) => {
  const { queue, advance, seen, delivery, endpoint } = courier(t);
  delivery.periods.pauseLeaves(1_200_000);
  queue.record(left('1'));
  await advance(140_000);
  assert.deepEqual(seen(), []);
  await advance(8000);
  assert.deepEqual(seen(), ['member_removed presence-a 1']);
  assert.equal(endpoint.dropped.expired, 0);
});

test('with batchMs, a request carries the events that came meanwhile, up to 100', async (t) => {
  const { queue, requests, advance, seen, endpoint } = courier(t, { webhook: { batchMs: 500 } });
  const clientEvent = (/** @type {number} */ n) =>
    event('client.event', { event: `client-${n}`, data: '{}', socket_id: '1.2' });
  queue.record(occupied);
  queue.record(joined('1'));
  queue.record({ ...occupied, room: '~7:other' });
  for (let n = 0; n < 150; n++) queue.record(clientEvent(n));
  await advance(200);
  assert.equal(requests.length, 0);
  await advance(1500);
  assert.deepEqual(
    requests.map(({ texts }) => texts.length),
    [100, 53],
  );
  const ofRoom = seen().filter((text) => text.includes('client_event'));
  assert.deepEqual(
    ofRoom.map((text) => text.slice('client_event presence-a client-'.length)),
    Array.from({ length: 150 }, (_, n) => String(n)),
  );
  const states = seen().filter((text) => !text.includes('client_event') && text.includes('-a'));
  assert.deepEqual(states, ['channel_occupied presence-a', 'member_added presence-a 1']);
  assert.equal(endpoint.health.attempts.delivered, 2);
  queue.record(clientEvent(150));
  await advance(2000);
  assert.equal(requests.length, 3);
});

test('a batch that fails comes again, each event in its turn', async (t) => {
  const { queue, advance, seen, endpoint } = courier(t, {
    webhook: { batchMs: 100 },
    answer: (_texts, attempt) => (attempt === 1 ? FAILED : DELIVERED),
  });
  for (const user of ['1', '2', '3']) queue.record(joined(user));
  await advance(5000);
  assert.deepEqual(seen().slice(3), seen().slice(0, 3));
  assert.deepEqual([endpoint.health.attempts.failed, endpoint.health.failures], [1, 0]);
  assert.equal(endpoint.waiting.size, 0);
});

for (const [name, refusal] of /** @type {const} */ ([
  ['refuses', FAILED],
  ['crashes at', { ...FAILED, outcome: 'unavailable', isSuspect: true }],
]))
  test(`an event that the receiver ${name} does not take the others of its batch with it`, async (t) => {
    const { queue, requests, advance, endpoint } = courier(t, {
      webhook: { batchMs: 100 },
      answer: (texts) => (texts.some((text) => text.endsWith(' poison')) ? refusal : DELIVERED),
    });
    const users = Array.from({ length: 20 }, (_, n) => `u${n}`);
    for (const user of [...users.slice(0, 10), 'poison', ...users.slice(10)])
      queue.record(joined(user));
    await advance(60_000);
    assert.equal(endpoint.health.attempts.delivered, 20);
    assert.equal(endpoint.waiting.size, 1);
    assert.ok(requests.length < 20 + 12, `${requests.length}`);
    // Others that come later are collected again.
    for (const user of ['late-1', 'late-2']) queue.record(joined(user));
    await advance(5000);
    assert.deepEqual(
      requests.map(({ texts }) => texts.length).filter((length) => length === 2),
      [2],
    );
    await advance(330_000);
    assert.equal(endpoint.dropped.expired, 1);
  });

test('events that do not fit into one body go in several, and each of them once', async (t) => {
  const { queue, requests, advance, seen } = courier(t, { webhook: { batchMs: 100 } });
  const data = 'x'.repeat(16_000);
  for (let n = 0; n < 10; n++)
    queue.record(event('client.event', { event: `client-${n}`, data, socket_id: '1.2' }));
  await advance(5000);
  assert.equal(requests.length, 3);
  assert.equal(new Set(seen()).size, 10);
  assert.equal(seen().length, 10);
});

test('of counts that wait, the latest is sent', async (t) => {
  let isDown = true;
  const { queue, requests, advance } = courier(t, {
    answer: () => (isDown ? { ...FAILED, outcome: 'unavailable' } : DELIVERED),
  });
  for (let count = 1; count <= 20; count++) {
    queue.record(event('room.counted', { room: '~7:a', count }));
    await advance(200);
  }
  isDown = false;
  const before = requests.length;
  await advance(20_000);
  assert.equal(requests.length, before + 1);
});

test('the apps of the page on webhooks are valid', (t) => {
  const block = blocksOf('docs/webhooks.md').find(({ heading }) => heading === "In Pusher's form");
  const path = join(temporaryFolder(t), 'apps.json');
  writeFileSync(path, block?.code ?? '');
  const { config, faults } = loadConfig({ FANFARE_PUSHER_APPS: path });
  assert.deepEqual(faults, []);
  assert.equal(config?.webhooks?.endpoints[0].name, 'pusher:123:localhost:8080');
});
