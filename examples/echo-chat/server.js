// server.js: the backend of the chat: serves its page, signs channels and publishes messages, as a
// Laravel application does with its BroadcastServiceProvider.

import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import express from 'express';
import Pusher from 'pusher';

const { SERVER_URL = 'http://localhost:3000', WEB_PORT = 8080 } = process.env;
const { PUSHER_APP_ID = '', PUSHER_APP_KEY = '', PUSHER_APP_SECRET = '' } = process.env;
const { hostname, port, protocol } = new URL(SERVER_URL);
const pusher = new Pusher({
  appId: PUSHER_APP_ID,
  key: PUSHER_APP_KEY,
  secret: PUSHER_APP_SECRET,
  host: hostname,
  port,
  useTLS: protocol === 'https:',
});

const require = createRequire(import.meta.url);
const app = express();
app.use(express.static(join(import.meta.dirname, 'public')));
app.use(express.static(join(import.meta.dirname, '../chat/public'), { index: false }));
app.use('/vendor', express.static(join(dirname(require.resolve('pusher-js')), '../web')));
app.use('/vendor', express.static(dirname(require.resolve('laravel-echo'))));
app.get('/settings', (_req, res) => res.json({ key: PUSHER_APP_KEY, url: SERVER_URL }));

// Your login belongs here. This demo believes each name.
app.use(express.json(), express.urlencoded());
app.use((req, res, next) => {
  res.locals.name = String(req.get('X-Name') ?? '').slice(0, 30);
  if (res.locals.name === '') res.sendStatus(401);
  else next();
});

app.post('/broadcasting/auth', (req, res) => {
  const { socket_id, channel_name } = req.body;
  if (channel_name !== 'presence-lobby') return void res.sendStatus(403);
  const { name } = res.locals;
  res.send(
    pusher.authorizeChannel(socket_id, channel_name, { user_id: name, user_info: { name } }),
  );
});

// The page shows its own message at once, so its connection is left out, as `toOthers()` does.
app.post('/messages', async (req, res) => {
  const message = { from: res.locals.name, text: String(req.body.text).slice(0, 500) };
  await pusher.trigger('presence-lobby', 'message', message, { socket_id: req.get('X-Socket-ID') });
  res.json(message);
});

const server = app.listen(WEB_PORT, () => {
  console.log(`open http://localhost:${Object(server.address()).port}`);
});
