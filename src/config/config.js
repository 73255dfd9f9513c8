// config.js: every setting, in one table.
//
// A setting is one row: its environment name, its key in the code, its type, default, bounds and
// meaning. `loadConfig` reads them all, reports every fault at once (a start that fails five times
// for five typing errors is five outages) and freezes the result. The README's table is held equal
// to this one by a test. Only main.js reads the environment.

import { availableParallelism, hostname } from 'node:os';
import { isDeepStrictEqual } from 'node:util';

import { describeRedis, readRedisSettings } from './redis.js';
import { parseHistoryRules, parsePresenceRules } from './room-patterns.js';
import { compileTrustProxy } from './trust-proxy.js';

/** What a limit does: nothing, count what it would have done, or act. */
export const MODES = /** @type {const} */ (['off', 'observe', 'enforce']);

/** @typedef {typeof MODES[number]} Mode */

/**
 * @typedef {object} Setting
 * @property {string} env the environment variable
 * @property {string} key its name in the frozen configuration
 * @property {'integer'|'string'|'enum'|'list'|'mode'} type
 * @property {unknown} default what holds where the variable is absent or empty; a function is
 *   called
 * @property {number} [min] smallest integer allowed
 * @property {number} [max] largest integer allowed
 * @property {readonly string[]} [values] of an enum
 * @property {RegExp} [pattern] of a string
 * @property {boolean} [secret] never logged or shown
 * @property {boolean} [fixed] can't be changed by a rolling reload: it belongs to the primary
 * @property {'redis'} [part] of what other entry of the configuration it is a part; it has none of
 *   its own
 * @property {string} meaning one line for the README
 */

/** Where Redis is: read together, and one entry of the configuration. @type {readonly Setting[]} */
const REDIS_SETTINGS = [
  string(
    'REDIS_URL',
    'redisUrl',
    '',
    'Redis to share with other servers (`redis://`, `rediss://`). Without one: the embedded broker, one machine.',
    true,
    true,
  ),
  string('REDIS_HOST', 'redisHost', '', 'Redis host, instead of `REDIS_URL`.', true),
  integer('REDIS_PORT', 'redisPort', 6379, 1, 65_535, 'Redis port, beside `REDIS_HOST`.', true),
  list(
    'REDIS_SENTINELS',
    'redisSentinels',
    'Sentinels that know the primary, as `host:port` separated by commas, instead of `REDIS_URL`.',
    true,
  ),
  string(
    'REDIS_SENTINEL_NAME',
    'redisSentinelName',
    '',
    'What the Sentinels call the primary.',
    true,
  ),
  list(
    'REDIS_CLUSTER',
    'redisCluster',
    'Some nodes of a Redis Cluster, as `host:port` separated by commas, instead of `REDIS_URL`; it tells the others.',
    true,
  ),
  string('REDIS_USERNAME', 'redisUsername', '', 'ACL user of Redis.', true),
  string(
    'REDIS_PASSWORD',
    'redisPassword',
    '',
    'Its password, or that of the default user.',
    true,
    true,
  ),
  string(
    'REDIS_SENTINEL_USERNAME',
    'redisSentinelUsername',
    '',
    'ACL user of the Sentinels.',
    true,
  ),
  string(
    'REDIS_SENTINEL_PASSWORD',
    'redisSentinelPassword',
    '',
    'Password of the Sentinels.',
    true,
    true,
  ),
  choice(
    'REDIS_TLS',
    'redisTls',
    'off',
    ['off', 'on'],
    'TLS to Redis and to its Sentinels, as `rediss://` means.',
    true,
  ),
  string(
    'REDIS_TLS_CA_FILE',
    'redisTlsCaFile',
    '',
    'Certificates (PEM) that vouch for Redis, instead of the system’s.',
    true,
  ),
  string('REDIS_TLS_CERT_FILE', 'redisTlsCertFile', '', 'Certificate (PEM) shown to Redis.', true),
  string('REDIS_TLS_KEY_FILE', 'redisTlsKeyFile', '', 'Its key (PEM).', true),
  string(
    'REDIS_TLS_SERVERNAME',
    'redisTlsServername',
    '',
    'Name that Redis’ certificate must bear, where it is not the host’s.',
    true,
  ),
].map((setting) => ({ ...setting, part: 'redis' }));

