// frame-reader.js: the short way in, for the frames nearly every client sends: whole text messages, pings and pongs.
//
// ws reads through a Writable stream, with a small Buffer for each part of a header and two events for each message:
// half of what an echoed message costs. Here the socket's own reads are walked in place. Everything else (fragments,
// binary, close, what breaks the protocol, text that is not UTF-8) is ws's, and once it has begun it stays so:
//
//                     the first byte that is not ours
//   (upgrade) ---> OURS -------------------------------> WS (for good)
//
// Going over means that ws's own listener takes the place of ours and gets the bytes as they came, from the start of a
// frame. So ws has never seen half of anything, and each close code is the one it has always been. There is no way back:
// it would have to follow what ws makes of what it was given, for peers of whom there are few.
//
// Only where no compression was negotiated: ws inflates later than it reads, and would be overtaken.
//
// All sockets are read into one buffer (shared-reads.js): what is kept of a read is copied, and so is what ws gets.

import { isUtf8 } from 'node:buffer';
import { shareReads } from './shared-reads.js';

// RFC 6455 5.2: FIN, no reserved bit, and the opcode.
const TEXT = 0x81;
const PING = 0x89;
const PONG = 0x8a;
const MASK_BYTES = 4;

/** What `sizeOf` says of a frame that is ws's. */
const NOT_OURS = -1;
/** From so many bytes on, four at a time: 140 bytes take 0.15 instead of 0.23 µs, 4 KB 1.5 instead of 6.4. */
const WORDS_FROM = 96;
/** A first piece gets as much room at least; it doubles up to the frame's size. */
const MIN_HELD_BYTES = 256;

/** @type {unique symbol} */
const READING = Symbol('reading');

/** @typedef {import('ws').WebSocket} WebSocket */
/** @typedef {(this: Socket, bytes: Buffer) => void} DataListener */
/** @typedef {import('node:net').Socket & {[READING]?: Reading}} Socket */
/**
 * Gets valid UTF-8, to be used before it returns. As with ws, messages go on coming when the connection is being closed.
 * @typedef {(websocket: WebSocket, text: Buffer) => void} OnText
 */

/** One socket's reading. */
class Reading {
  /** @param {WebSocket} websocket @param {DataListener} websocketOnData ws's own listener */
  constructor(websocket, websocketOnData) {
    this.websocket = websocket;
    this.websocketOnData = websocketOnData;
    /** The beginning of a frame whose rest has not come. @type {Buffer|null} */
    this.held = null;
    this.heldBytes = 0;
  }
}

export class FrameReader {
  /**
   * @param {object} parts
   * @param {number} parts.maxMessageBytes 125 at least
   * @param {OnText} parts.onText
   */
  constructor({ maxMessageBytes, onText }) {
    this.maxMessageBytes = maxMessageBytes;
    this.onText = onText;
    const reader = this;
    // Made once a server, shared by all sockets.
    /** What came with the handshake, and all where reads are not shared. @type {DataListener} */
    this.socketOnData = function socketOnData(bytes) {
      reader.#read(this, bytes);
    };
    /** @this {Socket} @param {number} size @param {Buffer} buffer */
    this.socketOnRead = function socketOnRead(size, buffer) {
      const bytes = buffer.subarray(0, size);
      if (this[READING] !== undefined) reader.#read(this, bytes);
      else this.emit('data', Buffer.from(bytes));
    };
  }

  /**
   * Reads for ws from now on. Call it before the socket can have said anything: in the turn of the upgrade.
   * @param {Socket} socket
   * @param {WebSocket} websocket ws's, which listens already
   */
  attach(socket, websocket) {
    const listeners = /** @type {DataListener[]} */ (socket.listeners('data'));
    // It is ws's alone, or something is not as we know it: then ws does it all.
    if (websocket.extensions !== '' || listeners.length !== 1) return;
    socket[READING] = new Reading(websocket, listeners[0]);
    socket.removeListener('data', listeners[0]);
    socket.on('data', this.socketOnData);
    shareReads(socket, this.socketOnRead);
  }

