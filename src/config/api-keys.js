// api-keys.js: reads the settings API_KEYS and API_KEYS_FILE, the keys of the HTTP API.
//   web     2b7e151628aed2a6abf7158809cf4f3c   publish,history   rooms=chat.*,news
//   ops     sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08   all
//   shop    4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce          all   app=123
//
// `rooms=` limits the rights to rooms that match a pattern, and `app=` to the rooms, users and
// connections of an app of FANFARE_PUSHER_APPS: names are names in the app then. Line breaks or
// semicolons separate keys, and `#` begins a comment. Two keys may share a name, so that a key can
// be replaced without an outage. Only the SHA-256 hash of a secret is kept. No fault quotes one.

import { createHash } from 'node:crypto';

import { ID_RULE, isAppId } from './pusher.js';
import { isRoomPattern } from './room-patterns.js';

/** The rights that a key may have. `all` stands for each of them. */
export const API_RIGHTS = /** @type {const} */ ([
  'publish',
  'broadcast',
  'rooms',
  'history',
  'delete',
  'presence',
  'disconnect',
  'join',
  'revoke',
  'console',
]);
/** They are about all apps, so a key of one cannot have them. @type {readonly string[]} */
const NOT_OF_APPS = ['broadcast', 'console'];
/** Each request compares its key with all keys: 0.3 us each. */
const MAX_KEYS = 100;
const MAX_PATTERNS = 100;
const NAME = /^[A-Za-z0-9_.-]{1,64}$/;
/** 32 characters of a random hexadecimal number are 128 bits. */
const SECRET = /^[A-Za-z0-9_.~+/=-]{32,256}$/;
const HASH = /^sha256:([0-9a-f]{64})$/i;

/** @typedef {typeof API_RIGHTS[number]} ApiRight */

/**
 * @typedef {object} ApiKey frozen
 * @property {string} name for the operator
 * @property {string} hash SHA-256 of the secret, 64 hexadecimal digits
 * @property {readonly ApiRight[]} rights
 * @property {readonly string[]|null} rooms patterns; null for all rooms
 * @property {string|null} app the id of the app whose rooms and users it names; null: native ones
 */

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @param {ReadonlyMap<string, unknown>|null} apps by id; null: there are none, or one is at fault
 * @param {import('./texts.js').ReadText} read
 * @returns {{apiKeys: readonly ApiKey[], faults: string[]}}
 */
export function readApiKeys(values, apps, read) {
  /** @type {string[]} */
  const faults = [];
  const path = String(values.apiKeysFile ?? '');
  const keys = [
    ...parseKeys(String(values.apiKeysText ?? ''), 'API_KEYS', faults),
    ...parseKeys(readKeyFile(path, faults, read), 'API_KEYS_FILE', faults),
  ];
  if (keys.length > MAX_KEYS) faults.push(`API_KEYS: ${keys.length} keys, at most ${MAX_KEYS}`);
  const hashes = new Set(keys.map(({ hash }) => hash));
  if (hashes.size < keys.length) faults.push('API_KEYS: two keys have the same secret');
  for (const { name, app } of keys)
    if (app !== null && !apps?.has(app))
      faults.push(`API_KEYS: the key ${name} names an app that FANFARE_PUSHER_APPS lacks`);
  return { apiKeys: Object.freeze(faults.length > 0 ? [] : keys), faults };
}

/**
 * @param {string} path '' if there is no file
 * @param {string[]} faults one is added if the file cannot be read
 * @param {import('./texts.js').ReadText} read
 */
function readKeyFile(path, faults, read) {
  if (path === '') return '';
  try {
    return read(path);
  } catch (error) {
    // The value may be a key that was put into the wrong variable, so it is not shown.
    const { code } = /** @type {NodeJS.ErrnoException} */ (error);
    faults.push(`API_KEYS_FILE: the file cannot be read (${code})`);
    return '';
  }
}

/** @param {string} text @param {string} setting @param {string[]} faults @returns {ApiKey[]} */
function parseKeys(text, setting, faults) {
  /** @type {ApiKey[]} */
  const keys = [];
  const lines = text.split('\n').map((line) => line.replace(/(^|\s)#.*/, ''));
  const entries = lines.flatMap((line) => line.split(';')).map((entry) => entry.trim());
  entries
    .filter((entry) => entry !== '')
    .forEach((entry, index) => {
      const key = parseKey(entry);
      if (typeof key === 'string') faults.push(`${setting}, key ${index + 1}: ${key}`);
      else keys.push(key);
    });
  return keys;
}

/** @param {string} entry @returns {ApiKey|string} a fault, without secrets */
function parseKey(entry) {
  const [name, secret, rightsText, ...limits] = entry.split(/\s+/);
  if (rightsText === undefined || limits.length > 2)
    return 'not "name secret right,right", perhaps with "rooms=pattern,pattern" and "app=id" after it';
  if (!NAME.test(name)) return 'its name is not 1 to 64 characters of A-Z a-z 0-9 _ . -';
  const digest = HASH.exec(secret)?.[1].toLowerCase();
  if (digest === undefined && !SECRET.test(secret))
    return 'its secret is not 32 to 256 characters of A-Z a-z 0-9 _ . ~ + / = -';
  const limited = readLimits(limits);
  if (typeof limited === 'string') return limited;
  const rights = readRights(rightsText, limited.app !== null);
  if (typeof rights === 'string') return rights;
  return Object.freeze({
    name,
    hash: digest ?? createHash('sha256').update(secret).digest('hex'),
    rights: Object.freeze(rights),
    ...limited,
  });
}

/** @param {string} text @param {boolean} isOfApp @returns {ApiRight[]|string} a fault */
function readRights(text, isOfApp) {
  if (text === 'all') return API_RIGHTS.filter((right) => !isOfApp || !NOT_OF_APPS.includes(right));
  const rights = text.split(',');
  const unknown = rights.findIndex((right) => !isRight(right));
  if (unknown >= 0) return `right ${unknown + 1} is not one of all, ${API_RIGHTS.join(', ')}`;
  const unfit = isOfApp && rights.find((right) => NOT_OF_APPS.includes(right));
  if (unfit) return `a key with app= cannot have the right ${unfit}, which is about all apps`;
  return /** @type {ApiRight[]} */ (rights);
}

/**
 * @param {readonly string[]} words after the rights
 * @returns {Pick<ApiKey, 'rooms'|'app'>|string} a fault
 */
function readLimits(words) {
  /** @type {string[]|null} */
  let rooms = null;
  /** @type {string|null} */
  let app = null;
  for (const word of words) {
    if (word.startsWith('rooms=') && rooms === null) {
      rooms = word.slice('rooms='.length).split(',');
      if (rooms.length > MAX_PATTERNS || !rooms.every(isRoomPattern))
        return `rooms= is not a list of at most ${MAX_PATTERNS} patterns of room names`;
    } else if (word.startsWith('app=') && app === null) {
      app = word.slice('app='.length);
      if (!isAppId(app)) return `app= is not the id of an app: ${ID_RULE}`;
    } else
      return 'after its rights, a word does not begin with rooms= or app=, or one occurs twice';
  }
  return { rooms: rooms === null ? null : Object.freeze(rooms), app };
}

/** @param {string} text @returns {text is ApiRight} */
function isRight(text) {
  return /** @type {readonly string[]} */ (API_RIGHTS).includes(text);
}
