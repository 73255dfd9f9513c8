// server.js: the backend of the chat: serves its page, and signs tokens.

import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import express from 'express';
import { sign } from 'fanfare/server';

const { SERVER_URL = 'http://localhost:3000', WEB_PORT = 8080, JWT_SECRET } = process.env;
const client = dirname(fileURLToPath(import.meta.resolve('fanfare/client')));

const app = express();
app.use(express.static(`${import.meta.dirname}/public`));
app.use('/client', express.static(client));
app.get('/server-url', (_req, res) => res.type('text').send(SERVER_URL));

// Your login belongs here. This demo believes each name.
app.get('/token', async (req, res) => {
  const user = String(req.query.name).slice(0, 30);
  const both = ['chat.lobby', 'typing.lobby'];
  const rooms = { join: both, publish: both, presence: ['chat.lobby'], history: ['chat.lobby'] };
  // In this demo, names of moderators begin with @.
  const isModerator = user.startsWith('@');
  const audience = isModerator ? ['chat.lobby'] : [];
  const audiences = isModerator ? ['moderators'] : [];
  res.set('Cache-Control', 'no-store').type('text');
  res.send(await sign({ user, rooms: { ...rooms, audience }, audiences }, JWT_SECRET));
});

const server = app.listen(WEB_PORT, () => {
  const { port } = Object(server.address());
  console.log(`open http://localhost:${port}`);
});
