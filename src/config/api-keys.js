// api-keys.js: reads the settings API_KEYS and API_KEYS_FILE, the keys of the HTTP API.
//
//   web     2b7e151628aed2a6abf7158809cf4f3c   publish,history   rooms=chat.*,news
//   ops     sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08   all
//
// `rooms=` limits the rights to rooms that match a pattern. Line breaks or semicolons separate
// keys, and `#` begins a comment. Two keys may share a name, so that a key can be replaced without
// an outage. Only the SHA-256 hash of a secret is kept, and no fault quotes one.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

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
 */

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @returns {{apiKeys: readonly ApiKey[], faults: string[]}}
 */
export function readApiKeys(values) {
  /** @type {string[]} */
  const faults = [];
  const path = String(values.apiKeysFile ?? '');
  const keys = [
    ...parseKeys(String(values.apiKeysText ?? ''), 'API_KEYS', faults),
    ...parseKeys(readKeyFile(path, faults), 'API_KEYS_FILE', faults),
  ];
  if (keys.length > MAX_KEYS) faults.push(`API_KEYS: ${keys.length} keys, at most ${MAX_KEYS}`);
  const hashes = new Set(keys.map(({ hash }) => hash));
  if (hashes.size < keys.length) faults.push('API_KEYS: two keys have the same secret');
  return { apiKeys: Object.freeze(faults.length > 0 ? [] : keys), faults };
}

/**
 * @param {string} path '' if there is no file
 * @param {string[]} faults one is added if the file cannot be read
 */
function readKeyFile(path, faults) {
  if (path === '') return '';
  try {
    return readFileSync(path, 'utf8');
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
  const [name, secret, rightsText, roomsText, ...others] = entry.split(/\s+/);
  if (rightsText === undefined || others.length > 0)
    return 'not "name secret right,right" or "name secret right,right rooms=pattern,pattern"';
  if (!NAME.test(name)) return 'its name is not 1 to 64 characters of A-Z a-z 0-9 _ . -';
  const digest = HASH.exec(secret)?.[1].toLowerCase();
  if (digest === undefined && !SECRET.test(secret))
    return 'its secret is not 32 to 256 characters of A-Z a-z 0-9 _ . ~ + / = -';
  const rights = rightsText === 'all' ? API_RIGHTS : rightsText.split(',');
  const unknown = rights.findIndex((right) => !isRight(right));
  if (unknown >= 0) return `right ${unknown + 1} is none of all, ${API_RIGHTS.join(', ')}`;
  let rooms = null;
  if (roomsText !== undefined) {
    if (!roomsText.startsWith('rooms=')) return 'its fourth word does not begin with rooms=';
    rooms = roomsText.slice('rooms='.length).split(',');
    if (rooms.length > MAX_PATTERNS || !rooms.every(isRoomPattern))
      return `rooms= is not a list of at most ${MAX_PATTERNS} patterns of room names`;
  }
  return Object.freeze({
    name,
    hash: digest ?? createHash('sha256').update(secret).digest('hex'),
    rights: Object.freeze(/** @type {ApiRight[]} */ ([...rights])),
    rooms: rooms === null ? null : Object.freeze(rooms),
  });
}

/** @param {string} text @returns {text is ApiRight} */
function isRight(text) {
  return /** @type {readonly string[]} */ (API_RIGHTS).includes(text);
}
