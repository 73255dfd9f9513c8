// config.js: every setting, in one table.
//
// A setting is one row: its environment name, its key in the code, its type, default, bounds and meaning. `loadConfig`
// reads them all, reports every fault at once (a start that fails five times for five typing errors is five outages)
// and freezes the result. The README's table is held equal to this one by a test. Only main.js reads the environment.

import { availableParallelism, hostname } from 'node:os';

/** What a limit does: nothing, count what it would have done, or act. */
export const MODES = /** @type {const} */ (['off', 'observe', 'enforce']);

/** @typedef {typeof MODES[number]} Mode */

/**
 * @typedef {object} Setting
 * @property {string} env the environment variable
 * @property {string} key its name in the frozen configuration
 * @property {'integer'|'string'|'enum'|'list'|'mode'} type
 * @property {unknown} default what holds where the variable is absent or empty; a function is called
 * @property {number} [min] smallest integer allowed
 * @property {number} [max] largest integer allowed
 * @property {readonly string[]} [values] of an enum
 * @property {RegExp} [pattern] of a string
 * @property {boolean} [secret] never logged or shown
 * @property {boolean} [fixed] can't be changed by a rolling reload: it belongs to the primary
 * @property {string} meaning one line for the README
 */

/** @type {readonly Setting[]} */
export const SETTINGS = Object.freeze([
  integer('PORT', 'port', 3000, 0, 65_535, 'Public port: WebSocket, `/livez`, `/readyz`. 0 takes any free one.', true),
  string('HOST', 'host', '', 'Address the public port listens on; empty means all.', true),
  integer('METRICS_PORT', 'metricsPort', 9090, 0, 65_535, 'Operations port: `/metrics`, `/livez`, `/readyz`.', true),
  string('METRICS_HOST', 'metricsHost', '127.0.0.1', 'Address the operations port listens on.', true),
  integer('WORKERS', 'workers', availableParallelism, 1, 1024, 'Worker processes; one per core.', true),
  string('REDIS_URL', 'redisUrl', '', 'Redis to share with other servers (`redis://`, `rediss://`). Without one: the embedded broker, one machine.', true, true),
  string('REDIS_HOST', 'redisHost', '', 'Redis host, instead of `REDIS_URL`.', true),
  integer('REDIS_PORT', 'redisPort', 6379, 1, 65_535, 'Redis port, beside `REDIS_HOST`.', true),
  string('SERVER_ID', 'serverId', hostname, 'Name of this server in logs and in `welcome`.', true),
  choice('LOG_LEVEL', 'logLevel', 'info', ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], 'Least severe log line written.'),
  string('TRUST_PROXY', 'trustProxy', '', 'Proxies whose `X-Forwarded-For` is believed: a hop count, or CIDRs separated by commas.'),
  list('ALLOWED_ORIGINS', 'allowedOrigins', 'Origins let in, separated by commas; empty means all. A connection without an Origin is no browser and is let in.'),
  string('FANFARE_CONFIG_FILE', 'configFile', '', 'File of `NAME=value` lines, read at start and at every SIGHUP; the environment wins over it.', true),
  choice('FANFARE_CLIENT_BROADCAST', 'clientBroadcast', 'auto', ['auto', 'on', 'off'], 'May clients `broadcast` to everyone; `auto`: yes while no tokens are configured.'),
  mode('FANFARE_LIMITS', 'limits', 'Mode of all rate and connection limits that have no mode of their own. Size limits always hold.'),
  integer('FANFARE_MAX_CONNECTIONS_PER_IP', 'maxConnectionsPerIp', 100, 1, 1e7, 'Connections from one client address (IPv6: from one /64), over all workers of this server.'),
  mode('FANFARE_MAX_CONNECTIONS_PER_IP_MODE', 'maxConnectionsPerIpMode', 'Its mode.'),
  integer('FANFARE_MESSAGES_PER_MINUTE', 'messagesPerMinute', 100, 1, 1e9, 'Messages a connection may send a minute: what its token bucket refills.'),
  integer('FANFARE_MESSAGES_BURST', 'messagesBurst', 100, 1, 1e9, 'Messages a connection may send at once: what its token bucket holds.'),
  mode('FANFARE_MESSAGES_PER_MINUTE_MODE', 'messagesPerMinuteMode', 'Their mode.'),
  integer('FANFARE_MESSAGES_PER_MINUTE_PER_IP', 'messagesPerMinutePerIp', 100, 1, 1e9, 'The same for all connections of one client address together, in each worker.'),
  integer('FANFARE_MESSAGES_BURST_PER_IP', 'messagesBurstPerIp', 100, 1, 1e9, 'The same, at once.'),
  mode('FANFARE_MESSAGES_PER_MINUTE_PER_IP_MODE', 'messagesPerMinutePerIpMode', 'Their mode.'),
  integer('FANFARE_MAX_REFUSED_MESSAGES', 'maxRefusedMessages', 1000, 1, 1e9, 'Messages refused for their rate within a minute after which the connection is closed with 4005.'),
  integer('FANFARE_MAX_HANDSHAKES', 'maxHandshakes', 1000, 1, 1e6, 'Connections of a worker that have not finished their handshake.'),
  mode('FANFARE_MAX_HANDSHAKES_MODE', 'maxHandshakesMode', 'Its mode.'),
  integer('FANFARE_HANDSHAKE_TIMEOUT_MS', 'handshakeTimeoutMs', 8000, 100, 120_000, 'Time a handshake may take.'),
  integer('FANFARE_MAX_ROOMS_PER_CONNECTION', 'maxRoomsPerConnection', 128, 1, 1e6, 'Rooms a connection may be in.'),
  mode('FANFARE_MAX_ROOMS_PER_CONNECTION_MODE', 'maxRoomsPerConnectionMode', 'Its mode.'),
  integer('FANFARE_MAX_LOOP_LAG_MS', 'maxLoopLagMs', 500, 10, 60_000, 'Event-loop lag above which a worker takes no new connections.'),
  integer('FANFARE_MAX_HEAP_PERCENT', 'maxHeapPercent', 80, 10, 100, 'Share of its heap limit above which a worker takes no new connections.'),
  mode('FANFARE_OVERLOAD_MODE', 'overloadMode', 'Mode of the two above and of the reserve of file descriptors.'),
  integer('FANFARE_MAX_MESSAGE_BYTES', 'maxMessageBytes', 102_400, 128, 16_777_216, 'Largest message taken from a client; a larger one closes its connection with 1009.'),
  integer('FANFARE_MAX_PUBSUB_BYTES', 'maxPubsubBytes', 65_536, 1024, 1_048_576, 'Largest message sent through Redis pub/sub; a larger one is stored in Redis and a reference is published.'),
  integer('FANFARE_MAX_UNSENT_BYTES', 'maxUnsentBytes', 1_048_576, 16_384, 1_073_741_824, 'Bytes that may wait for one connection before it is a slow consumer.'),
  integer('FANFARE_MAX_UNSENT_AGE_MS', 'maxUnsentAgeMs', 10_000, 100, 600_000, 'How long the oldest of them may wait.'),
  integer('FANFARE_MAX_UNSENT_HEAP_PERCENT', 'maxUnsentHeapPercent', 25, 1, 100, 'Unsent bytes of a whole worker, as a share of its heap limit; above it the largest are shed first.'),
  choice('FANFARE_SLOW_CONSUMER', 'slowConsumer', 'close', ['close', 'drop'], 'What becomes of a slow consumer: closed with 4003, or publications are left out until it has caught up.'),
  integer('FANFARE_PING_INTERVAL_MS', 'pingIntervalMs', 30_000, 200, 3_600_000, 'Time between two pings to a connection.'),
  integer('FANFARE_PONG_TIMEOUT_MS', 'pongTimeoutMs', 10_000, 100, 3_600_000, 'Time in which a sign of life must follow a ping.'),
  integer('FANFARE_DRAIN_DELAY_MS', 'drainDelayMs', 2000, 0, 600_000, 'Time between `/readyz` answering 503 and the end of accepting, for the load balancer to notice.'),
  integer('FANFARE_RECONNECT_WINDOW_MS', 'reconnectWindowMs', 20_000, 0, 600_000, 'Window over which the clients of a drained worker are told to return.'),
  integer('FANFARE_SHUTDOWN_TIMEOUT_MS', 'shutdownTimeoutMs', 30_000, 1000, 3_600_000, 'Time after which a drain is over in any case.'),
  integer('FANFARE_WORKER_TIMEOUT_MS', 'workerTimeoutMs', 10_000, 500, 600_000, 'Silence after which a worker counts as hung, is killed and replaced.'),
  integer('FANFARE_ROOM_LINGER_MS', 'roomLingerMs', 2000, 0, 600_000, 'How long an emptied room stays subscribed at the broker.'),
  string('FANFARE_REDIS_PREFIX', 'redisPrefix', 'fanfare:', 'Prefix of all channels and keys in Redis.', true),
  integer('FANFARE_REDIS_TIMEOUT_MS', 'redisTimeoutMs', 1500, 50, 60_000, 'Time Redis has to answer; after it the outcome of a publish is unknown.'),
]);

