// wrong-requests.test.js: what a developer is told on the first day. Each row is a mistake and the
// whole answer, read by a person: it names the cause, the bound and the setting, or what to do.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { WebSocket } from 'ws';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { connect } from '../helpers/clients.js';
import { shared } from '../helpers/shared.js';
import { OTHER_SECRET, SECRET, token } from '../helpers/tokens.js';

const OPTIONS = { timeout: 60_000 };
const KEY = newSecret();
const READER = newSecret();
const APP_KEY = newSecret();
const A_ROOM = 'a room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -';

const start = shared((owner) =>
  startServer(owner, {
    ...NO_LIMITS,
    FANFARE_LIMITS: 'off,rooms=enforce',
    WORKERS: '1',
    JWT_SECRET: SECRET,
    FANFARE_TOKEN_REASONS: 'on',
    API_KEYS: `web ${KEY} all; reader ${READER} rooms,presence rooms=chat.*; app ${APP_KEY} all app=1`,
    FANFARE_PUSHER_APP_ID: '1',
    FANFARE_PUSHER_APP_KEY: 'key',
    FANFARE_PUSHER_APP_SECRET: newSecret(),
    FANFARE_API_MAX_BODY_BYTES: '300000',
    FANFARE_MAX_INLINE_BYTES: '50000',
    FANFARE_HISTORY: 'chat.*=100/300s',
    FANFARE_PRESENCE: 'chat.*',
    FANFARE_STATE: 'price.*=10/1h',
    FANFARE_STATE_MAX_VALUE_BYTES: '1000',
    ALLOWED_ORIGINS: 'https://ok.example',
  }),
);

/**
 * @typedef {[what: string, path: string, request: {method?: string, body?: unknown, headers?: Record<string, string>, key?: string}, status: number, message: string]} HttpRow
 */
const POST = (/** @type {unknown} */ body, headers = {}) => ({ body, headers });
const AS_READER = { key: READER };

