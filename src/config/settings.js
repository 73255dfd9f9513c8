// settings.js: the table of settings.
//
// A setting is one row. The type Config is derived from the rows, and the tables of
// docs/configuration.md are generated from them.

import { availableParallelism, hostname } from 'node:os';

/** @import { HistoryRule, Rule, StateRule } from './room-patterns.js' */

/** A limit does nothing (`off`), counts (`observe`), or acts (`enforce`). */
export const MODES = /** @type {const} */ (['off', 'observe', 'enforce']);

/** @typedef {typeof MODES[number]} Mode */

/**
 * @typedef {object} Setting
 * @property {string} env the environment variable
 * @property {string} key the name in the frozen configuration
 * @property {'integer'|'string'|'enum'|'list'|'rate'} type a `list` is separated by commas
 * @property {unknown} default used if the variable is absent or empty; a function is called
 * @property {number} [min] smallest integer allowed
 * @property {number} [max] largest integer allowed
 * @property {string} [unit] of an integer, if it is not a plain count
 * @property {readonly string[]} [values] of an enum
 * @property {string} [burst] of a rate: the key of its second number
 * @property {string} [old] what to set instead: the row is only read, with a warning
 * @property {string} section of the documentation
 * @property {boolean} [secret] never logged or shown; `NAME_FILE` may give the path of a file with it
 * @property {boolean} [fixed] a rolling reload can't change it, because the primary uses it
 * @property {boolean} [isMultiline] line breaks are allowed in its value
 * @property {Part} [part] the row is read into this entry of the configuration and has none of its own
 * @property {string} meaning one line for the documentation
 */

/** @typedef {'redis'|'tls'|'tokens'|'apiKeys'|'blobs'|'hooks'|'webhooks'|'pusher'|'centrifugo'|'limits'} Part */

/** @typedef {{default?: unknown, secret?: true, fixed?: true, isMultiline?: true, part?: Part, old?: string}} Options */

const REDIS = /** @type {const} */ ({ fixed: true, part: 'redis' });

/** A name says the unit of its value. */
const UNITS = /** @type {const} */ ([
  [/_MS$/, 'ms'],
  [/_S$/, 's'],
  [/_DAYS$/, 'days'],
  [/_BYTES$/, 'bytes'],
  [/_PERCENT$/, '%'],
]);

