// server.js: the backend of the AI stream: runs the model. Fanfare has the text.

import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import express from 'express';
import { stream } from 'fanfare/ai';
import { Fanfare } from 'fanfare/client';
import { createServer, sign } from 'fanfare/server';
import { answer } from './model.js';

const { SERVER_URL = 'http://localhost:3000', WEB_PORT = 8080, JWT_SECRET } = process.env;
const { API_KEY, TOKENS_PER_SECOND = 60 } = process.env;
const folder = (/** @type {string} */ name) => dirname(fileURLToPath(import.meta.resolve(name)));

const server = createServer({ url: SERVER_URL, apiKey: API_KEY });
const rights = (/** @type {string[]} */ ...rooms) => ({ join: rooms, history: rooms });
/** Hears viewers who stop an answer. */
const fanfare = new Fanfare(SERVER_URL, {
  token: () => sign({ user: 'backend', rooms: rights('ai.*/stop') }, JWT_SECRET),
});

const app = express();
app.use(express.static(`${import.meta.dirname}/public`));
app.use('/client', express.static(folder('fanfare/client')));
app.use('/ai', express.static(folder('fanfare/ai')));
app.use(express.json());
app.get('/server-url', (_req, res) => void res.type('text').send(SERVER_URL));

app.post('/answers', async (req, res) => {
  const id = crypto.randomUUID();
  const question = String(req.body.question).slice(0, 200);
  const run = await stream(server, `ai.${id}`, { stop: fanfare });
  run.pipe(answer(question, run.signal, Number(TOKENS_PER_SECOND))).catch(console.error);
  res.status(201).json({ id });
});

// A token to read and stop this one answer. Your login belongs here.
app.get('/answers/:id/token', async (req, res) => {
  const room = `ai.${req.params.id}`;
  const rooms = { ...rights(room), publish: [`${room}/stop`] };
  const token = await sign({ user: 'visitor', rooms }, JWT_SECRET, { expiresInS: 3600 });
  res.set('Cache-Control', 'no-store').type('text').send(token);
});

const listener = app.listen(WEB_PORT, () => {
  const { port } = Object(listener.address());
  console.log(`open http://localhost:${port}`);
});
