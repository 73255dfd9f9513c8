// redis.js: reads the settings REDIS_*, as options for ioredis and as text for people.
//   REDIS_URL, or REDIS_HOST        one server
//   REDIS_SENTINELS                 one primary among several servers, named by Sentinels
//   REDIS_CLUSTER                   many primaries; each has some of the rooms
//   REDIS_SUBSCRIBE_URL             also: replicas of the primary, through which workers hear
//
// A worker reads certificate files when it connects, so a rolling reload takes renewed ones. Files
// of passwords are read again before each attempt to connect, so that passwords can be rotated, and
// tokens of cloud providers renewed, without a reload.

import { accessSync, constants, readFileSync } from 'node:fs';

const REDIS_PORT = 6379;
const SENTINEL_PORT = 26_379;

/** @typedef {Readonly<{host: string, port: number}>} Address */

/**
 * @typedef {object} RedisSettings frozen
 * @property {'server'|'sentinel'|'cluster'} kind
 * @property {readonly Address[]} addresses the server; or the Sentinels; or some nodes of the
 *   cluster
 * @property {string} name of the primary, at the Sentinels
 * @property {number} database @property {string} username @property {string} password
 * @property {string} sentinelUsername @property {string} sentinelPassword
 * @property {SecretFiles} [files] absent: none is set
 * @property {RedisSettings} [subscribe] replicas of this primary, in the region of this server;
 *   absent: workers hear from the primary
 * @property
 *   {Readonly<{caFile: string, certFile: string, keyFile: string, servername: string}>|null} tls
 *   null if the connection is not encrypted
 */

/**
 * The files that REDIS_URL_FILE and the others name; '' if none is set.
 * @typedef {Readonly<{url: string, subscribeUrl: string, password: string, sentinelPassword: string}>}
 *   SecretFiles
 */

/** @type {SecretFiles} */
const NO_FILES = Object.freeze({ url: '', subscribeUrl: '', password: '', sentinelPassword: '' });

/** Separates the URLs of a list. A password may have a comma. */
const BETWEEN_URLS = /\s*,\s*(?=rediss?:\/\/)/;

/**
 * What the readers below fill in.
 * @typedef {{settings: {-readonly [K in Exclude<keyof RedisSettings, 'tls'|'files'|'subscribe'>]: RedisSettings[K]},
 *   isTls: boolean, faults: string[]}} Draft
 */
/** @typedef {Record<string, unknown>} Values by key, as the rows of the settings' table read them */
/** @typedef {(name: string) => boolean} IsSet in the environment */

/** Ways to reach Redis, by the setting that names the servers. @type {Readonly<Record<string, (draft: Draft, values: Values, isSet: IsSet) => void>>} */
const WAYS = {
  REDIS_URL: readFromUrl,
  REDIS_HOST: readFromHost,
  REDIS_SENTINELS: readSentinels,
  REDIS_CLUSTER: readCluster,
};

/**
 * @param {Values} values @param {IsSet} isSet @param {SecretFiles} [files]
 * @returns {{redis: RedisSettings|null, faults: string[]}} null if no Redis is configured or a
 *   setting is at fault
 */
