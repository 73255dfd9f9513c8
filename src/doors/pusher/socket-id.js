// socket-id.js: a connection's id as Pusher's clients and servers write it: `181234567890123.42`.
//
// A Connection.id is 48 random bits of the process in base64url, then the connection's number in
// base 36. The socket id is the same two numbers in decimal, so no table is needed, and exclusion
// by socket id uses the publication's flag EXCEPT. Signatures of channels contain it: it is never
// used twice.

const PREFIX_LENGTH = 8;
const PREFIX_BYTES = 6;
const PREFIX_BITS = 48n;

const SOCKET_ID = /^\d+\.\d+$/;
const OWN = /^(0|[1-9]\d{0,14})\.([1-9]\d{0,15})$/;
/** Nobody's ids are longer. */
const MAX_LENGTH = 64;

/** @param {string} id of a Connection */
export function socketIdOf(id) {
  const process = Buffer.from(id.slice(0, PREFIX_LENGTH), 'base64url').readUIntBE(0, PREFIX_BYTES);
  return `${process}.${Number.parseInt(id.slice(PREFIX_LENGTH), 36)}`;
}

/** Has it a socket id's form, of any server? @param {unknown} text @returns {text is string} */
export function isSocketId(text) {
  return typeof text === 'string' && text.length <= MAX_LENGTH && SOCKET_ID.test(text);
}

/** @param {string} socketId @returns {string|null} of the Connection, on any server */
export function connectionIdOf(socketId) {
  const parts = OWN.exec(socketId);
  if (parts === null) return null;
  const process = Number(parts[1]);
  const number = Number(parts[2]);
  if (BigInt(process) >> PREFIX_BITS > 0n || !Number.isSafeInteger(number)) return null;
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUIntBE(process, 0, PREFIX_BYTES);
  return prefix.toString('base64url') + number.toString(36);
}
