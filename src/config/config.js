// config.js: loads, validates and freezes the configuration.
//
// `loadConfig` reports all faults at once. Only main.js reads the environment from the process.

import { isDeepStrictEqual } from 'node:util';

import { readApiKeys } from './api-keys.js';
import { blobContradictions, readBlobSettings } from './blobs.js';
import {
  describeCentrifugo,
  isChannelPattern,
  readCentrifugoSettings,
  withChannels,
} from './centrifugo.js';
import { readTlsSettings } from './certificate.js';
import { consoleAccess } from './console.js';
import { readHookSettings } from './hooks.js';
import { readLimitModes } from './limit-modes.js';
import { isKnown, isServiceLinkUrl, nameFault, suggestion } from './names.js';
import { AN_ORIGIN, normalOrigin, originMatcher } from './origins.js';
import { roomRulesOf } from './pusher.js';
import { readPusherSettings } from './pusher-apps.js';
import { readOldRates, readRate } from './rates.js';
import { describeRedis, fixedRedis, readRedisSettings } from './redis.js';
import {
  MAX_RULES,
  parseHistoryRules,
  parsePresenceRules,
  parseStateRules,
} from './room-patterns.js';
import { readSecretFiles } from './secret-files.js';
import { SETTINGS } from './settings.js';
import { readText } from './texts.js';
import { describeTokens, readTokenSettings } from './tokens.js';
import { compileTrustProxy } from './trust-proxy.js';
import { readWebhookSettings } from './webhook-endpoints.js';

// `fanfare/config` exports these types.
/** @typedef {import('./settings.js').Config} Config */
/** @typedef {import('./settings.js').Mode} Mode */
/** @typedef {import('./settings.js').Setting} Setting */

/** Workers of an even load differ by a few per cent, and no rebalance would end below that. */
const MIN_REBALANCE_SKEW_PERCENT = 110;

/** Settings whose rules also depend on whether there are channels. */
const BY_CHANNELS = new Set(['FANFARE_HISTORY', 'FANFARE_PRESENCE']);

/**
 * Reads the configuration and reports every fault at once.
 * @param {Readonly<Record<string, string|undefined>>} environment
 * @param {import('./texts.js').ReadText} [readFile] reads the files that settings name
 * @returns {({config: Config, faults: []} | {config: null, faults: string[]}) & {warnings: string[]}}
 *   one line per fault and per old name, never with a secret in it
 */
export function loadConfig(environment, readFile = readText) {
  const { env, faults } = readSecretFiles(environment, readFile);
  /** @type {Record<string, unknown>} */
  const values = {};
  for (const setting of SETTINGS) {
    const text = settingText(env, setting.env);
    const isClean = !controlCharacters(setting.isMultiline ? text.replace(/\r?\n/g, '') : text);
    const fault = read(setting, isClean ? text : '', values);
    if (!isClean) faults.push(`${setting.env}: control characters are not allowed`);
    else if (fault !== '') faults.push(fault);
  }
  const fromEnv = (/** @type {string} */ name) => settingText(env, name);
  const warnings = oldSettings(fromEnv);
  /** @param {{faults: string[], warnings?: string[]}} part with the values that it has read */
  const take = ({ faults: found, warnings: told = [], ...read }) => {
    faults.push(...found);
    warnings.push(...told);
    Object.assign(values, read);
  };
  const isSet = (/** @type {string} */ name) => {
    const text = settingText(env, name);
    const isOfLink = name === 'REDIS_PORT' && isServiceLinkUrl(text);
    return text !== '' && !controlCharacters(text) && !isOfLink;
  };
  take(readLimitModes(values, fromEnv));
  take(readOldRates(values, fromEnv));
  const pathOf = (/** @type {string} */ name) => (environment[name] ?? '').trim();
  take(
    readRedisSettings(values, isSet, {
      url: pathOf('REDIS_URL_FILE'),
      subscribeUrl: pathOf('REDIS_SUBSCRIBE_URL_FILE'),
      password: pathOf('REDIS_PASSWORD_FILE'),
      sentinelPassword: pathOf('REDIS_SENTINEL_PASSWORD_FILE'),
    }),
  );
  take(readTlsSettings(values));
  take(readTokenSettings(values, readFile));
  take(readHookSettings(values, isSet, readFile));
  const pusher = readPusherSettings(values, readFile);
  take(pusher);
  take(readApiKeys(values, pusher.pusher?.byId ?? null, readFile));
  take(readCentrifugoSettings(values));
  take(readWebhookSettings(values, pusher.pusher, readFile));
  take(readBlobSettings(values));
  faults.push(
    ...trustFaults(values),
    ...originFaults(values),
    ...roomFaults(values),
    ...contradictions(values),
  );
  warnings.push(...appOriginWarnings(values), ...redisUrlWarnings(env.REDIS_URL));
  for (const name of Object.keys(env)) {
    const fault = nameFault(name, fromEnv);
    if (fault !== '') faults.push(fault);
  }
  if (faults.length > 0) return { config: null, faults, warnings };

  return { config: completed(values), faults: [], warnings };
}

