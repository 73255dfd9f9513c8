// client-messages.js: messages of a server to a client, for tests of both client libraries.

/** @param {number} offset @param {string} [epoch] */
export const at = (offset, epoch = 'e1') => ({ epoch, offset });

/** @param {number} offset @param {string} [epoch] */
export const message = (offset, epoch) => ({
  type: 'message',
  room: 'chat.1',
  payload: offset,
  from: 'ann',
  timestamp: 1,
  ...at(offset, epoch),
});

/**
 * Everything that a room hands to its application.
 * @param {import('../../src/client/room.js').Room|import('../../src/client/sse/room.js').Room} room
 */
export function seen(room) {
  /** @type {unknown[]} */
  const list = [];
  room.on('message', (/** @type {unknown} */ payload) => list.push(payload));
  room.on('reset', (/** @type {unknown} */ state) => list.push({ state }));
  return list;
}