/** @type {HttpRow[]} */
const HTTP = [
  [
    'no key',
    '/rooms',
    { key: '' },
    401,
    'An API key is required: send the header Authorization: Bearer SECRET (API_KEYS).',
  ],
  [
    'a wrong key',
    '/rooms',
    { key: 'nope' },
    401,
    'No API key has the secret of the header Authorization (API_KEYS).',
  ],
  [
    'another scheme',
    '/rooms',
    { key: '', headers: { Authorization: 'Basic YTpi' } },
    401,
    'The header Authorization does not have the form of an API key: Bearer SECRET.',
  ],
  [
    'the key in the query',
    `/rooms?key=${KEY}`,
    { key: '' },
    401,
    'An API key is required: send the header Authorization: Bearer SECRET (API_KEYS).',
  ],
  ['a GET of publish', '/publish', {}, 405, 'This path takes POST, not GET.'],
  ['a POST of rooms', '/rooms', POST({}), 405, 'This path takes GET or HEAD, not POST.'],
  ['no body', '/publish', { method: 'POST' }, 400, 'The body is not a JSON object: it is empty.'],
  [
    'no JSON',
    '/publish',
    POST('{room:"a"}'),
    400,
    'The body is not a JSON object: unexpected "r" at byte 1.',
  ],
  [
    'a body cut off',
    '/publish',
    POST('{"room":"a","payload":{"x":'),
    400,
    'The body is not a JSON object: it ends too early, at byte 27.',
  ],
  [
    'text after the body',
    '/publish',
    POST('{"room":"a","payload":1};'),
    400,
    'The body is not a JSON object: unexpected ";" at byte 24.',
  ],
  [
    'no UTF-8',
    '/publish',
    POST(Buffer.from('{"room":"a","payload":"\xe9"}', 'latin1')),
    400,
    'The body is not a JSON object: not UTF-8.',
  ],
  ['a list', '/publish', POST([]), 400, 'The body is not a JSON object: unexpected "[" at byte 0.'],
  [
    'too deep',
    '/publish',
    POST(`{"room":"a","payload":${'['.repeat(40)}`),
    400,
    'The body is not a JSON object: over 32 levels at byte 53.',
  ],
  [
    'a form',
    '/publish',
    POST('room=a', { 'Content-Type': 'application/x-www-form-urlencoded' }),
    415,
    'The header Content-Type is "application/x-www-form-urlencoded", not application/json.',
  ],
  [
    'gzip',
    '/publish',
    POST({ room: 'a', payload: 1 }, { 'Content-Encoding': 'gzip' }),
    415,
    'The header Content-Encoding is "gzip": send the body without one.',
  ],
  [
    'channel for room',
    '/publish',
    POST({ channel: 'a', payload: 1 }),
    422,
    'Unknown field channel. The fields are room, rooms, payload, upload, key, except, expect, audience.',
  ],
  [
    'data for payload',
    '/publish',
    POST({ room: 'a', data: 1 }),
    422,
    'Unknown field data. The fields are room, rooms, payload, upload, key, except, expect, audience.',
  ],
  [
    'a misspelt room',
    '/publish',
    POST({ rom: 'a', payload: 1 }),
    422,
    'Unknown field rom. Did you mean room?',
  ],
  [
    'no payload',
    '/publish',
    POST({ room: 'a' }),
    422,
    'payload: exactly one of payload and upload is required.',
  ],
  ['a room with a space', '/publish', POST({ room: 'a b', payload: 1 }), 422, `room: ${A_ROOM}.`],
  ['a room that is a number', '/publish', POST({ room: 5, payload: 1 }), 422, `room: ${A_ROOM}.`],
  ['an empty room', '/publish', POST({ room: '', payload: 1 }), 422, `room: ${A_ROOM}.`],
  [
    'room and rooms',
    '/publish',
    POST({ room: 'a', rooms: ['b'], payload: 1 }),
    422,
    'room: exactly one of room and rooms is required.',
  ],
  [
    'rooms as a text',
    '/publish',
    POST({ rooms: 'a,b', payload: 1 }),
    422,
    'rooms: a list of 1 to 1,000 different rooms; a room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -.',
  ],
  [
    '1,001 rooms',
    '/publish',
    POST({ rooms: Array.from({ length: 1001 }, (_, i) => `r${i}`), payload: 1 }),
    422,
    'rooms: a list of 1 to 1,000 different rooms; a room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -.',
  ],
  [
    'a room twice',
    '/publish',
    POST('{"room":"a","room":"b","payload":1}'),
    422,
    'room: it occurs twice.',
  ],
  [
    'a key in a plain room',
    '/publish',
    POST({ room: 'chat.1', key: 'x', payload: 1 }),
    422,
    'key: Only rooms with state take a key (FANFARE_STATE).',
  ],
  [
    'no key in a room with state',
    '/publish',
    POST({ room: 'price.1', payload: 1 }),
    422,
    'key: The room has state: give a key of 1 to 200 characters without control characters.',
  ],
  [
    'a value too large',
    '/publish',
    POST({ room: 'price.1', key: 'a', payload: 'x'.repeat(2000) }),
    413,
    'The payload of a key has 2,002 bytes, over the limit of 1,000 bytes (FANFARE_STATE_MAX_VALUE_BYTES).',
  ],
  [
    'a payload too large',
    '/publish',
    POST({ room: 'a', payload: 'x'.repeat(200_000) }),
    413,
    'The payload has 200,002 bytes, over the limit of 50,000 bytes (FANFARE_MAX_INLINE_BYTES).',
  ],
  [
    'a body too large',
    '/publish',
    POST({ room: 'a', payload: 'x'.repeat(400_000) }),
    413,
    'The body has 400,025 bytes, over the limit of 300,000 bytes (FANFARE_API_MAX_BODY_BYTES).',
  ],
  [
    'an event of an app too large',
    '/publish',
    { ...POST({ room: 'a', payload: 'x'.repeat(20_000) }), key: APP_KEY },
    413,
    'The payload has 20,002 bytes, over the limit of 10,240 bytes ("maxEventBytes" of the app).',
  ],
  [
    'an idempotency key with a space',
    '/publish',
    POST({ room: 'a', payload: 1 }, { 'Idempotency-Key': 'a b' }),
    400,
    'Idempotency-Key: 1 to 128 visible ASCII characters.',
  ],
  [
    'a strange except',
    '/publish',
    POST({ room: 'a', payload: 1, except: 5 }),
    422,
    'except: the connectionId of a welcome.',
  ],
  [
    'a batch without a list',
    '/publish/batch',
    POST({ messages: {} }),
    422,
    'messages: a list of 1 to 1,000 objects.',
  ],
  [
    'a batch with a bad room',
    '/publish/batch',
    POST({
      messages: [
        { room: 'a', payload: 1 },
        { room: ' ', payload: 1 },
      ],
    }),
    422,
    'messages[1].room: a room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -.',
  ],
  ['a limit of 5,000', '/rooms?limit=5000', {}, 400, 'limit: a whole number from 1 to 1,000.'],
  [
    'a limit that is no number',
    '/rooms?limit=abc',
    {},
    400,
    'limit: a whole number from 1 to 1,000.',
  ],
  [
    'a page',
    '/rooms?page=2',
    {},
    400,
    'Unknown parameter page. The parameters are prefix, after, limit.',
  ],
  ['a misspelt parameter', '/rooms?limt=5', {}, 400, 'Unknown parameter limt. Did you mean limit?'],
  [
    'history of a plain room',
    '/rooms/plain/history',
    {},
    404,
    'The room plain has no history: no pattern of FANFARE_HISTORY fits its name.',
  ],
  [
    'history in a room of an app',
    '/rooms/plain/history',
    { key: APP_KEY },
    404,
    'The room plain has no history: no pattern of "history" of the app fits its name.',
  ],
  [
    'a strange position',
    '/rooms/chat.1/history?since=abc',
    {},
    400,
    'since: an epoch and an offset, as in 0123456789abcdef:42.',
  ],
  [
    'a date',
    '/rooms/chat.1/history?sinceTime=2026-01-01',
    {},
    400,
    'sinceTime: whole milliseconds since 1970.',
  ],
  [
    'presence of a plain room',
    '/rooms/plain/presence',
    {},
    404,
    'The room plain has no presence: no pattern of FANFARE_PRESENCE fits its name.',
  ],
  [
    'state of a plain room',
    '/rooms/plain/state',
    {},
    404,
    'The room plain has no state: no pattern of FANFARE_STATE fits its name.',
  ],
  [
    'a close code of the protocol',
    '/disconnect',
    POST({ user: 'x', code: 1000 }),
    422,
    'code: a whole number from 4000 to 4999.',
  ],
  [
    'nobody to disconnect',
    '/disconnect',
    POST({}),
    422,
    'user: exactly one of user and connectionId is required.',
  ],
  ['no such connection', '/connections/abc', {}, 404, 'No connection has this id.'],
  [
    'connections of nobody',
    '/connections',
    {},
    400,
    'user: exactly one of user, room and address is required.',
  ],
  [
    'milliseconds in revoke',
    '/revoke',
    POST({ user: 'x', issuedBefore: Date.now() }),
    422,
    'issuedBefore: whole seconds since 1970.',
  ],
  [
    'a user and a token to revoke',
    '/revoke',
    POST({ user: 'x', tokenId: 'y' }),
    422,
    'user: exactly one of user and tokenId is required.',
  ],
  [
    'a key without the right',
    '/publish',
    { ...POST({ room: 'chat.1', payload: 1 }), ...AS_READER },
    403,
    'The API key "reader" lacks the right publish (API_KEYS).',
  ],
  [
    'a room that the key does not cover',
    '/rooms/other',
    AS_READER,
    403,
    'The API key "reader" does not cover the room "other" (API_KEYS).',
  ],
  [
    'all rooms for some of them',
    '/connections?user=bob',
    AS_READER,
    403,
    'The API key "reader" is limited to rooms, and the request concerns all rooms (API_KEYS).',
  ],
  [
    'all apps for one',
    '/connections?address=::1',
    { key: APP_KEY },
    403,
    'The API key "app" belongs to an app, and the request concerns all apps (API_KEYS).',
  ],
  [
    'a broadcast by an app',
    '/broadcast',
    { ...POST({ payload: 1 }), key: APP_KEY },
    403,
    'The API key "app" lacks the right broadcast (API_KEYS).',
  ],
  [
    'a slash at the end',
    '/publish/',
    POST({ room: 'a', payload: 1 }),
    404,
    'There is no path "/api/publish/". Did you mean /api/publish?',
  ],
  [
    'a plural',
    '/publishes',
    POST({ room: 'a', payload: 1 }),
    404,
    'There is no path "/api/publishes". Did you mean /api/publish?',
  ],
  ['no path', '', {}, 404, 'There is no path "/api".'],
  [
    'a raw body without a bucket',
    '/publish?room=a',
    POST('x'),
    404,
    'The server is not configured for large messages (FANFARE_BLOB_URL).',
  ],
];

