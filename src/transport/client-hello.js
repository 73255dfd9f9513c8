// client-hello.js: has the first message of a TLS client arrived completely? Nearly all CPU time of
// a handshake is spent after it, so the socket then waits for its turn. Only lengths are read here:
// OpenSSL checks the message.

// RFC 8446 5.1: type (1 byte), version (2), length (2).
const RECORD_HEADER_BYTES = 5;
const HANDSHAKE_RECORD = 22;
const MAJOR_VERSION = 3;
// RFC 8446 4: type (1 byte), length (3).
const MESSAGE_HEADER_BYTES = 4;
const CLIENT_HELLO = 1;
/** A larger message counts as complete. Browsers send up to 2 KB, with a post-quantum key. */
const MAX_BYTES = 16_384;

/**
 * @param {Buffer} bytes all bytes of the socket, at least one
 * @returns {'complete'|'partial'|'other'} `complete` also if OpenSSL will refuse it; `other`: the
 *   client does not speak TLS
 */
export function readClientHello(bytes) {
  if (bytes[0] !== HANDSHAKE_RECORD || (bytes.length > 1 && bytes[1] !== MAJOR_VERSION))
    return 'other';
  if (bytes.length > MAX_BYTES) return 'complete';
  const header = [];
  let received = 0;
  // RFC 8446 5.1: a message may be cut into several records.
  for (let at = 0; at + RECORD_HEADER_BYTES <= bytes.length; ) {
    if (bytes[at] !== HANDSHAKE_RECORD) return 'complete';
    const from = at + RECORD_HEADER_BYTES;
    at = from + bytes.readUInt16BE(at + 3);
    const to = Math.min(at, bytes.length);
    for (let i = from; i < to && header.length < MESSAGE_HEADER_BYTES; i++) header.push(bytes[i]);
    received += to - from;
  }
  if (header.length < MESSAGE_HEADER_BYTES) return 'partial';
  const [type, high, middle, low] = header;
  const length = MESSAGE_HEADER_BYTES + high * 65_536 + middle * 256 + low;
  return type !== CLIENT_HELLO || received >= length ? 'complete' : 'partial';
}
