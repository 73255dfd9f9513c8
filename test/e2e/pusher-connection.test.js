// pusher-connection.test.js: frames of the Pusher door as they go over the wire: the first frame,
// refusals, liveness, bad input.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { startServer } from '../harness/server.js';
import { makeServerCertificate } from '../helpers/certificates.js';
import { handshakeStatus } from '../helpers/clients.js';
import {
  APP,
  connectPusher,
  openPusher,
  PusherClient,
  sharedPusher,
  signedQuery,
  startPusher,
} from '../helpers/pusher.js';
import { shared } from '../helpers/shared.js';

const OPTIONS = { timeout: 60_000 };
const WITHIN_MS = 5000;
const start = sharedPusher(
  {
    patient: { activityTimeout: 77 },
    homely: { origins: ['https://good.example'] },
    disabled: { enabled: false },
    tls: { tlsOnly: true },
    full: { maxConnections: 1 },
    busy: { maxConnections: 1, quotaCode: 4100 },
    open: {},
  },
  {
    TRUST_PROXY: '10.0.0.0/8',
    JWT_SECRET: 'x'.repeat(32),
    FANFARE_MAX_MESSAGE_BYTES: '20000',
    FANFARE_PUSHER_PATH: '/rt/v1/',
  },
);

/** The app of this one comes from three variables. */
const limited = shared((owner) =>
  startServer(owner, {
    WORKERS: '1',
    FANFARE_PUSHER_APP_ID: APP.id,
    FANFARE_PUSHER_APP_KEY: APP.key,
    FANFARE_PUSHER_APP_SECRET: APP.secret,
    FANFARE_LIMITS: 'enforce,messages_per_ip=off',
    FANFARE_MESSAGES_RATE: '1/min burst 5',
    FANFARE_MAX_REFUSED_MESSAGES: '20',
    FANFARE_RECONNECT_WINDOW_MS: '1000',
  }),
);

/**
 * The error and the code with which a connection is refused inside of its WebSocket.
 * @param {PusherClient} client
 */
async function refusalOf(client) {
  await client.closed();
  const [{ event, data }] = client.messages;
  assert.equal(event, 'pusher:error', client.texts[0]);
  assert.equal(typeof data.message, 'string');
  assert.notEqual(data.message, '');
  assert.equal(client.messages.length, 1);
  return [data.code, client.close?.code];
}

test(
  'the first frame has a socket id of the form 1.2, and the activity timeout',
  OPTIONS,
  async (t) => {
    const { connect } = await start(t, 'patient');
    const clients = [await connect(), await connect(), await connect(), await connect()];
    for (const { texts, socketId } of clients) {
      assert.match(socketId, /^\d+\.\d+$/);
      const data = JSON.stringify(JSON.stringify({ socket_id: socketId, activity_timeout: 77 }));
      assert.deepEqual(texts, [`{"event":"pusher:connection_established","data":${data}}`]);
    }
    assert.equal(new Set(clients.map(({ socketId }) => socketId)).size, 4, 'over both workers');
  },
);

describe('refusals', () => {
  test('of the app stay inside of the WebSocket, with their code', OPTIONS, async (t) => {
    const { port } = await start(t);
    const open = (/** @type {string} */ key, /** @type {string} [query] */ query) =>
      openPusher(t, port, { ...APP, key }, query);
    const refused = async (/** @type {string} */ key, /** @type {string} */ query = 'protocol=7') =>
      refusalOf(open(key, query));
    assert.deepEqual(await refused('unknown'), [4001, 4001]);
    assert.deepEqual(await refused('__proto__'), [4001, 4001]);
    assert.deepEqual(await refused('disabled'), [4003, 4003]);
    assert.deepEqual(await refused('tls'), [4000, 4000]);
    assert.deepEqual(await refused('open', 'protocol=seven'), [4006, 4006]);
    assert.deepEqual(await refused('open', 'protocol=3'), [4007, 4007]);
    assert.deepEqual(await refused('open', 'protocol=8'), [4007, 4007]);
    for (const query of ['', 'protocol=4', 'protocol=7&flash=false&unknown=1'])
      await open('open', query).established();
    // 4004 would be final, and connections that count may be dead.
    for (const key of ['full', 'busy']) await open(key, '').established();
    const atLimit = await Promise.all(['full', 'busy'].map((key) => refused(key)));
    assert.deepEqual(atLimit, [
      [4100, 4100],
      [4100, 4100],
    ]);
    const url = `ws://127.0.0.1:${port}/app/homely?protocol=7`;
    const from = (/** @type {string} */ origin) => new PusherClient(url, APP, { origin });
    assert.deepEqual(await refusalOf(from('https://evil.example')), [4009, 4009]);
    const good = from('https://good.example');
    t.after(() => good.socket.terminate());
    await good.established();
  });

  test('an app for TLS only accepts a connection over TLS', OPTIONS, async (t) => {
    const { ca, env } = await makeServerCertificate(t);
    const { port } = await startPusher(t, { tlsOnly: true }, { ...env, WORKERS: '1' });
    const client = new PusherClient(`wss://127.0.0.1:${port}/app/${APP.key}`, APP, { ca });
    t.after(() => client.socket.terminate());
    await client.established();
  });

  test('only a trusted proxy can say that a client came by TLS', OPTIONS, async (t) => {
    const https = { 'X-Forwarded-Proto': 'https' };
    const connect = (
      /** @type {number} */ port,
      /** @type {string} */ key,
      /** @type {Record<string, string>} */ headers = https,
    ) => {
      const client = new PusherClient(`ws://127.0.0.1:${port}/app/${key}`, APP, { headers });
      t.after(() => client.socket.terminate());
      return client;
    };
    // Without fast paths its door sees a stream instead of the socket.
    const settings = { TRUST_PROXY: '127.0.0.1', WORKERS: '1', FANFARE_FAST_PATHS: 'off' };
    const trusting = await startPusher(t, { tlsOnly: true }, settings);
    await connect(trusting.port, APP.key).established();
    assert.deepEqual(await refusalOf(connect(trusting.port, APP.key, {})), [4000, 4000]);
    const { port } = await start(t, 'tls');
    assert.deepEqual(await refusalOf(connect(port, 'tls')), [4000, 4000]);
  });

  test('without an app the paths of the door are unknown', OPTIONS, async (t) => {
    const { port } = await startServer(t, { WORKERS: '1' });
    assert.equal(await handshakeStatus(`ws://127.0.0.1:${port}/app/${APP.key}`), 404);
    const response = await fetch(`http://127.0.0.1:${port}/apps/${APP.id}/channels`);
    assert.equal(response.status, 404);
  });
});

