// door-streams.test.js: streams of a door beside the native one: the request with its body, the
// answers and refusals, and the messages (transport/door-streams.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission } from '../../src/admission/admission.js';
import { OWN_DESCRIPTORS } from '../../src/config/system-limits.js';
import { Heartbeat } from '../../src/hub/heartbeat.js';
import { CLOSES } from '../../src/protocol/codes.js';
import { FORMAT } from '../../src/protocol/format.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { refusal } from '../../src/protocol/refusal.js';
import { DoorStreams } from '../../src/transport/door-streams.js';
import { HttpServer } from '../../src/transport/http-server.js';
import { Phase } from '../../src/worker/phase.js';
import { Turn } from '../../src/worker/turn.js';
import { serverConfigOf } from '../helpers/config.js';
import { buildHub, confirmAtOnce, noHistory, QUIET } from '../helpers/hub.js';
import { RawClient } from '../helpers/raw-http.js';

/** @import { StreamDoor } from '../../src/hub/door.js' */

const limit = { timeout: 20_000 };
const silent = { debug() {}, warn() {}, error() {} };
const MAX_BODY = 1000;

/** @type {import('../../src/protocol/door-texts.js').DoorTexts} */
const texts = {
  name: 'toy',
  usesTokens: true,
  takesState: false,
  repeatsJoins: false,
  backendJoins: 'none',
  entered() {},
  expelled() {},
  encodeError: ({ code }) => `error ${code}`,
  encodeLeft: (room, reason) => `left ${room} ${reason}`,
  encodeShutdown: () => null,
  encodeDegraded: () => null,
  closeOf: ({ code, reason }) => ({ code, reason }),
};

/**
 * A door whose streams say their first message in capitals.
 * @param {import('../../src/hub/hub.js').Hub} hub
 * @returns {StreamDoor & {told: string[]}}
 */
function toyDoor(hub) {
  const told = /** @type {string[]} */ ([]);
  return {
    told,
    rules: texts,
    allow: 'GET, POST',
    maxBodyBytes: MAX_BODY,
    allowsCredentials: true,
    formOf: () => ({
      texts,
      format: FORMAT.EVENTS,
      contentType: 'text/toy',
      opening: 'hello\n',
      frame: (message) => Buffer.from(`<${message}>\n`),
      ending: (code, reason) => Buffer.from(`end ${code} ${reason}\n`),
    }),
    firstOf: ({ url = '' }, body) => {
      const first = url.includes('?') ? url.slice(url.indexOf('?') + 1) : String(body);
      return first === '' ? refusal('bad_request', 'No first message.') : Buffer.from(first);
    },
    openStream(connection, { method }, _credentials, first) {
      told.push(`open ${method} ${first}`);
      hub.addConnection(connection);
      connection.send(String(first).toUpperCase());
    },
    ping: (connection) => {
      connection.send('ping');
      return true;
    },
    closed(connection) {
      told.push('closed');
      hub.removeConnection(connection);
    },
  };
}

/** @param {import('node:test').TestContext} t @param {Record<string, string>} [env] */
async function start(t, env = {}) {
  const config = serverConfigOf(env);
  const broker = {
    subscribe: async () => {},
    unsubscribe() {},
    reportConnections() {},
    countConnections: async () => 0,
    history: noHistory,
    publish: async () => {},
  };
  const { hub, counters } = buildHub({ config, broker });
  confirmAtOnce(hub);
  const heartbeat = new Heartbeat({ intervalMs: 30_000, timeoutMs: 10_000, counters });
  const toy = toyDoor(hub);
  const health = {
    lagMs: () => 0,
    heapPercent: () => 0,
    openDescriptors: () => counters.sockets + OWN_DESCRIPTORS,
    descriptorLimit: 20_000,
  };
  const phase = new Phase();
  const server = new HttpServer({
    config,
    admission: new Admission({
      config,
      addresses: { acquire: async () => ({ admitted: true, connections: 1 }), release() {} },
      health,
      counters,
      now: () => performance.now(),
    }),
    doors: [
      {
        route: (path) => (path === '/toy' ? 'stream' : null),
        door: /** @type {any} */ (null),
        streams: new DoorStreams({ config, hub, heartbeat, door: toy, counters }),
        api: null,
      },
    ],
    onUpgrade: (_request, socket) => void socket.destroy(),
    readiness: () => null,
    phase,
    log: silent,
    counters,
    turn: new Turn(),
  });
  const { port } = await server.listen();
  t.after(async () => {
    for (const { transport } of [...hub.connections]) transport.terminate();
    await server.close();
  });
  const dial = (/** @type {string|void} */ localAddress) =>
    RawClient.connect(t, { port, localAddress: localAddress || undefined });
  /** @param {string} bytes */
  const ask = async (bytes) => (await dial()).write(bytes).response();
  return { hub, counters, toy, server, phase, heartbeat, dial, ask };
}

