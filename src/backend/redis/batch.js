// batch.js: what one Redis message of a room holds: a sequence of publications.
//
//   publication   u32 length (big-endian), the publication's bytes
//   reference     u32 length with the top bit set, the id (ASCII) under which one too large for pub/sub is stored; without
//                 an id it is in its room's history
//   position      u32 length with the second bit set, the epoch (16 ASCII bytes), u64 the offset of what comes next. In rooms
//                 with history it comes first, and offsets are consecutive; lua/history.lua writes it
//
// Publications of one tick for one room share a message: the cost of a message is Redis' and each
// subscriber's, and under load it is paid once for many. Split without parsing: a publication stays
// a slice of what was read.
//
// Another program, or another version, may publish on these channels too: splitMessage() never
// throws and never reads past the end.

import {
  EPOCH_BYTES,
  isEpoch,
  POSITION_BYTES,
  readEpoch,
  readOffset,
} from '../../protocol/position.js';

export const HEAD_BYTES = 4;
const REFERENCE = 0x80000000;
const POSITION = 0x40000000;
/** A UUID has 36. */
const MAX_ID_BYTES = 64;

/**
 * @template T
 * @typedef {object} MessageReceiver
 * @property {(to: T, publication: Buffer, offset: number, epoch: string) => void} publication
 *   offset 0 and '' without history
 * @property {(to: T, id: string, offset: number, epoch: string) => void} reference
 */

/**
 * @param {Buffer} buffer
 * @param {number} at
 * @param {Buffer} publication
 * @returns {number} where it ends
 */
export function writePublication(buffer, at, publication) {
  buffer.writeUInt32BE(publication.length, at);
  return at + HEAD_BYTES + publication.copy(buffer, at + HEAD_BYTES);
}

/**
 * @param {string} id
 * @returns {Buffer} a message of one reference
 */
export function encodeReference(id) {
  const message = Buffer.allocUnsafe(HEAD_BYTES + id.length);
  message.writeUInt32BE(REFERENCE + id.length, 0);
  message.write(id, HEAD_BYTES, 'latin1');
  return message;
}

/**
 * @template T
 * @param {Buffer} message
 * @param {MessageReceiver<T>} receiver
 * @param {T} to handed on, so that no closure is made per message
 * @returns {boolean} false where the message is not one of ours; what came before the fault has
 *   been handed over
 */
export function splitMessage(message, receiver, to) {
  const { length } = message;
  let at = 0;
  let epoch = '';
  let offset = 0;
  while (at + HEAD_BYTES <= length) {
    const head = message.readUInt32BE(at);
    const start = at + HEAD_BYTES;
    if (head < POSITION) {
      at = start + head;
      if (at > length) return false;
      receiver.publication(to, message.subarray(start, at), offset, epoch);
    } else if (head >= REFERENCE) {
      at = start + head - REFERENCE;
      if (at > length || at - start > MAX_ID_BYTES) return false;
      receiver.reference(to, message.toString('latin1', start, at), offset, epoch);
    } else {
      at = start + POSITION_BYTES;
      if (head !== POSITION + POSITION_BYTES || at > length) return false;
      epoch = readEpoch(message, start);
      offset = readOffset(message, start + EPOCH_BYTES);
      if (!isEpoch(epoch) || offset === 0 || !Number.isSafeInteger(offset)) return false;
      continue;
    }
    if (epoch !== '') offset++;
  }
  return at === length;
}
