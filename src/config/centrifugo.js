// centrifugo.js: reads the settings of Centrifugo's door, FANFARE_CENTRIFUGO and those after it.
//   FANFARE_CENTRIFUGO=on
//   FANFARE_CENTRIFUGO_ALLOW=subscribe:news:*, history:news:*
//   FANFARE_CENTRIFUGO_API_KEY=2b7e151628aed2a6abf7158809cf4f3c
//
// Only the hashes of API keys are kept, and no fault quotes a key.

import { createHash } from 'node:crypto';

import { CHANNEL_SPACE, escapePattern } from './channel-names.js';
import { isAnyPattern, isRoomPattern } from './room-patterns.js';

/** What FANFARE_CENTRIFUGO_ALLOW grants to every client. */
export const ALLOWED_RIGHTS = /** @type {const} */ ([
  'subscribe',
  'publish',
  'presence',
  'history',
]);
const MAX_ALLOWED = 100;
/** The current key, the previous and the next one, with room. */
const MAX_KEYS = 4;
/** The native HTTP API has the same bounds: 32 random hexadecimal characters are 128 bits. */
const KEY = /^[\x21-\x7e]{32,256}$/;
/** A path without a slash at its end. */
const PATH = /^(?:\/[A-Za-z0-9._~-]{1,64}){1,8}$/;
/** Characters of channels, and stars. */
const PATTERN = /^[\x21-\x7e]{1,255}$/;
const RULE = /^([a-z]+):(.*)$/;
/** A namespace, if there is one, and the mark of user-limited channels. */
const PERSONAL = /^(?:[A-Za-z0-9_.-]{1,64}:)?#$/;

/** @import { Rule } from './room-patterns.js' */
/** @typedef {typeof ALLOWED_RIGHTS[number]} AllowedRight */
/** @typedef {{right: AllowedRight, pattern: string}} AllowRule `pattern`: of channels, with stars */

/**
 * @typedef {object} CentrifugoSettings frozen
 * @property {boolean} isLenient are tokens without `exp` and `sub` accepted?
 * @property {string} pathPrefix before `/connection/…` and `/emulation`; '' or `/…`
 * @property {readonly AllowRule[]} allow
 * @property {string} personal personal channels, up to the user; '': there are none
 * @property {string} apiPath of the server API, before its methods: `/…`
 * @property {readonly string[]} apiKeyHashes SHA-256 in hexadecimal; empty: there is no server API
 */

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them; and
 *   `apiKeys`
 * @returns {{centrifugo: CentrifugoSettings|null, faults: string[]}} null if the door is off
 */
export function readCentrifugoSettings(values) {
  /** @type {string[]} */
  const faults = [];
  const pathPrefix = readPath('FANFARE_CENTRIFUGO_PATH', values.centrifugoPath, faults);
  const apiPath = readPath('FANFARE_CENTRIFUGO_API_PATH', values.centrifugoApiPath, faults);
  if (apiPath === '' && values.centrifugoApiPath === '/')
    faults.push('FANFARE_CENTRIFUGO_API_PATH: its methods need a path of their own');
  const allow = readAllow(/** @type {readonly string[]} */ (values.centrifugoAllow), faults);
  const personal = String(values.centrifugoPersonal ?? '');
  if (personal !== '' && !PERSONAL.test(personal))
    faults.push(
      `FANFARE_CENTRIFUGO_PERSONAL: ${JSON.stringify(personal)} is neither # nor a namespace and #, as personal:# is`,
    );
  const apiKeyHashes = readKeys(String(values.centrifugoApiKey ?? ''), faults);
  const isOn = values.centrifugoDoor === 'on';
  const idle = { API_KEY: apiKeyHashes.length, ALLOW: allow.length, PERSONAL: personal.length };
  for (const [name, length] of Object.entries(isOn ? {} : idle))
    if (length > 0)
      faults.push(`FANFARE_CENTRIFUGO_${name}: does nothing without FANFARE_CENTRIFUGO=on`);
  const { length } = /** @type {readonly unknown[]} */ (values.apiKeys ?? []);
  if (isNative(apiPath) && apiKeyHashes.length > 0 && length > 0)
    faults.push(
      `FANFARE_CENTRIFUGO_API_PATH: ${apiPath} is the path of the HTTP API, which API_KEYS turns on`,
    );
  if (!isOn || faults.length > 0) return { centrifugo: null, faults };
  const settings = {
    isLenient: values.centrifugoTokens === 'lenient',
    pathPrefix,
    allow: Object.freeze(allow),
    personal,
    apiPath,
    apiKeyHashes: Object.freeze(apiKeyHashes),
  };
  return { centrifugo: Object.freeze(settings), faults };
}

