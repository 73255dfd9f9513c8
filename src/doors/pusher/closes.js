// closes.js: how this door ends connections.
//
// Pusher clients obey the range of the code, whatever the reason says: after 4000 to 4099 they
// never return, after 4100 to 4199 they return in a second, after 4200 to 4299 at once. Fanfare's
// codes have other meanings, so each is translated. A client that may return gets 4100 or 4200 even
// after its own fault, because a stop would last as long as its page, and limits by address hold it
// back. A `pusher:error` precedes the close if its text helps.

import { CLOSES } from '../../protocol/codes.js';
import { errorText } from './frames.js';

/** @typedef {{code: number, reason: string, notice?: string}} DoorClose */

/** Its code is one of Pusher's: closeOf() does not translate it. @implements {DoorClose} */
export class PusherClose {
  /**
   * @param {number} code of the close frame, and of the error before it
   * @param {string} message of the error
   * @param {string} [reason] of the close frame: at most 123 bytes (RFC 6455 5.5)
   */
  constructor(code, message, reason = message) {
    this.code = code;
    this.reason = reason;
    this.notice = errorText(code, message);
  }
}

/** The door's own closes. */
export const PUSHER_CLOSES = Object.freeze({
  TLS_ONLY: new PusherClose(4000, 'This app accepts TLS connections only.'),
  APP_DISABLED: new PusherClose(4003, 'The app is disabled.'),
  OVER_QUOTA: new PusherClose(4004, 'The app has as many connections as allowed.'),
  INVALID_VERSION: new PusherClose(4006, 'The protocol version must be a number.'),
  UNSUPPORTED_VERSION: new PusherClose(4007, 'Only protocol versions 4 to 7 are supported.'),
  ORIGIN: new PusherClose(4009, 'This origin is not allowed.'),
  UNAUTHORIZED: new PusherClose(4009, 'Connection not authorized.'),
  AUTHORIZE_TIMEOUT: new PusherClose(4009, 'Connection not authorized within the time limit.'),
  OVER_CAPACITY: new PusherClose(4100, 'The server is over capacity.'),
  RESTART: new PusherClose(4200, 'The server restarts.'),
  // After an unclean close browsers would ping more often.
  NO_PONG: new PusherClose(4201, 'No answer to the pings of the server.'),
});

/** @param {Pick<import('../../config/pusher.js').App, 'quotaCode'>} app at its limit of connections */
export function overQuota({ quotaCode }) {
  const { OVER_QUOTA } = PUSHER_CLOSES;
  return quotaCode === OVER_QUOTA.code ? OVER_QUOTA : new PusherClose(quotaCode, OVER_QUOTA.reason);
}

/** @param {string} key as the client wrote it */
export function noApp(key) {
  return new PusherClose(
    4001,
    `App key ${key.slice(0, 64)} not in this cluster. Did you forget to specify the cluster?`,
    'Unknown app key.',
  );
}

/**
 * @param {number} code @param {{code: number, reason: string}} close
 * @param {boolean} [isExplained] does a `pusher:error` precede?
 * @returns {[number, Readonly<DoorClose>]}
 */
function row(code, { code: own, reason }, isExplained = false) {
  const notice = isExplained ? { notice: errorText(code, reason) } : {};
  return [own, Object.freeze({ code, reason, ...notice })];
}

const AT_ONCE = 4200;
const LATER = 4100;
const NEVER = 4009;

/** The rows of codes.js, by code. @type {ReadonlyMap<number, Readonly<DoorClose>>} */
const TRANSLATED = new Map([
  row(AT_ONCE, CLOSES.DRAIN),
  row(AT_ONCE, CLOSES.REBALANCE),
  row(AT_ONCE, CLOSES.AGE),
  row(LATER, CLOSES.SLOW_CONSUMER),
  row(LATER, CLOSES.OVERLOAD),
  row(LATER, CLOSES.UNSUPPORTED_DATA),
  row(LATER, CLOSES.POLICY),
  row(LATER, CLOSES.BAD_REQUESTS),
  row(LATER, CLOSES.RATE_LIMITED),
  row(LATER, CLOSES.ROOM_LIMIT),
  row(LATER, CLOSES.ADDRESS_LIMIT, true),
  row(LATER, CLOSES.USER_LIMIT, true),
  row(LATER, CLOSES.APP_LIMIT, true),
  row(1011, CLOSES.INTERNAL),
  row(NEVER, CLOSES.INVALID_TOKEN, true),
  row(NEVER, CLOSES.TOKEN_EXPIRED, true),
  row(NEVER, CLOSES.AUTH_TIMEOUT, true),
  row(NEVER, CLOSES.KICKED, true),
  row(NEVER, CLOSES.DENIED), // the hook's text precedes
]);

/** @param {{code: number, reason: string}} close a row of codes.js or of this file */
export function closeOf(close) {
  if (close instanceof PusherClose) return close;
  const { code, reason } = close;
  // A code that the application chose to disconnect the client for good.
  return TRANSLATED.get(code) ?? { code: NEVER, reason, notice: errorText(NEVER, reason) };
}
