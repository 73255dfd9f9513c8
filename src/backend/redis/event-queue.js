// event-queue.js: the partitions of recorded events in Redis, for a courier with a connection of
// its own.
//
// A partition's owner holds a lease with a fence (lua/lease.lua), and each change of the partition
// is one script that checks it (lua/commit.lua). So a courier that was suspended is ignored when it
// wakes up.

import { LEASE_MS, PARTITIONS } from '../../webhooks/queue.js';
import { BrokerError } from '../errors.js';
import { RedisClusterClient } from './cluster-client.js';
import { RedisConnection } from './connection.js';
import { PartitionKeys } from './partition-keys.js';
import { readScript } from './scripts.js';

/** Pending events in one answer. */
const PAGE_FIELDS = 1000;

/** @typedef {import('../../webhooks/queue.js').EventQueue} EventQueue */

/**
 * @typedef {object} Client the methods of ioredis that are used here, with scripts
 * @property {(name: string, script: {numberOfKeys: number, lua: string}) => void} defineCommand
 * @property {(...args: (string|number)[]) => Promise<[fence: number, mark: string]>} webhooksLease
 * @property {(...args: (string|number)[]) => Promise<number>} webhooksCommit
 * @property
 *   {(key: string, cursor: string, count: 'COUNT', n: number) => Promise<[string, string[]]>} hscan
 * @property
 *   {(count: 'COUNT', n: number, streams: 'STREAMS', key: string, after: string) =>
 *   Promise<[string, [string, string[]][]][]|null>} xread null: no entries
 * @property {(key: string) => Promise<number>} xlen
 * @property {(key: string) => Promise<number>} hlen
 * @property {(key: string, field: string) => Promise<string|null>} hget
 * @property {(key: string, ...fields: string[]) => Promise<(string|null)[]>} hmget
 * @property {(key: string) => Promise<number>} pttl
 * @property {(key: string, value: string, px: 'PX', ms: number) => Promise<unknown>} set
 * @property {(usage: 'USAGE', key: string) => Promise<number|null>} memory
 */

const MARK = readScript('mark');
const SCRIPTS = {
  webhooksLease: { numberOfKeys: 2, lua: MARK + readScript('lease') },
  webhooksCommit: { numberOfKeys: 4, lua: MARK + readScript('commit') },
};

/** @implements {EventQueue} */
class RedisEventQueue {
  /**
   * @param {object} parts
   * @param {{readonly isWritable: boolean, redis: unknown, describe(error: unknown): string,
   *   prove?: () => void}} parts.connection
   * @param {string} parts.prefix of keys
   */
  constructor({ connection, prefix }) {
    this.connection = connection;
    this.redis = /** @type {Client} */ (connection.redis);
    this.keys = new PartitionKeys(prefix);
    this.leaseMs = LEASE_MS;
    /** A partition's mark identifies the data set of Redis. @type {Map<number, string>} */
    this.marks = new Map();
    for (const [name, script] of Object.entries(SCRIPTS)) this.redis.defineCommand(name, script);
  }

  /** @param {number} partition @returns {Promise<number|null>} */
  async acquire(partition) {
    return (await this.#lease(partition, 'acquire', '')) || null;
  }

  /** @param {number} partition @param {number} fence @returns {Promise<boolean>} */
  async renew(partition, fence) {
    return (await this.#lease(partition, 'renew', fence)) === fence;
  }

  /** @param {number} partition @param {number} fence */
  async release(partition, fence) {
    await this.#lease(partition, 'release', fence);
  }

  /**
   * @param {number} partition
   * @param {'acquire'|'renew'|'release'} step @param {number|string} fence
   */
  async #lease(partition, step, fence) {
    const known = this.marks.get(partition) ?? '';
    const first = await this.#firstOf(partition, known);
    const [now, mark] = await this.#askRedis(() =>
      this.redis.webhooksLease(
        this.keys.ofPartition(partition, 'lease'),
        this.keys.ofPartition(partition, 'state'),
        step,
        this.leaseMs,
        fence,
        known,
        first,
      ),
    );
    this.marks.set(partition, mark);
    return now;
  }

