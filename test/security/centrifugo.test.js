// centrifugo.test.js: a hostile peer at Centrifugo's door and its server API.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NO_LIMITS } from '../harness/server.js';
import {
  connectionToken,
  sharedCentrifugo,
  startCentrifugo,
  WITH_TOKENS,
} from '../helpers/centrifugo.js';
import { centrifugoApiOf, KEY } from '../helpers/centrifugo-api.js';

const OPTIONS = { timeout: 60_000 };
const OPEN = { ...NO_LIMITS, FANFARE_CENTRIFUGO_API_KEY: KEY };
const start = sharedCentrifugo(OPEN);

/** @param {number} port @param {string} method @param {string} body @param {string} [key] */
async function post(port, method, body, key = KEY) {
  const url = `http://127.0.0.1:${port}/centrifugo/api/${method}`;
  const response = await fetch(url, { method: 'POST', headers: { 'X-API-Key': key }, body });
  return { status: response.status, body: /** @type {any} */ (await response.json()) };
}

test('10,000 entries in subs, and names of Object.prototype, do no harm', OPTIONS, async (t) => {
  const { server, open, connect } = await start(t);
  const [worker] = server.workerPids();
  const names = Array.from({ length: 10_000 }, (_, i) => `c${i}`);
  const subs = names.map((name) => `"${name}":{"recover":true,"epoch":"e","offset":1}`).join();
  const many = await open();
  many.send(`{"id":1,"connect":{"subs":{${subs.slice(0, 90_000).replace(/,[^,]*$/, '')}}}}`);
  const answer = await many.next(({ id }) => id === 1).catch(() => null);
  assert.ok(answer?.connect ?? (await many.closeCode()));
  const odd = await open();
  const proto = ['__proto__', 'constructor', 'toString'];
  odd.send(`{"id":1,"connect":{"subs":{${proto.map((name) => `"${name}":{}`)}}}}`);
  assert.ok((await odd.next(({ id }) => id === 1)).connect);
  for (const channel of proto) {
    assert.deepEqual((await odd.call('subscribe', { channel })).subscribe, {}, channel);
    assert.deepEqual((await odd.call('publish', { channel, data: 1 })).publish, {});
    assert.equal((await odd.push('pub')).channel, channel);
  }
  const { channels } = (await centrifugoApiOf(server.port)('channels', {})).result;
  for (const channel of proto)
    assert.deepEqual(Object.getOwnPropertyDescriptor(channels, channel)?.value, { num_clients: 1 });
  assert.ok((await connect()).welcome.client);
  assert.deepEqual(server.workerPids(), [worker], 'the same worker');
});

test('names at their bounds', OPTIONS, async (t) => {
  const { port, connect } = await start(t);
  const client = await connect();
  const api = centrifugoApiOf(port);
  for (const [code, channel] of /** @type {[number|undefined, string][]} */ ([
    [undefined, 'x'.repeat(200)],
    [undefined, 'x'.repeat(255)],
    [107, 'x'.repeat(256)],
    [107, '!'.repeat(255)],
    [102, 'a b'],
    [102, 'ä'],
    [102, 'a\n'],
    [102, 'a*'],
    [102, 'a/b'],
  ])) {
    assert.equal(await client.errorOf('subscribe', { channel }), code, `subscribe ${channel}`);
    const { error } = await api('publish', { channel, data: 1 });
    assert.equal(error?.code, code, `publish ${channel}`);
  }
});

