// server.js: the backend of the leaderboard: publishes the ten best scores in Redis as the state of a
// room.
//
// UPDATES_PER_SECOND and GAME_SECONDS change the simulated games.

import express from 'express';
import { createServer, sign } from 'fanfare/server';
import { Redis } from 'ioredis';
import { followChanges } from './changes.js';
import { playGames } from './games.js';

const { SERVER_URL = 'http://localhost:3000', WEB_PORT = 8080, JWT_SECRET, API_KEY } = process.env;
const { REDIS_URL = 'redis://localhost:6379', UPDATES_PER_SECOND, GAME_SECONDS } = process.env;
const ROOM = 'leaderboard';
const KEY = 'example:scores';

const redis = new Redis(REDIS_URL);
const fanfare = createServer({ url: SERVER_URL, apiKey: API_KEY });

/** The ten best: scores by player. */
async function top() {
  const list = await redis.zrevrange(KEY, 0, 9, 'WITHSCORES');
  return new Map(
    Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], Number(list[2 * i + 1])]),
  );
}

const update = followChanges({
  read: top,
  published: async () => {
    const { entries } = await fanfare.state(ROOM);
    return new Map(entries.map(({ key, payload }) => [key, payload]));
  },
  publish: (changes) => fanfare.publishMany(changes.map((change) => ({ room: ROOM, ...change }))),
});

const app = express();
app.use(express.static(`${import.meta.dirname}/public`));

// The address of the stream. Its token only permits reading this room.
app.get('/stream', async (_req, res) => {
  const token = await sign({ user: 'reader', rooms: { join: [ROOM] } }, JWT_SECRET);
  res.set('Cache-Control', 'no-store').type('text');
  res.send(`${SERVER_URL}/sse?room=${ROOM}&token=${token}`);
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
