// sse-request.test.js: requests for event streams, and how they are refused
// (doors/native/sse-request.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { refusal } from '../../src/protocol/refusal.js';
import { limit, serve, until } from '../helpers/sse-server.js';

const EVENT_SOURCE = { Accept: 'text/event-stream' };

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
