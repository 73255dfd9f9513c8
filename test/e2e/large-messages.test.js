// large-messages.test.js: payloads in a bucket, on real servers and s3rver.
//
// TEST_S3_URL names another bucket (helpers/bucket.js): `node test/run.js blobs` runs this file against
// a stricter server.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import { test } from 'node:test';

import { createServer } from '../../src/sdk/index.js';
import { NO_LIMITS, scrape, startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { isStrict, sha256, startBucket } from '../helpers/bucket.js';
import { connect } from '../helpers/clients.js';
import { EventClient } from '../helpers/event-stream.js';
import { shared } from '../helpers/shared.js';

const LARGE = randomBytes(300_000).toString('base64');
const TIMEOUT_MS = 1500;

const start = shared(async (owner) => {
  const bucket = await startBucket(owner);
  const [secret, poor] = [newSecret(), newSecret()];
  const server = await startServer(owner, {
    ...NO_LIMITS,
    LOG_LEVEL: 'debug',
    WORKERS: '1',
    FANFARE_HISTORY: 'h.*=100/60s',
    FANFARE_BLOB_MAX_BYTES: '12000000',
    FANFARE_BLOB_MAX_UPLOADS: '2',
    FANFARE_BLOB_TIMEOUT_MS: String(TIMEOUT_MS),
    FANFARE_MAX_MESSAGE_BYTES: '400000',
    API_KEYS: `main ${secret} all; poor ${poor} publish rooms=other`,
    ...bucket.env,
  });
  return { bucket, server, api: apiOf(server, secret), poor: apiOf(server, poor), secret };
});

/**
 * @param {ReturnType<typeof apiOf>} api
 * @param {string} query
 * @param {Buffer|string} body
 * @param {Record<string, string>} [headers]
 */
function publishRaw(api, query, body, headers = { 'Content-Type': 'image/png' }) {
  return api(`/publish?${query}`, { method: 'POST', body: Buffer.from(body), headers });
}

/**
 * Sends a raw body in pieces.
 * @param {{server: {port: number}, secret: string}} parts
 * @param {string} room
 * @param {Record<string, string>} headers
 */
function openUpload({ server, secret }, room, headers) {
  const upload = request({
    port: server.port,
    path: `/api/publish?room=${room}`,
    method: 'POST',
    headers: { Authorization: `Bearer ${secret}`, 'Content-Type': 'image/png', ...headers },
  });
  upload.on('error', () => {});
  return upload;
}

/** @param {{url: string}} ref */
async function download({ url }) {
  const response = await fetch(url);
  const body = Buffer.from(await response.arrayBuffer());
  return { status: response.status, type: response.headers.get('content-type'), body };
}

test('a raw body goes into the bucket, and members get a reference to it', async (t) => {
  const { server, api } = await start();
  const member = await connect(t, server.port);
  await member.join('a');
  const image = randomBytes(3_000_000);
  const answer = await publishRaw(api, 'room=a', image);
  assert.deepEqual([answer.status, answer.body], [200, {}]);
  const { payload, from } = await member.next('message');
  assert.equal(from, '');
  const { ref } = payload;
  assert.deepEqual(Object.keys(ref), ['url', 'bytes', 'sha256', 'contentType', 'expires']);
  assert.deepEqual([ref.bytes, ref.contentType], [image.length, 'image/png']);
  assert.equal(ref.sha256, sha256(image));
  assert.ok(ref.expires > Date.now() + 3_500_000 && ref.expires < Date.now() + 4_000_000);
  const object = await download(ref);
  assert.deepEqual([object.status, object.type], [200, 'image/png']);
  assert.ok(object.body.equals(image));
});

test('a chunked body of any length arrives, also one of several parts', async (t) => {
  const parts = await start();
  const member = await connect(t, parts.server.port);
  await member.join('chunks');
  for (const bytes of [10, 6_000_000]) {
    const image = randomBytes(bytes);
    const upload = openUpload(parts, 'chunks', { 'Transfer-Encoding': 'chunked' });
    upload.end(image);
    const [response] = await once(upload, 'response');
    response.resume();
    assert.equal(response.statusCode, 200);
    const { ref } = (await member.next('message')).payload;
    assert.deepEqual([ref.bytes, ref.sha256], [bytes, sha256(image)]);
    assert.ok((await download(ref)).body.equals(image));
  }
});

test('an upload that the bucket takes slowly does not fill the memory, and arrives', async (t) => {
  const { bucket, server, api } = await start();
  const member = await connect(t, server.port);
  await member.join('slow');
  bucket.wire.change({ bytesPerSecond: 8_000_000 });
  t.after(() => bucket.wire.change({}));
  const image = randomBytes(6_000_000);
  assert.equal((await publishRaw(api, 'room=slow', image)).status, 200);
  const { ref } = (await member.next('message')).payload;
  assert.equal(ref.sha256, sha256(image));
  const next = await api('/publish', { body: { room: 'slow', payload: 1 } });
  assert.equal(next.status, 200, 'the connection of the backend is in use again');
});

test('references keep the order of the room, and history and streams replay them', async (t) => {
  const { server, api } = await start();
  const member = await connect(t, server.port);
  const { epoch } = await member.join('h.1');
  await api('/publish', { body: { room: 'h.1', payload: 'first' } });
  await publishRaw(api, 'room=h.1', 'second');
  await api('/publish', { body: { room: 'h.1', payload: 'third' } });
  await member.next(({ payload }) => payload === 'third');
  const live = member.all('message');
  assert.deepEqual(
    live.map(({ offset }) => offset),
    [1, 2, 3],
  );
  const { ref } = live[1].payload;
  assert.equal((await download(ref)).body.toString(), 'second');

  const late = await connect(t, server.port);
  await late.ask({ type: 'join', room: 'h.1', since: { epoch, offset: 0 } }, 'joined');
  await late.next(({ payload }) => payload === 'third');
  assert.deepEqual(late.all('message')[1].payload.ref.sha256, ref.sha256);
  const page = await late.ask({ type: 'history', room: 'h.1' }, 'history');
  assert.equal((await download(page.messages[1].payload.ref)).status, 200);
  const { body } = await api('/rooms/h.1/history');
  assert.equal(body.messages[1].payload.ref.sha256, ref.sha256);
  const stream = await EventClient.open(t, server.port, '?room=h.1', {
    'Last-Event-ID': `${epoch}:1`,
  });
  const [event] = await stream.collect('message', 2);
  assert.equal(event.payload.ref.sha256, ref.sha256);
});

test('a large payload in JSON goes into the bucket, to one room or several', async (t) => {
  const { server, api } = await start();
  const member = await connect(t, server.port);
  for (const room of ['b', 'c']) await member.join(room);
  const text = JSON.stringify({ text: LARGE });
  const body = `{"rooms":["b","c"],"payload":${text}}`;
  const answer = await api('/publish', { body });
  assert.deepEqual([answer.status, answer.body.failed], [200, 0]);
  const messages = [await member.next('message'), await member.next('message')];
  assert.deepEqual(messages.map(({ room }) => room).sort(), ['b', 'c']);
  const [{ ref }] = messages.map(({ payload }) => payload);
  assert.deepEqual([ref.contentType, ref.sha256], ['application/json', sha256(text)]);
  assert.equal((await download(ref)).body.toString(), text);
});

test('a batch keeps its order around a large payload', async (t) => {
  const { server, api } = await start();
  const member = await connect(t, server.port);
  await member.join('b');
  const payloads = ['one', LARGE, 'three'];
  const messages = payloads.map((payload) => ({ room: 'b', payload }));
  const { body } = await api('/publish/batch', { body: { messages } });
  assert.equal(body.failed, 0);
  const received = await member.collect('message', 3);
  const [one, { ref }, three] = received.map(({ payload }) => payload);
  assert.deepEqual([one, three], ['one', 'three']);
  assert.equal((await download(ref)).body.toString(), JSON.stringify(LARGE));
});

test('a broadcast with a large payload is refused with 413', async () => {
  const { api } = await start();
  const answer = await api('/broadcast', { body: { payload: LARGE } });
  assert.deepEqual([answer.status, answer.body.error], [413, 'PAYLOAD_TOO_LARGE']);
});

test('a client that sends a large payload gets MESSAGE_TOO_LARGE', async (t) => {
  const { server } = await start();
  const client = await connect(t, server.port);
  await client.join('d');
  for (const type of ['message', 'broadcast']) {
    client.send({ type, room: 'd', payload: LARGE.slice(0, 270_000), id: type });
    const { error, id } = await client.next('error');
    assert.deepEqual([error, id], ['MESSAGE_TOO_LARGE', type]);
  }
});

test('a backend puts a payload into the bucket itself, and publishes it by name', async (t) => {
  const { server, api } = await start();
  const member = await connect(t, server.port);
  await member.join('e');
  const image = randomBytes(100_000);
  const payload = { bytes: image.length, sha256: sha256(image), contentType: 'image/png' };
  const { body: upload } = await api('/uploads', { body: payload });
  const publish = () => api('/publish', { body: { room: 'e', upload: upload.upload } });
  assert.deepEqual((await publish()).body.error, 'NO_UPLOAD', 'before the PUT');
  const { url, method, headers } = upload;
  const longer = await fetch(url, { method, headers, body: Buffer.concat([image, image]) });
  assert.equal(longer.status, 403, 'a body of another length');
  const { 'content-type': type } = headers;
  const unsigned = await fetch(url, { method, headers: { 'content-type': type }, body: image });
  assert.ok(unsigned.status >= 400, 'without the hash');
  const stored = await fetch(url, { method, headers, body: image });
  assert.equal(stored.status, 200, await stored.text());
  assert.equal((await publish()).status, 200);
  const { ref } = (await member.next('message')).payload;
  const { contentType, bytes, sha256: hash } = ref;
  assert.deepEqual({ contentType, bytes, sha256: hash }, payload);
  assert.ok((await download(ref)).body.equals(image));
});

test('the server library puts a payload into the bucket and publishes it', async (t) => {
  const {
    server: { port },
    secret,
  } = await start();
  const member = await connect(t, port);
  await member.join('h.library');
  const server = createServer({ url: `http://127.0.0.1:${port}`, apiKey: secret });
  const image = randomBytes(400_000);
  const published = await server.publishFile('h.library', new Blob([image], { type: 'image/png' }));
  const { payload, offset } = await member.next('message');
  assert.equal(offset, published.offset);
  const { body, type } = await download(payload.ref);
  assert.ok(body.equals(image));
  assert.equal(type, 'image/png');
});

test('an announced upload with other bytes is not published', async () => {
  const { api } = await start();
  const [wanted, other] = [randomBytes(1000), randomBytes(1000)];
  const { body } = await api('/uploads', { body: { bytes: 1000, sha256: sha256(wanted) } });
  // A bucket that checks the hash refuses it already.
  await fetch(body.url, { method: 'PUT', headers: body.headers, body: other });
  const answer = await api('/publish', { body: { room: 'a', upload: body.upload } });
  assert.deepEqual([answer.status, answer.body.error], [404, 'NO_UPLOAD']);
});

test('an idempotency key publishes a large payload once, and belongs to its content', async () => {
  const { api } = await start();
  const send = (/** @type {string} */ body) =>
    publishRaw(api, 'room=h.2', body, { 'Content-Type': 'a/b', 'Idempotency-Key': 'k1' });
  const first = await send('once');
  assert.equal(first.body.offset, 1);
  assert.deepEqual((await send('once')).body, first.body);
  assert.equal((await send('other')).body.error, 'IDEMPOTENCY_CONFLICT');
});

test('each faulty upload gets its error, and stores nothing', async () => {
  const { bucket, api, poor } = await start();
  const before = await bucket.keys();
  const huge = Buffer.alloc(12_000_001);
  const faults =
    /** @type {[number, string, Promise<import('../helpers/api.js').ApiAnswer>][]} */ ([
      [403, 'PERMISSION_DENIED', publishRaw(poor, 'room=a', LARGE)],
      [400, 'INVALID_REQUEST', publishRaw(api, 'room=a%20b', LARGE)],
      [400, 'INVALID_REQUEST', publishRaw(api, 'room=a&x=1', LARGE)],
      [400, 'INVALID_REQUEST', publishRaw(api, 'room=a&room=b', LARGE)],
      [415, 'UNSUPPORTED_MEDIA_TYPE', publishRaw(api, 'room=a', 'x', { 'Content-Type': 'x' })],
      [
        415,
        'UNSUPPORTED_MEDIA_TYPE',
        publishRaw(api, 'room=a', LARGE, { 'Content-Encoding': 'br' }),
      ],
      [413, 'BODY_TOO_LARGE', publishRaw(api, 'room=a', huge)],
      [413, 'PAYLOAD_TOO_LARGE', api('/uploads', { body: { bytes: 2e7, sha256: 'a'.repeat(64) } })],
      [422, 'INVALID_FIELD', api('/uploads', { body: { bytes: 0, sha256: 'a'.repeat(64) } })],
      [422, 'INVALID_FIELD', api('/publish', { body: { room: 'a', payload: 1, upload: 'x' } })],
      [
        404,
        'NO_UPLOAD',
        api('/publish', { body: { room: 'a', upload: '../../etc/passwd'.slice(6) } }),
      ],
    ]);
  for (const [status, error, answer] of faults) {
    const { status: given, body } = await answer;
    assert.deepEqual([given, body.error], [status, error]);
  }
  assert.deepEqual(await bucket.keys(), before);
});

test('a client that leaves in the middle of its upload stores and publishes nothing', async (t) => {
  const parts = await start();
  const { bucket, server } = parts;
  const member = await connect(t, server.port);
  await member.join('f');
  const before = await bucket.keys();
  for (const [name, value] of [
    ['Content-Length', '900000'],
    ['Transfer-Encoding', 'chunked'],
  ]) {
    const upload = openUpload(parts, 'f', { [name]: value });
    upload.write(Buffer.alloc(400_000));
    const inFlight = async () =>
      (await scrape(server.metricsPort)).values.get('fanfare_blob_uploads_in_flight');
    await until(async () => (await inFlight()) === 1);
    upload.destroy();
    await until(async () => (await inFlight()) === 0);
  }
  if (isStrict) assert.deepEqual(await bucket.keys(), before);
  assert.deepEqual(member.all('message'), []);
});

test('a frozen bucket gets 503 in time; further uploads get it at once, other messages none', async (t) => {
  const parts = await start();
  const { bucket, server, api } = parts;
  const member = await connect(t, server.port);
  for (const room of ['g', 'quick']) await member.join(room);
  bucket.wire.change({ isSilent: true });
  t.after(() => bucket.wire.change({}));
  const startedMs = performance.now();
  const uploads = [publishRaw(api, 'room=g', LARGE), publishRaw(api, 'room=g', LARGE)];
  await until(async () => {
    const { values } = await scrape(server.metricsPort);
    return values.get('fanfare_blob_uploads_in_flight') === 2;
  });
  const busy = await publishRaw(api, 'room=g', LARGE);
  assert.deepEqual([busy.status, busy.body.error], [503, 'UNAVAILABLE']);
  assert.equal(busy.body.message, 'Not accepted: too many uploads are under way. Try again.');
  assert.ok(Number(busy.headers.get('retry-after')) > 0);
  for (let i = 0; i < 20; i++)
    assert.equal((await api('/publish', { body: { room: 'quick', payload: i } })).status, 200);
  await member.next(({ payload }) => payload === 19);
  for (const upload of uploads) {
    const { status, body } = await upload;
    assert.equal(status, 503);
    assert.equal(body.message, 'Not accepted: the bucket is unavailable. Try again.');
  }
  assert.ok(performance.now() - startedMs < 10 * TIMEOUT_MS);
  bucket.wire.cut();
  bucket.wire.change({});
  assert.equal((await publishRaw(api, 'room=g', 'x')).status, 200);
  await member.next(({ room }) => room === 'g');
  const refs = member.all(({ room }) => room === 'g');
  assert.deepEqual(
    refs.map(({ payload }) => payload?.ref.bytes),
    [undefined, 1],
    'the join, and the last upload',
  );
  await server.line(({ msg }) => String(msg).includes('a request failed'));
  await server.line(({ msg }) => String(msg).includes('it answers again'));
});

test('no log line, metric or error has a credential or a signature', async () => {
  const { bucket, server } = await start();
  const { text } = await scrape(server.metricsPort);
  const all = text + JSON.stringify(server.lines) + server.stderr();
  assert.doesNotMatch(all, /X-Amz-|Signature=/);
  const { AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY } = bucket.env;
  for (const credential of [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY])
    assert.ok(!all.includes(credential), 'a credential');
});

test('without a bucket each route of large messages answers NO_BUCKET', async (t) => {
  const secret = newSecret();
  const server = await startServer(t, { ...NO_LIMITS, WORKERS: '1', API_KEYS: `a ${secret} all` });
  const api = apiOf(server, secret);
  const sum = 'a'.repeat(64);
  for (const answer of [
    await publishRaw(api, 'room=a', 'x'),
    await api('/uploads', { body: { bytes: 1, sha256: sum } }),
    await api('/publish', { body: { room: 'a', upload: 'x' } }),
  ])
    assert.deepEqual([answer.status, answer.body.error], [404, 'NO_BUCKET']);
});
