// log.js: the logger of a process: JSON lines to stdout, or text on a terminal, without secrets.
//
// The log must never stop or stall a server: lines wait in a bounded queue and are written off the
// event loop. Lines that can't be written (full disk, closed pipe) are dropped and counted. pino's
// sonic-boom retries for ever at exit after a write error. If no process reads the pipe, a pool
// thread stuck in write(2) keeps the process from exiting.

import { closeSync, constants, fstatSync, openSync, write, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { isatty } from 'node:tty';
import pino from 'pino';
import { bannerText, textFormat } from './log-text.js';

/** Bytes of log that may wait. Further lines are dropped. */
const MAX_QUEUED_BYTES = 1_048_576;
/** PIPE_BUF: up to this size, writes of several processes to a pipe never mix. */
const MAX_WRITE_BYTES = 4096;
const RETRY_FULL_PIPE_MS = 20;
const RETRY_AFTER_ERROR_MS = 1000;
/** Time at exit for a slow reader of a full pipe. */
const EXIT_WAIT_MS = 200;
/** Time at exit for a pending write. A busy machine may not have a thread for it at once. */
const EXIT_WRITE_MS = 50;
const EXIT_STEP_MS = 5;

const REDACTED = '[redacted]';
const SECRET_KEY =
  /^(authorization|proxy-authorization|cookie|set-cookie|sec-websocket-protocol|token|password|secret|api-?key)$/i;
const MAX_DEPTH = 6;

/** @import { DestinationStream, Logger, LoggerOptions } from 'pino' */

/** @type {Destination[]} */
const destinations = [];

/**
 * @param {object} options @param {string} options.level
 * @param {string} [options.name] of the server, written in every line
 * @param {'auto'|'json'|'text'} [options.format] `auto`: text on a terminal, else JSON
 * @param {boolean} [options.colour] on a terminal
 * @param {number} [options.descriptor] of the destination; stdout by default @returns {Logger}
 */
export function createLog({ level, name, format = 'auto', colour = true, descriptor = 1 }) {
  const isTerminal = isatty(descriptor);
  const isText = format === 'text' || (format === 'auto' && isTerminal);
  /** @type {LoggerOptions} */
  const options = {
    level,
    base: name === undefined ? { pid: process.pid } : { pid: process.pid, server: name },
    serializers: { err: (error) => withoutSecrets(pino.stdSerializers.err(error), 0) },
    formatters: {
      log: (fields) => /** @type {Record<string, unknown>} */ (withoutSecrets(fields, 0)),
    },
    // Redacts the whole line, because a URL may be in a message, a stack or a field of any name.
    hooks: { streamWrite: redactUrl },
  };
  const isColoured = isTerminal && colour;
  const destination = new Destination(descriptor, isText ? textFormat(isColoured) : undefined);
  destination.isColoured = isColoured;
  destinations.push(destination);
  return pino(options, destination);
}

/**
 * Writes the banner, if the log is text.
 * @param {readonly {text: string, isWarning: boolean}[]} lines
 * @returns {boolean} false: the log is JSON
 */
export function writeBanner(lines) {
  const [destination] = destinations;
  if (destination?.format === undefined) return false;
  destination.queue(bannerText(lines, destination.isColoured));
  return true;
}

/** Lines of this process that could not be written: `fanfare_log_lines_dropped_total`. */
export function droppedLines() {
  return destinations.reduce((sum, destination) => sum + destination.dropped, 0);
}

/** Call it before process.exit(), which does not wait for lines. @param {number} [timeoutMs] */
export async function flushLog(timeoutMs = 500) {
  const end = performance.now() + timeoutMs;
  while (destinations.some((one) => one.isBusy) && performance.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, EXIT_STEP_MS));
  }
}

/**
 * Removes the credentials and queries of URLs:
 * `redis://user:secret@host/0?password=x` becomes `redis://[redacted]@host/0?[redacted]`.
 * @param {string} text
 */