/** @param {Record<string, unknown>} values valid @returns {Config} */
function completed(values) {
  for (const { key, part } of SETTINGS) if (part !== undefined) delete values[key];
  values.clientBroadcast = {
    auto: values.tokens === null ? 'everyone' : 'granted',
    on: 'everyone',
    off: 'none',
  }[/** @type {'auto'|'on'|'off'} */ (values.clientBroadcast)];
  Object.freeze(values.allowedOrigins);
  return /** @type {Config} */ (/** @type {unknown} */ (Object.freeze(values)));
}

/**
 * Reads the text of FANFARE_CONFIG_FILE: lines `NAME=value`, empty lines, and comments that begin
 * with `#`. A value may be in single or double quotes. Nothing is expanded.
 * @param {string} text
 * @returns {{env: Record<string, string>, faults: string[]}} the caller gives the environment
 *   precedence over `env`
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
      // The line is not shown, because it may hold a secret.
      if (match === null) faults.push(`${where}: not NAME=value`);
      else if (match[1] === 'FANFARE_CONFIG_FILE')
        faults.push(`${where}: a configuration file cannot name another one`);
      else if (match[1] in env) faults.push(`${where}: ${match[1]} is set twice`);
      else if (!isKnown(match[1]))
        faults.push(`${where}: unknown setting ${match[1]}${suggestion(match[1])}`);
      else env[match[1]] = match[2].replace(/^(["'])(.*)\1$/, '$2');
    });
  return { env, faults };
}

/**
 * Finds changed settings that a rolling reload can't apply, because the primary uses them.
 * @param {Config} old @param {Config} next
 * @returns {string[]} environment names of fixed settings that differ
 */
export function changedFixed(old, next) {
  const partsOf = (/** @type {Config} */ config) =>
    /** @type {Record<string, unknown>} */ ({ ...config, redis: fixedRedis(config.redis) });
  const [before, after] = [partsOf(old), partsOf(next)];
  const names = SETTINGS.filter(
    ({ fixed, key, part = key }) => fixed && !isDeepStrictEqual(before[part], after[part]),
  ).map(({ env, part }) => (part === 'redis' ? 'REDIS_*' : env));
  const [rules, nextRules] = [roomRulesOf(old.pusher), roomRulesOf(next.pusher)];
  if (!isDeepStrictEqual(rules, nextRules)) {
    const own = names.filter((name) => !isByDoors(name, old, next));
    names.splice(
      0,
      names.length,
      ...own,
      'The first app, or "cacheTtl", "history", "presence" or "shared" of apps',
    );
  }
  if ((old.centrifugo === null) !== (next.centrifugo === null)) {
    const others = names.filter((name) => !BY_CHANNELS.has(name));
    // They are patterns of channels as well.
    if (others.length < names.length)
      names.splice(0, names.length, ...others, 'FANFARE_CENTRIFUGO');
  }
  // Old and new workers share the port during a reload, and a client expects either TLS or not.
  if ((old.tls === null) !== (next.tls === null)) names.push('TLS_CERT_FILE');
  return [...new Set(names)];
}

/**
 * @param {string} name of a changed setting @param {Config} old @param {Config} next
 * @returns {boolean} true: only the rules that doors add have changed
 */
function isByDoors(name, old, next) {
  const key = { FANFARE_HISTORY: 'history', FANFARE_PRESENCE: 'presence' }[name];
  if (key !== 'history' && key !== 'presence') return false;
  const [before, after] = [old, next].map((config) =>
    config[key].slice(0, config[key].length - roomRulesOf(config.pusher)[key].length),
  );
  return isDeepStrictEqual(before, after);
}

