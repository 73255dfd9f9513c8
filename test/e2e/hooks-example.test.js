// hooks-example.test.js: the example of docs/hooks.md, as it stands, with a real Redis.

import assert from 'node:assert/strict';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { startRedis } from '../../loadtest/lib/redis.js';
import { NO_LIMITS, startServer, until } from '../../loadtest/lib/server.js';
import { connect } from '../helpers/clients.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const PAGE = readFileSync(new URL('../../docs/hooks.md', import.meta.url), 'utf8');
const MODULES = fileURLToPath(new URL('../../node_modules/', import.meta.url));

test('the example of docs/hooks.md checks sessions, members and messages', {
  timeout: 30_000,
}, async (t) => {
  const folder = temporaryFolder(t);
  const section = PAGE.split(/^## /m).find((text) => text.startsWith('Example')) ?? '';
  const file = join(folder, 'hooks.mjs');
  writeFileSync(file, /^```js\n(.*?)^```$/ms.exec(section)?.[1] ?? '');
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
