// server.js: the backend of the leaderboard: publishes the ten best scores in Redis as the state of a
// room.
//
// UPDATES_PER_SECOND and GAME_SECONDS change the simulated games.

import express from 'express';
import { Redis } from 'ioredis';
import { SignJWT } from 'jose';
import { followChanges } from './changes.js';
import { playGames } from './games.js';

const { SERVER_URL = 'http://localhost:3000', WEB_PORT = 8080, JWT_SECRET, API_KEY } = process.env;
const { REDIS_URL = 'redis://localhost:6379', UPDATES_PER_SECOND, GAME_SECONDS } = process.env;
const ROOM = 'leaderboard';
const KEY = 'example:scores';

const redis = new Redis(REDIS_URL);

/** The ten best: scores by player. */
async function top() {
  const list = await redis.zrevrange(KEY, 0, 9, 'WITHSCORES');
  return new Map(
    Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], Number(list[2 * i + 1])]),
  );
}

/** @param {string} path @param {unknown} [body] */
async function api(path, body) {
  const response = await fetch(`${SERVER_URL}/api/${path}`, {
    method: body ? 'POST' : 'GET',
    headers: { Authorization: `Bearer ${API_KEY}`, 'Content-Type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const answer = /** @type {any} */ (await response.json());
  if (!response.ok || answer.failed) throw new Error(`${path}: ${JSON.stringify(answer)}`);
  return answer;
}

const update = followChanges({
  read: top,
  published: async () => {
    const { entries } = await api(`rooms/${ROOM}/state`);
    return new Map(entries.map((/** @type {any} */ { key, payload }) => [key, payload]));
  },
  publish: (changes) =>
    api('publish/batch', { messages: changes.map((change) => ({ room: ROOM, ...change })) }),
});

const app = express();
app.use(express.static(`${import.meta.dirname}/public`));

// The address of the stream. Its token only permits reading this room.
app.get('/stream', async (_req, res) => {
  const token = new SignJWT({ rooms: { join: [ROOM] } });
  token.setProtectedHeader({ alg: 'HS256' }).setSubject('reader').setIssuedAt();
  token.setExpirationTime('1h');
  const signed = await token.sign(new TextEncoder().encode(JWT_SECRET));
  res.set('Cache-Control', 'no-store').type('text');
  res.send(`${SERVER_URL}/sse?room=${ROOM}&token=${signed}`);
});

const server = app.listen(WEB_PORT, () => {
  const { port } = Object(server.address());
  console.log(`open http://localhost:${port}`);
});
const updatesPerSecond = Number(UPDATES_PER_SECOND ?? 100);
const stop = playGames(redis, KEY, { updatesPerSecond, onScores: update });
if (GAME_SECONDS !== undefined)
  setTimeout(async () => {
    console.log(`${await stop()} updates`);
  }, Number(GAME_SECONDS) * 1000);
