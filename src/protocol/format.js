// format.js: the formats in which a connection takes publications.
//
// A flush and a replay build each format at most once, when the first connection needs it.

import { eventEnd, publicationEvents } from './event-stream.js';
import { frameEnd, publicationFrames } from './frame.js';

export const FORMAT = Object.freeze({
  /** WebSocket frames */ FRAMES: 0,
  /** WebSocket frames, compressed by deflate.js */ DEFLATED: 1,
  /** server-sent events; an event's id is its position */ EVENTS: 2,
  /** server-sent events without ids, because each stream adds its own */ BARE_EVENTS: 3,
});

/**
 * @param {number} format of FORMAT; compressed frames are built as frames
 * @param {Buffer} prefix roomPrefix(room)
 * @param {readonly Buffer[]} publications in order
 * @returns {Buffer}
 */
export function encodePublications(format, prefix, publications) {
  return format < FORMAT.EVENTS
    ? publicationFrames(prefix, publications)
    : publicationEvents(prefix, publications, format === FORMAT.EVENTS);
}

/**
 * Copies encoded publications, and leaves some of them out.
 * @param {number} format of FORMAT
 * @param {Buffer} frames of `encodePublications`, or the same compressed
 * @param {readonly number[]} omitted their places, from 0, ascending
 * @returns {Buffer}
 */
export function leaveOut(format, frames, omitted) {
  const endOf = format < FORMAT.EVENTS ? frameEnd : eventEnd;
  /** @type {Buffer[]} */
  const parts = [];
  let at = 0;
  let place = 0;
  for (const one of omitted) {
    const start = at;
    for (; place < one; place++) at = endOf(frames, at);
    parts.push(frames.subarray(start, at));
    at = endOf(frames, at);
    place++;
  }
  parts.push(frames.subarray(at));
  return Buffer.concat(parts);
}
