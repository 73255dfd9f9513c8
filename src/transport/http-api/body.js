// body.js: reads the body of a request as bytes, within bounds of size and time.

/** Time for a whole body. */
const BODY_TIMEOUT_MS = 10_000;
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
  /** @type {Buffer[]} */
  const parts = [];
  let bytes = 0;
  /** @param {() => void} act */
  const finish = (act) => {
    clearTimeout(timer);
    request.off('data', requestOnData);
    request.off('end', requestOnEnd);
    request.off('close', requestOnClose);
    act();
  };
  const timer = setTimeout(() => finish(() => onFault('body_time')), BODY_TIMEOUT_MS);
  const requestOnData = (/** @type {Buffer} */ part) => {
    bytes += part.length;
    if (bytes > maxBytes) finish(() => onFault('body_size'));
    else parts.push(part);
  };
  const requestOnEnd = () =>
    finish(() => onBody(parts.length === 1 ? parts[0] : Buffer.concat(parts)));
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