/** @type {readonly Setting[]} */
export const SETTINGS = Object.freeze([
  integer(
    'PORT',
    'port',
    3000,
    0,
    65_535,
    'Public port: WebSocket, `/livez`, `/readyz`. 0 takes any free one.',
    true,
  ),
  string('HOST', 'host', '', 'Address the public port listens on; empty means all.', true),
  integer(
    'METRICS_PORT',
    'metricsPort',
    9090,
    0,
    65_535,
    'Operations port: `/metrics`, `/livez`, `/readyz`. Prometheus itself has 9090 by default: beside it, set another.',
    true,
  ),
  string(
    'METRICS_HOST',
    'metricsHost',
    '127.0.0.1',
    'Address the operations port listens on.',
    true,
  ),
  integer(
    'WORKERS',
    'workers',
    availableParallelism,
    1,
    1024,
    'Worker processes; one per core.',
    true,
  ),
  ...REDIS_SETTINGS,
  string('SERVER_ID', 'serverId', hostname, 'Name of this server in logs and in `welcome`.', true),
  choice(
    'LOG_LEVEL',
    'logLevel',
    'info',
    ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
    'Least severe log line written.',
  ),
  choice(
    'LOG_FORMAT',
    'logFormat',
    'auto',
    ['auto', 'json', 'text'],
    'Form of the log: `auto` is text on a terminal, and JSON elsewhere or with `NODE_ENV=production`. `NO_COLOR` turns colours off.',
    true,
  ),
  string(
    'TRUST_PROXY',
    'trustProxy',
    '',
    'Proxies whose `X-Forwarded-For` is believed: a hop count, or CIDRs separated by commas.',
  ),
  list(
    'ALLOWED_ORIGINS',
    'allowedOrigins',
    'Origins let in, separated by commas; empty means all. A connection without an Origin is no browser and is let in.',
  ),
  string(
    'FANFARE_CONFIG_FILE',
    'configFile',
    '',
    'File of `NAME=value` lines, read at start and at every SIGHUP; the environment wins over it.',
    true,
  ),
  choice(
    'FANFARE_CLIENT_BROADCAST',
    'clientBroadcast',
    'auto',
    ['auto', 'on', 'off'],
    'May clients `broadcast` to everyone; `auto`: yes while no tokens are configured.',
  ),
  mode(
    'FANFARE_LIMITS',
    'limits',
    'Mode of all rate and connection limits that have no mode of their own. Size limits always hold.',
  ),
  integer(
    'FANFARE_MAX_CONNECTIONS_PER_IP',
    'maxConnectionsPerIp',
    100,
    1,
    1e7,
    'Connections from one client address (IPv6: from one /64), over all workers of this server.',
  ),
  mode('FANFARE_MAX_CONNECTIONS_PER_IP_MODE', 'maxConnectionsPerIpMode', 'Its mode.'),
  integer(
    'FANFARE_MESSAGES_PER_MINUTE',
    'messagesPerMinute',
    100,
    1,
    1e9,
    'Messages a connection may send a minute: what its token bucket refills. A message counts once for each 4 KB begun.',
  ),
  integer(
    'FANFARE_MESSAGES_BURST',
    'messagesBurst',
    100,
    1,
    1e9,
    'Messages a connection may send at once: what its token bucket holds.',
  ),
  mode('FANFARE_MESSAGES_PER_MINUTE_MODE', 'messagesPerMinuteMode', 'Their mode.'),
  integer(
    'FANFARE_MESSAGES_PER_MINUTE_PER_IP',
    'messagesPerMinutePerIp',
    100,
    1,
    1e9,
    'The same for all connections of one client address together, in each worker.',
  ),
  integer('FANFARE_MESSAGES_BURST_PER_IP', 'messagesBurstPerIp', 100, 1, 1e9, 'The same, at once.'),
  mode('FANFARE_MESSAGES_PER_MINUTE_PER_IP_MODE', 'messagesPerMinutePerIpMode', 'Their mode.'),
  integer(
    'FANFARE_BROADCASTS_PER_MINUTE_PER_IP',
    'broadcastsPerMinutePerIp',
    60,
    1,
    1e9,
    'Broadcasts that all connections of one client address may send a minute, in each worker. One counts once for each 4 KB begun.',
  ),
  integer(
    'FANFARE_BROADCASTS_BURST_PER_IP',
    'broadcastsBurstPerIp',
    20,
    1,
    1e9,
    'The same, at once.',
  ),
  mode('FANFARE_BROADCASTS_PER_MINUTE_PER_IP_MODE', 'broadcastsPerMinutePerIpMode', 'Their mode.'),
  integer(
    'FANFARE_FRAMES_PER_MINUTE',
    'framesPerMinute',
    600,
    1,
    1e9,
    'Pings, pongs, empty frames and fragments under 1 KB that a connection may send a minute; beyond them it is closed with 1008.',
  ),
  integer('FANFARE_FRAMES_BURST', 'framesBurst', 100, 1, 1e9, 'The same, at once.'),
  mode('FANFARE_FRAMES_PER_MINUTE_MODE', 'framesPerMinuteMode', 'Their mode.'),
  integer(
    'FANFARE_MAX_REFUSED_MESSAGES',
    'maxRefusedMessages',
    1000,
    1,
    1e9,
    'Messages refused for their rate within a minute after which the connection is closed with 4005.',
  ),
  integer(
    'FANFARE_MAX_HANDSHAKES',
    'maxHandshakes',
    10_000,
    1,
    1e6,
    'Connections of a worker whose client has not sent its whole handshake yet. Above it, the address that has most loses its oldest.',
  ),
  mode(
    'FANFARE_MAX_HANDSHAKES_MODE',
    'maxHandshakesMode',
    'Its mode; `off` also ends the time limit on waiting for the worker.',
  ),
  integer(
    'FANFARE_HANDSHAKE_TIMEOUT_MS',
    'handshakeTimeoutMs',
    8000,
    100,
    120_000,
    'Time a handshake may take, from the connection to the answer.',
  ),
  integer(
    'FANFARE_HANDSHAKES_PER_MINUTE_PER_IP',
    'handshakesPerMinutePerIp',
    600,
    1,
    1e9,
    'Connections and plain HTTP requests from one client address, in each worker: what its token bucket refills a minute.',
  ),
  integer(
    'FANFARE_HANDSHAKES_BURST_PER_IP',
    'handshakesBurstPerIp',
    600,
    1,
    1e9,
    'The same, at once.',
  ),
  mode('FANFARE_HANDSHAKES_PER_MINUTE_PER_IP_MODE', 'handshakesPerMinutePerIpMode', 'Their mode.'),
  integer(
    'FANFARE_MAX_ROOMS_PER_CONNECTION',
    'maxRoomsPerConnection',
    128,
    1,
    1e6,
    'Rooms a connection may be in.',
  ),
  mode('FANFARE_MAX_ROOMS_PER_CONNECTION_MODE', 'maxRoomsPerConnectionMode', 'Its mode.'),
  integer(
    'FANFARE_MAX_LOOP_LAG_MS',
    'maxLoopLagMs',
    500,
    10,
    60_000,
    'Event-loop lag above which a worker takes no new connections.',
  ),
  integer(
    'FANFARE_MAX_HEAP_PERCENT',
    'maxHeapPercent',
    80,
    10,
    100,
    'Share of its heap limit, or of its part of the memory, above which a worker takes no new connections.',
  ),
  mode(
    'FANFARE_OVERLOAD_MODE',
    'overloadMode',
    'Mode of the two above and of the reserve of file descriptors.',
  ),
  integer(
    'FANFARE_MAX_MESSAGE_BYTES',
    'maxMessageBytes',
    102_400,
    128,
    16_777_216,
    'Largest message taken from a client; a larger one closes its connection with 1009.',
  ),
  integer(
    'FANFARE_MAX_PUBSUB_BYTES',
    'maxPubsubBytes',
    65_536,
    1024,
    1_048_576,
    'Largest message sent through Redis pub/sub; a larger one is stored in Redis and a reference is published.',
  ),
  integer(
    'FANFARE_MAX_UNSENT_BYTES',
    'maxUnsentBytes',
    1_048_576,
    16_384,
    1_073_741_824,
    'Bytes that may wait for one connection before it is a slow consumer.',
  ),
  integer(
    'FANFARE_MAX_UNSENT_AGE_MS',
    'maxUnsentAgeMs',
    10_000,
    100,
    600_000,
    'How long the oldest of them may wait.',
  ),
  integer(
    'FANFARE_MAX_UNSENT_HEAP_PERCENT',
    'maxUnsentHeapPercent',
    25,
    1,
    100,
    'Unsent bytes of a whole worker, as a share of its heap limit or of its part of the memory, whichever is less; above it the largest are shed first.',
  ),
  choice(
    'FANFARE_COMPRESSION',
    'compression',
    'off',
    ['off', 'on'],
    'Offer permessage-deflate, without context takeover: a publication of 1 KB or more is compressed once for all who take it.',
  ),
  choice(
    'FANFARE_SLOW_CONSUMER',
    'slowConsumer',
    'close',
    ['close', 'drop'],
    'What becomes of a slow consumer: closed with 4003, or publications are left out until it has caught up.',
  ),
  integer(
    'FANFARE_PING_INTERVAL_MS',
    'pingIntervalMs',
    30_000,
    200,
    3_600_000,
    'Time between two pings to a connection.',
  ),
  integer(
    'FANFARE_PONG_TIMEOUT_MS',
    'pongTimeoutMs',
    10_000,
    100,
    3_600_000,
    'Time in which a sign of life must follow a ping.',
  ),
  integer(
    'FANFARE_DRAIN_DELAY_MS',
    'drainDelayMs',
    2000,
    0,
    600_000,
    'Time between `/readyz` answering 503 and the end of accepting, for the load balancer to notice.',
  ),
  integer(
    'FANFARE_RECONNECT_WINDOW_MS',
    'reconnectWindowMs',
    20_000,
    0,
    600_000,
    'Window over which the clients of a drained worker are told to return.',
  ),
  integer(
    'FANFARE_SHUTDOWN_TIMEOUT_MS',
    'shutdownTimeoutMs',
    30_000,
    1000,
    3_600_000,
    'Time after which a drain is over in any case.',
  ),
  choice(
    'FANFARE_SCHEDULING',
    'scheduling',
    'shared',
    ['shared', 'round-robin'],
    'Who accepts a connection: `shared`, whichever worker is free (the cheaper by half); `round-robin`, the primary, in turn.',
    true,
  ),
  integer(
    'FANFARE_WORKER_TIMEOUT_MS',
    'workerTimeoutMs',
    10_000,
    500,
    600_000,
    'Silence after which a worker counts as hung, is killed and replaced.',
  ),
  integer(
    'FANFARE_ROOM_LINGER_MS',
    'roomLingerMs',
    2000,
    0,
    600_000,
    'How long an emptied room stays subscribed at the broker.',
  ),
  list(
    'FANFARE_HISTORY',
    'history',
    'Rooms with history, as `pattern=size/time` separated by commas: `chat.*=100/300s` keeps the last 100 publications until 300 s after the latest.',
    true,
  ),
  choice(
    'FANFARE_HISTORY_FENCE',
    'historyFence',
    'strict',
    ['strict', 'trust'],
    'After a restart or failover of Redis: `strict`, histories begin anew, since Redis may have lost publications; `trust`, they go on, at your risk.',
    true,
  ),
  list(
    'FANFARE_PRESENCE',
    'presence',
    'Rooms with presence, as patterns separated by commas: who is in them is kept, shown and told.',
    true,
  ),
  integer(
    'FANFARE_PRESENCE_MAX_MEMBERS',
    'presenceMaxMembers',
    1000,
    1,
    10_000,
    'Members up to which a room with presence is listed and tells who joins and leaves; larger ones tell their number.',
    true,
  ),
  choice(
    'FANFARE_READINESS',
    'readiness',
    'alone',
    ['alone', 'redis'],
    'What `/readyz` of the public port follows: the worker alone, or Redis too. With `redis`, an outage of Redis takes every server out of the load balancer at once.',
  ),
  string(
    'FANFARE_REDIS_PREFIX',
    'redisPrefix',
    'fanfare:',
    'Prefix of all channels and keys in Redis; without braces.',
    true,
  ),
  integer(
    'FANFARE_REDIS_TIMEOUT_MS',
    'redisTimeoutMs',
    1500,
    50,
    60_000,
    'Time Redis has to answer; after it the outcome of a publish is unknown.',
  ),
]);

