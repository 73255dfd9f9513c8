// sse.test.js: the transport for server-sent events, over real sockets, with a broker in memory.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission } from '../../src/admission/admission.js';
import { OWN_DESCRIPTORS } from '../../src/config/system-limits.js';
import { Heartbeat } from '../../src/hub/heartbeat.js';
import { CLOSES } from '../../src/protocol/codes.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { refusal } from '../../src/protocol/refusal.js';
import { HttpServer } from '../../src/transport/http-server.js';
import { EventStreams } from '../../src/transport/sse.js';
import { Relocations } from '../../src/worker/relocation.js';
import { Turn } from '../../src/worker/turn.js';
import { serverConfigOf } from '../helpers/config.js';
import { EventClient, EventReader } from '../helpers/event-stream.js';
import { buildHub } from '../helpers/hub.js';
import { RawClient } from '../helpers/raw-http.js';
import { StreamBroker } from '../helpers/stream-broker.js';

const limit = { timeout: 20_000 };
const EVENT_SOURCE = { Accept: 'text/event-stream' };
const silent = { debug() {}, error() {} };

/**
 * A worker's public port; rooms `chat.*` have history.
 * @param {import('node:test').TestContext} t @param {Record<string, string>} [env]
 */
async function serve(t, env = {}) {
  const config = serverConfigOf(env);
  const broker = new StreamBroker();
  const parts = buildHub({
    config,
    broker,
    historyOf: (room) => (room.startsWith('chat.') ? { size: 100, ttlMs: 60_000 } : null),
  });
  const { hub, commands, counters, outbox, slowConsumers } = parts;
  broker.onPublication = (...publication) => hub.broadcast(...publication);
  const heartbeat = new Heartbeat({
    intervalMs: config.pingIntervalMs,
    timeoutMs: config.pongTimeoutMs,
    counters,
  });
  const health = {
    lag: 0,
    lagMs: () => health.lag,
    heapPercent: () => 0,
    openDescriptors: () => counters.sockets + OWN_DESCRIPTORS,
    descriptorLimit: 20_000,
  };
  const addresses = {
    acquire: async () => ({ admitted: true, connections: 1 }),
    release() {},
  };
  const admission = new Admission({
    config,
    addresses,
    health,
    counters,
    now: () => performance.now(),
  });
  const streams = new EventStreams({ config, hub, commands, heartbeat, counters });
  const server = new HttpServer({
    config,
    admission,
    onUpgrade: (_request, socket) => socket.destroy(),
    streams: config.sse === 'on' ? streams : null,
    readiness: () => null,
    log: silent,
    counters,
    turn: new Turn(),
  });
  const { port } = await server.listen();
  t.after(async () => {
    for (const { transport } of [...hub.connections]) transport.terminate();
    await server.close();
  });
  /** @param {string} room @param {unknown} payload */
  const publish = (room, payload) => {
    const source = Buffer.from(JSON.stringify(payload));
    const publication = encodePublication(KIND.MESSAGE, 1, 0, 'ann', source, 0, source.length);
    if (!room.startsWith('chat.')) return hub.broadcast(room, publication);
    broker.accept(room, publication);
    broker.deliver();
  };
  const open = (/** @type {string} */ query, /** @type {Record<string, string>} */ headers = {}) =>
    EventClient.open(t, port, query, headers);
  const raw = () => RawClient.connect(t, { port });
  return {
    ...{ port, server, streams, hub, broker, counters, outbox, slowConsumers, heartbeat, health },
    ...{ publish, open, raw },
  };
}

/** @param {EventClient} client */
const payloads = (client) => client.all('message').map(({ payload }) => payload);

