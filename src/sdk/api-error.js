// api-error.js: why a call did not succeed: the error of the HTTP API, or of this library.

/**
 * - `OUTCOME_UNKNOWN`: also if no answer came in time, the connection broke, or a proxy answered
 *   5xx.
 * - `UNAVAILABLE`: also if a read got no answer.
 * - `UNEXPECTED_ANSWER`: the answer is not one of Fanfare; `status` and the message say which.
 * - `INVALID_SIGNATURE`: `verifyWebhook` refuses the request.
 * - `INVALID_FIELD`: also if `sign` refuses a claim, which `field` names.
 * @typedef {import('../protocol/codes.js').ApiErrorCode|HttpCode|
 *   'UNEXPECTED_ANSWER'|'INVALID_SIGNATURE'} Code
 */

/** Faults of HTTP itself. @typedef {'bad_request'|'request_timeout'|'handshakes_per_ip'} HttpCode */

/** A place in a room with history. @typedef {{epoch: string, offset: number}} Position */

/** What became of one of several messages. @typedef {{room: string, epoch?: string, offset?: number, error?: FanfareApiError}} Result */

/** Statuses of requests that were not carried out, and may be if you repeat them. */
const NOT_DONE = [408, 429, 503];
/** A proxy may answer with the same statuses. */
const NOT_KNOWN = /^(OUTCOME_UNKNOWN|UNEXPECTED_ANSWER)$/;

export class FanfareApiError extends Error {
  /** @override */
  name = 'FanfareApiError';
  /**
   * @param {Code} code
   * @param {object} [about]
   * @param {string} [about.message] for people: it may change
   * @param {number} [about.status] of the answer; undefined: there was none
   * @param {string} [about.field] the faulty field, parameter, header or claim
   * @param {number} [about.retryAfterMs] advice of the server
   * @param {Position} [about.position] with `CONFLICT`: where the room is
   * @param {readonly Result[]} [about.results] what became of each message, in their order, if some
   *   of several were not accepted
   * @param {unknown} [about.cause]
   */
  constructor(code, about = {}) {
    const { message = code, status, field, retryAfterMs, position, results, cause } = about;
    super(message, { cause });
    this.code = code;
    this.status = status;
    this.field = field;
    this.retryAfterMs = retryAfterMs;
    this.position = position;
    this.results = results;
    /** Was the request certainly not carried out, and may be if you repeat it? */
    this.retryable =
      code === 'UNAVAILABLE' || (NOT_DONE.includes(Number(status)) && !NOT_KNOWN.test(code));
  }
}
