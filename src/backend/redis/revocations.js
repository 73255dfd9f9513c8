// revocations.js: the revocations of a fleet, in three keys of Redis that expire with the last one.
//   <prefix>{revocations}:entries    hash: user or token -> issuedBefore, keepUntil
//   <prefix>{revocations}:expiry     sorted set: the same fields by keepUntil
//   <prefix>{revocations}:version    changes by additions: a read that finds it unchanged reads no
//                                    entries
//
// If Redis evicts keys, it takes the entries first, because the version is read all the time. So a
// read checks that they exist; if not, workers add what they know (auth/revocation-log.js). An
// addition is one script (lua/revoke.lua), and may be sent twice.

import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';

import { BrokerError } from '../errors.js';
import { MAX_REVOCATIONS } from '../revocations.js';

const PAGE_FIELDS = 1000;
/** Of the version, which stays below 2^63 for 4 billion additions. */
const MAX_STEP = 2 ** 31;

/** @import { Revocation, RevocationStore } from '../revocations.js' */

/**
 * @typedef {object} Client the methods of ioredis that are used here
 * @property {(script: string, keys: number, ...args: (string|number)[]) => Promise<unknown>} eval
 * @property {(key: string) => Promise<string|null>} get
 * @property {(key: string) => Promise<number>} exists
 * @property {(key: string, cursor: string, count: 'COUNT', n: number) => Promise<[string, string[]]>}
 *   hscan
 */

/** @implements {RevocationStore} */
export class RedisRevocations {
  /** @type {Revocation[]} */
  #known = [];
  /** The value of the key `version` before `#known` was read; null if there was none. */
  #version = /** @type {string|null} */ (null);

  /**
   * @param {object} parts
   * @param {{readonly isWritable: boolean, redis: unknown, describe(error: unknown): string}}
   *   parts.connection
   * @param {string} parts.prefix
   */
  constructor({ connection, prefix }) {
    this.connection = connection;
    this.redis = /** @type {Client} */ (connection.redis);
    this.keys = ['entries', 'expiry', 'version'].map((name) => `${prefix}{revocations}:${name}`);
    this.script = readFileSync(new URL('lua/revoke.lua', import.meta.url), 'utf8');
  }

  /** @param {Revocation} revocation @returns {Promise<boolean>} */
  async add({ user, tokenId, issuedBeforeMs, keepUntilMs }) {
    this.#check();
    const field = JSON.stringify([user, tokenId]);
    const times = [issuedBeforeMs, keepUntilMs, Date.now()];
    try {
      const { redis, script, keys } = this;
      const limits = [MAX_REVOCATIONS, randomInt(1, MAX_STEP)];
      const answer = await redis.eval(script, 3, ...keys, field, ...times, ...limits);
      return answer === 1;
    } catch (error) {
      throw new BrokerError('OUTCOME_UNKNOWN', this.connection.describe(error));
    }
  }

  async read() {
    this.#check();
    try {
      const { redis, keys } = this;
      const version = (await redis.exists(keys[0])) === 1 ? await redis.get(keys[2]) : null;
      if (version === null || version !== this.#version) {
        this.#known = version === null ? [] : await this.#readAll();
        this.#version = version;
      }
    } catch (error) {
      throw new BrokerError('UNAVAILABLE', this.connection.describe(error));
    }
    const nowMs = Date.now();
    return this.#known.filter(({ keepUntilMs }) => keepUntilMs > nowMs);
  }

  async #readAll() {
    /** @type {Map<string, Revocation>} */
    const found = new Map();
    let cursor = '0';
    do {
      const [next, pairs] = await this.redis.hscan(this.keys[0], cursor, 'COUNT', PAGE_FIELDS);
      for (let i = 0; i < pairs.length; i += 2) {
        const revocation = revocationOf(pairs[i], pairs[i + 1]);
        if (revocation !== null) found.set(pairs[i], revocation);
      }
      cursor = next;
    } while (cursor !== '0' && found.size <= MAX_REVOCATIONS);
    return [...found.values()];
  }

  #check() {
    if (!this.connection.isWritable) throw new BrokerError('UNAVAILABLE', 'Redis is unavailable');
  }
}

/** @param {string} field @param {string} value @returns {Revocation|null} null: not ours */
function revocationOf(field, value) {
  // A newer version may have appended fields.
  const times = /^(\d{1,16}) (\d{1,16})(?: |$)/.exec(value);
  if (times === null) return null;
  try {
    const [user, tokenId] = JSON.parse(field);
    const isOne = (typeof user === 'string') !== (typeof tokenId === 'string');
    if (!isOne) return null;
    return {
      user: user ?? null,
      tokenId: tokenId ?? null,
      issuedBeforeMs: Number(times[1]),
      keepUntilMs: Number(times[2]),
    };
  } catch {
    return null;
  }
}
