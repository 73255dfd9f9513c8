// hooks-example.test.js: the examples of docs/hooks.md, as they stand, with a real Redis.

import assert from 'node:assert/strict';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const PAGE = readFileSync(new URL('../../docs/hooks.md', import.meta.url), 'utf8');
/** @param {string} title of a section @returns {string} its first JavaScript */
function exampleOf(title) {
  const section = PAGE.split(/^## /m).find((text) => text.startsWith(title)) ?? '';
  return /^```js\n(.*?)^```$/ms.exec(section)?.[1] ?? '';
}

const MODULES = fileURLToPath(new URL('../../node_modules/', import.meta.url));

test('the hook of two minutes finds the word in each form of payload', {
  timeout: 30_000,
}, async (t) => {
  const file = join(temporaryFolder(t), 'hooks.mjs');
  writeFileSync(file, exampleOf('In two minutes'));
  const { port } = await startServer(t, { ...NO_LIMITS, WORKERS: '1', FANFARE_HOOKS: file });
  const client = await connect(t, port);
  for (const payload of ['spam', { text: 'buy spam' }, [{ deep: 'spam' }], { spam: null }]) {
    const refused = await client.ask({ type: 'message', room: 'news', payload, id: 1 }, 'ack');
    assert.equal(refused.message, 'No advertising, please.', JSON.stringify(payload));
  }
  const other = { type: 'message', room: 'news', payload: { text: 'ham' }, id: 2 };
  assert.equal((await client.ask(other, 'ack')).type, 'ack');
});

test('the example of docs/hooks.md checks sessions, members and messages', {
  timeout: 30_000,
}, async (t) => {
  const folder = temporaryFolder(t);
  const file = join(folder, 'hooks.mjs');
  writeFileSync(file, exampleOf('Example'));
  symlinkSync(MODULES, join(folder, 'node_modules'));
  const { url } = await startRedis(t);
  const redis = new Redis(url);
  t.after(() => redis.disconnect());
  await redis.hset('session:s1', { id: '7', name: 'Ann', role: 'admin' });
  await redis.hset('session:s2', { id: '8', name: 'Bob', role: 'guest' });
  await redis.sadd('members:team.1', '7');
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_HOOKS: file,
    SESSIONS_URL: url,
  });
  const open = (/** @type {string} */ cookie) =>
    connect(t, `ws://127.0.0.1:${server.port}/ws`, { headers: { cookie } });

  const nobody = await open('session=s9');
  assert.equal((await nobody.next('error')).message, 'Your session has ended.');

  const [ann, bob] = [await open('session=s1'), await open('a=1; session=s2')];
  await ann.ask({ type: 'join', room: 'team.1' }, 'joined');
  const refused = await bob.ask({ type: 'join', room: 'team.1' }, 'joined');
  assert.equal(refused.message, 'You are not a member of this team.');

  for (const command of [
    { type: 'history', room: 'team.1', id: 3 },
    { type: 'message', room: 'team.1', payload: { text: 'hello' }, id: 4 },
  ]) {
    const answer = await bob.ask(command, 'ack');
    assert.equal(answer.message, refused.message, JSON.stringify(answer));
  }

  ann.send({ type: 'message', room: 'team.1', payload: { text: 'hello', role: 'king' } });
  const { from, payload } = await ann.next('message');
  assert.deepEqual([from, payload], ['7', { text: 'hello', role: 'admin' }]);
  const mute = await ann.ask({ type: 'message', room: 'team.1', payload: 1, id: 1 }, 'ack');
  assert.equal(mute.message, 'A message has a text.');
  const loud = await bob.ask({ type: 'broadcast', payload: 'hi', id: 2 }, 'broadcastResult');
  assert.equal(loud.error, 'PERMISSION_DENIED');

  bob.socket.close();
  await until(async () => (await redis.get('last-seen:8')) !== null);
});
