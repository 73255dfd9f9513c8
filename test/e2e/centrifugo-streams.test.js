// centrifugo-streams.test.js: clients of the Centrifugo door without a WebSocket, on real servers:
// HTTP streaming, server-sent events, and the requests with their commands.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:https';
import { test } from 'node:test';
import protobuf from 'protobufjs';
import { FRAMINGS } from '../../src/doors/centrifugo/codec/framing.js';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, scrape, startServer, until } from '../harness/server.js';
import { connectRaw } from '../helpers/centrifugo.js';
import { answerOf, ask, StreamClient } from '../helpers/centrifugo-stream.js';
import { makeServerCertificate } from '../helpers/certificates.js';
import { shared } from '../helpers/shared.js';

const limit = { timeout: 60_000 };
const ALL = 'subscribe:*,publish:*,presence:*,history:*';
const OPEN = { ...NO_LIMITS, FANFARE_CENTRIFUGO: 'on', FANFARE_CENTRIFUGO_ALLOW: ALL };
const JSON_TYPE = { 'Content-Type': 'application/json' };
const BINARY_TYPE = { 'Content-Type': 'application/octet-stream' };

/** @param {import('node:test').TestContext} t @param {Record<string, string>} [env] */
const start = (t, env = {}) => startServer(t, { ...OPEN, ...env });
/** Each test that uses it has channels of its own. */
const started = shared((owner) =>
  startServer(owner, {
    ...OPEN,
    WORKERS: '2',
    FANFARE_HISTORY: 'h.*=1000/60s',
    ALLOWED_ORIGINS: 'https://a.test',
  }),
);

const strict = shared((owner) =>
  startServer(owner, {
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_CENTRIFUGO_ALLOW: ALL,
    FANFARE_MAX_CONNECTIONS_PER_IP: '2',
    FANFARE_MESSAGES_RATE: '60/min burst 5',
    FANFARE_PING_INTERVAL_MS: '2000',
    FANFARE_PONG_TIMEOUT_MS: '1500',
    // One of two clients is closed after half of it: later than a ping and the wait for its pong.
    FANFARE_RECONNECT_WINDOW_MS: '9000',
    WORKERS: '1',
  }),
);

/** Requests of the emulation, by result. @param {number} metricsPort */
async function emulated(metricsPort) {
  const { values } = await scrape(metricsPort);
  const of = (/** @type {string} */ result) =>
    values.get(`fanfare_emulation_requests_total{result="${result}"}`) ?? 0;
  return { delivered: of('delivered'), malformed: of('malformed'), unknown: of('unknown') };
}

for (const transport of /** @type {const} */ (['http_stream', 'sse']))
  test(`${transport}: commands reach the stream from every worker`, limit, async (t) => {
    const { port, metricsPort } = await started();
    const before = await emulated(metricsPort);
    const channel = `news:${transport}`;
    const client = await StreamClient.open(t, port, transport);
    const { headers } = client.response;
    assert.equal(
      headers['content-type'],
      transport === 'sse' ? 'text/event-stream' : 'application/json',
    );
    assert.match(String(headers['cache-control']), /^private, no-cache, no-store/);
    assert.equal(headers['x-accel-buffering'], 'no');
    if (transport === 'sse') assert.ok(String(client.bytes).startsWith('\ndata: {"id":1,'));
    const { welcome } = client;
    assert.match(welcome.session, /^[\w-]{22}$/);
    assert.match(welcome.node, /^[\w-]{16}$/);
    assert.deepEqual((await client.call('subscribe', { channel })).subscribe, {});
    const other = await connectRaw(t, port);
    await other.call('subscribe', { channel });
    // Each in a connection of its own, which any worker accepts.
    for (let i = 0; i < 12; i++)
      assert.deepEqual((await client.call('publish', { channel, data: i })).publish, {});
    await client.until(() => client.publications(channel).length === 12);
    await until(() => other.publications(channel).length === 12);
    assert.deepEqual(
      other.publications(channel).map(({ data }) => data),
      Array.from({ length: 12 }, (_, i) => i),
    );
    await client.call('unsubscribe', { channel });
    await other.call('publish', { channel, data: 'later' });
    await until(() => other.publications(channel).length === 13);
    assert.equal(client.publications(channel).length, 12);
    // Answers to pings count, too.
    assert.ok((await emulated(metricsPort)).delivered - before.delivered >= 14);
  });

