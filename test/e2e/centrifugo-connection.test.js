// centrifugo-connection.test.js: connections of the Centrifugo door as they go over the wire: the
// order of commands, tokens, pings, and how connections end.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { scrape, until } from '../harness/server.js';
import {
  CentrifugoClient,
  connectionToken,
  openRaw,
  sharedCentrifugo,
  startCentrifugo,
  WITH_TOKENS,
} from '../helpers/centrifugo.js';

const OPTIONS = { timeout: 60_000 };
const KEY = 'k'.repeat(32);
const started = sharedCentrifugo({
  FANFARE_PING_INTERVAL_MS: '20000',
  FANFARE_RECONNECT_WINDOW_MS: '0',
});
const withTokens = sharedCentrifugo({
  ...WITH_TOKENS,
  API_KEYS: `admin ${KEY} all`,
  FANFARE_MAX_CONNECTIONS_PER_USER: '2',
  FANFARE_MAX_UNSENT_BYTES: '131072',
});
const lenient = sharedCentrifugo({
  ...WITH_TOKENS,
  FANFARE_CENTRIFUGO_TOKENS: 'lenient',
  FANFARE_TOKEN_REASONS: 'on',
  FANFARE_AUTH: 'optional',
  FANFARE_MESSAGES_RATE: '10/min burst 10',
  FANFARE_MAX_REFUSED_MESSAGES: '5',
});
const inSeconds = (/** @type {number} */ seconds) => Math.floor(Date.now() / 1000) + seconds;

/** @param {() => Promise<CentrifugoClient>} open @param {(client: CentrifugoClient) => void} act */
async function closedBy(open, act) {
  const client = await open();
  act(client);
  const code = await client.closeCode();
  assert.notEqual(client.close?.reason, '', 'clients take a close without a reason for a cut');
  return code;
}

