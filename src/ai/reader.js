// reader.js: reads a run from its beginning, or from a position, until its end mark.
//
// The client replays and recovers. Chunks have numbers, so a part that arrives again, or a run
// that was written again after a loss, yields each chunk once. A missing chunk is an error, and so
// is the producer's error mark. Silence is neither end nor error, unless you set `silenceMs`.

import { isPart, stopRoomOf } from './part.js';
import { RunError } from './run-error.js';

/** As many as a room can keep. */
const ALL = 10_000;
/** Of a page of the history. */
const PAGE = 1000;
/** Between two attempts to read it. */
const RETRY_MS = 500;
/** Parts that wait for the reader. */
const MAX_WAITING = 20_000;

/** @import { Part, Position, RunEnd } from './part.js' */

/** Where a reader stands: `next` is the number of the next chunk. @typedef {Position & {next: number}} RunPosition */

/**
 * What the reader needs of a client: `Fanfare` of fanfare-client, also of `/node` and `/shared`.
 * @typedef {object} RunClient
 * @property {(room: any, options?: any) => any} join
 * @property {(room: any, payload: any, options?: any) => Promise<unknown>} publish
 * @property {string} [state] @property {(event: any, listener: (...args: any[]) => void) => any} [on]
 */

/**
 * @typedef {object} ReadOptions
 * @property {RunPosition} [since] `position` of an earlier reader; from the first chunk if absent
 * @property {AbortSignal} [signal] ends the reading, not the run
 * @property {number} [silenceMs] throws SILENT if no part arrives for so long
 */

/**
 * @template [Chunk=any]
 * @param {RunClient} fanfare @param {string} room of the run @param {ReadOptions} [options]
 * @returns {RunReader<Chunk>}
 */
export function read(fanfare, room, options) {
  return new RunReader(fanfare, room, options);
}

/** @template [Chunk=any] */
export class RunReader {
  #fanfare;
  #options;
  /** @type {{part: Part, at: Position}[]} */
  #waiting = [];
  /** @type {Error|undefined} */
  #failure;
  #wake = () => {};

  /** @param {RunClient} fanfare @param {string} room @param {ReadOptions} [options] */
  constructor(fanfare, room, options = {}) {
    this.room = room;
    this.#fanfare = fanfare;
    this.#options = options;
    /** After the last part of which all chunks were read. @type {RunPosition|undefined} */
    this.position = options.since;
    /** Why the run has ended; undefined: it goes on. @type {RunEnd|undefined} */
    this.end = undefined;
  }

  /** Asks the producer to end the run. Needs the right to publish to `<room>/stop`. */
  async stop() {
    await this.#fanfare.publish(stopRoomOf(this.room), { stop: true });
  }