describe('the HTTP API tells a developer', () => {
  for (const [what, path, { key = KEY, ...request }, status, message] of HTTP)
    test(what, OPTIONS, async () => {
      const answer = await apiOf(await start(), key)(path, request);
      assert.deepEqual([answer.status, answer.body.message], [status, message]);
    });
});

/** @type {[what: string, path: string, headers: Record<string, string>, status: number, message: string][]} */
const PUBLIC = [
  [
    'a stream of a strange room',
    '/sse?room=a%20b',
    {},
    400,
    'A room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -',
  ],
  [
    'a stream with nine rooms',
    `/sse?${'abcdefghi'.replaceAll(/./g, 'room=$&&')}`,
    {},
    400,
    'A stream of server-sent events has at most 8 rooms. Open another one for more.',
  ],
  [
    'a stream with a strange last',
    '/sse?room=chat.1&last=0',
    {},
    400,
    'last must be from 1 to 10000, and lastSeconds to 604800.',
  ],
  [
    'a stream of a room that the token does not name',
    `/sse?room=other&token=@`,
    {},
    403,
    "The token's rooms.join does not name the room other.",
  ],
  [
    'a stream from another origin',
    '/sse?room=chat.1',
    { Origin: 'https://bad.example' },
    403,
    'This origin is not allowed (ALLOWED_ORIGINS).',
  ],
  ['a stream by POST', '/sse?room=chat.1', { method: 'POST' }, 405, 'Only GET is allowed.'],
];

