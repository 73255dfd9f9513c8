// error.js: the error of a refused command, with its code.

import { sentenceOf } from './advice.js';

/** @typedef {import('./wire.js').Position} Position */

/**
 * @typedef {'OFFLINE'|'QUEUE_FULL'|'OUTCOME_UNKNOWN'|'CLOSED'|'TOKEN_UNAVAILABLE'|
 *   'STATE_UNAVAILABLE'|'BUFFER_FULL'|'REFUSED'} ClientCode
 */

/**
 * A code of the protocol, or one of the client:
 *
 * - `OFFLINE`: there is no connection, and the message was not sent.
 * - `QUEUE_FULL`: `maxPending` messages already wait, and this one was not sent.
 * - `OUTCOME_UNKNOWN`: also if the connection broke before the reply.
 * - `CLOSED`: the client was closed or refused for good, or this handle has left.
 * - `TOKEN_UNAVAILABLE`: the token callback failed (`cause` is its error) or timed out.
 * - `STATE_UNAVAILABLE`: the `recoverFailed` callback failed; `cause` is its error.
 * - `BUFFER_FULL`: an async iterator was read too slowly, and messages were dropped.
 * - `REFUSED`: the server refused the connection; `closeCode` and the message say why.
 * @typedef {import('../protocol/codes.js').ErrorCode|ClientCode} Code
 */

export class FanfareError extends Error {
  /** @override */
  name = 'FanfareError';

  /**
   * @param {Code} code @param {object} [about] may be a reply of type `error`
   * @param {string} [about.message] @param {string} [about.room] @param {unknown} [about.cause]
   * @param {number} [about.retryAfter] the server's advice, in seconds
   * @param {number} [about.closeCode]
   * @param {Position} [about.position] the room's, with CONFLICT
   */
  constructor(code, about = {}) {
    // Replies of the server have messages. The guide has an anchor for each code of the client.
    if (!(/** @type {any} */ (globalThis).FANFARE_BRIEF) && !about.message)
      about = { ...about, message: sentenceOf(code, about.cause) };
    super(about.message || `see docs/client.md#${code}`, about);
    this.code = code;
    // The command was certainly not accepted, so it is safe to send again.
    this.retryable = /^(UNAVAIL|RATE|CONN|TOKEN_N|OFFLINE|QUEUE)/.test(code);
    this.retryAfterMs = about.retryAfter && about.retryAfter * 1000;
    this.closeCode = about.closeCode;
    this.room = about.room;
    this.position = about.position;
  }
}
