// fields.js: the private fields of Node, ws and ioredis that the fast paths use, and how a test hides
// each of them: by a change of the source that asks for another name, as after a renaming.

/**
 * @typedef {object} Field
 * @property {import('../../../src/observability/counters.js').FastPath|'all'} path that its gauge
 *   names
 * @property {string} file from the root
 * @property {string} text in the file
 * @property {string} hidden in its place
 */

/** @type {Readonly<Record<string, Field>>} by the name that TEST_HIDDEN_FIELD gives */
export const FIELDS = Object.freeze({
  fd: {
    path: 'direct_write',
    file: 'src/transport/fast/direct-write.js',
    text: '(socket))._handle',
    hidden: '(socket))._hidden',
  },
  kBuffer: {
    path: 'shared_reads',
    file: 'src/transport/fast/shared-reads.js',
    text: "find('kBuffer')",
    hidden: "find('kHidden')",
  },
  kBufferCb: {
    path: 'shared_reads',
    file: 'src/transport/fast/shared-reads.js',
    text: "find('kBufferCb')",
    hidden: "find('kHidden')",
  },
  useUserBuffer: {
    path: 'shared_reads',
    file: 'src/transport/fast/shared-reads.js',
    text: 'handle?.useUserBuffer',
    hidden: 'handle?.hidden',
  },
  'http-connection': {
    path: 'http_listeners',
    file: 'src/transport/fast/http-listeners.js',
    text: "server.listeners('connection')",
    hidden: "server.listeners('hidden')",
  },
  'http-data': {
    path: 'http_listeners',
    file: 'src/transport/fast/http-listeners.js',
    text: "socket.listeners('data')",
    hidden: "socket.listeners('hidden')",
  },
  'http-upgrade': {
    path: 'short_handshake',
    file: 'src/transport/fast/short-handshake.js',
    text: "server.on('upgrade'",
    hidden: "server.on('hidden'",
  },
  'redis-data': {
    path: 'redis_pushes',
    file: 'src/backend/redis/fast/push-reader.js',
    text: "stream.listeners('data')",
    hidden: "stream.listeners('hidden')",
  },
  'redis-command': {
    path: 'redis_commands',
    file: 'src/backend/redis/fast/own-commands.js',
    text: 'Object.getOwnPropertyNames(Command.prototype)',
    hidden: "[...Object.getOwnPropertyNames(Command.prototype), 'setHidden']",
  },
  _parent: {
    path: 'redis_reset',
    file: 'src/backend/redis/fast/tls-reset.js',
    text: '?._parent;',
    hidden: '?._hidden;',
  },
  // Not a field: as if FANFARE_FAST_PATHS were off in every configuration that a test makes.
  off: {
    path: 'all',
    file: 'src/config/fast-paths.js',
    text: "config.fastPaths === 'off'",
    hidden: "config.fastPaths !== 'always'",
  },
});

/** The fast paths that need others. @type {Readonly<Record<string, readonly string[]>>} */
const NEEDS = Object.freeze({
  short_handshake: ['http_listeners'],
});

/**
 * Is this fast path off because of TEST_HIDDEN_FIELD?
 * @param {import('../../../src/observability/counters.js').FastPath|'all'} name
 */
export function isOff(name) {
  const hidden = process.env.TEST_HIDDEN_FIELD;
  if (hidden === undefined) return false;
  return ['all', name, ...(NEEDS[name] ?? [])].includes(FIELDS[hidden].path);
}

/** For tests of the reader itself: without this field it reads nothing. */
export const withoutPushReader =
  process.env.TEST_HIDDEN_FIELD === 'redis-data' && 'redis-data is hidden';