const RIGHTS = { join: ['chat.*', 'price.*'], publish: ['chat.*', 'price.*'] };
const TOKEN = () => token({ sub: 'ann', rooms: RIGHTS });

describe('the public port tells a developer', () => {
  for (const [what, path, { method, ...headers }, status, message] of PUBLIC)
    test(what, OPTIONS, async () => {
      const { port } = await start();
      const url = `http://127.0.0.1:${port}${path.replace('@', TOKEN())}`;
      const response = await fetch(url, { method, headers });
      const body = /** @type {{message: string}} */ (await response.json());
      assert.deepEqual([response.status, body.message], [status, message]);
    });
});

/** @type {[what: string, command: object|string, error: string, message: string][]} */
const COMMANDS = [
  [
    'no JSON',
    'hello',
    'INVALID_MESSAGE_FORMAT',
    'The message is not a JSON object: unexpected "h" at byte 0.',
  ],
  ['nothing', '', 'INVALID_MESSAGE_FORMAT', 'The message is not a JSON object: it is empty.'],
  [
    'no type',
    {},
    'INVALID_MESSAGE_FORMAT',
    'A command needs a "type", such as {"type":"join","room":"lobby"}.',
  ],
  [
    'a type of other servers',
    { type: 'subscribe', room: 'chat.1' },
    'UNKNOWN_TYPE',
    'Unknown type "subscribe". The types are hello, join, leave, message, history, broadcast, echo, presence, ping, auth.',
  ],
  [
    'a misspelt type',
    { type: 'mesage', room: 'chat.1', payload: 1 },
    'UNKNOWN_TYPE',
    'Unknown type "mesage"; did you mean message?',
  ],
  [
    'a channel',
    { type: 'join', channel: 'chat.1' },
    'INVALID_ROOM',
    'room is missing. A room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -',
  ],
  [
    'a room with a space',
    { type: 'join', room: 'chat 1' },
    'INVALID_ROOM',
    'A room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -',
  ],
  [
    'a room that is not permitted',
    { type: 'join', room: 'other' },
    'PERMISSION_DENIED',
    "The token's rooms.join does not name this room.",
  ],
  [
    'a message without a room',
    { type: 'message', text: 'x' },
    'ROOM_REQUIRED',
    'Name a room: the connection is in no room or in several.',
  ],
  [
    'a message without a payload',
    { type: 'message', room: 'chat.1' },
    'INVALID_MESSAGE_FORMAT',
    'A message has either a payload or a text, which is a string.',
  ],
  [
    'data',
    { type: 'message', room: 'chat.1', data: 1 },
    'INVALID_MESSAGE_FORMAT',
    'A message has either a payload or a text, which is a string.',
  ],
  [
    'a payload too large',
    { type: 'message', room: 'chat.1', payload: 'x'.repeat(60_000) },
    'MESSAGE_TOO_LARGE',
    'The payload has 60,002 bytes, over the limit of 50,000 bytes (FANFARE_MAX_INLINE_BYTES).',
  ],
  [
    'a value too large',
    { type: 'message', room: 'price.1', key: 'a', payload: 'x'.repeat(2000) },
    'MESSAGE_TOO_LARGE',
    'The payload of a key has 2,002 bytes, over the limit of 1,000 bytes (FANFARE_STATE_MAX_VALUE_BYTES).',
  ],
  [
    'a large info',
    { type: 'join', room: 'chat.1', presence: { info: 'x'.repeat(2000) } },
    'MESSAGE_TOO_LARGE',
    'presence.info has 2,002 bytes, over the limit of 1,024 bytes.',
  ],
  [
    'history without the right',
    { type: 'history', room: 'chat.1' },
    'PERMISSION_DENIED',
    "The token's rooms.history does not name this room.",
  ],
  [
    'presence without the right',
    { type: 'presence', room: 'chat.1' },
    'PERMISSION_DENIED',
    "The token's rooms.presence does not name this room.",
  ],
  [
    'another user in presence',
    { type: 'join', room: 'chat.1', presence: { user: 'bob' } },
    'PERMISSION_DENIED',
    'presence.user is not the user of this connection: leave it out.',
  ],
  [
    'a large last',
    { type: 'join', room: 'price.1', last: 50_000 },
    'INVALID_MESSAGE_FORMAT',
    'last is a whole number from 1 to 10000, lastSeconds to 604800.',
  ],
  [
    'no key in a room with state',
    { type: 'message', room: 'price.1', payload: 1 },
    'INVALID_MESSAGE_FORMAT',
    'The room has state: give a key of 1 to 200 characters without control characters.',
  ],
  [
    'a key in a plain room',
    { type: 'message', room: 'chat.1', payload: 1, key: 'a' },
    'INVALID_MESSAGE_FORMAT',
    'Only rooms with state take a key (FANFARE_STATE).',
  ],
  [
    'a broadcast without the right',
    { type: 'broadcast', payload: 1 },
    'PERMISSION_DENIED',
    'The token lacks "broadcast": true.',
  ],
  [
    'a leave of a room that was not joined',
    { type: 'leave', room: 'chat.9' },
    'NOT_IN_ROOM',
    'The connection is not in this room.',
  ],
  [
    'a token of another user',
    { type: 'auth', token: '@' },
    'PERMISSION_DENIED',
    'The token names another user than that of the connection. Open a new connection for it.',
  ],
  [
    'an id that is an object',
    { type: 'ping', id: {} },
    'INVALID_MESSAGE_FORMAT',
    'id: a string of at most 64 characters, or a whole number up to 2^53.',
  ],
];

