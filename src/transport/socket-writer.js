// socket-writer.js: writes a connection's bytes to its socket, for every transport.
//
// If nothing waits in the socket's stream, bytes go to its descriptor (fast/direct-write.js). Bytes
// that the kernel does not take go through the stream, so the order is kept.

import { writeDirectly } from './fast/direct-write.js';

/**
 * What writing needs of a transport.
 * @typedef {object} SocketWriter
 * @property {import('node:net').Socket} socket
 * @property {number} descriptor of the socket; -1 if direct writes are not possible, or no longer
 * @property {boolean} mayLag true if bytes may wait in the socket's stream
 * @property {import('../hub/slow-consumers.js').SlowConsumers} slowConsumers
 * @property {import('../hub/connection.js').Connection} connection
 */

/** @param {SocketWriter} writer @returns {number} bytes that the kernel has not taken yet */
export function pendingBytesOf(writer) {
  // Most sockets never lag: not looking at their streams saves two cache lines per member.
  if (!writer.mayLag) return 0;
  const { writableLength } = writer.socket;
  writer.mayLag = writableLength > 0;
  return writableLength;
}

/**
 * @param {SocketWriter} writer @param {Buffer} bytes free again after the call
 * @param {number} length from the start of the buffer
 * @returns {number} bytes that the kernel has taken at once
 */
export function offerBytes(writer, bytes, length) {
  if (writer.descriptor < 0 || pendingBytesOf(writer) > 0) return 0;
  return writeDirectly(writer.descriptor, bytes, length);
}

/**
 * Puts bytes into the socket's stream, unless too many are waiting already.
 * @param {SocketWriter} writer @param {Buffer} bytes not modified afterwards
 */
export function queueBytes(writer, bytes) {
  // A bound for replies, too: clients that never read would fill this worker's memory.
  if (!writer.slowConsumers.queue(writer.connection, bytes.length)) return;
  writer.mayLag = true;
  writer.socket.write(bytes);
}

/**
 * @param {SocketWriter} writer @param {() => void} act as Transport.whenDrained
 */
export function whenDrained({ socket }, act) {
  // The stream calls back in the order of the writes.
  if (socket.writable) socket.write(NOTHING, act);
}

const NOTHING = Buffer.alloc(0);