/** The rows by their section of the documentation. */
// biome-ignore format: a row has two or three lines, and not one for each argument
const SECTIONS = {
  'Ports and processes': [
    integer('PORT', 'port', 3000, [0, 65_535],
      'Public port: WebSocket, `/sse`, HTTP API, `/livez`, `/readyz`. 0 selects a free port.',
      { fixed: true }),
    textSetting('HOST', 'host',
      'Address the public port listens on. Empty means all addresses.', { fixed: true }),
    integer('METRICS_PORT', 'metricsPort', 9090, [0, 65_535],
      'Operations port: `/metrics`, `/livez`, `/readyz`. Prometheus uses 9090 by default too: on a machine with both, choose another port.',
      { fixed: true }),
    integer('FANFARE_KEEP_ALIVE_MS', 'keepAliveMs', 5000, [1000, 900_000],
      'Time that the public port keeps an idle HTTP connection. Behind a load balancer that keeps connections to its servers, set more than its own time: 65000 for one of 60 s.'),
    textSetting('METRICS_HOST', 'metricsHost',
      'Address the operations port listens on.', { default: '127.0.0.1', fixed: true }),
    choice('FANFARE_CONSOLE', 'console', ['auto', 'on', 'key', 'off'],
      'Console at `/` of the operations port. `auto`: without a key on a loopback address, with a key elsewhere, off if there is no key with the right `console`. `on`: the same, but without such a key the server does not start. `key`: with a key everywhere.',
      { fixed: true }),
    integer('WORKERS', 'workers', availableParallelism, [1, 1024],
      'Number of worker processes.', { fixed: true }),
    textSetting('SERVER_ID', 'serverId',
      'Name of this server in logs and in `welcome`.', { default: hostname, fixed: true }),
    textSetting('FANFARE_CONFIG_FILE', 'configFile',
      'File of `NAME=value` lines, read at start and at each SIGHUP. The environment takes precedence.',
      { fixed: true }),
    choice('LOG_LEVEL', 'logLevel', ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
      'Lowest level that is logged.', { default: 'info' }),
    choice('LOG_FORMAT', 'logFormat', ['auto', 'json', 'text'],
      'Log format. `auto` is text on a terminal, and JSON otherwise or with `NODE_ENV=production`. `NO_COLOR` turns colours off.',
      { fixed: true }),
    choice('FANFARE_READINESS', 'readiness', ['alone', 'redis'],
      'What `/readyz` on the public port depends on: the worker `alone`, or `redis` too. With `redis`, a Redis outage takes every server out of the load balancer at once.'),
    integer('FANFARE_WORKER_TIMEOUT_MS', 'workerTimeoutMs', 10_000, [500, 600_000],
      'Time without a message from a worker after which it is considered hung, killed and replaced.'),
    choice('FANFARE_SCHEDULING', 'scheduling', ['shared', 'round-robin'],
      'Which process accepts connections: `shared`, any idle worker (half the cost); `round-robin`, the primary, which hands them to the workers in turn.',
      { fixed: true }),
    choice('FANFARE_FAST_PATHS', 'fastPaths', ['on', 'off'],
      'Whether to use undocumented parts of Node, `ws` and `ioredis` if they work as expected. `off` uses documented interfaces only and costs CPU.'),
    textSetting('FANFARE_STATE_DIR', 'stateDir',
      'Directory in which the embedded backend keeps revocations and undelivered webhooks across a restart. Empty: in memory only. With Redis, Redis keeps them.',
      { fixed: true }),
  ],
  TLS: [
    textSetting('TLS_CERT_FILE', 'tlsCertFile',
      'Certificate (PEM) of the public port, followed by those of its authorities. If you set it, the port speaks only TLS 1.2 and 1.3. SIGHUP reads a renewed certificate and keeps all connections.',
      { part: 'tls' }),
    textSetting('TLS_KEY_FILE', 'tlsKeyFile', 'Key (PEM) of that certificate.', { part: 'tls' }),
    textSetting('TLS_KEY_PASSPHRASE', 'tlsKeyPassphrase',
      'Passphrase of the key, if it is encrypted.', { secret: true, part: 'tls' }),
  ],
  Redis: [
    textSetting('REDIS_URL', 'redisUrl',
      'URL of the Redis that the servers share (`redis://`, `rediss://`). Without a Redis setting, Fanfare uses the embedded broker, for one machine.',
      { ...REDIS, secret: true }),
    textSetting('REDIS_HOST', 'redisHost', 'Redis host, instead of `REDIS_URL`.', REDIS),
    integer('REDIS_PORT', 'redisPort', 6379, [1, 65_535], 'Redis port, with `REDIS_HOST`.', REDIS),
    listSetting('REDIS_SENTINELS', 'redisSentinels',
      'Sentinels of the Redis primary, as `host:port` separated by commas, instead of `REDIS_URL`.',
      REDIS),
    textSetting('REDIS_SENTINEL_NAME', 'redisSentinelName',
      'Name of the primary at the Sentinels.', REDIS),
    listSetting('REDIS_CLUSTER', 'redisCluster',
      'Some nodes of a Redis Cluster, as `host:port` separated by commas, instead of `REDIS_URL`. The other nodes are discovered.',
      REDIS),
    textSetting('REDIS_SUBSCRIBE_URL', 'redisSubscribeUrl',
      'URL of a replica of the primary in the [region](regions.md) of this server, or several separated by commas. Workers hear what is published through it. All else goes to the primary. Without a user and a password it has those of the primary.',
      { ...REDIS, secret: true }),
    textSetting('REDIS_USERNAME', 'redisUsername', 'ACL user of Redis.', REDIS),
    textSetting('REDIS_PASSWORD', 'redisPassword',
      'Password of the ACL user, or of the default user.', { ...REDIS, secret: true }),
    textSetting('REDIS_SENTINEL_USERNAME', 'redisSentinelUsername', 'ACL user of the Sentinels.', REDIS),
    textSetting('REDIS_SENTINEL_PASSWORD', 'redisSentinelPassword',
      'Password of the Sentinels.', { ...REDIS, secret: true }),
    choice('REDIS_TLS', 'redisTls', ['off', 'on'],
      'TLS for Redis and its Sentinels, like `rediss://`.', REDIS),
    textSetting('REDIS_TLS_CA_FILE', 'redisTlsCaFile',
      'CA certificates (PEM) for Redis, instead of those of the system.', REDIS),
    textSetting('REDIS_TLS_CERT_FILE', 'redisTlsCertFile', 'Client certificate (PEM) for Redis.', REDIS),
    textSetting('REDIS_TLS_KEY_FILE', 'redisTlsKeyFile', 'Key (PEM) of the client certificate.', REDIS),
    textSetting('REDIS_TLS_SERVERNAME', 'redisTlsServername',
      'Name expected in the certificate of Redis, if it differs from the host.', REDIS),
    choice('REDIS_SUBSCRIPTIONS', 'redisSubscriptions', ['worker', 'server'],
      'Deprecated, without effect: each worker subscribes at Redis. With `server`, the server logs a warning when it starts.'),
    textSetting('FANFARE_REDIS_PREFIX', 'redisPrefix',
      'Prefix of all channels and keys in Redis, without braces. Applications that share a Redis need different ones, also in different databases.',
      { default: 'fanfare:', fixed: true }),
    integer('FANFARE_REDIS_TIMEOUT_MS', 'redisTimeoutMs', 1500, [50, 60_000],
      'Time limit for a reply from Redis. When it expires, the outcome of a publish is unknown.'),
    integer('FANFARE_MAX_PUBSUB_BYTES', 'maxPubsubBytes', 65_536, [1024, 1_048_576],
      'Largest message sent through Redis pub/sub. A larger message is stored in Redis, and a reference to it is published.'),
  ],
  Access: [
    textSetting('TRUST_PROXY', 'trustProxy',
      'Proxies whose `X-Forwarded-For` you trust: a hop count, or comma-separated CIDRs.'),
    listSetting('ALLOWED_ORIGINS', 'allowedOrigins',
      'Comma-separated origins whose pages may connect, by any protocol. `https://*.chat.example` stands for one label: a.chat.example, not chat.example or a.b.chat.example. Empty: all. A connection without an `Origin` header does not come from a browser and is accepted.'),
    choice('FANFARE_AUTH', 'auth', ['auto', 'required', 'optional', 'off'],
      'Whether a connection needs a token. `optional`: a connection without one is anonymous and unrestricted. `auto`: `required` if a key is configured, else `off`.'),
    textSetting('JWT_SECRET', 'jwtSecret',
      'Secrets of at least 32 bytes, up to four, one on each line: the first signs tokens, all are accepted (HS256, HS384, HS512).',
      { secret: true, isMultiline: true, part: 'tokens' }),
    textSetting('JWT_SECRET_PREVIOUS', 'jwtSecretPrevious',
      'A second secret.',
      { secret: true, part: 'tokens', old: 'add it to JWT_SECRET, on a line of its own' }),
    textSetting('JWT_PUBLIC_KEY', 'jwtPublicKey',
      'Public keys of the signer of tokens (RSA, EC, Ed25519), up to four: PEM text, or the path of a PEM file.',
      { isMultiline: true, part: 'tokens' }),
    textSetting('JWT_PUBLIC_KEY_PREVIOUS', 'jwtPublicKeyPrevious',
      'A second public key.',
      { isMultiline: true, part: 'tokens', old: 'add the key to those of JWT_PUBLIC_KEY' }),
    textSetting('JWT_JWKS_URL', 'jwtJwksUrl',
      'URL of a JSON Web Key Set with public keys (`https://`, or `http://` to this machine).',
      { secret: true, part: 'tokens' }),
    listSetting('JWT_ALGORITHMS', 'jwtAlgorithms',
      'Comma-separated token algorithms. Empty: those that fit the keys.',
      { part: 'tokens' }),
    listSetting('JWT_AUDIENCE', 'jwtAudience',
      'Comma-separated audiences. `aud` must contain one of them. Empty: not checked.',
      { part: 'tokens' }),
    listSetting('JWT_ISSUER', 'jwtIssuer',
      'Comma-separated issuers. `iss` must be one of them. Empty: not checked.',
      { part: 'tokens' }),
    integer('JWT_MAX_LIFETIME_S', 'jwtMaxLifetimeS', 604_800, [60, 31_622_400],
      'Longest token lifetime. Tokens with a longer one are refused. Revocations are kept this long.',
      { part: 'tokens' }),
    choice('FANFARE_TOKEN_REASONS', 'tokenReasons', ['auto', 'on', 'off'],
      'Whether a client whose token is refused gets the cause, such as `claim sub: it is missing`. The log has it anyway. `auto`: if the server runs on a terminal.',
      { part: 'tokens' }),
    choice('FANFARE_CLIENT_BROADCAST', 'clientBroadcast', ['auto', 'on', 'off'],
      'Whether clients may `broadcast` to everyone. `auto`: all clients if no tokens are configured, otherwise those whose token grants it.'),
    choice('FANFARE_SSE', 'sse', ['on', 'off'],
      'Whether clients may listen through server-sent events (`GET /sse`).'),
  ],
  'HTTP API': [
    textSetting('API_KEYS', 'apiKeysText',
      'HTTP API keys, separated by semicolons or line breaks: a name, a secret of at least 32 characters, rights, and optionally `rooms=` with patterns and `app=` with the id of an [app](pusher.md#native-clients-of-an-app). Without a key there is no HTTP API.',
      { secret: true, isMultiline: true, part: 'apiKeys' }),
    textSetting('API_KEYS_FILE', 'apiKeysFile',
      'File with more keys, one on each line. SIGHUP reads it again.',
      { part: 'apiKeys' }),
    rate('FANFARE_API_MESSAGES_RATE', 'apiMessagesPerMinute', 'apiMessagesBurst', '60000/min burst 10000',
      'Requests by one API key or app, in each worker. A request with several messages or rooms counts once for each, and a message once for each started 4 KB.'),
    integer('FANFARE_API_MAX_REQUESTS', 'apiMaxRequests', 100, [1, 100_000],
      'HTTP API requests that a worker handles at once. If there are several keys or apps, each may use half of them. Further requests get 503.'),
    integer('FANFARE_API_MAX_BODY_BYTES', 'apiMaxBodyBytes', 1_048_576, [1024, 67_108_864],
      'Largest body of an HTTP API request. `FANFARE_MAX_MESSAGE_BYTES` bounds each payload in it, unless there is a bucket for large messages.'),
  ],
  Hooks: [
    textSetting('FANFARE_HOOKS', 'hooksFile',
      'Your [hooks](hooks.md): a JavaScript file with `onConnect`, `onJoin`, `onPublish`, `onDisconnect` and others; or the URL of a backend that answers them [over HTTP](hooks-http.md); or a `.json` file with several backends. SIGHUP loads it again.',
      { part: 'hooks' }),
    textSetting('FANFARE_HOOKS_SECRET', 'hooksSecret',
      'Secret that signs hooks over HTTP: `whsec_` and 24 to 64 random bytes in Base64. Two while they rotate, one on each line.',
      { secret: true, isMultiline: true, part: 'hooks' }),
    integer('FANFARE_HOOK_TIMEOUT_MS', 'hookTimeoutMs', 1000, [10, 60_000],
      'Time limit for a hook call. When it expires, the call fails and the request is refused.'),
    integer('FANFARE_HOOK_CALLS', 'hookCalls', 1000, [1, 100_000],
      'Hook calls that run at once in a worker, 100 over HTTP unless you set it. Further calls wait in line.'),
    integer('FANFARE_HOOK_CALLS_PER_CONNECTION', 'hookCallsPerConnection', 16, [1, 1000],
      'Hook calls that run at once for one connection. They take effect in the order in which the client sent its commands. 1: one after the other.'),
  ],
  Webhooks: [
    textSetting('FANFARE_WEBHOOKS', 'webhooksFile',
      'JSON file with your webhook endpoints. They are told which rooms are occupied, who joined and left, and what clients published. SIGHUP reads the file again. Without it nothing is recorded.',
      { part: 'webhooks' }),
    choice('FANFARE_WEBHOOKS_PUBLIC_ONLY', 'webhooksPublicOnly', ['off', 'on'],
      'Whether to refuse endpoints, and backends of hooks, with private addresses, such as 10.0.0.0/8 and the loopback. Link-local and multicast addresses are always refused.',
      { part: 'webhooks' }),
  ],
  Pusher: [
    textSetting('FANFARE_PUSHER_APPS', 'pusherAppsFile',
      'JSON file with the apps of your Pusher clients, such as pusher-js and Laravel Echo. SIGHUP reads it again. Without apps the server does not speak this protocol.',
      { part: 'pusher' }),
    textSetting('FANFARE_PUSHER_APP_ID', 'pusherAppId',
      'Instead of the file: the id of one app.', { part: 'pusher' }),
    textSetting('FANFARE_PUSHER_APP_KEY', 'pusherAppKey',
      'Its key, which clients have in their URL.', { part: 'pusher' }),
    textSetting('FANFARE_PUSHER_APP_SECRET', 'pusherAppSecret',
      'Its secret. Up to four, one on each line: the first signs webhooks, all are accepted.',
      { secret: true, isMultiline: true, part: 'pusher' }),
    textSetting('FANFARE_PUSHER_PATH', 'pusherPath',
      'Path before `/app/…` and `/apps/…`, which clients set as `wsPath`. Both also work without it.',
      { part: 'pusher' }),
  ],
  Centrifugo: [
    choice('FANFARE_CENTRIFUGO', 'centrifugoDoor', ['off', 'on'],
      'Whether the server also speaks the protocol of [Centrifugo clients](centrifugo.md). `FANFARE_HISTORY` and `FANFARE_PRESENCE` then also take patterns of their channels, such as `$private:*`.',
      { part: 'centrifugo' }),
    choice('FANFARE_CENTRIFUGO_TOKENS', 'centrifugoTokens', ['strict', 'lenient'],
      'Tokens of these clients. `strict`: they need `exp` and `sub`, as native tokens do. `lenient`: without `exp` a token never expires, and without `sub` the connection is anonymous.',
      { part: 'centrifugo' }),
    listSetting('FANFARE_CENTRIFUGO_ALLOW', 'centrifugoAllow',
      'What these clients may do in addition to the rights in their tokens: comma-separated `right:pattern`, such as `subscribe:news:*`. Rights: `subscribe`, `publish`, `presence`, `history`. Private channels and those of named users stay [guarded](centrifugo.md#channels).',
      { part: 'centrifugo' }),
    textSetting('FANFARE_CENTRIFUGO_PERSONAL', 'centrifugoPersonal',
      'Prefix of the personal channel of each user, such as `#` or `personal:#`. The server subscribes all connections of the user to it. Empty: no personal channels.',
      { part: 'centrifugo' }),
    textSetting('FANFARE_CENTRIFUGO_PATH', 'centrifugoPath',
      'Path before `/connection/…` and `/emulation`.', { part: 'centrifugo' }),
    textSetting('FANFARE_CENTRIFUGO_API_KEY', 'centrifugoApiKey',
      'Key of Centrifugo’s server API. Up to four, one on each line: all are accepted. Without a key there is no such API.',
      { secret: true, isMultiline: true, part: 'centrifugo' }),
    textSetting('FANFARE_CENTRIFUGO_API_PATH', 'centrifugoApiPath',
      'Path before the methods of that API. You may use `/api` if there are no `API_KEYS`.',
      { default: '/centrifugo/api', part: 'centrifugo' }),
  ],
  Rooms: [
    listSetting('FANFARE_HISTORY', 'history',
      'Rooms with history, as comma-separated `pattern=size/time`: `chat.*=100/300s` keeps the last 100 publications until 300 s after the latest.',
      { fixed: true }),
    choice('FANFARE_HISTORY_FENCE', 'historyFence', ['strict', 'trust'],
      'What happens after Redis restarts or fails over: `strict` restarts all histories, because Redis may have lost publications; `trust` continues them, at your own risk.',
      { fixed: true }),
    listSetting('FANFARE_STATE', 'state',
      '[Rooms with state](state-rooms.md), as `pattern=keys/time` separated by commas: `price.*=1000/1h` keeps the newest message of up to 1,000 keys until 1 h after the latest. `price.*=1000/1h every 100ms` sends changes at most once in 100 ms. These rules apply before those of `FANFARE_HISTORY`.',
      { fixed: true }),
    integer('FANFARE_STATE_MAX_VALUE_BYTES', 'stateMaxValueBytes', 16_384, [16, 262_144],
      'Largest payload in a room with state. No message may be larger than `FANFARE_MAX_MESSAGE_BYTES`.'),
    integer('FANFARE_STATE_MAX_BYTES', 'stateMaxBytes', 4_194_304, [1024, 8_388_608],
      'Largest state of a room: its keys and messages. If the state is full, by bytes or by keys, new keys and larger messages are refused.',
      { fixed: true }),
    listSetting('FANFARE_PRESENCE', 'presence',
      'Rooms with presence, as comma-separated patterns. The server lists their users and announces joins and leaves.',
      { fixed: true }),
    integer('FANFARE_PRESENCE_MAX_MEMBERS', 'presenceMaxMembers', 1000, [1, 10_000],
      'Number of users up to which a room with presence lists them and announces joins and leaves. Larger rooms report only the number.',
      { fixed: true }),
    integer('FANFARE_ROOM_LINGER_MS', 'roomLingerMs', 2000, [0, 600_000],
      'How long a worker stays subscribed to a room at the broker after its last member has left.'),
  ],
  Limits: [
    listSetting('FANFARE_LIMITS', 'limits',
      'Mode of all rate and connection limits (`off`, `observe` or `enforce`), and modes of single [limits](#limits-with-a-mode): `enforce,frames=off,rooms=observe`. Size limits are always enforced.',
      { part: 'limits', default: ['enforce'] }),
    integer('FANFARE_MAX_CONNECTIONS_PER_IP', 'maxConnectionsPerIp', 100, [1, 1e7],
      'Connections from one client address (IPv6: one /64), over all workers of this server; with Redis over all servers, see `fleet` of `FANFARE_LIMITS`.'),
    integer('FANFARE_MAX_CONNECTIONS_PER_USER', 'maxConnectionsPerUser', 100, [1, 1e7],
      'Connections of one user (the `sub` of their tokens), over all workers of this server; with Redis over all servers.'),
    rate('FANFARE_MESSAGES_RATE', 'messagesPerMinute', 'messagesBurst', '1800/min burst 300',
      'Messages from one connection: the tokens that its bucket regains in a minute, and the size of the bucket (`burst`). A message takes one token per started 4 KB, and the same again for each started 100 members of its room in this worker beyond the first 100.'),
    rate('FANFARE_MESSAGES_RATE_PER_IP', 'messagesPerMinutePerIp', 'messagesBurstPerIp', '3600/min burst 600',
      'Messages from all connections of one client address, in each worker.'),
    rate('FANFARE_MESSAGES_RATE_PER_USER', 'messagesPerMinutePerUser', 'messagesBurstPerUser', '3600/min burst 600',
      'Messages from all connections of one user (the `sub` of their tokens), in each worker.'),
    rate('FANFARE_BROADCASTS_RATE_PER_IP', 'broadcastsPerMinutePerIp', 'broadcastsBurstPerIp', '60/min burst 20',
      'Broadcasts from all connections of one client address, in each worker. A broadcast takes one token per started 4 KB.'),
    rate('FANFARE_FRAMES_RATE', 'framesPerMinute', 'framesBurst', '600/min burst 100',
      'Pings, pongs, empty frames and fragments under 1 KB from one connection. If it sends more, it is closed with 1008.'),
    integer('FANFARE_MAX_REFUSED_MESSAGES', 'maxRefusedMessages', 1000, [1, 1e9],
      'Messages of one connection that may be refused for their rate within a minute. After one more, it is closed with 4005.'),
    integer('FANFARE_MAX_MESSAGE_BYTES', 'maxMessageBytes', 102_400, [128, 16_777_216],
      'Largest message accepted from a client. If a client sends a larger one, its connection is closed with 1009. Its payload is bounded by `FANFARE_MAX_INLINE_BYTES` too. A message is read at once: 1 MB takes up to 20 ms, in which the worker does nothing else.'),
    integer('FANFARE_MAX_INLINE_BYTES', 'maxInlineBytes', 262_144, [128, 16_777_216],
      'Largest payload that a message carries. A client that sends a larger one gets `MESSAGE_TOO_LARGE`. The HTTP API stores larger ones in the bucket of `FANFARE_BLOB_URL`.'),
    integer('FANFARE_MAX_HANDSHAKES', 'maxHandshakes', 10_000, [1, 1e6],
      'Unfinished handshakes in a worker. Above the limit, the worker closes the oldest one of the address with the most.'),
    integer('FANFARE_HANDSHAKE_TIMEOUT_MS', 'handshakeTimeoutMs', 8000, [100, 120_000],
      'Time limit for a handshake, from the connection to the response.'),
    rate('FANFARE_HANDSHAKES_RATE_PER_IP', 'handshakesPerMinutePerIp', 'handshakesBurstPerIp', '600/min burst 600',
      'Handshakes and plain HTTP requests from one client address, in each worker.'),
    integer('FANFARE_MAX_ROOMS_PER_CONNECTION', 'maxRoomsPerConnection', 128, [1, 1e6],
      'Rooms that one connection may join.'),
    integer('FANFARE_MAX_LOOP_LAG_MS', 'maxLoopLagMs', 500, [10, 60_000],
      'Event-loop lag above which a worker accepts no new connections.'),
    integer('FANFARE_MAX_HEAP_PERCENT', 'maxHeapPercent', 80, [10, 100],
      'A worker that uses more than this share of its heap limit, or of its part of the memory, accepts no new connections.'),
  ],
  'Bytes to clients': [
    integer('FANFARE_MAX_UNSENT_BYTES', 'maxUnsentBytes', 1_048_576, [16_384, 1_073_741_824],
      'Unsent bytes of one connection above which it is a slow consumer.'),
    integer('FANFARE_MAX_UNSENT_AGE_MS', 'maxUnsentAgeMs', 10_000, [100, 600_000],
      'Age of the oldest unsent byte above which a connection is a slow consumer, unless it is in a room with history.'),
    integer('FANFARE_MAX_UNSENT_HEAP_PERCENT', 'maxUnsentHeapPercent', 25, [1, 100],
      'Unsent bytes of all connections of a worker, as a share of its heap limit or of its part of the memory, whichever is less. Above it, the connections with the most are closed first.'),
    choice('FANFARE_SLOW_CONSUMER', 'slowConsumer', ['close', 'drop'],
      'What happens to slow consumers in rooms without history: `close` closes them with 4003, `drop` leaves out publications until they have caught up.'),
    choice('FANFARE_COMPRESSION', 'compression', ['off', 'on'],
      'Whether to offer permessage-deflate, without context takeover. A publication of 1 KB or more is compressed once for all its receivers.'),
    integer('FANFARE_PING_INTERVAL_MS', 'pingIntervalMs', 30_000, [200, 3_600_000],
      'Time between two pings to a connection.'),
    integer('FANFARE_PONG_TIMEOUT_MS', 'pongTimeoutMs', 10_000, [100, 3_600_000],
      'Time within which a pong or any other frame must follow a ping.'),
  ],
  'Large messages': [
    textSetting('FANFARE_BLOB_URL', 'blobUrl',
      'S3-compatible bucket for large messages, with a prefix for the objects: `https://host/bucket/prefix` or `https://bucket.host/prefix`. Empty: no large messages.',
      { part: 'blobs' }),
    textSetting('FANFARE_BLOB_PUBLIC_URL', 'blobPublicUrl',
      'URL of the same bucket for clients, if they reach it at another address.', { part: 'blobs' }),
    textSetting('AWS_ACCESS_KEY_ID', 'awsAccessKeyId',
      'Access key of the bucket.', { secret: true, part: 'blobs' }),
    textSetting('AWS_SECRET_ACCESS_KEY', 'awsSecretAccessKey',
      'Secret of the access key.', { secret: true, part: 'blobs' }),
    textSetting('AWS_SESSION_TOKEN', 'awsSessionToken',
      'Session token, if the credentials are temporary. Signed URLs end with it.',
      { secret: true, part: 'blobs' }),
    textSetting('AWS_REGION', 'awsRegion',
      'Region of the bucket. Empty: the one in its host name, else `us-east-1`.',
      { part: 'blobs' }),
    integer('FANFARE_BLOB_MAX_BYTES', 'blobMaxBytes', 67_108_864, [1024, 5_368_709_120],
      'Largest object in the bucket. A larger body gets 413.'),
    integer('FANFARE_BLOB_MAX_UPLOADS', 'blobMaxUploads', 8, [1, 1000],
      'Uploads, and checks of uploads, that a worker handles at once. Others get 503. A body of unknown length takes up to 5 MiB of memory, any other 256 KiB.'),
    integer('FANFARE_BLOB_TIMEOUT_MS', 'blobTimeoutMs', 5000, [100, 60_000],
      'Time within which the bucket must answer, or accept further bytes. After that, the request gets 503.'),
    integer('FANFARE_BLOB_UPLOAD_TIMEOUT_MS', 'blobUploadTimeoutMs', 60_000, [1000, 3_600_000],
      'Time limit for a whole upload through Fanfare.'),
    integer('FANFARE_BLOB_URL_TTL_S', 'blobUrlTtlS', 3600, [60, 604_500],
      'Minimum time for which the URL in a reference is valid after its delivery.'),
    integer('FANFARE_BLOB_TTL_DAYS', 'blobTtlDays', 30, [1, 3650],
      'Minimum time for which the bucket keeps objects: set its lifecycle rule to more. Older messages are replayed without a URL.'),
  ],
  'Drains and balance': [
    integer('FANFARE_DRAIN_DELAY_MS', 'drainDelayMs', 2000, [0, 600_000],
      'Time from the first 503 of `/readyz` until the server stops accepting, so that the load balancer notices.'),
    integer('FANFARE_RECONNECT_WINDOW_MS', 'reconnectWindowMs', 20_000, [0, 600_000],
      'Longest time over which the clients of a drained worker reconnect. Each is given its own delay: over 1 s for every 500 clients that wait, and over as many times more as the window is longer than 20 s.'),
    integer('FANFARE_SHUTDOWN_TIMEOUT_MS', 'shutdownTimeoutMs', 30_000, [1000, 3_600_000],
      'Time limit for a drain.'),
    integer('FANFARE_MAX_CONNECTION_AGE_MS', 'maxConnectionAgeMs', 0, [0, 604_800_000],
      'Longest life of a connection, WebSocket or server-sent events. The server closes each one with 4007 at its first ping after a random time in the last quarter. 0: no limit.'),
    integer('FANFARE_REBALANCE_SKEW_PERCENT', 'rebalanceSkewPercent', 0, [0, 1000],
      'Connections of the fullest worker as a share of the mean, for example 120. If the share stays above this for `FANFARE_RECONNECT_WINDOW_MS`, workers close connections with 4006, so that their clients spread again. 0: never.'),
    integer('FANFARE_REBALANCE_RATE_PERCENT', 'rebalanceRatePercent', 1, [1, 10],
      'Share of its connections that a worker closes each second during a rebalance.'),
  ],
};

