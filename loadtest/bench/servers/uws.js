// uws.js: uWebSockets.js, with its own topics inside a worker and Redis between the workers.
//
// A message goes through Redis to both workers, and `publish` joins the frames of one turn for each
// member, as the library does by default. Compression is off. No member is cut off at 64 KB of
// unsent bytes, because a message then counts as lost. Each worker listens itself, with
// SO_REUSEPORT. PORT, REDIS_URL, WORKERS.

import cluster from 'node:cluster';
import { randomBytes } from 'node:crypto';
import { Redis } from 'ioredis';
import uws from 'uwebsockets';

const { PORT = '3000', REDIS_URL = 'redis://127.0.0.1:6379', WORKERS = '2' } = process.env;

if (cluster.isPrimary) {
  for (let i = 0; i < Number(WORKERS); i++) cluster.fork();
  cluster.on('exit', () => process.exit(1));
  process.on('SIGTERM', () => process.exit(0));
} else {
  const publisher = new Redis(REDIS_URL, { enableAutoPipelining: true });
  const subscriber = new Redis(REDIS_URL);
  /** @type {Map<string, Promise<unknown>>} */
  const subscribed = new Map();
  const app = uws.App();

  subscriber.on('messageBuffer', (channel, frame) => app.publish(channel.toString(), frame));

  const limits = {
    compression: uws.DISABLED,
    maxPayloadLength: 102_400,
    maxBackpressure: 64 * 1024 * 1024,
    idleTimeout: 120,
  };
  app.ws('/echo', {
    ...limits,
    message: (ws, data, isBinary) => void ws.send(data, isBinary),
  });
  app.ws('/ws', {
    ...limits,
    open: (ws) => {
      ws.getUserData().isOpen = true;
      ws.getUserData().id = randomBytes(8).toString('base64url');
    },
    close: (ws) => {
      ws.getUserData().isOpen = false;
    },
    async message(ws, bytes) {
      const message = JSON.parse(Buffer.from(bytes).toString());
      if (message.type === 'join') {
        ws.subscribe(message.room);
        if (!subscribed.has(message.room))
          subscribed.set(message.room, subscriber.subscribe(message.room));
        await subscribed.get(message.room);
        if (ws.getUserData().isOpen)
          ws.send(JSON.stringify({ type: 'joined', room: message.room }));
      } else if (message.type === 'message') {
        const { room, data } = message;
        const [from, timestamp] = [ws.getUserData().id, Date.now()];
        publisher.publish(room, JSON.stringify({ type: 'message', room, data, from, timestamp }));
      }
    },
  });
  app.listen(Number(PORT), (socket) => {
    if (!socket) process.exit(1);
  });
}
