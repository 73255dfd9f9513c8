// sse-request.js: requests for server-sent events, and their refusals.
//
//   GET /sse?room=a&room=b&last=50&lastSeconds=3600&presence=true&lastEventId=…&token=…
//
// A browser's EventSource gives up for ever on any status but 200; 204 is the standard's way to
// stop it (WHATWG HTML 9.2). So a client that accepts text/event-stream gets 200, `retry:` and the
// end if waiting helps, and 204 if it does not. Every other client gets the plain status.

import {
  isRoom,
  MAX_LAST,
  MAX_LAST_SECONDS,
  readLatest,
  readSince,
} from '../../protocol/decode.js';
import { ERROR_HEADER, refusal, toHttp } from '../../protocol/refusal.js';
import { partsOf } from '../../protocol/url-parts.js';
import { hasBody, headFault } from '../../transport/handshake.js';
import { responseText } from '../../transport/http-answers.js';
import { headText } from '../../transport/stream.js';

/** Rooms of a stream, with those that its token joins. An id lists a position for each. */
export const MAX_STREAM_ROOMS = 8;
/** Stands in an id: the stream is not a member of this room yet. */
export const NO_POSITION = '-';
const MAX_ID_LENGTH = 512;

/** @import { Since } from '../../protocol/decode.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */
/** @import { Headers } from '../../transport/cors.js' */
/** @import { IncomingMessage } from 'node:http' */

export class StreamRequest {
  /** @param {Pick<IncomingMessage, 'url'|'headers'>} request `GET /sse` @param {Headers} headers */
  constructor(request, headers) {
    const parameters = new URLSearchParams(partsOf(request.url).query);
    this.headers = headers;
    /** Names of rooms, perhaps invalid. @type {readonly string[]} */
    this.rooms = [...new Set(parameters.getAll('room'))];
    const number = (/** @type {string} */ name) =>
      parameters.has(name) ? Number(parameters.get(name)) : undefined;
    /** Which of the latest messages are asked for; null: invalid. */
    this.latest = readLatest(number('last'), number('lastSeconds'));
    this.isPresent = parameters.get('presence') === 'true';
    const header = request.headers['last-event-id'];
    /** '': none. When EventSource returns, the header is newer than the URL. @type {string} */
    this.lastEventId =
      (typeof header === 'string' && header) || (parameters.get('lastEventId') ?? '');
    this.isReturning = this.lastEventId.includes(':');
    this.isEventSource = /\btext\/event-stream\b/i.test(request.headers.accept ?? '');
  }

  /** @param {readonly string[]} rooms @returns {StreamRequest} the same request for these */
  forRooms(rooms) {
    return Object.assign(Object.create(StreamRequest.prototype), this, { rooms });
  }
}

/** @param {number} most rooms of a stream @returns {string} what a refusal says */
export function tooManyRooms(most) {
  return `A stream of server-sent events has at most ${most} rooms. Open another one for more.`;
}

/**
 * Checks a request before admission.
 * @param {IncomingMessage} request @param {StreamRequest} stream @returns {Refusal|null}
 */
export function streamFault(request, { rooms, latest }) {
  // HTTP/1.0 passes: the events need no chunks.
  const fault = headFault(request);
  if (fault !== null)
    return fault.code === 'bad_request' ? fault : refusal('stream_headers', fault.message);
  if (hasBody(request)) return refusal('bad_request', 'No body.');
  if (!rooms.every(isRoom)) return refusal('INVALID_ROOM');
  if (rooms.length > MAX_STREAM_ROOMS) return refusal('ROOM_LIMIT', tooManyRooms(MAX_STREAM_ROOMS));
  if (latest !== null) return null;
  const rule = `last must be from 1 to ${MAX_LAST}, and lastSeconds to ${MAX_LAST_SECONDS}.`;
  return refusal('bad_request', rule);
}

/**
 * The positions at which a returning client goes on, one for each room with history.
 * @param {string} lastEventId '': it is new @param {number} count of these rooms
 * @returns {(Since|null)[]} null: the client has not been in the room. An id that does not fit
 *   leads to positions that no room can prove, so the client gets `resync`. So does an id with more
 *   positions than rooms, and a place without one. A position of another room has another epoch.
 */
export function readLastEventId(lastEventId, count) {
  if (lastEventId === '') return Array.from({ length: count }, () => null);
  const parts = lastEventId.length > MAX_ID_LENGTH ? [] : lastEventId.split(',');
  // fanfare/client/sse names rooms without a position last, also those without history.
  const isOfOtherRooms = parts.findLastIndex((part) => part !== NO_POSITION) >= count;
  return Array.from({ length: count }, (_, i) => {
    if (isOfOtherRooms || parts[i] === undefined) return readSince({});
    if (parts[i] === NO_POSITION) return null;
    const [epoch, offset] = parts[i].split(':');
    return readSince({ epoch, offset });
  });
}

/** @param {StreamRequest} stream @param {Refusal} refused @returns {string} a last response */
export function streamRefusal({ headers: common, isEventSource }, refused) {
  const { status, headers, body } = toHttp(refused);
  if (!isEventSource) return responseText(status, { ...common, ...headers }, body);
  const { retryAfterS } = refused;
  // Without a body the developer tools of a browser still show these headers.
  if (retryAfterS === 0) {
    const { message } = refused;
    // A hook's text may have anything.
    const isShown = /^[\x20-\x7e]*$/.test(message);
    const own = { [ERROR_HEADER]: headers[ERROR_HEADER] };
    return headText(204, {
      ...common,
      ...own,
      ...(isShown ? { 'Fanfare-Error-Message': message } : {}),
    });
  }
  const retryMs = 1000 * retryAfterS + Math.floor(1000 * Math.random());
  return `${streamHead(common)}retry: ${retryMs}\nevent: error\ndata: {"type":"error",${body.slice(1)}\n\n`;
}

/** The head of a stream. @param {Headers} common */
export function streamHead(common) {
  return headText(200, {
    'Content-Type': 'text/event-stream',
    'Cache-Control': 'no-cache, no-transform',
    'X-Accel-Buffering': 'no', // nginx
    ...common,
  });
}