export function readRedisSettings(values, isSet, files = NO_FILES) {
  const text = (/** @type {string} */ key) => String(values[key]);
  const faults = [];
  const ways = Object.keys(WAYS).filter(isSet);
  for (const way of ways.slice(1))
    faults.push(`${way}: conflicts with ${ways[0]}; set only one of them`);
  const way = ways[0] ?? '';
  // The first braces of a name select its hash slot in a cluster, so they must be those of the room
  // (backend/redis/keys.js).
  if (/[{}]/.test(String(values.redisPrefix ?? '')))
    faults.push('FANFARE_REDIS_PREFIX: braces are not allowed');
  /** @type {Draft} */
  const draft = {
    settings: {
      kind: 'server',
      addresses: [],
      name: text('redisSentinelName'),
      database: 0,
      username: text('redisUsername'),
      password: text('redisPassword'),
      sentinelUsername: text('redisSentinelUsername'),
      sentinelPassword: text('redisSentinelPassword'),
    },
    isTls: values.redisTls === 'on',
    faults,
  };
  const { settings } = draft;
  if (way !== '') WAYS[way](draft, values, isSet);
  if (settings.username !== '' && settings.password === '') {
    faults.push('REDIS_USERNAME: has no effect without REDIS_PASSWORD');
  }
  if (settings.sentinelUsername !== '' && settings.sentinelPassword === '') {
    faults.push('REDIS_SENTINEL_USERNAME: has no effect without REDIS_SENTINEL_PASSWORD');
  }
  const replicas = isSet('REDIS_SUBSCRIBE_URL')
    ? readReplicas(String(values.redisSubscribeUrl), way, faults)
    : null;
  faults.push(...idle(way, draft.isTls, draft.isTls || replicas?.isTls === true, isSet));
  const tls = {
    caFile: text('redisTlsCaFile'),
    certFile: text('redisTlsCertFile'),
    keyFile: text('redisTlsKeyFile'),
    servername: text('redisTlsServername'),
  };
  faults.push(...tlsFaults(tls));
  if (way === '' || faults.length > 0) return { redis: null, faults };
  Object.freeze(settings.addresses);
  Object.freeze(tls);
  /** @type {RedisSettings} */
  const redis = {
    ...settings,
    ...filesOf({ ...files, subscribeUrl: '' }),
    tls: draft.isTls ? tls : null,
  };
  if (replicas === null) return { redis: Object.freeze(redis), faults };
  const subscribe = Object.freeze({
    ...subscribeSettings(redis, replicas, files),
    tls: replicas.isTls ? tls : null,
  });
  return { redis: Object.freeze({ ...redis, subscribe }), faults };
}

/** @param {SecretFiles} files */
function filesOf(files) {
  return Object.values(files).some((path) => path !== '') ? { files: Object.freeze(files) } : {};
}

/**
 * The replicas have the user and the password of the primary, unless their URL has its own.
 * @param {RedisSettings} redis @param {NonNullable<ReturnType<typeof readReplicas>>} replicas
 * @param {SecretFiles} files @returns {Omit<RedisSettings, 'tls'>}
 */
function subscribeSettings(redis, { addresses: all, username, password }, files) {
  const hasOwn = username !== '' || password !== '';
  const { subscribeUrl } = files;
  const { files: _ofPrimary, ...access } = redis;
  return {
    ...access,
    kind: 'server',
    addresses: Object.freeze(all),
    name: '',
    // Publications belong to no database.
    database: 0,
    ...(hasOwn && { username, password }),
    sentinelUsername: '',
    sentinelPassword: '',
    ...filesOf(hasOwn ? { ...NO_FILES, subscribeUrl } : { ...files, sentinelPassword: '' }),
  };
}

/** @param {Draft} draft @param {Values} values @param {IsSet} isSet */
function readFromUrl(draft, values, isSet) {
  const { settings, faults } = draft;
  const url = readUrl(String(values.redisUrl));
  if (url === null) {
    faults.push(
      'REDIS_URL: its value is not redis://[user:password@]host[:port][/database], or rediss:// for TLS',
    );
    return;
  }
  settings.addresses = [url.address];
  settings.database = url.database;
  for (const key of /** @type {const} */ (['username', 'password'])) {
    if (url[key] === '') continue;
    if (settings[key] !== '')
      faults.push(`REDIS_${key.toUpperCase()}: conflicts with REDIS_URL, which already has one`);
    settings[key] = url[key];
  }
  if (isSet('REDIS_TLS') && draft.isTls !== url.isTls) {
    faults.push('REDIS_TLS: conflicts with REDIS_URL; rediss:// means TLS, redis:// means none');
  }
  draft.isTls = url.isTls;
}

/**
 * @param {string} list of URLs, separated by commas
 * @param {string} way the setting that names the primary @param {string[]} faults
 * @returns {{addresses: Address[], username: string, password: string, isTls: boolean}|null}
 */
