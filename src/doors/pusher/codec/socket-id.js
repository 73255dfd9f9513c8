// socket-id.js: a connection's id in Pusher's form: `181234567890123.42`.
//
// A Connection.id is 48 random bits of the process in base64url, then the connection's number in
// base 36. The socket id is the same two numbers in decimal, so no table is needed, and a
// publication excludes a socket id with its flag EXCEPT. Channel signatures contain it, so it is
// never used twice.

const PREFIX_LENGTH = 8;
const PREFIX_BYTES = 6;
const PREFIX_BITS = 48n;

const SOCKET_ID = /^\d+\.\d+$/;
const OWN = /^(0|[1-9]\d{0,14})\.([1-9]\d{0,15})$/;
/** Longer than any id. */
const MAX_LENGTH = 64;

/** @param {string} id of a Connection */
export function socketIdOf(id) {
  const process = Buffer.from(id.slice(0, PREFIX_LENGTH), 'base64url').readUIntBE(0, PREFIX_BYTES);
  return `${process}.${Number.parseInt(id.slice(PREFIX_LENGTH), 36)}`;
}

/** Does it have the form of a socket id? @param {unknown} text @returns {text is string} */
export function isSocketId(text) {
  return typeof text === 'string' && text.length <= MAX_LENGTH && SOCKET_ID.test(text);
}

/** @param {string} socketId @returns {string|null} the Connection.id, on any server */
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
