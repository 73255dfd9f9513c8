// request.js: one request to an endpoint.
//
// Bounds: one deadline for everything, 16 KiB of headers, and 64 KiB of the answer's body, which is
// discarded. What has no bound of its own (interim answers, the framing of chunks, trailers, bytes
// on an idle connection) counts towards the bytes of a connection after a request. A 2xx counts as
// soon as its head arrives. Redirects and proxies are not followed, and no body is logged.

import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { RefusedAddress } from './addresses.js';
import { signedHeaders } from './message.js';

const MAX_SOCKETS = 64;
const KEEP_ALIVE_MS = 5000;
const MAX_HEADER_BYTES = 16_384;
const MAX_ANSWER_BYTES = 65_536;
/** Answers with 1xx before the answer itself. Receivers and proxies send one or two. */
const MAX_INTERIM = 8;
/** Bytes of a connection since its last request began, whatever they are. */
const MAX_BYTES = 2 * MAX_HEADER_BYTES + MAX_ANSWER_BYTES;
/** Time for the body of an answer. Then its socket is closed. */
const ANSWER_TIMEOUT_MS = 1000;

const MAX_RETRY_AFTER_MS = 3_600_000;
/** Errors of a request on a connection that the endpoint has closed. */
const STALE = new Set(['ECONNRESET', 'EPIPE']);
/** The whole endpoint takes no requests now. */
const THROTTLES = new Set([429, 502, 503, 504]);
/** Statuses of a proxy that got no answer from the receiver. */
const UNANSWERED = new Set([502, 504]);

/**
 * How a request ended. `failed`: the endpoint refused this event or answered too late.
 * `unavailable`: it is unreachable or asks for a pause. `refused`: its address is not allowed.
 * @typedef {'delivered'|'failed'|'unavailable'|'refused'|'gone'} Outcome
 */

/**
 * @typedef {object} Result
 * @property {Outcome} outcome
 * @property {string} error '' if delivered; never has secrets or the answer's body
 * @property {number|null} retryAfterMs as the answer asks, at most an hour
 * @property {boolean} [isSuspect] the event may be why the endpoint is unavailable: the receiver got
 *   the request and did not answer, as if it had crashed
 */

class Unbounded extends Error {}

export class Requester {
  /** Bytes that a connection may still send. @type {WeakMap<import('node:net').Socket, number>} */
  #allowances = new WeakMap();

  /** @param {import('./addresses.js').AddressGuard} guard */
  constructor(guard) {
    this.guard = guard;
    // The global agents may use a proxy (NODE_USE_ENV_PROXY).
    const options = { keepAlive: true, maxSockets: MAX_SOCKETS, timeout: KEEP_ALIVE_MS };
    this.agents = { 'http:': new HttpAgent(options), 'https:': new HttpsAgent(options) };
  }

  close() {
    for (const agent of Object.values(this.agents)) agent.destroy();
  }