/** @param {CentrifugoSettings} settings @returns {string} for the banner */
export function describeCentrifugo({ isLenient, pathPrefix, apiPath, apiKeyHashes }) {
  const keys = apiKeyHashes.length;
  const api = keys === 0 ? 'no server API' : `${apiPath}, ${keys} key${keys === 1 ? '' : 's'}`;
  return `${pathPrefix}/connection, ${api}${isLenient ? ', lenient tokens' : ''}`;
}

/** @param {string} pattern of FANFARE_HISTORY or FANFARE_PRESENCE, if the door is on */
export function isChannelPattern(pattern) {
  return PATTERN.test(pattern) && isAnyPattern(spaced(pattern));
}

/** @param {string} pattern of channels @returns {string} of their rooms that are not native */
function spaced(pattern) {
  return `${CHANNEL_SPACE}${escapePattern(pattern)}`;
}

/**
 * A channel's room may be in a space of its own, so a pattern that may mean it gets a second rule.
 * @template T @param {readonly Rule<T>[]} rules @returns {Rule<T>[]}
 */
export function withChannels(rules) {
  return rules.flatMap((rule) => {
    const { pattern, value } = rule;
    const own = { pattern: spaced(pattern), value };
    if (!isRoomPattern(pattern)) return [own];
    return pattern.includes('*') || pattern.includes('/') ? [rule, own] : [rule];
  });
}

/** @param {string} path @returns {boolean} whether the native HTTP API has it */
function isNative(path) {
  return path === '/api' || path.startsWith('/api/');
}

/** @param {string} setting @param {unknown} value @param {string[]} faults */
function readPath(setting, value, faults) {
  const path = String(value ?? '').replace(/\/+$/, '');
  if (path === '' || PATH.test(path)) return path;
  faults.push(`${setting}: ${JSON.stringify(value)} is not a path, as /centrifugo is`);
  return '';
}

/** @param {readonly string[]} entries `right:pattern` @param {string[]} faults */
function readAllow(entries, faults) {
  const setting = 'FANFARE_CENTRIFUGO_ALLOW';
  if (entries.length > MAX_ALLOWED)
    faults.push(`${setting}: ${entries.length} entries, at most ${MAX_ALLOWED} are allowed`);
  return entries.flatMap((entry) => {
    const [, right = '', pattern = ''] = RULE.exec(entry) ?? [];
    if (isRight(right) && PATTERN.test(pattern)) return [Object.freeze({ right, pattern })];
    faults.push(
      `${setting}: ${JSON.stringify(entry)} is not right:pattern, as subscribe:news:* is; rights are ${ALLOWED_RIGHTS.join(', ')}`,
    );
    return [];
  });
}

/** @param {string} text one key on each line @param {string[]} faults @returns {string[]} hashes */
function readKeys(text, faults) {
  const setting = 'FANFARE_CENTRIFUGO_API_KEY';
  const keys = text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  if (keys.length > MAX_KEYS)
    faults.push(`${setting}: its value has ${keys.length} lines, at most ${MAX_KEYS}`);
  for (const [index, key] of keys.entries()) {
    const where = keys.length === 1 ? 'its value' : `line ${index + 1}`;
    if (!KEY.test(key))
      faults.push(`${setting}: ${where} is not 32 to 256 visible ASCII characters`);
  }
  return keys.map((key) => createHash('sha256').update(key).digest('hex'));
}

/** @param {string} text @returns {text is AllowedRight} */
function isRight(text) {
  return /** @type {readonly string[]} */ (ALLOWED_RIGHTS).includes(text);
}
