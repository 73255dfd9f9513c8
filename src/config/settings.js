// settings.js: the table of settings.
//
// A setting is one row: its environment variable, its key in the configuration, type, default,
// bounds and meaning. The type Config is derived from the rows, so a new row needs no other
// declaration. config.js reads the values; a test holds the table in the documentation equal to
// this one.

import { availableParallelism, hostname } from 'node:os';

/** A limit does nothing (`off`), counts (`observe`), or acts (`enforce`). */
export const MODES = /** @type {const} */ (['off', 'observe', 'enforce']);

/** @typedef {typeof MODES[number]} Mode */

/**
 * @typedef {object} Setting
 * @property {string} env the environment variable
 * @property {string} key the name in the frozen configuration
 * @property {'integer'|'string'|'enum'|'list'|'mode'} type a `list` is separated by commas; a `mode` is one
 *   of MODES, by default that of FANFARE_LIMITS
 * @property {unknown} default used if the variable is absent or empty; a function is called
 * @property {number} [min] smallest integer allowed
 * @property {number} [max] largest integer allowed
 * @property {string} [unit] of an integer, if it is not a plain count
 * @property {readonly string[]} [values] of an enum or a mode
 * @property {boolean} [secret] never logged or shown; `NAME_FILE` may give the path of a file with it
 * @property {boolean} [fixed] a rolling reload can't change it, because the primary uses it
 * @property {boolean} [isMultiline] line breaks are allowed in its value
 * @property {'redis'|'tls'|'tokens'|'apiKeys'|'blobs'|'hooks'} [part] the row is read into this entry of the configuration and has none of
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
      meaning:
        'Public port: WebSocket, `/sse`, HTTP API, `/livez`, `/readyz`. 0 selects a free port.',
    },
    {
      env: 'HOST',
      key: 'host',
      type: 'string',
      default: '',
      fixed: true,
      meaning: 'Address the public port listens on. Empty means all addresses.',
    },
    {
      env: 'TLS_CERT_FILE',
      key: 'tlsCertFile',
      type: 'string',
      default: '',
      part: 'tls',
      meaning:
        'Certificate (PEM) of the public port, followed by those of its authorities. With it the port speaks only TLS 1.2 and 1.3. SIGHUP reads a renewed one and keeps all connections.',
    },
    {
      env: 'TLS_KEY_FILE',
      key: 'tlsKeyFile',
      type: 'string',
      default: '',
      part: 'tls',
      meaning: 'Key (PEM) of that certificate.',
    },
    {
      env: 'TLS_KEY_PASSPHRASE',
      key: 'tlsKeyPassphrase',
      type: 'string',
      default: '',
      secret: true,
      part: 'tls',
      meaning: 'Passphrase of the key, if it is encrypted.',
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
        'Operations port: `/metrics`, `/livez`, `/readyz`. Prometheus uses 9090 by default too: on a machine with both, choose another port.',
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
      env: 'FANFARE_CONSOLE',
      key: 'console',
      type: 'enum',
      default: 'auto',
      values: ['auto', 'on', 'key', 'off'],
      fixed: true,
      meaning:
        'Console at `/` of the operations port. `auto`: without a key on a loopback address, with a key elsewhere, off if there is no key with the right `console`. `on`: the same, but without such a key the server does not start. `key`: with a key everywhere.',
    },
    {
      env: 'WORKERS',
      key: 'workers',
      type: 'integer',
      default: availableParallelism,
      min: 1,
      max: 1024,
      fixed: true,
      meaning: 'Number of worker processes.',
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
        'URL of the Redis that the servers share (`redis://`, `rediss://`). Without any Redis setting, the embedded broker is used: one machine.',
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
      meaning: 'Redis port, with `REDIS_HOST`.',
    },
    {
      env: 'REDIS_SENTINELS',
      key: 'redisSentinels',
      type: 'list',
      default: [],
      fixed: true,
      part: 'redis',
      meaning:
        'Sentinels of the Redis primary, as `host:port` separated by commas, instead of `REDIS_URL`.',
    },
    {
      env: 'REDIS_SENTINEL_NAME',
      key: 'redisSentinelName',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'Name of the primary at the Sentinels.',
    },
    {
      env: 'REDIS_CLUSTER',
      key: 'redisCluster',
      type: 'list',
      default: [],
      fixed: true,
      part: 'redis',
      meaning:
        'Some nodes of a Redis Cluster, as `host:port` separated by commas, instead of `REDIS_URL`. The other nodes are discovered.',
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
      meaning: 'Password of the ACL user, or of the default user.',
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
      meaning: 'TLS for Redis and its Sentinels, like `rediss://`.',
    },
    {
      env: 'REDIS_TLS_CA_FILE',
      key: 'redisTlsCaFile',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'CA certificates (PEM) for Redis, instead of those of the system.',
    },
    {
      env: 'REDIS_TLS_CERT_FILE',
      key: 'redisTlsCertFile',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'Client certificate (PEM) for Redis.',
    },
    {
      env: 'REDIS_TLS_KEY_FILE',
      key: 'redisTlsKeyFile',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'Key (PEM) of the client certificate.',
    },
    {
      env: 'REDIS_TLS_SERVERNAME',
      key: 'redisTlsServername',
      type: 'string',
      default: '',
      fixed: true,
      part: 'redis',
      meaning: 'Name expected in the certificate of Redis, if it differs from the host.',
    },
    {
      env: 'REDIS_SUBSCRIPTIONS',
      key: 'redisSubscriptions',
      type: 'enum',
      default: 'worker',
      values: ['worker', 'server'],
      meaning:
        'Deprecated, and without effect: each worker subscribes at Redis. With `server`, the log has a warning at the start.',
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
      meaning: 'Lowest level that is logged.',
    },
    {
      env: 'LOG_FORMAT',
      key: 'logFormat',
      type: 'enum',
      default: 'auto',
      values: ['auto', 'json', 'text'],
      fixed: true,
      meaning:
        'Log format. `auto` is text on a terminal, and JSON otherwise or with `NODE_ENV=production`. `NO_COLOR` turns colours off.',
    },
    {
      env: 'TRUST_PROXY',
      key: 'trustProxy',
      type: 'string',
      default: '',
      meaning:
        'Trusted proxies, whose `X-Forwarded-For` is used: a hop count, or CIDRs separated by commas.',
    },
    {
      env: 'ALLOWED_ORIGINS',
      key: 'allowedOrigins',
      type: 'list',
      default: [],
      meaning:
        'Allowed origins, separated by commas. Empty means all. A connection without an `Origin` header is not from a browser and is accepted.',
    },
    {
      env: 'FANFARE_CONFIG_FILE',
      key: 'configFile',
      type: 'string',
      default: '',
      fixed: true,
      meaning:
        'File of `NAME=value` lines, read at start and at each SIGHUP. The environment takes precedence.',
    },
    {
      env: 'FANFARE_AUTH',
      key: 'auth',
      type: 'enum',
      default: 'auto',
      values: ['auto', 'required', 'optional', 'off'],
      meaning:
        'Whether a connection needs a token. `optional`: a connection without one is anonymous and unrestricted. `auto`: `required` if a key is configured, else `off`.',
    },
    {
      env: 'JWT_SECRET',
      key: 'jwtSecret',
      type: 'string',
      default: '',
      secret: true,
      isMultiline: true,
      part: 'tokens',
      meaning:
        'Secret of at least 32 bytes that signs tokens (HS256, HS384, HS512). Further lines are further secrets that are accepted, too.',
    },
    {
      env: 'JWT_SECRET_PREVIOUS',
      key: 'jwtSecretPrevious',
      type: 'string',
      default: '',
      secret: true,
      part: 'tokens',
      meaning: 'A second secret that is accepted too, while `JWT_SECRET` is rotated.',
    },
    {
      env: 'JWT_PUBLIC_KEY',
      key: 'jwtPublicKey',
      type: 'string',
      default: '',
      isMultiline: true,
      part: 'tokens',
      meaning:
        'Public key of the signer of tokens (RSA, EC, Ed25519): PEM text, or the path of a PEM file.',
    },
    {
      env: 'JWT_PUBLIC_KEY_PREVIOUS',
      key: 'jwtPublicKeyPrevious',
      type: 'string',
      default: '',
      isMultiline: true,
      part: 'tokens',
      meaning: 'A second public key that is accepted too, while `JWT_PUBLIC_KEY` is rotated.',
    },
    {
      env: 'JWT_JWKS_URL',
      key: 'jwtJwksUrl',
      type: 'string',
      default: '',
      secret: true,
      part: 'tokens',
      meaning:
        'URL of a JSON Web Key Set with public keys (`https://`, or `http://` to this machine).',
    },
    {
      env: 'JWT_ALGORITHMS',
      key: 'jwtAlgorithms',
      type: 'list',
      default: [],
      part: 'tokens',
      meaning: 'Algorithms of tokens, separated by commas; empty: those that fit the keys.',
    },
    {
      env: 'JWT_AUDIENCE',
      key: 'jwtAudience',
      type: 'list',
      default: [],
      part: 'tokens',
      meaning: 'Values, separated by commas, of which `aud` has to hold one; empty: not checked.',
    },
    {
      env: 'JWT_ISSUER',
      key: 'jwtIssuer',
      type: 'list',
      default: [],
      part: 'tokens',
      meaning: 'Values, separated by commas, one of which `iss` has to be; empty: not checked.',
    },
    {
      env: 'JWT_MAX_LIFETIME_S',
      key: 'jwtMaxLifetimeS',
      type: 'integer',
      default: 604_800,
      min: 60,
      max: 31_622_400,
      unit: 's',
      part: 'tokens',
      meaning:
        'Longest lifetime of a token; longer ones are refused. Revocations are kept for as long.',
    },
    {
      env: 'API_KEYS',
      key: 'apiKeysText',
      type: 'string',
      default: '',
      secret: true,
      isMultiline: true,
      part: 'apiKeys',
      meaning:
        'Keys of the HTTP API, separated by semicolons or line breaks: a name, a secret of at least 32 characters, rights, and optionally `rooms=` with patterns. Without a key there is no HTTP API.',
    },
    {
      env: 'API_KEYS_FILE',
      key: 'apiKeysFile',
      type: 'string',
      default: '',
      part: 'apiKeys',
      meaning: 'File of further keys, one on each line. It is read again at each SIGHUP.',
    },
    {
      env: 'FANFARE_HOOKS',
      key: 'hooksFile',
      type: 'string',
      default: '',
      part: 'hooks',
      meaning:
        'JavaScript file with [hooks](hooks.md): `onConnect`, `onJoin`, `onPublish`, `onDisconnect`. SIGHUP loads it again. Without it no hook is called.',
    },
    {
      env: 'FANFARE_HOOK_TIMEOUT_MS',
      key: 'hookTimeoutMs',
      type: 'integer',
      default: 1000,
      min: 10,
      max: 60_000,
      unit: 'ms',
      meaning: 'Deadline of a call of a hook. After it the call counts as failed, and is refused.',
    },
    {
      env: 'FANFARE_HOOK_CALLS',
      key: 'hookCalls',
      type: 'integer',
      default: 1000,
      min: 1,
      max: 100_000,
      meaning: 'Calls of hooks that run at once in a worker. Further calls wait in line.',
    },
    {
      env: 'FANFARE_HOOK_CALLS_PER_CONNECTION',
      key: 'hookCallsPerConnection',
      type: 'integer',
      default: 16,
      min: 1,
      max: 1000,
      meaning:
        'Calls of hooks that run at once for one connection. They take effect in the order of sending. 1: one by one.',
    },
    {
      env: 'FANFARE_API_MESSAGES_PER_MINUTE',
      key: 'apiMessagesPerMinute',
      type: 'integer',
      default: 60_000,
      min: 1,
      max: 1e9,
      unit: 'a minute',
      meaning:
        'Requests of one API key, in each worker. A request with several messages or rooms counts once for each, and a message once for each started 4 KB.',
    },
    {
      env: 'FANFARE_API_MESSAGES_BURST',
      key: 'apiMessagesBurst',
      type: 'integer',
      default: 10_000,
      min: 1,
      max: 1e9,
      meaning: 'Such requests that one API key may send at once, in each worker.',
    },
    {
      env: 'FANFARE_API_MESSAGES_PER_MINUTE_MODE',
      key: 'apiMessagesPerMinuteMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of both limits.',
    },
    {
      env: 'FANFARE_API_MAX_REQUESTS',
      key: 'apiMaxRequests',
      type: 'integer',
      default: 100,
      min: 1,
      max: 100_000,
      meaning:
        'Requests of the HTTP API that a worker handles at once; one of several keys has half of them at most. Others get 503.',
    },
    {
      env: 'FANFARE_API_MAX_BODY_BYTES',
      key: 'apiMaxBodyBytes',
      type: 'integer',
      default: 1_048_576,
      min: 1024,
      max: 67_108_864,
      unit: 'bytes',
      meaning:
        'Largest body of a request to the HTTP API. Each payload in it is bounded by `FANFARE_MAX_MESSAGE_BYTES`, unless there is a bucket for large messages.',
    },
    {
      env: 'FANFARE_STATE_DIR',
      key: 'stateDir',
      type: 'string',
      default: '',
      fixed: true,
      meaning:
        'Directory in which the embedded backend keeps revocations over a restart; empty: in memory only. Redis keeps them if it is configured.',
    },
    {
      env: 'FANFARE_CLIENT_BROADCAST',
      key: 'clientBroadcast',
      type: 'enum',
      default: 'auto',
      values: ['auto', 'on', 'off'],
      meaning:
        'Whether clients may `broadcast` to everyone; `auto`: all of them if no tokens are configured, else those whose token grants it.',
    },
    {
      env: 'FANFARE_LIMITS',
      key: 'limits',
      type: 'mode',
      default: 'enforce',
      values: MODES,
      meaning:
        'Mode of all rate and connection limits without a mode of their own. Size limits are always enforced.',
    },
    {
      env: 'FANFARE_MAX_CONNECTIONS_PER_IP',
      key: 'maxConnectionsPerIp',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e7,
      meaning:
        'Connections from one client address (IPv6: one /64), over all workers of this server; with Redis over all servers, see `FANFARE_FLEET_LIMITS_MODE`.',
    },
    {
      env: 'FANFARE_MAX_CONNECTIONS_PER_IP_MODE',
      key: 'maxConnectionsPerIpMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of that limit.',
    },
    {
      env: 'FANFARE_MAX_CONNECTIONS_PER_USER',
      key: 'maxConnectionsPerUser',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e7,
      meaning:
        'Connections of one user (the `sub` of their tokens), over all workers of this server; with Redis over all servers.',
    },
    {
      env: 'FANFARE_MAX_CONNECTIONS_PER_USER_MODE',
      key: 'maxConnectionsPerUserMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of `FANFARE_MAX_CONNECTIONS_PER_USER`.',
    },
    {
      env: 'FANFARE_FLEET_LIMITS_MODE',
      key: 'fleetLimitsMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning:
        'With Redis: mode of `FANFARE_MAX_CONNECTIONS_PER_IP` and `FANFARE_MAX_CONNECTIONS_PER_USER` over all servers together. `off`: each server has these limits for itself.',
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
        'Messages per minute of one connection: the refill of its token bucket. A message takes one token per started 4 KB.',
    },
    {
      env: 'FANFARE_MESSAGES_BURST',
      key: 'messagesBurst',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      meaning: 'Messages that a connection may send at once: the size of its token bucket.',
    },
    {
      env: 'FANFARE_MESSAGES_PER_MINUTE_MODE',
      key: 'messagesPerMinuteMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of both limits.',
    },
    {
      env: 'FANFARE_MESSAGES_PER_MINUTE_PER_IP',
      key: 'messagesPerMinutePerIp',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      unit: 'a minute',
      meaning: 'Messages per minute of all connections of one client address, in each worker.',
    },
    {
      env: 'FANFARE_MESSAGES_BURST_PER_IP',
      key: 'messagesBurstPerIp',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      meaning:
        'Messages that all connections of one client address may send at once, in each worker.',
    },
    {
      env: 'FANFARE_MESSAGES_PER_MINUTE_PER_IP_MODE',
      key: 'messagesPerMinutePerIpMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of both limits.',
    },
    {
      env: 'FANFARE_MESSAGES_PER_MINUTE_PER_USER',
      key: 'messagesPerMinutePerUser',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      unit: 'a minute',
      meaning:
        'Messages per minute of all connections of one user (the `sub` of their tokens), in each worker.',
    },
    {
      env: 'FANFARE_MESSAGES_BURST_PER_USER',
      key: 'messagesBurstPerUser',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      meaning: 'Messages that all connections of one user may send at once, in each worker.',
    },
    {
      env: 'FANFARE_MESSAGES_PER_MINUTE_PER_USER_MODE',
      key: 'messagesPerMinutePerUserMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of both limits.',
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
        'Broadcasts per minute of all connections of one client address, in each worker. A broadcast takes one token per started 4 KB.',
    },
    {
      env: 'FANFARE_BROADCASTS_BURST_PER_IP',
      key: 'broadcastsBurstPerIp',
      type: 'integer',
      default: 20,
      min: 1,
      max: 1e9,
      meaning:
        'Broadcasts that all connections of one client address may send at once, in each worker.',
    },
    {
      env: 'FANFARE_BROADCASTS_PER_MINUTE_PER_IP_MODE',
      key: 'broadcastsPerMinutePerIpMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of both limits.',
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
        'Pings, pongs, empty frames and fragments under 1 KB per minute of one connection. If it sends more, it is closed with 1008.',
    },
    {
      env: 'FANFARE_FRAMES_BURST',
      key: 'framesBurst',
      type: 'integer',
      default: 100,
      min: 1,
      max: 1e9,
      meaning: 'Such frames that a connection may send at once.',
    },
    {
      env: 'FANFARE_FRAMES_PER_MINUTE_MODE',
      key: 'framesPerMinuteMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of both limits.',
    },
    {
      env: 'FANFARE_MAX_REFUSED_MESSAGES',
      key: 'maxRefusedMessages',
      type: 'integer',
      default: 1000,
      min: 1,
      max: 1e9,
      meaning:
        'Messages refused for their rate within a minute, after which the connection is closed with 4005.',
    },
    {
      env: 'FANFARE_MAX_HANDSHAKES',
      key: 'maxHandshakes',
      type: 'integer',
      default: 10_000,
      min: 1,
      max: 1e6,
      meaning:
        'Unfinished handshakes of a worker. Above the limit, the oldest one of the address with the most is closed.',
    },
    {
      env: 'FANFARE_MAX_HANDSHAKES_MODE',
      key: 'maxHandshakesMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of that limit. `off` also removes the time limit on waiting for the worker.',
    },
    {
      env: 'FANFARE_HANDSHAKE_TIMEOUT_MS',
      key: 'handshakeTimeoutMs',
      type: 'integer',
      default: 8000,
      min: 100,
      max: 120_000,
      unit: 'ms',
      meaning: 'Time limit of a handshake, from the connection to the response.',
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
        'Handshakes and plain HTTP requests per minute of one client address, in each worker: the refill of its token bucket.',
    },
    {
      env: 'FANFARE_HANDSHAKES_BURST_PER_IP',
      key: 'handshakesBurstPerIp',
      type: 'integer',
      default: 600,
      min: 1,
      max: 1e9,
      meaning:
        'Handshakes and plain HTTP requests that one client address may send at once, in each worker.',
    },
    {
      env: 'FANFARE_HANDSHAKES_PER_MINUTE_PER_IP_MODE',
      key: 'handshakesPerMinutePerIpMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of both limits.',
    },
    {
      env: 'FANFARE_MAX_ROOMS_PER_CONNECTION',
      key: 'maxRoomsPerConnection',
      type: 'integer',
      default: 128,
      min: 1,
      max: 1e6,
      meaning: 'Rooms that one connection may join.',
    },
    {
      env: 'FANFARE_MAX_ROOMS_PER_CONNECTION_MODE',
      key: 'maxRoomsPerConnectionMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of that limit.',
    },
    {
      env: 'FANFARE_MAX_LOOP_LAG_MS',
      key: 'maxLoopLagMs',
      type: 'integer',
      default: 500,
      min: 10,
      max: 60_000,
      unit: 'ms',
      meaning: 'Event-loop lag above which a worker accepts no new connections.',
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
        'Share of its heap limit, or of its share of the memory, above which a worker accepts no new connections.',
    },
    {
      env: 'FANFARE_OVERLOAD_MODE',
      key: 'overloadMode',
      type: 'mode',
      default: undefined,
      values: MODES,
      meaning: 'Mode of the two limits above and of the reserve of file descriptors.',
    },
    {
      env: 'FANFARE_MAX_MESSAGE_BYTES',
      key: 'maxMessageBytes',
      type: 'integer',
      default: 102_400,
      min: 128,
      max: 16_777_216,
      unit: 'bytes',
      meaning:
        'Largest message accepted from a client. If a client sends a larger one, its connection is closed with 1009. Its payload is bounded by `FANFARE_MAX_INLINE_BYTES` too.',
    },
    {
      env: 'FANFARE_MAX_INLINE_BYTES',
      key: 'maxInlineBytes',
      type: 'integer',
      default: 262_144,
      min: 128,
      max: 16_777_216,
      unit: 'bytes',
      meaning:
        'Largest payload that a message carries. A client that sends a larger one gets MESSAGE_TOO_LARGE. The HTTP API stores it in the bucket of `FANFARE_BLOB_URL`.',
    },
    {
      env: 'FANFARE_BLOB_URL',
      key: 'blobUrl',
      type: 'string',
      default: '',
      part: 'blobs',
      meaning:
        'S3-compatible bucket for large messages, with a prefix for the objects: `https://host/bucket/prefix` or `https://bucket.host/prefix`. Empty: no large messages.',
    },
    {
      env: 'FANFARE_BLOB_PUBLIC_URL',
      key: 'blobPublicUrl',
      type: 'string',
      default: '',
      part: 'blobs',
      meaning: 'The same bucket as clients reach it, if its address differs for them.',
    },
    {
      env: 'AWS_ACCESS_KEY_ID',
      key: 'awsAccessKeyId',
      type: 'string',
      default: '',
      secret: true,
      part: 'blobs',
      meaning: 'Access key of the bucket.',
    },
    {
      env: 'AWS_SECRET_ACCESS_KEY',
      key: 'awsSecretAccessKey',
      type: 'string',
      default: '',
      secret: true,
      part: 'blobs',
      meaning: 'Secret of the access key.',
    },
    {
      env: 'AWS_SESSION_TOKEN',
      key: 'awsSessionToken',
      type: 'string',
      default: '',
      secret: true,
      part: 'blobs',
      meaning: 'Session token, if the credentials are temporary. Signed URLs end with it.',
    },
    {
      env: 'AWS_REGION',
      key: 'awsRegion',
      type: 'string',
      default: '',
      part: 'blobs',
      meaning: 'Region of the bucket. Empty: the one in its host name, else `us-east-1`.',
    },
    {
      env: 'FANFARE_BLOB_MAX_BYTES',
      key: 'blobMaxBytes',
      type: 'integer',
      default: 67_108_864,
      min: 1024,
      max: 5_368_709_120,
      unit: 'bytes',
      meaning: 'Largest object in the bucket. A larger body gets 413.',
    },
    {
      env: 'FANFARE_BLOB_MAX_UPLOADS',
      key: 'blobMaxUploads',
      type: 'integer',
      default: 8,
      min: 1,
      max: 1000,
      meaning:
        'Uploads and checks of the bucket that a worker handles at once. Others get 503. A body of unknown length takes up to 5 MiB of memory, another one 256 KiB.',
    },
    {
      env: 'FANFARE_BLOB_TIMEOUT_MS',
      key: 'blobTimeoutMs',
      type: 'integer',
      default: 5000,
      min: 100,
      max: 60_000,
      unit: 'ms',
      meaning:
        'Time in which the bucket has to answer, or to take further bytes. After it, the request gets 503.',
    },
    {
      env: 'FANFARE_BLOB_UPLOAD_TIMEOUT_MS',
      key: 'blobUploadTimeoutMs',
      type: 'integer',
      default: 60_000,
      min: 1000,
      max: 3_600_000,
      unit: 'ms',
      meaning: 'Time for a whole upload through Fanfare.',
    },
    {
      env: 'FANFARE_BLOB_URL_TTL_S',
      key: 'blobUrlTtlS',
      type: 'integer',
      default: 3600,
      min: 60,
      max: 604_500,
      unit: 's',
      meaning: 'Time for which the URL of a reference is valid at least, from its delivery.',
    },
    {
      env: 'FANFARE_BLOB_TTL_DAYS',
      key: 'blobTtlDays',
      type: 'integer',
      default: 30,
      min: 1,
      max: 3650,
      unit: 'days',
      meaning:
        'Age up to which objects are in the bucket. Its lifecycle rule deletes them later. Older messages are replayed without a URL.',
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
        'Largest message sent through Redis pub/sub. A larger one is stored in Redis, and a reference to it is published.',
    },
    {
      env: 'FANFARE_MAX_UNSENT_BYTES',
      key: 'maxUnsentBytes',
      type: 'integer',
      default: 1_048_576,
      min: 16_384,
      max: 1_073_741_824,
      unit: 'bytes',
      meaning: 'Unsent bytes of one connection above which it is a slow consumer.',
    },
    {
      env: 'FANFARE_MAX_UNSENT_AGE_MS',
      key: 'maxUnsentAgeMs',
      type: 'integer',
      default: 10_000,
      min: 100,
      max: 600_000,
      unit: 'ms',
      meaning:
        'Age of the oldest unsent byte above which a connection is a slow consumer, unless it is in a room with history.',
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
        'Unsent bytes of all connections of a worker, as a share of its heap limit or of its share of the memory, whichever is less. Above it, the connections with the most are closed first.',
    },
    {
      env: 'FANFARE_COMPRESSION',
      key: 'compression',
      type: 'enum',
      default: 'off',
      values: ['off', 'on'],
      meaning:
        'Offer permessage-deflate without context takeover. A publication of 1 KB or more is compressed once for all its receivers.',
    },
    {
      env: 'FANFARE_SLOW_CONSUMER',
      key: 'slowConsumer',
      type: 'enum',
      default: 'close',
      values: ['close', 'drop'],
      meaning:
        'Policy for slow consumers of rooms without history: `close` them with 4003, or `drop` publications until they have caught up.',
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
      meaning: 'Time within which a pong or any other frame must follow a ping.',
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
        'Time between `/readyz` answering 503 and the end of accepting, so that the load balancer notices.',
    },
    {
      env: 'FANFARE_RECONNECT_WINDOW_MS',
      key: 'reconnectWindowMs',
      type: 'integer',
      default: 20_000,
      min: 0,
      max: 600_000,
      unit: 'ms',
      meaning:
        'Time over which the clients of a drained worker reconnect. Each is given its own delay.',
    },
    {
      env: 'FANFARE_MAX_CONNECTION_AGE_MS',
      key: 'maxConnectionAgeMs',
      type: 'integer',
      default: 0,
      min: 0,
      max: 604_800_000,
      unit: 'ms',
      meaning:
        'Longest life of a connection, WebSocket or server-sent events. The server closes each with 4007 after three quarters of this time or more, at a ping. 0: no limit.',
    },
    {
      env: 'FANFARE_REBALANCE_SKEW_PERCENT',
      key: 'rebalanceSkewPercent',
      type: 'integer',
      default: 0,
      min: 0,
      max: 1000,
      unit: '%',
      meaning:
        'Connections of the fullest worker as a share of the mean, 120 for example. If it stays above this for `FANFARE_RECONNECT_WINDOW_MS`, workers close some with 4006, so that the clients spread again. 0: never.',
    },
    {
      env: 'FANFARE_REBALANCE_RATE_PERCENT',
      key: 'rebalanceRatePercent',
      type: 'integer',
      default: 1,
      min: 1,
      max: 10,
      unit: '%',
      meaning: 'Share of its connections that a worker closes in each second of a rebalance.',
    },
    {
      env: 'FANFARE_SHUTDOWN_TIMEOUT_MS',
      key: 'shutdownTimeoutMs',
      type: 'integer',
      default: 30_000,
      min: 1000,
      max: 3_600_000,
      unit: 'ms',
      meaning: 'Time limit of a drain.',
    },
    {
      env: 'FANFARE_SCHEDULING',
      key: 'scheduling',
      type: 'enum',
      default: 'shared',
      values: ['shared', 'round-robin'],
      fixed: true,
      meaning:
        'Which process accepts a connection: `shared`, any worker that is idle (half the cost); `round-robin`, the primary, which passes it on in turn.',
    },
    {
      env: 'FANFARE_WORKER_TIMEOUT_MS',
      key: 'workerTimeoutMs',
      type: 'integer',
      default: 10_000,
      min: 500,
      max: 600_000,
      unit: 'ms',
      meaning:
        'Time without a message from a worker after which it is considered hung, killed and replaced.',
    },
    {
      env: 'FANFARE_SSE',
      key: 'sse',
      type: 'enum',
      default: 'on',
      values: ['on', 'off'],
      meaning: 'Whether clients may listen by server-sent events (`GET /sse`).',
    },
    {
      env: 'FANFARE_ROOM_LINGER_MS',
      key: 'roomLingerMs',
      type: 'integer',
      default: 2000,
      min: 0,
      max: 600_000,
      unit: 'ms',
      meaning: 'Time that an empty room stays subscribed at the broker.',
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
        'Policy after a restart or failover of Redis: `strict` restarts all histories, because Redis may have lost publications; `trust` continues them, at your own risk.',
    },
    {
      env: 'FANFARE_PRESENCE',
      key: 'presence',
      type: 'list',
      default: [],
      fixed: true,
      meaning:
        'Rooms with presence, as patterns separated by commas. The server lists their users and announces joins and leaves.',
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
        'Largest number of users up to which a room with presence lists them and announces joins and leaves. Larger rooms report only their number.',
    },
    {
      env: 'FANFARE_READINESS',
      key: 'readiness',
      type: 'enum',
      default: 'alone',
      values: ['alone', 'redis'],
      meaning:
        'What `/readyz` of the public port depends on: the worker `alone`, or `redis` too. With `redis`, an outage of Redis takes every server out of the load balancer at once.',
    },
    {
      env: 'FANFARE_FAST_PATHS',
      key: 'fastPaths',
      type: 'enum',
      default: 'on',
      values: ['on', 'off'],
      meaning:
        'Whether to use undocumented parts of Node, `ws` and `ioredis` if they work as expected. `off` uses documented interfaces only and costs CPU.',
    },
    {
      env: 'FANFARE_REDIS_PREFIX',
      key: 'redisPrefix',
      type: 'string',
      default: 'fanfare:',
      fixed: true,
      meaning: 'Prefix of all channels and keys in Redis, without braces.',
    },
    {
      env: 'FANFARE_REDIS_TIMEOUT_MS',
      key: 'redisTimeoutMs',
      type: 'integer',
      default: 1500,
      min: 50,
      max: 60_000,
      unit: 'ms',
      meaning: 'Time limit for a reply of Redis. After it, the outcome of a publish is unknown.',
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
 * @property {import('./redis.js').RedisSettings|null} redis null for the embedded broker
 * @property {import('./certificate.js').TlsSettings|null} tls null if the public port speaks plain HTTP
 * @property {import('./tokens.js').TokenSettings|null} tokens null if every connection is anonymous
 * @property {readonly import('./api-keys.js').ApiKey[]} apiKeys empty: there is no HTTP API
 * @property {import('./hooks.js').HookSettings|null} hooks null if there are none
 * @property {import('./blobs.js').BlobSettings|null} blobs null if there is no bucket for large messages
 * @property {import('./tokens.js').AuthMode} auth resolved from `auto`; `off` if `tokens` is null
 * @property {'everyone'|'granted'|'none'} clientBroadcast resolved from `auto`; `granted`: by tokens
 * @property {readonly import('./room-patterns.js').Rule<import('./room-patterns.js').HistoryRule>[]
 *   } history the first rule that matches a room applies
 * @property {readonly import('./room-patterns.js').Rule<true>[]} presence
 */

/**
 * The configuration: a frozen record with one entry per row, except for the rows of `part`.
 * @typedef {{readonly [R in Row as R extends {part: string} ? never
 *   : Exclude<R['key'], keyof Parsed>]: Value<R>} & Readonly<Parsed>} Config
 */
