// codes.js: codes for ends of connections and subscriptions, and for errors.
//
// Clients return after a close unless its code is 3500 to 3999 or 4500 to 4999, which agrees with
// Fanfare's codes. Codes that Centrifugo has, too, are translated for the sake of its dashboards,
// except 3502 (stale) and 3504 (connection limit): clients would stop, although time heals both.

import { CLOSES } from '../../../protocol/codes.js';
import { errorOf } from '../../../protocol/refusal.js';
import { ERRORS } from './errors.js';

/** @import { ErrorCode } from '../../../protocol/codes.js' */
/** @import { Refusal } from '../../../protocol/refusal.js' */
/** @import { ReplyError } from './messages.js' */

/** RFC 6455 5.5: a control frame has at most 125 bytes, 2 of them for the code. */
const MAX_REASON_BYTES = 123;

/** A close of this door: closeOf() does not translate it. */
export class DoorClose {
  /** @param {number} code @param {string} reason */
  constructor(code, reason) {
    this.code = code;
    this.reason = cut(reason);
  }
}

export const DISCONNECTS = Object.freeze({
  SHUTDOWN: new DoorClose(3001, 'shutdown'),
  EXPIRED: new DoorClose(3005, 'connection expired'),
  SUBSCRIPTION_EXPIRED: new DoorClose(3006, 'subscription expired'),
  SLOW: new DoorClose(3008, 'slow'),
  INSUFFICIENT_STATE: new DoorClose(3010, 'insufficient state'),
  FORCE_RECONNECT: new DoorClose(3011, 'force reconnect'),
  NO_PONG: new DoorClose(3012, 'no pong'),
  TOO_MANY_REQUESTS: new DoorClose(3013, 'too many requests'),
  TOO_DEEP: new DoorClose(3013, 'data has too many levels'),
  INVALID_TOKEN: new DoorClose(3500, 'invalid token'),
  BAD_REQUEST: new DoorClose(3501, 'bad request'),
  FORCE: new DoorClose(3503, 'force disconnect'),
  CHANNEL_LIMIT: new DoorClose(3505, 'channel limit'),
  PERMISSION_DENIED: new DoorClose(3507, 'permission denied'),
  NOT_AVAILABLE: new DoorClose(3508, 'not available'),
});

/** @param {string} [why] if clients are told @returns {DoorClose} */
export function invalidToken(why = '') {
  const { code, reason } = DISCONNECTS.INVALID_TOKEN;
  return why === '' ? DISCONNECTS.INVALID_TOKEN : new DoorClose(code, `${reason}: ${why}`);
}

/** Why the server ends a subscription. From 2500 on, clients subscribe again. */
export const UNSUBSCRIBED = Object.freeze({
  SERVER: Object.freeze({ code: 2000, reason: 'server unsubscribe' }),
  INSUFFICIENT: Object.freeze({ code: 2500, reason: 'insufficient state' }),
  EXPIRED: Object.freeze({ code: 2501, reason: 'subscription expired' }),
});

/** Closes by row of codes.js. @type {ReadonlyMap<object, DoorClose>} */
const TRANSLATED = new Map([
  [CLOSES.DRAIN, DISCONNECTS.SHUTDOWN],
  [CLOSES.TOKEN_EXPIRED, DISCONNECTS.EXPIRED],
  [CLOSES.SLOW_CONSUMER, DISCONNECTS.SLOW],
  [CLOSES.REBALANCE, DISCONNECTS.FORCE_RECONNECT],
  [CLOSES.AGE, DISCONNECTS.FORCE_RECONNECT],
  [CLOSES.RATE_LIMITED, DISCONNECTS.TOO_MANY_REQUESTS],
  [CLOSES.INVALID_TOKEN, DISCONNECTS.INVALID_TOKEN],
  [CLOSES.BAD_REQUESTS, DISCONNECTS.BAD_REQUEST],
  [CLOSES.KICKED, DISCONNECTS.FORCE],
  [CLOSES.ROOM_LIMIT, DISCONNECTS.CHANNEL_LIMIT],
  [CLOSES.DENIED, DISCONNECTS.PERMISSION_DENIED],
]);

/**
 * @param {{code: number, reason: string}} close a row of codes.js, or the application's code and
 *   reason, where our code may have another meaning
 */
export function closeOf(close) {
  if (close instanceof DoorClose) return close;
  return TRANSLATED.get(close) ?? { code: close.code, reason: cut(close.reason) };
}