/** @type {readonly Setting[]} */
export const SETTINGS = Object.freeze(
  Object.entries(SECTIONS).flatMap(([section, rows]) => rows.map((row) => ({ ...row, section }))),
);

/** The settings that most servers set; docs/configuration.md begins with them. */
export const ESSENTIALS = /** @type {const} */ ([
  'WORKERS',
  'REDIS_URL',
  'JWT_SECRET',
  'API_KEYS',
  'ALLOWED_ORIGINS',
  'TRUST_PROXY',
  'FANFARE_HISTORY',
  'FANFARE_PRESENCE',
  'FANFARE_LIMITS',
  'TLS_CERT_FILE',
]);

/**
 * The limits with a mode: the name in FANFARE_LIMITS, the key in the configuration, the setting of
 * older versions. If a limit has a label of `fanfare_limits_observed_total`, that is its name.
 */
// biome-ignore format: one line each
export const LIMIT_MODES = /** @type {const} */ ([
  { limit: 'connections_per_ip', key: 'maxConnectionsPerIpMode', old: 'FANFARE_MAX_CONNECTIONS_PER_IP_MODE', bounds: '`FANFARE_MAX_CONNECTIONS_PER_IP`' },
  { limit: 'connections_per_user', key: 'maxConnectionsPerUserMode', old: 'FANFARE_MAX_CONNECTIONS_PER_USER_MODE', bounds: '`FANFARE_MAX_CONNECTIONS_PER_USER`' },
  { limit: 'fleet', key: 'fleetLimitsMode', old: 'FANFARE_FLEET_LIMITS_MODE', bounds: 'The two above, and `maxConnections` of apps, [over all servers](limits.md#over-all-servers) together, with Redis. `off`: each server has them for itself.' },
  { limit: 'messages', key: 'messagesPerMinuteMode', old: 'FANFARE_MESSAGES_PER_MINUTE_MODE', bounds: '`FANFARE_MESSAGES_RATE`' },
  { limit: 'messages_per_ip', key: 'messagesPerMinutePerIpMode', old: 'FANFARE_MESSAGES_PER_MINUTE_PER_IP_MODE', bounds: '`FANFARE_MESSAGES_RATE_PER_IP`' },
  { limit: 'messages_per_user', key: 'messagesPerMinutePerUserMode', old: 'FANFARE_MESSAGES_PER_MINUTE_PER_USER_MODE', bounds: '`FANFARE_MESSAGES_RATE_PER_USER`' },
  { limit: 'broadcasts_per_ip', key: 'broadcastsPerMinutePerIpMode', old: 'FANFARE_BROADCASTS_PER_MINUTE_PER_IP_MODE', bounds: '`FANFARE_BROADCASTS_RATE_PER_IP`' },
  { limit: 'frames', key: 'framesPerMinuteMode', old: 'FANFARE_FRAMES_PER_MINUTE_MODE', bounds: '`FANFARE_FRAMES_RATE`' },
  { limit: 'handshakes', key: 'maxHandshakesMode', old: 'FANFARE_MAX_HANDSHAKES_MODE', bounds: '`FANFARE_MAX_HANDSHAKES`. `off` also removes the time limit on waiting for the worker.' },
  { limit: 'handshakes_per_ip', key: 'handshakesPerMinutePerIpMode', old: 'FANFARE_HANDSHAKES_PER_MINUTE_PER_IP_MODE', bounds: '`FANFARE_HANDSHAKES_RATE_PER_IP`' },
  { limit: 'rooms', key: 'maxRoomsPerConnectionMode', old: 'FANFARE_MAX_ROOMS_PER_CONNECTION_MODE', bounds: '`FANFARE_MAX_ROOMS_PER_CONNECTION`' },
  { limit: 'overload', key: 'overloadMode', old: 'FANFARE_OVERLOAD_MODE', bounds: '`FANFARE_MAX_LOOP_LAG_MS`, `FANFARE_MAX_HEAP_PERCENT` and the reserve of file descriptors' },
  { limit: 'api_messages', key: 'apiMessagesPerMinuteMode', old: 'FANFARE_API_MESSAGES_PER_MINUTE_MODE', bounds: '`FANFARE_API_MESSAGES_RATE`' },
]);

