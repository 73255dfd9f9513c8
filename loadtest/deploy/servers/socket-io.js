// socket-io.js: Socket.IO with a Redis adapter, set up as its guides advise. PORT, REDIS_URL.
//
// RECOVERY=on takes the adapter on Redis streams and turns connection state recovery on; the adapter
// on pub/sub does not support it.

import { createAdapter } from '@socket.io/redis-adapter';
import { createAdapter as createStreamsAdapter } from '@socket.io/redis-streams-adapter';
import { Redis } from 'ioredis';
import { Server } from 'socket.io';
import { makeServer } from './listen.js';

const { REDIS_URL = 'redis://127.0.0.1:6379', RECOVERY } = process.env;
const redis = new Redis(REDIS_URL);
const recovers = RECOVERY === 'on';

const { server, start } = makeServer(async ({ room, data }) => {
  io.to(room).emit('message', data);
});
const io = new Server(server, {
  transports: ['websocket'],
  serveClient: false,
  adapter: recovers ? createStreamsAdapter(redis) : createAdapter(redis, redis.duplicate()),
  ...(recovers ? { connectionStateRecovery: {} } : {}),
});

io.on('connection', (socket) => {
  socket.on('join', async (room, done) => {
    await socket.join(room);
    done();
  });
});

start(() => io.close());
