// settings.js: the table of settings.
//
// A setting is one row: its environment variable, its key in the configuration, type, default,
// bounds and meaning. The type Config is derived from the rows, so a new row needs no other
// declaration. config.js reads the values; a test holds the table in the documentation equal to
// this one.

import { availableParallelism, hostname } from 'node:os';

/** What a limit does: nothing (`off`), count (`observe`), or act (`enforce`). */
export const MODES = /** @type {const} */ (['off', 'observe', 'enforce']);

/** @typedef {typeof MODES[number]} Mode */

/**
 * @typedef {object} Setting
 * @property {string} env the environment variable
 * @property {string} key the name in the frozen configuration
 * @property {'integer'|'string'|'enum'|'list'|'mode'} type `list`: separated by commas; `mode`: one
 *   of MODES, by default that of FANFARE_LIMITS
 * @property {unknown} default used if the variable is absent or empty; a function is called
 * @property {number} [min] smallest integer allowed
 * @property {number} [max] largest integer allowed
 * @property {string} [unit] of an integer that is no plain count
 * @property {readonly string[]} [values] of an enum or a mode
 * @property {boolean} [secret] never logged or shown
 * @property {boolean} [fixed] a rolling reload can't change it, because the primary uses it
 * @property {'redis'} [part] the row is read into this entry of the configuration and has none of
 *   its own
 * @property {string} meaning one line for the documentation
 */

