// socket-io.js: Socket.IO with its Redis adapter, set up as its own guides advise.
//
// WebSocket transport only (so that no sticky sessions are needed), compression off (its default),
// the first HTTP request of each connection forgotten ("memory usage" in its performance guide),
// one pair of Redis connections a worker. A message goes to the room that the socket joined. PORT,
// REDIS_URL, WORKERS.

import cluster from 'node:cluster';
import { createServer } from 'node:http';
import { createAdapter } from '@socket.io/redis-adapter';
import { Redis } from 'ioredis';
import { Server } from 'socket.io';

const { PORT = '3000', REDIS_URL = 'redis://127.0.0.1:6379', WORKERS = '2' } = process.env;

if (cluster.isPrimary) {
  for (let i = 0; i < Number(WORKERS); i++) cluster.fork();
  cluster.on('exit', () => process.exit(1));
  process.on('SIGTERM', () => process.exit(0));
} else {
  const publisher = new Redis(REDIS_URL);
  const subscriber = publisher.duplicate();
  const server = createServer();
  const io = new Server(server, {
    transports: ['websocket'],
    serveClient: false,
    adapter: createAdapter(publisher, subscriber),
  });

  io.engine.on('connection', (/** @type {{ request: unknown }} */ socket) => {
    socket.request = null;
  });

  io.on('connection', (socket) => {
    socket.on('join', (room) => {
      socket.data.room = room;
      socket.join(room);
      socket.emit('joined', room);
    });
    socket.on('message', (data) => {
      const { room } = socket.data;
      io.to(room).emit('message', { room, data, from: socket.id, timestamp: Date.now() });
    });
    socket.on('echo', (data) => socket.emit('echo', data));
  });

  server.listen({ port: Number(PORT), backlog: 4096 });
}