/** @typedef {typeof SECTIONS[keyof typeof SECTIONS][number]} Row */

/**
 * The type of a row's value.
 * @template {Row} R
 * @typedef {R extends {type: 'integer'|'rate'} ? number
 *   : R extends {type: 'list'} ? readonly string[]
 *   : R extends {type: 'enum', values: readonly (infer V)[]} ? V
 *   : string} Value
 */

/**
 * @typedef {object} Parsed entries that config.js derives from the text of their rows
 * @property {import('./redis.js').RedisSettings|null} redis null for the embedded broker
 * @property {import('./certificate.js').TlsSettings|null} tls null if the public port speaks plain HTTP
 * @property {import('./tokens.js').TokenSettings|null} tokens null if every connection is anonymous
 * @property {readonly import('./api-keys.js').ApiKey[]} apiKeys empty: there is no HTTP API
 * @property {import('./hooks.js').HookSettings|null} hooks null if there are none
 * @property {import('./webhooks.js').WebhookSettings|null} webhooks null if nothing is
 *   recorded: no endpoints, and no rooms to count
 * @property {import('./pusher.js').PusherSettings|null} pusher null if there are no apps
 * @property {import('./centrifugo.js').CentrifugoSettings|null} centrifugo null if its door is off
 * @property {import('./blobs.js').BlobSettings|null} blobs null if there is no bucket for large messages
 * @property {import('./tokens.js').AuthMode} auth resolved from `auto`; `off` if `tokens` is null
 * @property {'everyone'|'granted'|'none'} clientBroadcast resolved from `auto`; `granted`: by tokens
 * @property {readonly Rule<HistoryRule>[]
 *   } history the first rule that matches a room applies
 * @property {readonly Rule<StateRule>[]} state as `history`, and before it
 * @property {readonly Rule<true>[]} presence
 */

