// client-token.test.js: tokens, cached and renewed (client/token.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setUp } from '../helpers/fake-client.js';

/** @param {number} seconds @param {string} [name] */
function token(seconds, name = 'x') {
  const iat = Math.floor(Date.now() / 1000);
  const claims = Buffer.from(JSON.stringify({ name, iat, exp: iat + seconds }));
  return `h.${claims.toString('base64url')}.s`;
}

test('a token is asked for once, sent in hello, reused by reconnects, and renewed in time', async (t) => {
  let calls = 0;
  const client = setUp(t, { token: async () => token(600, `token ${++calls}`) });
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  const first = client.socket.last('hello').token;
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  assert.equal(client.socket.last('hello').token, first);
  assert.equal(calls, 1);
  // 82.5 % of its life, as the random number is one half.
  await client.pass(494_400);
  client.socket.push({ type: 'pong' });
  assert.equal(client.socket.all('auth').length, 0);
  await client.pass(200);
  assert.equal(calls, 2);
  assert.notEqual(client.socket.last('auth').token, first);
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
