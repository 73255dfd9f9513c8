// push-reader.js: a fast path for messages that Redis pushes to a subscriber.
//
// Nearly everything that a subscriber receives is a message of one form:
//   >3 | $7 | message | $<length> | <channel> | $<length> | <body> |        (| is CR LF; in a cluster $8 | smessage)
//
// Messages go to the listener as slices of the read. All other frames go to ioredis whole,
// unchanged and in order (RESP3: https://redis.io/docs/latest/develop/reference/protocol-spec/).
// After a frame that the reader cannot follow, and with RESP2 (no pushes), ioredis reads
// everything.

const CR = 0x0d;
const DOLLAR = 0x24;
const ZERO = 0x30;
/** More digits than any length has. */
const MAX_DIGITS = 10;

const HEADS = Object.freeze({
  message: Buffer.from('>3\r\n$7\r\nmessage\r\n', 'latin1'),
  smessage: Buffer.from('>3\r\n$8\r\nsmessage\r\n', 'latin1'),
});

// Types of frames, by their first byte.
const LINES = bytesOf('+-:#,(_');
const STRINGS = bytesOf('$=!');
const LISTS = bytesOf('*~>');
const MAPS = bytesOf('%|');
const ATTRIBUTES = '|'.charCodeAt(0);

/** Results of a search for the end of a frame, instead of an index. */
const UNKNOWN = -1;
const INCOMPLETE = 0;

/** @typedef {(this: Stream, bytes: Buffer) => void} DataListener */
/** @import { Duplex as Stream } from 'node:stream' */

export class RedisPushes {
  /**
   * @param {object} parts @param {keyof typeof HEADS} parts.kind
   * @param {(channel: Buffer, body: Buffer) => void} parts.onMessage gets slices of the read
   */
  constructor({ kind, onMessage }) {
    this.head = HEADS[kind];
    this.onMessage = onMessage;
  }

  /**
   * Reads in place of ioredis. Call it when ioredis listens and before any read.
   * @param {Stream} stream @returns {string} '' if the reader is attached; otherwise the reason
   */
  attach(stream) {
    const listeners = /** @type {DataListener[]} */ (stream.listeners('data'));
    if (listeners.length !== 1) return 'ioredis has not exactly one listener for data';
    stream.removeListener('data', listeners[0]);
    const reading = new Reading(stream, listeners[0], this.head, this.onMessage);
    stream.on('data', reading.onData);
    return '';
  }
}

class Reading {
  /**
   * @param {Stream} stream @param {DataListener} theirs ioredis's own listener
   * @param {Buffer} head @param {RedisPushes['onMessage']} onMessage
   */
  constructor(stream, theirs, head, onMessage) {
    this.stream = stream;
    this.theirs = theirs;
    this.head = head;
    this.onMessage = onMessage;
    /** The beginning of an incomplete frame. @type {Buffer[]} */
    this.held = [];
    this.heldBytes = 0;
    /** The frame is examined again when this many of its bytes have arrived. */
    this.neededBytes = 0;
    this.onData = this.onData.bind(this);
  }

  /** @param {Buffer} bytes */
  onData(bytes) {
    if (this.heldBytes === 0) return this.#read(bytes);
    this.held.push(bytes);
    this.heldBytes += bytes.length;
    if (this.heldBytes < this.neededBytes) return;
    const whole = Buffer.concat(this.held, this.heldBytes);
    this.held = [];
    this.heldBytes = 0;
    this.#read(whole);
  }

