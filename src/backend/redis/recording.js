// recording.js: records events for webhooks in Redis. Loaded only if there are endpoints.
//   transition in members.lua or occupancy.lua --same step--> partition
//   in a cluster: --same step--> outbox of the room --this file--> partition
//
// In a cluster, no script reaches both a room's keys and its partition, so the event waits in an
// outbox next to the room. The worker that recorded it moves it before the step counts as done. If
// that worker dies, the one that clears its session moves the rest.

import { PARTITIONS, partitionOf } from '../../webhooks/queue.js';
import { keyOfTag } from '../webhook-reporter.js';
import { Keys } from './keys.js';
import { PartitionKeys } from './partition-keys.js';
import { LUA_FRAMING, readScript } from './scripts.js';

/** Uncommitted events of a partition. Above it, the oldest are dropped and counted. */
const MAX_ENTRIES = 10_000;
/**
 * While a partition or outbox has this many entries, messages are recorded without their payload.
 */
const MAX_PAYLOADS = 1000;
/** Events moved in one step. */
const MOVED = 100;

/**
 * The scripts and commands that are used here.
 * @typedef {{defineCommand: (name: string, script: {numberOfKeys?: number, lua: string}) => void,
 *   webhooksOccupancy: (...args: (string|Buffer)[]) => Promise<[waiting: number, earlyMs: number]>,
 *   webhooksEvents: (...args: (string|number)[]) => Promise<number>,
 *   webhooksAppend: (...args: (string|Buffer)[]) => Promise<number>,
 *   webhooksOutbox: (...args: (string|Buffer)[]) => Promise<number>,
 *   smembers: (key: string) => Promise<string[]>,
 *   lrangeBuffer: (key: string, start: number, end: number) => Promise<Buffer[]>,
 *   exists: (key: string) => Promise<number>,
 *   hincrby: (key: string, field: string, by: number) => Promise<number>}} Client
 */

export class RedisRecording {
  /**
   * @param {object} parts @param {{readonly isWritable: boolean, redis: unknown}} parts.connection
   * @param {string} parts.prefix of keys @param {boolean} parts.isSharded a cluster
   * @param {import('../webhook-reporter.js').Covers} parts.covers
   * @param {(room: string) => boolean} [parts.counts] @param {number} [parts.maxEntries] of a
   *   partition
   */
  constructor(parts) {
    const { connection, prefix, isSharded, covers, maxEntries = MAX_ENTRIES } = parts;
    this.counts = parts.counts ?? (() => false);
    this.connection = connection;
    this.isSharded = isSharded;
    this.covers = covers;
    this.keys = new PartitionKeys(prefix);
    this.brokerKeys = new Keys(prefix);
    /** Prefix of scripts that record. */
    this.lua = [
      `local IS_SHARDED, MAX_ENTRIES, MAX_PAYLOADS = ${isSharded}, ${maxEntries}, ${MAX_PAYLOADS}\n`,
      readScript('record'),
    ].join('');
    this.redis = /** @type {Client} */ (connection.redis);
    this.redis.defineCommand('webhooksEvents', { lua: this.lua + readScript('events') });
    this.redis.defineCommand('webhooksAppend', {
      numberOfKeys: 3,
      lua: this.lua + readScript('append'),
    });
    this.redis.defineCommand('webhooksOccupancy', {
      numberOfKeys: 5,
      lua: this.lua + LUA_FRAMING + readScript('occupancy'),
    });
    this.redis.defineCommand('webhooksOutbox', { numberOfKeys: 1, lua: readScript('outbox') });
  }

  /** @param {string} tag */
  partitionOf(tag) {
    return partitionOf(keyOfTag(tag));
  }

  /**
   * @param {string} room @param {import('../webhook-reporter.js').RecordedMessage[]} messages
   * @returns {Promise<number>} how many events wait in the room's outbox, for `move`
   */
  async recordMessages(room, messages) {
    this.#check();
    const keys = this.keysOf(room);
    const events = messages.flatMap((message) => {
      const { type, mark, fields } = message;
      const isOnce = message.idempotencyKey !== undefined;
      return [type, mark, fields, isOnce ? keys.push(this.#onceOf(room, message)) : ''];
    });
    return this.redis.webhooksEvents(keys.length, ...keys, ...events);
  }

  /** @param {number} partition @param {number} count events lost before they were recorded */
  async countLost(partition, count) {
    this.#check();
    await this.redis.hincrby(this.keys.ofPartition(partition, 'state'), 'lost', count);
  }

  /** Some events of all partitions are lost, and nobody knows which. */
  async loseSome() {
    await Promise.all(
      Array.from({ length: PARTITIONS }, (_, partition) => this.countLost(partition, 1)),
    );
  }

  /** Those with a session. @param {readonly string[]} tags */
  async occupied(tags) {
    this.#check();
    const exist = await Promise.all(
      tags.map((tag) => this.redis.exists(this.keys.partitionKey(tag, 'sessions'))),
    );
    return tags.filter((_, i) => exist[i] === 1);
  }

  /**
   * @param {string} room
   * @param {import('../webhook-reporter.js').RecordedMessage} message with a key
   */
  #onceOf(room, { idempotencyKey = '', isNumbered = false }) {
    const { brokerKeys } = this;
    return isNumbered
      ? brokerKeys.idempotencyOf(room, idempotencyKey)
      : brokerKeys.onceOf(room, idempotencyKey);
  }

  #check() {
    if (!this.connection.isWritable) throw new Error('Redis is unavailable');
  }

  /** Sequence, out and state, as in record.lua. @param {string} tag */
  keysOf(tag) {
    const sequence = this.keys.partitionKey(tag, 'sequence');
    if (this.isSharded) return [sequence, this.keys.partitionKey(tag, 'outbox'), sequence];
    const partition = this.partitionOf(tag);
    return [
      sequence,
      this.keys.ofPartition(partition, 'stream'),
      this.keys.ofPartition(partition, 'state'),
    ];
  }

  /** @param {string} room */
  coversMembers(room) {
    return this.covers('member.joined', room) || this.covers('member.left', room);
  }

  /**
   * Moves a room's outbox into its partition. Rejects if that is impossible now.
   * @param {string} tag @param {number} waiting as the script that recorded answered
   */
  async move(tag, waiting) {
    const outbox = this.keys.partitionKey(tag, 'outbox');
    const partition = this.partitionOf(tag);
    for (let left = waiting; left > 0; ) {
      const entries = (await this.redis.lrangeBuffer(outbox, 0, MOVED - 1)).map(entryOf);
      const last = entries.at(-1);
      if (last === undefined) return;
      await this.redis.webhooksAppend(
        this.keys.ofPartition(partition, 'stream'),
        this.keys.ofPartition(partition, 'state'),
        this.keys.movedOf(partition, tag),
        ...entries.flatMap(({ epoch, seq, body }) => [epoch, seq, body]),
      );
      left = await this.redis.webhooksOutbox(outbox, last.epoch, last.seq, String(MOVED));
    }
  }
}

/** @param {Buffer} entry of an outbox: `epoch:seq:body` */
function entryOf(entry) {
  const [head, epoch, seq] = /** @type {RegExpExecArray} */ (
    /^(\d+):(\d+):/.exec(entry.toString('latin1', 0, 48))
  );
  return { epoch, seq, body: entry.subarray(head.length) };
}
