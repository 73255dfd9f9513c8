// identity.js: compares the servers of both connections, and notices when a server changes its
// data.
// - An address may lead to another server than before (DNS, a proxy, a failover), while older
//   connections stay with the old one. Publishes would then reach no reader. So the `run_id` of
//   both connections is compared when one of them is ready (`isSplit`). A subscriber at a replica
//   counts as one at the primary whose probes it has passed on.
// - While a connection lives, a primary may become a replica and a primary again, with the data of
//   another server. Its `master_replid` changes then. The worker asks for it every `intervalMs`,
//   and reconnects if it has changed: a new connection asks for the fence of histories again.
// - `master_replid` also changes when a primary's first replica attaches, and an hour after its
//   last one has left (`repl-backlog-ttl`). Nothing is lost then, and the former ID is forgotten,
//   whereas a promoted replica remembers it as `master_replid2`. So a change without a
//   `master_replid2`, noticed within MAX_BLIND_MS after the last check, is no promotion, and
//   histories continue (`onMoved`).
// - A replica delivers a PUBLISH only to its own subscribers: probes come back, but servers on the
//   primary hear nothing. So the worker leaves a replica.
//
// `INFO` of one section costs Redis some 10 us. If the ACL user may not use it, nothing is
// compared.

import { ReplyError } from 'ioredis';

/**
 * The worker asks up to this part of the interval earlier if a probe leaves now. The probe has the
 * same interval, so both leave together from then on: each wake-up costs some 80 us.
 */
const TOGETHER = 14 / 15;
const MAX_BLIND_MS = 5000;
const NO_REPLICATION_ID = /^0+$/;

/**
 * @typedef {Pick<import('./connection.js').RedisConnection, 'isWritable'|'destroy'|'redis'>}
 *   Connection
 */

export class RedisIdentity {
  /**
   * @param {object} parts @param {Connection} parts.commands
   * @param {() => number} parts.intervalMs between two questions
   * @param {boolean} parts.isFenced a change of the replication ID ends histories
   * @param {() => void} parts.onUpdate `isSplit` or `isPrimary` may have changed
   * @param {(server: string, former: string, replicationId: string) => void} parts.onMoved the
   *   replication ID has changed without a loss of data
   */
  constructor({ commands, intervalMs, isFenced, onUpdate, onMoved }) {
    this.commands = commands;
    this.intervalMs = intervalMs;
    /** @type {Connection|null} */
    this.subscriber = null;
    this.isFenced = isFenced;
    this.onUpdate = onUpdate;
    this.onMoved = onMoved;
    /** The `run_id` of each server; empty if not known. */
    this.runIds = { commands: '', subscriber: '' };
    /** The id of the server of `commands`; empty if not known. */
    this.replicationId = '';
    /** The replication offset at the last answered check. */
    this.offset = 0;
    this.seenAt = 0;
    /** On the live clock. */
    this.askedMs = 0;
    this.isAsking = false;
    /** The server of `commands` has not said that it is a replica. */
    this.isPrimary = false;
  }

  get isSplit() {
    const { commands, subscriber } = this.runIds;
    return commands !== '' && subscriber !== '' && commands !== subscriber;
  }

  /** @param {number} nowMs on the live clock */
  commandsOnReady(nowMs) {
    this.replicationId = '';
    this.isAsking = this.isPrimary = false;
    this.#ask(nowMs);
    this.#identify('commands');
  }

  /** @param {Connection} subscriber */
  subscriberOnReady(subscriber) {
    this.subscriber = subscriber;
    this.#identify('subscriber');
  }

  /** The subscriber hears, through a replica, what the server of `commands` publishes. */
  subscriberOnProven() {
    this.runIds.subscriber = this.runIds.commands;
  }

  /** When it asks next; on the live clock. */
  get dueMs() {
    return this.commands.isWritable ? this.askedMs + this.intervalMs() : Number.POSITIVE_INFINITY;
  }

  /** @param {number} nowMs on the live clock @param {boolean} [isProbing] a probe leaves now */
  tick(nowMs, isProbing = false) {
    const isDue = nowMs >= this.dueMs - (isProbing ? TOGETHER * this.intervalMs() : 0);
    if (isDue && !this.isAsking && this.commands.isWritable) this.#ask(nowMs);
  }

  /** @param {'commands'|'subscriber'} role */
  async #identify(role) {
    this.runIds[role] = '';
    const connection = /** @type {Connection} */ (this[role]);
    const { stream } = connection.redis;
    const server = await info(connection, 'server');
    if (server === null || connection !== this[role] || connection.redis.stream !== stream) return;
    this.runIds[role] = server.get('run_id') ?? '';
    this.onUpdate();
  }

  /** @param {number} nowMs on the live clock */
  async #ask(nowMs) {
    this.askedMs = nowMs;
    this.isAsking = true;
    const { redis } = this.commands;
    const { stream } = redis;
    const replication = await info(this.commands, 'replication');
    if (redis.stream !== stream) return; // the next connection has asked
    this.isAsking = false;
    // It may be a replica. The next tick that is due asks again.
    if (replication === null) return;
    if (replication.get('role') === 'slave') {
      this.commands.destroy('Redis is a replica: its publications reach no other server');
      return;
    }
    if (!this.isPrimary) {
      this.isPrimary = true;
      this.onUpdate();
    }
    if (!this.isFenced) return;
    const replicationId = replication.get('master_replid') ?? '';
    if (replicationId === '') return;
    const former = this.replicationId;
    const offset = Number(replication.get('master_repl_offset'));
    if (former !== '' && former !== replicationId) {
      const isContinued =
        NO_REPLICATION_ID.test(replication.get('master_replid2') ?? '') &&
        offset >= this.offset &&
        performance.now() - this.seenAt < MAX_BLIND_MS;
      if (!isContinued || this.runIds.commands === '') {
        this.commands.destroy('the replication history of Redis has changed');
        return;
      }
      this.onMoved(this.runIds.commands, former, replicationId);
    }
    this.replicationId = replicationId;
    this.offset = offset;
    this.seenAt = performance.now();
  }
}

/**
 * @param {Connection} connection @param {'server'|'replication'} section
 * @returns {Promise<Map<string, string>|null>} empty if it is not permitted; null without an answer:
 *   the connection is lost, which its owner notices, or the answer is late. After a stall of this
 *   process, it counts as late although it has arrived
 */
async function info({ redis }, section) {
  /** @type {Map<string, string>} */
  const fields = new Map();
  try {
    const text = await redis.info(section);
    for (const [, name, value] of text.matchAll(/^(\w+):(.*?)\r?$/gm)) fields.set(name, value);
  } catch (error) {
    if (!(error instanceof ReplyError)) return null;
  }
  return fields;
}
