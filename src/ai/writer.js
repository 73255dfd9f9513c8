// writer.js: writes a run: the chunks of a model or an agent, in order, to a room with history.
//
//   write ──> chunks that wait ── 40 ms or 4 KB ──> publish a part, expecting the last position
//   end, fail, a reader's stop ───────────────────> publish the rest, with the end mark
//
// One publish is under way at a time, and names the position of the one before (`expect`). So of
// two producers of a run only one goes on: the other is refused with CONFLICT. fanfare-server
// repeats a publish with its idempotency key through an outage, for `outageMs` at most. Chunks
// collect meanwhile, up to MAX_WAITING: then `write` waits.
//
// If Fanfare has lost the room (the embedded backend was restarted, or Redis has lost its data),
// the room is empty and in a new epoch. The writer then writes the run again from its first chunk.
// It keeps the chunks for that, up to `keepBytes`. Readers drop what they have by the chunks'
// numbers.

import { isPart, stopRoomOf } from './part.js';
import { RunError } from './run-error.js';

/** A part leaves this long after its first chunk. loadtest/bench/runs.js has the figures. */
const EVERY_MS = 40;
/** A part with this many characters of JSON leaves at once. */
const PART_SIZE = 4096;
/** The largest part, unless a single chunk is larger. In UTF-8 below FANFARE_MAX_MESSAGE_BYTES. */
const MAX_PART_SIZE = 32_768;
/** In characters of JSON. */
const MAX_WAITING = 262_144;
const KEEP_BYTES = 4_194_304;
/** Below the five minutes for which servers remember idempotency keys. */
const OUTAGE_MS = 60_000;

/** @import { Part, Position } from './part.js' */

/**
 * What the writer needs of `createServer` (fanfare-server).
 * @typedef {object} PublishingServer
 * @property {(room: string, payload: any, options?: any) => Promise<Partial<Position>>} publish
 * @property {(room: string, options?: any) => Promise<{messages: {payload: any}[], epoch: string, offset: number}>}
 *   history
 */

/**
 * What the writer needs of a client (`fanfare-client/node`) to hear readers.
 * @typedef {{join(room: string, options: any): {on(event: any, listener: (...args: any[]) => void): unknown, history(options: any): Promise<any>, leave(): void}}} StopListener
 */

/**
 * @typedef {object} StreamOptions
 * @property {boolean} [resume] continues a run that has chunks; without it, such a run is a CONFLICT
 * @property {StopListener} [stop] a client by which the writer hears readers that stop the run. All
 *   runs of a process may share it. Its token needs the rights `join` and `history`
 * @property {number} [everyMs] after its first chunk, a part leaves; 40. With more, many runs at once
 *   need fewer requests
 * @property {number} [outageMs] for which a part is repeated; 60,000
 * @property {number} [keepBytes] of chunks, kept to write the run again after a loss; 4 MB
 */

/** @typedef {{chunk: any, size: number}} Sized */

/**
 * Begins a run, or continues one.
 * @param {PublishingServer} server of `createServer`, with a key that may publish and read history
 * @param {string} room with history, in which only the producers of the run may publish
 * @param {StreamOptions} [options]
 * @returns {Promise<RunWriter>} rejects with a RunError: CONFLICT, ENDED or INCOMPLETE
 */
export async function stream(server, room, options = {}) {
  const { messages, epoch, offset } = await server.history(room, { limit: 1 });
  if (offset === 0) return new RunWriter(server, room, options);
  const last = messages[0]?.payload;
  if (last?.end) throw new RunError('ENDED', `${room} has ended: ${last.end}`);
  if (!options.resume) throw new RunError('CONFLICT', `${room} has chunks: pass { resume: true }`);
  if (last === undefined)
    throw new RunError('INCOMPLETE', `the last chunks of ${room} have expired`);
  if (!isPart(last))
    throw new RunError('CONFLICT', `${room}: the last message is no part of a run`);
  const written = last.at + last.chunks.length;
  return new RunWriter(server, room, options, { epoch, offset }, written);
}

export class RunWriter {
  #server;
  #everyMs;
  #outageMs;
  #keepBytes;
  /** Chunks before the present ones, for a run that the room has lost; null: some are not kept. @type {Sized[]|null} */
  #kept;
  #keptSize = 0;
  /** @type {Sized[]} */
  #waiting = [];
  #waitingSize = 0;
  /** When the oldest waiting chunk came. */
  #sinceMs = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;
  /** @type {Promise<void>|null} */
  #publishing = null;
  /** @type {Promise<void>|null} */
  #ending = null;
  #control = new AbortController();
  #stopRoom;