/** Asks the native HTTP API. @param {number} port @param {string} path @param {object} body */
async function post(port, path, body) {
  const { status } = await fetch(`http://127.0.0.1:${port}/api${path}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${KEY}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  assert.ok(status < 300, `${status}`);
}

describe('the order of commands', () => {
  test('what breaks it is closed with 3501', OPTIONS, async (t) => {
    const { open } = await started(t);
    const connected = (/** @type {string} */ text) => (/** @type {CentrifugoClient} */ client) => {
      client.command('connect');
      client.socket.send(text);
    };
    for (const [name, act] of /** @type {[string, (client: CentrifugoClient) => void][]} */ ([
      ['first command is no connect', (client) => client.command('subscribe', { channel: 'a' })],
      ['second connect', connected('{"id":2,"connect":{}}')],
      ['no id', connected('{"subscribe":{"channel":"a"}}')],
      ['id 0', connected('{"id":0,"subscribe":{"channel":"a"}}')],
      ['id beyond 32 bits', connected('{"id":4294967296,"subscribe":{"channel":"a"}}')],
      ['no method', connected('{"id":2}')],
      ['not JSON', connected('{"id":2')],
      ['two values on a line', connected('{"id":2,"ping":{}}{"id":3,"ping":{}}')],
      ['no command', connected('\n')],
      ['a field of another type', connected('{"id":2,"subscribe":{"channel":7}}')],
      ['a pong without a ping', connected('{}')],
      ['no channel', connected('{"id":2,"subscribe":{}}')],
      ['an unsubscribe without a channel', connected('{"id":2,"unsubscribe":{}}')],
      ['a history without a channel', connected('{"id":2,"history":{}}')],
      [
        'an offset below 0',
        connected('{"id":2,"history":{"channel":"a","since":{"offset":-1,"epoch":""}}}'),
      ],
      ['a refresh without a token', connected('{"id":2,"refresh":{}}')],
    ]))
      assert.equal(await closedBy(open, act), 3501, name);
  });

  test('several commands of one message are answered by their ids', OPTIONS, async (t) => {
    const { open } = await started(t);
    const client = await open();
    client.send(
      '{"id":7,"connect":{}}\n{"id":5,"subscribe":{"channel":"a"}}\n{"id":6,"ping":{}}\n\n',
    );
    await client.next(({ id }) => id === 6);
    assert.deepEqual(
      client.messages.map(({ id }) => id),
      [7, 5, 6],
    );
    assert.deepEqual(client.messages.slice(1), [
      { id: 5, subscribe: {} },
      { id: 6, ping: {} },
    ]);
  });

  test('only the first request of a command is served', OPTIONS, async (t) => {
    const { connect } = await started(t);
    const client = await connect();
    client.send('{"id":2,"publish":{"channel":"a","data":1},"subscribe":{"channel":"a"}}');
    const { id, ...result } = await client.next(({ id }) => id === 2);
    assert.deepEqual(result, { subscribe: {} });
  });

  test('more commands in a message than anybody needs are closed with 3013', OPTIONS, async (t) => {
    const { open } = await started(t);
    const code = await closedBy(open, (client) => {
      client.command('connect');
      client.send('{"id":2,"ping":{}}\n'.repeat(1000));
    });
    assert.equal(code, 3013);
  });

  test('send without a hook is closed with 3508, rpc is 108', OPTIONS, async (t) => {
    const { connect } = await started(t);
    const client = await connect();
    assert.equal(await client.errorOf('rpc', { method: 'x', data: 1 }), 108);
    assert.equal(
      await closedBy(
        async () => client,
        () => client.send('{"send":{"data":1}}'),
      ),
      3508,
    );
  });
});

describe('connect', () => {
  test('the reply has a client, pings and the form of a UUID', OPTIONS, async (t) => {
    const { connect } = await started(t);
    const { welcome } = await connect({ name: 'js', version: '5', data: { a: 1 } });
    assert.match(welcome.client, /^[0-9a-f]{8}-[0-9a-f]{4}-4000-8000-[0-9a-f]{12}$/);
    assert.match(welcome.version, /^fanfare /);
    const { client, version, ...rest } = welcome;
    assert.deepEqual(rest, { ping: 20, pong: true });
  });

  test('the subprotocol centrifuge-json is selected if it is offered', OPTIONS, async (t) => {
    const { port } = await started(t);
    const url = `ws://127.0.0.1:${port}/connection/websocket`;
    const named = new CentrifugoClient(url, undefined, ['centrifuge-json']);
    t.after(() => named.socket.terminate());
    await once(named.socket, 'open');
    assert.equal(named.socket.protocol, 'centrifuge-json');
    const plain = await openRaw(t, port);
    assert.equal(plain.socket.protocol, '');
  });

  test('tokens: their end, and what is wrong with them', OPTIONS, async (t) => {
    const { open, connect } = await withTokens(t);
    const { welcome } = await connect({ token: connectionToken({ exp: inSeconds(100) }) });
    assert.equal(welcome.expires, true);
    assert.ok(welcome.ttl > 90 && welcome.ttl <= 100, `${welcome.ttl}`);
    for (const [name, token, code] of /** @type {[string, string, number][]} */ ([
      ['no token', '', 3501],
      ['not a token', 'x', 3500],
      ['another secret', `${connectionToken().slice(0, -4)}AAAA`, 3500],
      ['no user', connectionToken({ sub: undefined }), 3500],
      ['no end', connectionToken({ exp: undefined }), 3500],
      ['a channel of a wrong name', connectionToken({ channels: ['a b'] }), 3500],
      [
        'a regular expression',
        connectionToken({ caps: [{ channels: ['a'], match: 'regex', allow: [] }] }),
        3500,
      ],
    ]))
      assert.equal(
        await closedBy(open, (client) => client.command('connect', { token })),
        code,
        name,
      );
  });

  test('an expired token is error 109, and any later command 3501', OPTIONS, async (t) => {
    const { open } = await withTokens(t);
    const client = await open();
    const token = connectionToken({ exp: inSeconds(-60) });
    const { error } = await client.call('connect', { token });
    assert.deepEqual(error, { code: 109, message: 'token expired' });
    client.command('ping');
    assert.equal(await client.closeCode(), 3501);
  });

  test('a token of a clock ahead is a temporary error, for now', OPTIONS, async (t) => {
    const { open, connect } = await withTokens(t);
    const token = connectionToken({ iat: inSeconds(60), exp: inSeconds(600) });
    const { error } = await (await open()).call('connect', { token });
    assert.deepEqual(error, { code: 100, message: 'internal server error', temporary: true });
    const client = await connect({ token: connectionToken({}) });
    assert.equal(await client.errorOf('refresh', { token }), 100);
  });

  test('lenient tokens need neither a user nor an end', OPTIONS, async (t) => {
    const { connect } = await lenient(t);
    const token = connectionToken({ sub: undefined, exp: undefined, iat: 1738078824 });
    const { welcome } = await connect({ token });
    assert.equal(welcome.expires, undefined);
  });

  test(
    'the cause of a refusal reaches the client, if the server is configured so',
    OPTIONS,
    async (t) => {
      const { open, connect } = await lenient(t);
      const token = connectionToken({ sub: 1.5 });
      const why = 'claim sub: as a number it has to be an integer';
      const client = await open();
      client.command('connect', { token });
      await client.closeCode();
      assert.equal(client.close?.reason, `invalid token: ${why}`);
      const other = await connect();
      const { error } = await other.call('subscribe', { channel: '$a', token });
      assert.deepEqual(error, { code: 103, message: `permission denied: ${why}` });
      other.command('refresh', { token });
      await other.closeCode();
      assert.equal(other.close?.reason, `invalid token: ${why}`);
    },
  );

  test('without a token an optional server takes everybody', OPTIONS, async (t) => {
    const { connect } = await lenient(t);
    assert.deepEqual((await (await connect()).call('subscribe', { channel: 'a' })).subscribe, {});
  });
});

