// codes.js: every refusal and every close code that the server sends, with what it becomes in HTTP,
// as a reply and as a close (refusal.js). docs/protocol.md is generated from these tables (`npm run
// docs`). A test checks that src uses each row.

/**
 * A close code: its number, the reason text in the close frame, its cause, when the cause is over,
 * and advice for clients. `isLasting`: time alone does not end the cause, so clients should stop.
 * After every other close, clients of each door return (docs/protocol.md, "Close codes").
 * @typedef {{code: number, reason: string, cause: string, over: string, client: string, isLasting?: true}}
 *   Close
 */

const FIXED = 'when the client is fixed';
const RETURN = 'reconnect';
const STOP = 'stop';
const REPORT = 'stop, report';
const PLACE =
  'when another of these connections ends. Dead ones count until their next missed ping, and those of a killed server for 5 s';

/**
 * After 4000-4499 the client reconnects, after 4500-4999 it stops, but may bring a new token after
 * 4500; other rows have the advice.
 * @type {Readonly<Record<string, Close>>}
 */
// biome-ignore format: a row has a few lines, and not one for each property
export const CLOSES = Object.freeze({
  UNSUPPORTED_DATA: { code: 1003, reason: 'text only', client: REPORT, over: FIXED, isLasting: true,
    cause: 'The client sent a binary message.' },
  POLICY: { code: 1008, reason: 'policy', client: REPORT, over: FIXED, isLasting: true,
    cause: 'Too many control frames or small fragments, or too many fragments in a message.' },
  INTERNAL: { code: 1011, reason: 'internal error', client: 'back-off, at least 1 s',
    over: 'at once, unless the same command fails again',
    cause: 'The server failed while it handled a command or a message of this connection.' },
  DRAIN: { code: 1012, reason: 'service restart', client: 'reconnect after `reconnectAfterMs`',
    over: 'when another worker or server accepts connections',
    cause: 'The worker drains: stop, restart or reload.' },
  OVERLOAD: { code: 1013, reason: 'overload', client: 'reconnect after at least 10 s with jitter',
    over: 'when the load falls, or when the tokens’ keys, the hook or Redis is available again',
    cause: 'The worker has too many unread bytes or too large copies of room states, tokens cannot be checked now, or a hook failed.' },
  TOKEN_EXPIRED: { code: 4001, reason: 'token expired', client: 'reconnect with a new token',
    over: 'with the next token',
    cause: 'The token expired before an `auth` renewed it.' },
  TOKEN_NOT_YET_VALID: { code: 4002, reason: 'token not yet valid',
    client: 'reconnect after `retryAfter` seconds with the same token',
    over: 'after `retryAfter` seconds',
    cause: '`iat` or `nbf` of the token is at most 5 minutes ahead of the server’s clock. An error with `retryAfter` comes first.' },
  SLOW_CONSUMER: { code: 4003, reason: 'slow consumer', client: RETURN,
    over: 'when the client reads again',
    cause: 'Too many bytes wait for this client, or they have waited too long.' },
  RATE_LIMITED: { code: 4005, reason: 'rate limited', client: RETURN, over: 'within a minute',
    cause: 'Over `FANFARE_MAX_REFUSED_MESSAGES` messages were refused for their rate within a minute.' },
  REBALANCE: { code: 4006, reason: 'rebalance', client: 'reconnect after `reconnectAfterMs`',
    over: 'at once',
    cause: 'The worker has more connections than the others.' },
  AGE: { code: 4007, reason: 'maximum age', client: 'reconnect after `reconnectAfterMs`',
    over: 'at once',
    cause: 'The connection has reached `FANFARE_MAX_CONNECTION_AGE_MS`.' },
  ADDRESS_LIMIT: { code: 4008, reason: 'connection limit of the address',
    client: 'back-off, at least 1 s', over: PLACE,
    cause: 'All servers together have more than `FANFARE_MAX_CONNECTIONS_PER_IP` connections from the address.' },
  USER_LIMIT: { code: 4009, reason: 'connection limit of the user', client: RETURN, over: PLACE,
    cause: 'The user has reached `FANFARE_MAX_CONNECTIONS_PER_USER`, on this server or on all servers together.' },
  APP_LIMIT: { code: 4010, reason: 'connection limit of the app', client: RETURN, over: PLACE,
    cause: 'The app of the token has reached `maxConnections`, over all servers.' },
  CLIENT_TIMEOUT: { code: 4011, reason: 'client time-out', client: RETURN,
    over: 'when the client is awake, and its network carries what it sends',
    cause: 'Tokens are required, and none could be checked within 5 s of the handshake; or a message stayed unfinished for over 30 s.' },
  INVALID_TOKEN: { code: 4500, reason: 'invalid token', isLasting: true,
    client: 'stop, unless you can get a new token', over: 'with another token',
    cause: 'The token of the handshake, or of the first `hello`, is not valid.' },
  BAD_REQUESTS: { code: 4501, reason: 'bad requests', client: STOP, over: FIXED, isLasting: true,
    cause: 'The client sent its third message within 10 s that is not a command: no JSON object, or without a string `type`.' },
  AUTH_TIMEOUT: { code: 4502, reason: 'authentication time-out', client: STOP, isLasting: true,
    over: 'when the client has a token',
    cause: 'Tokens are required, and the client sent commands without one, but no token within 5 s of the handshake.' },
  KICKED: { code: 4503, reason: 'disconnected', client: STOP, isLasting: true,
    over: 'when the application permits it',
    cause: 'The token of the connection has been revoked, or the backend has disconnected it.' },
  ROOM_LIMIT: { code: 4505, reason: 'room limit', client: STOP, over: FIXED, isLasting: true,
    cause: 'The client kept joining rooms: within 10 s, the refused joins outnumbered the room limit.' },
  DENIED: { code: 4506, reason: 'denied', client: STOP, isLasting: true,
    over: 'when the hook permits it',
    cause: 'The hook `onConnect` denied the connection. An error with its text comes first.' },
});

