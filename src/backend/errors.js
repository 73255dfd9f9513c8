// errors.js: the failure of a broker or of presence, classed by the caller's next step.

export class BrokerError extends Error {
  /**
   * @param {'UNAVAILABLE'|'OUTCOME_UNKNOWN'} code a row of codes.js. UNAVAILABLE: the request had
   *   no effect and never will, so the caller may repeat it. OUTCOME_UNKNOWN: the request may have
   *   had its effect, or may have it later
   * @param {string} message
   * @param {{cause?: unknown}} [options]
   */
  constructor(code, message, options) {
    super(message, options);
    this.name = 'BrokerError';
    this.code = code;
  }
}
