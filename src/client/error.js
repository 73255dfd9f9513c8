// error.js: the error of a refused command, with its code.

/** The command was certainly not accepted, so the application may send it again. */
const RETRYABLE = ['UNAVAILABLE', 'RATE_LIMIT_EXCEEDED', 'OFFLINE', 'QUEUE_FULL'];

/** The messages of errors that the client itself finds. Replies of the server have their own. */
const MESSAGES = {
  OFFLINE: "not connected: await connect(), or set offline: 'queue'",
  QUEUE_FULL: 'too many publishes wait',
  OUTCOME_UNKNOWN: 'the connection broke before the reply',
  CLOSED: 'the client is closed: call connect()',
  TOKEN_UNAVAILABLE: 'the token function failed',
  STATE_UNAVAILABLE: 'recoverFailed failed',
  BUFFER_FULL: 'the iterator was read too slowly',
};

/**
 * A code of the protocol, or one of the client:
 *
 * - `OFFLINE`: there is no connection, and the message was not sent.
 * - `QUEUE_FULL`: `maxPending` messages wait for their replies, and this one was not sent.
 * - `OUTCOME_UNKNOWN`: also if the connection broke before the reply came.
 * - `CLOSED`: the client was closed, or the server will not have it back.
 * - `TOKEN_UNAVAILABLE`: the token callback failed; `cause` is its error.
 * - `STATE_UNAVAILABLE`: the `recoverFailed` callback failed; `cause` is its error.
 * - `BUFFER_FULL`: an async iterator was not read, and messages were dropped.
 * - `REFUSED`: the server refused the connection; `closeCode` and the message have the reason.
 * @typedef {import('../protocol/codes.js').ErrorCode|keyof typeof MESSAGES|'REFUSED'} Code
 */

export class FanfareError extends Error {
  /**
   * @param {Code} code
   * @param {object} [about]
   * @param {string} [about.message] @param {string} [about.room] @param {unknown} [about.cause]
   * @param {number} [about.retryAfterMs] the server's advice
   * @param {number} [about.closeCode]
   */
  constructor(code, { message, room, cause, retryAfterMs, closeCode } = {}) {
    message ||= /** @type {Partial<Record<Code, string>>} */ (MESSAGES)[code];
    super(room ? `${message} (room ${room})` : message, { cause });
    this.name = 'FanfareError';
    this.code = code;
    /** Was the command certainly not accepted, so that a retry may succeed? */
    this.retryable = RETRYABLE.includes(code);
    this.room = room;
    this.retryAfterMs = retryAfterMs;
    this.closeCode = closeCode;
  }
}

/** @param {import('./wire.js').Message} reply of type `error` @param {string} [room] */
export function errorOf({ error, message, retryAfter }, room) {
  return new FanfareError(error, { message, room, retryAfterMs: retryAfter && retryAfter * 1000 });
}