/** `ws` sends them itself, without a reason. @type {Readonly<Record<string, Close>>} */
// biome-ignore format: as above
export const WS_CLOSES = Object.freeze({
  PROTOCOL_ERROR: { code: 1002, reason: '', client: REPORT, over: FIXED, isLasting: true,
    cause: 'A frame breaks RFC 6455.' },
  INVALID_DATA: { code: 1007, reason: '', client: REPORT, over: FIXED, isLasting: true,
    cause: 'A text message or close reason is not valid UTF-8.' },
  TOO_LARGE: { code: 1009, reason: '', client: REPORT, over: FIXED, isLasting: true,
    cause: 'A message is larger than `FANFARE_MAX_MESSAGE_BYTES`.' },
});

/** Refused clients wait at least this long, unless a row says otherwise. */
const RETRY_S = 5;

/**
 * @typedef {object} Row
 * @property {string} message
 * @property {string} [client] advice for clients; rows that have it are in docs/protocol.md
 * @property {string} [error] the value of the field `error`, if it is not the name of the row
 * @property {number} [status] in HTTP; 400 if there is none
 * @property {Readonly<Record<string, string>>} [headers] in HTTP
 * @property {number} [retryAfterS] the usual one; none: waiting does not help
 * @property {Close} [close] for a connection that may not stay
 * @property {boolean} [isFinal] true: no connection may stay, whatever it was allowed before
 */

