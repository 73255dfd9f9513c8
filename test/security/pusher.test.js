// pusher.test.js: a hostile peer at the Pusher door and its HTTP API.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  APP,
  hmac,
  openPusher,
  PusherClient,
  sharedPusher,
  signedQuery,
} from '../helpers/pusher.js';

const OPTIONS = { timeout: 60_000 };
const start = sharedPusher({}, { WORKERS: '1' });
const nested = (
  /** @type {number} */ depth,
  /** @type {string} */ open,
  /** @type {string} */ close,
) => open.repeat(depth) + close.repeat(depth);
/** The lengths at the bounds of names, and whether a name of each is valid. */
const LENGTHS = /** @type {const} */ ([
  [0, false],
  [1, true],
  [164, true],
  [165, true],
  [200, true],
  [201, false],
]);

test(
  'deep or large JSON of an unknown client is refused, and nothing else happens',
  OPTIONS,
  async (t) => {
    const { port, connect, server } = await start(t);
    const [worker] = server.workerPids();
    const deep = [
      nested(40_000, '[', ']'),
      nested(10_000, '{"a":', '').concat('1', '}'.repeat(10_000)),
    ];
    const frames = deep.flatMap((text) => [
      text,
      `{"event":"pusher:subscribe","data":${text}}`,
      `{"event":"pusher:signin","data":{"auth":"x","user_data":${JSON.stringify(text)}}}`,
      JSON.stringify({ event: 'pusher:subscribe', data: text }),
      JSON.stringify({
        event: 'pusher:subscribe',
        data: { channel: 'presence-x', auth: `${APP.key}:${'0'.repeat(64)}`, channel_data: text },
      }),
    ]);
    for (const text of [
      ...frames,
      '{"event":"pusher:subscribe","data":{"channel":"x","__proto__":{"auth":1}}}',
      '{"__proto__":{"event":"pusher:ping"}}',
      '{"event":"__proto__"}',
      '{"event":"pusher:constructor"}',
      '{"event":"pusher:subscribe","data":{"channel":{}}}',
      '{"event":"pusher:subscribe","data":7}',
      '{"event":"pusher:subscribe"}',
      '{"event":"pusher:signin","data":{}}',
      '{"event":"client-e","channel":{},"data":1}',
    ]) {
      const client = openPusher(t, port);
      await client.established();
      client.send(text);
      const answer = await client.next(({ event }) => event !== 'pusher:connection_established');
      assert.match(
        answer.event,
        /error$|subscription_succeeded$/,
        `${text.slice(0, 80)}: ${answer.event}`,
      );
      client.socket.terminate();
    }
    await (await connect()).subscribe('news');
    assert.deepEqual(server.workerPids(), [worker], 'the same worker');
  },
);

describe('names at their bounds', () => {
  test('in subscriptions', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    for (const [length, isValid] of LENGTHS)
      for (const prefix of ['', 'private-', 'presence-cache-']) {
        const channel = prefix.slice(0, length).padEnd(length, 'x');
        if (channel !== '' && prefix !== '' && !channel.startsWith(prefix)) continue;
        if (channel === '' && prefix !== '') continue;
        const member = channel.startsWith('presence-') ? { user_id: '1' } : undefined;
        client.sendSubscribe(channel, member);
        const { event } = await client.next((frame) => /subscription_|error$/.test(frame.event));
        const wanted = isValid ? /succeeded$/ : /error$/;
        assert.match(event, wanted, `${prefix} ${length}`);
      }
  });

  test('in requests', OPTIONS, async (t) => {
    const { api } = await start(t);
    for (const [length, isValid] of LENGTHS) {
      const name = 'x'.repeat(length);
      const status = isValid ? 200 : 400;
      const event = { name: 'e', data: '1', channel: name };
      assert.equal((await api('/events', event)).status, status, `channel ${length}`);
      assert.equal((await api('/batch_events', { batch: [event] })).status, status);
      const named = { name, data: '1', channel: 'news' };
      assert.equal((await api('/events', named)).status, status, `event ${length}`);
      if (length > 0) assert.equal((await api(`/channels/${name}`)).status, status);
    }
    for (const channel of ['a b', '#x', '~1:x', 'ä', 'a:b', 'a/b', '__proto__\n'])
      assert.equal((await api('/events', { name: 'e', data: '1', channel })).status, 400, channel);
    assert.equal((await api('/events', { name: 'pusher:e', data: '1', channel: 'x' })).status, 400);
    assert.equal((await api('/channels/__proto__')).body.occupied, false);
  });
});