/**
 * Are all settings except TLS_* the same? The configuration contains the contents of files that
 * settings name, so changed files count, too.
 * @param {Config} old @param {Config} next
 */
export function isEqualExceptTls(old, next) {
  return isDeepStrictEqual({ ...old, tls: null }, { ...next, tls: null });
}

/**
 * Describes the configuration for the banner.
 * @param {Config} config
 * @returns {Record<'broker'|'limits'|'rates'|'access'|'api'|'pusher'|'centrifugo'|'webhooks', string>}
 *   without secrets; the last three are empty if they are not configured
 */
export function describeConfig(config) {
  const broker =
    config.redis === null ? 'embedded (this machine only)' : describeRedis(config.redis);
  const limits = [
    `${config.maxConnectionsPerIp} connections per address${mark(config.maxConnectionsPerIpMode)}`,
    `${config.maxRoomsPerConnection} rooms per connection${mark(config.maxRoomsPerConnectionMode)}`,
    `${Math.floor(config.maxMessageBytes / 1024)} KiB per message`,
  ].join(', ');
  const rates = [
    `${config.messagesPerMinute} messages per minute per connection${mark(config.messagesPerMinuteMode)}`,
    `${config.messagesPerMinutePerIp} per address${mark(config.messagesPerMinutePerIpMode)}`,
    ...(config.tokens === null
      ? []
      : [
          `${config.messagesPerMinutePerUser} per user${mark(config.messagesPerMinutePerUserMode)}`,
        ]),
  ].join(', ');
  const origins =
    config.allowedOrigins.length === 0
      ? 'from any origin'
      : `from ${config.allowedOrigins.length} origins`;
  const access =
    config.tokens === null
      ? `open to everyone${config.hooks === null ? '' : ' whom the hooks let in'}, to browsers ${origins}: no tokens are configured`
      : `tokens ${config.auth}, to browsers ${origins}: ${describeTokens(config.tokens)}`;
  const count = config.apiKeys.length;
  const api =
    count === 0 ? 'off: no API_KEYS are configured' : `/api, ${count} key${count === 1 ? '' : 's'}`;
  const apps = config.pusher?.apps.map(({ id, isEnabled }) => (isEnabled ? id : `${id} (off)`));
  const pusher =
    apps === undefined
      ? ''
      : `${config.pusher?.pathPrefix}/app, /apps: app${apps.length === 1 ? '' : 's'} ${apps.slice(0, 10).join(', ')}${apps.length > 10 ? ', …' : ''}`;
  const centrifugo = config.centrifugo === null ? '' : describeCentrifugo(config.centrifugo);
  const endpoints = config.webhooks?.endpoints.length ?? 0;
  const webhooks = endpoints === 0 ? '' : `${endpoints} endpoint${endpoints === 1 ? '' : 's'}`;
  return { broker, limits, rates, access, api, pusher, centrifugo, webhooks };
}

/** @param {Mode} mode */
function mark(mode) {
  return mode === 'enforce' ? '' : ` (${mode})`;
}

/** @param {Readonly<Record<string, string|undefined>>} env @param {string} name */
function settingText(env, name) {
  return (env[name] ?? '').trim();
}

/** @param {string} text */
function controlCharacters(text) {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the check looks for them
  return /[\x00-\x1F\x7F]/.test(text);
}

/** A warning for each setting that is only read. @param {(name: string) => string} textOf */
function oldSettings(textOf) {
  return SETTINGS.flatMap(({ env, old }) =>
    old === undefined || textOf(env) === '' ? [] : [`${env} is an old name: ${old}`],
  );
}

/**
 * Reads one setting into `values`. If the text is invalid, `values` gets the default, so that other
 * checks can go on.
 * @param {Setting} setting @param {string} text @param {Record<string, unknown>} values
 * @returns {string} the fault, or ''
 */