/** Values of `error` in replies. @type {Readonly<Record<ErrorCode, Row & {client: string}>>} */
// biome-ignore format: as above
export const ERRORS = Object.freeze({
  INVALID_MESSAGE_FORMAT: { message: 'The message is not a valid command.',
    client: 'fix the message', close: CLOSES.BAD_REQUESTS },
  UNKNOWN_TYPE: { message: 'Unknown command type.', client: 'fix the message' },
  INVALID_ROOM: { message: 'A room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -',
    client: 'fix the room' },
  ROOM_REQUIRED: { message: 'Name a room: the connection is in no room or in several.',
    client: 'name the room' },
  NOT_IN_ROOM: { message: 'The connection is not in this room.', client: 'join first' },
  ALREADY_JOINED: { message: 'The connection is already in this room.', client: 'ignore it' },
  ROOM_LIMIT: { message: 'Room limit reached.', client: 'leave a room first',
    close: CLOSES.ROOM_LIMIT },
  RATE_LIMIT_EXCEEDED: { message: 'Too many messages.', client: 'wait `retryAfter` seconds',
    status: 429, close: CLOSES.RATE_LIMITED },
  MESSAGE_TOO_LARGE: { message: 'The message is too large.', client: 'send less', status: 413 },
  PERMISSION_DENIED: { message: 'Not permitted.', client: 'do not retry', status: 403 },
  CONNECTION_LIMIT: { message: 'As many connections as allowed.',
    client: 'wait `retryAfter` seconds', status: 429 },
  INVALID_TOKEN: { message: 'The token is not valid.', client: 'get a new token', status: 401,
    close: CLOSES.INVALID_TOKEN },
  TOKEN_EXPIRED: { message: 'The token has expired.', client: 'get a new token', status: 401,
    close: CLOSES.TOKEN_EXPIRED },
  TOKEN_NOT_YET_VALID: { message: 'The token is not valid yet.',
    client: 'retry after `retryAfter` seconds', status: 401, close: CLOSES.TOKEN_NOT_YET_VALID },
  UNAVAILABLE: { message: 'Not accepted: the broker is unavailable. Try again.', client: 'retry',
    status: 503, retryAfterS: RETRY_S, close: CLOSES.OVERLOAD },
  OUTCOME_UNKNOWN: { message: 'The message may or may not have been accepted.',
    client: 'retry only if a duplicate is acceptable', status: 504 },
  IDEMPOTENCY_CONFLICT: { message: 'The idempotency key belongs to another message.',
    client: 'use a new key', status: 409 },
  CONFLICT: { message: 'The room is not at the expected position, but at `position`.',
    client: 'read the messages up to `position`, then decide', status: 409 },
  STATE_FULL: { message: 'The state of the room is full (the keys of FANFARE_STATE, FANFARE_STATE_MAX_BYTES).', client: 'remove keys, or send less',
    status: 409 },
  INTERNAL_ERROR: { message: 'The server failed.', client: 'report it', status: 500,
    close: CLOSES.INTERNAL },
});

/**
 * @typedef
 *   {'INVALID_MESSAGE_FORMAT'|'UNKNOWN_TYPE'|'INVALID_ROOM'|'ROOM_REQUIRED'|'NOT_IN_ROOM'|'ALREADY_JOINED'|'ROOM_LIMIT'|'RATE_LIMIT_EXCEEDED'|'MESSAGE_TOO_LARGE'|'PERMISSION_DENIED'|'CONNECTION_LIMIT'|'INVALID_TOKEN'|'TOKEN_EXPIRED'|'TOKEN_NOT_YET_VALID'|'UNAVAILABLE'|'OUTCOME_UNKNOWN'|'IDEMPOTENCY_CONFLICT'|'CONFLICT'|'STATE_FULL'|'INTERNAL_ERROR'}
 *   ErrorCode
 */

/** Errors of the HTTP API. @type {Readonly<Record<ApiErrorCode, Row & {client: string}>>} */
// biome-ignore format: as above
export const API_ERRORS = Object.freeze({
  INVALID_REQUEST: { status: 400, message: 'The path, the query or a header is not valid.',
    client: 'fix what `field` names' },
  INVALID_JSON: { status: 400,
    message: 'The body is not one JSON object in UTF-8.',
    client: 'fix the body' },
  UNAUTHORIZED: { status: 401, message: 'A valid API key is required (Authorization: Bearer).',
    client: 'check the key' },
  PERMISSION_DENIED: { ...ERRORS.PERMISSION_DENIED, message: 'The API key does not permit this.',
    client: 'use a key with the right' },
  NOT_FOUND: { status: 404, message: 'Not found.', client: 'check the path' },
  NO_HISTORY: { status: 404, message: 'The room has no history.', client: 'see FANFARE_HISTORY' },
  NO_STATE: { status: 404, message: 'The room has no state.', client: 'see FANFARE_STATE' },
  NO_PRESENCE: { status: 404, message: 'The room has no presence.',
    client: 'see FANFARE_PRESENCE' },
  NO_TOKENS: { status: 404,
    message: 'The server is not configured for tokens (JWT_SECRET, JWT_PUBLIC_KEY or JWT_JWKS_URL).',
    client: 'see JWT_SECRET' },
  NO_BUCKET: { status: 404,
    message: 'The server is not configured for large messages (FANFARE_BLOB_URL).',
    client: 'see FANFARE_BLOB_URL' },
  NO_UPLOAD: { status: 404, message: 'The bucket has no object that matches the announced upload.',
    client: 'send the PUT first, with the announced bytes and headers' },
  NO_CONNECTION: { status: 404, message: 'No connection has this id.',
    client: 'none: it is closed' },
  METHOD_NOT_ALLOWED: { status: 405, message: 'The path does not have this method.',
    client: 'see the header `Allow`' },
  REQUEST_TIMEOUT: { status: 408, message: 'The request took too long.', client: 'retry' },
  IDEMPOTENCY_CONFLICT: { ...ERRORS.IDEMPOTENCY_CONFLICT,
    message: 'The idempotency key was used for another message.' },
  CONFLICT: ERRORS.CONFLICT,
  STATE_FULL: ERRORS.STATE_FULL,
  BODY_TOO_LARGE: { status: 413, message: 'The body is too large.', client: 'send less' },
  PAYLOAD_TOO_LARGE: { status: 413, message: 'The payload is too large.', client: 'send less' },
  UNSUPPORTED_MEDIA_TYPE: { status: 415,
    message: 'The body must be application/json without a content encoding.',
    client: 'fix the header' },
  INVALID_FIELD: { status: 422, message: 'A field of the body is missing, unknown or not valid.',
    client: 'fix the field that `field` names' },
  RATE_LIMIT_EXCEEDED: { ...ERRORS.RATE_LIMIT_EXCEEDED, message: 'Too many requests.',
    client: 'wait `Retry-After` seconds' },
  INTERNAL_ERROR: ERRORS.INTERNAL_ERROR,
  UNAVAILABLE: { ...ERRORS.UNAVAILABLE,
    message: 'Not accepted: the server or its broker is unavailable. Try again.', retryAfterS: 1 },
  OUTCOME_UNKNOWN: { ...ERRORS.OUTCOME_UNKNOWN,
    message: 'The request may or may not have been carried out.',
    client: 'retry with the same idempotency key' },
});

