// plain-ws.js: a careful server on `ws` and Redis alone, as a good team writes it. PORT, REDIS_URL.

import { Redis } from 'ioredis';
import { WebSocketServer } from 'ws';
import { makeServer } from './listen.js';

const { REDIS_URL = 'redis://127.0.0.1:6379' } = process.env;
const TEXT = { binary: false };
const publisher = new Redis(REDIS_URL, { enableAutoPipelining: true });
const subscriber = new Redis(REDIS_URL);
/** @type {Map<string, {members: Set<import('ws').WebSocket>, subscribed: Promise<unknown>}>} */
const rooms = new Map();

subscriber.on('messageBuffer', (channel, frame) => {
  for (const socket of rooms.get(channel.toString())?.members ?? [])
    if (socket.readyState === 1) socket.send(frame, TEXT);
});

const { server, start } = makeServer(({ room, data }) =>
  publisher.publish(room, JSON.stringify({ type: 'message', room, data })),
);
const sockets = new WebSocketServer({ server, perMessageDeflate: false });

sockets.on('connection', (socket) => {
  /** @type {string|undefined} */
  let joined;
  socket.on('message', async (bytes) => {
    const message = JSON.parse(bytes.toString());
    if (message.type !== 'join') return;
    joined = String(message.room);
    let room = rooms.get(joined);
    if (!room) {
      room = { members: new Set(), subscribed: subscriber.subscribe(joined) };
      rooms.set(joined, room);
    }
    room.members.add(socket);
    await room.subscribed;
    socket.send(JSON.stringify({ type: 'joined', room: joined }));
  });
  socket.on('error', () => socket.terminate());
  socket.on('close', () => {
    if (joined === undefined) return;
    const room = rooms.get(joined);
    room?.members.delete(socket);
    if (room?.members.size !== 0) return;
    rooms.delete(joined);
    subscriber.unsubscribe(joined);
  });
});

// 1012: service restart.
start(() => {
  for (const socket of sockets.clients) socket.close(1012);
});
