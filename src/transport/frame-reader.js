// frame-reader.js: splits clients' bytes into frames, and bounds the work of each client.
//
// The handshake decides for the life of a connection who handles its frames. This file does if the
// connection has no extension: messages, fragments, pings, pongs, close frames and protocol errors
// (RFC 6455). Otherwise ws does, because it inflates messages. It then reads a FeedStream, one
// whole, unchanged frame at a time, or the header of a frame that it refuses.
//
// Control frames, empty frames and small fragments take a token each (admission/rate-limit.js).
// Large fragments pay as bytes of their message. A connection without a token is closed; up to
// MAX_BYTES_AFTER_CLOSE of its further bytes are read and discarded. The time for which a message
// may stay unfinished grows with its bytes.
//
// All sockets are read into one buffer (fast/shared-reads.js), so bytes to keep are copied.
// docs/architecture/fast-paths.md explains the two lines in which reads wait.

import { isUtf8 } from 'node:buffer';
import { READ_BYTES, shareReads } from './fast/shared-reads.js';

// RFC 6455 5.2: FIN, no reserved bit, and the opcode.
const TEXT = 0x81;
const BINARY = 0x82;
const PING = 0x89;
const PONG = 0x8a;
const CLOSE = 0x88;
const MASK_BYTES = 4;
/** ws's readyState for an open connection. */
const OPEN = 1;
/** The longest header without its mask. */
const MAX_HEADER_BYTES = 10;

/** RFC 6455 7.4.1 */
const PROTOCOL_ERROR = 1002;
const INVALID_DATA = 1007;
const POLICY_VIOLATION = 1008;
const TOO_LARGE = 1009;
/** RFC 6455 5.2: lengths MUST be encoded in the minimal number of bytes. ws does not check. */
const NOT_MINIMAL = -1;

/** Longer bodies are unmasked by words: 140 bytes take 0.15, not 0.23 µs, 4 KB 1.5, not 6.4. */
const WORDS_FROM = 96;
/** Smallest buffer for the first piece of a frame or message. It doubles up to the whole size. */
const MIN_HELD_BYTES = 256;

/** A frame costs one unit of work, a frame for ws four; each 4 KB add one. */
const UNITS_PER_CLOCK = 64;
const WS_FRAME_UNITS = 4;
/** Limit of one walk over a read: some 2,000 frames, or 8 MB. */
const MAX_UNITS = 2048;
/** Limit of one walk if its frames are expensive. */
const WALK_MS = 1;
/** A read up to this size waits in the line of short reads. */
const MAX_SHORT_BYTES = 16_384;
/** The bound of the lines of all connections. A connection whose read exceeds it is closed. */
const MAX_WAITING_BYTES = 67_108_864;
/** Long reads fill at most this share, so that there is room for the usual short ones. */
const LONG_SHARE = 0.75;
/** Fragments of this size or more take no token. */
const SMALL_BYTES = 1024;
/** When the server closes, bytes may still be in flight. After this many it stops reading. */
const MAX_BYTES_AFTER_CLOSE = 262_144;
/** Time that a message may stay unfinished. Each byte adds a millisecond: 1 KB/s is fast enough. */
const UNFINISHED_MS = 30_000;

/** @type {unique symbol} */
const READING = Symbol('reading');

/** @typedef {import('./server-websocket.js').ServerWebSocket} WebSocket */
/** @typedef {import('./feed-stream.js').FeedStream} FeedStream */
/** @typedef {import('node:net').Socket & {[READING]?: Reading}} Socket */
/**
 * Gets valid UTF-8, and uses it before it returns. As with ws, messages continue while the
 * connection is closing.
 * @typedef {(websocket: WebSocket, text: Buffer) => void} OnText
 */
/**
 * Why the reader closes a connection: a frame without a token, a message that does not end, or too
 * many bytes waiting for all connections.
 * @typedef {'flood'|'unfinished'|'overload'} Fault
 */

/** The state of one socket. */
class Reading {
  /** @param {WebSocket} websocket @param {FeedStream|null} stream that ws reads; null: no ws */
  constructor(websocket, stream) {
    this.websocket = websocket;
    this.stream = stream;
    /** The beginning of an incomplete frame. @type {Buffer|null} */
    this.held = null;
    this.heldBytes = 0;
    /** The connection's token bucket for frames (rate-limit.js). */
    this.fullAt = -0.5;
    /** Discards further bytes. */
    this.isDone = false;
    /** Null until needed. @type {Progress|null} */
    this.progress = null;
  }
}

