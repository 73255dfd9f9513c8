// error.js: the error of a stream. It has only the fields that a client without commands needs.

export class FanfareError extends Error {
  /** @param {import('../error.js').Code} code @param {{message: string, cause?: unknown}} about */
  constructor(code, { message, cause }) {
    super(message, { cause });
    this.code = code;
  }
}
