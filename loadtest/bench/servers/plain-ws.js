// plain-ws.js: a careful server on `ws` alone: cluster, Redis, one JSON.stringify a message,
// ws.send of one shared Buffer.
//
// What a good team writes when the tutorial's server got slow, and the base of the ratios in the
// report: a Redis channel for each room that has members here, the frame's text made once by the
// publishing worker, never parsed by the others, no HTTP server object kept in the way, compression
// off. PORT, REDIS_URL, WORKERS.

import cluster from 'node:cluster';
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { Redis } from 'ioredis';
import { WebSocketServer } from 'ws';

const { PORT = '3000', REDIS_URL = 'redis://127.0.0.1:6379', WORKERS = '2' } = process.env;
const TEXT = { binary: false };

if (cluster.isPrimary) {
  for (let i = 0; i < Number(WORKERS); i++) cluster.fork();
  cluster.on('exit', () => process.exit(1));
  process.on('SIGTERM', () => process.exit(0));
} else {
  const publisher = new Redis(REDIS_URL, { enableAutoPipelining: true });
  const subscriber = new Redis(REDIS_URL);

  /**
   * @typedef {object} Room
   * @property {Set<import('ws').WebSocket>} members
   * @property {Promise<unknown>} subscribed
   */
  /** @type {Map<string, Room>} */
  const rooms = new Map();

  subscriber.on('messageBuffer', (channel, frame) => {
    const room = rooms.get(channel.toString());
    if (!room) return;
    for (const socket of room.members) if (socket.readyState === 1) socket.send(frame, TEXT);
  });

  const server = createServer((_request, response) => response.end('ok'));
  const sockets = new WebSocketServer({
    server,
    perMessageDeflate: false,
    clientTracking: false,
    maxPayload: 102_400,
  });

  sockets.on('connection', (socket, request) => {
    /** @type {Set<string>} */
    const joined = new Set();
    const echoes = request.url === '/echo';
    const from = randomBytes(8).toString('base64url');

    socket.on('message', async (bytes, isBinary) => {
      if (echoes) {
        socket.send(bytes, { binary: isBinary });
        return;
      }
      const message = JSON.parse(bytes.toString());
      if (message.type === 'join') {
        let room = rooms.get(message.room);
        if (!room) {
          room = { members: new Set(), subscribed: subscriber.subscribe(message.room) };
          rooms.set(message.room, room);
        }
        room.members.add(socket);
        joined.add(message.room);
        await room.subscribed;
        socket.send(JSON.stringify({ type: 'joined', room: message.room }));
      } else if (message.type === 'message') {
        const { room, data } = message;
        const timestamp = Date.now();
        publisher.publish(room, JSON.stringify({ type: 'message', room, data, from, timestamp }));
      }
    });

    socket.on('error', () => socket.terminate());
    socket.on('close', () => {
      for (const name of joined) {
        const room = rooms.get(name);
        if (!room) continue;
        room.members.delete(socket);
        if (room.members.size > 0) continue;
        rooms.delete(name);
        subscriber.unsubscribe(name);
      }
    });
  });

  server.listen({ port: Number(PORT), backlog: 4096 });
}