/** More state, for connections that wait, or send frames or messages in parts, or use ws. */
class Progress {
  constructor() {
    /** Bytes waiting for their turn. @type {Buffer|null} */
    this.rest = null;
    this.isInLine = false;
    /** The client has ended, and bytes that came before still wait. */
    this.hasEnded = false;
    /** Bytes of the fragments of an unfinished message; -1 if there is none. */
    this.fragmentBytes = -1;
    /** The fragments so far, unmasked. @type {Buffer|null} */
    this.message = null;
    this.isBinary = false;
    this.fragments = 0;
    /** Counts unfinished messages. */
    this.begun = 0;
    /** `begun` when `sweep` first saw the current one, at `sinceMs`. */
    this.seen = 0;
    this.sinceMs = 0;
    /** Is the socket in `#unfinished`? */
    this.isWatched = false;
    this.bytesAfterClose = 0;
  }
}

export class FrameReader {
  /** Work since the last look at the clock, in units. */
  #units = 0;
  #unitsOfWalk = 0;
  /** 0 if the walk has not read the clock yet. */
  #walkEndMs = 0;
  /** Did the bytes of the walk wait in line? */
  #isLine = false;
  #waitingBytes = 0;
  /** Sockets with an unfinished message now or at the last sweep. @type {Set<Socket>} */
  #unfinished = new Set();

  /**
   * @param {object} parts @param {number} parts.maxMessageBytes 125 at least
   * @param {number} parts.maxFragments of a message
   * @param {OnText} parts.onText @param {OnText} parts.onBinary the same for binary messages
   * @param {(websocket: WebSocket, fault: Fault) => void} parts.onFault closes the connection
   * @param {(websocket: WebSocket) => void} parts.onWaiting called when received bytes have to wait
   * @param {((allowance: {fullAt: number}) => boolean)|null} parts.admitFrame takes a token for a
   *   frame that is not a whole message; null if frames are not limited
   * @param {{readsDeferred: number}} parts.counters
   * @param {import('../worker/turn.js').Turn} parts.turn
   * @param {boolean} [parts.isShared] are sockets read into one buffer?
   */
  constructor({
    maxMessageBytes,
    maxFragments,
    onText,
    onBinary,
    onFault,
    onWaiting,
    admitFrame,
    counters,
    turn,
    isShared = true,
  }) {
    this.maxMessageBytes = maxMessageBytes;
    this.maxFragments = maxFragments;
    this.onText = onText;
    this.onBinary = onBinary;
    this.onFault = onFault;
    this.onWaiting = onWaiting;
    this.admitFrame = admitFrame;
    this.counters = counters;
    this.isShared = isShared;
    this.turn = turn;
    /** The slot of all reads of a turn, except those in line. */
    this.reads = turn.slot('reads');
    // Tests use smaller values.
    this.unitsPerClock = UNITS_PER_CLOCK;
    this.maxWaitingBytes = MAX_WAITING_BYTES;
    /** @param {Socket} socket */
    const act = (socket) => this.#goOn(socket);
    this.shortLine = turn.line('short_reads', act);
    this.longLine = turn.line('long_reads', act);
    const reader = this;
    // All sockets share these listeners. This one gets the bytes after the handshake, and all reads
    // if they are not shared.
    /** @this {Socket} @param {Buffer} bytes */
    this.socketOnData = function socketOnData(bytes) {
      reader.#readBytes(this, bytes);
    };
    /** @this {Socket} @param {number} size @param {Buffer} buffer */
    this.socketOnRead = function socketOnRead(size, buffer) {
      reader.#readBytes(this, size === buffer.length ? buffer : buffer.subarray(0, size));
    };
    /** ws takes bytes again. @this {FeedStream} */
    this.streamOnResume = function streamOnResume() {
      const socket = /** @type {Socket} */ (this.socket);
      const reading = /** @type {Reading} */ (socket[READING]);
      if (reading.progress?.rest) reader.#waitInLine(socket, reading, reader.longLine);
    };
    /** ws takes bytes again. Reads on unless earlier bytes still wait. @this {FeedStream} */
    this.streamOnDrain = function streamOnDrain() {
      const reading = /** @type {Reading} */ (/** @type {Socket} */ (this.socket)[READING]);
      if (!isWaiting(reading)) this.unhold();
    };
  }