test('commands reach a stream on another server', limit, async (t) => {
  const env = { REDIS_URL: (await startRedis(t)).url, WORKERS: '1' };
  const [one, two] = [await start(t, env), await start(t, env)];
  const client = await StreamClient.open(t, one.port);
  assert.deepEqual((await client.call('subscribe', { channel: 'news' }, two.port)).subscribe, {});
  await client.call('publish', { channel: 'news', data: { far: true } }, two.port);
  await client.until(() => client.publications('news').length === 1);
  const second = await StreamClient.open(t, two.port);
  assert.notEqual(second.welcome.node, client.welcome.node);
  // The right session on the wrong worker.
  const { status } = await client.send('{"id":9,"ping":{}}', { node: second.welcome.node });
  assert.equal(status, 404);
});

test('a stream in protobuf, and commands in protobuf', limit, async (t) => {
  const { port } = await started();
  const { root } = protobuf.parse(
    `syntax = "proto3";
    message Command { uint32 id = 1; Connect connect = 4; Subscribe subscribe = 5; Publish publish = 7; }
    message Connect {} message Subscribe { string channel = 1; }
    message Publish { string channel = 1; bytes data = 2; }
    message Reply { uint32 id = 1; Push push = 4; ConnectResult connect = 5; Empty subscribe = 6; }
    message Push { string channel = 2; Publication pub = 4; }
    message Publication { bytes data = 4; }
    message ConnectResult { string client = 1; string session = 9; string node = 10; }
    message Empty {}
    message EmulationRequest { string node = 1; string session = 2; bytes data = 3; }`,
  );
  const Reply = root.lookupType('Reply');
  const command = (/** @type {object} */ values) =>
    Buffer.from(root.lookupType('Command').encodeDelimited(values).finish());
  const options = { method: 'POST', headers: BINARY_TYPE };
  const response = await ask(
    port,
    '/connection/http_stream',
    options,
    command({ id: 1, connect: {} }),
  );
  t.after(() => response.destroy());
  assert.equal(response.headers['content-type'], 'application/octet-stream');
  /** @type {any[]} */
  const replies = [];
  let bytes = Buffer.alloc(0);
  response.on('data', (part) => {
    bytes = Buffer.concat([bytes, part]);
    for (let end; bytes.length > 0; bytes = bytes.subarray(end)) {
      end = FRAMINGS.delimited.endOf(bytes, 0);
      replies.push(Reply.toObject(Reply.decodeDelimited(bytes.subarray(0, end))));
    }
  });
  await until(() => replies.length === 1);
  const { session, node } = replies[0].connect;
  const data = Buffer.concat([
    command({ id: 2, subscribe: { channel: 'binary' } }),
    command({ id: 3, publish: { channel: 'binary', data: Buffer.from('{"a":1}') } }),
  ]);
  const body = root.lookupType('EmulationRequest').encode({ session, node, data }).finish();
  assert.equal((await answerOf(port, '/emulation', options, Buffer.from(body))).status, 204);
  await until(() => replies.some(({ push }) => push?.pub));
  const { push } = replies.find((reply) => reply.push?.pub);
  assert.deepEqual([push.channel, String(push.pub.data)], ['binary', '{"a":1}']);
  const malformed = await answerOf(port, '/emulation', options, Buffer.from([0x0a, 99]));
  assert.equal(malformed.status, 400);
});

