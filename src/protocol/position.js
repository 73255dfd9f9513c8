// position.js: a position in a room's stream, and its only encoding. The relay's and Redis'
// messages contain these 24 bytes, and so does a kept publication, after its payload:
//
//   epoch    16 ASCII bytes
//   offset   u64, big-endian

export const EPOCH_BYTES = 16;
export const OFFSET_BYTES = 8;
export const POSITION_BYTES = EPOCH_BYTES + OFFSET_BYTES;

const EPOCH = /^[0-9a-f]{16}$/;

/**
 * Within an epoch each offset is one above the previous one.
 * @typedef {object} Position
 * @property {string} epoch names the stream: 16 random hexadecimal digits
 * @property {number} offset of a publication, from 1; 0 is the position before the first
 */

/**
 * Where a publisher expects a room to be. The epoch '' with the offset 0: nothing was published in
 * the room's current stream, whatever its epoch.
 * @typedef {Position} ExpectedPosition
 */

/** @param {Position} position @param {ExpectedPosition} expected */
export function isAsExpected({ epoch, offset }, expected) {
  return offset === expected.offset && (expected.epoch === '' || epoch === expected.epoch);
}

/** @param {string} epoch */
export function isEpoch(epoch) {
  return EPOCH.test(epoch);
}

/**
 * @param {Buffer} target @param {number} at @param {string} epoch 16 characters
 * @param {number} offset a safe integer
 */
export function writePosition(target, at, epoch, offset) {
  target.write(epoch, at, EPOCH_BYTES, 'latin1');
  writeOffset(target, at + EPOCH_BYTES, offset);
}

/** @param {Buffer} source @param {number} at of the position @returns {string} */
export function readEpoch(source, at) {
  return source.toString('latin1', at, at + EPOCH_BYTES);
}

/**
 * @param {Buffer} source @param {number} at of the offset, not of the position
 * @returns {number} perhaps not a safe integer, if another program wrote it
 */
export function readOffset(source, at) {
  return source.readUInt32BE(at) * 2 ** 32 + source.readUInt32BE(at + 4);
}

/** @param {Buffer} target @param {number} at @param {number} offset a safe integer */
export function writeOffset(target, at, offset) {
  target.writeUInt32BE(Math.floor(offset / 2 ** 32), at);
  target.writeUInt32BE(offset % 2 ** 32, at + 4);
}

/** @param {Buffer} source @param {number} at @returns {Position} */
export function readPosition(source, at) {
  return { epoch: readEpoch(source, at), offset: readOffset(source, at + EPOCH_BYTES) };
}