/** @param {() => boolean} condition */
async function until(condition) {
  const end = performance.now() + 5000;
  while (!condition()) {
    assert.ok(performance.now() < end, `${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

test(
  'a stream begins with its head, a comment and a time to return, and joins its room',
  limit,
  async (t) => {
    const { open, publish, counters } = await serve(t);
    const client = await open('?room=news');
    await client.collect('joined');
    assert.equal(client.status, 200);
    assert.equal(client.headers['content-type'], 'text/event-stream');
    assert.equal(client.headers['cache-control'], 'no-cache, no-transform');
    assert.equal(client.headers['x-accel-buffering'], 'no');
    assert.equal(client.headers['x-content-type-options'], 'nosniff');
    assert.ok(client.text.startsWith(':\n'));
    assert.ok(client.reader.retryMs >= 1000 && client.reader.retryMs <= 5000);
    assert.deepEqual(client.all('joined'), [{ type: 'joined', room: 'news' }]);
    publish('news', { a: 1 });
    const [message] = await client.collect('message');
    assert.deepEqual(message, {
      type: 'message',
      room: 'news',
      payload: { a: 1 },
      from: 'ann',
      timestamp: 1,
    });
    assert.equal(client.events.at(-1)?.id, '');
    assert.equal(counters.eventStreams, 1);
    client.close();
    await until(() => counters.eventStreams === 0 && counters.connections === 0);
  },
);

test('the events of a room are built once and shared by its streams', limit, async (t) => {
  const { open, publish, hub } = await serve(t);
  await Promise.all([1, 2, 3].map(async () => (await open('?room=news')).collect('joined')));
  /** @type {Buffer[]} */
  const written = [];
  for (const { transport } of hub.connections) {
    const write = transport.write.bind(transport);
    transport.write = (bytes) => {
      written.push(bytes);
      write(bytes);
    };
  }
  publish('news', 1);
  await until(() => written.length === 3);
  assert.equal(new Set(written).size, 1);
});

test(
  'Last-Event-ID brings the missed messages and then live ones, without a gap or a repeat',
  limit,
  async (t) => {
    const { open, publish } = await serve(t);
    const first = await open('?room=chat.1&room=news');
    await first.collect('joined', 2);
    publish('chat.1', 1);
    publish('news', 'x');
    await first.collect('message', 2);
    first.close();
    for (const payload of [2, 3]) publish('chat.1', payload);
    const again = await open('?room=chat.1&room=news', {
      'Last-Event-ID': first.reader.lastEventId,
    });
    await again.collect('message', 2);
    publish('chat.1', 4);
    await again.collect('message', 3);
    assert.deepEqual(payloads(again), [2, 3, 4]);
    assert.deepEqual(again.all('resync'), []);
    // The header is newer than the URL that the page has given.
    const third = await open(`?room=chat.1&lastEventId=${first.reader.lastEventId}`, {
      'Last-Event-ID': again.reader.lastEventId,
    });
    await third.collect('joined');
    publish('chat.1', 5);
    await third.collect('message');
    assert.deepEqual(payloads(third), [5]);
    const query = await open(`?room=chat.1&lastEventId=${again.reader.lastEventId}`);
    await query.collect('message');
    assert.deepEqual(payloads(query), [5]);
  },
);

test(
  'the first event of a room with history has an id, so that nothing published later is lost',
  limit,
  async (t) => {
    const { open, publish } = await serve(t);
    const first = await open('?room=chat.1');
    await first.collect('joined');
    assert.match(first.reader.lastEventId, /^[0-9a-f]{16}:0$/);
    first.close();
    publish('chat.1', 1);
    const again = await open('?room=chat.1', { 'Last-Event-ID': first.reader.lastEventId });
    await again.collect('message');
    assert.deepEqual(payloads(again), [1]);
  },
);

test(
  'last brings the latest messages of each room with history, then live ones',
  limit,
  async (t) => {
    const { open, publish } = await serve(t);
    for (const payload of [1, 2, 3]) publish('chat.1', payload);
    publish('chat.2', 'b1');
    const client = await open('?room=chat.1&room=news&room=chat.2&last=2');
    await client.collect('message', 3);
    await client.collect('joined', 3);
    assert.deepEqual(
      Object.fromEntries(client.all('joined').map(({ room, replayed }) => [room, replayed])),
      { 'chat.1': 2, news: 0, 'chat.2': 1 },
    );
    assert.deepEqual(payloads(client).sort(), [2, 3, 'b1']);
    publish('chat.1', 4);
    await client.collect('message', 4);
    assert.equal(payloads(client).at(-1), 4);
    assert.match(client.reader.lastEventId, /:4,[0-9a-f]{16}:1$/);
  },
);

test(
  'only the messages behind a reply move the id, so that a break in between loses none',
  limit,
  async (t) => {
    const { open, publish } = await serve(t);
    for (const payload of [1, 2, 3]) publish('chat.1', payload);
    const client = await open('?room=chat.1&last=2');
    await client.collect('message', 2);
    assert.deepEqual(
      client.events.map(({ type, id }) => [type, id.split(':')[1]]),
      [
        ['joined', undefined],
        ['message', '2'],
        ['message', '3'],
      ],
    );
  },
);

test(
  'a returning stream with last gets what it missed, or resync and the latest',
  limit,
  async (t) => {
    const { open, publish } = await serve(t);
    for (const payload of [1, 2, 3]) publish('chat.1', payload);
    const first = await open('?room=chat.1&last=1');
    await first.collect('message');
    first.close();
    for (const payload of [4, 5]) publish('chat.1', payload);
    const again = await open('?room=chat.1&last=1', {
      'Last-Event-ID': first.reader.lastEventId,
    });
    await again.collect('message', 2);
    assert.deepEqual(payloads(again), [4, 5]);
    assert.equal(again.all('joined')[0].recovered, true);
    const lost = await open('?room=chat.1&last=1', { 'Last-Event-ID': 'ffffffffffffffff:1' });
    await lost.collect('message');
    assert.deepEqual(
      lost.events.map(({ type }) => type),
      ['joined', 'resync', 'message'],
    );
    assert.deepEqual(payloads(lost), [5]);
    const [{ epoch, offset }] = lost.all('resync');
    assert.equal(offset, 4, 'the position before the messages that follow');
    assert.equal(lost.events[1].id, `${epoch}:4`);
  },
);

test('several rooms with history share one id, and each goes on where it was', limit, async (t) => {
  const { open, publish } = await serve(t);
  const query = '?room=chat.1&room=news&room=chat.2';
  const first = await open(query);
  await first.collect('joined', 3);
  publish('chat.2', 'b1');
  await first.collect('message');
  const [one, two] = first.reader.lastEventId.split(',');
  assert.match(one, /^[0-9a-f]{16}:0$/);
  assert.match(two, /^[0-9a-f]{16}:1$/);
  first.close();
  publish('chat.1', 'a1');
  publish('chat.2', 'b2');
  publish('chat.2', 'b3');
  const again = await open(query, { 'Last-Event-ID': first.reader.lastEventId });
  await again.collect('message', 3);
  assert.deepEqual(payloads(again).sort(), ['a1', 'b2', 'b3']);
  assert.match(again.reader.lastEventId, /:1,[0-9a-f]{16}:3$/);
  publish('chat.1', 'a2');
  await again.collect('message', 4);
  assert.match(again.reader.lastEventId, /:2,[0-9a-f]{16}:3$/);
  const quiet = await open(query, { 'Last-Event-ID': again.reader.lastEventId });
  await quiet.collect('joined', 3);
  publish('news', 'end');
  await quiet.collect('message');
  assert.deepEqual(payloads(quiet), ['end']);
});

for (const [name, idOf, lost] of /** @type {[string, (at: string[]) => string, string[]][]} */ ([
  ['of more rooms than the stream has', ([a, b, c]) => `${a},${b},${c}`, ['chat.1', 'chat.2']],
  ['of these rooms in another order', ([a, b]) => `${b},${a}`, ['chat.1', 'chat.2']],
  ['of rooms of which the first has gone', ([, b]) => b, ['chat.1', 'chat.2']],
  ['of the first room', ([a]) => a, ['chat.2']],
  ['of these rooms and plain ones', ([a, b]) => `${a},${b},-,-`, []],
])) {
  test(`an id ${name} is believed for a room only if it has its position`, limit, async (t) => {
    const { open, publish, broker } = await serve(t);
    for (const i of [1, 2, 3]) publish(`chat.${i}`, i);
    const positions = [1, 2, 3].map((i) => `${broker.stream(`chat.${i}`).epoch}:0`);
    const id = idOf(positions);
    const client = await open('?room=chat.1&room=chat.2', { 'Last-Event-ID': id });
    const resyncs = await client.collect('resync', lost.length);
    await client.collect('message', 2 - lost.length);
    await client.collect('joined', 2);
    assert.deepEqual(resyncs.map(({ room }) => room).sort(), lost);
    assert.equal(payloads(client).length, 2 - lost.length);
  });
}

for (const [name, id] of /** @type {const} */ ([
  ['of another stream', 'ffffffffffffffff:1'],
  ['of the future', '0000000000000001:99'],
  ['that is malformed', 'nonsense'],
  ['that is too long', 'x'.repeat(2000)],
])) {
  test(`an id ${name} gets resync, and from then on the new position`, limit, async (t) => {
    const { open, publish, broker } = await serve(t);
    publish('chat.1', 1);
    const client = await open('?room=chat.1', { 'Last-Event-ID': id });
    const [resync] = await client.collect('resync');
    assert.deepEqual(resync, {
      type: 'resync',
      room: 'chat.1',
      epoch: broker.stream('chat.1').epoch,
      offset: 1,
      reloadAfterMs: 0,
    });
    assert.equal(client.reader.lastEventId, `${resync.epoch}:1`);
    assert.deepEqual(payloads(client), []);
  });
}

test(
  'a stream that restarts under its members sends resync to each with the new position',
  limit,
  async (t) => {
    const { open, publish, broker } = await serve(t);
    const one = await open('?room=chat.1');
    const several = await open('?room=chat.2&room=chat.1');
    await Promise.all([one.collect('joined'), several.collect('joined', 2)]);
    publish('chat.1', 1);
    broker.forget('chat.1');
    publish('chat.1', 2);
    await Promise.all([one.collect('resync'), several.collect('resync')]);
    const { epoch } = broker.stream('chat.1');
    assert.equal(one.reader.lastEventId.slice(0, 16), epoch);
    assert.equal(several.reader.lastEventId.split(',')[1].slice(0, 16), epoch);
  },
);

test(
  'a room that somebody else has joined for the client does not change the id',
  limit,
  async (t) => {
    const { open, publish, hub } = await serve(t);
    const client = await open('?room=chat.1');
    await client.collect('joined');
    const [connection] = hub.connections;
    hub.join(connection, 'chat.2', {
      since: null,
      onJoined: () => connection.send('{"type":"joined","room":"chat.2"}'),
      onRefused() {},
    });
    await client.collect('joined', 2);
    publish('chat.2', 'b1');
    publish('chat.1', 'a1');
    await client.collect('message', 2);
    publish('chat.2', 'b2');
    await client.collect('message', 3);
    assert.match(client.reader.lastEventId, /^[0-9a-f]{16}:1$/);
    client.close();
    publish('chat.1', 'a2');
    const again = await open('?room=chat.1', { 'Last-Event-ID': client.reader.lastEventId });
    await again.collect('message');
    assert.deepEqual(payloads(again), ['a2']);
  },
);

test(
  'if the broker is away, a stream ends with an error and a time to return',
  limit,
  async (t) => {
    const { open, broker } = await serve(t);
    broker.isAway = true;
    for (const room of ['news', 'chat.1']) {
      const client = await open(`?room=${room}`);
      await client.ended();
      assert.equal(client.all('error')[0].error, 'UNAVAILABLE');
      assert.equal(client.all('close')[0].code, 1013);
      assert.ok(client.reader.retryMs >= 10_000 && client.reader.retryMs <= 20_000);
    }
  },
);

for (const [target, headers, status] of /** @type {const} */ ([
  ['?room=a%20b', {}, 400],
  ['', {}, 400],
  [`?${Array.from({ length: 9 }, (_, i) => `room=r${i}`).join('&')}`, {}, 400],
  ['?room=a', { Origin: 'https://evil.example' }, 403],
  ['?last=0&room=chat.1', {}, 400],
  ['?last=many&room=chat.1', {}, 400],
  ['?last=10001&room=chat.1', {}, 400],
  ['?lastSeconds=0&room=chat.1', {}, 400],
  ['?lastSeconds=1.5&room=chat.1', {}, 400],
  ['?last=5&lastSeconds=604801&room=chat.1', {}, 400],
])) {
  test(
    `${JSON.stringify(headers)} ${target.slice(0, 20)} is refused for ever: ${status}, or 204 to an EventSource`,
    limit,
    async (t) => {
      const { open, counters } = await serve(t, { ALLOWED_ORIGINS: 'https://app.example' });
      const plain = await open(target, headers);
      assert.equal(plain.status, status);
      await plain.ended();
      assert.ok(JSON.parse(plain.text).error);
      const source = await open(target, { ...headers, ...EVENT_SOURCE });
      assert.equal(source.status, 204);
      assert.equal(source.headers['fanfare-error'], JSON.parse(plain.text).error);
      assert.equal(counters.eventStreams, 0);
    },
  );
}

test(
  'a refusal that waiting can mend is 503 with Retry-After, or a stream that only says when to return',
  limit,
  async (t) => {
    const { open, health, counters } = await serve(t);
    health.lag = 1e6;
    const plain = await open('?room=a');
    assert.equal(plain.status, 503);
    assert.ok(Number(plain.headers['retry-after']) >= 5);
    const source = await open('?room=a', EVENT_SOURCE);
    await source.ended();
    assert.equal(source.status, 200);
    assert.equal(source.headers['content-type'], 'text/event-stream');
    assert.ok(source.reader.retryMs >= 5000 && source.reader.retryMs <= 11_000);
    assert.equal(source.all('error')[0].error, 'loop_lag');
    assert.equal(counters.refused.loop_lag, 2);
  },
);

test(
  'above the rate of its address an EventSource is told when to return, others get 429',
  limit,
  async (t) => {
    const { open, raw } = await serve(t, {
      FANFARE_HANDSHAKES_PER_MINUTE_PER_IP: '1',
      FANFARE_HANDSHAKES_BURST_PER_IP: '1',
    });
    assert.equal((await open('?room=a')).status, 200);
    const plain = await open('?room=a', { Origin: 'https://app.example' });
    assert.equal(plain.status, 429);
    const source = await open('?room=a', { ...EVENT_SOURCE, Origin: 'https://app.example' });
    await source.ended();
    assert.equal(source.status, 200);
    assert.equal(source.headers['access-control-allow-origin'], '*');
    assert.ok(source.reader.retryMs >= 1000);
    assert.equal(source.all('error')[0].error, 'handshakes_per_ip');
    // The rest of a head may come later: a long cookie is a packet of its own.
    const cut = await raw();
    cut.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nCookie: a');
    await cut.closed();
    assert.match(String(cut.bytes), /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nretry: \d+\n/);
    const silentClient = await raw();
    assert.equal((await silentClient.response()).status, 429);
    await silentClient.closed();
  },
);

test('an EventSource whose turn does not come in time is told when to return', limit, async (t) => {
  const { raw, server, streams, counters } = await serve(t, {
    FANFARE_HANDSHAKE_TIMEOUT_MS: '300',
    FANFARE_MAX_HANDSHAKES_MODE: 'enforce',
  });
  streams.faultOf = () => {
    const end = performance.now() + 100;
    while (performance.now() < end);
    return refusal('bad_request', 'slow');
  };
  const clients = await Promise.all(Array.from({ length: 8 }, raw));
  await until(() => server.handshakes === 8);
  for (const client of clients)
    client.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n');
  for (const client of clients) await client.closed();
  const late = clients.map(({ bytes }) => String(bytes)).filter((text) => text.includes('busy'));
  assert.ok(late.length > 0);
  assert.equal(late.length, counters.refused.handshakes);
  for (const text of late)
    assert.match(text, /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nretry: \d{4,5}\nevent: error\n/);
});

test('a draining worker sends an EventSource away with a time to return', limit, async (t) => {
  const { server, raw } = await serve(t);
  const client = await raw();
  client.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
  await client.response();
  const late = await raw();
  late.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n');
  await until(() => server.handshakes === 1);
  server.stopAccepting();
  late.write('\r\n');
  await late.closed();
  assert.match(
    String(late.bytes),
    /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nretry: \d{4,5}\nevent: error\n/,
  );
});

test(
  'a page may read the answers if its origin is allowed, and fetch may ask for its headers',
  limit,
  async (t) => {
    const { open, port } = await serve(t, { ALLOWED_ORIGINS: 'https://app.example' });
    const origin = { Origin: 'https://app.example' };
    const client = await open('?room=a', origin);
    assert.equal(client.headers['access-control-allow-origin'], 'https://app.example');
    assert.equal(client.headers.vary, 'Origin');
    const evil = await open('?room=a', { Origin: 'https://evil.example' });
    assert.equal(evil.headers['access-control-allow-origin'], undefined);
    const preflight = await fetch(`http://127.0.0.1:${port}/sse?room=a`, {
      method: 'OPTIONS',
      headers: { ...origin, 'Access-Control-Request-Headers': 'authorization' },
    });
    assert.equal(preflight.status, 204);
    assert.match(String(preflight.headers.get('access-control-allow-headers')), /Authorization/);
    const anyone = await serve(t);
    assert.equal((await anyone.open('?room=a')).headers['access-control-allow-origin'], '*');
  },
);