function read(setting, text, values) {
  const { env, key, type, min = 0, max = Number.MAX_SAFE_INTEGER } = setting;
  if (type === 'rate') return readRate(setting, text, values);
  values[key] = typeof setting.default === 'function' ? setting.default() : setting.default;
  if (text === '') return '';
  const given = setting.secret ? 'its value' : JSON.stringify(text);
  switch (type) {
    case 'integer': {
      // Strict: parseInt reads "12abc" as 12 and Number reads "1e3" and "0x10"; both are usually
      // mistakes.
      const number = Number(text);
      if (!/^-?\d{1,16}$/.test(text) || number < min || number > max) {
        // Kubernetes sets REDIS_PORT=tcp://… if a service is named redis. Without REDIS_HOST the
        // value is unused.
        if (env === 'REDIS_PORT' && isServiceLinkUrl(text) && values.redisHost === '') return '';
        return `${env}: ${given} is not an integer from ${min} to ${max}`;
      }
      values[key] = number;
      return '';
    }
    case 'enum':
      if (!setting.values?.includes(text))
        return `${env}: ${given} is not one of ${setting.values?.join(', ')}`;
      values[key] = text;
      return '';
    case 'list':
      values[key] = text
        .split(',')
        .map((entry) => entry.trim())
        .filter((entry) => entry !== '');
      return '';
    case 'string':
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
    const allowed = 'a hop count (1), or CIDRs separated by commas (10.0.4.11/32,127.0.0.1/32)';
    return [`TRUST_PROXY: ${why}; allowed: ${allowed}`];
  }
}

/** Checks origins, and writes them as browsers do. @param {Record<string, unknown>} values */
function originFaults(values) {
  const faults = [];
  const origins = new Set();
  for (const entry of /** @type {string[]} */ (values.allowedOrigins)) {
    const origin = normalOrigin(entry);
    if (origin !== '') origins.add(origin);
    else
      faults.push(
        `ALLOWED_ORIGINS: ${JSON.stringify(entry)} is not an origin: ${AN_ORIGIN} (leave it empty for all)`,
      );
  }
  values.allowedOrigins = [...origins];
  return faults;
}

/**
 * Origins of apps that ALLOWED_ORIGINS excludes.
 * @param {Record<string, unknown>} values @returns {string[]} warnings
 */
function appOriginWarnings({ allowedOrigins, pusher }) {
  const allowed = /** @type {readonly string[]} */ (allowedOrigins);
  const settings = /** @type {Config['pusher']} */ (pusher);
  if (allowed.length === 0 || settings === null) return [];
  const isAllowed = originMatcher(allowed);
  return settings.apps.flatMap(({ id, origins }) => {
    const excluded = origins.filter((origin) => !isAllowed(origin) && !allowed.includes(origin));
    return excluded.length === 0
      ? []
      : [
          `FANFARE_PUSHER_APPS: "origins" of app ${id}: ${excluded.join(', ')} cannot connect, because ALLOWED_ORIGINS does not list it`,
        ];
  });
}

/**
 * Hosting services put parameters for other clients into the URL, such as `?family=0` and
 * `?ssl_cert_reqs=none`. Their values may be secrets.
 * @param {string|undefined} text @returns {string[]} warnings
 */
function redisUrlWarnings(text = '') {
  if (!URL.canParse(text)) return [];
  const names = [...new URL(text).searchParams.keys()].join(', ');
  return names === ''
    ? []
    : [`REDIS_URL: its parameters have no effect: ${names}. Use the settings REDIS_*`];
}

/** Reads the patterns of rooms. @param {Record<string, unknown>} values */
function roomFaults(values) {
  const hasChannels = values.centrifugo !== null;
  const isPattern = hasChannels ? isChannelPattern : undefined;
  const history = parseHistoryRules(/** @type {string[]} */ (values.history), isPattern);
  const state = parseStateRules(
    /** @type {string[]} */ (values.state),
    /** @type {number} */ (values.stateMaxBytes),
  );
  const presence = parsePresenceRules(/** @type {string[]} */ (values.presence), isPattern);
  const historyRules = hasChannels ? withChannels(history.rules) : history.rules;
  const presenceRules = hasChannels ? withChannels(presence.rules) : presence.rules;
  const doors = roomRulesOf(/** @type {Config['pusher']} */ (values.pusher));
  values.state = Object.freeze(state.rules);
  values.history = Object.freeze([...historyRules, ...doors.history]);
  values.presence = Object.freeze([...presenceRules, ...doors.presence]);
  const presenceCount = presenceRules.length + doors.presence.length;
  const count = historyRules.length + doors.history.length;
  return [
    // Servers tell each other their rules in one message.
    ...(doors.history.length > 0 && count > MAX_RULES
      ? [
          `FANFARE_PUSHER_APPS: with FANFARE_HISTORY and each "cacheTtl" and "history" there are ${count} rules for histories, at most ${MAX_RULES}`,
        ]
      : []),
    ...(doors.presence.length > 0 && presenceCount > MAX_RULES
      ? [
          `FANFARE_PUSHER_APPS: with FANFARE_PRESENCE there are ${presenceCount} rules for presence, at most ${MAX_RULES}`,
        ]
      : []),
    ...(hasChannels && doors.history.length === 0 && count > MAX_RULES
      ? [`FANFARE_HISTORY: with those of channels there are ${count} rules, at most ${MAX_RULES}`]
      : []),
    ...history.faults.map((fault) => `FANFARE_HISTORY: ${fault}`),
    ...state.faults.map((fault) => `FANFARE_STATE: ${fault}`),
    ...presence.faults.map((fault) => `FANFARE_PRESENCE: ${fault}`),
  ];
}