/**
 * @typedef
 *   {'INVALID_REQUEST'|'INVALID_JSON'|'UNAUTHORIZED'|'PERMISSION_DENIED'|'NOT_FOUND'|'NO_HISTORY'|'NO_STATE'|'NO_PRESENCE'|'NO_TOKENS'|'NO_BUCKET'|'NO_UPLOAD'|'NO_CONNECTION'|'METHOD_NOT_ALLOWED'|'REQUEST_TIMEOUT'|'IDEMPOTENCY_CONFLICT'|'CONFLICT'|'STATE_FULL'|'BODY_TOO_LARGE'|'PAYLOAD_TOO_LARGE'|'UNSUPPORTED_MEDIA_TYPE'|'INVALID_FIELD'|'RATE_LIMIT_EXCEEDED'|'INTERNAL_ERROR'|'UNAVAILABLE'|'OUTCOME_UNKNOWN'}
 *   ApiErrorCode
 */

const BUSY = { status: 503, message: 'The server is busy.', retryAfterS: RETRY_S };
const CLOSE = Object.freeze({ Connection: 'close' });

/** Refusals before a request or a token has a connection. */
// biome-ignore format: as above
const ENTRY = Object.freeze({
  /** The hook `onConnect`, `onJoin` or `onPublish` denies. */
  DENIED: { ...ERRORS.PERMISSION_DENIED, error: 'PERMISSION_DENIED', close: CLOSES.DENIED,
    isFinal: true },
  HOOK_FAILED: { ...ERRORS.UNAVAILABLE, error: 'UNAVAILABLE',
    message: 'Not accepted: a check failed. Try again.', isFinal: true },
  /** A join has to wait for too many reads of other rooms. */
  READS_WAIT: { ...ERRORS.UNAVAILABLE, error: 'UNAVAILABLE' },
  /** The room has as many users as its app allows. */
  ROOM_FULL: { ...ERRORS.ROOM_LIMIT, error: 'ROOM_LIMIT' },
  NO_APP: { ...ERRORS.INVALID_TOKEN, error: 'INVALID_TOKEN',
    message: 'The token names an app that is unknown or disabled.' },
  APP_LIMIT: { ...ERRORS.CONNECTION_LIMIT, error: 'CONNECTION_LIMIT', retryAfterS: RETRY_S,
    message: 'The app has reached its connection limit (maxConnections).',
    close: CLOSES.APP_LIMIT },
  USER_LIMIT: { ...ERRORS.CONNECTION_LIMIT, error: 'CONNECTION_LIMIT', retryAfterS: RETRY_S,
    message: 'The user has reached the connection limit (FANFARE_MAX_CONNECTIONS_PER_USER).',
    close: CLOSES.USER_LIMIT },
  // Admission. The names are labels of `fanfare_admissions_refused_total`.
  origin: { status: 403, message: 'This origin is not allowed (ALLOWED_ORIGINS).' },
  per_ip: { status: 429, message: 'Too many connections from this address.', retryAfterS: 10 },
  /** Connections cannot be counted now. */
  uncounted: { ...BUSY, error: 'per_ip' },
  handshakes_per_ip: { status: 429, message: 'Too many handshakes from this address.',
    retryAfterS: RETRY_S },
  loop_lag: BUSY,
  memory: BUSY,
  descriptors: BUSY,
  tokens: { ...BUSY, message: 'Tokens cannot be checked now.' },
  hooks: { ...BUSY, message: 'The connection cannot be checked now.' },
  // The console.
  CONSOLE_OFF: { status: 404, message: 'The console is off.' },
  HOST_NOT_ALLOWED: { status: 403,
    message: 'Without a key the console answers only to localhost. Set FANFARE_CONSOLE=key to reach it by another name.' },
  FOREIGN_REQUEST: { status: 403, message: 'This request does not come from the console.' },
  // The public port. The names are those of the statuses.
  bad_request: { message: 'Not an HTTP request.', headers: CLOSE },
  not_found: { status: 404, message: 'Not found.' },
  method_not_allowed: { status: 405, message: 'Only GET is allowed.',
    headers: { ...CLOSE, Allow: 'GET' } },
  request_timeout: { status: 408, message: 'The request took too long.', retryAfterS: 1 },
  expectation_failed: { status: 417, message: 'The only supported expectation is 100-continue.',
    headers: CLOSE },
  upgrade_required: {
    status: 426,
    message: 'This endpoint requires a WebSocket upgrade.',
    // RFC 9110 15.5.22: Upgrade names the protocol; 7.8: Connection names Upgrade.
    headers: { Upgrade: 'websocket', Connection: 'Upgrade, close' },
  },
  websocket_version: {
    error: 'upgrade_required',
    status: 426,
    message: 'The only supported WebSocket version is 13.',
    headers: { 'Sec-WebSocket-Version': '13', Upgrade: 'websocket' }, // RFC 6455 4.2.2, 4.4
  },
  request_header_fields_too_large: { status: 431, message: 'The header is too large.',
    headers: CLOSE },
  stream_headers: { error: 'bad_request', status: 431, message: 'Too many headers.' },
  service_unavailable: BUSY,
});

