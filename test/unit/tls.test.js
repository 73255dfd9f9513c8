import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { createServer, Socket } from 'node:net';
import { test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { Admission } from '../../src/admission/admission.js';
import { certificateWarning, readCertificate } from '../../src/config/certificate.js';
import { changedFixed, isEqualExceptTls, loadConfig } from '../../src/config/config.js';
import { OWN_DESCRIPTORS } from '../../src/config/system-limits.js';
import { createCounters } from '../../src/observability/counters.js';
import { readClientHello } from '../../src/transport/client-hello.js';
import { HttpServer } from '../../src/transport/http-server.js';
import { SecureSockets } from '../../src/transport/secure-sockets.js';
import { Phase } from '../../src/worker/phase.js';
import { Turn } from '../../src/worker/turn.js';
import { makeCertificate, makeServerCertificate } from '../helpers/certificates.js';
import { serverConfigOf } from '../helpers/config.js';
import { isOff } from '../helpers/hidden/fields.js';
import { handshake, RawClient } from '../helpers/raw-http.js';

/** @typedef {import('node:test').TestContext} TestContext */

const LIMIT = { timeout: 10_000 };
const LIVEZ = 'GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';

/** @param {Record<string, string>} env */
function certificateOf(env) {
  return readCertificate(serverConfigOf(env).tls);
}

/**
 * An HTTP server with TLS, and real admission.
 * @param {TestContext} t @param {Record<string, string>} [env]
 */
async function start(t, env = {}) {
  const made = await makeServerCertificate(t);
  const config = serverConfigOf({ ...made.env, ...env });
  const { certificate } = readCertificate(config.tls);
  assert.ok(certificate);
  const counters = createCounters();
  const admission = new Admission({
    config,
    addresses: {
      acquire: async () => ({ admitted: true, connections: 1 }),
      release() {},
    },
    health: {
      lagMs: () => 0,
      heapPercent: () => 0,
      openDescriptors: () => counters.sockets + OWN_DESCRIPTORS,
      descriptorLimit: 20_000,
    },
    counters,
    now: () => performance.now(),
  });
  const phase = new Phase();
  const server = new HttpServer({
    config,
    certificate,
    admission,
    onUpgrade: (_request, socket) => void socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n'),
    readiness: () => null,
    phase,
    log: { debug() {}, error() {} },
    counters,
    turn: new Turn(),
  });
  const { port } = await server.listen();
  t.after(() => server.close());
  /** @param {import('node:tls').ConnectionOptions} [options] */
  const connect = async (options = {}) => {
    const socket = connectTls({ port, host: '127.0.0.1', ca: made.ca, ...options });
    const client = new RawClient(socket);
    t.after(() => socket.destroy());
    await once(socket, 'secureConnect');
    return { client, socket };
  };
  return { server, phase, port, counters, connect, made };
}

/** Resolves when no socket counts any longer. @param {{sockets: number}} counters */
async function allClosed(counters) {
  while (counters.sockets > 0) await new Promise(setImmediate);
}

/** The bytes of a ClientHello. @param {TestContext} t */
async function clientHello(t) {
  const listener = createServer();
  t.after(() => listener.close());
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (listener.address());
  const client = connectTls({ port, host: '127.0.0.1' }).on('error', () => {});
  t.after(() => client.destroy());
  const [socket] = await once(listener, 'connection');
  t.after(() => socket.destroy());
  const [bytes] = await once(socket, 'data');
  return /** @type {Buffer} */ (bytes);
}

test('a ClientHello is complete with its last byte, in one record or in many', LIMIT, async (t) => {
  const hello = await clientHello(t);
  for (let length = 1; length < hello.length; length++)
    assert.equal(readClientHello(hello.subarray(0, length)), 'partial', `${length} bytes`);
  assert.equal(readClientHello(hello), 'complete');
  const records = [...hello.subarray(5)].map((byte) => Buffer.from([22, 3, 1, 0, 1, byte]));
  assert.equal(readClientHello(Buffer.concat(records.slice(0, -1))), 'partial');
  assert.equal(readClientHello(Buffer.concat(records)), 'complete');
});

test('bytes that are no ClientHello are not waited for', LIMIT, () => {
  assert.equal(readClientHello(Buffer.from('GET / HTTP/1.1\r\n')), 'other');
  assert.equal(readClientHello(Buffer.from([0x16, 0x02])), 'other');
  assert.equal(readClientHello(Buffer.from([22, 3, 1, 0, 1, 2, 0, 0, 0])), 'partial');
  assert.equal(readClientHello(Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 9])), 'complete');
  assert.equal(readClientHello(Buffer.from([22, 3, 1, 0, 1, 1, 23, 3, 3, 0, 1])), 'complete');
  const endless = Buffer.alloc(16_385);
  endless.set([22, 3, 1, 0xff, 0xff, 1, 0xff, 0xff, 0xff]);
  assert.equal(readClientHello(endless), 'complete');
});

