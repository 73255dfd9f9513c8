// short-handshake.test.js: the short way of a handshake reads each head as Node's HTTP parser does,
// or leaves it to the parser.
//
// Cases are handshakes of common clients with random faults, from a seed. `node test/run.js
// handshakes` runs five million of them.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { loadConfig } from '../../src/config/config.js';
import { createNativeDoor } from '../../src/doors/native/native-door.js';
import { createCounters } from '../../src/observability/counters.js';
import { readShortHandshake } from '../../src/transport/fast/short-handshake.js';
import { handshakeFault } from '../../src/transport/handshake.js';
import { routeOf } from '../../src/transport/route.js';
import { WebSockets } from '../../src/transport/websocket.js';
import { Turn } from '../../src/worker/turn.js';
import { Random } from '../checker/random.js';
import { accepted } from '../helpers/accepted.js';
import { handshakeHeads, randomHead } from '../helpers/handshake-heads.js';
import { isOff } from '../helpers/hidden/fields.js';

const CASES = Number(process.env.TEST_HANDSHAKES ?? 30_000);
const SEED = Number(process.env.TEST_SEED ?? 1);

/** One of this number of cases is answered, too. */
const ANSWERED = 8;
/** Cases in one turn of the event loop: streams are freed in a later turn. */
const CASES_PER_TURN = 1000;

/** @typedef {Pick<import('node:http').IncomingMessage, 'method'|'url'|'httpVersion'|'httpVersionMajor'|'httpVersionMinor'|'headers'|'rawHeaders'>} Read */

/** Node's parser with the settings of the public port. */
const parser = createServer({ maxHeaderSize: 16_384, requireHostHeader: false });
parser.maxHeadersCount = 101;
/** The last requests. @type {(Read & {behind: number})[]} */
const upgrades = [];
parser.on('upgrade', (request, _socket, head) => {
  upgrades.push({ ...fieldsOf(request), behind: head.length });
});
parser.on('request', (request, response) => {
  upgrades.push({ ...fieldsOf(request), behind: 0 });
  response.destroy();
});
parser.on('clientError', () => {});

/** @param {Read} request */
function fieldsOf(request) {
  const { method, url, httpVersion, httpVersionMajor, httpVersionMinor } = request;
  const { headers, rawHeaders } = request;
  return { method, url, httpVersion, httpVersionMajor, httpVersionMinor, headers, rawHeaders };
}

/** @param {Buffer} bytes */
function readByParser(bytes) {
  upgrades.length = 0;
  const stream = new Duplex({ read() {}, write: (_bytes, _encoding, done) => done() });
  parser.emit('connection', stream);
  stream.emit('data', bytes);
  stream.destroy();
  return upgrades.at(0);
}

/** @param {Buffer} bytes */
function readShort(bytes) {
  return readShortHandshake(bytes, /** @type {any} */ (null));
}

test(`${CASES} handshakes are read as Node's parser reads them, or left to it`, {
  skip: isOff('short_handshake') ? 'the path is off' : false,
}, async () => {
  const random = new Random(SEED);
  let short = 0;
  for (let i = 0; i < CASES; i++) {
    if (i % CASES_PER_TURN === 0) await nextTurn();
    const bytes = randomHead(random);
    const request = readShort(bytes);
    if (request === null) continue;
    short++;
    const expected = readByParser(bytes);
    const name = `case ${i} of seed ${SEED}: ${JSON.stringify(bytes.toString('latin1'))}`;
    assert.ok(expected !== undefined, name);
    assert.equal(expected.behind, 0, name);
    const { behind, ...fields } = expected;
    assert.deepEqual(fieldsOf(request), { ...fields, headers: { ...fields.headers } }, name);
  }
  assert.ok(short > 0.2 * CASES && short < 0.8 * CASES, `${short} of ${CASES} took the short way`);
});

for (const compression of ['off', 'on']) {
  test(`each handshake gets the answer of ws, with compression ${compression}`, {
    skip: isOff('short_handshake') ? 'a path is off' : false,
  }, async () => {
    const random = new Random(SEED + 1);
    const own = websocketsOf(compression);
    const plain = websocketsOf(compression);
    plain.answerTo = () => null;
    let answered = 0;
    for (let i = 0; i < CASES / ANSWERED; i++) {
      if (i % CASES_PER_TURN === 0) await nextTurn();
      const bytes = randomHead(random);
      const request = readShort(bytes);
      if (request === null || handshakeFault(request, routeOf(request)) !== null) continue;
      answered++;
      const name = `case ${i} of seed ${SEED}: ${JSON.stringify(bytes.toString('latin1'))}`;
      assert.deepEqual(answerOf(own, request), answerOf(plain, request), name);
    }
    assert.ok(answered > (0.15 * CASES) / ANSWERED, `${answered} answered`);
  });
}

