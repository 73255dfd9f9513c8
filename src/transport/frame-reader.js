// frame-reader.js: splits clients' bytes into frames, and bounds the work of each client.
//
// While it reads a socket, it handles the frames that nearly every client sends: whole messages,
// pings and pongs. From the first other frame on (fragments, close frames, protocol errors, text
// that is not UTF-8), ws gets all frames of the connection.
//
//                     the first frame for ws
//   (upgrade) ---> OURS -----------------------> WS (for good)
//
// ws gets whole, unchanged frames, or the header of a frame that it refuses, so close codes are
// those of ws. With compression ws gets all frames, because it inflates later than it reads.
// docs/architecture/fast-paths.md explains both, and the two lines in which reads wait.
//
// Control frames, empty frames and small fragments take a token each (admission/rate-limit.js).
// Large fragments pay as bytes of their message. A connection without a token is closed; up to
// MAX_BYTES_AFTER_CLOSE of its further bytes are read and discarded. The time for which a message
// may stay unfinished grows with its bytes.
//
// All sockets are read into one buffer (fast/shared-reads.js), so bytes to keep are copied.

import { isUtf8 } from 'node:buffer';
import { READ_BYTES, shareReads } from './fast/shared-reads.js';
import { takeWsListener } from './fast/ws-listener.js';
import { FeedStream } from './feed-stream.js';

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

/** Sizes of frames that the reader does not handle. This one is for ws. */
const NOT_OURS = -1;
/** ws refuses the frame by its header alone. */
const REFUSED = -2;
/** RFC 6455 5.2: lengths MUST be encoded in the minimal number of bytes. ws does not check. */
const NOT_MINIMAL = -3;
/** RFC 6455 7.4.1 */
const PROTOCOL_ERROR = 1002;

/** Longer bodies are unmasked by words: 140 bytes take 0.15, not 0.23 µs, 4 KB 1.5, not 6.4. */
const WORDS_FROM = 96;
/** Smallest buffer for the first piece of a frame. It doubles up to the frame's size. */
const MIN_HELD_BYTES = 256;

/** A frame handled here costs one unit of work, a frame for ws four; each 4 KB add one. */
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
/** ws gets at most this many frames or bytes at once; from 16 KB on it would pause the socket. */
const MAX_RUN_FRAMES = 32;
const MAX_RUN_BYTES = 16_383;
/** Fragments of this size or more take no token. */
const SMALL_BYTES = 1024;
/** When the server closes, bytes may still be in flight. After this many it stops reading. */
const MAX_BYTES_AFTER_CLOSE = 262_144;
/** Time that a message may stay unfinished. Each byte adds a millisecond: 1 KB/s is fast enough. */
const UNFINISHED_MS = 30_000;

/** @type {unique symbol} */
const READING = Symbol('reading');