test('a native token is no condition of this door', OPTIONS, async (t) => {
  const { connect } = await start(t);
  await (await connect()).subscribe('news');
});

describe('liveness', () => {
  test('pings are answered at once, also many of them; pongs are not', OPTIONS, async (t) => {
    const client = await connectPusher(t, (await limited()).port);
    for (let i = 0; i < 8; i++) client.send({ event: 'pusher:ping', data: {} });
    client.send({ event: 'pusher:pong', data: {} });
    for (let i = 0; i < 8; i++) await client.event('pusher:pong');
    assert.equal(client.texts[1], '{"event":"pusher:pong","data":"{}"}');
    await client.subscribe('news');
    assert.equal(client.messages.length, 10, 'the first frame, pongs, and the subscription');
  });

  for (const event of ['pusher:ping', 'pusher:pong'])
    test(
      `beyond ten at once, ${event} counts as a message: a flood is closed`,
      OPTIONS,
      async (t) => {
        const client = await connectPusher(t, (await limited()).port);
        for (let i = 0; i < 1000; i++) client.send({ event, data: {} });
        await client.closed();
        assert.equal(client.close?.code, 4100);
        const errors = client.all((message) => message.event === 'pusher:error');
        assert.ok(errors.length >= 20);
        assert.ok(errors.slice(0, 20).every(({ data }) => data.code === 4301));
        const pongs = client.all((message) => message.event === 'pusher:pong').length;
        if (event === 'pusher:ping') assert.ok(pongs >= 15, `${pongs}`);
        else assert.equal(pongs, 0);
      },
    );

  test('credentials of one app may be three variables', OPTIONS, async (t) => {
    const client = await connectPusher(t, (await limited()).port);
    await client.subscribe('private-room');
  });

  // The last test of this server.
  test('a server that drains closes with 4200: come back at once', OPTIONS, async (t) => {
    const server = await limited();
    const clients = [];
    for (let i = 0; i < 6; i++) clients.push(await connectPusher(t, server.port));
    server.kill('SIGTERM');
    for (const client of clients) {
      await client.closed();
      assert.equal(client.close?.code, 4200);
      assert.equal(client.messages.length, 1, client.texts.join('\n'));
    }
  });
});

describe('bad input', () => {
  /** @type {readonly (readonly [what: string, sent: string|Buffer, message: RegExp])[]} */
  const CASES = [
    ['no JSON', 'hello', /Received invalid JSON/],
    ['an array', '[]', /Received invalid JSON/],
    ['null', 'null', /Received invalid JSON/],
    ['no event', '{"data":{}}', /Received invalid JSON/],
    ['an event that is no text', '{"event":1}', /Received invalid JSON/],
    ['a binary frame', Buffer.from('{}'), /Binary frames are not supported/],
    ['an unknown event', '{"event":"pusher:nothing","data":{}}', /pusher:nothing/],
    ['another event', '{"event":"hello","data":{}}', /client-/],
  ];
  test('is answered by an error without a code, and the connection stays', OPTIONS, async (t) => {
    const pusher = await start(t);
    for (const [what, sent, message] of CASES) {
      const client = await pusher.connect();
      client.socket.send(sent);
      const { data } = await client.event('pusher:error', undefined, WITHIN_MS);
      assert.match(data.message, message, what);
      assert.equal(data.code, null, what);
      await client.subscribe('news');
      assert.equal(client.close, null);
      client.socket.terminate();
    }
  });

  test('three times within ten seconds ends the connection with 4100', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    for (let i = 0; i < 3; i++) client.socket.send('{');
    await client.closed();
    assert.equal(client.close?.code, 4100);
  });

  test('a frame that is not UTF-8 or too long closes with its own code', OPTIONS, async (t) => {
    const pusher = await start(t);
    const invalid = await pusher.connect();
    invalid.socket.send(Buffer.from([0xff, 0xfe]), { binary: false });
    await invalid.closed();
    assert.equal(invalid.close?.code, 1007);
    const long = await pusher.connect();
    long.socket.send(`"${'x'.repeat(30_000)}"`);
    await long.closed();
    assert.equal(long.close?.code, 1009);
  });
});

test(
  'a path may stand in front, for clients and for the HTTP API, or be left out',
  OPTIONS,
  async (t) => {
    const { port } = await start(t);
    for (const path of ['/rt/v1', '']) {
      const client = new PusherClient(`ws://127.0.0.1:${port}${path}/app/${APP.key}`, APP);
      t.after(() => client.socket.terminate());
      await client.established();
      await client.subscribe('news');
      const signed = `/apps/${APP.id}/channels`;
      const query = signedQuery(APP, 'GET', signed, '');
      const response = await fetch(`http://127.0.0.1:${port}${path}${signed}?${query}`);
      assert.deepEqual(await response.json(), { channels: { news: {} } });
    }
  },
);