export function redactUrl(text) {
  let result = text;
  if (result.includes('://'))
    result = result.replace(/([a-z][a-z\d+.-]*:\/\/)[^\s"'<>@/]*@/gi, `$1${REDACTED}@`);
  // The query of a URL or a bare path. In JSON it ends at the quote or an escape.
  if (result.includes('?')) result = result.replace(/\?[\w.~%+-]+=[^\s"'\\<>]*/g, `?${REDACTED}`);
  if (/bearer /i.test(result)) result = result.replace(/(bearer )[\w.~+/=-]+/gi, `$1${REDACTED}`);
  return result;
}

/**
 * Copies a value without those of the keys in SECRET_KEY. Values other than plain objects and
 * arrays are returned as they are.
 * @param {unknown} value @param {number} depth @returns {unknown}
 */
function withoutSecrets(value, depth) {
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return value;
  if (Array.isArray(value)) return value.map((item) => withoutSecrets(item, depth + 1));
  const isPlain = [Object.prototype, null].includes(Object.getPrototypeOf(value));
  // The error serializer returns an object with its own prototype. It needs the errors themselves
  // unchanged.
  if (!isPlain && !('raw' in value)) return value;
  /** @type {Record<string, unknown>} */
  const copy = {};
  for (const [key, item] of Object.entries(value)) {
    copy[key] = SECRET_KEY.test(key) ? REDACTED : withoutSecrets(item, depth + 1);
  }
  return copy;
}

/** A bounded queue of lines before a file descriptor. @implements {DestinationStream} */
class Destination {
  /** @param {number} descriptor @param {(line: string) => string} [format] of each line */
  constructor(descriptor, format) {
    this.descriptor = withoutBlocking(descriptor);
    this.format = format;
    this.isColoured = false;
    /** @type {string[]} */
    this.lines = [];
    this.queuedBytes = 0;
    this.dropped = 0;
    this.reported = 0;
    /** The rest of the pending batch. @type {Buffer|undefined} */
    this.batch = undefined;
    this.batchLines = 0;
    this.isWriting = false;
    this.isTorn = false;
    /** @type {NodeJS.Timeout|undefined} */
    this.retry = undefined;
    process.on('exit', () => this.#flushAtExit());
  }

  get isBusy() {
    return this.isWriting || this.batch !== undefined || this.lines.length > 0;
  }

  /** @param {string} line with its newline */
  write(line) {
    this.queue(this.format === undefined ? line : this.format(line));
  }

  /** @param {string} line already formatted */
  queue(line) {
    const bytes = Buffer.byteLength(line);
    if (this.queuedBytes + bytes > MAX_QUEUED_BYTES) {
      this.dropped++;
      return;
    }
    this.lines.push(line);
    this.queuedBytes += bytes;
    if (!this.isWriting && !this.retry) this.#writeNext();
  }

  #writeNext() {
    const batch = this.isWriting ? undefined : this.#nextBatch();
    if (!batch) return;
    this.isWriting = true;
    write(this.descriptor, batch, 0, batch.length, null, (error, written) => {
      this.isWriting = false;
      if (error) this.#failed(error);
      else this.#wrote(written);
      if (!this.retry) this.#writeNext();
    });
  }

  /** The rest of the pending batch, or a new batch of whole lines. */
  #nextBatch() {
    if (this.batch) return this.batch;
    if (this.lines.length === 0) return undefined;
    let count = 0;
    let bytes = 0;
    do bytes += Buffer.byteLength(this.lines[count++]);
    while (
      count < this.lines.length &&
      bytes + Buffer.byteLength(this.lines[count]) <= MAX_WRITE_BYTES
    );
    // The previous line may have been written in part: this line must not continue it.
    const text = (this.isTorn ? '\n' : '') + this.lines.splice(0, count).join('');
    this.queuedBytes -= bytes;
    this.batchLines = count;
    this.batch = Buffer.from(text);
    return this.batch;
  }

  /** @param {number} bytes */
  #wrote(bytes) {
    const batch = /** @type {Buffer} */ (this.batch);
    if (bytes > 0) this.isTorn = bytes < batch.length;
    this.batch = bytes < batch.length ? batch.subarray(bytes) : undefined;
    if (this.batch || this.dropped === this.reported) return;
    const lost = this.dropped - this.reported;
    this.reported = this.dropped;
    this.write(
      `{"level":40,"time":${Date.now()},"pid":${process.pid},"dropped":${lost},"msg":"log lines were dropped"}\n`,
    );
  }

  /** @param {NodeJS.ErrnoException} error */
  #failed(error) {
    const isFull = error.code === 'EAGAIN';
    if (!isFull) {
      // ENOSPC, EPIPE, EIO: these lines are lost. Writing resumes after a pause, because the disk
      // may have space again.
      this.dropped += this.batchLines;
      this.batch = undefined;
    }
    const retry = () => {
      this.retry = undefined;
      this.#writeNext();
    };
    this.retry = setTimeout(retry, isFull ? RETRY_FULL_PIPE_MS : RETRY_AFTER_ERROR_MS);
    this.retry.unref();
  }

  /** The last lines have the reason of the exit. Bounded by EXIT_WRITE_MS and EXIT_WAIT_MS. */
  #flushAtExit() {
    // The callback of a pending write can't run any more, but its thread completes the write.
    if (this.isWriting) {
      blockThread(EXIT_WRITE_MS);
      this.batch = undefined;
    }
    const end = performance.now() + EXIT_WAIT_MS;
    for (let batch = this.#nextBatch(); batch; batch = this.#nextBatch()) {
      try {
        this.#wrote(writeSync(this.descriptor, batch));
      } catch (error) {
        const isFull = /** @type {NodeJS.ErrnoException} */ (error).code === 'EAGAIN';
        if (!isFull || performance.now() > end) return;
        blockThread(EXIT_STEP_MS);
      }
    }
  }
}

/** Keeps descriptors non-blocking. @type {Socket[]} */
const sockets = [];

/**
 * A descriptor that does not block: a pool thread that waits in write(2) keeps the process from
 * exiting. A pipe or a terminal (which Ctrl-S stops) is reopened, because a flag on the given one
 * would also apply to the shell. If that fails (not Linux, another owner's pipe), and for files,
 * the given one is returned.
 * @param {number} descriptor
 */
function withoutBlocking(descriptor) {
  try {
    const stat = fstatSync(descriptor);
    if (stat.isSocket()) {
      // A socket, such as systemd's journal, can't be reopened. libuv makes it non-blocking when it
      // takes it. Writes stay ours.
      const socket = new Socket({ fd: descriptor, readable: false, writable: true });
      socket.on('error', () => {}); // the errors that matter are write's
      socket.unref();
      sockets.push(socket);
    }
    if (!stat.isFIFO() && !isatty(descriptor)) return descriptor;
    const flags = constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY;
    const own = openSync(`/proc/self/fd/${descriptor}`, flags);
    if (fstatSync(own).isFIFO() || isatty(own)) return own;
    closeSync(own);
  } catch {
    // The system is not Linux, or the pipe has another owner: see above.
  }
  return descriptor;
}

/** Blocks this thread. @param {number} ms */
function blockThread(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
