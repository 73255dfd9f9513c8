// error.js: the error of a stream. It has only the fields that a client without commands needs.

export class FanfareError extends Error {
  /**
   * @param {string} code as in ../error.js
   * @param {{message?: string, cause?: unknown}} about
   */
  constructor(code, { message = code, cause }) {
    super(message, { cause });
    this.code = code;
  }
}
