// request.js: one request to an endpoint.
//
// One deadline for everything, and 64 KiB of the answer's body, which is discarded. A 2xx counts as
// soon as its head arrives. No body is logged. poster.js has the other bounds.

import { Poster, PostFailure } from '../outgoing/poster.js';
import { signedHeaders } from '../protocol/webhook-signature.js';

const MAX_SOCKETS = 64;
const MAX_ANSWER_BYTES = 65_536;
/** Time for the body of an answer. Then its socket is closed. */
const ANSWER_TIMEOUT_MS = 1000;

const MAX_RETRY_AFTER_MS = 3_600_000;
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

/** The outcomes of requests without an answer. If one was `late`, it depends on what was sent. */
const OUTCOMES = Object.freeze({
  refused: 'refused',
  malformed: 'failed',
  late: 'unavailable',
  unreachable: 'unavailable',
});

export class Requester {
  /** @param {import('../outgoing/addresses.js').AddressGuard} guard */
  constructor(guard) {
    this.poster = new Poster({
      guard,
      userAgent: 'fanfare-webhooks',
      maxAnswerBytes: MAX_ANSWER_BYTES,
      maxSockets: MAX_SOCKETS,
    });
  }

  close() {
    this.poster.close();
  }

  /**
   * @param {import('../config/webhooks.js').Endpoint} endpoint
   * @param {import('./message.js').Message} message @returns {Promise<Result>} never rejects
   */
  async post({ url, secrets, timeoutMs }, { id, body, headers }) {
    const signed = signedHeaders(secrets, id, body, Math.floor(Date.now() / 1000));
    const signal = AbortSignal.timeout(timeoutMs);
    try {
      const response = await this.poster.post(url, {
        body,
        headers: { ...headers, ...signed },
        signal,
      });
      discard(response);
      return judge(response.statusCode ?? 0, response.headers['retry-after']);
    } catch (error) {
      if (!(error instanceof PostFailure)) throw error;
      const { kind, message, wasSent } = error;
      if (kind !== 'late') return ended(OUTCOMES[kind], message, kind === 'unreachable' && wasSent);
      return wasSent
        ? ended('failed', `${message} within ${timeoutMs} ms`)
        : ended('unavailable', `${message} in ${timeoutMs} ms`);
    }
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
