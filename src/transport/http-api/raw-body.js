// raw-body.js: a request whose body is the payload itself: `POST /api/publish?room=…`. It passes
// into the bucket piece by piece, and not through express, which gets whole bodies.

import { Readable } from 'node:stream';

const PATH = '/api/publish?';
/** RFC 9110 8.3.1: a media type, perhaps with parameters. */
const MEDIA_TYPE =
  /^[\w!#$&^.+-]{1,64}\/[\w!#$&^.+-]{1,64}(?: *; *[\w.-]+=(?:[\w.+-]+|"[\w .+-]*"))*$/;
const MAX_TYPE_LENGTH = 128;

/** @import { IncomingMessage } from 'node:http' */

/** The reads of a socket. @typedef {{pause(): void, resume(): void}} BodyFlow */

/** @param {IncomingMessage} request */
export function hasRawBody({ method, url = '' }) {
  return (
    method === 'POST' &&
    url.startsWith(PATH) &&
    new URLSearchParams(url.slice(PATH.length)).has('room')
  );
}

/** @param {string} type @returns {boolean} could it be the value of Content-Type? */
export function isMediaType(type) {
  return type.length <= MAX_TYPE_LENGTH && MEDIA_TYPE.test(type);
}

/**
 * The body of a request as a stream. The listeners are set before the call returns.
 * Node's own back-pressure would pause the socket in the middle of a read, which the public port
 * takes for a client that does not read its answers. So the request always flows, and the socket is
 * paused after a read.
 * @param {IncomingMessage} request @param {BodyFlow} flow
 * @returns {Readable} ends with an error if the client leaves; destroy it in any case
 */
export function rawBody(request, flow) {
  const body = new Readable({
    read: () => flow.resume(),
    destroy: (error, done) => {
      request.off('data', requestOnData);
      request.off('end', requestOnEnd);
      request.off('close', requestOnClose);
      request.resume();
      flow.resume();
      done(error);
    },
  });
  const requestOnData = (/** @type {Buffer} */ part) => {
    if (!body.push(part)) flow.pause();
  };
  const requestOnEnd = () => {
    request.off('close', requestOnClose); // `close` follows in any case
    body.push(null);
  };
  const requestOnClose = () => void body.destroy(new ClientGone());
  request.on('data', requestOnData);
  request.on('end', requestOnEnd);
  request.on('close', requestOnClose);
  body.on('error', () => {}); // its reader gets it too, if there is one
  request.read(0); // as in body.js
  return body;
}

export class ClientGone extends Error {
  code = 'GONE';
}