  /**
   * What a partition that this courier does not know yet is compared with.
   * @param {number} partition @param {string} known its mark, or ''
   */
  async #firstOf(partition, known) {
    if (partition === 0) return 'first';
    if (known !== '') return '';
    const state = this.keys.ofPartition(0, 'state');
    const mark = await this.#askRedis(() => this.redis.hget(state, 'mark'));
    return mark?.split(':')[1] ?? '';
  }

  /** @param {number} partition @returns {Promise<Map<string, string>>} */
  async load(partition) {
    /** @type {Map<string, string>} */
    const pending = new Map();
    const key = this.keys.ofPartition(partition, 'pending');
    let cursor = '0';
    do {
      const [next, pairs] = await this.#askRedis(() =>
        this.redis.hscan(key, cursor, 'COUNT', PAGE_FIELDS),
      );
      for (let i = 0; i < pairs.length; i += 2) pending.set(pairs[i], pairs[i + 1]);
      cursor = next;
    } while (cursor !== '0');
    return pending;
  }

  /** @type {EventQueue['read']} */
  async read(partition, afterId, limit) {
    // XREAD and not XRANGE, because Redis 6.0 has no exclusive ranges.
    const stream = this.keys.ofPartition(partition, 'stream');
    const streams = await this.#askRedis(() =>
      this.redis.xread('COUNT', limit, 'STREAMS', stream, afterId ?? '0-0'),
    );
    const [[, entries]] = streams ?? [['', []]];
    return entries.map(([id, [, body]]) => ({ id, body }));
  }

  /** @type {EventQueue['commit']} */
  async commit(partition, fence, { set, remove, upTo, announced = null }) {
    const { keys } = this;
    const done = await this.#askRedis(() =>
      this.redis.webhooksCommit(
        keys.ofPartition(partition, 'lease'),
        keys.ofPartition(partition, 'pending'),
        keys.ofPartition(partition, 'stream'),
        keys.ofPartition(partition, 'state'),
        fence,
        upTo ?? '',
        announced ?? '',
        set.size,
        ...[...set].flat(),
        ...remove,
      ),
    );
    return done === 1;
  }

  /** @param {number} partition @returns {Promise<import('../../webhooks/queue.js').Lost>} */
  async lost(partition) {
    const state = this.keys.ofPartition(partition, 'state');
    const [lost, announced, unknown] = await this.#askRedis(() =>
      this.redis.hmget(state, 'lost', 'announced', 'unknown'),
    );
    const count = Number(lost) - Number(announced);
    return { count, upTo: Number(lost), isUnknown: unknown !== null };
  }

  async size() {
    const { redis, keys } = this;
    const sizeOf = async (/** @type {number} */ partition) => {
      const stream = keys.ofPartition(partition, 'stream');
      const [entries, pending, pendingBytes, streamBytes] = await Promise.all([
        redis.xlen(stream),
        redis.hlen(keys.ofPartition(partition, 'pending')),
        redis.hget(keys.ofPartition(partition, 'state'), 'bytes'),
        // An ACL user may not be permitted to ask.
        redis.memory('USAGE', stream).catch(() => 0),
      ]);
      return { entries, pending, bytes: Number(pendingBytes) + Number(streamBytes) };
    };
    const partitions = Array.from({ length: PARTITIONS }, (_, partition) => partition);
    const sizes = await this.#askRedis(() => Promise.all(partitions.map(sizeOf)));
    return sizes.reduce((sum, { entries, pending, bytes }) => ({
      entries: sum.entries + entries,
      pending: sum.pending + pending,
      bytes: sum.bytes + bytes,
    }));
  }

  /** @param {number} ms */
  async pauseLeaves(ms) {
    // If several servers drain, the latest end counts.
    if ((await this.periods()).leavesMs >= ms) return;
    await this.#askRedis(() => this.redis.set(this.keys.ofPartition(0, 'hold'), '1', 'PX', ms));
  }

  /** @param {number} ms */
  async makeUncertain(ms) {
    await this.#askRedis(() => this.redis.set(this.keys.ofPartition(0, 'doubt'), '1', 'PX', ms));
  }

  async periods() {
    const { redis, keys } = this;
    const [leavesMs, uncertainMs] = await this.#askRedis(() =>
      Promise.all([
        redis.pttl(keys.ofPartition(0, 'hold')),
        redis.pttl(keys.ofPartition(0, 'doubt')),
      ]),
    );
    // Negative: there is none.
    return { leavesMs: Math.max(0, leavesMs), uncertainMs: Math.max(0, uncertainMs) };
  }

  /** @template T @param {() => Promise<T>} command @returns {Promise<T>} */
  async #askRedis(command) {
    if (!this.connection.isWritable) throw new BrokerError('UNAVAILABLE', 'Redis is unavailable');
    try {
      const answer = await command();
      this.connection.prove?.();
      return answer;
    } catch (error) {
      // Also a commit may be repeated, so its outcome need not be known.
      throw new BrokerError('UNAVAILABLE', this.connection.describe(error));
    }
  }
}

/**
 * A courier's queue, over a connection that reconnects until `close`.
 * @param {object} parts
 * @param {Pick<import('../../config/settings.js').Config, 'redis'|'redisPrefix'|'redisTimeoutMs'>}
 *   parts.config with a Redis
 * @returns {{queue: RedisEventQueue, opened: Promise<void>, close: () => void}} `opened`: the first
 *   attempt to connect has ended
 */
export function openEventQueue({ config }) {
  const { redisPrefix: prefix, redisTimeoutMs: timeoutMs } = config;
  const settings = /** @type {import('../../config/redis.js').RedisSettings} */ (config.redis);
  const connection =
    settings.kind === 'cluster'
      ? new RedisClusterClient({ settings, timeoutMs })
      : new RedisConnection({
          settings,
          name: `${prefix}courier`,
          timeoutMs,
          // Each call asks whether it can be written to (#askRedis).
          onReady() {},
          onAway() {},
        });
  const opened = connection.open();
  const queue = new RedisEventQueue({ connection, prefix });
  return { queue, opened, close: () => connection.close() };
}
