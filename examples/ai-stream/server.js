// server.js: the backend of the AI stream: runs the model, and keeps the latest answers.

import { randomUUID } from 'node:crypto';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import express from 'express';
import { SignJWT } from 'jose';
import { answer } from './model.js';
import { TextStream } from './stream.js';

const { SERVER_URL = 'http://localhost:3000', WEB_PORT = 8080, JWT_SECRET } = process.env;
const { API_KEY = '', TOKENS_PER_SECOND = 60 } = process.env;
const MAX_ANSWERS = 100;
const client = dirname(fileURLToPath(import.meta.resolve('fanfare/client')));

/** The latest answers, by id. @type {Map<string, {stream: TextStream, stop: () => void}>} */
const answers = new Map();

const app = express();
app.use(express.static(`${import.meta.dirname}/public`));
app.use('/client', express.static(client));
app.use(express.json());
app.get('/server-url', (_req, res) => void res.type('text').send(SERVER_URL));

app.post('/answers', (req, res) => {
  const id = randomUUID();
  const question = String(req.body.question).slice(0, 200);
  const control = new AbortController();
  const stream = new TextStream(SERVER_URL, API_KEY, `ai.${id}`);
  answers.set(id, { stream, stop: () => control.abort() });
  const [oldest] = answers.keys();
  if (answers.size > MAX_ANSWERS) answers.delete(oldest);
  stream.run(answer(question, control.signal, Number(TOKENS_PER_SECOND))).catch(console.error);
  res.status(201).json({ id });
});

app.use('/answers/:id', (req, res, next) => {
  res.locals.found = answers.get(req.params.id);
  if (res.locals.found) next();
  else res.sendStatus(404);
});

// The text as it is now, and the position of the last part in it.
app.get('/answers/:id', (_req, res) => {
  const { text, isDone, position } = res.locals.found.stream;
  res.set('Cache-Control', 'no-store').json({ text, isDone, position });
});

app.post('/answers/:id/stop', (_req, res) => {
  res.locals.found.stop();
  res.sendStatus(204);
});

// A token to read this one answer. Your login belongs here.
app.get('/answers/:id/token', async (req, res) => {
  const room = `ai.${req.params.id}`;
  const token = new SignJWT({ rooms: { join: [room], history: [room] } });
  token.setProtectedHeader({ alg: 'HS256' }).setSubject('visitor');
  token.setIssuedAt().setExpirationTime('1h');
  res.set('Cache-Control', 'no-store').type('text');
  res.send(await token.sign(new TextEncoder().encode(JWT_SECRET)));
});

const server = app.listen(WEB_PORT, () => {
  const { port } = Object(server.address());
  console.log(`open http://localhost:${port}`);
});