for (const method of ['HEAD', 'POST', 'PUT']) {
  test(`${method} is answered 405`, limit, async (t) => {
    const { port } = await serve(t);
    const response = await fetch(`http://127.0.0.1:${port}/sse?room=a`, { method });
    assert.equal(response.status, 405);
    assert.equal(response.headers.get('allow'), 'GET, OPTIONS');
  });
}

test('with FANFARE_SSE=off the path does not exist', limit, async (t) => {
  const { open } = await serve(t, { FANFARE_SSE: 'off' });
  assert.equal((await open('?room=a')).status, 404);
});

for (const [name, text, status] of /** @type {const} */ ([
  ['with a body', 'Host: a\r\nContent-Length: 2\r\n\r\n{}', 400],
  ['with two Hosts', 'Host: a\r\nHost: b\r\n\r\n', 400],
  ['without a Host', '\r\n', 400],
  ['with 101 headers', `Host: a\r\n${'x: y\r\n'.repeat(100)}\r\n`, 431],
])) {
  test(`a request ${name} is answered ${status}`, limit, async (t) => {
    const { raw } = await serve(t);
    const client = await raw();
    client.write(`GET /sse?room=a HTTP/1.1\r\n${text}`);
    assert.equal((await client.response()).status, status);
    await client.closed();
  });
}

