// part.js: the messages of a run, in a room with history.
//
//   {"at": 0, "chunks": ["Once", " upon"]}
//   {"at": 2, "chunks": [" a time."], "end": "done"}
//
// `at` is the number of the first chunk, so a reader that meets a part again drops what it has. The
// last part has the end mark. It is stored like any other, so a late reader learns that the run has
// ended, and silence never means the end.

/**
 * @typedef {'done'|'stopped'|'failed'} RunEnd
 */

/**
 * @template [Chunk=any]
 * @typedef {object} Part
 * @property {number} at @property {Chunk[]} chunks
 * @property {RunEnd} [end] @property {string} [message] for readers of a run that has failed
 */

/** @typedef {{epoch: string, offset: number}} Position */

/** @param {any} payload @returns {payload is Part} */
export function isPart(payload) {
  return Number.isSafeInteger(payload?.at) && Array.isArray(payload.chunks);
}

/** The room in which readers ask a run's producer to stop. @param {string} room of the run */
export function stopRoomOf(room) {
  return `${room}/stop`;
}