function readReplicas(list, way, faults) {
  const name = 'REDIS_SUBSCRIBE_URL';
  if (way === '')
    faults.push(`${name}: has no effect without REDIS_URL, REDIS_HOST or REDIS_SENTINELS`);
  if (way === 'REDIS_CLUSTER')
    faults.push(
      `${name}: conflicts with REDIS_CLUSTER: a cluster passes messages to replicas over its bus, which can lose some without a sign`,
    );
  const urls = list.split(BETWEEN_URLS).map((text) => {
    const url = readUrl(text);
    return url?.address.host.includes(',') ? null : url;
  });
  const [first] = urls;
  if (first === null || urls.includes(null)) {
    faults.push(
      `${name}: its value is not redis://[user:password@]host[:port], or rediss:// for TLS, or a list of them separated by commas`,
    );
    return null;
  }
  const { username, password, isTls } = first;
  const all = urls.filter((url) => url !== null);
  const isAlike = (/** @type {typeof first} */ url) =>
    url.username === username && url.password === password && url.isTls === isTls;
  if (!all.every(isAlike))
    faults.push(`${name}: its URLs differ in more than the host and the port`);
  return { addresses: all.map(({ address }) => address), username, password, isTls };
}

/** @param {Draft} draft @param {Values} values */
function readFromHost({ settings, faults }, { redisHost, redisPort }) {
  const address = readAddress(bracketed(String(redisHost)), Number(redisPort), false);
  if (address !== null) {
    settings.addresses = [address];
    return;
  }
  // The value is not shown. If an operator confuses it with REDIS_URL, it contains the password.
  faults.push(
    'REDIS_HOST: its value is not a host name or an address; for a user or a database use REDIS_URL',
  );
}

/** @param {Draft} draft @param {Values} values */
function readSentinels({ settings, faults }, { redisSentinels: list }) {
  settings.kind = 'sentinel';
  settings.addresses = addresses('REDIS_SENTINELS', list, SENTINEL_PORT, faults);
  if (settings.name === '') faults.push('REDIS_SENTINEL_NAME: required with REDIS_SENTINELS');
}

/** @param {Draft} draft @param {Values} values */
function readCluster({ settings, faults }, { redisCluster: list }) {
  settings.kind = 'cluster';
  settings.addresses = addresses('REDIS_CLUSTER', list, REDIS_PORT, faults);
}

/**
 * Reports settings that have no effect.
 * @param {string} way the setting that names the servers
 * @param {boolean} isTls @param {boolean} hasTls of the primary or of replicas
 * @param {(name: string) => boolean} isSet
 */
function idle(way, isTls, hasTls, isSet) {
  const faults = [];
  if (isSet('REDIS_PORT') && way !== 'REDIS_HOST') {
    faults.push(
      way === 'REDIS_URL'
        ? 'REDIS_PORT: conflicts with REDIS_URL, which already has a port'
        : 'REDIS_PORT: has no effect without REDIS_HOST',
    );
  }
  if (way !== 'REDIS_SENTINELS') {
    for (const name of [
      'REDIS_SENTINEL_NAME',
      'REDIS_SENTINEL_USERNAME',
      'REDIS_SENTINEL_PASSWORD',
    ]) {
      if (isSet(name)) faults.push(`${name}: has no effect without REDIS_SENTINELS`);
    }
  }
  if (way === '') {
    for (const name of ['REDIS_USERNAME', 'REDIS_PASSWORD', 'REDIS_TLS']) {
      const isIdle = name === 'REDIS_TLS' ? isTls : isSet(name);
      if (isIdle)
        faults.push(
          `${name}: has no effect without REDIS_URL, REDIS_HOST, REDIS_SENTINELS or REDIS_CLUSTER`,
        );
    }
  }
  if (!hasTls) {
    for (const name of ['CA_FILE', 'CERT_FILE', 'KEY_FILE', 'SERVERNAME'].map(
      (rest) => `REDIS_TLS_${rest}`,
    )) {
      if (isSet(name))
        faults.push(`${name}: has no effect without REDIS_TLS=on or a rediss:// URL`);
    }
  }
  return faults;
}

