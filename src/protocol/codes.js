// codes.js: every error code and every close code that the server sends, one table each.
//
// docs/protocol.md is generated from these tables (`npm run docs`). A test checks that src uses each
// row, so that no code is documented before it exists.

/**
 * Error codes: the values of the field `error` in an error reply, its text, and advice for clients.
 * @type {Readonly<Record<string, {message: string, client: string}>>}
 */
export const ERRORS = Object.freeze({
  INVALID_MESSAGE_FORMAT: {
    message: 'The message is not a valid command.',
    client: 'fix the message',
  },
  UNKNOWN_TYPE: { message: 'Unknown command type.', client: 'fix the message' },
  INVALID_ROOM: {
    message: 'A room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -',
    client: 'fix the room',
  },
  ROOM_REQUIRED: {
    message: 'Name a room: the connection is in no room or in several.',
    client: 'name the room',
  },
  NOT_IN_ROOM: { message: 'The connection is not in this room.', client: 'join first' },
  ALREADY_JOINED: { message: 'The connection is already in this room.', client: 'ignore it' },
  ROOM_LIMIT: {
    message: 'The connection is in as many rooms as allowed.',
    client: 'leave a room first',
  },
  RATE_LIMIT_EXCEEDED: { message: 'Too many messages.', client: 'wait `retryAfter` seconds' },
  MESSAGE_TOO_LARGE: { message: 'The message is too large.', client: 'send less' },
  PERMISSION_DENIED: { message: 'Not permitted.', client: 'give up' },
  UNAVAILABLE: { message: 'Not accepted: the broker is unavailable. Try again.', client: 'retry' },
  OUTCOME_UNKNOWN: {
    message: 'The message may or may not have been accepted.',
    client: 'retry only if a duplicate is acceptable',
  },
  INTERNAL_ERROR: { message: 'The server failed.', client: 'report it' },
});

/**
 * @typedef
 *   {'INVALID_MESSAGE_FORMAT'|'UNKNOWN_TYPE'|'INVALID_ROOM'|'ROOM_REQUIRED'|'NOT_IN_ROOM'|'ALREADY_JOINED'|'ROOM_LIMIT'|'RATE_LIMIT_EXCEEDED'|'MESSAGE_TOO_LARGE'|'PERMISSION_DENIED'|'UNAVAILABLE'|'OUTCOME_UNKNOWN'|'INTERNAL_ERROR'}
 *   ErrorCode
 */

/**
 * Close codes that the server chooses. 4000-4499: the client reconnects. 4500-4999: it stops. Other
 * codes: as the row says.
 * @type {Readonly<Record<string, {code: number, reason: string, client: string}>>}
 */
export const CLOSES = Object.freeze({
  UNSUPPORTED_DATA: { code: 1003, reason: 'text only', client: 'stop, report' },
  POLICY: { code: 1008, reason: 'policy', client: 'stop, report' },
  INTERNAL: { code: 1011, reason: 'internal error', client: 'back-off, at least 1 s' },
  DRAIN: { code: 1012, reason: 'service restart', client: 'reconnect after `reconnectAfterMs`' },
  OVERLOAD: { code: 1013, reason: 'overload', client: 'at least 10 s with jitter' },
  SLOW_CONSUMER: { code: 4003, reason: 'slow consumer', client: 'reconnect' },
  RATE_LIMITED: { code: 4005, reason: 'rate limited', client: 'reconnect' },
  BAD_REQUESTS: { code: 4501, reason: 'bad requests', client: 'stop' },
  ROOM_LIMIT: { code: 4505, reason: 'room limit', client: 'stop' },
});

/**
 * Close codes that `ws` sends by itself when a peer breaks RFC 6455 or exceeds `maxPayload`.
 * @type {Readonly<Record<string, {code: number, reason: string, client: string}>>}
 */
export const WS_CLOSES = Object.freeze({
  PROTOCOL_ERROR: { code: 1002, reason: 'protocol error', client: 'stop, report' },
  INVALID_DATA: { code: 1007, reason: 'invalid UTF-8', client: 'stop, report' },
  TOO_LARGE: { code: 1009, reason: 'message too large', client: 'stop, report' },
});
