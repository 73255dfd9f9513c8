// server.js: the backend of the leaderboard: publishes the ten best scores in Redis.
//
// UPDATES_PER_SECOND and GAME_SECONDS change the simulated games.

import express from 'express';
import { Redis } from 'ioredis';
import { SignJWT } from 'jose';
import { playGames } from './games.js';
import { publishSnapshots } from './snapshots.js';

const { SERVER_URL = 'http://localhost:3000', WEB_PORT = 8080, JWT_SECRET, API_KEY } = process.env;
const { REDIS_URL = 'redis://localhost:6379', UPDATES_PER_SECOND, GAME_SECONDS } = process.env;
const ROOM = 'leaderboard';
const KEY = 'example:scores';

const redis = new Redis(REDIS_URL);

async function top() {
  const list = await redis.zrevrange(KEY, 0, 9, 'WITHSCORES');
  return Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], Number(list[2 * i + 1])]);
}

/** @param {{room: string, payload: unknown}[]} messages */
async function publish(messages) {
  const response = await fetch(`${SERVER_URL}/api/publish/batch`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${API_KEY}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ messages }),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
}

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
publishSnapshots(async () => ({ [ROOM]: await top() }), publish);
const stop = playGames(redis, KEY, { updatesPerSecond: Number(UPDATES_PER_SECOND ?? 100) });
if (GAME_SECONDS !== undefined)
  setTimeout(async () => {
    console.log(`${await stop()} updates`);
  }, Number(GAME_SECONDS) * 1000);