  /**
   * @param {import('../config/webhooks.js').Endpoint} endpoint
   * @param {import('./message.js').Message} message @returns {Promise<Result>} never rejects
   */
  async post(endpoint, message) {
    const signal = AbortSignal.timeout(endpoint.timeoutMs);
    const first = await this.#attempt(endpoint, message, signal);
    // The endpoint closed an idle connection before it read the request.
    return first === 'stale'
      ? /** @type {Promise<Result>} */ (this.#attempt(endpoint, message, signal, true))
      : first;
  }

  /**
   * @param {import('../config/webhooks.js').Endpoint} endpoint
   * @param {import('./message.js').Message} message @param {AbortSignal} signal
   * @param {boolean} [isFresh] with a new connection @returns {Promise<Result|'stale'>}
   */
  #attempt({ url, secrets, timeoutMs }, { id, body, headers }, signal, isFresh = false) {
    const target = new URL(url);
    const isTls = target.protocol === 'https:';
    if (!this.guard.allowsHost(target.hostname))
      return Promise.resolve(ended('refused', `the address ${target.hostname} is not allowed`));
    return new Promise((resolve) => {
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
          'user-agent': 'fanfare-webhooks',
          ...signedHeaders(secrets, id, body, Math.floor(Date.now() / 1000)),
        },
      });
      request.on('socket', (socket) => this.#bound(socket));
      let interim = 0;
      request.on('information', () => {
        if (++interim > MAX_INTERIM)
          request.destroy(new Unbounded(`more than ${MAX_INTERIM} interim answers (1xx)`));
      });
      request.on('response', (response) => {
        resolve(judge(response.statusCode ?? 0, response.headers['retry-after']));
        discard(response);
      });
      // After 101 there is neither a response nor an error.
      request.on('upgrade', ({ statusCode = 0 }, socket) => {
        resolve(judge(statusCode, undefined));
        socket.destroy();
      });
      request.on('error', (error) => {
        const { code } = /** @type {NodeJS.ErrnoException} */ (error);
        if (error instanceof RefusedAddress) resolve(ended('refused', error.message));
        else if (error instanceof Unbounded) resolve(ended('failed', error.message));
        else if (signal.aborted && request.writableFinished)
          resolve(ended('failed', `no answer within ${timeoutMs} ms`));
        else if (signal.aborted) resolve(ended('unavailable', `no connection in ${timeoutMs} ms`));
        else if (!isFresh && request.reusedSocket && STALE.has(code ?? '')) resolve('stale');
        else if (code?.startsWith('HPE_')) resolve(ended('failed', `not an HTTP answer (${code})`));
        else resolve(ended('unavailable', code ?? error.message, request.writableFinished));
      });
      request.end(body);
    });
  }

  /** Closes the connection if it sends more than an answer. @param {import('node:net').Socket} socket */
  #bound(socket) {
    const isNew = !this.#allowances.has(socket);
    this.#allowances.set(socket, MAX_BYTES);
    if (!isNew) return;
    socket.on('data', (/** @type {Buffer} */ bytes) => {
      const left = Number(this.#allowances.get(socket)) - bytes.length;
      this.#allowances.set(socket, left);
      if (left < 0) socket.destroy(new Unbounded(`an answer of more than ${MAX_BYTES} bytes`));
    });
  }
}

/** @param {Outcome} outcome @param {string} error @param {boolean} [isSuspect] @returns {Result} */
function ended(outcome, error, isSuspect = false) {
  return { outcome, error, retryAfterMs: null, isSuspect };
}

/** @param {number} status @param {string|undefined} retryAfter @returns {Result} */
function judge(status, retryAfter) {
  if (status >= 200 && status < 300) return ended('delivered', '');
  if (status === 410) return ended('gone', 'status 410');
  const retryAfterMs = retryAfter === undefined ? null : readRetryAfter(retryAfter);
  const isPause = THROTTLES.has(status) || retryAfterMs !== null;
  return {
    outcome: isPause ? 'unavailable' : 'failed',
    error: `status ${status}`,
    retryAfterMs,
    isSuspect: retryAfterMs === null && UNANSWERED.has(status),
  };
}

/** RFC 9110 10.2.3: seconds or a date. @param {string} text @returns {number|null} null: invalid */
function readRetryAfter(text) {
  const ms = /^\d{1,15}$/.test(text.trim()) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isNaN(ms) ? null : Math.min(Math.max(ms, 0), MAX_RETRY_AFTER_MS);
}

/**
 * Reads the answer to its end, so that the connection can be used again.
 * @param {import('node:http').IncomingMessage} response
 */
function discard(response) {
  let bytes = 0;
  const timer = setTimeout(() => response.destroy(), ANSWER_TIMEOUT_MS);
  response.on('data', (/** @type {Buffer} */ part) => {
    bytes += part.length;
    if (bytes > MAX_ANSWER_BYTES) response.destroy();
  });
  response.on('error', () => {});
  response.on('close', () => clearTimeout(timer));
}
