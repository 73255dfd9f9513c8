// plain-ws.js: a WebSocket that reconnects, with the defaults of reconnecting-websocket.

import { createRequire } from 'node:module';
import WebSocket from 'ws';

// Its entry for bundlers is no ES module that Node accepts.
const ReconnectingWebSocket = createRequire(import.meta.url)('reconnecting-websocket');

/** @param {number} port @param {string} room @param {import('../client.js').Listener} listener */
export function open(port, room, { onJoined, onLost, onMessage }) {
  const socket = new ReconnectingWebSocket(`ws://127.0.0.1:${port}/`, [], { WebSocket });
  socket.addEventListener('open', () => socket.send(JSON.stringify({ type: 'join', room })));
  socket.addEventListener('close', onLost);
  socket.addEventListener('message', ({ data }) => {
    const message = JSON.parse(data);
    if (message.type === 'joined') onJoined();
    else onMessage(message.data.n);
  });
}
