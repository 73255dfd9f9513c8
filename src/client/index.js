// index.js: `fanfare/client` for browsers, and for Node with a global WebSocket.

export { FanfareError } from './error.js';
export { Fanfare } from './fanfare.js';
export { Room } from './room.js';
