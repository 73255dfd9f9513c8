// poster.js: one POST to a backend of the operator, for webhooks and for hooks.
//
// Bounds: the deadline of the caller, 16 KiB of headers, and the body of the answer. What has no
// bound of its own (interim answers, the framing of chunks, trailers, bytes on an idle connection)
// counts towards the bytes of a connection after a request. Redirects and proxies are not followed.

import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { RefusedAddress } from './addresses.js';

const KEEP_ALIVE_MS = 5000;
const MAX_HEADER_BYTES = 16_384;
/** Answers with 1xx before the answer itself. Receivers and proxies send one or two. */
const MAX_INTERIM = 8;
/** Errors of a request on a connection that the backend has closed. */
const STALE = new Set(['ECONNRESET', 'EPIPE']);

/** @import { IncomingMessage } from 'node:http' */

/**
 * @typedef {object} Post
 * @property {string} body JSON @property {Readonly<Record<string, string>>} headers in lower case
 * @property {AbortSignal} signal aborts at the deadline, which also bounds the body of the answer
 */

/**
 * Why there is no answer. `refused`: the address is not allowed. `malformed`: it is not HTTP, or
 * over a bound. `late`: the signal has aborted. `unreachable`: no connection, or a broken one.
 * @typedef {'refused'|'malformed'|'late'|'unreachable'} FailureKind
 */

export class PostFailure extends Error {
  /** @param {FailureKind} kind @param {string} message without secrets @param {boolean} wasSent */
  constructor(kind, message, wasSent) {
    super(message);
    this.kind = kind;
    this.wasSent = wasSent;
  }
}

class Unbounded extends Error {}

export class Poster {
  /** Bytes that a connection may still send. @type {WeakMap<import('node:net').Socket, number>} */
  #allowances = new WeakMap();

  /**
   * @param {object} parts @param {import('./addresses.js').AddressGuard} parts.guard
   * @param {string} parts.userAgent @param {number} parts.maxAnswerBytes of a body
   * @param {number} [parts.maxSockets] for each host
   */
  constructor({ guard, userAgent, maxAnswerBytes, maxSockets }) {
    this.guard = guard;
    this.userAgent = userAgent;
    /** Bytes of a connection since its last request began, whatever they are. */
    this.maxBytes = 2 * MAX_HEADER_BYTES + maxAnswerBytes;
    // The global agents may use a proxy (NODE_USE_ENV_PROXY).
    const options = { keepAlive: true, maxSockets, timeout: KEEP_ALIVE_MS };
    this.agents = { 'http:': new HttpAgent(options), 'https:': new HttpsAgent(options) };
  }

  close() {
    for (const agent of Object.values(this.agents)) agent.destroy();
  }

  /**
   * @param {string} url @param {Post} post
   * @returns {Promise<IncomingMessage>} as soon as the head of the answer arrives. The caller reads
   *   the body to its end, or destroys it; rejects with a PostFailure
   */
  async post(url, post) {
    const target = new URL(url);
    if (!this.guard.allowsHost(target.hostname))
      throw new PostFailure('refused', `the address ${target.hostname} is not allowed`, false);
    const first = await this.#attempt(target, post);
    // The backend closed an idle connection before it read the request.
    return first === 'stale'
      ? /** @type {Promise<IncomingMessage>} */ (this.#attempt(target, post, true))
      : first;
  }

  /**
   * @param {URL} target @param {Post} post @param {boolean} [isFresh] with a new connection
   * @returns {Promise<IncomingMessage|'stale'>}
   */
  #attempt(target, { body, headers, signal }, isFresh = false) {
    const isTls = target.protocol === 'https:';
    return new Promise((resolve, reject) => {
      const request = (isTls ? httpsRequest : httpRequest)(target, {
        method: 'POST',
        agent: isFresh ? false : this.agents[isTls ? 'https:' : 'http:'],
        lookup: this.guard.lookup,
        maxHeaderSize: MAX_HEADER_BYTES,
        signal,
        headers: {
          ...headers,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
          'user-agent': this.userAgent,
        },
      });
      request.on('socket', (socket) => this.#bound(socket));
      let interim = 0;
      request.on('information', () => {
        if (++interim > MAX_INTERIM)
          request.destroy(new Unbounded(`more than ${MAX_INTERIM} interim answers (1xx)`));
      });
      request.on('response', resolve);
      // After 101 there is neither a response nor an error.
      request.on('upgrade', ({ statusCode }, socket) => {
        reject(new PostFailure('malformed', `status ${statusCode}`, true));
        socket.destroy();
      });
      request.on('error', (error) => {
        const { code } = /** @type {NodeJS.ErrnoException} */ (error);
        const isStale = !isFresh && request.reusedSocket && STALE.has(code ?? '');
        if (isStale && !signal.aborted) resolve('stale');
        else reject(failureOf(error, signal.aborted, request.writableFinished));
      });
      request.end(body);
    });
  }

  /** Closes the connection if it sends more than an answer. @param {import('node:net').Socket} socket */
  #bound(socket) {
    const isNew = !this.#allowances.has(socket);
    this.#allowances.set(socket, this.maxBytes);
    if (!isNew) return;
    socket.on('data', (/** @type {Buffer} */ bytes) => {
      const left = Number(this.#allowances.get(socket)) - bytes.length;
      this.#allowances.set(socket, left);
      if (left < 0) socket.destroy(new Unbounded(`an answer of more than ${this.maxBytes} bytes`));
    });
  }
}

/** @param {Error} error @param {boolean} isLate @param {boolean} wasSent */
function failureOf(error, isLate, wasSent) {
  const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
  if (error instanceof RefusedAddress) return new PostFailure('refused', message, wasSent);
  if (error instanceof Unbounded) return new PostFailure('malformed', message, wasSent);
  if (isLate) return new PostFailure('late', wasSent ? 'no answer' : 'no connection', wasSent);
  if (code?.startsWith('HPE_'))
    return new PostFailure('malformed', `not an HTTP answer (${code})`, wasSent);
  return new PostFailure('unreachable', code ?? message, wasSent);
}