test(
  'guessed, dead and malformed sessions get their status, and change nothing',
  limit,
  async (t) => {
    const { port, metricsPort } = await started();
    const before = await emulated(metricsPort);
    const client = await StreamClient.open(t, port);
    const ping = '{"id":2,"ping":{}}';
    const kept = { method: 'POST', headers: { ...JSON_TYPE, Connection: 'keep-alive' } };
    const { session, node } = client.welcome;
    for (const [guess, status, connection] of [
      [session, 204, 'keep-alive'],
      ['A'.repeat(22), 404, 'close'],
    ]) {
      const body = JSON.stringify({ session: guess, node, data: ping });
      const answer = await answerOf(port, '/emulation', kept, body);
      assert.deepEqual([answer.status, answer.headers.connection], [status, connection]);
    }
    assert.equal((await client.send(ping, { node: 'A'.repeat(16) })).status, 404);
    for (const node of ['', '*', '../news', 'a'.repeat(3000)])
      assert.equal((await client.send(ping, { node })).status, 404, node);
    const gone = await StreamClient.open(t, port);
    gone.response.destroy();
    await until(async () => (await gone.send(ping)).status === 404);
    const post = { method: 'POST', headers: JSON_TYPE };
    for (const body of ['', '{', 'null', '[]', '{"session":1}', JSON.stringify({ session, node })])
      assert.equal((await answerOf(port, '/emulation', post, body)).status, 400, body);
    const large = JSON.stringify({ session, node, data: 'x'.repeat(65_536) });
    assert.equal((await answerOf(port, '/emulation', post, large)).status, 413);
    const chunked = { method: 'POST', headers: { ...JSON_TYPE, 'Transfer-Encoding': 'chunked' } };
    assert.equal((await answerOf(port, '/emulation', chunked, large)).status, 413);
    const get = await answerOf(port, '/emulation', { method: 'GET' });
    assert.deepEqual([get.status, get.headers.allow], [405, 'POST, OPTIONS']);
    assert.deepEqual(
      client.replies.filter(({ id }) => id > 0).map(({ id }) => id),
      [1, 2],
    );
    client.lastId = 2;
    assert.deepEqual((await client.call('subscribe', { channel: 'a' })).subscribe, {});
    const { malformed, unknown } = await emulated(metricsPort);
    assert.equal(malformed - before.malformed, 9);
    assert.ok(unknown - before.unknown >= 7);
  },
);

test('pages of allowed origins only may read streams and send commands', limit, async () => {
  const { port } = await started();
  const from = (/** @type {string} */ Origin) => ({ headers: { ...JSON_TYPE, Origin } });
  for (const path of ['/connection/http_stream', '/connection/sse', '/emulation']) {
    const allowed = await answerOf(port, path, { method: 'OPTIONS', ...from('https://a.test') });
    assert.equal(allowed.status, 204);
    assert.equal(allowed.headers['access-control-allow-origin'], 'https://a.test');
    assert.equal(allowed.headers['access-control-allow-credentials'], 'true');
    assert.match(String(allowed.headers['access-control-allow-headers']), /Content-Type/);
    const other = await answerOf(port, path, { method: 'OPTIONS', ...from('https://b.test') });
    assert.equal(other.headers['access-control-allow-origin'], undefined);
  }
  const body = '{"id":1,"connect":{}}';
  const options = { method: 'POST', ...from('https://b.test') };
  assert.equal((await answerOf(port, '/connection/http_stream', options, body)).status, 403);
});

test(
  'commands that are not UTF-8 end the stream of a JSON client, and are no publication',
  limit,
  async (t) => {
    const { port } = await started();
    const member = await connectRaw(t, port);
    await member.call('subscribe', { channel: 'text-only' });
    const client = await StreamClient.open(t, port);
    const { session, node } = client.welcome;
    const data = Buffer.from('{"id":2,"publish":{"channel":"text-only","data":"\xff"}}', 'latin1');
    // The envelope is the client's choice; its form does not depend on the stream's.
    const field = (/** @type {number} */ number, /** @type {Buffer} */ bytes) => [
      Buffer.from([(number << 3) | 2, bytes.length]),
      bytes,
    ];
    const body = Buffer.concat([
      ...field(1, Buffer.from(node)),
      ...field(2, Buffer.from(session)),
      ...field(3, data),
    ]);
    const options = { method: 'POST', headers: BINARY_TYPE };
    assert.equal((await answerOf(port, '/emulation', options, body)).status, 204);
    assert.equal((await client.disconnected()).code, 3501);
    await member.call('publish', { channel: 'text-only', data: 'last' });
    await until(() => member.publications('text-only').length > 0);
    const [first] = member.publications('text-only');
    assert.equal(first.data, 'last');
  },
);

