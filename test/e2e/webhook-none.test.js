// webhook-none.test.js: without endpoints, Redis gets the commands that rooms, presence and history
// need, and none for webhooks.

import assert from 'node:assert/strict';
import { connect as connectSocket } from 'node:net';
import { test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { startServer, until } from '../harness/server.js';
import { connect } from '../helpers/clients.js';

const SCRIPT = 'evalsha';
/** Of one client that joins the room, publishes a message and leaves. */
const COMMANDS = {
  'team.x': [
    ...['subscribe', 'sadd', SCRIPT, 'lua sadd', 'lua hincrby', 'lua hset', 'lua hlen'],
    ...['lua publish', 'lua scard'],
    'publish',
    ...[SCRIPT, 'lua srem', 'lua hincrby', 'lua hget', 'lua hlen', 'lua hdel', 'lua hdel'],
    ...['lua publish', 'lua scard', 'srem', 'unsubscribe'],
  ],
  'log.x': [
    ...['subscribe', SCRIPT, 'lua hgetall', 'lua hset', 'lua unlink', 'lua pexpire'],
    ...[SCRIPT, 'lua hincrby', 'lua xadd', 'lua xtrim', 'lua pexpire', 'lua pexpire'],
    ...['lua publish', 'unsubscribe'],
  ],
  'plain.x': ['subscribe', 'publish', 'unsubscribe'],
};

/**
 * What Redis carries out from now on, in scripts, too.
 * @param {import('node:test').TestContext} t @param {string} url of Redis
 */
async function monitor(t, url) {
  const { hostname, port } = new URL(url);
  const socket = connectSocket(Number(port), hostname);
  t.after(() => socket.destroy());
  let text = '';
  socket.setEncoding('utf8').on('data', (part) => {
    text += part;
  });
  socket.write('MONITOR\r\n');
  await until(() => text.startsWith('+OK'));
  return () => text.split('\r\n').slice(1);
}

/** `[0 lua] "HSET" "fanfare:presence:{a}:members" …` @param {string} line */
function read(line) {
  const [, source, command, rest] = /^\+[\d.]+ \[\d+ (\S+)\] "(\w+)"(.*)$/.exec(line) ?? [
    line,
    '',
    '',
    '',
  ];
  return { where: source === 'lua' ? 'lua ' : '', command: command.toLowerCase(), rest };
}

test('without endpoints a join, a message and a leave are these commands, and no others', {
  timeout: 60_000,
}, async (t) => {
  const redis = await startRedis(t);
  const server = await startServer(t, {
    REDIS_URL: redis.url,
    WORKERS: '1',
    FANFARE_PRESENCE: 'team.*',
    FANFARE_HISTORY: 'log.*=10/60s',
    FANFARE_ROOM_LINGER_MS: '0',
  });
  const client = await connect(t, server.port);
  // Once, so that Redis knows the scripts.
  const visit = async (/** @type {string} */ name) => {
    for (const room of [`team.${name}`, `log.${name}`, `plain.${name}`]) {
      const presence = room.startsWith('team.') ? { user: 'ann' } : undefined;
      await client.ask({ type: 'join', room, presence }, 'joined');
      await client.ask({ type: 'message', room, payload: 1, id: room }, 'ack');
      await client.ask({ type: 'leave', room }, 'left');
    }
  };
  await visit('first');
  const lines = await monitor(t, redis.url);
  await visit('x');
  const all = () => lines().map(read);
  const of = (/** @type {string} */ room) =>
    all()
      .flatMap(({ where, command, rest }) => (rest.includes(room) ? [where + command] : []))
      .sort();
  const wanted = Object.entries(COMMANDS).map(([room, commands]) => [room, [...commands].sort()]);
  const found = () => wanted.map(([room]) => [room, of(String(room))]);
  // The last ones follow the reply to `leave`. None may come on top of them.
  await until(() => JSON.stringify(found()) === JSON.stringify(wanted)).catch(() => {});
  await client.ask({ type: 'message', room: 'none', payload: 1, id: 1 }, 'ack');
  assert.deepEqual(found(), wanted);
  assert.deepEqual(
    all().filter(({ rest }) => rest.includes('webhooks')),
    [],
  );
});