test(
  'a burst of a hundred subscriptions passes; wrongly signed ones are all refused',
  OPTIONS,
  async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    for (let i = 0; i < 100; i++) client.sendSubscribe(`private-${i}`);
    await client.collect(({ event }) => event === 'pusher_internal:subscription_succeeded', 100);
    const forger = await connect();
    const auth = `${APP.key}:${'f'.repeat(64)}`;
    for (let i = 0; i < 50; i++)
      forger.send({ event: 'pusher:subscribe', data: { channel: `private-${i}`, auth } });
    const errors = await forger.collect(({ event }) => event === 'pusher:subscription_error', 50);
    assert.ok(errors.every(({ data }) => data.status === 401));
  },
);

describe('the signature of a request', () => {
  test('is needed, in each of its parts', OPTIONS, async (t) => {
    const { port } = await start(t);
    const path = `/apps/${APP.id}/channels`;
    const get = async (/** @type {string} */ query, /** @type {string} */ where = path) =>
      (await fetch(`http://127.0.0.1:${port}${where}?${query}`)).status;
    const query = signedQuery(APP, 'GET', path, '');
    assert.equal(await get(query), 200);
    assert.equal(await get(''), 401);
    for (const name of ['auth_key', 'auth_timestamp', 'auth_version', 'auth_signature']) {
      const parts = new URLSearchParams(query);
      parts.delete(name);
      assert.equal(await get(String(parts)), 401, `without ${name}`);
      parts.set(name, 'x');
      assert.equal(await get(String(parts)), 401, `another ${name}`);
    }
    assert.equal(await get(`${query}&info=user_count`), 401, 'a parameter is added');
    const late = { auth_timestamp: String(Math.floor(Date.now() / 1000) - 700) };
    assert.equal(await get(signedQuery(APP, 'GET', path, '', late)), 401, 'too late');
    assert.equal(await get(query, '/apps/1234/channels/x'), 401, 'another path');
    assert.equal(await get(query, '/apps/99/channels'), 404, 'another app');
    const wrong = signedQuery({ ...APP, secret: `${APP.secret}x` }, 'GET', path, '');
    assert.equal(await get(wrong), 401);
    const response = await fetch(`http://127.0.0.1:${port}${path}?${wrong}`);
    const right = hmac(APP.secret, `GET\n${path}\n`);
    assert.ok(!(await response.text()).includes(right.slice(0, 8)));
  });

  test('covers the body', OPTIONS, async (t) => {
    const { port } = await start(t);
    const path = `/apps/${APP.id}/events`;
    const body = '{"name":"e","channel":"x","data":"1"}';
    const post = async (/** @type {string} */ sent, /** @type {string} */ query) =>
      (await fetch(`http://127.0.0.1:${port}${path}?${query}`, { method: 'POST', body: sent }))
        .status;
    const query = signedQuery(APP, 'POST', path, body);
    assert.equal(await post(body, query), 200);
    assert.equal(await post(body.replace('1', '2'), query), 401);
    assert.equal(await post(body, signedQuery(APP, 'POST', path, '')), 401, 'without body_md5');
  });

  test('that is wrong many times slows nobody else down', OPTIONS, async (t) => {
    const { port, api, connect } = await start(t);
    const client = await connect();
    await client.subscribe('news');
    const path = `/apps/${APP.id}/events`;
    const body = '{"name":"e","channel":"x","data":"1"}';
    const query = signedQuery({ ...APP, secret: 'wrong' }, 'POST', path, body);
    const wrongs = Array.from({ length: 300 }, async () => {
      const response = await fetch(`http://127.0.0.1:${port}${path}?${query}`, {
        method: 'POST',
        body,
      });
      await response.text();
      return response.status;
    });
    const right = await api('/events', { name: 'hello', channel: 'news', data: '1' });
    assert.ok([200, 429, 503].includes(right.status), `${right.status}`);
    const statuses = new Set(await Promise.all(wrongs));
    assert.ok(
      [...statuses].every((status) => [401, 429, 503].includes(status)),
      [...statuses].join(),
    );
    await client.pong();
  });
});

test('a key in another encoding or case is another key', OPTIONS, async (t) => {
  const { port } = await start(t);
  for (const key of ['APP-KEY', 'app-key%00', 'app-key/', 'app%2Dkey%2f..', '']) {
    const client = new PusherClient(`ws://127.0.0.1:${port}/app/${key}?protocol=7`, APP);
    await client.closed();
    assert.ok(!client.texts.join('').includes('connection_established'), key);
  }
});