/**
 * The configuration: a frozen record with one entry per row, except for the rows of `part`.
 * @typedef {{readonly [R in Row as R extends {part: string} ? never
 *   : Exclude<R['key'], keyof Parsed>]: Value<R>} & Readonly<Parsed>
 *   & {readonly [R in Row as R extends {burst: infer B extends string} ? B : never]: number}
 *   & {readonly [L in typeof LIMIT_MODES[number] as L['key']]: Mode}} Config
 */

/**
 * A row, with the literal types that Config is derived from.
 * @template {string} K @template {Setting['type']} T @template O
 * @typedef {{env: string, key: K, type: T, default: unknown, meaning: string} & O} RowOf
 */

/**
 * @template {string} K @template {Options} [const O={}]
 * @param {string} env @param {K} key @param {string} meaning @param {O} [options]
 * @returns {RowOf<K, 'string', O>}
 */
function textSetting(env, key, meaning, options) {
  return /** @type {any} */ ({ env, key, type: 'string', default: '', meaning, ...options });
}

/**
 * @template {string} K @template {Options} [const O={}]
 * @param {string} env @param {K} key @param {string} meaning @param {O} [options]
 * @returns {RowOf<K, 'list', O>}
 */
function listSetting(env, key, meaning, options) {
  return /** @type {any} */ ({ env, key, type: 'list', default: [], meaning, ...options });
}

