// codes.js: every error code and close code, in one table each. README and tests are held equal to
// them.

/**
 * Error codes of the native protocol: what an `error` reply's `error` field may say, and what the
 * client should do.
 * @type {Readonly<Record<string, {message: string, client: string}>>}
 */
export const ERRORS = Object.freeze({
  INVALID_MESSAGE_FORMAT: {
    message: 'The message is not a valid command.',
    client: 'fix the message',
  },
  UNKNOWN_TYPE: { message: 'This server knows no such type.', client: 'fix the message' },
  INVALID_ROOM: {
    message: 'A room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -',
    client: 'fix the room',
  },
  ROOM_REQUIRED: {
    message: 'Name a room: this connection is in none or in several.',
    client: 'name the room',
  },
  NOT_IN_ROOM: { message: 'This connection is not in that room.', client: 'join first' },
  ALREADY_JOINED: { message: 'This connection is in that room already.', client: 'go on' },
  ROOM_LIMIT: {
    message: 'This connection is in as many rooms as it may be.',
    client: 'leave a room first',
  },
  RATE_LIMIT_EXCEEDED: { message: 'Too many messages.', client: 'wait `retryAfter` seconds' },
  MESSAGE_TOO_LARGE: { message: 'The message is too large.', client: 'send less' },
  PERMISSION_DENIED: { message: 'Not permitted.', client: 'give up' },
  INVALID_TOKEN: { message: 'The token is not valid.', client: 'get a new token' },
  TOKEN_EXPIRED: { message: 'The token has expired.', client: 'get a new token' },
  UNAVAILABLE: { message: 'Not accepted: the broker is away. Try again.', client: 'retry' },
  OUTCOME_UNKNOWN: {
    message: 'It is not known whether this was accepted.',
    client: 'retry only what may happen twice',
  },
  INTERNAL_ERROR: { message: 'The server failed.', client: 'report it' },
});

/**
 * @typedef
 *   {'INVALID_MESSAGE_FORMAT'|'UNKNOWN_TYPE'|'INVALID_ROOM'|'ROOM_REQUIRED'|'NOT_IN_ROOM'|'ALREADY_JOINED'|'ROOM_LIMIT'|'RATE_LIMIT_EXCEEDED'|'MESSAGE_TOO_LARGE'|'PERMISSION_DENIED'|'INVALID_TOKEN'|'TOKEN_EXPIRED'|'UNAVAILABLE'|'OUTCOME_UNKNOWN'|'INTERNAL_ERROR'}
 *   ErrorCode
 */

/**
 * Close codes. 4000-4499: reconnect; 4500-4999: stop; the rest as each row says.
 * @type {Readonly<Record<string, {code: number, reason: string, client: string}>>}
 */
export const CLOSES = Object.freeze({
  NORMAL: { code: 1000, reason: 'normal', client: 'stop' },
  GOING_AWAY: { code: 1001, reason: 'peer leaves', client: 'back-off' },
  PROTOCOL_ERROR: { code: 1002, reason: 'protocol error', client: 'stop, report' },
  UNSUPPORTED_DATA: { code: 1003, reason: 'text only', client: 'stop, report' },
  ABNORMAL: { code: 1006, reason: 'no close received', client: 'full jitter, 1 s·2ⁿ, cap 30 s' },
  INVALID_DATA: { code: 1007, reason: 'invalid UTF-8', client: 'stop, report' },
  POLICY: { code: 1008, reason: 'policy', client: 'stop, report' },
  TOO_LARGE: { code: 1009, reason: 'message too large', client: 'stop, report' },
  INTERNAL: { code: 1011, reason: 'internal error', client: 'back-off, at least 1 s' },
  DRAIN: { code: 1012, reason: 'service restart', client: 'reconnect after `reconnectAfterMs`' },
  OVERLOAD: { code: 1013, reason: 'overload', client: 'at least 10 s with jitter' },
  TOKEN_EXPIRED: { code: 4001, reason: 'token expired', client: 'reconnect' },
  SLOW_CONSUMER: { code: 4003, reason: 'slow consumer', client: 'reconnect' },
  INSUFFICIENT_STATE: { code: 4004, reason: 'insufficient state', client: 'reconnect' },
  RATE_LIMITED: { code: 4005, reason: 'rate limited', client: 'reconnect' },
  RECONNECT: { code: 4006, reason: 'reconnect', client: 'reconnect' },
  AGE: { code: 4007, reason: 'connection age', client: 'reconnect' },
  INVALID_TOKEN: { code: 4500, reason: 'invalid token', client: 'stop' },
  BAD_REQUESTS: { code: 4501, reason: 'bad requests', client: 'stop' },
  AUTH_TIMEOUT: { code: 4502, reason: 'authentication time-out', client: 'stop' },
  KICKED: { code: 4503, reason: 'disconnected', client: 'stop' },
  USER_LIMIT: { code: 4504, reason: 'connection limit of the user', client: 'stop' },
  ROOM_LIMIT: { code: 4505, reason: 'room limit', client: 'stop' },
  PERMISSION: { code: 4507, reason: 'permission denied', client: 'stop' },
});
