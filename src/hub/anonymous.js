// anonymous.js: the session of connections without a user. The settings decide what they may do.

import { isRoom } from '../protocol/decode.js';

/** @type {readonly string[]} */
const NO_ROOMS = Object.freeze([]);

export const ANONYMOUS = Object.freeze({
  isAnonymous: /** @type {const} */ (true),
  app: null,
  user: '',
  name: '',
  /** Publications have the connection's id as `from` instead. */
  sender: '',
  /** Shared idempotency keys, because a client that returns has another connection. */
  keyOwner: 'anonymous',
  autojoin: NO_ROOMS,
  lease: null,
  granted: null,
  endS: 0,
  mayBroadcast: false,
  validRoomOf: (/** @type {unknown} */ name) => (isRoom(name) ? name : null),
  mayJoin: () => true,
  /** A message for an audience would be hidden from moderators. */
  hasRight: (/** @type {import('../auth/rights.js').RoomRight} */ right) => right !== 'audience',
  grant() {},
  withdraw() {},
});