const ROWS = /** @satisfies {readonly Setting[]} */ (
  /** @type {const} */ ([
    {
      env: 'PORT',
      key: 'port',
      type: 'integer',
      default: 3000,
      min: 0,
      max: 65_535,
      fixed: true,
      meaning: 'Public port: WebSocket, `/livez`, `/readyz`. 0 takes any free one.',
    },
    {
      env: 'HOST',
      key: 'host',
      type: 'string',
      default: '',
      fixed: true,
      meaning: 'Address the public port listens on; empty means all.',
    },
    {
      env: 'METRICS_PORT',
      key: 'metricsPort',
      type: 'integer',
      default: 9090,
      min: 0,
      max: 65_535,
      fixed: true,
      meaning:
        'Operations port: `/metrics`, `/livez`, `/readyz`. Prometheus itself has 9090 by default: beside it, set another.',
    },
    {
      env: 'METRICS_HOST',
      key: 'metricsHost',
      type: 'string',
      default: '127.0.0.1',
      fixed: true,
      meaning: 'Address the operations port listens on.',
    },
    {
      env: 'WORKERS',
      key: 'workers',
      type: 'integer',
      default: availableParallelism,
      min: 1,
      max: 1024,
      fixed: true,
      meaning: 'Worker processes; one per core.',
    },
    {
      env: 'REDIS_URL',
      key: 'redisUrl',
      type: 'string',
      default: '',
      fixed: true,
      secret: true,
      part: 'redis',
      meaning:
        'Redis to share with other servers (`redis://`, `rediss://`). Without one: the embedded broker, one machine.',
    },
    {
      env: 'REDIS_HOST',
      key: 'redisHost',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'Redis host, instead of `REDIS_URL`.',
    },
    {
      env: 'REDIS_PORT',
      key: 'redisPort',
      type: 'integer',
      default: 6379,
      min: 1,
      max: 65_535,
      fixed: true,
      part: 'redis',
      meaning: 'Redis port, beside `REDIS_HOST`.',
    },
    {
      env: 'REDIS_SENTINELS',
      key: 'redisSentinels',
      type: 'list',
      default: [],
      fixed: true,
      part: 'redis',
      meaning:
        'Sentinels that know the primary, as `host:port` separated by commas, instead of `REDIS_URL`.',
    },
    {
      env: 'REDIS_SENTINEL_NAME',
      key: 'redisSentinelName',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'What the Sentinels call the primary.',
    },
    {
      env: 'REDIS_CLUSTER',
      key: 'redisCluster',
      type: 'list',
      default: [],
      fixed: true,
      part: 'redis',
      meaning:
        'Some nodes of a Redis Cluster, as `host:port` separated by commas, instead of `REDIS_URL`; it tells the others.',
    },
    {
      env: 'REDIS_USERNAME',
      key: 'redisUsername',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'ACL user of Redis.',
    },
    {
      env: 'REDIS_PASSWORD',
      key: 'redisPassword',
      type: 'string',
      default: '',
      fixed: true,
      secret: true,
      part: 'redis',
      meaning: 'Its password, or that of the default user.',
    },
    {
      env: 'REDIS_SENTINEL_USERNAME',
      key: 'redisSentinelUsername',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'ACL user of the Sentinels.',
    },
    {
      env: 'REDIS_SENTINEL_PASSWORD',
      key: 'redisSentinelPassword',
      type: 'string',
      default: '',
      fixed: true,
      secret: true,
      part: 'redis',
      meaning: 'Password of the Sentinels.',
    },
    {
      env: 'REDIS_TLS',
      key: 'redisTls',
      type: 'enum',
      default: 'off',
      values: ['off', 'on'],
      fixed: true,
      part: 'redis',
      meaning: 'TLS to Redis and to its Sentinels, as `rediss://` means.',
    },
    {
      env: 'REDIS_TLS_CA_FILE',
      key: 'redisTlsCaFile',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'Certificates (PEM) that vouch for Redis, instead of the system’s.',
    },
    {
      env: 'REDIS_TLS_CERT_FILE',
      key: 'redisTlsCertFile',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'Certificate (PEM) shown to Redis.',
    },
    {
      env: 'REDIS_TLS_KEY_FILE',
      key: 'redisTlsKeyFile',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'Its key (PEM).',
    },
    {
      env: 'REDIS_TLS_SERVERNAME',
      key: 'redisTlsServername',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'Name that Redis’ certificate must bear, where it is not the host’s.',
    },
    {
      env: 'SERVER_ID',
      key: 'serverId',
      type: 'string',
      default: hostname,
      fixed: true,
      meaning: 'Name of this server in logs and in `welcome`.',
    },
    {
      env: 'LOG_LEVEL',
      key: 'logLevel',
      type: 'enum',
      default: 'info',
      values: ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
      meaning: 'Least severe log line written.',
    },
    {
      env: 'LOG_FORMAT',
      key: 'logFormat',
      type: 'enum',
      default: 'auto',
      values: ['auto', 'json', 'text'],
      fixed: true,
      meaning:
        'Form of the log: `auto` is text on a terminal, and JSON elsewhere or with `NODE_ENV=production`. `NO_COLOR` turns colours off.',
    },
    {
      env: 'TRUST_PROXY',
      key: 'trustProxy',
      type: 'string',
      default: '',
      meaning:
        'Proxies whose `X-Forwarded-For` is believed: a hop count, or CIDRs separated by commas.',
    },
    {
      env: 'ALLOWED_ORIGINS',
      key: 'allowedOrigins',
      type: 'list',
      default: [],
      meaning:
        'Origins let in, separated by commas; empty means all. A connection without an Origin is no browser and is let in.',
    },
    {
      env: 'FANFARE_CONFIG_FILE',
      key: 'configFile',
      type: 'string',
      default: '',
      fixed: true,
      meaning:
        'File of `NAME=value` lines, read at start and at every SIGHUP; the environment wins over it.',
    },
    {
      env: 'FANFARE_CLIENT_BROADCAST',
      key: 'clientBroadcast',
      type: 'enum',
      default: 'auto',
      values: ['auto', 'on', 'off'],
      meaning: 'May clients `broadcast` to everyone; `auto`: yes while no tokens are configured.',
    },
    {
      env: 'FANFARE_LIMITS',
      key: 'limits',
      type: 'mode',
      default: 'enforce',
      values: MODES,
      meaning:
        'Mode of all rate and connection limits that have no mode of their own. Size limits always hold.',
    },
    {
      env: 'FANFARE_MAX_CONNECTIONS_PER_IP',
      key: 'maxConnectionsPerIp',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e7,
      meaning:
        'Connections from one client address (IPv6: from one /64), over all workers of this server.',
    },
    {
      env: 'FANFARE_MAX_CONNECTIONS_PER_IP_MODE',
      key: 'maxConnectionsPerIpMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Its mode.',
    },
    {
      env: 'FANFARE_MESSAGES_PER_MINUTE',
      key: 'messagesPerMinute',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      unit: 'a minute',
      meaning:
        'Messages a connection may send a minute: what its token bucket refills. A message counts once for each 4 KB begun.',
    },
    {
      env: 'FANFARE_MESSAGES_BURST',
      key: 'messagesBurst',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      meaning: 'Messages a connection may send at once: what its token bucket holds.',
    },
    {
      env: 'FANFARE_MESSAGES_PER_MINUTE_MODE',
      key: 'messagesPerMinuteMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Their mode.',
    },
    {
      env: 'FANFARE_MESSAGES_PER_MINUTE_PER_IP',
      key: 'messagesPerMinutePerIp',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      unit: 'a minute',
      meaning: 'The same for all connections of one client address together, in each worker.',
    },
    {
      env: 'FANFARE_MESSAGES_BURST_PER_IP',
      key: 'messagesBurstPerIp',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      meaning: 'The same, at once.',
    },
    {
      env: 'FANFARE_MESSAGES_PER_MINUTE_PER_IP_MODE',
      key: 'messagesPerMinutePerIpMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Their mode.',
    },
    {
      env: 'FANFARE_BROADCASTS_PER_MINUTE_PER_IP',
      key: 'broadcastsPerMinutePerIp',
      type: 'integer',
      default: 60,
      min: 1,
      max: 1e9,
      unit: 'a minute',
      meaning:
        'Broadcasts that all connections of one client address may send a minute, in each worker. One counts once for each 4 KB begun.',
    },
    {
      env: 'FANFARE_BROADCASTS_BURST_PER_IP',
      key: 'broadcastsBurstPerIp',
      type: 'integer',
      default: 20,
      min: 1,
      max: 1e9,
      meaning: 'The same, at once.',
    },
    {
      env: 'FANFARE_BROADCASTS_PER_MINUTE_PER_IP_MODE',
      key: 'broadcastsPerMinutePerIpMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Their mode.',
    },
    {
      env: 'FANFARE_FRAMES_PER_MINUTE',
      key: 'framesPerMinute',
      type: 'integer',
      default: 600,
      min: 1,
      max: 1e9,
      unit: 'a minute',
      meaning:
        'Pings, pongs, empty frames and fragments under 1 KB that a connection may send a minute; beyond them it is closed with 1008.',
    },
    {
      env: 'FANFARE_FRAMES_BURST',
      key: 'framesBurst',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      meaning: 'The same, at once.',
    },
    {
      env: 'FANFARE_FRAMES_PER_MINUTE_MODE',
      key: 'framesPerMinuteMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Their mode.',
    },
    {
      env: 'FANFARE_MAX_REFUSED_MESSAGES',
      key: 'maxRefusedMessages',
      type: 'integer',
      default: 1000,
      min: 1,
      max: 1e9,
      meaning:
        'Messages refused for their rate within a minute after which the connection is closed with 4005.',
    },
    {
      env: 'FANFARE_MAX_HANDSHAKES',
      key: 'maxHandshakes',
      type: 'integer',
      default: 10_000,
      min: 1,
      max: 1e6,
      meaning:
        'Connections of a worker whose client has not sent its whole handshake yet. Above it, the address that has most loses its oldest.',
    },
    {
      env: 'FANFARE_MAX_HANDSHAKES_MODE',
      key: 'maxHandshakesMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Its mode; `off` also ends the time limit on waiting for the worker.',
    },
    {
      env: 'FANFARE_HANDSHAKE_TIMEOUT_MS',
      key: 'handshakeTimeoutMs',
      type: 'integer',
      default: 8000,
      min: 100,
      max: 120_000,
      unit: 'ms',
      meaning: 'Time a handshake may take, from the connection to the answer.',
    },
    {
      env: 'FANFARE_HANDSHAKES_PER_MINUTE_PER_IP',
      key: 'handshakesPerMinutePerIp',
      type: 'integer',
      default: 600,
      min: 1,
      max: 1e9,
      unit: 'a minute',
      meaning:
        'Connections and plain HTTP requests from one client address, in each worker: what its token bucket refills a minute.',
    },
    {
      env: 'FANFARE_HANDSHAKES_BURST_PER_IP',
      key: 'handshakesBurstPerIp',
      type: 'integer',
      default: 600,
      min: 1,
      max: 1e9,
      meaning: 'The same, at once.',
    },
    {
      env: 'FANFARE_HANDSHAKES_PER_MINUTE_PER_IP_MODE',
      key: 'handshakesPerMinutePerIpMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Their mode.',
    },
    {
      env: 'FANFARE_MAX_ROOMS_PER_CONNECTION',
      key: 'maxRoomsPerConnection',
      type: 'integer',
      default: 128,
      min: 1,
      max: 1e6,
      meaning: 'Rooms a connection may be in.',
    },
    {
      env: 'FANFARE_MAX_ROOMS_PER_CONNECTION_MODE',
      key: 'maxRoomsPerConnectionMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Its mode.',
    },
    {
      env: 'FANFARE_MAX_LOOP_LAG_MS',
      key: 'maxLoopLagMs',
      type: 'integer',
      default: 500,
      min: 10,
      max: 60_000,
      unit: 'ms',
      meaning: 'Event-loop lag above which a worker takes no new connections.',
    },
    {
      env: 'FANFARE_MAX_HEAP_PERCENT',
      key: 'maxHeapPercent',
      type: 'integer',
      default: 80,
      min: 10,
      max: 100,
      unit: '%',
      meaning:
        'Share of its heap limit, or of its part of the memory, above which a worker takes no new connections.',
    },
    {
      env: 'FANFARE_OVERLOAD_MODE',
      key: 'overloadMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of the two above and of the reserve of file descriptors.',
    },
    {
      env: 'FANFARE_MAX_MESSAGE_BYTES',
      key: 'maxMessageBytes',
      type: 'integer',
      default: 102_400,
      min: 128,
      max: 16_777_216,
      unit: 'bytes',
      meaning: 'Largest message taken from a client; a larger one closes its connection with 1009.',
    },
    {
      env: 'FANFARE_MAX_PUBSUB_BYTES',
      key: 'maxPubsubBytes',
      type: 'integer',
      default: 65_536,
      min: 1024,
      max: 1_048_576,
      unit: 'bytes',
      meaning:
        'Largest message sent through Redis pub/sub; a larger one is stored in Redis and a reference is published.',
    },
    {
      env: 'FANFARE_MAX_UNSENT_BYTES',
      key: 'maxUnsentBytes',
      type: 'integer',
      default: 1_048_576,
      min: 16_384,
      max: 1_073_741_824,
      unit: 'bytes',
      meaning: 'Bytes that may wait for one connection before it is a slow consumer.',
    },
    {
      env: 'FANFARE_MAX_UNSENT_AGE_MS',
      key: 'maxUnsentAgeMs',
      type: 'integer',
      default: 10_000,
      min: 100,
      max: 600_000,
      unit: 'ms',
      meaning: 'How long the oldest of them may wait.',
    },
    {
      env: 'FANFARE_MAX_UNSENT_HEAP_PERCENT',
      key: 'maxUnsentHeapPercent',
      type: 'integer',
      default: 25,
      min: 1,
      max: 100,
      unit: '%',
      meaning:
        'Unsent bytes of a whole worker, as a share of its heap limit or of its part of the memory, whichever is less; above it the largest are shed first.',
    },
    {
      env: 'FANFARE_COMPRESSION',
      key: 'compression',
      type: 'enum',
      default: 'off',
      values: ['off', 'on'],
      meaning:
        'Offer permessage-deflate, without context takeover: a publication of 1 KB or more is compressed once for all who take it.',
    },
    {
      env: 'FANFARE_SLOW_CONSUMER',
      key: 'slowConsumer',
      type: 'enum',
      default: 'close',
      values: ['close', 'drop'],
      meaning:
        'What becomes of a slow consumer: closed with 4003, or publications are left out until it has caught up.',
    },
    {
      env: 'FANFARE_PING_INTERVAL_MS',
      key: 'pingIntervalMs',
      type: 'integer',
      default: 30_000,
      min: 200,
      max: 3_600_000,
      unit: 'ms',
      meaning: 'Time between two pings to a connection.',
    },
    {
      env: 'FANFARE_PONG_TIMEOUT_MS',
      key: 'pongTimeoutMs',
      type: 'integer',
      default: 10_000,
      min: 100,
      max: 3_600_000,
      unit: 'ms',
      meaning: 'Time in which a sign of life must follow a ping.',
    },
    {
      env: 'FANFARE_DRAIN_DELAY_MS',
      key: 'drainDelayMs',
      type: 'integer',
      default: 2000,
      min: 0,
      max: 600_000,
      unit: 'ms',
      meaning:
        'Time between `/readyz` answering 503 and the end of accepting, for the load balancer to notice.',
    },
    {
      env: 'FANFARE_RECONNECT_WINDOW_MS',
      key: 'reconnectWindowMs',
      type: 'integer',
      default: 20_000,
      min: 0,
      max: 600_000,
      unit: 'ms',
      meaning: 'Window over which the clients of a drained worker are told to return.',
    },
    {
      env: 'FANFARE_SHUTDOWN_TIMEOUT_MS',
      key: 'shutdownTimeoutMs',
      type: 'integer',
      default: 30_000,
      min: 1000,
      max: 3_600_000,
      unit: 'ms',
      meaning: 'Time after which a drain is over in any case.',
    },
    {
      env: 'FANFARE_SCHEDULING',
      key: 'scheduling',
      type: 'enum',
      default: 'shared',
      values: ['shared', 'round-robin'],
      fixed: true,
      meaning:
        'Who accepts a connection: `shared`, whichever worker is free (the cheaper by half); `round-robin`, the primary, in turn.',
    },
    {
      env: 'FANFARE_WORKER_TIMEOUT_MS',
      key: 'workerTimeoutMs',
      type: 'integer',
      default: 10_000,
      min: 500,
      max: 600_000,
      unit: 'ms',
      meaning: 'Silence after which a worker counts as hung, is killed and replaced.',
    },
    {
      env: 'FANFARE_ROOM_LINGER_MS',
      key: 'roomLingerMs',
      type: 'integer',
      default: 2000,
      min: 0,
      max: 600_000,
      unit: 'ms',
      meaning: 'How long an emptied room stays subscribed at the broker.',
    },
    {
      env: 'FANFARE_HISTORY',
      key: 'history',
      type: 'list',
      default: [],
      fixed: true,
      meaning:
        'Rooms with history, as `pattern=size/time` separated by commas: `chat.*=100/300s` keeps the last 100 publications until 300 s after the latest.',
    },
    {
      env: 'FANFARE_HISTORY_FENCE',
      key: 'historyFence',
      type: 'enum',
      default: 'strict',
      values: ['strict', 'trust'],
      fixed: true,
      meaning:
        'After a restart or failover of Redis: `strict`, histories begin anew, since Redis may have lost publications; `trust`, they go on, at your risk.',
    },
    {
      env: 'FANFARE_PRESENCE',
      key: 'presence',
      type: 'list',
      default: [],
      fixed: true,
      meaning:
        'Rooms with presence, as patterns separated by commas: who is in them is kept, shown and told.',
    },
    {
      env: 'FANFARE_PRESENCE_MAX_MEMBERS',
      key: 'presenceMaxMembers',
      type: 'integer',
      default: 1000,
      min: 1,
      max: 10_000,
      fixed: true,
      meaning:
        'Members up to which a room with presence is listed and tells who joins and leaves; larger ones tell their number.',
    },
    {
      env: 'FANFARE_READINESS',
      key: 'readiness',
      type: 'enum',
      default: 'alone',
      values: ['alone', 'redis'],
      meaning:
        'What `/readyz` of the public port follows: the worker alone, or Redis too. With `redis`, an outage of Redis takes every server out of the load balancer at once.',
    },
    {
      env: 'FANFARE_REDIS_PREFIX',
      key: 'redisPrefix',
      type: 'string',
      default: 'fanfare:',
      fixed: true,
      meaning: 'Prefix of all channels and keys in Redis; without braces.',
    },
    {
      env: 'FANFARE_REDIS_TIMEOUT_MS',
      key: 'redisTimeoutMs',
      type: 'integer',
      default: 1500,
      min: 50,
      max: 60_000,
      unit: 'ms',
      meaning: 'Time Redis has to answer; after it the outcome of a publish is unknown.',
    },
  ])
);

/** @type {readonly Setting[]} */
export const SETTINGS = Object.freeze(ROWS);

/** @typedef {typeof ROWS[number]} Row */

/**
 * The type of a row's value.
 * @template {Row} R
 * @typedef {R extends {type: 'integer'} ? number
 *   : R extends {type: 'list'} ? readonly string[]
 *   : R extends {type: 'enum'|'mode', values: readonly (infer V)[]} ? V
 *   : string} Value
 */

/**
 * Entries that config.js derives from the text of their rows.
 * @typedef {object} Parsed
 * @property {import('./redis.js').RedisSettings|null} redis null: the embedded broker
 * @property {boolean} clientBroadcast resolved from `auto`
 * @property {readonly import('./room-patterns.js').Rule<import('./room-patterns.js').HistoryRule>[]
 *   } history the first rule that matches a room applies
 * @property {readonly import('./room-patterns.js').Rule<true>[]} presence
 */

/**
 * The configuration: a frozen record with one entry per row, except for the rows of `part`.
 * @typedef {{readonly [R in Row as R extends {part: string} ? never
 *   : Exclude<R['key'], keyof Parsed>]: Value<R>} & Readonly<Parsed>} Config
 */
