// centrifugo-hooks.test.js: hooks around the commands of Centrifugo's clients.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  connectionToken,
  openRaw,
  sharedCentrifugo,
  startCentrifugo,
  WITH_TOKENS,
} from '../helpers/centrifugo.js';

const OPTIONS = { timeout: 60_000 };
const FANFARE_HOOKS = fileURLToPath(new URL('../helpers/hooks/centrifugo.js', import.meta.url));
const start = sharedCentrifugo({ FANFARE_HOOKS });

test('onConnect gets the token of connect, and may name the user', OPTIONS, async (t) => {
  const { open, port } = await start(t);
  const denied = await open();
  denied.command('connect', { token: 'denied' });
  await denied.closed();
  assert.deepEqual(denied.close, { code: 3507, reason: 'no such customer' });
  const asking = await open();
  asking.command('connect', { data: { deny: 'by its data' } });
  await asking.closed();
  assert.deepEqual(asking.close, { code: 3507, reason: 'by its data' });
  const broken = await open();
  broken.command('connect', { token: 'broken' });
  assert.equal(await broken.closeCode(), 1013);
  const named = await openRaw(t, port, undefined, { headers: { 'x-user': 'ann' } });
  await named.call('connect');
  await named.call('subscribe', { channel: 'a' });
  await named.call('publish', { channel: 'a', data: 'change' });
  const { pub } = await named.push('pub');
  assert.deepEqual([pub.data, pub.info], [{ by: 'ann' }, { user: 'ann' }]);
  assert.equal(await named.errorOf('subscribe', { channel: 'dialog#ann' }), undefined);
  for (const channel of ['$private', 'dialog#bob'])
    for (const [command, data] of [['history'], ['presence'], ['publish', 1]])
      assert.equal(
        await named.errorOf(/** @type {string} */ (command), { channel, data }),
        103,
        `${command} ${channel}: a name is not a subscription`,
      );
});

test('a required token cannot be replaced by a hook that names nobody', OPTIONS, async (t) => {
  const { open, port, connect } = await startCentrifugo(t, { ...WITH_TOKENS, FANFARE_HOOKS });
  const nobody = await open();
  nobody.command('connect');
  assert.equal(await nobody.closeCode(), 3501);
  const named = await openRaw(t, port, undefined, { headers: { 'x-user': 'ann' } });
  assert.equal((await named.call('connect')).error, undefined);
  const channels = ['a', 'staff', 'own-alice', 'own-bob'];
  const { welcome } = await connect({ token: connectionToken({ channels }) });
  assert.deepEqual(welcome.subs, { a: {}, 'own-alice': {} }, 'onJoin has denied the others');
  // A hook that fails has denied nothing: the client tries again.
  const broken = { token: connectionToken({ channels: ['a', 'broken'] }) };
  const { error } = await (await open()).call('connect', broken);
  assert.deepEqual([error.code, error.temporary], [100, true]);
  const refreshed = await connect({ token: connectionToken({ channels: ['a'] }) });
  refreshed.command('refresh', broken);
  assert.equal(await refreshed.closeCode(), 3010);
});

test('onJoin and onPublish refuse with 103 and the text', OPTIONS, async (t) => {
  const { connect } = await start(t);
  const client = await connect();
  const join = await client.call('subscribe', { channel: 'staff' });
  assert.deepEqual(join.error, { code: 103, message: 'staff only' });
  const publish = await client.call('publish', { channel: 'a', data: 'deny' });
  assert.deepEqual(publish.error, { code: 103, message: 'not that' });
});

test('onRpc answers rpc in order, onSend takes messages', OPTIONS, async (t) => {
  const { connect } = await start(t);
  const client = await connect();
  assert.deepEqual((await client.call('rpc', { method: 'sum', data: [1, 2, 3] })).rpc, { data: 6 });
  assert.deepEqual((await client.call('rpc', { method: 'none' })).rpc, {});
  const slow = client.command('rpc', { method: 'slow' });
  const quick = client.command('rpc', { method: 'sum', data: [1] });
  await client.next(({ id }) => id === quick);
  assert.deepEqual(
    client.messages.slice(-2).map(({ id }) => id),
    [slow, quick],
  );
  const error = async (/** @type {string} */ method) =>
    (await client.call('rpc', { method })).error;
  assert.deepEqual(await error('deny'), { code: 103, message: 'not you' });
  assert.equal((await error('throw')).code, 100);
  assert.equal((await error('large')).code, 107);
  client.send({ send: { data: { a: 1 } } });
  assert.deepEqual((await client.call('rpc', { method: 'sent' })).rpc.data, [{ a: 1 }]);
  client.send({ send: { data: 'deny' } });
  assert.equal(await client.closeCode(), 3507);
});
