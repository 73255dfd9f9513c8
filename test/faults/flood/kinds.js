// kinds.js: the bytes of each kind of flood.
//
// A flood of WebSocket connections sends `once` behind its handshake and then `blocks`, one after
// another, as fast as the socket takes them. The other floods (`http`) never finish a handshake, or
// do not want one.

import { frame, OPCODES } from '../../helpers/raw-frames.js';

/** Bytes of one write: the largest read of a socket. */
const BLOCK_BYTES = 65_536;
/** Different blocks of joins: 64 × 400 rooms. */
const JOIN_BLOCKS = 64;

/** The app of the flooded server. Its secret is unknown to the floods. */
export const APP = Object.freeze({ id: '1', key: 'flood' });
const PUSHER_PATH = `/app/${APP.key}?protocol=7`;
const WRONG = `${APP.key}:${'0'.repeat(64)}`;
const CENTRIFUGO_PATH = '/connection/websocket';
const CONNECT = '{"id":1,"connect":{}}';
/** A room that is full of recent messages before the flood that reads them. */
export const KEPT_ROOM = 'flood.kept';
const DEEP = '['.repeat(5000) + ']'.repeat(5000);

/**
 * @typedef {object} Kind
 * @property {string} name the row of the table
 * @property {'connects'|'half-open'|'keep-alive'} [http] not a flood of frames
 * @property {string} [path] of the handshake, if it is not the usual one
 * @property {string} [request] of the floods `keep-alive` and `half-open`, if it is not for /livez,
 *   or half a handshake
 * @property {(address: string) => Buffer} [once] sent first on each connection
 * @property {() => readonly Buffer[]} [blocks] then these, in turn
 * @property {boolean} [isDeaf] it never reads
 * @property {boolean} [reads] it reads the messages of KEPT_ROOM
 * @property {boolean} [hasWebhooks] the server sends webhooks of what it causes
 */

/** @type {Readonly<Record<string, Kind>>} */
export const KINDS = Object.freeze({
  pongs: { name: 'pongs', blocks: () => [repeat(frame(OPCODES.pong, ''))] },
  pings: { name: 'pings', blocks: () => [repeat(frame(OPCODES.ping, ''))] },
  empty: { name: 'empty text frames', blocks: () => [repeat(frame(OPCODES.text, ''))] },
  text: {
    name: '125-byte text',
    blocks: () => [repeat(frame(OPCODES.text, padded('{"type":"ping","pad":"', '"}', 125)))],
  },
  invalid: { name: 'invalid JSON', blocks: () => [repeat(frame(OPCODES.text, '{"type":'))] },
  joins: {
    name: 'joins and leaves',
    blocks: () => Array.from({ length: JOIN_BLOCKS }, (_, i) => joinsAndLeaves(i)),
  },
  echo: {
    name: 'echo, not read',
    blocks: () => [frame(OPCODES.text, padded('{"type":"echo","payload":"', '"}', 60_000))],
    isDeaf: true,
  },
  publishes: {
    name: 'publishes',
    // One room for all: a message costs its sender little and the server 2,000 deliveries.
    once: () => command({ type: 'join', room: 'flood' }),
    blocks: () => [
      repeat(frame(OPCODES.text, padded('{"type":"message","payload":"', '"}', 1024))),
    ],
  },
  fragments: {
    name: 'fragments',
    once: () => frame(OPCODES.text, '"', { isFinal: false }),
    blocks: () => [repeat(frame(OPCODES.continuation, 'a', { isFinal: false }))],
  },
  connects: { name: 'connects and hang-ups', http: 'connects' },
  'half-open': { name: 'half-open handshakes', http: 'half-open' },
  'keep-alive': { name: 'plain HTTP keep-alive', http: 'keep-alive' },
  'pusher-signatures': {
    name: 'Pusher: subscriptions, wrongly signed',
    path: PUSHER_PATH,
    blocks: () => [repeat(pusher({ channel: 'private-flood', auth: WRONG }))],
  },
  'pusher-channels': {
    name: 'Pusher: subscriptions and their ends',
    path: PUSHER_PATH,
    blocks: () => Array.from({ length: JOIN_BLOCKS }, (_, i) => channels(i)),
  },
  'pusher-depth': {
    name: 'Pusher: deep JSON',
    path: PUSHER_PATH,
    blocks: () => [repeat(frame(OPCODES.text, `{"event":"pusher:subscribe","data":${DEEP}}`))],
  },
  'centrifugo-channels': {
    name: 'Centrifugo: subscriptions and their ends',
    path: CENTRIFUGO_PATH,
    once: () => frame(OPCODES.text, CONNECT),
    blocks: () => Array.from({ length: JOIN_BLOCKS }, (_, i) => subscriptions(i)),
  },
  'centrifugo-lines': {
    name: 'Centrifugo: thousands of commands in a frame',
    path: CENTRIFUGO_PATH,
    once: () => frame(OPCODES.text, CONNECT),
    blocks: () => [frame(OPCODES.text, '{"id":2,"ping":{}}\n'.repeat(3000).trimEnd())],
  },
  'centrifugo-depth': {
    name: 'Centrifugo: deep JSON',
    path: CENTRIFUGO_PATH,
    once: () => frame(OPCODES.text, CONNECT),
    blocks: () => [repeat(frame(OPCODES.text, `{"id":2,"rpc":{"method":"m","data":${DEEP}}}`))],
  },
  'centrifugo-zeros': {
    name: 'Centrifugo: empty commands before a connect',
    path: `${CENTRIFUGO_PATH}?format=protobuf`,
    blocks: () => [frame(OPCODES.binary, Buffer.alloc(100_000))],
  },
  'centrifugo-recover': {
    name: 'Centrifugo: recovers and unsubscribes in turns',
    path: CENTRIFUGO_PATH,
    once: () => frame(OPCODES.text, CONNECT),
    blocks: () => [repeat(Buffer.concat(recoveries()))],
    reads: true,
  },
  'centrifugo-stream': {
    name: 'Centrifugo: HTTP streaming, empty commands',
    http: 'keep-alive',
    request: posted('/connection/http_stream', 'application/octet-stream', '\0'.repeat(65_536)),
  },
  'centrifugo-emulation': {
    name: 'Centrifugo: bodies of the emulation',
    http: 'keep-alive',
    request: posted('/emulation', 'application/json', emulated()),
  },
  'centrifugo-slow-bodies': {
    name: 'Centrifugo: bodies of the emulation, a byte a second',
    http: 'half-open',
    request: posted('/emulation', 'application/json', emulated()).slice(0, 300),
  },
  'pusher-caches': {
    name: 'Pusher: invented cache channels, with webhooks',
    path: PUSHER_PATH,
    blocks: () => Array.from({ length: JOIN_BLOCKS }, (_, i) => channels(i, 'cache-flood')),
    hasWebhooks: true,
  },
  'pusher-api': {
    name: 'Pusher: HTTP API, wrongly signed',
    http: 'keep-alive',
    request: apiRequest(),
  },
});

