// centrifuge.js: centrifuge-js with its defaults, for Fanfare's door and for Centrifugo.

import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';

/** @param {number} port @param {string} room @param {import('../client.js').Listener} listener */
export function open(port, room, { onJoined, onLost, onMessage }) {
  const url = `ws://127.0.0.1:${port}/connection/websocket`;
  const centrifuge = new Centrifuge(url, { websocket: WebSocket });
  centrifuge.on('error', () => {});
  const subscription = centrifuge.newSubscription(room);
  subscription.on('subscribed', onJoined);
  subscription.on('subscribing', onLost);
  subscription.on('error', () => {});
  subscription.on('publication', ({ data }) => onMessage(data.n));
  subscription.subscribe();
  centrifuge.connect();
}
