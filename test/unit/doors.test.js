// doors.test.js: a door beside the native one: its path, its texts, its closes, and the members of
// one room who have come through different doors.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import WebSocket from 'ws';
import { Admission } from '../../src/admission/admission.js';
import { loadDoors } from '../../src/doors/index.js';
import { Heartbeat } from '../../src/hub/heartbeat.js';
import { CLOSES } from '../../src/protocol/codes.js';
import { FORMAT } from '../../src/protocol/format.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { refusal } from '../../src/protocol/refusal.js';
import { HttpServer } from '../../src/transport/http-server.js';
import { WebSockets } from '../../src/transport/websocket.js';
import { Phase } from '../../src/worker/phase.js';
import { Turn } from '../../src/worker/turn.js';
import { configOf } from '../helpers/config.js';
import { buildHub, confirmAtOnce, noHistory, QUIET } from '../helpers/hub.js';
import { handshake, RawClient } from '../helpers/raw-http.js';

/** @import { OpenDoor } from '../../src/doors/contract.js' */

const silent = { debug() {}, warn() {}, error() {} };

/**
 * A door whose texts are words. It answers messages in capitals.
 * @param {import('../../src/hub/hub.js').Hub} hub
 * @returns {Omit<OpenDoor, 'streams'> & {told: string[]}}
 */
function toyDoor(hub) {
  const told = /** @type {string[]} */ ([]);
  return {
    told,
    route: (path) => (path === '/toy' ? 'websocket' : path === '/toys' ? 'api' : null),
    door: {
      name: 'toy',
      usesTokens: false,
      takesState: false,
      repeatsJoins: false,
      backendJoins: 'none',
      entered() {},
      expelled() {},
      format: FORMAT.FRAMES,
      subprotocol: '',
      mayDeflate: false,
      encodeError: ({ code }) => (code === 'NOT_IN_ROOM' ? null : `error ${code}`),
      encodeLeft: (room, reason) => `left ${room} ${reason}`,
      encodeShutdown: () => null,
      encodeDegraded: () => null,
      closeOf: ({ code }) =>
        code === CLOSES.DRAIN.code
          ? { code: 4200, reason: 'again', notice: 'bye' }
          : { code: 4100, reason: 'no' },
      takesRefusal: ({ code }) => code === 'service_unavailable',
      open(connection, { url = '' }, credentials) {
        told.push(`open ${url}`);
        if (credentials === null) return hub.addConnection(connection);
        told.push(`refused ${credentials.refusal?.code}`);
        connection.close(CLOSES.DRAIN);
      },
      closed(connection) {
        told.push('closed');
        hub.removeConnection(connection);
      },
      receive: (connection, text) => connection.send(String(text).toUpperCase()),
      receiveBinary: (connection, bytes) => connection.send(`${bytes.length} bytes`),
    },
    api: {
      begin: ({ headers }) =>
        headers.authorization === undefined
          ? { status: 401, headers: {}, body: '{"error":"toy"}' }
          : { endConnection() {} },
      handle: (_call, _request, response) => void response.end('toys'),
    },
    sweep() {},
    drain: async () => {},
    close() {},
  };
}

/** @param {import('node:test').TestContext} t @param {Record<string, string>} [env] */
async function start(t, env = {}) {
  const config = configOf({ PORT: '0', HOST: '127.0.0.1', FANFARE_LIMITS: 'off', ...env });
  const broker = {
    subscribe: async () => {},
    unsubscribe() {},
    reportConnections() {},
    countConnections: async () => 0,
    history: noHistory,
    publish: async (/** @type {string} */ room, /** @type {Buffer} */ publication) =>
      hub.broadcast(room, publication),
  };
  const parts = buildHub({ config, broker });
  confirmAtOnce(parts.hub);
  const { hub, counters, commands } = parts;
  const heartbeat = new Heartbeat({ intervalMs: 30_000, timeoutMs: 10_000, counters });
  const turn = new Turn();
  const shared = { config, counters, turn };
  const websockets = new WebSockets({ ...shared, hub, door: commands.door, heartbeat });
  const health = { lagMs: () => 0, heapPercent: () => 0, openDescriptors: () => 0 };
  const toy = toyDoor(hub);
  const admission = new Admission({
    config,
    addresses: /** @type {any} */ (null),
    health: { ...health, descriptorLimit: 20_000 },
    counters,
    now: () => performance.now(),
  });
  const server = new HttpServer({
    ...shared,
    admission,
    doors: env.TOY === 'off' ? [] : [toy],
    onUpgrade: (request, socket, head, { address, credentials }, door) =>
      websockets.upgrade(request, socket, head, address, credentials, door?.door),
    readiness: () => null,
    phase: new Phase(),
    log: silent,
  });
  const { port } = await server.listen();
  t.after(async () => {
    for (const { transport } of [...hub.connections]) transport.terminate();
    await server.close();
  });
  /** @param {string} path @param {string[]} [protocols] @param {import('ws').ClientOptions} [options] */
  const connect = async (path, protocols = [], options) => {
    const client = new WebSocket(`ws://127.0.0.1:${port}${path}`, protocols, options);
    t.after(() => client.terminate());
    /** @type {string[]} */
    const texts = [];
    client.on('message', (data) => texts.push(String(data)));
    await once(client, 'open');
    const connection = hub.connections[hub.connections.length - 1];
    return { client, texts, connection };
  };
  const ask = async (/** @type {string} */ bytes) => {
    const client = await RawClient.connect(t, { port });
    client.write(bytes);
    while (!client.bytes.includes('\r\n\r\n')) await new Promise(setImmediate);
    return client.bytes.toString('latin1');
  };
  return { ...parts, admission, toy, connect, ask };
}

