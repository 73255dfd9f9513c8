// anonymous.js: the session of connections without a user: it may do what the settings allow.

import { isRoom } from '../protocol/decode.js';

/** @type {readonly string[]} */
const NO_ROOMS = Object.freeze([]);

export const ANONYMOUS = Object.freeze({
  isAnonymous: /** @type {const} */ (true),
  app: null,
  user: '',
  name: '',
  /** As `from` of a publication it is replaced by the id of the connection. */
  sender: '',
  /** They share their keys, because a client that comes back has another connection. */
  keyOwner: 'anonymous',
  autojoin: NO_ROOMS,
  lease: null,
  granted: null,
  endS: 0,
  mayBroadcast: false,
  roomOf: (/** @type {unknown} */ name) => (isRoom(name) ? name : null),
  mayJoin: () => true,
  mayPublish: () => true,
  mayReadPresence: () => true,
  mayReadHistory: () => true,
  grant() {},
  withdraw() {},
});
