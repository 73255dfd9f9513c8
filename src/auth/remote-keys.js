// remote-keys.js: the public keys of a JWKS URL (RFC 7517 5), cached.
//
// The set is read at the start and every 10 minutes. For a token with an unknown `kid` it is read
// at once, but at most every 30 s, so invented key ids do not become requests. If a read fails (not
// 200, too large, too slow, no usable key), the last good keys stay in use. If a token's key cannot
// be looked up now, its client has to return later.
//
// The request asks for an answer without a content encoding, and none is decoded: a decompressor
// would be one more program that reads foreign bytes. So it is not made with fetch, which decodes
// what arrives before its caller sees the headers.
//
// jose's createRemoteJWKSet bounds neither the size of an answer nor the reads after a failed one,
// and forgets the keys if the URL is down for longer than their age.

import { once } from 'node:events';
import { get as getPlain } from 'node:http';
import { get as getTls } from 'node:https';
import { importJWK } from 'jose';
import { readPublicKey } from '../config/token-keys.js';
import { TokenError } from './token-error.js';

const REFRESH_INTERVAL_MS = 600_000;
/** Minimum time between the starts of two reads. */
const COOLDOWN_MS = 30_000;
/** The time for connecting, the answer and its body together. */
const TIMEOUT_MS = 5000;
/** Sets with certificates have some 30 KB. */
const MAX_ANSWER_BYTES = 262_144;
/** Further keys are ignored. */
const MAX_KEYS = 100;
const MAX_KEY_ID_LENGTH = 256;
/** Keys that may be tried for a token without a `kid`, or with one that several keys have. */
const MAX_TRIES = 4;
/** Tokens waiting for a read. */
const MAX_WAITING = 1000;
/** Intervals are longer by up to this part, because all workers start together. */
const JITTER = 0.1;

/** @import { PublicKey } from '../config/token-keys.js' */
/** @import { CryptoKey } from 'jose' */

/**
 * A key is imported when it is first used.
 * @typedef {PublicKey & {imported: Map<string, Promise<CryptoKey>>}} RemoteKey
 */

/** @type {readonly RemoteKey[]} */
const NO_KEYS = Object.freeze([]);

/** Why a read failed. Its text is logged. */
class ReadError extends Error {}

export class RemoteKeys {
  /** Keys by `kid`; '' for keys without one. @type {Map<string, RemoteKey[]>} */
  #keys = new Map();
  /** @type {Promise<boolean>|null} */
  #reading = null;
  #beganMs = Number.NEGATIVE_INFINITY;
  #waiting = 0;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  #isClosed = false;
  /** Ends the read under way with a fault. @type {((fault: ReadError) => void)|null} */
  #cut = null;
  /** Did the last read succeed? Null: none has ended yet. @type {boolean|null} */
  #isUp = null;

  /**
   * @param {object} parts @param {string} parts.url
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {{info(fields: object, text: string): void, warn(fields: object, text: string): void}}
   *   parts.log
   * @param {() => number} [parts.now] ms, monotonic @param {number} [parts.timeoutMs]
   */
  constructor({ url, counters, log, now = () => performance.now(), timeoutMs = TIMEOUT_MS }) {
    this.url = url;
    this.counters = counters;
    this.log = log;
    this.now = now;
    this.timeoutMs = timeoutMs;
  }

  /** Reads the set once. A failure is logged, not thrown: the URL may come up later. */
  async start() {
    await this.#readKeySet();
  }