/** @typedef {import('./server-websocket.js').ServerWebSocket} WebSocket */
/** @typedef {import('node:stream').Duplex} Duplex */
/** @typedef {import('./fast/ws-listener.js').DataListener} DataListener */
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
  /**
   * @param {WebSocket} websocket
   * @param {Duplex} stream that ws reads: the socket, or its FeedStream
   * @param {DataListener|null} websocketOnData ws's own listener; null: the stream is a FeedStream,
   *   or there is no ws yet
   */
  constructor(websocket, stream, websocketOnData) {
    this.websocket = websocket;
    this.stream = stream;
    this.websocketOnData = websocketOnData;
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

/** More state, for connections that wait, send frames for ws, or send frames in parts. */
class Progress {
  constructor() {
    /** True if ws gets all frames from here on. */
    this.isWs = false;
    this.isDeflated = false;
    /** Bytes waiting for their turn. @type {Buffer|null} */
    this.rest = null;
    this.isInLine = false;
    /** Bytes of the fragments of an unfinished message; -1 if there is none. */
    this.fragmentBytes = -1;
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
    /** ws takes bytes again. @this {Duplex} */
    this.streamOnResume = function streamOnResume() {
      const socket = socketOf(this);
      const reading = /** @type {Reading} */ (socket[READING]);
      if (reading.progress?.rest) reader.#waitInLine(socket, reading, reader.longLine);
    };
    /** ws takes bytes again. Reads on unless earlier bytes still wait. @this {Duplex} */
    this.streamOnDrain = function streamOnDrain() {
      const { progress } = /** @type {Reading} */ (socketOf(this)[READING]);
      if (progress !== null && (progress.rest !== null || progress.isInLine)) return;
      /** @type {FeedStream} */ (this).unhold();
    };
  }

  get waitingBytes() {
    return this.#waitingBytes;
  }

  /**
   * Starts to read for ws. Call it in the turn of the upgrade, before the socket reads any byte.
   * @param {Socket} socket @param {WebSocket} websocket that listens already
   * @param {Duplex|null} [stream] that ws reads: the socket, or its FeedStream; null: the socket,
   *   but ws comes later
   * @returns {boolean} false: nothing has changed, because ws does not read as expected
   */
  attach(socket, websocket, stream = socket) {
    const listener = stream === socket ? takeWsListener(socket) : null;
    if (stream === socket && listener === null) return false;
    const reading = new Reading(websocket, stream ?? socket, listener);
    if (websocket.extensions !== '') {
      const progress = progressOf(reading);
      progress.isWs = true;
      progress.isDeflated = true;
    }
    socket[READING] = reading;
    const isShared = this.isShared && shareReads(socket, this.socketOnRead);
    // Bytes of earlier reads may wait in the stream.
    if (!isShared || socket.readableLength > 0) socket.on('data', this.socketOnData);
    return true;
  }

  /**
   * Creates the WebSocket of ws, for the close and for frames that the reader does not handle.
   * @param {Socket} socket attached without ws @returns {boolean} false: it is too late
   */
  openWs(socket) {
    const reading = /** @type {Reading} */ (socket[READING]);
    socket.removeListener('data', this.socketOnData);
    const isOpen = reading.websocket.openWs();
    if (isOpen) reading.websocketOnData = takeWsListener(socket);
    socket.on('data', this.socketOnData);
    return isOpen;
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
      // ws has resumed the socket, which has read once more.
      if (this.#waitingBytes + bytes.length > this.maxWaitingBytes)
        return this.#closeForFault(reading, 'overload');
      this.#waitingBytes += bytes.length;
      progress.rest = Buffer.concat([progress.rest, bytes]);
      pause(reading);
      return;
    }
    const { length } = bytes;
    const done = this.reads.isOver ? 0 : this.#walk(socket, reading, bytes, false);
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
    const { websocket } = reading;
    const { rest } = progress;
    progress.isInLine = false;
    if (socket.destroyed) return this.#finish(reading);
    if (rest === null) return this.#resume(reading);
    if (progress.isDeflated) {
      if (reading.stream === socket) websocket.resume();
      // ws is still inflating. It resumes its stream afterwards.
      if (reading.stream.isPaused()) {
        reading.stream.once('resume', this.streamOnResume);
        return;
      }
      pause(reading);
    }
    progress.rest = null;
    this.#isLine = true;
    const done = this.#walk(socket, reading, rest, true);
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
    if (reading.progress?.isDeflated && isPausedByWs(reading)) {
      reading.stream.once('resume', this.streamOnResume);
    } else this.#waitInLine(socket, reading, line);
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

  /** Reads the socket again once ws takes more. @param {Reading} reading */
  #resume({ websocket, stream }) {
    if (!(stream instanceof FeedStream)) websocket.resume();
    else if (stream.isPaused()) stream.once('resume', this.streamOnDrain);
    else stream.unhold();
  }

  /** @param {Reading} reading that needs no more bytes */
  #finish(reading) {
    reading.isDone = true;
    reading.held = null;
    const { progress } = reading;
    if (progress === null || progress.rest === null) return;
    this.#waitingBytes -= progress.rest.length;
    progress.rest = null;
  }

  /**
   * @param {Socket} socket @param {Reading} reading @param {Buffer} bytes
   * @param {boolean} isOwn are these bytes outside of the shared buffer?
   * @returns {number} bytes processed; fewer than given if the turn is over
   */
  #walk(socket, reading, bytes, isOwn) {
    const { websocket } = reading;
    const end = bytes.length;
    let at = 0;
    this.#walkEndMs = 0;
    this.#unitsOfWalk = 0;
    // A read costs a unit even without a whole frame.
    if (++this.#units >= this.unitsPerClock) this.#isTimeUp();
    if (reading.held !== null) {
      at = this.#readHeld(socket, reading, bytes);
      if (reading.isDone) return end;
    }
    const { progress } = reading;
    if (progress?.isWs) return this.#walkForWs(socket, reading, progress, bytes, at, isOwn);
    while (at < end) {
      const size = this.#sizeOf(bytes, at, end);
      if (size > end - at) {
        this.#hold(socket, reading, bytes, at, size);
        return end;
      }
      if (size !== NOT_OURS && isCounted(bytes[at], size) && !this.#admitMessage(reading))
        return end;
      if (size === NOT_OURS || !this.#takeText(websocket, bytes, at, size)) {
        progressOf(reading).isWs = true;
        return this.#walkForWs(socket, reading, progressOf(reading), bytes, at, isOwn);
      }
      at += size;
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
      const isWs = reading.progress?.isWs === true;
      const size = isWs
        ? this.#sizeForWs(/** @type {Progress} */ (reading.progress), held, 0, heldBytes)
        : this.#sizeOf(held, 0, heldBytes);
      if (size > heldBytes) {
        if (at === bytes.length) return at;
        const part = Math.min(size - heldBytes, bytes.length - at);
        appendHeld(reading, bytes, at, part, size);
        at += part;
        continue;
      }
      // First, because handlers of the frame may look at the socket.
      reading.held = null;
      reading.heldBytes = 0;
      const whole = held.subarray(0, heldBytes);
      if (isWs) {
        this.#walkForWs(
          socket,
          reading,
          /** @type {Progress} */ (reading.progress),
          whole,
          0,
          true,
        );
        return at;
      }
      if (size !== NOT_OURS && isCounted(held[0], size) && !this.#admitMessage(reading)) return at;
      if (size !== NOT_OURS && this.#takeText(reading.websocket, held, 0, size)) return at;
      progressOf(reading).isWs = true;
      reading.held = held;
      reading.heldBytes = heldBytes;
    }
  }

  /**
   * @param {Buffer} b @param {number} at @param {number} end
   * @returns {number} the frame's size; if its header is incomplete, more than the bytes available
   */
  #sizeOf(b, at, end) {
    const first = b[at];
    const isMessage = first === TEXT || first === BINARY;
    if (!isMessage && first !== PING && first !== PONG) return NOT_OURS;
    if (end - at < 2) return 2;
    const length = b[at + 1] - 0x80;
    if (length < 0) return NOT_OURS; // RFC 6455 5.1: a client's frames are masked
    if (length < 126) return 2 + MASK_BYTES + length; // fits a control frame (5.5) and every limit
    if (length === 127 || !isMessage) return NOT_OURS;
    if (end - at < 4) return 4;
    const long = (b[at + 2] << 8) | b[at + 3];
    return long > this.maxMessageBytes || long < 126 ? NOT_OURS : 4 + MASK_BYTES + long;
  }

  /**
   * Handles a whole frame. Returns false, and leaves it unchanged, if it is not UTF-8.
   * @param {WebSocket} websocket @param {Buffer} b @param {number} at @param {number} size
   */
  #takeText(websocket, b, at, size) {
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
    } else if (b[at] === BINARY) this.onBinary(websocket, body);
    else if (b[at] === PING) websocket.onPing(body);
    else websocket.onPong();
    return true;
  }

  /**
   * Does what `#walk` does, for frames that ws handles: counts them, and passes them on in runs.
   * @param {Socket} socket @param {Reading} reading @param {Progress} progress
   * @param {Buffer} bytes @param {number} at @param {boolean} isOwn @returns {number}
   */
  #walkForWs(socket, reading, progress, bytes, at, isOwn) {
    const end = bytes.length;
    let from = at;
    let frames = 0;
    for (;;) {
      const size = at === end ? 0 : this.#sizeForWs(progress, bytes, at, end);
      const isWhole = size > 0 && size <= end - at;
      const first = bytes[at];
      // A run ends before a fragment, because ws keeps fragments, and would keep the whole run.
      const isFragment = isWhole && (first & 0x8f) <= 0x80;
      const isRunOver =
        !isWhole || isFragment || frames >= MAX_RUN_FRAMES || at + size - from > MAX_RUN_BYTES;
      if (isRunOver && at > from) {
        this.#feed(
          socket,
          reading,
          isOwn ? bytes.subarray(from, at) : Buffer.from(bytes.subarray(from, at)),
        );
        if (reading.isDone) return end;
        this.#units += WS_FRAME_UNITS * frames + ((at - from) >> 12);
        from = at;
        frames = 0;
        // ws may be inflating. It gets more frames afterwards.
        if (progress.isDeflated && at < end) return at;
        if (this.#units >= this.unitsPerClock && this.#isTimeUp() && at < end) return at;
      }
      if (at === end) return end;
      if (size > end - at) {
        this.#hold(socket, reading, bytes, at, size);
        return end;
      }
      if (!isWhole) {
        this.#refuseFrame(socket, reading, size, bytes.subarray(at, at + MAX_HEADER_BYTES));
        return end;
      }
      const isClose = (first & 0x8f) === CLOSE;
      const isControl = (first & 0x08) !== 0;
      const body = size - headerBytes(bytes[at + 1]);
      const isCounted = isControl || body === 0 || (isFragment && body < SMALL_BYTES);
      if (isCounted && !isClose && !this.#admitMessage(reading)) return end;
      if (isFragment) {
        const fragment = Buffer.allocUnsafeSlow(size);
        bytes.copy(fragment, 0, at, at + size);
        this.#feed(socket, reading, fragment);
        if (reading.isDone) return end;
        if ((first & 0x80) !== 0) progress.fragmentBytes = -1;
        else {
          if (progress.fragmentBytes < 0) {
            progress.fragmentBytes = 0;
            progress.begun++;
            this.#watch(socket, progress);
          }
          progress.fragmentBytes += body;
        }
        this.#units += WS_FRAME_UNITS + (size >> 12);
        at += size;
        from = at;
        if (progress.isDeflated && at < end) return at;
        if (this.#units >= this.unitsPerClock && this.#isTimeUp() && at < end) return at;
        continue;
      }
      at += size;
      frames++;
      if (isClose) {
        this.#feed(socket, reading, Buffer.from(bytes.subarray(from, at)));
        this.#finish(reading); // RFC 6455 5.5.1: nothing follows
        return end;
      }
    }
  }

  /**
   * The size, or that ws refuses the frame.
   * @param {Progress} progress @param {Buffer} b @param {number} at @param {number} end
   * @returns {number} as `#sizeOf`, or REFUSED, or NOT_MINIMAL
   */
  #sizeForWs({ isDeflated, fragmentBytes }, b, at, end) {
    if (end - at < 2) return 2;
    const first = b[at];
    const opcode = first & 0x0f;
    const isFinal = (first & 0x80) !== 0;
    const isCompressed = (first & 0x40) !== 0;
    let length = b[at + 1] & 0x7f;
    if ((first & 0x30) !== 0 || (isCompressed && !isDeflated) || (b[at + 1] & 0x80) === 0)
      return REFUSED;
    if (opcode === 0) {
      if (isCompressed || fragmentBytes < 0) return REFUSED;
    } else if (opcode <= 2) {
      if (fragmentBytes >= 0) return REFUSED;
    } else {
      if (opcode < 8 || opcode > 10 || !isFinal || isCompressed || length > 125) return REFUSED;
      if (opcode === 8 && length === 1) return REFUSED;
    }
    if (length === 126) {
      if (end - at < 4) return 4;
      length = (b[at + 2] << 8) | b[at + 3];
      if (length < 126) return NOT_MINIMAL;
    } else if (length === 127) {
      if (end - at < MAX_HEADER_BYTES) return MAX_HEADER_BYTES;
      if (b.readUInt32BE(at + 2) > 0) return REFUSED;
      length = b.readUInt32BE(at + 6);
      if (length < 65_536) return NOT_MINIMAL;
    }
    if (opcode < 8 && length > 0 && Math.max(0, fragmentBytes) + length > this.maxMessageBytes)
      return REFUSED;
    return headerBytes(b[at + 1]) + length;
  }

  /**
   * @param {Socket} socket @param {Reading} reading
   * @param {Buffer} bytes whole frames, which ws may keep
   */
  #feed(socket, reading, bytes) {
    const { stream } = reading;
    if (stream instanceof FeedStream) return stream.feed(bytes);
    if (reading.websocketOnData === null) this.openWs(socket);
    reading.websocketOnData?.call(socket, bytes);
  }

  /**
   * @param {Socket} socket @param {Reading} reading @param {number} why
   * @param {Buffer} header of the refused frame
   */
  #refuseFrame(socket, reading, why, header) {
    const { websocket, progress } = reading;
    if (why === REFUSED) this.#feed(socket, reading, Buffer.from(header));
    this.#finish(reading);
    // ws inflates the earlier frames first, then refuses the header.
    if (why === REFUSED && progress?.isDeflated) return;
    // The next turn is late enough: ws has chosen its close code by then.
    setImmediate(() => {
      if (websocket.readyState === OPEN) websocket.close(PROTOCOL_ERROR);
    });
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

