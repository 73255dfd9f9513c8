// request.js: one request to an endpoint.
//
// Bounds: one deadline for all, 16 KiB of headers, 64 KiB of the answer, which is thrown away. A
// 2xx counts when its head is there. There are no redirects and proxies, and no body is logged.

import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { RefusedAddress } from './addresses.js';
import { signedHeaders } from './message.js';

const MAX_SOCKETS = 64;
const KEEP_ALIVE_MS = 5000;
const MAX_HEADER_BYTES = 16_384;
const MAX_ANSWER_BYTES = 65_536;
/** An answer whose status is known may take this long to end. Then its socket is closed. */
const ANSWER_TIMEOUT_MS = 1000;

const MAX_RETRY_AFTER_MS = 3_600_000;
/** How a request ends on a connection that the endpoint has closed. */
const STALE = new Set(['ECONNRESET', 'EPIPE']);
/** The endpoint as a whole cannot take requests now. */
const THROTTLES = new Set([429, 502, 503, 504]);
/** The same, says a proxy that has got no answer from the receiver. */
const UNANSWERED = new Set([502, 504]);

/**
 * How a request ended. `failed`: this event is refused, or its answer is late. `unavailable`: the
 * endpoint is unreachable or asks for a pause. `refused`: its address is not allowed.
 * @typedef {'delivered'|'failed'|'unavailable'|'refused'|'gone'} Outcome
 */

/**
 * @typedef {object} Result
 * @property {Outcome} outcome
 * @property {string} error '' if it was delivered; without secrets and without the answer's body
 * @property {number|null} retryAfterMs if the answer asks for it, at most an hour
 * @property {boolean} [isSuspect] `unavailable` may be the event's own fault: the receiver had the
 *   request and did not answer it, as one does that crashes
 */

export class Requester {
  /** @param {import('./addresses.js').AddressGuard} guard */
  constructor(guard) {
    this.guard = guard;
    // Agents of their own: the global ones may use a proxy (NODE_USE_ENV_PROXY).
    const options = { keepAlive: true, maxSockets: MAX_SOCKETS, timeout: KEEP_ALIVE_MS };
    this.agents = { 'http:': new HttpAgent(options), 'https:': new HttpsAgent(options) };
  }

  close() {
    for (const agent of Object.values(this.agents)) agent.destroy();
  }

  /**
   * @param {import('../config/webhooks.js').Endpoint} endpoint
   * @param {import('./message.js').Message} message @returns {Promise<Result>} it never rejects
   */
  async post(endpoint, message) {
    const signal = AbortSignal.timeout(endpoint.timeoutMs);
    const first = await this.#attempt(endpoint, message, signal);
    // The endpoint closed an idle connection as the request was written to it: nothing was read.
    return first === 'stale'
      ? /** @type {Promise<Result>} */ (this.#attempt(endpoint, message, signal, true))
      : first;
  }

  /**
   * @param {import('../config/webhooks.js').Endpoint} endpoint
   * @param {import('./message.js').Message} message @param {AbortSignal} signal
   * @param {boolean} [isFresh] with a connection of its own @returns {Promise<Result|'stale'>}
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
      request.on('response', (response) => {
        resolve(judge(response.statusCode ?? 0, response.headers['retry-after']));
        discard(response);
      });
      // 101 ends the connection without an error.
      request.on('upgrade', ({ statusCode = 0 }, socket) => {
        resolve(judge(statusCode, undefined));
        socket.destroy();
      });
      request.on('error', (error) => {
        const { code } = /** @type {NodeJS.ErrnoException} */ (error);
        if (error instanceof RefusedAddress) resolve(ended('refused', error.message));
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

/** RFC 9110 10.2.3: seconds or a date. @param {string} text @returns {number|null} null: neither */
function readRetryAfter(text) {
  const ms = /^\d{1,15}$/.test(text.trim()) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isNaN(ms) ? null : Math.min(Math.max(ms, 0), MAX_RETRY_AFTER_MS);
}

/**
 * Reads an answer to its end, so that its connection can serve the next request.
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