test('without a key there is no server API', OPTIONS, async (t) => {
  const { port } = await started(t);
  const url = `http://127.0.0.1:${port}/centrifugo/api/info`;
  assert.equal((await fetch(url, { method: 'POST' })).status, 404);
});

describe('refresh', () => {
  test(
    'a new token prolongs the connection, perhaps for ever; an expired one or another user does not',
    OPTIONS,
    async (t) => {
      const { connect } = await lenient(t);
      const token = (/** @type {Record<string, unknown>} */ claims) => ({
        token: connectionToken({ exp: inSeconds(50), ...claims }),
      });
      const client = await connect(token({}));
      const { refresh } = await client.call('refresh', token({ exp: inSeconds(500) }));
      assert.equal(refresh.client, client.welcome.client);
      assert.ok(refresh.expires && refresh.ttl > 490, JSON.stringify(refresh));
      client.command('refresh', token({ sub: 'bob' }));
      assert.equal(await client.closeCode(), 3500);
      const late = await connect(token({}));
      late.command('refresh', token({ exp: inSeconds(-60) }));
      assert.equal(await late.closeCode(), 3005);
      const other = await connect(token({}));
      const endless = await other.call('refresh', token({ exp: undefined }));
      assert.deepEqual([endless.refresh.expires, endless.refresh.ttl], [undefined, undefined]);
    },
  );

  test('a new token without a right ends its subscriptions with 2000', OPTIONS, async (t) => {
    const { connect } = await withTokens(t);
    const caps = (/** @type {string[]} */ channels) => ({
      token: connectionToken({ caps: [{ channels, match: 'wildcard', allow: ['sub'] }] }),
    });
    const client = await connect(caps(['a*', 'b']));
    await client.call('subscribe', { channel: 'a1' });
    await client.call('subscribe', { channel: 'b' });
    await client.call('refresh', caps(['a*']));
    const push = await client.push('unsubscribe');
    assert.deepEqual(push, {
      channel: 'b',
      unsubscribe: { code: 2000, reason: 'server unsubscribe' },
    });
    assert.deepEqual(await client.errorOf('subscribe', { channel: 'b' }), 103);
    assert.deepEqual(await client.errorOf('subscribe', { channel: 'a1' }), 105);
  });
});

