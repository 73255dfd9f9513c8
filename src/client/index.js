// index.js: `fanfare/client` for browsers, and for Node with a global WebSocket.

export { FanfareError } from './error.js';
export { Fanfare } from './fanfare.js';
export { Room } from './room.js';
// An application adds to Rooms here only if this module exports everything of that one.
export * from './rooms.js';

/** @typedef {import('./fanfare.js').Options} Options */
/** @typedef {import('./fanfare.js').State} State */
/** @typedef {import('./fanfare.js').StateDetail} StateDetail */
/** @typedef {import('./wire.js').Welcome} Welcome */
/** @typedef {import('./wire.js').Position} Position */
/** @typedef {import('./error.js').Code} Code */
/** @typedef {import('./client.js').PublishOptions} PublishOptions */
/** @typedef {import('./room.js').JoinOptions} JoinOptions */
/** @typedef {import('./room.js').HistoryOptions} HistoryOptions */
/** @typedef {import('./room.js').Meta} Meta */
/** @typedef {import('./presence.js').Member} Member */
/** @template [Payload=any] @typedef {import('./room.js').RoomMessage<Payload>} RoomMessage */
/** @template [Payload=any] @typedef {import('./room.js').HistoryPage<Payload>} HistoryPage */
/** @template [Payload=any] @typedef {import('./room.js').Change<Payload>} Change */