  get waitingBytes() {
    return this.#waitingBytes;
  }

  /**
   * Starts to read. Call it in the turn of the upgrade, before the socket reads any byte.
   * @param {Socket} socket @param {WebSocket} websocket
   * @param {FeedStream|null} stream that ws reads; null: the reader handles all frames
   */
  attach(socket, websocket, stream) {
    socket[READING] = new Reading(websocket, stream);
    const isShared = this.isShared && shareReads(socket, this.socketOnRead);
    // Bytes of earlier reads may wait in the stream.
    if (!isShared || socket.readableLength > 0) socket.on('data', this.socketOnData);
  }

  /**
   * The client of a connection without ws has ended.
   * @param {Socket} socket @returns {boolean} true: bytes that came before wait for their turn, and
   *   the reader calls `ended` of the WebSocket again after them
   */
  delaysEnd(socket) {
    const reading = socket[READING];
    if (reading === undefined || reading.isDone || !isWaiting(reading)) return false;
    progressOf(reading).hasEnded = true;
    return true;
  }

  /** Discards all further bytes. @param {Socket} socket */
  discard(socket) {
    const reading = socket[READING];
    if (reading !== undefined) this.#finish(reading);
  }

  /** Closes connections whose message does not end. Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    for (const socket of this.#unfinished) {
      const reading = /** @type {Reading} */ (socket[READING]);
      const progress = /** @type {Progress} */ (reading.progress);
      const { fragmentBytes } = progress;
      if (reading.isDone || (reading.held === null && fragmentBytes < 0)) {
        progress.isWatched = false;
        this.#unfinished.delete(socket);
      } else if (progress.begun !== progress.seen || progress.isInLine) {
        progress.seen = progress.begun;
        progress.sinceMs = nowMs;
      } else if (
        nowMs - progress.sinceMs >
        UNFINISHED_MS + reading.heldBytes + Math.max(0, fragmentBytes)
      ) {
        this.#closeForFault(reading, 'unfinished');
      }
    }
  }

  /** @param {Socket} socket @param {Buffer} bytes */
  #readBytes(socket, bytes) {
    const reading = /** @type {Reading} */ (socket[READING]);
    const { websocket, progress } = reading;
    if (reading.isDone || websocket.readyState !== OPEN) {
      const { length } = bytes;
      if ((progressOf(reading).bytesAfterClose += length) > MAX_BYTES_AFTER_CLOSE) {
        this.#finish(reading);
        socket.pause(); // permanently: ws's close timer is running
      }
      if (reading.isDone) return;
    }
    if (progress !== null && progress.rest !== null) {
      // The socket has read once more before it was paused.
      if (this.#waitingBytes + bytes.length > this.maxWaitingBytes)
        return this.#closeForFault(reading, 'overload');
      this.#waitingBytes += bytes.length;
      progress.rest = Buffer.concat([progress.rest, bytes]);
      pause(reading);
      return;
    }
    const { length } = bytes;
    const done = this.reads.isOver ? 0 : this.#walk(socket, reading, bytes);
    if (done < length) {
      const left = length - done;
      const room =
        left > MAX_SHORT_BYTES ? LONG_SHARE * this.maxWaitingBytes : this.maxWaitingBytes;
      if (this.#waitingBytes + left > room) return this.#closeForFault(reading, 'overload');
      const isShort = this.reads.isOver && length <= MAX_SHORT_BYTES;
      this.#keepRest(
        socket,
        reading,
        Buffer.from(bytes.subarray(done)),
        isShort ? this.shortLine : this.longLine,
      );
    } else if (length >= READ_BYTES && !reading.isDone) {
      this.#waitInLine(socket, reading, this.longLine);
    }
  }

  /** @param {Socket} socket whose turn has come */
  #goOn(socket) {
    const reading = /** @type {Reading} */ (socket[READING]);
    const progress = /** @type {Progress} */ (reading.progress);
    const { rest } = progress;
    progress.isInLine = false;
    if (socket.destroyed) return this.#finish(reading);
    if (rest === null) return this.#resume(reading);
    // ws is still inflating. It resumes its stream afterwards.
    if (reading.stream?.isPaused()) {
      reading.stream.once('resume', this.streamOnResume);
      return;
    }
    progress.rest = null;
    this.#isLine = true;
    const done = this.#walk(socket, reading, rest);
    this.#isLine = false;
    this.#waitingBytes -= done;
    if (done < rest.length) {
      this.#waitingBytes -= rest.length - done;
      this.#keepRest(socket, reading, done === 0 ? rest : rest.subarray(done), this.longLine);
    } else this.#resume(reading);
  }

  /**
   * Keeps the rest of a read for a later turn.
   * @param {Socket} socket @param {Reading} reading @param {Buffer} rest a copy
   * @param {import('../worker/turn.js').Line<Socket>} line
   */
  #keepRest(socket, reading, rest, line) {
    this.#waitingBytes += rest.length;
    progressOf(reading).rest = rest;
    this.onWaiting(reading.websocket);
    // ws has paused the socket to inflate. The rest gets its turn when ws resumes it.
    if (reading.stream?.isPaused()) reading.stream.once('resume', this.streamOnResume);
    else this.#waitInLine(socket, reading, line);
  }

  /** @param {Socket} socket @param {Reading} reading @param {import('../worker/turn.js').Line<Socket>} line */
  #waitInLine(socket, reading, line) {
    const progress = progressOf(reading);
    pause(reading);
    if (progress.isInLine) return;
    this.counters.readsDeferred++;
    progress.isInLine = true;
    line.push(socket);
  }

  /** @param {Reading} reading @param {Fault} fault */
  #closeForFault(reading, fault) {
    this.#finish(reading);
    this.onFault(reading.websocket, fault);
    this.#resume(reading);
  }

  /** Reads the socket again, if ws reads it as soon as ws takes more. @param {Reading} reading */
  #resume({ websocket, stream, progress }) {
    if (stream === null) {
      websocket.socket.resume();
      if (progress?.hasEnded) websocket.ended();
    } else if (stream.isPaused()) stream.once('resume', this.streamOnDrain);
    else stream.unhold();
  }

  /** @param {Reading} reading that needs no more bytes */
  #finish(reading) {
    reading.isDone = true;
    reading.held = null;
    const { progress } = reading;
    if (progress === null) return;
    progress.message = null;
    if (progress.rest === null) return;
    this.#waitingBytes -= progress.rest.length;
    progress.rest = null;
  }

  /**
   * @param {Socket} socket @param {Reading} reading @param {Buffer} bytes
   * @returns {number} bytes processed; fewer than given if the turn is over
   */
  #walk(socket, reading, bytes) {
    const end = bytes.length;
    let at = 0;
    this.#walkEndMs = 0;
    this.#unitsOfWalk = 0;
    // A read costs a unit even without a whole frame.
    if (++this.#units >= this.unitsPerClock) this.#isTimeUp();
    if (reading.held !== null) {
      at = this.#readHeld(socket, reading, bytes);
      if (reading.isDone) return end;
      // ws may be inflating. It gets more frames afterwards.
      if (reading.stream !== null && reading.held === null) {
        this.#units += WS_FRAME_UNITS + (at >> 12);
        return at;
      }
    }
    while (at < end) {
      const size = this.#sizeOf(reading, bytes, at, end);
      if (size > end - at) {
        this.#hold(socket, reading, bytes, at, size);
        return end;
      }
      this.#takeFrame(socket, reading, bytes, at, size);
      if (reading.isDone) return end;
      at += size;
      if (reading.stream !== null) {
        this.#units += WS_FRAME_UNITS + (size >> 12);
        return at;
      }
      this.#units += 1 + (size >> 12);
      if (this.#units >= this.unitsPerClock && this.#isTimeUp()) return at;
    }
    return end;
  }

  /** Reads the clock. @returns {boolean} true if this walk is over */
  #isTimeUp() {
    const nowMs = this.turn.clock();
    this.#unitsOfWalk += this.#units;
    this.#units = 0;
    if (this.#walkEndMs === 0) this.#walkEndMs = nowMs + WALK_MS;
    const isTurnOver = !this.#isLine && this.reads.isSpentAt(nowMs); // a line has a share of its own
    return isTurnOver || nowMs >= this.#walkEndMs || this.#unitsOfWalk >= MAX_UNITS;
  }

  /** @param {Reading} reading @returns {boolean} false if the connection is being closed */
  #admitMessage(reading) {
    if (this.admitFrame === null || this.admitFrame(reading)) return true;
    this.#closeForFault(reading, 'flood');
    return false;
  }

  /** @param {Socket} socket @param {Reading} reading @param {Buffer} bytes @returns bytes taken */
  #readHeld(socket, reading, bytes) {
    let at = 0;
    for (;;) {
      const held = /** @type {Buffer} */ (reading.held);
      const { heldBytes } = reading;
      const size = this.#sizeOf(reading, held, 0, heldBytes);
      if (size <= heldBytes) {
        // First, because handlers of the frame may look at the socket.
        reading.held = null;
        reading.heldBytes = 0;
        this.#takeFrame(socket, reading, held.subarray(0, heldBytes), 0, size);
        return at;
      }
      if (at === bytes.length) return at;
      const part = Math.min(size - heldBytes, bytes.length - at);
      appendHeld(reading, bytes, at, part, size);
      at += part;
    }
  }

  /**
   * @param {Reading} reading @param {Buffer} b @param {number} at @param {number} end
   * @returns {number} the frame's size; if its header is incomplete, more than the bytes available;
   *   if its header is refused, NOT_MINIMAL or the negative close code
   */
  #sizeOf({ progress, stream }, b, at, end) {
    if (end - at < 2) return 2;
    const first = b[at];
    const length = b[at + 1] - 0x80; // RFC 6455 5.1: a client's frames are masked
    const isMessage = first === TEXT || first === BINARY;
    const fragmentBytes = progress === null ? -1 : progress.fragmentBytes;
    if (isMessage ? fragmentBytes < 0 : first === PING || first === PONG) {
      // Such a length fits a control frame (5.5) and every limit.
      if (length >= 0 && length < 126) return 2 + MASK_BYTES + length;
      if (length === 126 && isMessage && end - at >= 4) {
        const long = (b[at + 2] << 8) | b[at + 3];
        if (long >= 126 && long <= this.maxMessageBytes) return 4 + MASK_BYTES + long;
      }
    }
    if (isForbidden(first, b[at + 1], fragmentBytes >= 0, stream !== null)) return -PROTOCOL_ERROR;
    return this.#longSize(b, at, end, (first & 0x08) === 0, Math.max(0, fragmentBytes));
  }

  /**
   * The size of a frame whose first two bytes are allowed.
   * @param {Buffer} b @param {number} at @param {number} end
   * @param {boolean} isData @param {number} fragmentBytes of its message so far
   * @returns {number} as `#sizeOf`
   */
  #longSize(b, at, end, isData, fragmentBytes) {
    let length = b[at + 1] & 0x7f;
    if (length === 126) {
      if (end - at < 4) return 4;
      length = (b[at + 2] << 8) | b[at + 3];
      if (length < 126) return NOT_MINIMAL;
    } else if (length === 127) {
      if (end - at < MAX_HEADER_BYTES) return MAX_HEADER_BYTES;
      if (b.readUInt32BE(at + 2) > 0) return -TOO_LARGE;
      length = b.readUInt32BE(at + 6);
      if (length < 65_536) return NOT_MINIMAL;
    }
    if (isData && length > 0 && fragmentBytes + length > this.maxMessageBytes) return -TOO_LARGE;
    return headerBytes(b[at + 1]) + length;
  }

  /**
   * Handles a whole frame, or refuses the connection. `isDone` is true if nothing may follow.
   * @param {Socket} socket @param {Reading} reading @param {Buffer} b @param {number} at
   * @param {number} size as `#sizeOf`
   */
  #takeFrame(socket, reading, b, at, size) {
    if (size < 0) return this.#refuseHeader(reading, size, b.subarray(at, at + MAX_HEADER_BYTES));
    const first = b[at];
    const header = headerBytes(b[at + 1]);
    if (isCounted(first & 0x8f, size - header) && !this.#admitMessage(reading)) return;
    if (reading.stream !== null) {
      this.#feedWs(socket, reading, reading.stream, b.subarray(at, at + size), header);
      return;
    }
    const { websocket } = reading;
    const start = at + header;
    const end = at + size;
    const seen = unmask(b, start, end, start - MASK_BYTES);
    const body = b.subarray(start, end);
    if (first === TEXT) {
      if ((seen & 0x80) !== 0 && !isUtf8(body)) this.#refuse(reading, INVALID_DATA);
      else this.onText(websocket, body);
    } else if (first === BINARY) this.onBinary(websocket, body);
    else if (first === PING) websocket.onPing(body);
    else if (first === PONG) websocket.onPong();
    else if (first === CLOSE) this.#conclude(reading, body);
    else this.#takeFragment(socket, reading, first, body);
  }

  /**
   * Adds a fragment to its message.
   * @param {Socket} socket @param {Reading} reading @param {number} first @param {Buffer} body
   */
  #takeFragment(socket, reading, first, body) {
    const progress = progressOf(reading);
    if (progress.fragmentBytes < 0) {
      this.#beginMessage(socket, progress);
      progress.isBinary = (first & 0x0f) === 2;
      progress.fragments = 0;
    }
    if (++progress.fragments > this.maxFragments) return this.#refuse(reading, POLICY_VIOLATION);
    const { fragmentBytes } = progress;
    const bytes = fragmentBytes + body.length;
    const message = grown(progress.message, fragmentBytes, bytes, this.maxMessageBytes);
    message.set(body, fragmentBytes);
    const isFinal = (first & 0x80) !== 0;
    progress.message = isFinal ? null : message;
    progress.fragmentBytes = isFinal ? -1 : bytes;
    if (!isFinal) return;
    const whole = message.subarray(0, bytes);
    if (progress.isBinary) this.onBinary(reading.websocket, whole);
    else if (isUtf8(whole)) this.onText(reading.websocket, whole);
    else this.#refuse(reading, INVALID_DATA);
  }

  /** The peer closes. RFC 6455 5.5.1: nothing follows. @param {Reading} reading @param {Buffer} body */
  #conclude(reading, body) {
    if (body.length > 0 && !isCloseCode(body.readUInt16BE(0)))
      return this.#refuse(reading, PROTOCOL_ERROR);
    if (!isUtf8(body.subarray(2))) return this.#refuse(reading, INVALID_DATA);
    this.#finish(reading);
    reading.websocket.answerClose(body);
  }

  /** @param {Reading} reading @param {number} code */
  #refuse(reading, code) {
    this.#finish(reading);
    reading.websocket.refuse(code);
  }

  /**
   * @param {Reading} reading @param {number} size as `#sizeOf`, negative
   * @param {Buffer} header of the refused frame
   */
  #refuseHeader(reading, size, header) {
    const { websocket, stream } = reading;
    if (stream === null)
      return this.#refuse(reading, size === NOT_MINIMAL ? PROTOCOL_ERROR : -size);
    // ws inflates the earlier frames first, then refuses the header.
    if (size !== NOT_MINIMAL) stream.feed(Buffer.from(header));
    this.#finish(reading);
    if (size === NOT_MINIMAL) setImmediate(() => websocket.close(PROTOCOL_ERROR));
  }

  /**
   * @param {Socket} socket @param {Reading} reading @param {FeedStream} stream
   * @param {Buffer} frame whole @param {number} header its size
   */
  #feedWs(socket, reading, stream, frame, header) {
    // ws keeps fragments, which must not keep the memory of a whole read.
    const copy = Buffer.allocUnsafeSlow(frame.length);
    frame.copy(copy);
    stream.feed(copy);
    const first = frame[0];
    if ((first & 0x8f) === CLOSE) return this.#finish(reading);
    const isData = (first & 0x08) === 0;
    if (!isData || reading.isDone) return;
    const isFinal = (first & 0x80) !== 0;
    if (isFinal && reading.progress === null) return;
    const progress = progressOf(reading);
    if (isFinal) progress.fragmentBytes = -1;
    else {
      if (progress.fragmentBytes < 0) this.#beginMessage(socket, progress);
      progress.fragmentBytes += frame.length - header;
    }
  }

  /** The first fragment of a message has come. @param {Socket} socket @param {Progress} progress */
  #beginMessage(socket, progress) {
    progress.fragmentBytes = 0;
    progress.begun++;
    this.#watch(socket, progress);
  }

  /**
   * @param {Socket} socket @param {Reading} reading @param {Buffer} bytes @param {number} at
   * @param {number} size as `#sizeOf`
   */
  #hold(socket, reading, bytes, at, size) {
    reading.heldBytes = 0;
    appendHeld(reading, bytes, at, bytes.length - at, size);
    const progress = progressOf(reading);
    if (progress.fragmentBytes < 0) progress.begun++;
    this.#watch(socket, progress);
  }

  /** @param {Socket} socket @param {Progress} progress */
  #watch(socket, progress) {
    if (progress.isWatched) return;
    progress.isWatched = true;
    this.#unfinished.add(socket);
  }
}