/**
 * The configuration: a frozen record, one entry per row of SETTINGS.
 * @typedef {object} Config
 * @property {number} port
 * @property {string} host
 * @property {number} metricsPort
 * @property {string} metricsHost
 * @property {number} workers
 * @property {import('./redis.js').RedisSettings|null} redis null: the embedded broker
 * @property {string} serverId
 * @property {'auto'|'json'|'text'} logFormat
 * @property {string} logLevel
 * @property {string} trustProxy
 * @property {readonly string[]} allowedOrigins
 * @property {string} configFile
 * @property {boolean} clientBroadcast resolved from auto
 * @property {Mode} limits
 * @property {number} maxConnectionsPerIp
 * @property {Mode} maxConnectionsPerIpMode
 * @property {number} messagesPerMinute
 * @property {number} messagesBurst
 * @property {Mode} messagesPerMinuteMode
 * @property {number} messagesPerMinutePerIp
 * @property {number} messagesBurstPerIp
 * @property {Mode} messagesPerMinutePerIpMode
 * @property {number} handshakesPerMinutePerIp
 * @property {number} handshakesBurstPerIp
 * @property {Mode} handshakesPerMinutePerIpMode
 * @property {number} broadcastsPerMinutePerIp
 * @property {number} broadcastsBurstPerIp
 * @property {Mode} broadcastsPerMinutePerIpMode
 * @property {number} framesPerMinute
 * @property {number} framesBurst
 * @property {Mode} framesPerMinuteMode
 * @property {number} maxRefusedMessages
 * @property {number} maxHandshakes
 * @property {Mode} maxHandshakesMode
 * @property {number} handshakeTimeoutMs
 * @property {number} maxRoomsPerConnection
 * @property {Mode} maxRoomsPerConnectionMode
 * @property {number} maxLoopLagMs
 * @property {number} maxHeapPercent
 * @property {Mode} overloadMode
 * @property {number} maxMessageBytes
 * @property {number} maxPubsubBytes
 * @property {number} maxUnsentBytes
 * @property {number} maxUnsentAgeMs
 * @property {number} maxUnsentHeapPercent
 * @property {'off'|'on'} compression
 * @property {'close'|'drop'} slowConsumer
 * @property {number} pingIntervalMs
 * @property {number} pongTimeoutMs
 * @property {number} drainDelayMs
 * @property {number} reconnectWindowMs
 * @property {number} shutdownTimeoutMs
 * @property {'shared'|'round-robin'} scheduling
 * @property {number} workerTimeoutMs
 * @property {number} roomLingerMs
 * @property
 *   {readonly import('./room-patterns.js').Rule<import('./room-patterns.js').HistoryRule>[]}
 *   history the first that fits a room holds
 * @property {'strict'|'trust'} historyFence
 * @property {readonly import('./room-patterns.js').Rule<true>[]} presence
 * @property {number} presenceMaxMembers
 * @property {'alone'|'redis'} readiness
 * @property {string} redisPrefix
 * @property {number} redisTimeoutMs
 */

