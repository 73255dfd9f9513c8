// tutorial.js: the server of the usual tutorial: cluster, `ws`, Redis pub/sub, and a JSON.stringify
// for each socket.
//
// Written the way such articles write it: every worker subscribes to one channel, parses what
// arrives, looks the room up and sends to each open client. Nothing is made slower than they have
// it. PORT, REDIS_URL, WORKERS.

import cluster from 'node:cluster';
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { Redis } from 'ioredis';
import { WebSocket, WebSocketServer } from 'ws';

const { PORT = '3000', REDIS_URL = 'redis://127.0.0.1:6379', WORKERS = '2' } = process.env;

if (cluster.isPrimary) {
  for (let i = 0; i < Number(WORKERS); i++) cluster.fork();
  cluster.on('exit', () => process.exit(1));
  process.on('SIGTERM', () => process.exit(0));
} else {
  const publisher = new Redis(REDIS_URL);
  const subscriber = new Redis(REDIS_URL);

  /** @type {Map<string, Set<WebSocket>>} */
  const rooms = new Map();

  await subscriber.subscribe('messages');
  subscriber.on('message', (_channel, text) => {
    const { room, ...message } = JSON.parse(text);
    for (const client of rooms.get(room) ?? []) {
      if (client.readyState === WebSocket.OPEN) {
        client.send(JSON.stringify({ type: 'message', room, ...message }));
      }
    }
  });

  const server = createServer((_request, response) => response.end('ok'));
  const sockets = new WebSocketServer({ server });

  sockets.on('connection', (socket, request) => {
    /** @type {Set<string>} */
    const joined = new Set();
    const echoes = request.url === '/echo';
    const from = randomBytes(8).toString('base64url');

    socket.on('message', (bytes) => {
      if (echoes) {
        socket.send(bytes.toString());
        return;
      }
      const message = JSON.parse(bytes.toString());
      if (message.type === 'join') {
        const members = rooms.get(message.room) ?? new Set();
        rooms.set(message.room, members);
        members.add(socket);
        joined.add(message.room);
        socket.send(JSON.stringify({ type: 'joined', room: message.room }));
      } else if (message.type === 'message') {
        const { room, data } = message;
        const timestamp = Date.now();
        publisher.publish('messages', JSON.stringify({ room, data, from, timestamp }));
      }
    });

    socket.on('error', () => socket.terminate());
    socket.on('close', () => {
      for (const room of joined) {
        const members = rooms.get(room);
        members?.delete(socket);
        if (members?.size === 0) rooms.delete(room);
      }
    });
  });

  server.listen({ port: Number(PORT), backlog: 4096 });
}