describe('liveness', () => {
  test(
    'pings are empty replies; without an answer the close is 3012, at the maximum age 3011',
    OPTIONS,
    async (t) => {
      const { connect } = await startCentrifugo(t, {
        FANFARE_PING_INTERVAL_MS: '1500',
        FANFARE_PONG_TIMEOUT_MS: '1200',
        FANFARE_MAX_CONNECTION_AGE_MS: '7000',
      });
      const [lively, silent] = [await connect(), await connect()];
      silent.answersPings = false;
      assert.equal(await silent.closeCode(), 3012);
      assert.deepEqual(silent.messages.at(-1), {});
      await lively.collect((message) => Object.keys(message).length === 0, 3);
      assert.equal(lively.close, null);
      assert.equal(await lively.closeCode(), 3011);
    },
  );

  test('who sends too much gets error 111, and is closed with 3013', OPTIONS, async (t) => {
    const { connect } = await lenient(t);
    const client = await connect();
    for (let i = 0; i < 20; i++) client.command('publish', { channel: 'a', data: i });
    assert.equal(await client.closeCode(), 3013);
    const errors = client.all(({ error }) => error !== undefined).map(({ error }) => error);
    assert.equal(errors.length, 5);
    assert.equal(errors[0].code, 111);
    assert.equal(errors[0].temporary, true);
  });
});

describe('the end of a connection', () => {
  test('a revoked user is closed with 3503, and refused with 3500', OPTIONS, async (t) => {
    const { connect, open, port } = await withTokens(t);
    const token = connectionToken({ sub: 'revoked' });
    const clients = [await connect({ token }), await connect({ token })];
    const other = await connect({ token: connectionToken({ sub: 'bob' }) });
    await post(port, '/revoke', { user: 'revoked' });
    for (const client of clients) assert.equal(await client.closeCode(), 3503);
    const again = await open();
    again.command('connect', { token });
    assert.equal(await again.closeCode(), 3500);
    assert.deepEqual((await other.call('ping')).ping, {});
  });

  test('a connection above the limit of its user is closed with 4009', OPTIONS, async (t) => {
    const { connect, open } = await withTokens(t);
    const token = connectionToken({ sub: 'busy' });
    const [first] = [await connect({ token }), await connect({ token })];
    const third = await open();
    third.command('connect', { token });
    assert.equal(await third.closeCode(), 4009);
    first.socket.close();
    await first.closed();
    let error;
    do {
      const next = await open();
      next.command('connect', { token });
      error = await next
        .next(() => true)
        .then(
          () => null,
          () => next.close?.code,
        );
    } while (error === 4009); // the server has yet to see the close
    assert.equal(error, null);
  });

  test('a token that has ended is closed with 3005, 25 s later', OPTIONS, async (t) => {
    const { connect } = await lenient(t);
    for (const sub of ['alice', undefined]) {
      const token = connectionToken({ sub, exp: inSeconds(60), expire_at: inSeconds(-23) });
      const client = await connect({ token });
      assert.equal(await client.closeCode(), 3005, sub);
    }
  });

  test('a slow reader of a channel without history is closed with 3008', OPTIONS, async (t) => {
    const { connect, port, server } = await withTokens(t);
    const slow = await connect({ token: connectionToken({ sub: 'slow', rooms: { join: ['a'] } }) });
    assert.deepEqual((await slow.call('subscribe', { channel: 'a' })).subscribe, {});
    slow.socket.pause();
    const messages = Array(10).fill({ room: 'a', payload: 'x'.repeat(90_000) });
    // The kernel takes the first megabytes.
    await until(async () => {
      await post(port, '/publish/batch', { messages });
      const { values } = await scrape(server.metricsPort);
      return values.get('fanfare_slow_consumers_total{consequence="closed"}') === 1;
    }, 30_000);
    slow.socket.resume();
    assert.equal(await slow.closeCode(), 3008);
  });

  // The last test of this server.
  test('a drain closes with 3001', OPTIONS, async (t) => {
    const { connect, open, server } = await started(t);
    const [client, waiting] = [await connect(), await open()];
    server.kill('SIGTERM');
    assert.equal(await client.closeCode(), 3001);
    assert.equal(await waiting.closeCode(), 3001, 'before its connect');
  });
});