/** @param {() => boolean} condition */
async function until(condition) {
  const end = performance.now() + 5000;
  while (!condition()) {
    assert.ok(performance.now() < end, `not in time: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** @param {string} body @param {string} [headers] */
const post = (body, headers = '') =>
  `POST /toy HTTP/1.1\r\nHost: x\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`;

/** @param {RawClient} client */
const textOf = ({ bytes }) => bytes.toString('latin1');

for (const paths of ['on', 'off']) {
  const env = { FANFARE_FAST_PATHS: paths };

  test(`a body of any shape opens a stream (fast paths ${paths})`, limit, async (t) => {
    const { dial, toy, hub } = await start(t, env);
    const chunked = 'POST /toy HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
    const whole = post('whole');
    for (const parts of [
      [whole],
      [whole.slice(0, 20), whole.slice(20, -2), whole.slice(-2)],
      [`${chunked}2\r\nwh\r\n`, '3\r\nole\r\n0\r\n\r\n'],
    ]) {
      const client = await dial();
      for (const [index, part] of parts.entries()) {
        client.write(part);
        if (index < parts.length - 1) await new Promise((resolve) => setTimeout(resolve, 20));
      }
      await until(() => textOf(client).includes('<WHOLE>\n'));
      assert.match(textOf(client), /^HTTP\/1\.1 200 OK\r\nContent-Type: text\/toy\r\n/);
      assert.match(textOf(client), /\r\n\r\nhello\n<WHOLE>\n$/);
      client.socket.destroy();
      await until(() => hub.connections.length === 0);
    }
    assert.deepEqual(toy.told, Array(3).fill(['open POST whole', 'closed']).flat());
  });

  test(
    `a stream may follow plain HTTP, and nothing may follow it (fast paths ${paths})`,
    limit,
    async (t) => {
      const { dial, toy, hub, counters } = await start(t, env);
      const client = await dial();
      client.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n');
      assert.equal((await client.response()).status, 200);
      const request = post('later');
      client.write(request.slice(0, -2));
      await new Promise((resolve) => setTimeout(resolve, 20));
      client.write(`${request.slice(-2)}GET /livez HTTP/1.1\r\nHost: x\r\n\r\n`);
      await until(() => textOf(client).includes('<LATER>'));
      await new Promise((resolve) => setTimeout(resolve, 20));
      assert.equal(textOf(client).match(/HTTP\/1\.1/g)?.length, 1);
      assert.equal(hub.connections.length, 1);
      client.write('x'.repeat(100_000));
      await client.closed();
      await until(() => toy.told.includes('closed'));
      assert.equal(counters.connections, 0);
    },
  );

  test(
    `a body that is too large is refused, announced or not (fast paths ${paths})`,
    limit,
    async (t) => {
      const { ask, dial, toy, counters } = await start(t, env);
      const large = 'x'.repeat(MAX_BODY + 1);
      assert.equal((await ask(post(large).slice(0, 80))).status, 413);
      const client = await dial();
      client.write(
        `POST /toy HTTP/1.1\r\nHost: x\r\nOrigin: https://a.test\r\nTransfer-Encoding: chunked\r\n\r\n${large.length.toString(16)}\r\n${large}\r\n`,
      );
      const { status, headers } = await client.response();
      assert.equal(status, 413);
      assert.equal(headers['access-control-allow-origin'], '*');
      assert.deepEqual(toy.told, []);
      assert.equal(counters.refused.bad_request, 2);
    },
  );
}

test('100 Continue is sent to a client that waits for it', limit, async (t) => {
  const { dial } = await start(t);
  const client = await dial();
  const request = post('asked', 'Expect: 100-continue\r\n');
  client.write(request.slice(0, -5));
  await until(() => textOf(client).startsWith('HTTP/1.1 100 Continue\r\n\r\n'));
  client.write(request.slice(-5));
  await until(() => textOf(client).includes('<ASKED>'));
});

test('a request without a message, with another method or path is refused', limit, async (t) => {
  const { ask, toy } = await start(t);
  assert.equal(
    (await ask('POST /toy HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n')).status,
    400,
  );
  const { status, headers } = await ask('DELETE /toy HTTP/1.1\r\nHost: x\r\n\r\n');
  assert.deepEqual([status, headers.allow], [405, 'GET, POST, OPTIONS']);
  assert.equal((await ask('GET /toy/x?a HTTP/1.1\r\nHost: x\r\n\r\n')).status, 404);
  assert.deepEqual(toy.told, []);
});