/** @param {() => boolean} condition */
async function until(condition) {
  const end = performance.now() + 5000;
  while (!condition()) {
    assert.ok(performance.now() < end, `${condition}`);
    await new Promise(setImmediate);
  }
}

const get = (/** @type {string} */ path, /** @type {string} */ headers = '') =>
  `GET ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`;

for (const path of ['lazy ws', 'ws']) {
  const env = /** @type {Record<string, string>} */ (
    path === 'ws' ? { FANFARE_FAST_PATHS: 'off' } : {}
  );

  test(`a path chooses the door, which gets the messages of its connections (${path})`, async (t) => {
    const { connect, toy, hub } = await start(t, env);
    const { client, texts } = await connect('/toy?key=1');
    const native = await connect('/ws');
    client.send('hello');
    native.client.send('{"type":"ping"}');
    await until(() => texts.length === 1 && native.texts.length === 1);
    assert.deepEqual(texts, ['HELLO']);
    assert.equal(JSON.parse(native.texts[0]).type, 'pong');
    client.close();
    await until(() => hub.connections.length === 1);
    assert.deepEqual(toy.told, ['open /toy?key=1', 'closed']);
  });

  test(`a door without compression and subprotocol selects neither (${path})`, async (t) => {
    const { connect } = await start(t, { ...env, FANFARE_COMPRESSION: 'on' });
    const toy = await connect('/toy', ['fanfare', 'other'], { perMessageDeflate: true }).catch(
      (error) => error,
    );
    // ws refuses an answer that selects none of its subprotocols.
    assert.match(String(toy), /no subprotocol/);
    const plain = await connect('/toy', [], { perMessageDeflate: true });
    assert.deepEqual([plain.client.extensions, plain.client.protocol], ['', '']);
    const native = await connect('/ws', ['fanfare'], { perMessageDeflate: true });
    assert.match(native.client.extensions, /permessage-deflate/);
    assert.equal(native.client.protocol, 'fanfare');
  });
}

test('a binary message goes to the door; the native one closes with 1003', async (t) => {
  const { connect } = await start(t);
  const toy = await connect('/toy');
  toy.client.send(Buffer.alloc(3));
  await until(() => toy.texts.length === 1);
  assert.deepEqual(toy.texts, ['3 bytes']);
  const native = await connect('/ws');
  native.client.send(Buffer.alloc(3));
  assert.equal((await once(native.client, 'close'))[0], 1003);
});

test('errors, leaves and closes are said in the words of the door', async (t) => {
  const { connect, operations, hub } = await start(t);
  const { client, texts, connection } = await connect('/toy');
  operations.replies.error(connection, 'NOT_IN_ROOM', undefined); // it has no words for it
  operations.replies.error(connection, 'PERMISSION_DENIED', undefined);
  hub.join(connection, 'r', QUIET);
  assert.equal(operations.joins.remove(connection, 'r'), true);
  await new Promise(setImmediate); // its join is answered first
  assert.equal(connection.announceShutdown(1000), false);
  connection.close(CLOSES.DRAIN);
  const [code, reason] = await once(client, 'close');
  assert.deepEqual([code, String(reason)], [4200, 'again']);
  assert.deepEqual(texts, ['error PERMISSION_DENIED', 'left r removed', 'bye']);
  const other = await connect('/toy');
  other.connection.close(CLOSES.KICKED);
  assert.equal((await once(other.client, 'close'))[0], 4100);
});