test('HTTP/1.0 and an offer of h2c get a stream', limit, async (t) => {
  const { raw, publish, hub } = await serve(t);
  const clients = [];
  for (const text of [
    'GET /sse?room=a HTTP/1.0\r\n\r\n',
    'GET /sse?room=a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n',
  ]) {
    const client = await raw();
    client.write(text);
    clients.push(client);
  }
  await until(() => (hub.rooms.get('a')?.members.length ?? 0) === 2);
  publish('a', 'hello');
  for (const client of clients) {
    await until(() => String(client.bytes).includes('"payload":"hello"'));
    assert.match(String(client.bytes), /^HTTP\/1\.1 200 OK\r\n/);
    assert.doesNotMatch(String(client.bytes), /transfer-encoding/i);
  }
});

test('a stream may follow other requests on a kept-alive connection', limit, async (t) => {
  const { raw, publish, hub } = await serve(t);
  const client = await raw();
  for (let i = 0; i < 3; i++) {
    client.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
    assert.equal((await client.response()).status, 200);
  }
  client.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\n\r\n');
  await until(() => (hub.rooms.get('a')?.members.length ?? 0) === 1);
  publish('a', 'hello');
  await until(() => String(client.bytes).includes('"payload":"hello"'));
});

test('a stream leaves nothing of its request in the HTTP server', limit, async (t) => {
  const { open, server, publish } = await serve(t);
  const clients = await Promise.all([1, 2, 3].map(() => open('?room=a')));
  for (const client of clients) await client.collect('joined');
  // It would end the connections that it knows.
  server.reader.http.closeAllConnections();
  publish('a', 1);
  for (const client of clients) await client.collect('message');
});

