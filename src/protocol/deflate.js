// deflate.js: permessage-deflate (RFC 7692) for frames that many receivers share.
//
// No context is kept between messages, so a publication is compressed once for all of them. Frames
// below THRESHOLD_BYTES gain too little and stay uncompressed, as is always allowed (RFC 7692 6).

import { constants, deflateRawSync } from 'node:zlib';
import { FIN_TEXT, headerBytes, readHeader, writeHeader } from './frame.js';

export const THRESHOLD_BYTES = 1024;
const RSV1 = 0x40; // RFC 7692 6: set on the first frame of a compressed message
const OPTIONS = { level: 6, finishFlush: constants.Z_SYNC_FLUSH };
/** RFC 7692 7.2.1: the empty block at the end, which the receiver appends again. */
const TAIL_BYTES = 4;

/**
 * @param {Buffer} frames whole, uncompressed text frames; not modified
 * @returns {Buffer} the larger ones compressed; `frames` itself if compression gains nothing
 */
export function deflateFrames(frames) {
  if (frames.length <= THRESHOLD_BYTES) return frames;
  const parts = [];
  let isChanged = false;
  for (let at = 0; at < frames.length; ) {
    const { start, length } = readHeader(frames, at);
    const end = start + length;
    const frame = length < THRESHOLD_BYTES ? null : deflated(frames.subarray(start, end));
    if (frame !== null && frame.length < end - at) {
      isChanged = true;
      parts.push(frame);
    } else {
      parts.push(frames.subarray(at, end));
    }
    at = end;
  }
  return isChanged ? Buffer.concat(parts) : frames;
}

/** @param {Buffer} text @returns {Buffer} its frame */
function deflated(text) {
  const body = deflateRawSync(text, OPTIONS);
  const length = body.length - TAIL_BYTES;
  const frame = Buffer.allocUnsafe(headerBytes(length) + length);
  const at = writeHeader(frame, 0, length, FIN_TEXT | RSV1);
  body.copy(frame, at, 0, length);
  return frame;
}