/** @param {string} compression */
function websocketsOf(compression) {
  const { config } = loadConfig({ FANFARE_LIMITS: 'off', FANFARE_COMPRESSION: compression });
  assert.ok(config);
  const hub = /** @type {any} */ ({
    addConnection() {},
    removeConnection() {},
    slowConsumers: { queue: () => true },
  });
  return new WebSockets({
    config,
    hub,
    door: createNativeDoor({
      identities: {
        enterSession: (/** @type {unknown} */ connection) => hub.addConnection(connection),
        leave() {},
      },
      receive() {},
    }),
    heartbeat: /** @type {any} */ ({ watchConnection() {}, unwatchConnection() {} }),
    counters: createCounters(),
    turn: new Turn(),
  });
}

/** @param {WebSockets} websockets @param {import('node:http').IncomingMessage} request */
function answerOf(websockets, request) {
  /** @type {Buffer[]} */
  const written = [];
  let format = -1;
  const stream = new Duplex({
    read() {},
    write(bytes, _encoding, done) {
      written.push(bytes);
      done();
    },
  });
  /** @type {any} */ (websockets.hub).addConnection = (/** @type {any} */ { transport }) => {
    format = transport.format;
  };
  // ws reads a FeedStream, which passes these on.
  Object.assign(stream, { setTimeout() {}, setNoDelay() {} });
  const socket = accepted(/** @type {any} */ (stream));
  websockets.upgrade(request, socket, Buffer.alloc(0), '192.0.2.1');
  const { destroyed } = stream;
  stream.destroy();
  return { answer: Buffer.concat(written).toString('latin1'), format, destroyed };
}

test('each common client takes the short way', () => {
  for (const [client, head] of Object.entries(handshakeHeads()))
    assert.ok(readShort(Buffer.from(head, 'latin1')) !== null, client);
});

test('no part of a handshake takes the short way, nor does a handshake with bytes behind it', () => {
  for (const head of Object.values(handshakeHeads())) {
    const bytes = Buffer.from(head, 'latin1');
    for (let end = 0; end < bytes.length; end++)
      assert.equal(readShort(bytes.subarray(0, end)), null, `${end} bytes`);
    for (const more of ['\0', '\n', '\r\n', '\r\n\r\n', 'GET / HTTP/1.1\r\n\r\n', head])
      assert.equal(readShort(Buffer.from(head + more, 'latin1')), null, JSON.stringify(more));
  }
});

test('requests that need more than the short way are left to the parser', () => {
  const [head] = Object.values(handshakeHeads());
  const having = (/** @type {string} */ line) => head.replace('\r\n\r\n', `\r\n${line}\r\n\r\n`);
  const rows = {
    'two Hosts': having('Host: b'),
    'two origins': having('Origin: a\r\nOrigin: b'),
    'a length': having('Content-Length: 0'),
    'a body in chunks': having('Transfer-Encoding: chunked'),
    'a second Connection': having('Connection: close'),
    'a proxy connection': having('Proxy-Connection: close'),
    'an expectation': having('Expect: 100-continue'),
    'a list of cookies': having('Set-Cookie: a'),
    'a name of an object': having('__proto__: a'),
    'a folded line': having('A: b\r\n c'),
    'a tab': having('A: b\tc'),
    'a space behind a value': having('A: b '),
    'an empty value': having('A:'),
    'a byte above ASCII': having('A: \x80'),
    'a NUL': having('A: \0'),
    'line feeds alone': head.replaceAll('\r', ''),
    'a fragment of a URL': head.replace('/ws', '/ws#a'),
    'an absolute URL': head.replace('/ws', 'http://a/ws'),
    'HTTP/1.0': head.replace('HTTP/1.1', 'HTTP/1.0'),
    'another method': head.replace('GET', 'PUT'),
    'no Host': head.replace('Host', 'Hosts'),
    'an upgrade to h2c': head.replace('websocket', 'h2c'),
    'a head above the bound': having(`A: ${'b'.repeat(8192)}`),
    'headers above the bound': having(
      Array.from({ length: 60 }, (_, i) => `A${i}: b`).join('\r\n'),
    ),
  };
  for (const [name, text] of Object.entries(rows)) {
    assert.notEqual(text, head, name);
    assert.equal(readShort(Buffer.from(text, 'latin1')), null, name);
  }
});
