// console-scene.js: a server on Redis with traffic, for tests and pictures of the console.
//
// Users chat in rooms with history and presence, in waves. Some reconnect and recover, some are
// refused, so that every chart has something to show.

import { WebSocket } from 'ws';
import { Fanfare } from '../../src/client/node.js';
import { startRedis } from '../harness/redis.js';
import { startServer, until, urlOf } from '../harness/server.js';
import { SECRET, token } from './tokens.js';

const NAMES = ['alice', 'bob', 'carol', 'dave', 'erin', 'frank', 'grace', 'heidi', 'ivan', 'judy'];
const ROOMS = ['chat.lobby', 'chat.support', 'game.7', 'news'];
const TEXTS = ['hello', 'anyone here?', 'ready when you are', 'good game', 'see you at eight'];
const TICK_MS = 250;
const WAVE_MS = 180_000;
const RIGHTS = { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] };

/**
 * @param {import('../harness/server.js').Owner} t
 * @param {object} [options]
 * @param {number} [options.users]
 * @param {Record<string, string>} [options.env]
 */
export async function startScene(t, { users = 12, env = {} } = {}) {
  const redis = await startRedis(t);
  const server = await startServer(t, {
    REDIS_URL: redis.url,
    WORKERS: '2',
    SERVER_ID: 'web-1',
    JWT_SECRET: SECRET,
    FANFARE_AUTH: 'optional',
    ALLOWED_ORIGINS: 'https://game.example',
    FANFARE_HISTORY: 'chat.*=200/10m,game.*=50/10m',
    FANFARE_PRESENCE: 'chat.*',
    FANFARE_SCHEDULING: 'round-robin',
    FANFARE_MESSAGES_PER_MINUTE_PER_IP_MODE: 'observe',
    FANFARE_RECONNECT_WINDOW_MS: '2000',
    ...env,
  });
  const crowd = Array.from({ length: users }, (_, i) => join(t, server, i));
  await until(() => crowd.every(({ rooms }) => rooms.every(({ isJoined }) => isJoined)));
  return { redis, server, crowd, url: `http://127.0.0.1:${server.metricsPort}` };
}

/**
 * @param {import('../harness/server.js').Owner} t
 * @param {import('../harness/server.js').Server} server
 * @param {number} index
 */
function join(t, server, index) {
  const name = NAMES[index % NAMES.length] + (index < NAMES.length ? '' : String(index));
  const fanfare = new Fanfare(urlOf(server), {
    token: () => token({ sub: name, rooms: RIGHTS, info: { seat: index } }),
    maxDelayMs: 2000,
  });
  fanfare.on('error', () => {});
  t.after(() => fanfare.close());
  const rooms = ROOMS.filter((_, room) => (index + room) % 3 !== 0).map((room) =>
    fanfare.join(room),
  );
  return { name, fanfare, rooms };
}

/**
 * Traffic that a healthy server does not see often: lost connections that recover, and pages of
 * another origin.
 * @param {Pick<Awaited<ReturnType<typeof startScene>>, 'crowd'|'server'>} scene
 */
export async function disturb({ crowd, server }) {
  for (const { fanfare } of crowd.slice(0, 4)) {
    const { socket } = /** @type {any} */ (fanfare);
    socket?.terminate?.();
  }
  for (let i = 0; i < 6; i++) {
    const socket = new WebSocket(urlOf(server), { origin: 'https://elsewhere.example' });
    socket.on('error', () => {});
    await new Promise((resolve) => socket.on('close', resolve));
  }
}

/**
 * Has the users talk until the signal ends it.
 * @param {Awaited<ReturnType<typeof startScene>>} scene @param {AbortSignal} signal
 */
export function talk({ crowd }, signal) {
  let count = 0;
  const timer = setInterval(() => {
    const wave = 1 + Math.sin((2 * Math.PI * Date.now()) / WAVE_MS) * 0.7;
    const messages = Math.round(wave * crowd.length * 0.1 * (1 + Math.random()));
    for (let i = 0; i < messages; i++) {
      const { rooms } = crowd[count % crowd.length];
      const room = rooms[count % rooms.length];
      const text = TEXTS[count++ % TEXTS.length];
      room?.publish({ text, n: count }).catch(() => {});
    }
  }, TICK_MS);
  signal.addEventListener('abort', () => clearInterval(timer));
}
