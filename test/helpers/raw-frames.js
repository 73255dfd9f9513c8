// raw-frames.js: WebSocket frames as a client sends them, good and bad, built byte by byte; and
// the frames of a server, parsed.

/** RFC 6455 5.2. */
export const OPCODES = Object.freeze({
  continuation: 0,
  text: 1,
  binary: 2,
  close: 8,
  ping: 9,
  pong: 10,
});

/**
 * @typedef {object} Faults the differences from a good frame
 * @property {boolean} [isFinal]
 * @property {number} [reserved] the three reserved bits
 * @property {boolean} [isMasked]
 * @property {number} [declared] the length in the head, if it differs from that of the payload
 * @property {0|16|64} [lengthBits] how the length is written; absent: as short as it can be
 * @property {Buffer} [mask]
 */

/** @param {number} opcode @param {string|Buffer} payload @param {Faults} [faults] */
export function frame(opcode, payload, faults = {}) {
  const {
    isFinal = true,
    reserved = 0,
    isMasked = true,
    declared,
    mask = Buffer.from([1, 2, 3, 4]),
  } = faults;
  const body = Buffer.from(payload);
  const length = declared ?? body.length;
  const bits = faults.lengthBits ?? (length < 126 ? 0 : length < 65_536 ? 16 : 64);
  const head = Buffer.alloc(2 + bits / 8);
  head[0] = (isFinal ? 0x80 : 0) | (reserved << 4) | opcode;
  head[1] = (isMasked ? 0x80 : 0) | (bits === 0 ? length : bits === 16 ? 126 : 127);
  if (bits === 16) head.writeUInt16BE(length, 2);
  if (bits === 64) head.writeBigUInt64BE(BigInt(length), 2);
  if (!isMasked) return Buffer.concat([head, body]);
  for (let i = 0; i < body.length; i++) body[i] ^= mask[i & 3];
  return Buffer.concat([head, mask, body]);
}

/**
 * @typedef {{isFinal: boolean, reserved: number, opcode: number, isMasked: boolean, body: Buffer}}
 *   Frame
 */

/** Takes frames out of a stream of bytes, as they come. */
export class FrameParser {
  /** @param {(frame: Frame) => void} onFrame gets its body as a view, good until it returns */
  constructor(onFrame) {
    this.onFrame = onFrame;
    this.rest = Buffer.alloc(0);
  }

  /** @param {Buffer} bytes */
  push(bytes) {
    let b = this.rest.length === 0 ? bytes : Buffer.concat([this.rest, bytes]);
    for (;;) {
      if (b.length < 2) break;
      let length = b[1] & 0x7f;
      let start = 2;
      if (length === 126) {
        if (b.length < 4) break;
        length = b.readUInt16BE(2);
        start = 4;
      } else if (length === 127) {
        if (b.length < 10) break;
        length = Number(b.readBigUInt64BE(2));
        start = 10;
      }
      if (b.length < start + length) break;
      const [first, second] = b;
      const body = b.subarray(start, start + length);
      b = b.subarray(start + length);
      this.onFrame({
        isFinal: (first & 0x80) !== 0,
        reserved: (first >> 4) & 7,
        opcode: first & 15,
        isMasked: (second & 0x80) !== 0,
        body,
      });
    }
    this.rest = Buffer.from(b);
  }
}

/** The code of a close frame. @param {Buffer} body */
export function closeCode(body) {
  return body.length < 2 ? 1005 : body.readUInt16BE(0);
}