/** @param {NonNullable<RedisSettings['tls']>} tls */
function tlsFaults({ caFile, certFile, keyFile }) {
  const faults = [];
  if (certFile !== '' && keyFile === '')
    faults.push('REDIS_TLS_KEY_FILE: required with REDIS_TLS_CERT_FILE');
  if (certFile === '' && keyFile !== '')
    faults.push('REDIS_TLS_CERT_FILE: required with REDIS_TLS_KEY_FILE');
  const files = {
    REDIS_TLS_CA_FILE: caFile,
    REDIS_TLS_CERT_FILE: certFile,
    REDIS_TLS_KEY_FILE: keyFile,
  };
  for (const [name, path] of Object.entries(files)) {
    if (path === '') continue;
    try {
      accessSync(path, constants.R_OK);
    } catch (error) {
      faults.push(
        `${name}: cannot read ${path}: ${/** @type {NodeJS.ErrnoException} */ (error).code}`,
      );
    }
  }
  return faults;
}

/**
 * @param {string} text
 * @returns
 *   {{address: Address, database: number, username: string, password: string, isTls: boolean}|null}
 */
function readUrl(text) {
  if (!URL.canParse(text)) return null;
  const { protocol, hostname, port, pathname, username, password } = new URL(text);
  if (!['redis:', 'rediss:'].includes(protocol) || hostname === '' || !/^\/?\d*$/.test(pathname))
    return null;
  try {
    return {
      address: { host: unbracketed(hostname), port: port === '' ? REDIS_PORT : Number(port) },
      database: Number(pathname.slice(1)),
      username: decodeURIComponent(username),
      password: decodeURIComponent(password),
      isTls: protocol === 'rediss:',
    };
  } catch {
    return null; // a % that encodes nothing
  }
}

/** @param {string} name @param {unknown} list @param {number} port @param {string[]} faults */
function addresses(name, list, port, faults) {
  const entries = /** @type {string[]} */ (list).map((entry) => readAddress(entry, port, true));
  if (entries.length === 0 || entries.includes(null)) {
    faults.push(`${name}: its value is not a list of host:port separated by commas`);
  }
  return entries.filter((entry) => entry !== null);
}

/**
 * @param {string} text @param {number} port if the text has none
 * @param {boolean} mayHavePort @returns {Address|null}
 */