/**
 * What later versions read and this one does not: with one of them set, running open to everyone
 * would be a surprise.
 */
const TOKEN_NAMES = ['API_KEYS', 'JWT_SECRET', 'JWT_PUBLIC_KEY', 'JWKS_URL'];

/**
 * Kubernetes puts a service's address into the environment of every pod beside it: one named
 * `fanfare` is FANFARE_SERVICE_HOST, FANFARE_PORT=tcp://…, FANFARE_PORT_3000_TCP_ADDR. They are
 * nobody's typing errors.
 */
const SERVICE_LINK =
  /^FANFARE_(?:[A-Z0-9_]+_)?(?:SERVICE_(?:HOST|PORT(?:_[A-Z0-9_]+)?)|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)$/;
const SERVICE_LINK_URL = /^(?:tcp|udp|sctp):\/\//;

/**
 * Reads the configuration and reports every fault at once.
 * @param {Readonly<Record<string, string|undefined>>} env
 * @returns {{config: Config, faults: []} | {config: null, faults: string[]}} one line per fault,
 *   never with a secret in it
 */
export function loadConfig(env) {
  /** @type {string[]} */
  const faults = [];
  /** @type {Record<string, unknown>} */
  const values = {};
  for (const setting of SETTINGS) {
    const text = textOf(env, setting.env);
    const isClean = !controlCharacters(text);
    const fault = read(setting, isClean ? text : '', values);
    if (!isClean) faults.push(`${setting.env}: control characters are not allowed`);
    else if (fault !== '') faults.push(fault);
  }
  // A limit without a mode of its own follows FANFARE_LIMITS.
  for (const { type, key } of SETTINGS) if (type === 'mode') values[key] ??= values.limits;
  const redis = readRedisSettings(values, (name) => {
    const text = textOf(env, name);
    return (
      text !== '' &&
      !controlCharacters(text) &&
      !(name === 'REDIS_PORT' && SERVICE_LINK_URL.test(text))
    );
  });
  values.redis = redis.settings;
  faults.push(
    ...redis.faults,
    ...trustFaults(values),
    ...originFaults(values),
    ...roomFaults(values),
    ...contradictions(values),
  );
  for (const name of TOKEN_NAMES) {
    if (textOf(env, name) !== '') {
      faults.push(
        `${name}: this version knows no tokens and would be open to everyone; unset it, or run a version that checks it`,
      );
    }
  }
  for (const name of Object.keys(env)) {
    const fault = unknownName(name, textOf(env, name));
    if (fault !== '') faults.push(fault);
  }
  if (faults.length > 0) return { config: null, faults };

  for (const { key, part } of SETTINGS) if (part !== undefined) delete values[key];
  // `auto` is yes while no tokens are configured, and this version knows none.
  values.clientBroadcast = values.clientBroadcast !== 'off';
  Object.freeze(values.allowedOrigins);
  return {
    config: /** @type {Config} */ (/** @type {unknown} */ (Object.freeze(values))),
    faults: [],
  };
}