/**
 * @template {string} K @template {Options} [const O={}] @param {string} env its end gives the unit
 * @param {K} key @param {number|(() => number)} value the default
 * @param {readonly [min: number, max: number]} bounds @param {string} meaning @param {O} [options]
 * @returns {RowOf<K, 'integer', O>}
 */
function integer(env, key, value, [min, max], meaning, options) {
  const unit = UNITS.find(([part]) => part.test(env))?.[1];
  const row = { env, key, type: 'integer', default: value, min, max, unit, meaning };
  return /** @type {any} */ ({ ...row, ...options });
}

/**
 * A rate, as rates.js reads it.
 * @template {string} K @template {string} B
 * @param {string} env @param {K} key of what a minute refills
 * @param {B} burst the key of what may come at once
 * @param {string} value the default @param {string} meaning @returns {RowOf<K, 'rate', {burst: B}>}
 */
function rate(env, key, burst, value, meaning) {
  return { env, key, burst, type: 'rate', default: value, meaning };
}

/**
 * @template {string} K @template {string} V @template {Options} [const O={}]
 * @param {string} env @param {K} key
 * @param {readonly V[]} values the first is the default, unless the options name another
 * @param {string} meaning @param {O} [options]
 * @returns {RowOf<K, 'enum', O & {values: readonly V[]}>}
 */
function choice(env, key, values, meaning, options) {
  const row = { env, key, type: 'enum', default: values[0], values, meaning };
  return /** @type {any} */ ({ ...row, ...options });
}