function readAddress(text, port, mayHavePort) {
  const match = /^(\[[0-9a-f:.]+\]|[^\s:/?#@[\]\\]+)(?::(\d{1,5}))?$/i.exec(text);
  if (match === null || (match[2] !== undefined && !mayHavePort)) return null;
  const given = match[2] === undefined ? port : Number(match[2]);
  if (given < 1 || given > 65_535) return null;
  return Object.freeze({ host: unbracketed(match[1]), port: given });
}

/** @param {string} host */
function bracketed(host) {
  return host.includes(':') && !host.startsWith('[') ? `[${host}]` : host;
}

/** @param {string} host */
function unbracketed(host) {
  return host.replace(/^\[|\]$/g, '');
}

/** @param {Address} address */
export function addressText({ host, port }) {
  return `${bracketed(host)}:${port}`;
}

/** Describes Redis for people, without secrets. @param {RedisSettings} redis */
export function describeRedis({ kind, addresses: all, name, database, tls, subscribe }) {
  const places = all.map(addressText).join(', ');
  const how = tls === null ? '' : ', TLS';
  const hearing = subscribe === undefined ? '' : `, heard through ${urlsOf(subscribe)}`;
  if (kind === 'sentinel')
    return `Redis primary ${name} through Sentinel (${places}${how})${hearing}`;
  if (kind === 'cluster') return `Redis Cluster (${places}${how})`;
  return `Redis at ${urlsOf({ addresses: all, tls })}${database === 0 ? '' : `/${database}`}${hearing}`;
}

/** Without secrets. @param {Pick<RedisSettings, 'addresses'|'tls'>} settings */
function urlsOf({ addresses: all, tls }) {
  return `${tls === null ? 'redis' : 'rediss'}://${all.map(addressText).join(', ')}`;
}

/**
 * The options of ioredis. Reads the certificates.
 * @param {RedisSettings} redis @param {Address} [node] of a cluster
 * @throws {Error} if a file can no longer be read
 */
export function redisOptions(redis, node = redis.addresses[0]) {
  const access = redisAccess(redis);
  const { tls } = access;
  if (redis.kind !== 'sentinel')
    return { ...access, host: node.host, port: node.port, db: redis.database };
  return {
    ...access,
    sentinels: redis.addresses.map(({ host, port }) => ({ host, port })),
    name: redis.name,
    role: /** @type {const} */ ('master'),
    sentinelUsername: redis.sentinelUsername || undefined,
    sentinelTLS: tls,
    enableTLSForSentinelMode: tls !== undefined,
  };
}

/** The options that all nodes share. @param {RedisSettings} redis */
export function redisAccess(redis) {
  const { tls } = redis;
  return {
    ...redisCredentials(redis).options,
    tls: tls === null ? undefined : tlsOptions(tls),
  };
}

/**
 * The user and the passwords, from their files as they are now. Call it before each attempt to
 * connect. If a file cannot be read or is empty, as for a moment while it is written, what the
 * settings had holds.
 * @param {RedisSettings} redis
 * @returns {{options: {username?: string, password?: string, sentinelPassword?: string},
 *   fault: string}} options of ioredis; the name of a setting whose file cannot be read, or ''
 */
export function redisCredentials(redis) {
  const { files = NO_FILES } = redis;
  let fault = '';
  const read = (/** @type {string} */ path, /** @type {string} */ setting) => {
    if (path === '') return '';
    try {
      const text = readFileSync(path, 'utf8').trim();
      if (text === '') fault = `${setting}: the file is empty`;
      return text;
    } catch (error) {
      const { code } = /** @type {NodeJS.ErrnoException} */ (error);
      fault = `${setting}: the file cannot be read (${code})`;
      return '';
    }
  };
  const own = read(files.subscribeUrl, 'REDIS_SUBSCRIBE_URL_FILE').split(BETWEEN_URLS)[0];
  const ownUrl = readUrl(own);
  const url = ownUrl?.password ? ownUrl : readUrl(read(files.url, 'REDIS_URL_FILE'));
  const password = ownUrl?.password || read(files.password, 'REDIS_PASSWORD_FILE') || url?.password;
  const sentinelPassword = read(files.sentinelPassword, 'REDIS_SENTINEL_PASSWORD_FILE');
  const options = {
    username: url?.username || redis.username || undefined,
    password: password || redis.password || undefined,
    ...(redis.kind === 'sentinel'
      ? { sentinelPassword: sentinelPassword || redis.sentinelPassword || undefined }
      : {}),
  };
  return { options, fault };
}

/**
 * What a reload cannot change: all but secrets from files.
 * @param {RedisSettings|null} redis @returns {object|null}
 */
export function fixedRedis(redis) {
  if (redis === null) return null;
  const { files = NO_FILES, subscribe } = redis;
  const urls = files.url + files.subscribeUrl;
  return {
    ...redis,
    username: urls === '' ? redis.username : '',
    password: urls + files.password === '' ? redis.password : '',
    sentinelPassword: files.sentinelPassword === '' ? redis.sentinelPassword : '',
    ...(subscribe && { subscribe: fixedRedis(subscribe) }),
  };
}

/** @param {NonNullable<RedisSettings['tls']>} tls */
function tlsOptions({ caFile, certFile, keyFile, servername }) {
  return {
    ...(caFile === '' ? {} : { ca: readFileSync(caFile) }),
    ...(certFile === '' ? {} : { cert: readFileSync(certFile), key: readFileSync(keyFile) }),
    ...(servername === '' ? {} : { servername }),
  };
}

/**
 * Plain and URL-encoded, never to be shown.
 * @param {{password?: string, sentinelPassword?: string}} credentials @returns {string[]}
 */
export function redisSecrets({ password = '', sentinelPassword = '' }) {
  const secrets = [password, sentinelPassword].filter((secret) => secret !== '');
  return [...new Set([...secrets, ...secrets.map(encodeURIComponent)])];
}

/** @param {unknown} error @param {readonly string[]} secrets @returns {string} */
export function withoutSecrets(error, secrets) {
  const { message, code, errors } =
    /** @type {{message?: string, code?: string, errors?: Error[]}} */ (error);
  // Node tries all addresses of a name and wraps their errors in one error without a message.
  const text = message || errors?.map((each) => each.message).join('; ') || code || String(error);
  return secrets.reduce((told, secret) => told.replaceAll(secret, '***'), text);
}