test(
  'a GET has its message in the query, and pages of listed origins may ask',
  limit,
  async (t) => {
    const { ask, dial, toy } = await start(t, { ALLOWED_ORIGINS: 'https://a.test' });
    const preflight = await ask(
      'OPTIONS /toy HTTP/1.1\r\nHost: x\r\nOrigin: https://a.test\r\n\r\n',
    );
    assert.equal(preflight.status, 204);
    assert.equal(preflight.headers['access-control-allow-methods'], 'GET, POST');
    assert.equal(preflight.headers['access-control-allow-origin'], 'https://a.test');
    assert.equal(preflight.headers['access-control-allow-credentials'], 'true');
    const foreign = await ask('GET /toy?a HTTP/1.1\r\nHost: x\r\nOrigin: https://b.test\r\n\r\n');
    assert.equal(foreign.status, 403);
    assert.equal(foreign.headers['access-control-allow-origin'], undefined);
    const client = await dial();
    client.write('GET /toy?first HTTP/1.1\r\nHost: x\r\nOrigin: https://a.test\r\n\r\n');
    await until(() => textOf(client).includes('<FIRST>'));
    assert.match(textOf(client), /\r\nAccess-Control-Allow-Origin: https:\/\/a\.test\r\n/);
    assert.deepEqual(toy.told, ['open GET first']);
  },
);

test(
  'publications, errors and the close reach the stream in the words of the door',
  limit,
  async (t) => {
    const { dial, hub, toy } = await start(t);
    const client = await dial();
    client.write(post('a'));
    await until(() => hub.connections.length === 1);
    const [connection] = hub.connections;
    hub.join(connection, 'news', QUIET);
    const source = Buffer.from('{"n":1}');
    hub.broadcast('news', encodePublication(KIND.MESSAGE, 1, 0, 'ann', source, 0, source.length));
    await until(() => textOf(client).includes('"payload":{"n":1}'));
    assert.equal(connection.announceShutdown(1000), false);
    connection.sendAround(Buffer.from('('), source, 0, 7, ')');
    connection.close(CLOSES.DRAIN);
    await client.closed();
    assert.ok(textOf(client).endsWith(`<({"n":1})>\nend 1012 ${CLOSES.DRAIN.reason}\n`));
    await until(() => toy.told.at(-1) === 'closed');
  },
);

test('a client that answers no ping of the door is closed', limit, async (t) => {
  const { dial, hub, heartbeat, counters } = await start(t);
  const client = await dial();
  client.write(post('a'));
  await until(() => hub.connections.length === 1);
  const steps = heartbeat.places.length + heartbeat.timeoutPlaces;
  for (let i = 1; i <= steps; i++) heartbeat.pingDue(i * heartbeat.stepMs);
  await until(() => textOf(client).includes('<ping>'));
  await client.closed();
  assert.equal(counters.heartbeatTimeouts, 1);
});

test('a body that does not come in time is refused with 408', limit, async (t) => {
  const { dial, toy, counters } = await start(t, { FANFARE_HANDSHAKE_TIMEOUT_MS: '300' });
  const client = await dial();
  client.write(post('slow').slice(0, -1));
  assert.equal((await client.response()).status, 408);
  // The time of a kept-alive connection begins with its request.
  const kept = await dial();
  kept.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n');
  await kept.response();
  await new Promise((resolve) => setTimeout(resolve, 400));
  kept.write(post('slow').slice(0, -1));
  assert.equal((await kept.response()).status, 408);
  assert.deepEqual(toy.told, []);
  assert.equal(counters.refused.handshake_timeout, 2);
});

test('of many unfinished bodies, those of the address with most give way', limit, async (t) => {
  const { dial, counters } = await start(t, {
    FANFARE_LIMITS: 'off,handshakes=enforce',
    FANFARE_MAX_HANDSHAKES: '5000',
  });
  const innocent = await dial('127.0.0.1');
  innocent.write(post('mine').slice(0, -2));
  const flood = await Promise.all(Array.from({ length: 1040 }, () => dial('127.0.0.2')));
  for (const client of flood) client.write(post('flood').slice(0, -2));
  await until(() => flood.filter(({ isClosed }) => isClosed).length >= 17);
  assert.equal(counters.idleClosed.handshakes, 17);
  innocent.write('ne');
  await until(() => textOf(innocent).includes('<MINE>'));
});

test('a draining worker refuses the request whose body it has read', limit, async (t) => {
  const { dial, server, phase } = await start(t);
  const client = await dial();
  client.write(post('late').slice(0, -1));
  await until(() => server.handshakes === 1);
  await new Promise((resolve) => setTimeout(resolve, 20));
  phase.advance('draining');
  server.stopAccepting();
  client.write('e');
  assert.equal((await client.response()).status, 503);
});