/** Where the cause is another than for native clients. @type {ReadonlyMap<object, string>} */
const OTHER_CAUSES = new Map([
  [CLOSES.BAD_REQUESTS, 'A message is malformed, or a command comes before `connect`.'],
  [
    CLOSES.CLIENT_TIMEOUT,
    'No `connect` came and was accepted within 15 s; or a message stayed unfinished for over 30 s.',
  ],
  [CLOSES.RATE_LIMITED, 'Too many messages, or too many commands in one message.'],
  [
    CLOSES.TOKEN_EXPIRED,
    'The token expired, and was not refreshed within 25 s, or by one that has expired, too.',
  ],
  [CLOSES.INVALID_TOKEN, 'The token of `connect` or `refresh` is not valid.'],
]);

/** Why the door's own closes are sent, and when the cause is over. */
const CAUSES = Object.freeze([
  {
    ...DISCONNECTS.TOO_DEEP,
    cause: '`data` of a JSON client has over 31 levels.',
    over: 'at once, for other data',
  },
  {
    ...DISCONNECTS.SUBSCRIPTION_EXPIRED,
    cause: 'The token that refreshes a subscription has expired, too.',
    over: 'with the next token',
  },
  {
    ...DISCONNECTS.INSUFFICIENT_STATE,
    cause: 'A channel that the server subscribed has lost its position.',
    over: 'at once: the client subscribes again',
  },
  {
    ...DISCONNECTS.NO_PONG,
    cause: 'The client did not answer a ping in time.',
    over: 'when the client is awake, and its network carries what it sends',
  },
  {
    ...DISCONNECTS.NOT_AVAILABLE,
    cause: 'The client sent `send`, and there is no hook `onSend`.',
    over: 'when the client or the hooks change',
  },
]);

/**
 * All ends of connections, for docs/centrifugo.md.
 * @returns {{code: number, cause: string, over: string, clients: string}[]}
 */
export function endings() {
  const translated = Object.values(CLOSES)
    .filter((close) => close !== CLOSES.AUTH_TIMEOUT)
    .map((close) => ({
      code: closeOf(close).code,
      cause: OTHER_CAUSES.get(close) ?? close.cause,
      over: close.over,
    }));
  return [...translated, ...CAUSES].map(({ code, cause, over }) => ({
    ...{ code, cause, over },
    clients: isFinal(code) ? 'stop' : 'return with back-off',
  }));
}

/** @param {number} code after which clients stop */
function isFinal(code) {
  return (code >= 3500 && code < 4000) || (code >= 4500 && code < 5000);
}

/** Centrifugo's errors by ours. Others are 100. @type {Readonly<Partial<Record<ErrorCode, number>>>} */
const CODES = Object.freeze({
  INVALID_MESSAGE_FORMAT: 107,
  UNKNOWN_TYPE: 104,
  INVALID_ROOM: 102,
  NOT_IN_ROOM: 103,
  ALREADY_JOINED: 105,
  ROOM_LIMIT: 106,
  STATE_FULL: 106,
  RATE_LIMIT_EXCEEDED: 111,
  CONNECTION_LIMIT: 111,
  MESSAGE_TOO_LARGE: 107,
  PERMISSION_DENIED: 103,
  TOKEN_EXPIRED: 109,
  CONFLICT: 113,
});

/** @param {number} code of ERRORS @param {string} [message] in place of the usual one @returns {ReplyError} */
export function replyError(code, message = ERRORS[code].message) {
  return { code, message, temporary: ERRORS[code].isTemporary };
}

/** Errors whose text says what the usual one of their code does not. @type {ReadonlySet<ErrorCode>} */
const TOLD = new Set(['RATE_LIMIT_EXCEEDED', 'MESSAGE_TOO_LARGE', 'INVALID_MESSAGE_FORMAT']);

/** @param {Refusal} refused */
export function errorOfRefusal(refused) {
  const error = /** @type {ErrorCode} */ (errorOf(refused));
  // Clients must not repeat a publish whose outcome is unknown.
  if (error === 'OUTCOME_UNKNOWN') return { code: 100, message: refused.message };
  const hasText = refused.code === 'DENIED' || TOLD.has(error);
  return replyError(CODES[error] ?? 100, hasText ? refused.message : undefined);
}

/** @param {string} reason */
function cut(reason) {
  if (Buffer.byteLength(reason) <= MAX_REASON_BYTES) return reason;
  let end = MAX_REASON_BYTES;
  const bytes = Buffer.from(reason);
  while ((bytes[end] & 0xc0) === 0x80) end--; // not within a character
  return bytes.toString('utf8', 0, end);
}