test('a request behind a stream gets no answer, and more of them end it', limit, async (t) => {
  const { raw, counters, publish } = await serve(t);
  const client = await raw();
  client.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
  await until(() => counters.connections === 1);
  publish('a', 1);
  await until(() => String(client.bytes).includes('"payload":1'));
  assert.equal(String(client.bytes).match(/HTTP\/1\.1/g)?.length, 1);
  client.write('x'.repeat(100_000));
  await client.closed();
  await until(() => counters.connections === 0);
});

test('a client that closes its side has gone', limit, async (t) => {
  const { raw, counters } = await serve(t);
  const client = await raw();
  client.socket.allowHalfOpen = true;
  client.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\n\r\n');
  await until(() => counters.connections === 1);
  client.socket.end();
  await client.closed();
  await until(() => counters.connections === 0 && counters.eventStreams === 0);
});

test('a reset by the client closes the stream, and the worker lives', limit, async (t) => {
  const { raw, counters, publish } = await serve(t);
  const client = await raw();
  client.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\n\r\n');
  await until(() => counters.connections === 1);
  client.socket.resetAndDestroy();
  publish('a', 1);
  await until(() => counters.connections === 0);
});

test('heartbeats are comments, and a silent peer stays', limit, async (t) => {
  const { open, heartbeat, counters } = await serve(t);
  const client = await open('?room=a');
  await client.collect('joined');
  const { comments } = client.reader;
  const turns = 2 * heartbeat.places.length;
  for (let i = 1; i <= turns; i++) heartbeat.step(i * heartbeat.stepMs);
  await client.until(() => client.reader.comments === comments + 2, 'two comments');
  assert.equal(counters.heartbeatTimeouts, 0);
  assert.equal(client.isClosed, false);
});