/** Stops reading. @param {Reading} reading */
function pause({ websocket, stream }) {
  if (stream === null) websocket.socket.pause();
  else stream.hold();
}

/** Do bytes wait for their turn, or does the connection? @param {Reading} reading */
function isWaiting({ progress }) {
  return progress !== null && (progress.rest !== null || progress.isInLine);
}

/** @param {Reading} reading */
function progressOf(reading) {
  reading.progress ??= new Progress();
  return reading.progress;
}

/**
 * Does the frame take a token?
 * @param {number} first byte, without reserved bits @param {number} body its size
 */
function isCounted(first, body) {
  if (first === TEXT || first === BINARY) return body === 0;
  return first !== CLOSE && ((first & 0x08) !== 0 || body < SMALL_BYTES);
}

/**
 * RFC 6455 5.2, 5.4, 5.5: do the first two bytes break the protocol?
 * @param {number} first @param {number} second @param {boolean} isFragmented is a message unfinished?
 * @param {boolean} maybeDeflated may the first frame of a message be compressed (RFC 7692)?
 */
function isForbidden(first, second, isFragmented, maybeDeflated) {
  const opcode = first & 0x0f;
  const length = second & 0x7f;
  const isCompressed = (first & 0x40) !== 0;
  if ((first & 0x30) !== 0 || (second & 0x80) === 0) return true;
  if (isCompressed && (!maybeDeflated || opcode === 0 || opcode > 2)) return true;
  if (opcode === 0) return !isFragmented;
  if (opcode <= 2) return isFragmented;
  const isControl = opcode >= 8 && opcode <= 10;
  if (!isControl || (first & 0x80) === 0 || length > 125) return true;
  return opcode === 8 && length === 1;
}

