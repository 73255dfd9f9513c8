// http-api-wire.test.js: how requests to the HTTP API arrive: pipelined, in pieces, chunked.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startWithKey } from '../helpers/api.js';
import { RawClient } from '../helpers/raw-http.js';
import { shared } from '../helpers/shared.js';

const startLarge = shared((owner) =>
  startWithKey(owner, {
    FANFARE_MAX_MESSAGE_BYTES: '900000',
    FANFARE_MAX_INLINE_BYTES: '900000',
  }),
);
const head = (/** @type {string} */ secret, /** @type {string} */ more) =>
  `POST /api/publish HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\n${more}\r\n\r\n`;
const BODY = '{"room":"h.1","payload":1}';

test('one connection serves many requests, also pipelined and in pieces', async (t) => {
  const { server, secret } = await startLarge();
  const raw = await RawClient.connect(t, server);
  for (let i = 1; i <= 150; i++) {
    raw.write(head(secret, `Content-Length: ${BODY.length}`) + BODY);
    assert.match((await raw.response()).body, new RegExp(`"offset":${i}}`));
  }
  raw.write(head(secret, 'Transfer-Encoding: chunked'));
  for (const part of [BODY.slice(0, 5), BODY.slice(5)])
    raw.write(`${part.length.toString(16)}\r\n${part}\r\n`);
  raw.write('0\r\n\r\n');
  assert.match((await raw.response()).body, /"offset":151}/);
  raw.write((head(secret, `Content-Length: ${BODY.length}`) + BODY).repeat(2));
  assert.match((await raw.response()).body, /"offset":152}/);
  const last = await raw.response();
  assert.match(last.body, /"offset":153}/);
  assert.equal(last.headers.connection, 'close');
});

test('a body that follows 100 Continue is read', async (t) => {
  const { server, secret } = await startLarge();
  const raw = await RawClient.connect(t, server);
  raw.write(head(secret, `Content-Length: ${BODY.length}\r\nExpect: 100-continue`));
  assert.equal((await raw.response()).status, 100);
  raw.write(BODY);
  assert.equal((await raw.response()).status, 200);
});

test('a body of many reads arrives whole', async () => {
  const { api } = await startLarge();
  const payload = 'x'.repeat(800_000);
  assert.equal((await api('/publish', { body: { room: 'h.large', payload } })).status, 200);
  const { body } = await api('/rooms/h.large/history');
  assert.equal(body.messages[0].payload, payload);
});

test('a request without a key is refused unread, and its connection ends', async (t) => {
  const { server } = await startLarge();
  const raw = await RawClient.connect(t, server);
  raw.write(head('x', 'Content-Length: 1000000'));
  const { status, headers } = await raw.response();
  assert.deepEqual([status, headers.connection], [401, 'close']);
  await raw.closed();
});

test('a malformed chunk is answered with 400, and publishes nothing', async (t) => {
  const { server, secret, api } = await startLarge();
  const offset = async () => (await api('/rooms/h.1/history')).body.offset;
  const before = await offset();
  const raw = await RawClient.connect(t, server);
  raw.write(`${head(secret, 'Transfer-Encoding: chunked')}zz\r\n`);
  assert.equal((await raw.response()).status, 400);
  await raw.closed();
  assert.equal(await offset(), before);
});