/**
 * Reads the text of FANFARE_CONFIG_FILE: lines `NAME=value`, empty lines, and comments that begin
 * with `#`. A value may stand in single or double quotes; nothing is expanded.
 * @param {string} text
 * @returns {{env: Record<string, string>, faults: string[]}} the caller lays the environment over
 *   `env`
 */
export function parseConfigFile(text) {
  /** @type {Record<string, string>} */
  const env = Object.create(null);
  /** @type {string[]} */
  const faults = [];
  text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .forEach((raw, index) => {
      const line = raw.trim();
      if (line === '' || line.startsWith('#')) return;
      const where = `FANFARE_CONFIG_FILE, line ${index + 1}`;
      const match = /^([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$/.exec(line);
      // The line may hold a secret: it is not shown.
      if (match === null) faults.push(`${where}: not NAME=value`);
      else if (match[1] === 'FANFARE_CONFIG_FILE')
        faults.push(`${where}: a configuration file does not name another`);
      else if (match[1] in env) faults.push(`${where}: ${match[1]} is set twice`);
      else if (!isKnown(match[1]))
        faults.push(`${where}: ${match[1]} is no setting${suggestion(match[1])}`);
      else env[match[1]] = match[2].replace(/^(["'])(.*)\1$/, '$2');
    });
  return { env, faults };
}

/**
 * What a rolling reload can't change, because it belongs to the primary.
 * @param {Config} old
 * @param {Config} next
 * @returns {string[]} environment names of fixed settings that differ
 */
export function changedFixed(old, next) {
  const before = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (old));
  const after = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (next));
  const names = SETTINGS.filter(
    ({ fixed, key, part = key }) => fixed && !isDeepStrictEqual(before[part], after[part]),
  ).map(({ env, part }) => (part === 'redis' ? 'REDIS_*' : env));
  return [...new Set(names)];
}

/**
 * The configuration in words, for the banner.
 * @param {Config} config
 * @returns {{broker: string, limits: string, access: string}} without secrets
 */
export function describe(config) {
  const broker =
    config.redis === null ? 'embedded (this machine only)' : describeRedis(config.redis);
  const limits = [
    `${config.maxConnectionsPerIp} connections per address${mark(config.maxConnectionsPerIpMode)}`,
    `${config.messagesPerMinute} messages a minute per connection${mark(config.messagesPerMinuteMode)}`,
    `${config.messagesPerMinutePerIp} per address${mark(config.messagesPerMinutePerIpMode)}`,
    `${config.maxRoomsPerConnection} rooms per connection${mark(config.maxRoomsPerConnectionMode)}`,
    `${config.maxMessageBytes} bytes a message`,
  ].join(', ');
  const origins =
    config.allowedOrigins.length === 0
      ? 'of every origin'
      : `of ${config.allowedOrigins.length} origins`;
  const access = `open to everyone, to browsers ${origins}: no tokens are configured`;
  return { broker, limits, access };
}

/** @param {Mode} mode */
function mark(mode) {
  return mode === 'enforce' ? '' : ` (${mode})`;
}

/**
 * @param {Readonly<Record<string, string|undefined>>} env
 * @param {string} name
 * @returns {string} trimmed; an empty value counts as none
 */
function textOf(env, name) {
  return (env[name] ?? '').trim();
}

/** @param {string} text */
function controlCharacters(text) {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  return /[\x00-\x1F\x7F]/.test(text);
}

/**
 * Reads one setting into `values`; its default too where it is at fault, so that contradictions can
 * be looked for.
 * @param {Setting} setting
 * @param {string} text
 * @param {Record<string, unknown>} values
 * @returns {string} the fault, or nothing
 */
function read(setting, text, values) {
  const { env, key, type, min = 0, max = Number.MAX_SAFE_INTEGER } = setting;
  values[key] = typeof setting.default === 'function' ? setting.default() : setting.default;
  if (text === '') return '';
  const given = setting.secret ? 'its value' : JSON.stringify(text);
  switch (type) {
    case 'integer': {
      // Strict: parseInt reads "12abc" as 12 and Number reads "1e3" and "0x10"; each is more often
      // a slip than meant.
      const number = Number(text);
      if (!/^-?\d{1,16}$/.test(text) || number < min || number > max) {
        // Kubernetes sets REDIS_PORT=tcp://… beside a service named redis; without a REDIS_HOST
        // nobody reads it.
        if (env === 'REDIS_PORT' && SERVICE_LINK_URL.test(text) && values.redisHost === '')
          return '';
        return `${env}: ${given} is not an integer from ${min} to ${max}`;
      }
      values[key] = number;
      return '';
    }
    case 'enum':
    case 'mode':
      if (!setting.values?.includes(text))
        return `${env}: ${given} is none of ${setting.values?.join(', ')}`;
      values[key] = text;
      return '';
    case 'list':
      values[key] = text
        .split(',')
        .map((entry) => entry.trim())
        .filter((entry) => entry !== '');
      return '';
    case 'string':
      if (setting.pattern !== undefined && !setting.pattern.test(text))
        return `${env}: ${given} does not match ${setting.pattern}`;
      values[key] = text;
      return '';
  }
}

/** @param {Record<string, unknown>} values */
function trustFaults(values) {
  try {
    compileTrustProxy(String(values.trustProxy));
    return [];
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    const allowed = 'a hop count (1), or CIDRs separated by commas (10.0.0.0/8,127.0.0.1/32)';
    return [
      `TRUST_PROXY: ${JSON.stringify(values.trustProxy)} is not allowed: ${why}; allowed: ${allowed}`,
    ];
  }
}

/**
 * Checks the origins and puts them into the form a browser sends.
 * @param {Record<string, unknown>} values
 */
function originFaults(values) {
  const faults = [];
  const origins = new Set();
  for (const entry of /** @type {string[]} */ (values.allowedOrigins)) {
    const origin = normalOrigin(entry);
    if (origin !== '') origins.add(origin);
    else
      faults.push(
        `ALLOWED_ORIGINS: ${JSON.stringify(entry)} is not an origin: scheme://host[:port], no path, no wildcard (leave it empty for all)`,
      );
  }
  values.allowedOrigins = [...origins];
  return faults;
}

/**
 * @param {string} text
 * @returns {string} as a browser writes it in its Origin header; empty: not an origin
 */
function normalOrigin(text) {
  if (!/^[a-z][a-z0-9+.-]*:\/\/[^/\\?#@*\s]+$/i.test(text)) return '';
  const url = parseUrl(text);
  if (url === null || url.host === '') return '';
  // URL knows no origin of schemes that are not the web's (capacitor://localhost), yet their web
  // views send one.
  return url.origin === 'null' ? `${url.protocol}//${url.host}` : url.origin;
}

/** Reads the patterns of rooms. @param {Record<string, unknown>} values */
function roomFaults(values) {
  const history = parseHistoryRules(/** @type {string[]} */ (values.history));
  const presence = parsePresenceRules(/** @type {string[]} */ (values.presence));
  values.history = Object.freeze(history.rules);
  values.presence = Object.freeze(presence.rules);
  return [
    ...history.faults.map((fault) => `FANFARE_HISTORY: ${fault}`),
    ...presence.faults.map((fault) => `FANFARE_PRESENCE: ${fault}`),
  ];
}

/** @param {Record<string, unknown>} values */
function contradictions(values) {
  const v = /** @type {Config} */ (/** @type {unknown} */ (values));
  const faults = [];
  if (v.port === v.metricsPort && v.port !== 0) {
    faults.push(
      `METRICS_PORT: ${v.metricsPort} is PORT too; the public and the operations port are two`,
    );
  }
  if (v.pongTimeoutMs >= v.pingIntervalMs) {
    faults.push(
      `FANFARE_PONG_TIMEOUT_MS: ${v.pongTimeoutMs} is not less than FANFARE_PING_INTERVAL_MS (${v.pingIntervalMs})`,
    );
  }
  if (v.drainDelayMs >= v.shutdownTimeoutMs) {
    faults.push(
      `FANFARE_DRAIN_DELAY_MS: ${v.drainDelayMs} is not less than FANFARE_SHUTDOWN_TIMEOUT_MS (${v.shutdownTimeoutMs})`,
    );
  }
  if (v.maxUnsentBytes < v.maxMessageBytes) {
    faults.push(
      `FANFARE_MAX_UNSENT_BYTES: ${v.maxUnsentBytes} holds not even one message of FANFARE_MAX_MESSAGE_BYTES (${v.maxMessageBytes})`,
    );
  }
  return faults;
}

/**
 * @param {string} text
 * @returns {URL|null}
 */
function parseUrl(text) {
  try {
    return new URL(text);
  } catch {
    return null; // not a URL: that is the answer
  }
}

/** @param {string} name */
function isKnown(name) {
  return TOKEN_NAMES.includes(name) || SETTINGS.some(({ env }) => env === name);
}

/**
 * @param {string} name
 * @param {string} text
 * @returns {string} the fault, or nothing
 */
function unknownName(name, text) {
  if (!/^FANFARE_/i.test(name) || isKnown(name)) return '';
  if (SERVICE_LINK.test(name) || (name.endsWith('_PORT') && SERVICE_LINK_URL.test(text))) return '';
  return `${name}: no such setting${suggestion(name)}`;
}

/**
 * @param {string} name
 * @returns {string} the nearest name there is, if one is near
 */
function suggestion(name) {
  const upper = name.toUpperCase();
  let nearest = '';
  let least = Number.POSITIVE_INFINITY;
  for (const { env } of SETTINGS) {
    // The prefix too many or too few is the likeliest slip of all.
    const steps =
      `FANFARE_${env}` === upper || `FANFARE_${upper}` === env ? 0 : distance(upper, env);
    if (steps < least) [nearest, least] = [env, steps];
  }
  return least <= Math.max(3, name.length / 3) ? `; did you mean ${nearest}?` : '';
}

/**
 * Levenshtein's.
 * @param {string} a
 * @param {string} b
 */
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length];
}

/**
 * @param {string} env
 * @param {string} key
 * @param {unknown} fallback
 * @param {number} min
 * @param {number} max
 * @param {string} meaning
 * @param {boolean} [fixed]
 * @returns {Setting}
 */
function integer(env, key, fallback, min, max, meaning, fixed) {
  return { env, key, type: 'integer', default: fallback, min, max, meaning, fixed };
}

/**
 * @param {string} env
 * @param {string} key
 * @param {unknown} fallback
 * @param {string} meaning
 * @param {boolean} [fixed]
 * @param {boolean} [secret]
 * @returns {Setting}
 */
function string(env, key, fallback, meaning, fixed, secret) {
  return { env, key, type: 'string', default: fallback, meaning, fixed, secret };
}

/**
 * @param {string} env
 * @param {string} key
 * @param {string} fallback
 * @param {readonly string[]} values
 * @param {string} meaning
 * @param {boolean} [fixed]
 * @returns {Setting}
 */
function choice(env, key, fallback, values, meaning, fixed) {
  return { env, key, type: 'enum', default: fallback, values, meaning, fixed };
}

/**
 * @param {string} env
 * @param {string} key
 * @param {string} meaning
 * @param {boolean} [fixed]
 * @returns {Setting}
 */
function list(env, key, meaning, fixed) {
  return { env, key, type: 'list', default: [], meaning, fixed };
}

/**
 * @param {string} env
 * @param {string} key
 * @param {string} meaning
 * @returns {Setting}
 */
function mode(env, key, meaning) {
  // The mode of one limit falls back to FANFARE_LIMITS, which falls back to enforce.
  return {
    env,
    key,
    type: 'mode',
    default: env === 'FANFARE_LIMITS' ? 'enforce' : undefined,
    values: MODES,
    meaning,
  };
}
