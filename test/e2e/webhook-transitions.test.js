// webhook-transitions.test.js: real servers over Redis record the events for webhooks, also if a worker is
// killed. The test owns the partitions, so no courier reads them.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { openEventQueue } from '../../src/backend/redis/event-queue.js';
import { PARTITIONS } from '../../src/webhooks/queue.js';
import { startRedis } from '../harness/redis.js';
import { startServer, until } from '../harness/server.js';
import { connect, connectInTurn } from '../helpers/clients.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

/** @typedef {import('../../src/webhooks/queue.js').WebhookEvent} WebhookEvent */

const TIMEOUT_MS = 60_000;
const CLIENTS = 40;
const RENEW_MS = 2000;

/**
 * @param {import('node:test').TestContext} t
 * @param {import('../harness/redis.js').RedisServer} redis
 * @returns {Promise<() => Promise<WebhookEvent[]>>} reads everything that was recorded
 */
async function ownLanes(t, redis) {
  const { queue, close } = openEventQueue({
    config: { redis: redis.settings, redisPrefix: 'fanfare:', redisTimeoutMs: 1000 },
  });
  await until(() => queue.connection.isWritable);
  const partitions = Array.from({ length: PARTITIONS }, (_, partition) => partition);
  const fences = await Promise.all(partitions.map((partition) => queue.acquire(partition)));
  const timer = setInterval(() => {
    for (const [partition, fence] of fences.entries())
      queue.renew(partition, Number(fence)).catch(() => {});
  }, RENEW_MS);
  t.after(() => {
    clearInterval(timer);
    close();
  });
  return async () => {
    const pages = await Promise.all(
      partitions.map((partition) => queue.read(partition, null, 10_000)),
    );
    return pages.flat().map(({ body }) => JSON.parse(body));
  };
}

/** @param {import('node:test').TestContext} t @param {object} endpoint */
async function endpointFile(t, endpoint) {
  const path = join(await temporaryFolder(t), 'webhooks.json');
  const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
  await writeFile(path, JSON.stringify([{ url: 'http://127.0.0.1:9/', secret, ...endpoint }]));
  return path;
}

test('members of a killed worker leave once, the last one vacates the room, and a stop does it, too', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const events = await ownLanes(t, redis);
  const env = {
    REDIS_URL: redis.url,
    WORKERS: '2',
    FANFARE_SCHEDULING: 'round-robin',
    FANFARE_PRESENCE: 'team.*',
    FANFARE_ROOM_LINGER_MS: '100',
    FANFARE_WEBHOOKS: await endpointFile(t, {
      types: ['room.occupied', 'room.vacated', 'member.joined', 'member.left', 'message.published'],
      rooms: ['team.*'],
    }),
  };
  const server = await startServer(t, env);
  const clients = await connectInTurn(t, server.port, CLIENTS);
  for (const [i, client] of clients.entries())
    await client.ask(
      { type: 'join', room: 'team.a', presence: { user: `user-${i}`, info: { i } } },
      'joined',
    );
  await clients[0].ask({ type: 'join', room: 'other' }, 'joined');
  await clients[0].ask({ type: 'message', room: 'other', payload: 0, id: 1 }, 'ack');
  await clients[0].ask({ type: 'message', room: 'team.a', payload: { n: 1 }, id: 2 }, 'ack');
  await until(async () => (await events()).length === CLIENTS + 2);
  const [occupied] = (await events()).filter(({ type }) => type === 'room.occupied');
  assert.equal(occupied.room, 'team.a');
  const [message] = (await events()).filter(({ type }) => type === 'message.published');
  assert.deepEqual(message.payload, { n: 1 });
  assert.match(String(message.from), /^\S+$/);

  const [victim] = server.workerPids();
  process.kill(victim, 'SIGKILL');
  await until(() => clients.filter(({ close }) => close !== null).length === CLIENTS / 2);
  await until(async () => (await events()).length >= CLIENTS + 2 + CLIENTS / 2);
  const gone = clients.flatMap(({ close }, i) => (close === null ? [] : [`user-${i}`]));
  const left = (await events()).filter(({ type }) => type === 'member.left');
  assert.deepEqual(left.map(({ user }) => user).sort(), gone.sort());
  for (const { socket } of clients) socket.close();
  await until(async () => (await events()).some(({ type }) => type === 'room.vacated'));
  await until(async () => (await events()).length === 2 * CLIENTS + 3);
  const all = await events();
  assert.deepEqual(
    all.map(({ seq }) => seq),
    all.map((_, i) => i + 1),
  );
  assert.equal(new Set(all.map(({ epoch }) => epoch)).size, 1);
  assert.equal(all.filter(({ type }) => type === 'room.vacated').length, 1);

  // A server that stops leaves its rooms. Of its keys, those of partitions and sequences stay.
  const last = await connect(t, server.port);
  for (const room of ['team.b', 'team.c']) await last.ask({ type: 'join', room }, 'joined');
  await until(async () => (await events()).length === all.length + 4);
  server.kill('SIGTERM');
  await server.exited;
  const ended = (await events()).slice(all.length);
  assert.deepEqual(ended.map(({ type, room }) => `${type} ${room}`).sort(), [
    'member.joined team.b',
    'member.joined team.c',
    'member.left team.b',
    'member.left team.c',
    'room.occupied team.b',
    'room.occupied team.c',
    'room.vacated team.b',
    'room.vacated team.c',
  ]);
  const keys = (await redis.cli('--raw', 'KEYS', 'fanfare:webhooks:*')).split('\n').filter(Boolean);
  assert.deepEqual(
    keys.filter((key) => !/:\{lane-\d+\}:|:sequence$|:\{\*\}:(?:mark|cleared)$/.test(key)),
    [],
  );
});
