// chat-transport.js: a transport of `useChat` (package `ai` 7: React, Vue, Svelte, Angular).
//
//   sendMessages        POST api              {"run": "run.42"}         the chunks of run.42
//   reconnectToStream   GET  api/chat/stream  {"run": "run.42"} or 204  the same, from the first one
//
// The answer travels over Fanfare and not in the response. So a reload, a second tab and a viewer
// read the same chunks, a lost connection is the client's matter, and `stop` reaches the model,
// whichever process runs it.

import { read } from './reader.js';

/** @import { RunClient } from './reader.js' */
/** @typedef {Record<string, string>|Headers|undefined} HeadersOf */

/**
 * @typedef {object} ChatTransportOptions
 * @property {RunClient} fanfare the client of the page
 * @property {string} [api] path or URL of the backend; `/api/chat`
 * @property {Record<string, string>|(() => Record<string, string>|Promise<Record<string, string>>)} [headers]
 *   of each request
 * @property {object|(() => object|Promise<object>)} [body] more fields of each POST
 * @property {'omit'|'same-origin'|'include'} [credentials]
 * @property {typeof fetch} [fetch]
 */

/**
 * What `useChat` asks for.
 * @typedef {object} ChatRequest
 * @property {string} chatId @property {AbortSignal} [abortSignal]
 * @property {HeadersOf} [headers] @property {object} [body]
 */

/** @typedef {ChatRequest & {messages: unknown[], trigger: string, messageId?: string|undefined}} SendRequest */

export class FanfareChatTransport {
  /** `useChat` begins the answer again when it resumes. */
  resumeStreamIsReplay = true;
  #options;
  /** The latest request of each chat to resume. @type {Map<string, object>} */
  #resumes = new Map();

  /** @param {ChatTransportOptions} options */
  constructor(options) {
    this.#options = options;
  }

  /** @param {SendRequest} request @returns {Promise<ReadableStream<any>>} */
  async sendMessages({ chatId, messages, trigger, messageId, abortSignal, headers, body }) {
    const { api = '/api/chat', body: more } = this.#options;
    const fields = { ...(await resolved(more)), ...body, id: chatId, messages, trigger, messageId };
    abortSignal?.throwIfAborted();
    const posting = this.#fetch(api, { headers }, JSON.stringify(fields));
    const answer = await this.#untilStopped(posting, abortSignal);
    return this.#readRun(answer.run, abortSignal, () => true);
  }

  /**
   * The backend may have begun the run before it answers. So a stop does not abort the request: it
   * stops the run that the answer names.
   * @param {Promise<{run: string}>} posting @param {AbortSignal|undefined} signal
   * @returns {Promise<{run: string}>} rejects with the reason of the signal
   */
  async #untilStopped(posting, signal) {
    /** @type {() => void} */
    let abort = () => {};
    const stopped = new Promise((_, reject) => {
      abort = () => {
        reject(signal?.reason);
        posting.then(({ run }) => read(this.#options.fanfare, run).stop()).catch(() => {});
      };
    });
    signal?.addEventListener('abort', abort);
    try {
      return await Promise.race([posting, stopped]);
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  /** @param {ChatRequest} request @returns {Promise<ReadableStream<any>|null>} null: no answer is under way */
  async reconnectToStream(request) {
    const { chatId, abortSignal, headers } = request;
    const { api = '/api/chat' } = this.#options;
    // A chat that resumes again aborts the former request. Only `stop` aborts the latest one.
    this.#resumes.set(chatId, request);
    const isLatest = () => this.#resumes.get(chatId) === request;
    const path = `${api}/${encodeURIComponent(chatId)}/stream`;
    const answer = await this.#fetch(path, { headers, signal: abortSignal });
    return answer && this.#readRun(answer.run, abortSignal, isLatest);
  }

  /** @param {string} url @param {{headers: HeadersOf, signal?: AbortSignal}} request @param {string} [body] */
  async #fetch(url, { headers, signal }, body) {
    const { headers: own, credentials, fetch = globalThis.fetch } = this.#options;
    const all = new Headers({ ...(await resolved(own)) });
    for (const [name, value] of new Headers(headers)) all.set(name, value);
    if (body !== undefined) all.set('Content-Type', 'application/json');
    const method = body === undefined ? 'GET' : 'POST';
    const response = await fetch(url, { method, headers: all, body, credentials, signal });
    if (response.status === 204) return null;
    const text = await response.text();
    if (!response.ok) throw new Error(text || `${method} ${url}: ${response.status}`);
    return JSON.parse(text);
  }

  /** @param {string} room @param {AbortSignal|undefined} signal @param {() => boolean} mayStop */
  #readRun(room, signal, mayStop) {
    // A generator that waits for a chunk cannot return, but its signal ends it.
    const reading = new AbortController();
    const answer = read(this.#options.fanfare, room, { signal: reading.signal });
    const abort = () => {
      reading.abort(signal?.reason);
      // The request that aborts this one begins in the same turn.
      queueMicrotask(() => {
        if (mayStop() && answer.end === undefined) answer.stop().catch(() => {});
      });
    };
    if (signal?.aborted) abort();
    signal?.addEventListener('abort', abort);
    const chunks = answer[Symbol.asyncIterator]();
    return new ReadableStream({
      async pull(controller) {
        const { done, value } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel() {
        reading.abort();
      },
    });
  }
}

/** @template T @param {T|(() => T|Promise<T>)|undefined} value @returns {Promise<T|undefined>} */
async function resolved(value) {
  return typeof value === 'function' ? /** @type {any} */ (value)() : value;
}
