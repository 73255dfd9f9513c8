// client-token.test.js: tokens, cached and renewed (client/token.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setUp } from '../helpers/fake-client.js';

/** @param {number} seconds @param {string} [name] @param {number} [age] in seconds */
function token(seconds, name = 'x', age = 0) {
  const iat = Math.floor(Date.now() / 1000) - age;
  const claims = Buffer.from(JSON.stringify({ name, iat, exp: iat + seconds }));
  return `h.${claims.toString('base64url')}.s`;
}

/** The token of its first hello. @param {ReturnType<typeof setUp>} client */
async function tokenOfStart(client) {
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  return client.socket.last('hello').token;
}

/** The token of its hello after a lost connection. @param {ReturnType<typeof setUp>} client */
async function tokenOfReconnect(client) {
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  return client.socket.last('hello').token;
}

test('a token is asked for once, sent in hello, reused by reconnects, and renewed in time', async (t) => {
  let calls = 0;
  const client = setUp(t, { token: async () => token(600, `token ${++calls}`) });
  const first = await tokenOfStart(client);
  assert.equal(await tokenOfReconnect(client), first);
  assert.equal(calls, 1);
  // 82.5 % of its life, as the random number is one half.
  await client.pass(494_400);
  client.socket.push({ type: 'pong' });
  assert.equal(client.socket.all('auth').length, 0);
  await client.pass(200);
  assert.equal(calls, 2);
  assert.notEqual(client.socket.last('auth').token, first);
});

test('after close() the token is new, because the user may be', async (t) => {
  let user = 'ann';
  const client = setUp(t, { token: () => token(600, user) });
  const first = await tokenOfStart(client);
  await client.fanfare.close();
  user = 'bob';
  assert.notEqual(await tokenOfStart(client), first);
});

test('a token that comes after close() is not kept', async (t) => {
  /** @type {((token: string) => void)[]} */
  const answers = [];
  const client = setUp(t, { token: () => new Promise((resolve) => answers.push(resolve)) });
  client.fanfare.connect();
  await client.fanfare.close();
  client.fanfare.connect();
  answers[1](token(600, 'bob'));
  answers[0](token(600, 'ann'));
  await turn();
  client.socket.greet();
  const first = client.socket.last('hello').token;
  assert.equal(await tokenOfReconnect(client), first);
});

test('after 4001 the token is new; a callback that fails is reported and tried again', async (t) => {
  let calls = 0;
  const client = setUp(t, {
    token: () => {
      if (++calls === 2) throw new Error('no backend');
      return token(600, `token ${calls}`);
    },
  });
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  client.socket.end(4001, 'token expired');
  await client.pass(500);
  assert.equal(client.errors[0].code, 'TOKEN_UNAVAILABLE');
  assert.equal(client.sockets.length, 1);
  await client.pass(1000);
  assert.equal(calls, 3);
  assert.equal(client.sockets.length, 2);
});

test('a callback that does not answer within 15 s is reported and called again', async (t) => {
  /** @type {((token: string) => void)[]} */
  const answers = [];
  const client = setUp(t, { token: () => new Promise((resolve) => answers.push(resolve)) });
  client.fanfare.connect();
  await client.pass(15_000);
  assert.deepEqual(
    [client.fanfare.state, ...client.errors.map(({ code }) => code)],
    ['waiting', 'TOKEN_UNAVAILABLE'],
  );
  await client.pass(500);
  answers[1](token(600));
  await turn();
  client.socket.greet();
  assert.deepEqual([client.fanfare.state, client.errors.length], ['connected', 1]);
});

test('a wrong clock does not make a token look expired', async (t) => {
  let calls = 0;
  const client = setUp(t, {
    token: () => {
      calls++;
      return token(600);
    },
  });
  // This machine is a day ahead of the signer.
  const signer = Date.now;
  t.mock.method(Date, 'now', () => signer() + (calls === 0 ? 0 : 86_400_000));
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  assert.equal(calls, 1);
});

test('a clock that is ahead by almost the lifetime costs a token every ten seconds at most', async (t) => {
  let calls = 0;
  const client = setUp(t, {
    token: () => {
      calls++;
      // To this clock the new token was issued an hour ago.
      return token(3600, '', 3598);
    },
  });
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  for (let s = 0; s < 60; s++) {
    await client.pass(1000);
    client.socket.push({ type: 'pong' });
  }
  assert.ok(calls >= 6 && calls <= 8, `${calls} calls`);
});

test('a renewal that is refused for the moment is repeated', async (t) => {
  let calls = 0;
  const client = setUp(t, { token: () => token(600, `token ${++calls}`) });
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  await client.pass(496_000);
  const refused = { type: 'error', error: 'RATE_LIMIT_EXCEEDED', message: '', retryAfter: 4 };
  client.socket.answer('auth', refused);
  await client.pass(4000);
  assert.equal(client.socket.all('auth').length, 2);
  client.socket.answer('auth', { type: 'authenticated' });
  client.socket.push({ type: 'pong' });
  await client.pass(10_000);
  assert.equal(client.socket.all('auth').length, 2);
  assert.equal(client.fanfare.state, 'connected');
});

test('after a refused renewal, a token callback that fails is called again in ten seconds', async (t) => {
  let calls = 0;
  const client = setUp(t, {
    token: () => {
      if (++calls === 3) throw new Error('no backend');
      return token(600, `token ${calls}`);
    },
  });
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  await client.pass(496_000);
  const refused = { type: 'error', error: 'UNAVAILABLE', message: '', retryAfter: 4 };
  client.socket.answer('auth', refused);
  await client.pass(4000);
  assert.equal(calls, 3);
  client.socket.push({ type: 'pong' });
  await client.pass(10_000);
  assert.equal(calls, 4);
  client.socket.answer('auth', refused);
  client.fanfare.on('error', () => void client.fanfare.close());
  await client.pass(4000);
  client.socket.answer('auth', refused);
  assert.equal(client.fanfare.state, 'closed');
  const before = calls;
  await client.pass(600_000);
  assert.equal(calls, before, 'close() in a listener ends the renewals');
});

test('a function whose token the server refuses is called again', async (t) => {
  let calls = 0;
  const refusal = { type: 'error', id: 0, error: 'INVALID_TOKEN', message: 'Not valid.' };
  const client = setUp(t, { token: () => (++calls === 1 ? '<html>502</html>' : token(600)) });
  client.fanfare.connect();
  await turn();
  client.socket.push(refusal);
  client.socket.end(4500, 'invalid token');
  assert.deepEqual([client.fanfare.state, client.errors[0].code], ['waiting', 'INVALID_TOKEN']);
  await client.pass(500);
  client.socket.greet();
  assert.deepEqual([calls, client.fanfare.state], [2, 'connected']);
});

for (const [kind, option, state] of /** @type {const} */ ([
  ['a function', () => token(600), 'waiting'],
  ['a fixed token', 'fixed', 'closed'],
]))
  test(`after 4502 a client with ${kind} is ${state}`, async (t) => {
    const client = setUp(t, { token: option });
    client.fanfare.connect();
    await turn();
    client.socket.end(4502, 'authentication time-out');
    assert.equal(client.fanfare.state, state);
  });

test('a cached token that is not valid any more is replaced', async (t) => {
  let calls = 0;
  const client = setUp(t, { token: () => token(600, `token ${++calls}`) });
  await tokenOfStart(client);
  const cached = await tokenOfReconnect(client);
  client.socket.end(4500, 'invalid token');
  await client.pass(30_000);
  client.socket.greet();
  assert.notEqual(client.socket.last('hello').token, cached);
});