/** @param {object} message */
function command(message) {
  return frame(OPCODES.text, JSON.stringify(message));
}

/** @param {Buffer} one */
function repeat(one) {
  return Buffer.concat(new Array(Math.max(1, Math.floor(BLOCK_BYTES / one.length))).fill(one));
}

/** @param {number} block */
function joinsAndLeaves(block) {
  return Buffer.concat(
    Array.from({ length: 400 }, (_, i) => {
      const room = `flood.${block}.${i}`;
      return [command({ type: 'join', room }), command({ type: 'leave', room })];
    }).flat(),
  );
}

/** @param {object} data of a subscription */
function pusher(data) {
  return command({ event: 'pusher:subscribe', data });
}

/** @param {number} block */
function channels(block, name = 'flood') {
  return Buffer.concat(
    Array.from({ length: 400 }, (_, i) => {
      const data = { channel: `${name}.${block}.${i}` };
      return [pusher(data), command({ event: 'pusher:unsubscribe', data })];
    }).flat(),
  );
}

/** @param {number} block */
function subscriptions(block) {
  return Buffer.concat(
    Array.from({ length: 400 }, (_, i) => {
      const request = { channel: `flood.${block}.${i}` };
      return [command({ id: 2, subscribe: request }), command({ id: 3, unsubscribe: request })];
    }).flat(),
  );
}

/** The same client asks for all messages of a room again and again. */
function recoveries() {
  const request = { channel: KEPT_ROOM, recover: true, epoch: '', offset: 0 };
  return [
    command({ id: 2, subscribe: request }),
    command({ id: 3, unsubscribe: { channel: KEPT_ROOM } }),
  ];
}

/** Commands for no stream, whose JSON takes long to read. */
function emulated() {
  return `{"session":"a","data":"${'\\u0061'.repeat(10_900)}"}`;
}

/** @param {string} path @param {string} type @param {string} body */
function posted(path, type, body) {
  return `POST ${path} HTTP/1.1\r\nHost: fanfare.test\r\nContent-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

/** A request with everything but the right signature. */
function apiRequest() {
  const body = JSON.stringify({ name: 'e', channel: 'flood', data: 'x'.repeat(1000) });
  const now = Math.floor(Date.now() / 1000);
  const query = `auth_key=${APP.key}&auth_timestamp=${now}&auth_version=1.0&body_md5=${'0'.repeat(32)}&auth_signature=${'0'.repeat(64)}`;
  return `POST /apps/${APP.id}/events?${query} HTTP/1.1\r\nHost: fanfare.test\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

/** @param {string} before @param {string} after @param {number} length */
function padded(before, after, length) {
  return before + 'x'.repeat(length - before.length - after.length) + after;
}
