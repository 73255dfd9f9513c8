// body.js: reads the body of a request as bytes, within bounds of size and time.

/** Time for a whole body. */
export const BODY_TIMEOUT_MS = 10_000;
const NOTHING = Buffer.alloc(0);
/** RFC 9110 8.3: a media type, perhaps with a charset. JSON is always UTF-8 (RFC 8259 8.1). */
const JSON_TYPE = /^application\/json *(?:; *charset *= *"?utf-8"? *)?$/i;

/** @import { IncomingMessage } from 'node:http' */

/**
 * Reads a body. The listeners are set before the call returns.
 * @param {IncomingMessage} request @param {number} maxBytes
 * @param {(body: Buffer) => void} onBody called once, when the body is complete
 * @param {(reason: 'body_size'|'body_time'|'gone') => void} onFault called instead of `onBody`;
 *   `gone`: the client has left
 */
export function readBody(request, maxBytes, onBody, onFault) {
  let body = NOTHING;
  let bytes = 0;
  let isFinished = false;
  /** @param {() => void} act */
  const finish = (act) => {
    if (isFinished) return;
    isFinished = true;
    clearTimeout(timer);
    request.off('data', requestOnData);
    request.off('end', requestOnEnd);
    request.off('close', requestOnClose);
    act();
  };
  const late = () => finish(() => onFault('body_time'));
  // After all readable sockets: if the worker was blocked, its clients are not late.
  const timer = setTimeout(() => setImmediate(late), BODY_TIMEOUT_MS);
  const requestOnData = (/** @type {Buffer} */ part) => {
    const end = bytes + part.length;
    if (end > maxBytes) return finish(() => onFault('body_size'));
    // Copied: a Buffer for each chunk of a byte would take a hundred bytes and keep the whole read.
    if (end > body.length) {
      const larger = Buffer.allocUnsafe(Math.min(maxBytes, Math.max(end, 2 * body.length)));
      body.copy(larger, 0, 0, bytes);
      body = larger;
    }
    part.copy(body, bytes);
    bytes = end;
  };
  const requestOnEnd = () => finish(() => onBody(body.subarray(0, bytes)));
  const requestOnClose = () => finish(() => onFault('gone'));
  request.on('data', requestOnData);
  request.on('end', requestOnEnd);
  request.on('close', requestOnClose);
  // The HTTP server gets the rest of this read in the same turn. Without this call it would wait in
  // the request's buffer, and Node would pause the socket if the buffer is full.
  request.read(0);
}

/** @param {IncomingMessage} request with a body @returns {boolean} JSON, not compressed? */
export function isJson({ headers }) {
  return JSON_TYPE.test(headers['content-type'] ?? '') && headers['content-encoding'] === undefined;
}
