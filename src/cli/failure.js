// failure.js: why a command has failed, and its exit code.

/** As in sysexits.h, for scripts: 69 may be repeated, 77 needs another key or token. */
export const EXIT = Object.freeze({
  failed: 1,
  usage: 64,
  data: 65,
  unavailable: 69,
  permission: 77,
});

/** Errors of the HTTP API and of the protocol with an exit code of their own. */
const CODES = /** @type {Readonly<Record<string, number>>} */ ({
  UNAUTHORIZED: EXIT.permission,
  PERMISSION_DENIED: EXIT.permission,
  INVALID_TOKEN: EXIT.permission,
  TOKEN_EXPIRED: EXIT.permission,
  REFUSED: EXIT.permission,
  UNAVAILABLE: EXIT.unavailable,
  RATE_LIMIT_EXCEEDED: EXIT.unavailable,
  OFFLINE: EXIT.unavailable,
  INVALID_JSON: EXIT.data,
  INVALID_FIELD: EXIT.data,
  INVALID_REQUEST: EXIT.data,
  INVALID_ROOM: EXIT.data,
  PAYLOAD_TOO_LARGE: EXIT.data,
  BODY_TOO_LARGE: EXIT.data,
  MESSAGE_TOO_LARGE: EXIT.data,
});

export class Failure extends Error {
  /**
   * @param {number} exitCode @param {string} message
   * @param {string} [code] of the HTTP API or the protocol, if the server has refused
   */
  constructor(exitCode, message, code = '') {
    super(message);
    this.exitCode = exitCode;
    this.code = code;
  }

  /** @param {string} code @param {string} message */
  static ofCode(code, message) {
    return new Failure(CODES[code] ?? EXIT.failed, message, code);
  }

  /** @param {unknown} error @returns {Failure} */
  static of(error) {
    if (error instanceof Failure) return error;
    const { name, code, message } = /** @type {Error & {code?: string}} */ (error);
    // Errors of the client library have sentences; any other is a fault of the command.
    if (name === 'FanfareError') return Failure.ofCode(code ?? '', message);
    throw error;
  }
}
