// push-reader.js: the short way in for what Redis pushes to a subscriber.
//
// ioredis decodes whatever Redis may say, byte by byte and with private fields that its build keeps
// in WeakMaps: 4.4 us a message where 0.5 will do. A subscriber gets little but messages, and these
// all look alike:
//
//   >3 | $7 | message | $<length> | <channel> | $<length> | <body> |        (| is CR LF; in a cluster $8 | smessage)
//
// They are handed over where they were read. Everything else is ioredis's, and reaches it as it
// came and in its place: whole frames (RESP3:
// https://redis.io/docs/latest/develop/reference/protocol-spec/), so that where the next one begins
// is always known. What can't be followed is ioredis's for good, as is all from a Redis that knows
// RESP2 only: there messages are no pushes.

const CR = 0x0d;
const DOLLAR = 0x24;
const ZERO = 0x30;
/** More digits than any length has. */
const MAX_DIGITS = 10;

const HEADS = Object.freeze({
  message: Buffer.from('>3\r\n$7\r\nmessage\r\n', 'latin1'),
  smessage: Buffer.from('>3\r\n$8\r\nsmessage\r\n', 'latin1'),
});

// What a frame's first byte says of the rest.
const LINES = bytesOf('+-:#,(_');
const STRINGS = bytesOf('$=!');
const LISTS = bytesOf('*~>');
const MAPS = bytesOf('%|');
const ATTRIBUTES = '|'.charCodeAt(0);

/** In place of where a frame ends. */
const UNKNOWN = -1;
const INCOMPLETE = 0;

/** @typedef {(this: Stream, bytes: Buffer) => void} DataListener */
/** @typedef {import('node:stream').Duplex} Stream */

export class RedisPushes {
  /**
   * @param {object} parts
   * @param {keyof typeof HEADS} parts.kind smessage: of a cluster's channels
   * @param {(channel: Buffer, body: Buffer) => void} parts.onMessage gets parts of what was read
   */
  constructor({ kind, onMessage }) {
    this.head = HEADS[kind];
    this.onMessage = onMessage;
  }

  /**
   * Reads for ioredis from now on. Call it when ioredis listens and before anything has been read.
   * @param {Stream} stream
   * @returns {string} '' if it reads; else why not
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

/** One connection's reading. */
class Reading {
  /**
   * @param {Stream} stream
   * @param {DataListener} theirs ioredis's own listener
   * @param {Buffer} head
   * @param {RedisPushes['onMessage']} onMessage
   */
  constructor(stream, theirs, head, onMessage) {
    this.stream = stream;
    this.theirs = theirs;
    this.head = head;
    this.onMessage = onMessage;
    /** The beginning of a frame whose rest has not come. @type {Buffer[]} */
    this.held = [];
    this.heldBytes = 0;
    /** How much of that frame there must be before another look at it is worth while. */
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
    /** Where what is ioredis's begins. */
    let theirsAt = 0;
    while (at < b.length) {
      const isMessage = this.#isMessage(b, at);
      if (isMessage) {
        // What came before it is theirs, and is told before it.
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

  /**
   * @param {Buffer} b
   * @param {number} at
   */
  #isMessage(b, at) {
    const { head } = this;
    if (at + head.length > b.length) return false;
    for (let i = 0; i < head.length; i++) if (b[at + i] !== head[i]) return false;
    return true;
  }

  /**
   * @param {Buffer} b
   * @param {number} start
   * @returns {number} where it ends
   */
  #takeMessage(b, start) {
    const channelAt = this.#stringAt(b, start, start + this.head.length);
    if (channelAt <= 0) return channelAt;
    const channelEnd = stringEnd;
    const bodyAt = this.#stringAt(b, start, channelEnd + 2);
    if (bodyAt <= 0) return bodyAt;
    try {
      this.onMessage(b.subarray(channelAt, channelEnd), b.subarray(bodyAt, stringEnd));
    } catch (error) {
      // As with ioredis: a fault of whoever listens is nobody's to catch, and the frames behind it
      // are read.
      process.nextTick(() => {
        throw error;
      });
    }
    return stringEnd + 2;
  }

  /**
   * Where does the string begin whose head is here? `stringEnd` is where it ends.
   * @param {Buffer} b @param {number} start of the frame @param {number} at
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
    // With the CR LF behind it; where the length is not there yet, a byte more than there is.
    if (at >= b.length || stringEnd + 2 > b.length) return this.#wait(b, start, stringEnd + 2);
    return at + 2;
  }

  /**
   * Where does the frame end that begins here?
   * @param {Buffer} b
   * @param {number} start
   */
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
      // What has attributes comes behind them.
      else if (MAPS.has(type)) left += 2 * size + (type === ATTRIBUTES ? 1 : 0);
      else if (!isLine) return UNKNOWN;
    }
    return at;
  }

  /**
   * @param {Buffer} b
   * @param {number} start of the frame
   * @param {number} end that it has at least
   */
  #wait(b, start, end) {
    this.neededBytes = Math.max(end, b.length + 1) - start;
    return INCOMPLETE;
  }

  /**
   * @param {Buffer} b
   * @param {number} start
   * @param {number} end
   */
  #handOver(b, start, end) {
    this.theirs.call(this.stream, start === 0 && end === b.length ? b : b.subarray(start, end));
  }
}

/** Of the string that #stringAt has found. */
let stringEnd = 0;

/** @param {string} types */
function bytesOf(types) {
  return new Set(Buffer.from(types, 'latin1'));
}
