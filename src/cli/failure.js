// failure.js: why a command has failed, and its exit code.

import { EXIT } from '../config/exit-codes.js';

export { EXIT };

/** Errors of the HTTP API and of the protocol with an exit code of their own. */
const CODES = new Map([
  ['UNAUTHORIZED', EXIT.permission],
  ['PERMISSION_DENIED', EXIT.permission],
  ['INVALID_TOKEN', EXIT.permission],
  ['TOKEN_EXPIRED', EXIT.permission],
  ['REFUSED', EXIT.permission],
  ['UNAVAILABLE', EXIT.unavailable],
  ['RATE_LIMIT_EXCEEDED', EXIT.unavailable],
  ['TOKEN_NOT_YET_VALID', EXIT.unavailable],
  ['OFFLINE', EXIT.unavailable],
  ['INVALID_JSON', EXIT.data],
  ['INVALID_FIELD', EXIT.data],
  ['INVALID_REQUEST', EXIT.data],
  ['INVALID_ROOM', EXIT.data],
  ['PAYLOAD_TOO_LARGE', EXIT.data],
  ['BODY_TOO_LARGE', EXIT.data],
  ['MESSAGE_TOO_LARGE', EXIT.data],
]);

export class Failure extends Error {
  /**
   * @param {number} exitCode @param {string} message
   * @param {string} [code] of the HTTP API or the protocol, if the server has refused
   * @param {number} [retryAfterMs]
   */
  constructor(exitCode, message, code = '', retryAfterMs = undefined) {
    super(message);
    this.exitCode = exitCode;
    this.code = code;
    /** The server's advice for a repetition. */
    this.retryAfterMs = retryAfterMs;
  }

  /** @param {string} code @param {string} message @param {number} [retryAfterMs] */
  static ofCode(code, message, retryAfterMs) {
    return new Failure(CODES.get(code) ?? EXIT.failed, message, code, retryAfterMs);
  }

  /** @param {unknown} error @returns {Failure} */
  static of(error) {
    if (error instanceof Failure) return error;
    const { name, code, message, retryAfterMs } =
      /** @type {Error & {code?: unknown, retryAfterMs?: number}} */ (error);
    // Errors of the client library have sentences; any other is a fault of the command.
    if (name !== 'FanfareError') throw error;
    return Failure.ofCode(String(code), message, retryAfterMs);
  }
}
