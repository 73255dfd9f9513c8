// pusher.js: pusher-js with its defaults, for Fanfare's door and for soketi.

import Pusher from 'pusher-js';
import { APP } from '../settings.js';

/** @param {number} port @param {string} room @param {import('../client.js').Listener} listener */
export function open(port, room, { onJoined, onLost, onMessage }) {
  const pusher = new Pusher(APP.key, {
    cluster: '',
    wsHost: '127.0.0.1',
    wsPort: port,
    forceTLS: false,
    enabledTransports: ['ws'],
    enableStats: false,
  });
  pusher.connection.bind('state_change', (/** @type {{previous: string}} */ { previous }) => {
    if (previous === 'connected') onLost();
  });
  const channel = pusher.subscribe(room);
  channel.bind('pusher:subscription_succeeded', onJoined);
  channel.bind('message', (/** @type {{n: number}} */ { n }) => onMessage(n));
}
