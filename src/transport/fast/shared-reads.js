// shared-reads.js: one buffer that all sockets are read into.
//
// Node reads into 64 KB that it asks for each time, and makes an ArrayBuffer, a Buffer and a turn
// through the socket's stream of it: 5 of the 21 us that an echoed message costs. A socket made
// with `onread` (https://nodejs.org/api/net.html#new-netsocketoptions) is read into a buffer that
// it was given. The sockets of an HTTP server can't be made so, but may become so: by what that
// option sets. Where this Node has it differently, sockets are read as usual.

import { Socket } from 'node:net';

/** As much as Node reads at a time. */
export const READ_BYTES = 65_536;
const shared = Buffer.allocUnsafeSlow(READ_BYTES);

/**
 * Node's own fields of a socket, by what they are called; null without the option.
 * @type {Readonly<{buffer: symbol, callback: symbol}>|null}
 */
const FIELDS = fieldsOf(new Socket());

/**
 * @typedef {Record<symbol, unknown> & {_handle: {useUserBuffer?: (buffer: Buffer) => void}|null}}
 *   Fields
 */

/**
 * From now on a socket is read into the shared buffer, and its stream gets nothing but the end.
 * @param {Socket} socket that speaks TCP itself
 * @param {(this: Socket, size: number, buffer: Buffer) => void} onRead the first bytes of the
 *   buffer are what was read, and are to be used before it returns
 * @returns {boolean} false: it is read as usual
 */
export function shareReads(socket, onRead) {
  const fields = /** @type {Fields} */ (/** @type {unknown} */ (socket));
  const { _handle: handle } = fields;
  if (FIELDS === null || typeof handle?.useUserBuffer !== 'function' || 'encrypted' in socket)
    return false;
  fields[FIELDS.buffer] = shared;
  fields[FIELDS.callback] = onRead;
  handle.useUserBuffer(shared);
  return true;
}

/** @param {Socket} socket that was made without the option */
function fieldsOf(socket) {
  const fields = /** @type {Fields} */ (/** @type {unknown} */ (socket));
  const find = (/** @type {string} */ name) =>
    Object.getOwnPropertySymbols(socket).find(({ description }) => description === name);
  const [buffer, callback] = [find('kBuffer'), find('kBufferCb')];
  if (
    buffer === undefined ||
    callback === undefined ||
    fields[buffer] !== null ||
    fields[callback] !== null
  )
    return null;
  return Object.freeze({ buffer, callback });
}