/** RFC 6455 7.4, and the registered codes: may a close frame bear it? @param {number} code */
function isCloseCode(code) {
  if (code < 3000) return code >= 1000 && code <= 1014 && (code < 1004 || code > 1006);
  return code < 5000;
}

/** @param {number} second byte of a client's frame */
function headerBytes(second) {
  const length = second & 0x7f;
  return MASK_BYTES + (length === 126 ? 4 : length === 127 ? MAX_HEADER_BYTES : 2);
}

/**
 * Adds bytes to a held frame.
 * @param {Reading} reading @param {Buffer} bytes @param {number} at @param {number} count
 * @param {number} size the frame's
 */
function appendHeld(reading, bytes, at, count, size) {
  const { heldBytes } = reading;
  const needed = heldBytes + count;
  reading.held = grown(reading.held, heldBytes, needed, size);
  bytes.copy(reading.held, heldBytes, at, at + count);
  reading.heldBytes = needed;
}

/**
 * The buffer, or a larger one with its bytes. It grows with the bytes that arrived, not with the
 * announced size: a header of eight bytes must not allocate a whole message.
 * @param {Buffer|null} buffer @param {number} used @param {number} needed bytes
 * @param {number} size the largest that may be needed
 */
function grown(buffer, used, needed, size) {
  if (buffer !== null && buffer.length >= needed) return buffer;
  const room = Math.min(size, Math.max(MIN_HELD_BYTES, 2 * used));
  const larger = Buffer.allocUnsafeSlow(Math.max(needed, room));
  buffer?.copy(larger, 0, 0, used);
  return larger;
}

/**
 * Removes a mask (RFC 6455 5.3).
 * @param {Buffer} b @param {number} at @param {number} end @param {number} mask its index
 * @returns {number} all resulting bytes, combined by OR. If bit 7 is 0, they are ASCII.
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

/** Four bytes of a mask in the processor's byte order. */
const maskWord = new Int32Array(1);
const maskBytes = new Uint8Array(maskWord.buffer);