  /**
   * @param {PublishingServer} server @param {string} room @param {StreamOptions} options
   * @param {Position} [position] of the last part @param {number} [written]
   */
  constructor(server, room, options, position, written = 0) {
    const { stop, everyMs = EVERY_MS, outageMs = OUTAGE_MS, keepBytes = KEEP_BYTES } = options;
    this.room = room;
    /** Where the run stands. @type {Position|undefined} */
    this.position = position;
    /** Chunks in the room. */
    this.written = written;
    this.#server = server;
    this.#everyMs = everyMs;
    this.#outageMs = outageMs;
    this.#keepBytes = keepBytes;
    this.#kept = written === 0 ? [] : null;
    this.#stopRoom = stop?.join(stopRoomOf(room), {
      last: 1,
      // A stop that was sent while the client was away, and is not replayed.
      recoverFailed: () => this.#stopRoom?.history({ limit: 1 }),
    });
    const stopped = () => this.#abort(new RunError('STOPPED', `${room}: stopped`));
    this.#stopRoom?.on('message', stopped);
    this.#stopRoom?.on('reset', (page) => page.messages.length > 0 && stopped());
  }

  /**
   * Aborts when the run is stopped or refused: for the model. Its reason is the error.
   * @returns {globalThis.AbortSignal}
   */
  get signal() {
    return this.#control.signal;
  }

  /**
   * Adds a chunk. Resolves at once, or while too many wait, when fewer do.
   * @param {any} chunk a JSON value: text, or an object. Do not change it later
   * @returns {Promise<void>} rejects with a RunError if the run was stopped or has another producer,
   *   or with the error of a publish that has failed
   */
  async write(chunk) {
    this.#mustBeOpen();
    const size = JSON.stringify(chunk)?.length;
    if (size === undefined) throw new TypeError('a chunk is a JSON value');
    if (this.#waiting.length === 0) this.#sinceMs = Date.now();
    this.#waiting.push({ chunk, size });
    this.#waitingSize += size;
    this.#planPart();
    while (this.#waitingSize > MAX_WAITING) {
      await this.#publishing;
      this.#mustBeOpen();
    }
  }

  /**
   * Publishes at once what waits. Resolves when all chunks written so far are stored.
   * @returns {Promise<void>} rejects as `write` does
   */
  async flush() {
    while (this.#publishing !== null || this.#waiting.length > 0) {
      this.#mustBeOpen();
      clearTimeout(this.#timer);
      if (this.#publishing === null) this.#publishPart();
      await this.#publishing;
    }
    this.#mustBeOpen();
  }

  /**
   * Writes all chunks of a model, then the end mark. Returns early if a reader stops the run.
   * @param {AsyncIterable<any>|Iterable<any>} chunks such as a stream of the package `ai`
   * @param {{errorText?: (error: unknown) => string}} [options] what readers learn if the chunks fail
   * @returns {Promise<void>} rejects with the error of the chunks, or as `write` does
   */
  async pipe(chunks, { errorText = () => 'The run has failed.' } = {}) {
    const { signal } = this;
    const source = /** @type {any} */ (chunks);
    const iterator = (source[Symbol.asyncIterator] ?? source[Symbol.iterator]).call(source);
    // Not a race with one promise for all chunks, which would keep something of each of them.
    let interrupt = (/** @type {unknown} */ _reason) => {};
    const abort = () => interrupt(signal.reason);
    signal.addEventListener('abort', abort);
    try {
      for (;;) {
        signal.throwIfAborted();
        const { done, value } = await new Promise((resolve, reject) => {
          interrupt = reject;
          Promise.resolve(iterator.next()).then(resolve, reject);
        });
        if (done) break;
        await this.write(value);
      }
      await this.end();
    } catch (error) {
      // A generator that waits answers later, so nobody waits for it.
      Promise.resolve(iterator.return?.()).catch(() => {});
      if (error instanceof RunError && error.code === 'STOPPED') return this.#close('stopped');
      if (!signal.aborted) await this.fail(errorText(error));
      throw error;
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  /** Ends the run. Resolves when the mark is stored. @returns {Promise<void>} */
  async end() {
    const isStopped = this.signal.reason?.code === 'STOPPED';
    return this.#close(isStopped ? 'stopped' : 'done');
  }

  /** Ends the run with an error. @param {string} message for readers @returns {Promise<void>} */
  async fail(message) {
    return this.#close('failed', message);
  }

  /** @param {import('./part.js').RunEnd} end @param {string} [message] */
  #close(end, message) {
    this.#ending ??= this.#publishEnd({ end, message });
    return this.#ending;
  }

  /** @param {Pick<Part, 'end'|'message'>} mark */
  async #publishEnd(mark) {
    clearTimeout(this.#timer);
    try {
      await this.#publishing;
      for (let isStored = false; !isStored; ) {
        this.#mustBeWritable();
        isStored = await this.#publish(mark);
      }
    } finally {
      this.#stopRoom?.leave();
    }
  }

  #planPart() {
    if (this.#publishing !== null || this.#ending !== null || this.#waiting.length === 0) return;
    clearTimeout(this.#timer);
    const waitMs = this.#waitingSize >= PART_SIZE ? 0 : this.#sinceMs + this.#everyMs - Date.now();
    if (waitMs <= 0) this.#publishPart();
    else this.#timer = setTimeout(() => this.#publishPart(), waitMs);
  }

  #publishPart() {
    this.#publishing = this.#publish().then(
      () => {
        this.#publishing = null;
        this.#planPart();
      },
      (error) => {
        this.#publishing = null;
        this.#abort(error);
      },
    );
  }

  /**
   * Publishes the next part.
   * @param {Pick<Part, 'end'|'message'>} [mark] for the last one
   * @returns {Promise<boolean>} whether the mark, if there is one, is stored
   */
  async #publish(mark) {
    const taken = this.#take();
    const isLast = mark !== undefined && this.#waiting.length === 0;
    /** @type {Part} */
    const part = { at: this.written, chunks: taken.map(({ chunk }) => chunk) };
    try {
      const position = await this.#server.publish(this.room, isLast ? { ...part, ...mark } : part, {
        expect: this.position ?? { offset: 0 },
        timeoutMs: this.#outageMs,
      });
      this.position = /** @type {Position} */ (position);
    } catch (error) {
      this.#restore(taken, error);
      return false;
    }
    this.written += taken.length;
    this.#keep(taken);
    return isLast;
  }

  /** @returns {Sized[]} the chunks of the next part */
  #take() {
    let size = 0;
    let count = 0;
    for (const one of this.#waiting) {
      size += one.size;
      if (count > 0 && size > MAX_PART_SIZE) break;
      count++;
    }
    const taken = this.#waiting.splice(0, count);
    for (const one of taken) this.#waitingSize -= one.size;
    this.#sinceMs = Date.now();
    return taken;
  }

  /** @param {readonly Sized[]} chunks that the room has */
  #keep(chunks) {
    for (const { size } of chunks) this.#keptSize += size;
    if (this.#keptSize > this.#keepBytes) this.#kept = null;
    else this.#kept?.push(...chunks);
  }

  /**
   * A part was refused: writes the run again if the room has lost it.
   * @param {Sized[]} taken @param {any} error of the publish
   */
  #restore(taken, error) {
    // Even after an error, a run that was stopped goes on to its mark, and they belong before it.
    this.#putBack(taken);
    if (error.code !== 'CONFLICT') throw error;
    if (error.position.offset > 0 || this.#kept === null) {
      const message = `${this.room}: another producer writes this run, or it was lost`;
      throw new RunError('CONFLICT', message, { cause: error });
    }
    this.position = error.position;
    this.written = 0;
    this.#putBack(this.#kept);
    this.#kept = [];
    this.#keptSize = 0;
  }

  /** @param {readonly Sized[]} chunks before those that wait */
  #putBack(chunks) {
    this.#waiting = [...chunks, ...this.#waiting];
    for (const { size } of chunks) this.#waitingSize += size;
  }

  /** @param {any} reason */
  #abort(reason) {
    this.#control.abort(reason);
    // A run that readers have stopped still gets its mark.
    if (reason?.code !== 'STOPPED') this.#stopRoom?.leave();
  }

  #mustBeOpen() {
    if (this.signal.aborted) throw this.signal.reason;
    if (this.#ending !== null) throw new RunError('ENDED', `${this.room} has ended`);
  }

  /** A run that was stopped gets its mark. */
  #mustBeWritable() {
    const { aborted, reason } = this.signal;
    if (aborted && reason?.code !== 'STOPPED') throw reason;
  }
}
