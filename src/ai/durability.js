// durability.js: the log of a run for TanStack AI (`StreamDurability` of @tanstack/ai), shared by
// replicas.
//
//   POST   append, append, close      the chunks of `chat()`, as parts of a run
//   GET    read                       replays the run, then follows it, at any replica
//
// An offset names the run, a position in its room, and the number of the next chunk. The position
// is that before the chunk's part, so a client that reconnects gets little more than it misses.

import { isPart } from './part.js';
import { read } from './reader.js';
import { RunError } from './run-error.js';
import { stream } from './writer.js';

/** @import { RunClient, RunPosition } from './reader.js' */
/** @import { PublishingServer, RunWriter } from './writer.js' */

const RUN_ID = /^[\w.-]{1,100}$/;
const OFFSET = /^([\w.-]{1,100}):([0-9a-f]{16})?:(\d{1,16}):(\d{1,16})$/;
/** Of a page of the history. */
const PAGE = 1000;
const WAIT_MS = 1000;
/** @type {RunPosition} */
const START = Object.freeze({ epoch: '', offset: 0, next: 0 });

/**
 * @typedef {object} DurabilityOptions
 * @property {PublishingServer} server of `createServer`, with a key that may publish and read history
 * @property {RunClient} fanfare a client that may join the runs, which all requests share
 * @property {string} [prefix] of the rooms; `run`
 * @property {boolean} [resume] may this producer continue a run that has chunks?
 * @property {number} [waitMs] for which a reader waits for a run that has not begun; 1000
 */

/** Implements `StreamDurability` of @tanstack/ai. */
export class FanfareDurability {
  #options;
  /** @type {string|null} */
  #offset;
  /** @type {Promise<RunWriter>|undefined} */
  #run;
  #room;

  /**
   * @param {Request|{runId: string, offset?: string|null}} source the request of the client, or what
   *   it says
   * @param {DurabilityOptions} options
   * @throws {TypeError} if the request names no run as its client does
   */
  constructor(source, options) {
    const { runId, offset = null } = source instanceof Request ? wantedBy(source) : source;
    this.#offset = offset;
    this.#options = options;
    /** Ask whether the user may read this run, or write it. */
    this.runId = (offset && OFFSET.exec(offset)?.[1]) || runId;
    if (!RUN_ID.test(this.runId)) throw new TypeError('runId: 1 to 100 of A-Z a-z 0-9 _ . -');
    const isKnown = offset === null || /^(-1|now)$/.test(offset) || OFFSET.test(offset);
    if (!isKnown) throw new TypeError(`offset: none of a run: ${offset}`);
    this.#room = `${options.prefix ?? 'run'}.${this.runId}`;
  }

  /** @returns {string|null} null: the request is of a producer */
  resumeFrom() {
    return this.#offset;
  }

  /**
   * Stores chunks, together.
   * @param {any[]} chunks @returns {Promise<string[]>} an offset of each
   * @throws {RunError} CONFLICT: another producer writes the run
   */
  async append(chunks) {
    const run = await this.#open();
    const before = { ...START, ...run.position };
    const first = run.written;
    for (const chunk of chunks) await run.write(chunk);
    await run.flush();
    return chunks.map((_, i) => this.#offsetOf({ ...before, next: first + i + 1 }));
  }

  /** Ends the run: a reader reads until then. @returns {Promise<void>} */
  async close() {
    await (await this.#open()).end();
  }

  /**
   * @param {string} offset the chunks after it; `-1`: all, `now`: those to come
   * @param {AbortSignal} [signal]
   * @returns {AsyncGenerator<{offset: string, chunk: any}, void>} throws a RunError
   */
  async *read(offset, signal) {
    const { server, fanfare, waitMs = WAIT_MS } = this.#options;
    const page = await server.history(this.#room, { limit: 1 });
    const since = offset === 'now' ? endOf(page) : sinceOf(offset);
    const reading = new AbortController();
    const abort = () => reading.abort(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener('abort', abort);
    const silent = new RunError('SILENT', `${this.#room} has not begun`);
    const timer = page.offset === 0 && setTimeout(() => reading.abort(silent), waitMs);
    const run = read(fanfare, this.#room, { since, signal: reading.signal });
    let { next } = since;
    try {
      for await (const chunk of run) {
        if (timer) clearTimeout(timer);
        next++;
        yield { offset: this.#offsetOf({ ...since, ...run.position, next }), chunk };
      }
    } catch (error) {
      if (!signal?.aborted) throw error;
    } finally {
      if (timer) clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    }
  }

  /** @returns {Promise<{offset: string, chunk: any}[]>} what the run has now */
  async snapshot() {
    const { server } = this.#options;
    /** @type {{offset: string, chunk: any}[]} */
    const entries = [];
    const { epoch, offset } = await server.history(this.#room, { limit: 1 });
    for (let last = 0; last < offset; ) {
      const page = await server.history(this.#room, {
        since: { epoch, offset: last },
        limit: PAGE,
      });
      const messages = /** @type {{payload: any, offset: number}[]} */ (page.messages);
      if (page.epoch !== epoch || messages[0]?.offset !== last + 1)
        throw new RunError('INCOMPLETE', `${this.#room}: its first chunks are gone`);
      for (const { payload, offset: own } of messages) {
        const before = { epoch, offset: last };
        for (const chunk of isPart(payload) ? payload.chunks : []) {
          const next = entries.length + 1;
          entries.push({ offset: this.#offsetOf({ ...before, next }), chunk });
        }
        last = own;
      }
    }
    return entries;
  }

  #open() {
    const { server, resume = false } = this.#options;
    this.#run ??= stream(server, this.#room, { resume });
    return this.#run;
  }

  /** @param {RunPosition} position */
  #offsetOf({ epoch, offset, next }) {
    return `${this.runId}:${epoch}:${offset}:${next}`;
  }
}

/** As the client of TanStack AI names a run. @param {Request} request */
function wantedBy({ headers, url }) {
  const query = new URL(url, 'http://localhost').searchParams;
  const runId = headers.get('x-run-id') || query.get('runId') || crypto.randomUUID();
  return { runId, offset: headers.get('last-event-id') || query.get('offset') };
}

/** @param {string} offset @returns {RunPosition} */
function sinceOf(offset) {
  const [, , epoch = '', at, next] = OFFSET.exec(offset) ?? [];
  return next === undefined ? START : { epoch, offset: Number(at), next: Number(next) };
}

/**
 * Before the newest part, which may be the end mark.
 * @param {{messages: {payload: any}[], epoch: string, offset: number}} page with that part
 * @returns {RunPosition}
 */
function endOf({ messages, epoch, offset }) {
  const last = messages[0]?.payload;
  if (!isPart(last)) return START;
  return { epoch, offset: offset - 1, next: last.at + last.chunks.length };
}
