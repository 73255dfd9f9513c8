// fanfare.js: Fanfare's own client library, with its defaults.

import { Fanfare } from '../../../src/client/node.js';

/** @param {number} port @param {string} room @param {import('../client.js').Listener} listener */
export function open(port, room, { onJoined, onLost, onMessage }) {
  const fanfare = new Fanfare(`ws://127.0.0.1:${port}/ws`);
  fanfare.on('state', (/** @type {string} */ state) => {
    if (state !== 'connected' && state !== 'connecting') onLost();
  });
  fanfare.on('error', () => {});
  const handle = fanfare.join(room, { recoverFailed: async () => ({}) });
  handle.on('joined', onJoined);
  handle.on('message', (/** @type {{n: number}} */ { n }) => onMessage(n));
  handle.on('error', () => {});
}