test(
  'requests that are deep, doubled or large are refused, and nothing else happens',
  OPTIONS,
  async (t) => {
    const { server, port } = await start(t);
    const [worker] = server.workerPids();
    const deep = '['.repeat(5000) + ']'.repeat(5000);
    const batch = (/** @type {string} */ command, /** @type {number} */ count) =>
      `{"commands":[${Array(count).fill(command)}]}`;
    for (const [
      status,
      code,
      method,
      body,
    ] of /** @type {[number, number|undefined, string, string][]} */ ([
      [400, 107, 'publish', `{"channel":"a","data":${deep}}`],
      [400, 107, 'publish', deep],
      [400, 107, 'publish', '{"channel":"a","data":1'],
      [400, 107, 'publish', 'null'],
      [400, 107, 'publish', '"x"'],
      [200, 107, 'publish', '{"channel":"a","channel":"b","data":1}'],
      [400, 107, 'publish', '{"__proto__":{"channel":"a"},"data":1}'],
      [200, 107, 'broadcast', `{"channels":[${Array(1001).fill('"a"')}],"data":1}`],
      [200, 107, 'disconnect', `{"user":"a","whitelist":[${Array(1001).fill('"a"')}]}`],
      [200, 107, 'history', '{"channel":"a","limit":1e300}'],
      [200, 107, 'history', '{"channel":"a","since":{"offset":-1}}'],
      [200, 107, 'history', '{"channel":"a","since":{"offset":1,"epoch":7}}'],
      [400, 107, 'batch', batch('{}', 1001)],
      [400, 107, 'batch', '{"commands":[7]}'],
      [400, 107, 'batch', batch(`{"publish":{"channel":"a","data":${deep}}}`, 2)],
      [413, 107, 'publish', `{"channel":"a","data":"${'x'.repeat(1_100_000)}"}`],
    ])) {
      const answer = await post(port, method, body);
      const where = `${method} ${body.slice(0, 60)}`;
      assert.equal(answer.status, status, where);
      assert.equal(answer.body.error?.code ?? answer.body.code, code, where);
    }
    const { replies } = (await post(port, 'batch', batch('{}', 1000))).body;
    assert.equal(replies.length, 1000);
    const api = centrifugoApiOf(port);
    assert.deepEqual(await api('publish', { channel: 'a', data: 1 }), { result: {} });
    assert.deepEqual(server.workerPids(), [worker], 'the same worker');
  },
);

test('a batch costs as much as its commands', OPTIONS, async (t) => {
  const rate = { FANFARE_LIMITS: 'enforce', FANFARE_API_MESSAGES_RATE: '60/min burst 20' };
  const { port } = await startCentrifugo(t, { ...OPEN, ...rate });
  const publish = '{"publish":{"channel":"a","data":1}}';
  const batch = (/** @type {number} */ count) => `{"commands":[${Array(count).fill(publish)}]}`;
  const { body } = await post(port, 'batch', batch(10));
  assert.equal(body.replies.length, 10);
  assert.equal((await post(port, 'batch', batch(19))).status, 429);
  // Each channel of a broadcast counts, also within a batch.
  const broadcast = JSON.stringify({ broadcast: { channels: Array(50).fill('a'), data: 1 } });
  const { replies } = (await post(port, 'batch', `{"commands":[${broadcast}]}`)).body;
  assert.equal(replies[0].error.code, 111);
});

test(
  'requests without a valid key are refused unread, and count as connections',
  OPTIONS,
  async (t) => {
    const rate = { FANFARE_LIMITS: 'enforce', FANFARE_HANDSHAKES_RATE_PER_IP: '60/min burst 30' };
    const { port } = await startCentrifugo(t, { ...OPEN, ...rate });
    const statuses = [];
    for (let i = 0; i < 60; i++)
      statuses.push((await post(port, 'publish', '{"channel":"a","data":1}', `${KEY}${i}`)).status);
    assert.equal(statuses[0], 401);
    assert.ok(statuses.includes(429), statuses.join());
    assert.ok(statuses.every((status) => status === 401 || status === 429));
  },
);

test('forged tokens are refused, each for itself', OPTIONS, async (t) => {
  const { open, connect } = await startCentrifugo(t, { ...NO_LIMITS, ...WITH_TOKENS });
  const token = connectionToken();
  const [head, claims] = token.split('.');
  const none = Buffer.from('{"alg":"none"}').toString('base64url');
  for (const forged of [
    `${head}.${claims}.`,
    `${none}.${claims}.`,
    `${head}.${claims}.${'A'.repeat(43)}`,
    'x',
    'a.b.c',
    'x'.repeat(60_000),
  ]) {
    const client = await open();
    client.command('connect', { token: forged });
    assert.equal(await client.closeCode(), 3500, forged.slice(0, 40));
  }
  assert.ok((await connect({ token })).welcome.client);
});
