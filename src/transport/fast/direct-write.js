// direct-write.js: writes frames to a socket's descriptor, past its stream.
//
// If the kernel takes only a part of the bytes, the caller writes the rest to the stream, and does
// not write directly while bytes wait there.
//
// Private: `socket._handle`, and the handle's `fd`.

import { writeSync } from 'node:fs';
import { probe } from './probe.js';

/** @import { Socket } from 'node:net' */

/**
 * @typedef {{_handle?: {fd?: unknown}|null}} Handled Node's own field; null once the socket is
 *   destroyed
 */

/** @returns {string} '' if sockets have a descriptor here; otherwise the reason */
export function directWriteFault() {
  return probe((socket) => {
    // Before it connects, the descriptor is -1.
    const fd = /** @type {Handled} */ (/** @type {unknown} */ (socket))._handle?.fd;
    return typeof fd === 'number' ? '' : 'sockets have no field _handle.fd';
  });
}

/**
 * The descriptor that frames may be written to.
 * @param {Socket} socket
 * @returns {number} -1: TLS keeps state between the stream and the descriptor, the socket is
 *   destroyed, or this version of Node names the field differently
 */
export function descriptorOf(socket) {
  if ('encrypted' in socket) return -1;
  const fd = /** @type {Handled} */ (/** @type {unknown} */ (socket))._handle?.fd;
  return typeof fd === 'number' && Number.isInteger(fd) && fd >= 0 ? fd : -1;
}

/**
 * @param {Socket} socket whose stream holds no unsent bytes
 * @param {number} descriptor of the socket, from `descriptorOf`
 * @param {Buffer} buffer @param {number} length of the bytes to write, from the start of the buffer
 * @returns {number} bytes that the kernel has taken
 */
export function writeDirectly(socket, descriptor, buffer, length) {
  // The handle goes as soon as the socket is destroyed. Its descriptor may belong to another socket
  // a moment later.
  if (!(/** @type {Handled} */ (/** @type {unknown} */ (socket))._handle)) return 0;
  try {
    return writeSync(descriptor, buffer, 0, length);
  } catch {
    // The kernel's buffer is full, or the peer is gone: the stream meets the same fault on its own
    // write, and handles it.
    return 0;
  }
}
