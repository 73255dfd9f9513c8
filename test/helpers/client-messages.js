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
 * @param {import('../../src/client/room.js').Room|import('../../src/client/sse/room.js').Room} either
 */
export function seen(either) {
  const room = /** @type {import('../../src/client/room.js').Room} */ (either);
  /** @type {unknown[]} */
  const list = [];
  room.on('message', (/** @type {unknown} */ payload) => list.push(payload));
  room.on('reset', (/** @type {unknown} */ state) => list.push({ state }));
  return list;
}

/** A change in a room with state. @param {string} key @param {unknown} payload @param {number} offset */
export const change = (key, payload, offset) => ({ ...message(offset), key, payload });

/** @param {number} offset @param {string} [epoch] */
export const synced = (offset, epoch) => ({ type: 'synced', room: 'chat.1', ...at(offset, epoch) });

/** @param {number} offset @param {string} [epoch] */
export const reset = (offset, epoch) => ({ type: 'reset', room: 'chat.1', ...at(offset, epoch) });

/**
 * Everything that a room with state hands to its application.
 * @param {import('../../src/client/room.js').Room|import('../../src/client/sse/room.js').Room} either
 */
export function seenState(either) {
  const room = /** @type {import('../../src/client/room.js').Room} */ (either);
  /** @type {unknown[]} */
  const list = [];
  room.on('joined', ({ recovered }) => list.push(['joined', recovered]));
  room.on('change', ({ key, payload, previous }) => list.push([key, payload, previous]));
  room.on('reset', (state) => list.push(['reset', state?.size]));
  room.on('synced', ({ offset }) => list.push(['synced', offset]));
  room.on('message', () => list.push('message'));
  return list;
}