test('a stream at its maximum age ends with its own time to return', limit, async (t) => {
  const { open, hub, counters } = await serve(t);
  const client = await open('?room=a');
  await client.collect('joined');
  const relocations = new Relocations({ hub, isSteady: () => true, counters });
  t.after(() => relocations.close());
  relocations.expire(hub.connections[0], 0);
  relocations.step(1000);
  await client.ended();
  assert.deepEqual(client.all('close'), [
    { type: 'close', code: CLOSES.AGE.code, reason: CLOSES.AGE.reason },
  ]);
  assert.ok(client.reader.retryMs >= 100 && client.reader.retryMs < 1000);
  assert.equal(counters.relocated.age, 1);
});

test('a stream never returns faster than ten times a second', limit, async (t) => {
  const { open, hub } = await serve(t);
  const client = await open('?room=a');
  await client.collect('joined');
  const [connection] = hub.connections;
  connection.announceShutdown(0);
  connection.close(CLOSES.DRAIN);
  await client.ended();
  assert.equal(client.reader.retryMs, 100);
});

test('a drain sends each stream its own time to return, then ends it', limit, async (t) => {
  const { open, hub } = await serve(t);
  const client = await open('?room=a');
  await client.collect('joined');
  const [connection] = hub.connections;
  connection.announceShutdown(1234);
  connection.close(CLOSES.DRAIN);
  await client.ended();
  assert.equal(client.reader.retryMs, 1234);
  assert.equal(client.all('SERVER_SHUTDOWN')[0].reconnectAfterMs, 1234);
  assert.equal(client.all('close')[0].code, 1012);
});

