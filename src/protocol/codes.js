// codes.js: every error code and every close code that the server sends, one table each.
//
// docs/protocol.md is generated from these tables (`npm run docs`). A test checks that src uses
// each row, so that no code is documented before it exists.

/**
 * Error codes: the values of the field `error` in an error reply, its text, and advice for clients.
 * @type {Readonly<Record<ErrorCode, {message: string, client: string}>>}
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
  INVALID_TOKEN: { message: 'The token is not valid.', client: 'get a new token' },
  TOKEN_EXPIRED: { message: 'The token has expired.', client: 'get a new token' },
  UNAVAILABLE: { message: 'Not accepted: the broker is unavailable. Try again.', client: 'retry' },
  OUTCOME_UNKNOWN: {
    message: 'The message may or may not have been accepted.',
    client: 'retry only if a duplicate is acceptable',
  },
  IDEMPOTENCY_CONFLICT: {
    message: 'The idempotency key belongs to another message.',
    client: 'use a new key',
  },
  INTERNAL_ERROR: { message: 'The server failed.', client: 'report it' },
});

/**
 * @typedef
 *   {'INVALID_MESSAGE_FORMAT'|'UNKNOWN_TYPE'|'INVALID_ROOM'|'ROOM_REQUIRED'|'NOT_IN_ROOM'|'ALREADY_JOINED'|'ROOM_LIMIT'|'RATE_LIMIT_EXCEEDED'|'MESSAGE_TOO_LARGE'|'PERMISSION_DENIED'|'INVALID_TOKEN'|'TOKEN_EXPIRED'|'UNAVAILABLE'|'OUTCOME_UNKNOWN'|'IDEMPOTENCY_CONFLICT'|'INTERNAL_ERROR'}
 *   ErrorCode
 */

/**
 * Error codes of the HTTP API: the values of the field `error`, the HTTP status, the text of the
 * field `message`, and advice for clients.
 * @type {Readonly<Record<ApiErrorCode, {status: number, message: string, client: string}>>}
 */
export const API_ERRORS = Object.freeze({
  INVALID_REQUEST: {
    status: 400,
    message: 'The path, the query or a header is not valid.',
    client: 'fix what `field` names',
  },
  INVALID_JSON: {
    status: 400,
    message: 'The body is not one JSON object in UTF-8 within the limits of depth and keys.',
    client: 'fix the body',
  },
  UNAUTHORIZED: {
    status: 401,
    message: 'Authorization: Bearer with a valid API key is required.',
    client: 'check the key',
  },
  PERMISSION_DENIED: {
    status: 403,
    message: 'The API key does not permit this.',
    client: 'use a key with the right',
  },
  NOT_FOUND: { status: 404, message: 'Not found.', client: 'check the path' },
  NO_HISTORY: { status: 404, message: 'The room has no history.', client: 'see FANFARE_HISTORY' },
  NO_PRESENCE: {
    status: 404,
    message: 'The room has no presence.',
    client: 'see FANFARE_PRESENCE',
  },
  NO_TOKENS: {
    status: 404,
    message: 'The server is not configured for tokens.',
    client: 'see JWT_SECRET',
  },
  NO_BUCKET: {
    status: 404,
    message: 'The server is not configured for large messages.',
    client: 'see FANFARE_BLOB_URL',
  },
  NO_UPLOAD: {
    status: 404,
    message: 'The upload is not in the bucket as announced.',
    client: 'send the PUT first, with the announced bytes and headers',
  },
  METHOD_NOT_ALLOWED: {
    status: 405,
    message: 'The path does not have this method.',
    client: 'see the header `Allow`',
  },
  REQUEST_TIMEOUT: { status: 408, message: 'The request took too long.', client: 'retry' },
  IDEMPOTENCY_CONFLICT: {
    status: 409,
    message: 'The idempotency key was used for another message.',
    client: 'use a new key',
  },
  BODY_TOO_LARGE: { status: 413, message: 'The body is too large.', client: 'send less' },
  PAYLOAD_TOO_LARGE: { status: 413, message: 'The payload is too large.', client: 'send less' },
  UNSUPPORTED_MEDIA_TYPE: {
    status: 415,
    message: 'The body must be application/json without a content encoding.',
    client: 'fix the header',
  },
  INVALID_FIELD: {
    status: 422,
    message: 'A field of the body is missing, unknown or not valid.',
    client: 'fix the field that `field` names',
  },
  RATE_LIMIT_EXCEEDED: {
    status: 429,
    message: 'Too many requests.',
    client: 'wait `Retry-After` seconds',
  },
  INTERNAL_ERROR: { status: 500, message: 'The server failed.', client: 'report it' },
  UNAVAILABLE: {
    status: 503,
    message: 'Not accepted: the server or its broker is unavailable. Try again.',
    client: 'retry',
  },
  OUTCOME_UNKNOWN: {
    status: 504,
    message: 'The request may or may not have been carried out.',
    client: 'retry with the same idempotency key',
  },
});