/** @param {Record<string, unknown>} values */
function contradictions(values) {
  const v = /** @type {Config} */ (/** @type {unknown} */ (values));
  const faults = [];
  if (v.port === v.metricsPort && v.port !== 0) {
    faults.push(
      `METRICS_PORT: ${v.metricsPort} is also PORT; the public and the operations port must differ`,
    );
  }
  // Before Node 26 a recursive mkdir does not end there.
  if (v.stateDir.startsWith('/proc/'))
    faults.push(`FANFARE_STATE_DIR: ${v.stateDir} is in /proc, which takes no folders`);
  const { access, why } = consoleAccess(v);
  if (access === 'off' && (v.console === 'on' || v.console === 'key'))
    faults.push(`FANFARE_CONSOLE: ${v.console}, but ${why}`);
  if (v.pongTimeoutMs >= v.pingIntervalMs) {
    faults.push(
      `FANFARE_PONG_TIMEOUT_MS: ${v.pongTimeoutMs} must be less than FANFARE_PING_INTERVAL_MS (${v.pingIntervalMs})`,
    );
  }
  if (v.drainDelayMs >= v.shutdownTimeoutMs) {
    faults.push(
      `FANFARE_DRAIN_DELAY_MS: ${v.drainDelayMs} must be less than FANFARE_SHUTDOWN_TIMEOUT_MS (${v.shutdownTimeoutMs})`,
    );
  }
  if (v.apiMaxBodyBytes < v.maxMessageBytes && v.apiKeys.length > 0) {
    faults.push(
      `FANFARE_API_MAX_BODY_BYTES: ${v.apiMaxBodyBytes} is less than one message of FANFARE_MAX_MESSAGE_BYTES (${v.maxMessageBytes})`,
    );
  }
  if (v.rebalanceSkewPercent !== 0 && v.rebalanceSkewPercent < MIN_REBALANCE_SKEW_PERCENT) {
    faults.push(
      `FANFARE_REBALANCE_SKEW_PERCENT: ${v.rebalanceSkewPercent} is neither 0 nor at least ${MIN_REBALANCE_SKEW_PERCENT}; 100 is an even load`,
    );
  }
  if (v.hooks !== null && v.hookTimeoutMs >= v.handshakeTimeoutMs) {
    faults.push(
      `FANFARE_HOOK_TIMEOUT_MS: ${v.hookTimeoutMs} must be less than FANFARE_HANDSHAKE_TIMEOUT_MS (${v.handshakeTimeoutMs}), because handshakes wait for onConnect`,
    );
  }
  if (v.maxUnsentBytes < v.maxMessageBytes) {
    faults.push(
      `FANFARE_MAX_UNSENT_BYTES: ${v.maxUnsentBytes} is less than one message of FANFARE_MAX_MESSAGE_BYTES (${v.maxMessageBytes})`,
    );
  }
  // A message on a channel of Redis has the whole publication: its header, key and payload.
  if (v.redis !== null && v.state.length > 0 && v.stateMaxValueBytes + 1024 > v.maxPubsubBytes) {
    faults.push(
      `FANFARE_STATE_MAX_VALUE_BYTES: ${v.stateMaxValueBytes} must be at least 1024 less than FANFARE_MAX_PUBSUB_BYTES (${v.maxPubsubBytes})`,
    );
  }
  if (v.state.length > 0 && v.stateMaxValueBytes > v.maxInlineBytes) {
    faults.push(
      `FANFARE_STATE_MAX_VALUE_BYTES: ${v.stateMaxValueBytes} is more than FANFARE_MAX_INLINE_BYTES (${v.maxInlineBytes})`,
    );
  }
  if (v.blobs !== null) faults.push(...blobContradictions(v));
  return faults;
}
