// shared-reads.js: reads all sockets into one buffer. An HTTP server cannot give its sockets the
// option `onread` (https://nodejs.org/api/net.html#new-netsocketoptions); this sets its fields.
//
// Private: the symbols `kBuffer` and `kBufferCb` of a socket, and `_handle.useUserBuffer`.

import { Socket } from 'node:net';
import { probe } from './probe.js';

/** Node reads at most this much at a time. */
export const READ_BYTES = 65_536;
const shared = Buffer.allocUnsafeSlow(READ_BYTES);

/**
 * Node's symbols, found by their descriptions; null if this version of Node has others.
 * @type {Readonly<{buffer: symbol, callback: symbol}>|null}
 */
const FIELDS = fieldsOf(new Socket());

/**
 * @typedef {Record<symbol, unknown> & {_handle: {useUserBuffer?: (buffer: Buffer) => void}|null}}
 *   Fields
 */

/** @returns {string} '' if sockets can share a buffer here; otherwise the reason */
export function sharedReadsFault() {
  if (FIELDS === null) return 'sockets have no fields kBuffer and kBufferCb';
  return probe((socket) => {
    const { _handle: handle } = /** @type {Fields} */ (/** @type {unknown} */ (socket));
    return typeof handle?.useUserBuffer === 'function'
      ? ''
      : 'sockets have no method _handle.useUserBuffer';
  });
}

/**
 * Reads the socket into the shared buffer from now on. Its stream gets only the end.
 * @template {Socket} T @param {T} socket
 * @param {(this: T, size: number, buffer: Buffer) => boolean|void} onRead uses the first `size`
 *   bytes of the buffer before it returns; if it returns false, Node stops reading
 * @returns {boolean} false: nothing has changed, because of TLS or a missing field
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

/** @param {Socket} socket made without the option */
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
