// redis-message.js: what one Redis message of a room holds: a sequence of publications.
//
//   publication   u32 length (big-endian), the publication's bytes
//   reference     u32 length with the top bit set, the id (ASCII) under which one too large for pub/sub is stored
//
// Publications of one tick for one room share a message: the cost of a message is Redis' and each subscriber's, and
// under load it is paid once for many. Split without parsing: a publication stays a slice of what was read.

export const HEAD_BYTES = 4;
const REFERENCE = 0x80000000;

/** @param {Buffer} buffer @param {number} at @param {Buffer} publication @returns {number} where it ends */
export function writePublication(buffer, at, publication) {
  buffer.writeUInt32BE(publication.length, at);
  return at + HEAD_BYTES + publication.copy(buffer, at + HEAD_BYTES);
}

/** @param {string} id @returns {Buffer} a message of one reference */
export function encodeReference(id) {
  const message = Buffer.allocUnsafe(HEAD_BYTES + id.length);
  message.writeUInt32BE(REFERENCE + id.length, 0);
  message.write(id, HEAD_BYTES, 'latin1');
  return message;
}

/**
 * @template T
 * @param {Buffer} message
 * @param {{publication: (to: T, publication: Buffer) => void, reference: (to: T, id: string) => void}} receiver
 * @param {T} to handed on, so that no closure is made per message
 * @returns {boolean} false where the message is not one of ours; what came before the fault has been handed over
 */
export function splitMessage(message, receiver, to) {
  const { length } = message;
  let at = 0;
  while (at + HEAD_BYTES <= length) {
    const head = message.readUInt32BE(at);
    const start = at + HEAD_BYTES;
    const isReference = head >= REFERENCE;
    const end = start + (isReference ? head - REFERENCE : head);
    if (end > length) return false;
    if (isReference) receiver.reference(to, message.toString('latin1', start, end));
    else receiver.publication(to, message.subarray(start, end));
    at = end;
  }
  return at === length;
}
