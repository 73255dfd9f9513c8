// compressed.test.js: no body that somebody else has compressed reaches a decompressor. Requests with
// a content encoding get 415 at every door, and answers are neither asked for nor taken in one.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { KEY } from '../helpers/centrifugo-api.js';
import { APP, entryOf, writeApps } from '../helpers/pusher.js';
import { signedRequest } from '../helpers/pusher-api.js';
import { shared } from '../helpers/shared.js';

const OPTIONS = { timeout: 30_000 };
const SECRET = newSecret();

const started = shared((owner) =>
  startServer(owner, {
    ...NO_LIMITS,
    API_KEYS: `web ${SECRET} all`,
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_CENTRIFUGO_API_KEY: KEY,
    FANFARE_PUSHER_APPS: writeApps(owner, [entryOf()]),
  }),
);

const JSON_TYPE = { 'Content-Type': 'application/json' };

/**
 * Every way in for a body: its path, headers and a body that is valid without an encoding.
 * @type {readonly [name: string, path: string, headers: Record<string, string>, body: string, isOps?: true][]}
 */
const DOORS = [
  [
    'HTTP API',
    '/api/publish',
    { ...JSON_TYPE, Authorization: `Bearer ${SECRET}` },
    '{"room":"a","payload":1}',
  ],
  [
    'server API of Centrifugo',
    '/centrifugo/api/publish',
    { ...JSON_TYPE, 'X-API-Key': KEY },
    '{"channel":"a","data":{}}',
  ],
  ['HTTP streaming', '/connection/http_stream', JSON_TYPE, '{"id":1,"connect":{}}'],
  ['emulation', '/emulation', JSON_TYPE, '{"session":"a","node":"b","data":"{}"}'],
  [
    'console',
    '/console/api/actions/rooms',
    { ...JSON_TYPE, 'X-Fanfare-Console': '1' },
    '{"params":{},"query":{},"body":""}',
    true,
  ],
];

/** @type {Record<string, (text: string) => Buffer>} */
const ENCODINGS = {
  br: brotliCompressSync,
  gzip: gzipSync,
  deflate: deflateSync,
  'x-gzip': gzipSync,
  // A decoder's error would prove that it ran.
  'br, br': () => Buffer.from([0xff, 1, 2, 3]),
  identity: Buffer.from,
};

/**
 * @param {number} port @param {string} path @param {Record<string, string>} headers
 * @param {Buffer} body @returns {Promise<number|undefined>} the status
 */
const post = (port, path, headers, body) =>
  new Promise((resolve, reject) => {
    const sent = request({ port, path, method: 'POST', headers }, (response) => {
      response.destroy();
      resolve(response.statusCode);
    });
    sent.on('error', reject);
    sent.end(body);
  });

for (const [name, path, headers, body, isOps] of DOORS) {
  test(`${name}: a compressed body is answered with 415`, OPTIONS, async () => {
    const { port, metricsPort } = await started();
    const where = isOps ? metricsPort : port;
    const plain = await post(where, path, headers, Buffer.from(body));
    assert.ok(plain !== 415, `${plain} without an encoding`);
    for (const [encoding, pack] of Object.entries(ENCODINGS)) {
      const encoded = { ...headers, 'Content-Encoding': encoding };
      assert.equal(await post(where, path, encoded, pack(body)), 415, encoding);
    }
  });
}

// Pusher's SDKs know no 415.
test('HTTP API of Pusher: a compressed body is answered with 400', OPTIONS, async () => {
  const { port } = await started();
  const text = '{"name":"e","channel":"a","data":"1"}';
  const signed = signedRequest(APP, `/apps/${APP.id}/events`, { body: text });
  assert.equal(await post(port, signed.path, JSON_TYPE, Buffer.from(text)), 200);
  for (const [encoding, pack] of Object.entries(ENCODINGS)) {
    const headers = { ...JSON_TYPE, 'Content-Encoding': encoding };
    const body = pack(text);
    const url = `http://127.0.0.1:${port}${signed.path}`;
    const response = await fetch(url, { method: 'POST', headers, body });
    assert.equal(response.status, 400);
    assert.match(await response.text(), /must not have a content encoding/);
  }
});

test('no file of src can decompress, or leaves it to fetch or to a parser of express', () => {
  const src = fileURLToPath(new URL('../../src/', import.meta.url));
  const able =
    /\b(?:inflate|inflateRaw|gunzip|unzip|brotliDecompress|zstdDecompress)(?:Sync)?\(|createBrotliDecompress|createInflate|createGunzip|createUnzip|createZstdDecompress|DecompressionStream|express\.(?:json|raw|text|urlencoded)\(|\bfetch\(/;
  const found = readdirSync(src, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.js') && able.test(readFileSync(src + file, 'utf8')))
    .sort();
  // fetch: pages, libraries for clients and backends, and the command line talk to this server. So
  // does the health check of a container, which reads no body.
  const server = found.filter(
    (file) => !/^((ai|cli|client|console\/page|sdk)\/|doctor\/live\.js)/.test(file),
  );
  assert.deepEqual(server, ['backend/redis/broker.js', 'backend/redis/inbox.js']);
});