  /** @param {Buffer} b from the start of a frame */
  #read(b) {
    let at = 0;
    /** Start of the bytes that go to ioredis. */
    let theirsAt = 0;
    while (at < b.length) {
      const isMessage = this.#isMessage(b, at);
      if (isMessage) {
        // Frames before the message go to ioredis first.
        if (theirsAt < at) this.#handOver(b, theirsAt, at);
        theirsAt = at;
      }
      const end = isMessage ? this.#takeMessage(b, at) : this.#endOf(b, at);
      if (end === INCOMPLETE) break;
      if (end === UNKNOWN) {
        this.stream.removeListener('data', this.onData);
        this.stream.on('data', this.theirs);
        at = b.length;
        break;
      }
      at = end;
      if (isMessage) theirsAt = at;
    }
    if (theirsAt < at) this.#handOver(b, theirsAt, at);
    if (at === b.length) return;
    this.held.push(b.subarray(at));
    this.heldBytes = b.length - at;
  }

  /** @param {Buffer} b @param {number} at */
  #isMessage(b, at) {
    const { head } = this;
    if (at + head.length > b.length) return false;
    for (let i = 0; i < head.length; i++) if (b[at + i] !== head[i]) return false;
    return true;
  }

  /** @param {Buffer} b @param {number} start @returns {number} its end, UNKNOWN or INCOMPLETE */
  #takeMessage(b, start) {
    const channelAt = this.#stringAt(b, start, start + this.head.length);
    if (channelAt <= 0) return channelAt;
    const channelEnd = stringEnd;
    const bodyAt = this.#stringAt(b, start, channelEnd + 2);
    if (bodyAt <= 0) return bodyAt;
    try {
      this.onMessage(b.subarray(channelAt, channelEnd), b.subarray(bodyAt, stringEnd));
    } catch (error) {
      // As with ioredis, an error of the listener is thrown uncaught, and the frames after the
      // message are still read.
      process.nextTick(() => {
        throw error;
      });
    }
    return stringEnd + 2;
  }

  /**
   * Finds the string whose header starts at `at`. Sets `stringEnd` to its end.
   * @param {Buffer} b @param {number} start of the frame
   * @param {number} at @returns {number} the start of the string, UNKNOWN or INCOMPLETE
   */
  #stringAt(b, start, at) {
    if (at < b.length && b[at] !== DOLLAR) return UNKNOWN;
    let size = 0;
    const last = at + MAX_DIGITS;
    while (++at < b.length && b[at] !== CR) {
      const digit = b[at] - ZERO;
      if (digit < 0 || digit > 9 || at > last) return UNKNOWN;
      size = size * 10 + digit;
    }
    stringEnd = at + 2 + size;
    // The end includes CR LF. If the length itself is incomplete, the reader waits for one byte
    // more.
    if (at >= b.length || stringEnd + 2 > b.length) return this.#wait(b, start, stringEnd + 2);
    return at + 2;
  }

  /** Finds the end of the frame that starts at `start`. @param {Buffer} b @param {number} start */
  #endOf(b, start) {
    let at = start;
    for (let left = 1; left > 0; left--) {
      const lineEnd = b.indexOf(CR, at);
      if (lineEnd < 0 || lineEnd + 2 > b.length) return this.#wait(b, start, b.length + 1);
      const type = b[at];
      const isLine = LINES.has(type);
      const size = isLine ? 0 : Number(b.toString('latin1', at + 1, lineEnd));
      if (!Number.isInteger(size)) return UNKNOWN;
      at = lineEnd + 2;
      if (STRINGS.has(type)) {
        if (size >= 0) at += size + 2;
        if (at > b.length) return this.#wait(b, start, at);
      } else if (LISTS.has(type)) left += Math.max(0, size);
      // Attributes precede the value that they belong to.
      else if (MAPS.has(type)) left += 2 * size + (type === ATTRIBUTES ? 1 : 0);
      else if (!isLine) return UNKNOWN;
    }
    return at;
  }

  /** @param {Buffer} b @param {number} start @param {number} end the smallest possible one */
  #wait(b, start, end) {
    this.neededBytes = Math.max(end, b.length + 1) - start;
    return INCOMPLETE;
  }

  /** @param {Buffer} b @param {number} start @param {number} end */
  #handOver(b, start, end) {
    this.theirs.call(this.stream, start === 0 && end === b.length ? b : b.subarray(start, end));
  }
}

/** The end of the string that #stringAt found last. */
let stringEnd = 0;

/** @param {string} types */
function bytesOf(types) {
  return new Set(Buffer.from(types, 'latin1'));
}
