// socket-listeners.test.js: a socket of the public port is heard from accept to close, whoever
// reads it: the short reader or Node's parser, the frame reader or ws.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AdmissionLease } from '../../src/admission/admission.js';
import { loadConfig } from '../../src/config/config.js';
import { HttpServer } from '../../src/transport/http-server.js';
import { Phase } from '../../src/worker/phase.js';
import { Turn } from '../../src/worker/turn.js';
import { FrameServer, frameBytes } from '../helpers/frame-server.js';
import { handshake, RawClient } from '../helpers/raw-http.js';

/** @typedef {import('node:test').TestContext} TestContext */

const limit = { timeout: 20_000 };
const HEAD = Buffer.from(handshake());
const WHOLE = {
  'in one piece': [HEAD],
  'in two pieces': [HEAD.subarray(0, 40), HEAD.subarray(40)],
};
const WAYS = { 'with fast paths': {}, 'without fast paths': { FANFARE_FAST_PATHS: 'off' } };
const text = (/** @type {string} */ body) =>
  frameBytes({ first: 0x81, body: Buffer.from(body), mask: 7 });
/** The first of two fragments: ws reads from here on. */
const FRAGMENT = frameBytes({ first: 0x01, body: Buffer.from('a'), mask: 7 });
/** @type {Readonly<Record<string, (client: RawClient) => void>>} */
const ENDS = {
  'closes its side': ({ socket }) => void socket.end(),
  'resets the connection': ({ socket }) => void socket.resetAndDestroy(),
  closes: ({ socket }) => void socket.destroy(),
};

/**
 * @param {TestContext} t @param {Record<string, string>} env
 * @param {() => AdmissionLease|Promise<AdmissionLease>} [admit]
 */
async function serve(t, env, admit = () => new AdmissionLease('', null)) {
  const settings = { FANFARE_LIMITS: 'off', PORT: '0', ...env };
  const { config } = loadConfig(settings);
  assert.ok(config);
  const server = new FrameServer(true, settings);
  const http = new HttpServer({
    config,
    admission: {
      admitHandshake: admit,
      admitPeer: () => null,
      peerOf: () => null,
      isShortOfDescriptors: false,
      health: /** @type {any} */ ({ descriptorLimit: 1000 }),
    },
    onUpgrade: (request, socket, head, { address }) =>
      server.websockets.upgrade(request, socket, head, address),
    readiness: () => null,
    phase: new Phase(),
    log: { debug() {}, error() {} },
    counters: server.counters,
    turn: new Turn(),
  });
  const { port } = await http.listen();
  t.after(() => http.close());
  return { server, http, connect: () => RawClient.connect(t, { port }) };
}

/** @param {() => boolean} condition */
async function until(condition) {
  const end = performance.now() + 5000;
  while (!condition()) {
    assert.ok(performance.now() < end, `in time: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

for (const [way, env] of Object.entries(WAYS))
  for (const [size, pieces] of Object.entries(WHOLE))
    for (const [name, end] of Object.entries(ENDS))
      test(`${way}: a client whose handshake came ${size} ${name}`, limit, async (t) => {
        const { server, http, connect } = await serve(t, env);
        for (const first of [null, FRAGMENT]) {
          server.told = [];
          const client = await connect();
          for (const piece of pieces) {
            client.write(piece);
            await new Promise((resolve) => setTimeout(resolve, 20));
          }
          assert.equal((await client.response()).status, 101);
          client.write(text('b'));
          await until(() => server.told.includes('text b'));
          if (first !== null) client.write(first);
          await new Promise((resolve) => setTimeout(resolve, 20));
          end(client);
          await until(() => http.openSockets === 0);
          assert.deepEqual(server.told, ['text b', 'removed']);
        }
      });

for (const [way, env] of Object.entries(WAYS))
  for (const size of [100, 40_000])
    test(`${way}: ${size} bytes that arrive before the answer are read`, limit, async (t) => {
      /** @type {(lease: AdmissionLease) => void} */
      let admit = () => {};
      const later = () =>
        new Promise((resolve) => {
          admit = resolve;
        });
      const { server, connect } = await serve(t, env, later);
      const client = await connect();
      client.write(HEAD);
      await new Promise((resolve) => setTimeout(resolve, 20));
      const early = ['x', 'y'].map((letter) => letter.repeat(size / 2));
      for (const body of early) client.write(text(body));
      await new Promise((resolve) => setTimeout(resolve, 20));
      admit(new AdmissionLease('', null));
      assert.equal((await client.response()).status, 101);
      client.write(text('late'));
      await until(() => server.told.length === 3);
      assert.deepEqual(
        server.told,
        [...early, 'late'].map((body) => `text ${body}`),
      );
    });

for (const [way, env] of Object.entries(WAYS))
  test(`${way}: a client that is not admitted yet is read up to a bound`, limit, async (t) => {
    const { http, connect } = await serve(t, env, () => new Promise(() => {}));
    /** @type {import('node:net').Socket|null} */
    let accepted = null;
    http.reader.acceptor.prependListener('connection', (socket) => {
      accepted = socket;
    });
    const client = await connect();
    client.write(HEAD);
    await new Promise((resolve) => setTimeout(resolve, 20));
    const sent = 32 << 20;
    client.write(Buffer.alloc(sent));
    await new Promise((resolve) => setTimeout(resolve, 300));
    const { bytesRead } = /** @type {import('node:net').Socket} */ (/** @type {any} */ (accepted));
    assert.ok(bytesRead > HEAD.length && bytesRead < 262_144, `${bytesRead} of ${sent} read`);
  });