/**
 * The configuration: a frozen record, one entry per row of SETTINGS.
 * @typedef {object} Config
 * @property {number} port
 * @property {string} host
 * @property {number} metricsPort
 * @property {string} metricsHost
 * @property {number} workers
 * @property {string} redisUrl with REDIS_HOST and REDIS_PORT already folded in; empty means the embedded broker
 * @property {string} serverId
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
 * @property {'close'|'drop'} slowConsumer
 * @property {number} pingIntervalMs
 * @property {number} pongTimeoutMs
 * @property {number} drainDelayMs
 * @property {number} reconnectWindowMs
 * @property {number} shutdownTimeoutMs
 * @property {number} workerTimeoutMs
 * @property {number} roomLingerMs
 * @property {string} redisPrefix
 * @property {number} redisTimeoutMs
 */

/** @param {string} env @param {string} key @param {unknown} fallback @param {number} min @param {number} max @param {string} meaning @param {boolean} [fixed] @returns {Setting} */
function integer(env, key, fallback, min, max, meaning, fixed) {
  return { env, key, type: 'integer', default: fallback, min, max, meaning, fixed };
}

/** @param {string} env @param {string} key @param {unknown} fallback @param {string} meaning @param {boolean} [fixed] @param {boolean} [secret] @returns {Setting} */
function string(env, key, fallback, meaning, fixed, secret) {
  return { env, key, type: 'string', default: fallback, meaning, fixed, secret };
}

/** @param {string} env @param {string} key @param {string} fallback @param {readonly string[]} values @param {string} meaning @returns {Setting} */
function choice(env, key, fallback, values, meaning) {
  return { env, key, type: 'enum', default: fallback, values, meaning };
}

/** @param {string} env @param {string} key @param {string} meaning @returns {Setting} */
function list(env, key, meaning) {
  return { env, key, type: 'list', default: [], meaning };
}

/** @param {string} env @param {string} key @param {string} meaning @returns {Setting} */
function mode(env, key, meaning) {
  // The mode of one limit falls back to FANFARE_LIMITS, which falls back to enforce.
  return { env, key, type: 'mode', default: env === 'FANFARE_LIMITS' ? 'enforce' : undefined, values: MODES, meaning };
}