describe('a WebSocket tells a developer', () => {
  for (const [what, command, error, message] of COMMANDS)
    test(what, OPTIONS, async (t) => {
      const { port } = await start();
      const client = await connect(t, `ws://127.0.0.1:${port}/ws?token=${TOKEN()}`);
      const text = typeof command === 'string' ? command : JSON.stringify(command);
      client.send(text.replace('"@"', () => JSON.stringify(token({ sub: 'bob' }))));
      const answer = await client.next('error');
      assert.deepEqual([answer.error, answer.message], [error, message]);
    });

  test('the room limit', OPTIONS, async (t) => {
    const { port } = await start();
    const client = await connect(t, `ws://127.0.0.1:${port}/ws?token=${TOKEN()}`);
    for (let i = 0; i <= 128; i++) client.send({ type: 'join', room: `chat.${i}` });
    const { message } = await client.next('error');
    assert.equal(
      message,
      'Room limit reached: 128 for a connection (FANFARE_MAX_ROOMS_PER_CONNECTION).',
    );
  });
});

const NOW_S = Math.floor(Date.now() / 1000);

/** With FANFARE_TOKEN_REASONS, as on a terminal. @type {[what: string, token: string, message: string][]} */
const TOKENS = [
  [
    'none',
    '',
    'A token is missing: send it as Authorization: Bearer <token>, or as the parameter token.',
  ],
  [
    'no JWT',
    'abc',
    'The token is not valid: it is not a JWT (three parts of base64url, the first two JSON objects).',
  ],
  [
    'another secret',
    token({}, OTHER_SECRET),
    'The token is not valid: it was not signed with a configured key.',
  ],
  [
    'no sub',
    token({ sub: undefined }),
    'The token is not valid: claim sub: it is missing or empty.',
  ],
  [
    'a sub that is a list',
    token({ sub: ['ann'] }),
    'The token is not valid: claim sub: it is neither a string nor an integer.',
  ],
  ['no exp', token({ exp: undefined }), 'The token is not valid: claim exp: it is missing.'],
  ['no iat', token({ iat: undefined }), 'The token is not valid: claim iat: it is missing.'],
  [
    'an exp in milliseconds',
    token({ exp: Date.now() + 60_000 }),
    'The token is not valid: exp is N s after iat (milliseconds? JWT has seconds), JWT_MAX_LIFETIME_S permits 604800.',
  ],
  [
    'ten years',
    token({ exp: NOW_S + 315_360_000 }),
    'The token is not valid: exp is N s after iat, JWT_MAX_LIFETIME_S permits 604800.',
  ],
  [
    'an exp that has passed',
    token({ iat: NOW_S - 7200, exp: NOW_S - 3600 }),
    'The token has expired: exp passed N s ago.',
  ],
  [
    'rooms as a list',
    token({ rooms: ['a'] }),
    'The token is not valid: claim rooms: it is not an object with lists of up to 100 room patterns: join, publish, presence, history, audience.',
  ],
];