test(
  'a stream of a plain room that does not read is closed as a slow consumer, and the others do not wait',
  limit,
  async (t) => {
    const { raw, open, publish, counters, hub } = await serve(t, {
      FANFARE_MAX_UNSENT_BYTES: '131072',
    });
    const slow = await raw();
    slow.socket.pause();
    slow.write('GET /sse?room=plain HTTP/1.1\r\nHost: a\r\n\r\n');
    const fast = await open('?room=plain');
    await fast.collect('joined');
    await until(() => hub.connections.length === 2);
    const payload = 'x'.repeat(50_000);
    let sent = 0;
    while (counters.slow.closed === 0 && sent < 2000) {
      publish('plain', payload);
      sent++;
      await fast.collect('message', sent);
    }
    assert.equal(counters.slow.closed, 1);
    assert.equal(fast.isClosed, false);
    await until(() => counters.connections === 1);
  },
);

test('a reader gets the same events wherever the bytes are cut', () => {
  const text = ':\r\n\r\nevent: a\r\nid: 1\rdata: x\ndata:y\n\ndata\n\nid: 2\n\n';
  const whole = new EventReader();
  const expected = whole.read(text);
  assert.deepEqual(
    expected.map(({ type, data, id }) => [type, data, id]),
    [
      ['a', 'x\ny', '1'],
      ['message', '', '1'],
    ],
  );
  assert.equal(whole.lastEventId, '2');
  const cut = new EventReader();
  assert.deepEqual(
    [...text].flatMap((character) => cut.read(character)),
    expected,
  );
});
