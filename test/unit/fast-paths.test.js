// fast-paths.test.js: each fast path is in use if all its private fields exist. If a field is
// hidden, the server works without it, and the metric says so.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { AdmissionLease } from '../../src/admission/admission.js';
import { loadConfig } from '../../src/config/config.js';
import { HttpServer } from '../../src/transport/http-server.js';
import { Phase } from '../../src/worker/phase.js';
import { Turn } from '../../src/worker/turn.js';
import { FrameServer, frameBytes } from '../helpers/frame-server.js';
import { FIELDS, isOff } from '../helpers/hidden/fields.js';
import { passWithout } from '../helpers/hidden/without.js';
import { RawClient } from '../helpers/raw-http.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const hidden = process.env.TEST_HIDDEN_FIELD;
const TRANSPORT = /** @type {const} */ ([
  'direct_write',
  'shared_reads',
  'http_listeners',
  'short_handshake',
]);

test('each fast path of the transport is in use, except a hidden one', async (t) => {
  const paths = await serve(t, {});
  const unused = TRANSPORT.filter((name) => paths[name] !== '');
  const expected = TRANSPORT.filter((name) => isOff(name));
  assert.deepEqual(unused, expected, JSON.stringify(paths));
});

test('FANFARE_FAST_PATHS=off uses none of them', async (t) => {
  const paths = await serve(t, { FANFARE_FAST_PATHS: 'off' });
  for (const name of TRANSPORT) assert.equal(paths[name], 'FANFARE_FAST_PATHS is off');
});

for (const [name, field] of Object.entries(FIELDS)) {
  test(`with ${name} hidden, a server answers, and the fast path is not in use`, {
    skip: hidden === undefined ? false : 'a field is hidden already',
    timeout: 30_000,
  }, async () => {
    assert.ok(readFileSync(`${root}${field.file}`, 'utf8').includes(field.text));
    if (field.path.startsWith('redis_')) return; // test/contract runs them on a Redis
    await passWithout(name, 'test/unit/fast-paths.test.js', [
      'each fast path of the transport is in use, except a hidden one',
    ]);
  });
}

/**
 * Names that only private parts of Node, ws and ioredis have: a leading underscore, a symbol of
 * Node's, symbols of an object, listeners that another one has set.
 */
const PRIVATE =
  /\._[a-z]\w*|\['_[a-z]|\bk[A-Z]\w+\b|getOwnPropertySymbols|\bdescription === |\.listeners\(|\brawListeners\(|process\.binding|\buseUserBuffer\b/;
/** Lines that look like it and are not. */
const FAIR = Object.freeze([
  'src/hub/connection.js', // a field of its own
  'src/backend/redis/data-loss.js', // see src/transport/fast/README.md
]);

/** @param {string} source */
function privateUses(source) {
  const code = source
    .replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, ' ')
    .replace(/'[^'\n]*'/g, (text) => (text.startsWith("'_") ? text : "''"));
  return code.split('\n').filter((line) => PRIVATE.test(line));
}

/** @param {string} file */
function sourceOf(file) {
  const source = readFileSync(`${root}${file}`, 'utf8');
  return file.startsWith('src/client/') ? withoutOwnNames(source) : source;
}

/**
 * The client's modules share names with an underscore, which the build shortens.
 * @param {string} source
 */
function withoutOwnNames(source) {
  return source.replace(/\._[a-z]\w*/g, (use) => (OF_CLIENT.has(use.slice(1)) ? '' : use));
}

/** Names that a module of the client declares: its own fields and methods, members of a typedef. */
const OF_CLIENT = new Set(
  readdirSync(`${root}src/client`, { recursive: true })
    .map((file) => `${root}src/client/${file}`)
    .filter((path) => path.endsWith('.js') && !path.includes('/node_modules/'))
    .flatMap((path) => [
      ...readFileSync(path, 'utf8').matchAll(
        /(?:^ +(?:async |get |set )?|this\.|@property \{.*\} \[?)(_[a-z]\w*)(?=\]?$|[\] ;=(,])/gm,
      ),
    ])
    .map(([, name]) => name),
);

test('only the fast folders use private fields of Node, ws and ioredis', () => {
  const files = readdirSync(`${root}src`, { recursive: true })
    .map((file) => `src/${file}`)
    .filter((file) => file.endsWith('.js') && !file.includes('/fast/') && !FAIR.includes(file));
  assert.ok(files.length > 50);
  const found = files.flatMap((file) =>
    privateUses(sourceOf(file)).map((line) => `${file}: ${line.trim()}`),
  );
  assert.deepEqual(found, []);
});

for (const fault of [
  'const { fd } = socket._handle;',
  'socket._handle?.fd',
  "socket['_handle']",
  'Object.getOwnPropertySymbols(socket)',
  'symbols.find(({ description }) => description === name)',
  'socket[kBuffer] = shared;',
  "socket.listeners('data')[0]",
  'handle.useUserBuffer(shared);',
  'stream._writableState.ended',
]) {
  test(`the check finds ${fault}`, () => assert.equal(privateUses(fault).length, 1));
}

test('the check ignores comments, strings and own names', () => {
  for (const fair of [
    '// socket._handle',
    "const text = 'socket._handle';",
    'this.#handle',
    'keep(kind)',
  ])
    assert.deepEqual(privateUses(fair), [], fair);
});

/**
 * Runs a server and lets it answer a client, over HTTP and as a WebSocket.
 * @param {import('node:test').TestContext} t
 * @param {Record<string, string>} env
 * @returns {Promise<Record<string, string|undefined>>} its fast paths
 */
async function serve(t, env) {
  const { config } = loadConfig({ FANFARE_LIMITS: 'off', ...env });
  assert.ok(config);
  const server = new FrameServer(true, { FANFARE_LIMITS: 'off', ...env });
  const http = new HttpServer({
    config,
    admission: {
      admitHandshake: () => new AdmissionLease('', null),
      admitPeer: () => null,
      peerOf: () => null,
      isShortOfDescriptors: false,
      health: /** @type {any} */ ({ descriptorLimit: 1000 }),
    },
    onUpgrade(request, socket, head, { address }) {
      server.socket = socket;
      server.websockets.upgrade(request, socket, head, address);
    },
    readiness: () => null,
    phase: new Phase(),
    log: { debug() {}, error() {} },
    counters: server.counters,
    turn: new Turn(),
  });
  server.server = /** @type {import('node:http').Server} */ (http.reader.acceptor);
  await server.start();
  t.after(() => http.close());
  const client = await RawClient.connect(t, { port: server.port });
  client.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
  assert.equal((await client.response()).status, 200);
  const text = Buffer.from('hello');
  const { told, bytes } = await server.converse([
    frameBytes({ first: 0x81, body: text, mask: 7 }),
    frameBytes({ first: 0x01, body: text, mask: 7 }), // a fragment: ws reads it
    frameBytes({ first: 0x80, body: text, mask: 7 }),
  ]);
  assert.deepEqual(told, ['text hello', 'text hellohello', 'removed']);
  assert.equal(bytes, '\x81\x05got 5\x81\x06got 10');
  return server.counters.fastPaths;
}