/**
 * When refusals of handshakes and streams are over, for docs/protocol.md. Those that pass have a
 * `Retry-After`, and `retry:` for an EventSource; the others stop it with 204.
 * @type {ReadonlyMap<RefusalCode, string>}
 */
// biome-ignore format: as above
export const OVER = new Map(/** @type {[RefusalCode, string][]} */ ([
  ['per_ip', PLACE],
  ['uncounted', 'when the primary process answers again'],
  ['handshakes_per_ip', 'when the rate of the address has recovered'],
  ['loop_lag', 'when the load of the worker falls'],
  ['memory', 'when the worker has memory again'],
  ['descriptors', 'when the worker has file descriptors again'],
  ['tokens', 'when the keys for tokens, or the primary process, are available again'],
  ['hooks', 'when the hook `onConnect` succeeds again'],
  ['service_unavailable', 'when another worker accepts, or this one has caught up'],
  ['request_timeout', 'when the network carries the request'],
  ['HOOK_FAILED', 'when the hook succeeds again'],
  ['USER_LIMIT', PLACE],
  ['APP_LIMIT', PLACE],
  ['origin', 'when `ALLOWED_ORIGINS` or the page changes'],
  ['NO_APP', 'when the app is in the file of every server, and enabled'],
  ['DENIED', 'when the hook permits it'],
  ['INVALID_TOKEN', 'with another token'],
  ['TOKEN_EXPIRED', 'with the next token'],
  ['PERMISSION_DENIED', 'with a token that names the room'],
  ['ROOM_LIMIT', FIXED],
  ['bad_request', FIXED],
  ['not_found', FIXED],
  ['method_not_allowed', FIXED],
  ['expectation_failed', FIXED],
  ['upgrade_required', 'when the client, or a proxy that drops `Upgrade`, is fixed'],
  ['websocket_version', FIXED],
  ['request_header_fields_too_large', FIXED],
  ['stream_headers', FIXED],
]));

/** @typedef {ErrorCode|ApiErrorCode|keyof typeof ENTRY} RefusalCode */

/**
 * All refusals. What a code becomes does not depend on its table.
 * @type {Readonly<Record<RefusalCode, Row>>}
 */
export const REFUSALS = Object.freeze({ ...API_ERRORS, ...ERRORS, ...ENTRY });