  /**
   * @returns {AsyncGenerator<Chunk, void>} throws a RunError: FAILED, INCOMPLETE, SILENT or
   *   BUFFER_FULL; the reason of `signal`; or the error of the client if it may not read
   */
  async *[Symbol.asyncIterator]() {
    const { signal } = this.#options;
    const { epoch = '', offset = 0, next: first = 0 } = this.position ?? {};
    let next = first;
    const handle = this.#fanfare.join(this.room, {
      ...(epoch ? { since: { epoch, offset } } : { last: ALL }),
      recoverFailed: () => this.#load(handle, next),
    });
    const abort = () => this.#endWith(signal?.reason);
    const stops = this.#hear(handle);
    if (signal?.aborted) abort();
    if (this.#fanfare.state === 'closed') this.#close();
    signal?.addEventListener('abort', abort);
    try {
      while (this.end === undefined) {
        const first = await this.#nextPart();
        const { part, at } = first.part.at > next ? await this.#before(handle, next, first) : first;
        if (part.at > next)
          throw new RunError(
            'INCOMPLETE',
            `${this.room}: chunks ${next} to ${part.at - 1} are gone`,
          );
        for (const chunk of part.chunks.slice(next - part.at)) {
          next++;
          yield chunk;
        }
        this.position = { ...at, next };
        if (part.end === 'failed')
          throw new RunError('FAILED', part.message ?? 'The run has failed.');
        this.end = part.end;
      }
    } finally {
      signal?.removeEventListener('abort', abort);
      for (const stop of stops) stop();
      handle.leave();
      this.#waiting = [];
    }
  }

  /** @param {any} handle of the room @returns {(() => void)[]} */
  #hear(handle) {
    return [
      handle.on('message', (/** @type {any} */ payload, /** @type {any} */ meta) =>
        this.#add(payload, meta),
      ),
      handle.on('joined', (/** @type {{since?: Position, position?: Position}} */ about) => {
        // A replay would begin before the newest message. So nothing is kept, perhaps no end.
        const { since, position } = about;
        if (!since && position?.offset && handle.position?.offset === position.offset)
          this.#expire();
      }),
      handle.on('reset', (/** @type {any[]} */ messages, /** @type {Position|undefined} */ at) => {
        for (const { payload, ...meta } of messages) this.#add(payload, meta);
        if (messages.length === 0 && at?.offset) this.#expire();
      }),
      handle.on('error', (/** @type {Error & {code?: string}} */ error) => {
        // Until the history can be read, the client tries again.
        if (error.code !== 'STATE_UNAVAILABLE') this.#endWith(error);
      }),
      handle.on('left', () => this.#endWith(new Error(`${this.room} was left`))),
      this.#fanfare.on?.('state', (state) => state === 'closed' && this.#close()) ?? (() => {}),
    ];
  }

  /** @param {unknown} payload @param {Position} meta */
  #add(payload, { epoch, offset }) {
    if (!isPart(payload)) return;
    if (this.#waiting.length >= MAX_WAITING)
      this.#endWith(new RunError('BUFFER_FULL', `${this.room} is read too slowly`));
    else this.#waiting.push({ part: payload, at: { epoch, offset } });
    this.#wake();
  }

  #close() {
    const message = `${this.room}: the client is closed`;
    this.#endWith(Object.assign(new Error(message), { code: 'CLOSED' }));
  }

  #expire() {
    this.#endWith(new RunError('INCOMPLETE', `${this.room}: its chunks have expired`));
  }

  /** @param {any} error */
  #endWith(error) {
    this.#failure ??= error;
    this.#wake();
  }

  async #nextPart() {
    const { silenceMs } = this.#options;
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure;
      const first = this.#waiting.shift();
      if (first !== undefined) return first;
      /** @type {ReturnType<typeof setTimeout>|undefined} */
      let timer;
      await new Promise((resolve) => {
        this.#wake = () => resolve(undefined);
        if (silenceMs !== undefined)
          timer = setTimeout(() => {
            this.#endWith(new RunError('SILENT', `${this.room}: no part for ${silenceMs} ms`));
          }, silenceMs);
      });
      clearTimeout(timer);
    }
  }

  /**
   * A join replays only as many bytes as fit into one answer. The history has the parts before.
   * @param {any} handle @param {number} next chunk that the reader needs
   * @param {{part: Part, at: Position}} first of the parts that wait
   */
  async #before(handle, next, first) {
    const messages = await this.#load(handle, next, first.at);
    const earlier = messages
      .filter(({ payload }) => isPart(payload))
      .map(({ payload, epoch, offset }) => ({ part: payload, at: { epoch, offset } }));
    const [one, ...others] = [...earlier, first];
    this.#waiting.unshift(...others);
    return one;
  }

  /**
   * Reads what the room keeps, because messages are missing.
   * @param {any} handle @param {number} next chunk that the reader needs
   * @param {Position} [before] the end of what is missing
   * @returns {Promise<any[]>} messages
   */
  async #load(handle, next, before) {
    /** @type {any[]} */
    const messages = [];
    let end = before;
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure;
      try {
        /** @type {{messages: any[], more: boolean, next?: Position}} */
        const page = await handle.history({ limit: PAGE, before: end });
        messages.unshift(...page.messages);
        if (!page.more || messages[0]?.payload?.at <= next) return messages;
        // `next`: all messages of this page are for others.
        end = page.next ?? page.messages[0];
        if (end === undefined) return messages;
      } catch (/** @type {any} */ error) {
        // Large pages use up the rate of a connection, which may also break meanwhile.
        if (!error.retryable && error.code !== 'OUTCOME_UNKNOWN') throw error;
        const waitMs = Math.max(RETRY_MS, error.retryAfterMs ?? 0);
        await new Promise((resolve) => setTimeout(resolve, waitMs));
      }
    }
  }
}
