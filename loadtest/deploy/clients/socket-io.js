// socket-io.js: the client of Socket.IO, over WebSocket only: long polling, its first choice, would
// need sticky sessions at the load balancer.

import { io } from 'socket.io-client';

/** @param {number} port @param {string} room @param {import('../client.js').Listener} listener */
export function open(port, room, { onJoined, onLost, onMessage }) {
  const socket = io(`http://127.0.0.1:${port}`, { transports: ['websocket'], forceNew: true });
  socket.on('connect', () => {
    // The server has restored the rooms of a recovered session.
    if (socket.recovered) onJoined();
    else socket.emit('join', room, onJoined);
  });
  socket.on('disconnect', onLost);
  socket.on('message', ({ n }) => onMessage(n));
}