/**
 * @typedef
 *   {'INVALID_REQUEST'|'INVALID_JSON'|'UNAUTHORIZED'|'PERMISSION_DENIED'|'NOT_FOUND'|'NO_HISTORY'|'NO_PRESENCE'|'NO_TOKENS'|'NO_BUCKET'|'NO_UPLOAD'|'METHOD_NOT_ALLOWED'|'REQUEST_TIMEOUT'|'IDEMPOTENCY_CONFLICT'|'BODY_TOO_LARGE'|'PAYLOAD_TOO_LARGE'|'UNSUPPORTED_MEDIA_TYPE'|'INVALID_FIELD'|'RATE_LIMIT_EXCEEDED'|'INTERNAL_ERROR'|'UNAVAILABLE'|'OUTCOME_UNKNOWN'}
 *   ApiErrorCode
 */

/**
 * A close code: its number, the reason text in the close frame, its cause, and advice for clients.
 * @typedef {{code: number, reason: string, cause: string, client: string}} Close
 */

/**
 * Close codes that the server chooses. After 4000-4499 the client reconnects; after 4500-4999 it
 * stops. For other codes each row has the advice.
 * @type {Readonly<Record<string, Close>>}
 */
export const CLOSES = Object.freeze({
  UNSUPPORTED_DATA: {
    code: 1003,
    reason: 'text only',
    cause: 'The client sent a binary message.',
    client: 'stop, report',
  },
  POLICY: {
    code: 1008,
    reason: 'policy',
    cause:
      'Too many control frames or small fragments, too many fragments in a message, or a message left unfinished.',
    client: 'stop, report',
  },
  INTERNAL: {
    code: 1011,
    reason: 'internal error',
    cause: 'The server failed at a command or a message of this connection.',
    client: 'back-off, at least 1 s',
  },
  DRAIN: {
    code: 1012,
    reason: 'service restart',
    cause: 'The worker drains: stop, restart or reload.',
    client: 'reconnect after `reconnectAfterMs`',
  },
  OVERLOAD: {
    code: 1013,
    reason: 'overload',
    cause:
      'Too many bytes wait to be read in this worker, or tokens cannot be checked now, or a hook has failed.',
    client: 'reconnect after at least 10 s with jitter',
  },
  TOKEN_EXPIRED: {
    code: 4001,
    reason: 'token expired',
    cause: 'The token has expired, and no `auth` has renewed it.',
    client: 'reconnect with a new token',
  },
  SLOW_CONSUMER: {
    code: 4003,
    reason: 'slow consumer',
    cause: 'Too many bytes wait for this client, or they wait for too long.',
    client: 'reconnect',
  },
  RATE_LIMITED: {
    code: 4005,
    reason: 'rate limited',
    cause:
      'Over `FANFARE_MAX_REFUSED_MESSAGES` messages were refused for their rate within a minute.',
    client: 'reconnect',
  },
  REBALANCE: {
    code: 4006,
    reason: 'rebalance',
    cause: 'The worker has more connections than the others.',
    client: 'reconnect after `reconnectAfterMs`',
  },
  AGE: {
    code: 4007,
    reason: 'maximum age',
    cause: 'The connection has reached `FANFARE_MAX_CONNECTION_AGE_MS`.',
    client: 'reconnect after `reconnectAfterMs`',
  },
  ADDRESS_LIMIT: {
    code: 4008,
    reason: 'connection limit of the address',
    cause:
      'All servers together have more than `FANFARE_MAX_CONNECTIONS_PER_IP` connections of the address.',
    client: 'back-off, at least 1 s',
  },
  INVALID_TOKEN: {
    code: 4500,
    reason: 'invalid token',
    cause: 'The token of the handshake, or of the first `hello`, is not valid.',
    client: 'stop',
  },
  BAD_REQUESTS: {
    code: 4501,
    reason: 'bad requests',
    cause: 'The third malformed message within 10 s.',
    client: 'stop',
  },
  AUTH_TIMEOUT: {
    code: 4502,
    reason: 'authentication time-out',
    cause: 'Tokens are required, and none came within 5 s of the handshake.',
    client: 'stop',
  },
  KICKED: {
    code: 4503,
    reason: 'disconnected',
    cause: 'The token of the connection has been revoked, or the backend has disconnected it.',
    client: 'stop',
  },
  USER_LIMIT: {
    code: 4504,
    reason: 'connection limit of the user',
    cause:
      'The user has `FANFARE_MAX_CONNECTIONS_PER_USER` connections, on this server or on all together.',
    client: 'stop',
  },
  DENIED: {
    code: 4506,
    reason: 'denied',
    cause: 'The hook `onConnect` has denied the connection. An error with its text precedes.',
    client: 'stop',
  },
  ROOM_LIMIT: {
    code: 4505,
    reason: 'room limit',
    cause: 'More joins were refused within 10 s than the room limit allows rooms.',
    client: 'stop',
  },
});

/**
 * Close codes that `ws` sends by itself, with an empty reason.
 * @type {Readonly<Record<string, Close>>}
 */
export const WS_CLOSES = Object.freeze({
  PROTOCOL_ERROR: {
    code: 1002,
    reason: '',
    cause: 'A frame breaks RFC 6455.',
    client: 'stop, report',
  },
  INVALID_DATA: {
    code: 1007,
    reason: '',
    cause: 'A text message or close reason is not valid UTF-8.',
    client: 'stop, report',
  },
  TOO_LARGE: {
    code: 1009,
    reason: '',
    cause: 'A message is larger than `FANFARE_MAX_MESSAGE_BYTES`.',
    client: 'stop, report',
  },
});