  /** @param {Socket} socket @param {Buffer} bytes */
  #read(socket, bytes) {
    const reading = /** @type {Reading} */ (socket[READING]);
    const { websocket } = reading;
    let at = 0;
    if (reading.held !== null) {
      at = this.#readHeld(socket, reading, bytes);
      if (at < 0) return;
    }
    while (at < bytes.length) {
      const size = this.#sizeOf(bytes, at, bytes.length);
      if (size > bytes.length - at) return hold(reading, bytes, at, size);
      if (size === NOT_OURS || !this.#take(websocket, bytes, at, size)) {
        return this.#handOver(socket, reading, Buffer.from(bytes.subarray(at)));
      }
      at += size;
    }
  }

  /**
   * Completes the frame that is held.
   * @param {Socket} socket @param {Reading} reading @param {Buffer} bytes
   * @returns {number} how many of the bytes belonged to it; -1 where all of them are dealt with
   */
  #readHeld(socket, reading, bytes) {
    let at = 0;
    for (;;) {
      const held = /** @type {Buffer} */ (reading.held);
      const size = this.#sizeOf(held, 0, reading.heldBytes);
      if (size === reading.heldBytes) {
        // Its own again before it is read: what reads it may look at the socket.
        reading.held = null;
        if (this.#take(reading.websocket, held, 0, size)) return at;
      }
      if (size === NOT_OURS || size === reading.heldBytes) {
        reading.held = null;
        this.#handOver(socket, reading, Buffer.concat([held.subarray(0, reading.heldBytes), bytes.subarray(at)]));
        return -1;
      }
      if (at === bytes.length) return -1;
      const part = Math.min(size - reading.heldBytes, bytes.length - at);
      append(reading, bytes, at, part, size);
      at += part;
    }
  }

  /**
   * How long is the frame that starts here?
   * @param {Buffer} b @param {number} at @param {number} end
   * @returns {number} as far as its bytes tell: at least one more than there are where the length is not there yet
   */
  #sizeOf(b, at, end) {
    const first = b[at];
    if (first !== TEXT && first !== PING && first !== PONG) return NOT_OURS;
    if (end - at < 2) return 2;
    const length = b[at + 1] - 0x80;
    if (length < 0) return NOT_OURS; // RFC 6455 5.1: a client's frames are masked
    if (length < 126) return 2 + MASK_BYTES + length; // short enough for a control frame (5.5) and for every limit
    if (length === 127 || first !== TEXT) return NOT_OURS;
    if (end - at < 4) return 4;
    const long = (b[at + 2] << 8) | b[at + 3];
    return long > this.maxMessageBytes ? NOT_OURS : 4 + MASK_BYTES + long;
  }

  /**
   * Takes a whole frame.
   * @param {WebSocket} websocket @param {Buffer} b @param {number} at @param {number} size
   * @returns {boolean} false: it is not UTF-8, and as it came
   */
  #take(websocket, b, at, size) {
    const mask = at + (b[at + 1] === 0xfe ? 4 : 2);
    const start = mask + MASK_BYTES;
    const end = at + size;
    const seen = unmask(b, start, end, mask);
    const body = b.subarray(start, end);
    if (b[at] === TEXT) {
      if ((seen & 0x80) !== 0 && !isUtf8(body)) {
        unmask(b, start, end, mask);
        return false;
      }
      this.onText(websocket, body);
    } else {
      websocket.emit(b[at] === PING ? 'ping' : 'pong', body);
    }
    return true;
  }

  /** @param {Socket} socket @param {Reading} reading @param {Buffer} bytes ws's own from here on, from the start of a frame */
  #handOver(socket, { websocketOnData }, bytes) {
    socket.removeListener('data', this.socketOnData);
    socket[READING] = undefined;
    socket.on('data', websocketOnData);
    websocketOnData.call(socket, bytes);
  }
}

/** @param {Reading} reading @param {Buffer} bytes @param {number} at @param {number} size the frame's, as far as is known */
function hold(reading, bytes, at, size) {
  reading.heldBytes = 0;
  append(reading, bytes, at, bytes.length - at, size);
}

/**
 * Room grows with what has come and not with what was announced: eight bytes must not cost a peer's whole message.
 * @param {Reading} reading @param {Buffer} bytes @param {number} at @param {number} count @param {number} size the frame's
 */
function append(reading, bytes, at, count, size) {
  const { held, heldBytes } = reading;
  const needed = heldBytes + count;
  let target = held;
  if (target === null || target.length < needed) {
    target = Buffer.allocUnsafeSlow(Math.max(needed, Math.min(size, Math.max(MIN_HELD_BYTES, 2 * heldBytes))));
    if (held !== null) held.copy(target, 0, 0, heldBytes);
    reading.held = target;
  }
  bytes.copy(target, heldBytes, at, at + count);
  reading.heldBytes = needed;
}

/**
 * Removes a mask, or puts it back (RFC 6455 5.3).
 * @param {Buffer} b @param {number} at @param {number} end @param {number} mask where it lies
 * @returns {number} all bytes that came out, or-ed together as far as bit 7 goes: without it they are ASCII
 */
function unmask(b, at, end, mask) {
  let m0 = b[mask];
  let m1 = b[mask + 1];
  let m2 = b[mask + 2];
  let m3 = b[mask + 3];
  let seen = 0;
  if (end - at >= WORDS_FROM) {
    while (((b.byteOffset + at) & 3) !== 0) {
      seen |= b[at++] ^= m0;
      const first = m0;
      m0 = m1;
      m1 = m2;
      m2 = m3;
      m3 = first;
    }
    const words = new Int32Array(b.buffer, b.byteOffset + at, (end - at) >> 2);
    maskBytes[0] = m0;
    maskBytes[1] = m1;
    maskBytes[2] = m2;
    maskBytes[3] = m3;
    const word = maskWord[0];
    let bits = 0;
    for (let i = 0; i < words.length; i++) bits |= words[i] ^= word;
    if ((bits & 0x80808080) !== 0) seen |= 0x80;
    at += words.length << 2;
  }
  for (; at + 3 < end; at += 4) {
    seen |= b[at] ^= m0;
    seen |= b[at + 1] ^= m1;
    seen |= b[at + 2] ^= m2;
    seen |= b[at + 3] ^= m3;
  }
  if (at < end) seen |= b[at] ^= m0;
  if (at + 1 < end) seen |= b[at + 1] ^= m1;
  if (at + 2 < end) seen |= b[at + 2] ^= m2;
  return seen;
}

/** Four bytes of a mask as the processor reads them. */
const maskWord = new Int32Array(1);
const maskBytes = new Uint8Array(maskWord.buffer);