describe('a refused token names its fault', () => {
  for (const [what, text, message] of TOKENS)
    test(what, OPTIONS, async () => {
      const { port } = await start();
      const url = `http://127.0.0.1:${port}/sse?room=chat.1${text && `&token=${text}`}`;
      const response = await fetch(url, { headers: { Accept: 'application/json' } });
      const answer = /** @type {{message: string}} */ (await response.json());
      const told = answer.message.replace(/\d+ s (ago|after)/, 'N s $1');
      assert.deepEqual([response.status, told], [401, message]);
    });
});

/** @type {[what: string, path: string, headers: Record<string, string>, status: number, message: string][]} */
const HANDSHAKES = [
  ['another path', '/socket', {}, 404, 'Not found. WebSockets are at /ws.'],
  [
    'the path of Socket.IO',
    '/socket.io/?EIO=4&transport=websocket',
    {},
    404,
    'This server does not speak Socket.IO. docs/migration.md says how to move a Socket.IO application.',
  ],
  [
    "Centrifugo's path, with its door off",
    '/connection/websocket',
    {},
    404,
    "Centrifugo's protocol is off: set FANFARE_CENTRIFUGO=on.",
  ],
  [
    'another origin',
    '/ws',
    { Origin: 'https://bad.example' },
    403,
    'This origin is not allowed (ALLOWED_ORIGINS).',
  ],
];

describe('a refused handshake names its fault', () => {
  for (const [what, path, headers, status, message] of HANDSHAKES)
    test(what, OPTIONS, async () => {
      const { port } = await start();
      const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`, { headers });
      socket.on('error', () => {});
      const [, response] = await once(socket, 'unexpected-response');
      const { message: text } = JSON.parse(String(Buffer.concat(await response.toArray())));
      assert.deepEqual([response.statusCode, text], [status, message]);
    });
});