  close() {
    clearTimeout(this.#timer);
    this.#isClosed = true;
    this.#cut?.(new ReadError('closed'));
  }

  /**
   * @param {string} algorithm allowed by the configuration @param {unknown} keyId the token's `kid`
   * @returns {Promise<CryptoKey[]>} 1 to MAX_TRIES keys, one of which may have signed the token
   * @throws {TokenError} unknown_key, keys_unavailable
   */
  async findKeys(algorithm, keyId) {
    const known = this.#lookUp(algorithm, keyId);
    if (known.length > 0) return this.#cryptoKeys(known, algorithm);
    if (keyId !== undefined && !isKeyId(keyId)) throw new TokenError('unknown_key');
    // Reading helps a token without `kid` only if there is no set yet.
    if (keyId === undefined && this.#keys.size > 0) throw new TokenError('unknown_key');
    const isFresh = await this.#freshen();
    const found = this.#lookUp(algorithm, keyId);
    if (found.length > 0) return this.#cryptoKeys(found, algorithm);
    if (isFresh) throw new TokenError('unknown_key');
    throw new TokenError('keys_unavailable', { retryAfterS: this.#retryAfterS() });
  }

  /**
   * RFC 7517 4.5: a `kid` need not be unique, and a token need not have one. During a rotation two
   * keys fit such a token.
   * @param {string} algorithm @param {unknown} keyId @returns {RemoteKey[]}
   */
  #lookUp(algorithm, keyId) {
    const named = keyId === undefined ? [...this.#keys.values()].flat() : this.#named(keyId);
    return named.filter(({ algorithms }) => algorithms.includes(algorithm)).slice(0, MAX_TRIES);
  }

  /** @param {unknown} keyId @returns {readonly RemoteKey[]} */
  #named(keyId) {
    return (isKeyId(keyId) && this.#keys.get(keyId)) || NO_KEYS;
  }

  /** @param {readonly RemoteKey[]} keys @param {string} algorithm @returns {Promise<CryptoKey[]>} */
  async #cryptoKeys(keys, algorithm) {
    /** @type {CryptoKey[]} */
    const usable = [];
    for (const key of keys) {
      const imported = await this.#cryptoKey(key, algorithm);
      if (imported !== null) usable.push(imported);
    }
    if (usable.length === 0) throw new TokenError('unknown_key');
    return usable;
  }

  /**
   * @param {RemoteKey} key @param {string} algorithm
   * @returns {Promise<CryptoKey|null>} null: the set's author has made a mistake
   */
  async #cryptoKey(key, algorithm) {
    let imported = key.imported.get(algorithm);
    if (imported === undefined) {
      imported = /** @type {Promise<CryptoKey>} */ (importJWK(key.jwk, algorithm));
      key.imported.set(algorithm, imported);
    }
    try {
      return await imported;
    } catch {
      // The key may be a point that is not on its curve. OpenSSL's text may quote it.
      return null;
    }
  }

  /** Waits for a read. @returns {Promise<boolean>} false: no read, or it failed */
  async #freshen() {
    if (this.#reading === null && this.now() - this.#beganMs < COOLDOWN_MS) return false;
    if (this.#waiting >= MAX_WAITING) return false;
    this.#waiting++;
    try {
      return await this.#readKeySet();
    } finally {
      this.#waiting--;
    }
  }

  #retryAfterS() {
    return Math.max(1, Math.ceil((COOLDOWN_MS - (this.now() - this.#beganMs)) / 1000));
  }

  /** @returns {Promise<boolean>} did it succeed? It never rejects. */
  #readKeySet() {
    this.#reading ??= this.#readOnce().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #readOnce() {
    clearTimeout(this.#timer);
    this.#beganMs = this.now();
    /** @type {string|null} */
    let fault = null;
    try {
      const keys = await this.#fetchKeySet();
      if (keys.size === 0) throw new ReadError('no usable key in the answer');
      this.#keys = keys;
    } catch (error) {
      fault = readFaultOf(error);
    }
    if (this.#isClosed) return false;
    const isUp = fault === null;
    this.counters.keyReads[isUp ? 'ok' : 'failed']++;
    // Logs only changes.
    if (isUp !== this.#isUp) {
      const fields = { host: new URL(this.url).host, keys: this.#keys.size };
      if (isUp) this.log.info(fields, 'JWKS read');
      else this.log.warn({ ...fields, fault }, 'JWKS unavailable: known keys stay in use');
    }
    this.#isUp = isUp;
    const waitMs = isUp ? REFRESH_INTERVAL_MS : COOLDOWN_MS;
    this.#timer = setTimeout(() => this.#readKeySet(), waitMs * (1 + JITTER * Math.random()));
    this.#timer.unref();
    return isUp;
  }

  /** @returns {Promise<Map<string, RemoteKey[]>>} */
  async #fetchKeySet() {
    const get = this.url.startsWith('https:') ? getTls : getPlain;
    const request = get(this.url, { headers: HEADERS });
    request.on('error', () => {}); // after the answer; before it, `once` rejects
    let timer;
    /** @type {Promise<never>} */
    const cut = new Promise((_, reject) => {
      this.#cut = reject;
      timer = setTimeout(reject, this.timeoutMs, new ReadError('time-out'));
    });
    try {
      return await Promise.race([readAnswer(request), cut]);
    } finally {
      clearTimeout(timer);
      this.#cut = null;
      request.destroy(); // no effect if the answer was read to its end
    }
  }
}

const HEADERS = Object.freeze({
  Accept: 'application/jwk-set+json, application/json',
  'Accept-Encoding': 'identity',
});

/** @param {import('node:http').ClientRequest} request @returns {Promise<Map<string, RemoteKey[]>>} */
async function readAnswer(request) {
  /** @type {import('node:http').IncomingMessage[]} */
  const [answer] = await once(request, 'response');
  const { statusCode, headers } = answer;
  // Redirects are not followed: one could lead to another host, or from https to http.
  if (statusCode !== 200) throw new ReadError(`status ${statusCode}`);
  const { 'content-encoding': encoding = 'identity' } = headers;
  if (encoding !== 'identity') throw new ReadError('the answer has a content encoding');
  const text = await readText(answer);
  /** @type {unknown} */
  let set;
  try {
    set = JSON.parse(text);
  } catch {
    throw new ReadError('the answer is not JSON');
  }
  const list = /** @type {{keys?: unknown}|null} */ (set)?.keys;
  if (!Array.isArray(list)) throw new ReadError('the answer is not a JWKS');
  return readSet(list);
}

/** @param {readonly unknown[]} list @returns {Map<string, RemoteKey[]>} */
function readSet(list) {
  /** @type {Map<string, RemoteKey[]>} */
  const keys = new Map();
  for (const value of list.slice(0, MAX_KEYS)) {
    const key = readPublicKey(value);
    if (key === null) continue;
    const { kid = '' } = /** @type {{kid?: unknown}} */ (value);
    if (kid !== '' && !isKeyId(kid)) continue;
    const named = keys.get(kid) ?? [];
    named.push({ ...key, imported: new Map() });
    keys.set(kid, named);
  }
  return keys;
}

/** @param {import('node:http').IncomingMessage} answer @returns {Promise<string>} */
async function readText(answer) {
  const parts = [];
  let bytes = 0;
  // Leaving the loop destroys the rest of the answer.
  for await (const part of answer) {
    bytes += part.length;
    if (bytes > MAX_ANSWER_BYTES)
      throw new ReadError(`the answer has more than ${MAX_ANSWER_BYTES} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

/** @param {unknown} value @returns {value is string} */
function isKeyId(value) {
  return typeof value === 'string' && value !== '' && value.length <= MAX_KEY_ID_LENGTH;
}

/** @param {unknown} error @returns {string} without the URL, which may hold a secret */
function readFaultOf(error) {
  if (error instanceof ReadError) return error.message;
  const { code } = /** @type {{code?: unknown}} */ (error);
  return typeof code === 'string' ? code : 'no connection';
}