test('what the native door says is as before', async (t) => {
  const { connect, operations, hub } = await start(t);
  const { client, texts, connection } = await connect('/ws');
  operations.replies.refuse(connection, refusal('PERMISSION_DENIED'), 7);
  hub.join(connection, 'r', QUIET);
  operations.joins.remove(connection, 'r');
  await new Promise(setImmediate);
  assert.equal(connection.announceShutdown(1000), true);
  connection.close(CLOSES.DRAIN);
  const [code, reason] = await once(client, 'close');
  assert.deepEqual([code, String(reason)], [1012, 'service restart']);
  const [error, left, shutdown, ...others] = texts.map((text) => JSON.parse(text));
  assert.deepEqual([error.type, error.error, error.id], ['error', 'PERMISSION_DENIED', 7]);
  assert.deepEqual(left, { type: 'left', room: 'r', reason: 'removed' });
  assert.equal(shutdown.type, 'SERVER_SHUTDOWN');
  assert.equal(shutdown.reconnectAfterMs, 1000);
  assert.deepEqual(others, []);
});

test('members of one room come through different doors', async (t) => {
  const { connect, hub } = await start(t);
  const toy = await connect('/toy');
  const native = await connect('/ws');
  for (const { connection } of [toy, native]) hub.join(connection, 'r', QUIET);
  const payload = Buffer.from('"hi"');
  hub.broadcast('r', encodePublication(KIND.MESSAGE, 1, 0, 'ann', payload, 0, payload.length));
  await until(() => toy.texts.length + native.texts.length === 2);
  assert.deepEqual(toy.texts, native.texts);
});

test('a door may refuse inside the WebSocket what admission has refused', async (t) => {
  const { ask, admission, counters, toy } = await start(t);
  const refuse = (/** @type {import('../../src/protocol/codes.js').RefusalCode} */ code) => {
    admission.admitHandshake = () => refusal(code);
  };
  const upgrade = (/** @type {string} */ path) => ask(handshake({ target: path }));
  refuse('service_unavailable');
  assert.match(await upgrade('/toy'), /^HTTP\/1\.1 101 /);
  assert.deepEqual(toy.told.slice(0, 2), ['open /toy', 'refused service_unavailable']);
  assert.match(await upgrade('/ws'), /^HTTP\/1\.1 503 /, 'the native door');
  refuse('memory');
  assert.match(await upgrade('/toy'), /^HTTP\/1\.1 503 /, 'the door does not want it');
  assert.equal(counters.connections, 0);
});

test('a backend cannot join a connection of a door that does not use tokens', async (t) => {
  const { connect, operations } = await start(t);
  const { connection } = await connect('/toy');
  assert.equal(operations.joins.joinAs(connection, 'r', 'ann'), false);
  assert.equal(connection.roomCount, 0);
});

test('a path that belongs to no loaded door is not found', async (t) => {
  const { ask } = await start(t, { TOY: 'off' });
  assert.match(await ask(handshake({ target: '/toy' })), /^HTTP\/1.1 404 /);
  assert.match(await ask(get('/toys')), /^HTTP\/1.1 404 /);
});

test('the HTTP API of a door is reached by its path, and the native one stays where it is', async (t) => {
  const { ask } = await start(t);
  assert.match(await ask(get('/toys')), /^HTTP\/1.1 401 .*{"error":"toy"}$/s);
  assert.match(await ask(get('/toys', 'Authorization: x\r\n')), /^HTTP\/1.1 200 /);
  assert.match(await ask(get('/toy')), /^HTTP\/1.1 426 /);
  assert.match(await ask(get('/api/rooms')), /^HTTP\/1.1 404 /);
  assert.match(await ask(handshake({ target: '/toys' })), /^HTTP\/1.1 401 /);
});

test('ALLOWED_ORIGINS holds for every door', async (t) => {
  const { ask } = await start(t, { ALLOWED_ORIGINS: 'https://a.example' });
  const headers = { Origin: 'https://b.example' };
  assert.match(await ask(handshake({ target: '/ws', headers })), /^HTTP\/1.1 403 /);
  assert.match(await ask(handshake({ target: '/toy', headers })), /^HTTP\/1.1 403 /);
});

test('only wanted doors are loaded', async () => {
  const config = configOf({});
  const load = async () => () => toyDoor(/** @type {any} */ (null));
  const never = { isWanted: () => false, load: () => assert.fail('loaded') };
  const kinds = [never, { isWanted: () => true, load }];
  assert.equal((await loadDoors(config, kinds)).length, 1);
  assert.deepEqual(await loadDoors(config), []);
});