test(
  'the port answers requests over TLS 1.2 and 1.3, and refuses older versions',
  LIMIT,
  async (t) => {
    const { connect, counters } = await start(t);
    for (const version of /** @type {const} */ (['TLSv1.2', 'TLSv1.3'])) {
      const { client, socket } = await connect({ minVersion: version, maxVersion: version });
      assert.equal(socket.getProtocol(), version);
      assert.equal((await client.write(LIVEZ).response()).status, 200);
      await client.closed();
    }
    assert.deepEqual(counters.tls.handshakes, { full: 2, resumed: 0 });
    await assert.rejects(
      connect({ minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' }),
    );
    assert.equal(counters.refused.tls, 1);
  },
);

test('a cipher without forward secrecy is refused', LIMIT, async (t) => {
  const { connect, counters } = await start(t);
  await assert.rejects(connect({ maxVersion: 'TLSv1.2', ciphers: 'AES128-GCM-SHA256' }));
  assert.equal(counters.refused.tls, 1);
});

test('a client cannot renegotiate', LIMIT, async (t) => {
  const { connect } = await start(t);
  const { socket } = await connect({ maxVersion: 'TLSv1.2' });
  const failed = once(socket, 'error');
  socket.renegotiate({}, () => {});
  assert.match(String((await failed)[0]), /no renegotiation/);
});

test('ALPN chooses HTTP/1.1', LIMIT, async (t) => {
  const { connect } = await start(t);
  const { socket } = await connect({ ALPNProtocols: ['h2', 'http/1.1'] });
  assert.equal(socket.alpnProtocol, 'http/1.1');
  await assert.rejects(connect({ ALPNProtocols: ['h2'] }));
});

test('a WebSocket handshake over TLS reaches the transport', LIMIT, async (t) => {
  const { connect } = await start(t);
  const { client } = await connect();
  assert.equal((await client.write(handshake()).response()).status, 101);
});

test(
  'a ClientHello in single bytes, and one together with nothing else, are served',
  LIMIT,
  async (t) => {
    const { port, connect } = await start(t);
    const hello = await clientHello(t);
    const slow = await RawClient.connect(t, { port });
    slow.socket.setNoDelay(true);
    for (const byte of hello) {
      slow.write(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
    await once(slow.socket, 'data'); // the ServerHello
    const { client } = await connect();
    assert.equal((await client.write(LIVEZ).response()).status, 200);
  },
);

test('plain HTTP on the TLS port gets a readable answer', LIMIT, async (t) => {
  const { port, counters } = await start(t);
  const client = await RawClient.connect(t, { port });
  const { status, body } = await client.write(LIVEZ).response();
  assert.equal(status, 400);
  assert.match(body, /https:\/\/ or wss:\/\//);
  await client.closed();
  assert.equal(counters.refused.tls, 1);
  await allClosed(counters);
});

for (const [name, sends] of /** @type {[string, (hello: Buffer) => Buffer][]} */ ([
  ['before the ClientHello', () => Buffer.alloc(0)],
  ['within the ClientHello', (hello) => hello.subarray(0, 50)],
  ['behind the ClientHello', (hello) => hello],
])) {
  test(
    `a client that stops ${name} is closed after the time limit, and counted`,
    LIMIT,
    async (t) => {
      const { port, counters, server } = await start(t, { FANFARE_HANDSHAKE_TIMEOUT_MS: '400' });
      const client = await RawClient.connect(t, { port });
      client.write(sends(await clientHello(t)));
      await client.closed();
      assert.equal(counters.refused.handshake_timeout, 1);
      assert.equal(counters.sockets, 0);
      assert.equal(server.handshakes, 0);
    },
  );
}

test(
  'a client that stops after the TLS handshake is closed after the time limit, half a request gets 408',
  LIMIT,
  async (t) => {
    const { connect, counters } = await start(t, { FANFARE_HANDSHAKE_TIMEOUT_MS: '400' });
    const [{ client: silent }, { client: half }] = [await connect(), await connect()];
    half.write('GET /ws HTTP/1.1\r\n');
    assert.equal((await half.response()).status, 408);
    await silent.closed();
    assert.equal(silent.bytes.length, 0);
    assert.equal(counters.refused.handshake_timeout, 2);
    await allClosed(counters);
  },
);

test(
  'half-open TLS handshakes count for their address: the one with the most loses its oldest',
  LIMIT,
  async (t) => {
    const { port, connect, counters } = await start(t, { FANFARE_MAX_HANDSHAKES: '10' });
    const hello = await clientHello(t);
    const silent = [];
    for (let i = 0; i < 20; i++) {
      const client = await RawClient.connect(t, { port, localAddress: '127.0.0.2' });
      if (i % 2) client.write(hello);
      silent.push(client);
    }
    const { client } = await connect();
    assert.equal((await client.write(LIVEZ).response()).status, 200);
    assert.ok(counters.idleClosed.handshakes >= 10, `${counters.idleClosed.handshakes} closed`);
    await silent[0].closed();
    assert.equal(silent[19].isClosed, false);
  },
);

test('an address above its rate is closed without a TLS handshake', LIMIT, async (t) => {
  const { port, connect, counters } = await start(t, {
    FANFARE_HANDSHAKES_BURST_PER_IP: '2',
    FANFARE_HANDSHAKES_PER_MINUTE_PER_IP: '1',
  });
  await connect();
  await connect();
  const third = await RawClient.connect(t, { port });
  await third.closed();
  assert.equal(third.bytes.length, 0);
  assert.equal(counters.refused.handshakes_per_ip, 1);
  assert.deepEqual(counters.tls.handshakes, { full: 2, resumed: 0 });
});

test(
  'a client that leaves in the middle of the handshake leaves nothing behind',
  LIMIT,
  async (t) => {
    const { port, counters, server } = await start(t);
    const hello = await clientHello(t);
    for (let i = 0; i < 10; i++) {
      const client = await RawClient.connect(t, { port });
      client.write(hello);
      if (i % 2) await once(client.socket, 'data');
      client.socket.resetAndDestroy();
      await client.closed();
    }
    await allClosed(counters);
    assert.equal(server.handshakes, 0);
    assert.equal(counters.refused.tls, 0);
  },
);

test('a TLS handshake under way when the server closes gets its 503', LIMIT, async (t) => {
  const { port, counters, server, phase, made } = await start(t);
  const socket = connectTls({ port, host: '127.0.0.1', ca: made.ca });
  t.after(() => socket.destroy());
  const [accepted] = await once(server.reader.acceptor, 'connection');
  while (accepted.bytesRead === 0) await new Promise(setImmediate);
  phase.advance('draining');
  const closed = server.close();
  await once(socket, 'secureConnect');
  const client = new RawClient(socket);
  const { status, headers } = await client.write(handshake()).response();
  const answeredMs = performance.now();
  assert.equal(status, 503);
  assert.ok(headers['retry-after']);
  assert.equal(counters.refused.draining, 1);
  await closed;
  assert.ok(performance.now() - answeredMs < 900, 'close waits no longer than for the answer');
  assert.equal(counters.sockets, 0);
});

test(
  'a closing server waits a second for unfinished handshakes, and answers begun requests',
  LIMIT,
  async (t) => {
    const { port, connect, counters, server, phase } = await start(t);
    const halfOpen = await RawClient.connect(t, { port });
    halfOpen.write(await clientHello(t));
    await once(halfOpen.socket, 'data'); // the ServerHello
    const { client } = await connect();
    client.write('GET /ws HTTP/1.1\r\n');
    const startMs = performance.now();
    phase.advance('draining');
    const closed = server.close();
    assert.equal((await client.response()).status, 503);
    await Promise.all([closed, client.closed(), halfOpen.closed()]);
    const tookMs = performance.now() - startMs;
    assert.ok(tookMs > 900 && tookMs < 2000, `${tookMs} ms`);
    assert.equal(counters.refused.draining, 2);
    assert.equal(counters.sockets, 0);
  },
);

test('a turn begins no further handshake when its share is spent', LIMIT, async (t) => {
  const { certificate } = certificateOf((await makeServerCertificate(t)).env);
  assert.ok(certificate);
  for (const stepMs of [0, 1000]) {
    let now = 0;
    let begun = 0;
    const onStart = () => {
      begun++;
      now += stepMs;
      return false; // closed meanwhile
    };
    const parts = { onStart, onSecure() {}, counters: createCounters() };
    const turn = new Turn({ clock: () => now });
    const sockets = new SecureSockets({ certificate, turn, ...parts });
    for (let i = 0; i < 5; i++) sockets.push(new Socket(), '192.0.2.1');
    const begunAfter = [];
    for (let turns = 0; turns < 5; turns++) {
      await new Promise(setImmediate);
      begunAfter.push(begun);
    }
    assert.deepEqual(begunAfter, stepMs === 0 ? [5, 5, 5, 5, 5] : [1, 2, 3, 4, 5]);
  }
});

test('a new certificate is for new handshakes: open connections stay', LIMIT, async (t) => {
  const { connect, server, made, counters } = await start(t);
  const before = await connect();
  const renewed = await makeCertificate(made.folder, 'renewed', { ca: made.authority, days: 30 });
  const { certificate } = certificateOf({ TLS_CERT_FILE: renewed.cert, TLS_KEY_FILE: renewed.key });
  assert.ok(certificate);
  server.replaceCertificate(certificate);
  assert.equal(counters.tls.expiresMs, certificate.expiresMs);
  const after = await connect();
  assert.equal(before.socket.getPeerCertificate().subject.CN, 'server');
  assert.equal(after.socket.getPeerCertificate().subject.CN, 'renewed');
  for (const { client } of [before, after])
    assert.equal((await client.write(LIVEZ).response()).status, 200);
});

test('the fast paths of the public port are off, with the reason', LIMIT, async (t) => {
  const { counters } = await start(t);
  const reason = isOff('all') ? 'FANFARE_FAST_PATHS is off' : 'the public port speaks TLS';
  assert.deepEqual(counters.fastPaths, { http_listeners: reason, short_handshake: reason });
});

test('faults of the files are named, without the key or its passphrase', LIMIT, async (t) => {
  const { folder, cert, key, env } = await makeServerCertificate(t);
  const other = await makeCertificate(folder, 'other');
  const weak = await makeCertificate(folder, 'weak', { algorithm: ['rsa:512'] });
  const locked = await makeCertificate(folder, 'locked', { passphrase: 'hunter2' });
  const text = `${folder}/text.pem`;
  await writeFile(text, 'no PEM');
  /** @type {[Record<string, string>, RegExp][]} */
  const cases = [
    [{ ...env, TLS_CERT_FILE: '/none' }, /^TLS_CERT_FILE: cannot read \/none: ENOENT$/],
    [{ ...env, TLS_KEY_FILE: '/none' }, /^TLS_KEY_FILE: cannot read \/none: ENOENT$/],
    [{ ...env, TLS_CERT_FILE: text }, /^TLS_CERT_FILE: .*text.pem does not contain a certificate/],
    [{ ...env, TLS_KEY_FILE: text }, /^TLS_KEY_FILE: .*text.pem does not contain a private key/],
    [{ ...env, TLS_KEY_FILE: cert }, /^TLS_KEY_FILE: .*does not contain a private key/],
    [{ ...env, TLS_KEY_FILE: other.key }, /^TLS_KEY_FILE: the key does not match/],
    [{ TLS_CERT_FILE: weak.cert, TLS_KEY_FILE: weak.key }, /^TLS_CERT_FILE: OpenSSL refuses it/],
    [{ TLS_CERT_FILE: locked.cert, TLS_KEY_FILE: locked.key }, /^TLS_KEY_PASSPHRASE: required/],
    [
      { TLS_CERT_FILE: locked.cert, TLS_KEY_FILE: locked.key, TLS_KEY_PASSPHRASE: 'hunter3' },
      /^TLS_KEY_PASSPHRASE: does not decrypt/,
    ],
  ];
  for (const [given, expected] of cases) {
    const { certificate, faults } = certificateOf(given);
    assert.equal(certificate, null);
    assert.equal(faults.length, 1, faults.join('\n'));
    assert.match(faults[0], expected);
    assert.doesNotMatch(faults[0], /hunter|BEGIN/);
  }
  const opened = certificateOf({
    TLS_CERT_FILE: locked.cert,
    TLS_KEY_FILE: locked.key,
    TLS_KEY_PASSPHRASE: 'hunter2',
  });
  assert.deepEqual(opened.faults, []);
  assert.ok(key);
});

test('one of the two files alone, or a passphrase alone, is a fault', LIMIT, () => {
  assert.deepEqual(loadConfig({ TLS_CERT_FILE: 'a' }).faults, [
    'TLS_KEY_FILE: required with TLS_CERT_FILE',
  ]);
  assert.deepEqual(loadConfig({ TLS_KEY_FILE: 'a' }).faults, [
    'TLS_CERT_FILE: required with TLS_KEY_FILE',
  ]);
  assert.deepEqual(loadConfig({ TLS_KEY_PASSPHRASE: 'a' }).faults, [
    'TLS_KEY_PASSPHRASE: has no effect without TLS_KEY_FILE',
  ]);
});

test('the earliest end in the chain is the expiry', LIMIT, async (t) => {
  const { folder, authority } = await makeServerCertificate(t);
  const long = await makeCertificate(folder, 'long', { ca: authority, days: 300 });
  const chain = `${folder}/chain.pem`;
  await copyFile(long.cert, chain);
  await writeFile(chain, await readFile(authority.cert), { flag: 'a' });
  const { certificate } = certificateOf({ TLS_CERT_FILE: chain, TLS_KEY_FILE: long.key });
  const days = (Number(certificate?.expiresMs) - Date.now()) / 86_400_000;
  assert.ok(days > 1 && days < 2.1, `${days} days`);
});

test('an expired certificate, one for later and one that ends soon are warned about', LIMIT, () => {
  const certificate = { cert: '', key: '', passphrase: '', validFromMs: 1000, expiresMs: 2e10 };
  assert.match(certificateWarning(certificate, 2e10), /has expired/);
  assert.match(certificateWarning(certificate, 999), /not valid yet/);
  assert.match(certificateWarning(certificate, 2e10 - 86_400_000 / 2), /expires in 0.5 days/);
  assert.equal(certificateWarning(certificate, 1000), '');
});

test('a reload can change the files of TLS, but not turn TLS on or off', LIMIT, () => {
  const plain = serverConfigOf({});
  const one = serverConfigOf({ TLS_CERT_FILE: 'a', TLS_KEY_FILE: 'b' });
  const other = serverConfigOf({ TLS_CERT_FILE: 'c', TLS_KEY_FILE: 'd' });
  assert.deepEqual(changedFixed(one, other), []);
  assert.deepEqual(changedFixed(plain, one), ['TLS_CERT_FILE']);
  assert.deepEqual(changedFixed(one, plain), ['TLS_CERT_FILE']);
  assert.equal(isEqualExceptTls(one, other), true);
  const changed = serverConfigOf({
    TLS_CERT_FILE: 'a',
    TLS_KEY_FILE: 'b',
    ALLOWED_ORIGINS: 'http://a',
  });
  assert.equal(isEqualExceptTls(one, changed), false);
});