/** @param {Duplex} stream that ws reads @returns {Socket} */
function socketOf(stream) {
  return stream instanceof FeedStream ? stream.socket : /** @type {Socket} */ (stream);
}

/** Stops reading; through ws if ws reads the socket. @param {Reading} reading */
function pause({ websocket, stream }) {
  if (stream instanceof FeedStream) stream.hold();
  else websocket.pause();
}

/** Has ws paused it to inflate? @param {Reading} reading */
function isPausedByWs({ websocket, stream }) {
  return stream.isPaused() && (stream instanceof FeedStream || !websocket.isPaused);
}

/** @param {Reading} reading */
function progressOf(reading) {
  reading.progress ??= new Progress();
  return reading.progress;
}

/** Does the frame take a token? @param {number} first byte @param {number} size */
function isCounted(first, size) {
  return (first !== TEXT && first !== BINARY) || size === 2 + MASK_BYTES;
}

/** @param {number} second byte of a client's frame */
function headerBytes(second) {
  const length = second & 0x7f;
  return MASK_BYTES + (length === 126 ? 4 : length === 127 ? MAX_HEADER_BYTES : 2);
}

/**
 * Adds bytes to a held frame. The buffer grows with the bytes that arrived, not with the announced
 * size: a header of eight bytes must not allocate a whole message.
 * @param {Reading} reading @param {Buffer} bytes @param {number} at @param {number} count
 * @param {number} size the frame's
 */
function appendHeld(reading, bytes, at, count, size) {
  const { held, heldBytes } = reading;
  const needed = heldBytes + count;
  let target = held;
  if (target === null || target.length < needed) {
    target = Buffer.allocUnsafeSlow(
      Math.max(needed, Math.min(size, Math.max(MIN_HELD_BYTES, 2 * heldBytes))),
    );
    if (held !== null) held.copy(target, 0, 0, heldBytes);
    reading.held = target;
  }
  bytes.copy(target, heldBytes, at, at + count);
  reading.heldBytes = needed;
}

/**
 * Removes a mask, or restores it (RFC 6455 5.3).
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