test('a request for a stream without a connect, or with a wrong one', limit, async () => {
  const { port } = await started();
  const get = (/** @type {string} */ path) => answerOf(port, path, { method: 'GET' });
  assert.equal((await get('/connection/sse')).status, 400);
  assert.equal((await get('/connection/sse?cf_connect=')).status, 400);
  assert.equal((await get('/connection/http_stream')).status, 400);
  const post = (/** @type {string|Buffer} */ body) =>
    answerOf(port, '/connection/http_stream', { method: 'POST', headers: JSON_TYPE }, body);
  assert.equal((await post('x'.repeat(65_537))).status, 413);
  // Its data would reach WebSockets, whose clients end the connection.
  const invalid = Buffer.from(
    '{"id":1,"connect":{}}\n{"id":2,"publish":{"data":"\xff"}}',
    'latin1',
  );
  assert.equal((await post(invalid)).status, 400);
  const end = '{"push":{"disconnect":{"code":3501,"reason":"bad request"}}}\n';
  for (const body of ['{', '{"id":1,"subscribe":{"channel":"a"}}', '{"connect":{}}']) {
    const { status, text } = await post(body);
    assert.deepEqual([status, text], [200, end], body);
  }
  const sse = await get('/connection/sse?cf_connect=%7B');
  assert.equal(sse.text, `\ndata: ${end}\n`);
});

test('limits by address hold for streams, and rates for their commands', limit, async (t) => {
  const { port } = await strict();
  // An address of its own. The commands come from another.
  const open = async () => {
    const options = { method: 'POST', headers: JSON_TYPE, localAddress: '127.0.0.2' };
    const response = await ask(port, '/connection/http_stream', options, '{"id":1,"connect":{}}');
    t.after(() => response.destroy());
    return response;
  };
  const client = new StreamClient(port, await open());
  await client.until(() => client.replies.length > 0);
  client.welcome = client.replies[0].connect;
  assert.equal((await open()).statusCode, 200);
  assert.equal((await open()).statusCode, 429);
  const many = Array.from({ length: 12 }, (_, i) => `{"id":${i + 2},"ping":{}}`).join('\n');
  assert.equal((await client.send(many)).status, 204);
  await client.until(() => client.replies.some(({ error }) => error?.code === 111));
});

test('a stream over TLS, whose request comes in pieces', limit, async (t) => {
  const made = await makeServerCertificate(t);
  const { port } = await start(t, { ...made.env, WORKERS: '1' });
  const where = { host: '127.0.0.1', port, ca: made.ca, agent: false };
  const asked = request({ ...where, method: 'POST', path: '/connection/http_stream' });
  asked.write('{"id":1,');
  setTimeout(() => asked.end('"connect":{}}'), 50);
  const [response] = await once(asked, 'response');
  t.after(() => response.destroy());
  const client = new StreamClient(port, response);
  await client.until(() => client.isEnded || client.replies.length > 0);
  assert.equal(client.replies.length, 1, `${response.statusCode}: ${client.bytes}`);
  const { session, node } = client.replies[0].connect;
  const posted = request({ ...where, method: 'POST', path: '/emulation' });
  posted.end(JSON.stringify({ session, node, data: '{"id":2,"subscribe":{"channel":"a"}}' }));
  const [answer] = await once(posted, 'response');
  assert.equal(answer.statusCode, 204);
  await client.until(() => client.replies.some(({ id, subscribe }) => id === 2 && subscribe));
});

test(
  'a client that answers pings in requests stays, another is disconnected; a drain says so',
  limit,
  async (t) => {
    const { port, kill } = await strict();
    const client = await StreamClient.open(t, port);
    const silent = await StreamClient.open(t, port);
    silent.answersPings = false;
    assert.deepEqual(await silent.disconnected(), { code: 3012, reason: 'no pong' });
    const pings = () => client.replies.filter((reply) => Object.keys(reply).length === 0).length;
    await client.until(() => pings() >= 3);
    assert.equal(client.isEnded, false);
    const clients = [client, await StreamClient.open(t, port, 'sse')];
    // No request with a pong reaches it any more.
    kill('SIGTERM');
    for (const one of clients)
      assert.deepEqual(await one.disconnected(), { code: 3001, reason: 'shutdown' });
  },
);

test('a stream that is read late gets all messages of a room with history', limit, async (t) => {
  const { port } = await started();
  const client = await StreamClient.open(t, port);
  await client.call('subscribe', { channel: 'h.a' });
  client.response.pause();
  const publisher = await connectRaw(t, port);
  const text = 'x'.repeat(60_000);
  for (let n = 1; n <= 200; n++)
    await publisher.call('publish', { channel: 'h.a', data: { n, text } });
  client.response.resume();
  await client.until(() => client.publications('h.a').length === 200);
  assert.deepEqual(
    client.publications('h.a').map(({ data }) => data.n),
    Array.from({ length: 200 }, (_, i) => i + 1),
  );
});
