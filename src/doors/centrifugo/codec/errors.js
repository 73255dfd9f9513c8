// errors.js: the errors of Centrifugo's protocols, as replies to clients and answers of the server
// API.

/** @type {Readonly<Record<number, {message: string, isTemporary?: true}>>} */
export const ERRORS = Object.freeze({
  100: { message: 'internal server error', isTemporary: true },
  101: { message: 'unauthorized' },
  102: { message: 'unknown channel' },
  103: { message: 'permission denied' },
  104: { message: 'method not found' },
  105: { message: 'already subscribed' },
  106: { message: 'limit exceeded' },
  107: { message: 'bad request' },
  108: { message: 'not available' },
  109: { message: 'token expired' },
  110: { message: 'expired' },
  111: { message: 'too many requests', isTemporary: true },
  112: { message: 'unrecoverable position' },
  113: { message: 'conflict' },
});

/** @import { ErrorCode } from '../../../protocol/codes.js' */

/** A handler throws it to refuse a command or a request. */
export class DoorError extends Error {
  /**
   * @param {number} code @param {string} [detail] after the usual message
   * @param {ErrorCode} [counted] as which it is counted, if the code stands for several errors
   */
  constructor(code, detail, counted) {
    const usual = ERRORS[code]?.message ?? 'error';
    super(detail === undefined ? usual : `${usual}: ${detail}`);
    this.name = 'DoorError';
    this.code = code;
    this.counted = counted;
  }
}
