// memory-queue.js: a queue of webhook events in memory, for tests of the delivery.

import { keyOf, LEASE_MS, PARTITIONS, partitionOf } from '../../src/webhooks/queue.js';

/** @typedef {import('../../src/webhooks/queue.js').EventQueue} EventQueue */
/** @typedef {import('../../src/webhooks/queue.js').WebhookEvent} WebhookEvent */

/** Each object made by `connect` is one courier's view. */
export class MemoryQueue {
  constructor() {
    this.partitions = Array.from({ length: PARTITIONS }, () => ({
      entries: /** @type {{id: string, body: string}[]} */ ([]),
      pending: /** @type {Map<string, string>} */ (new Map()),
      fence: 0,
      leaseEnd: 0,
      lost: 0,
      announced: 0,
      isUnknown: false,
    }));
    this.nextId = 0;
    /** @type {Map<string, number>} */
    this.sequences = new Map();
    /** Commits that were carried out. */
    this.commits = 0;
    this.leavesPausedUntil = 0;
    this.uncertainUntil = 0;
    /** While it is set, every call rejects. */
    this.isDown = false;
  }

  /** @param {Partial<WebhookEvent> & {type: WebhookEvent['type']}} event @returns {WebhookEvent} */
  record(event) {
    const key = keyOf(event);
    const seq = (this.sequences.get(key) ?? 0) + 1;
    this.sequences.set(key, seq);
    const whole = { seq, epoch: 'e1', at: Date.now(), ...event };
    this.partitions[partitionOf(key)].entries.push({
      id: String(++this.nextId).padStart(9, '0'),
      body: JSON.stringify(whole),
    });
    return whole;
  }

  /** All events that are stored. */
  get pending() {
    return this.partitions.reduce((sum, { pending }) => sum + pending.size, 0);
  }

  /** @returns {EventQueue} */
  connect() {
    const { partitions } = this;
    const call = async () => {
      if (this.isDown) throw new Error('unreachable');
    };
    return {
      acquire: async (index) => {
        await call();
        const partition = partitions[index];
        if (Date.now() < partition.leaseEnd) return null;
        partition.leaseEnd = Date.now() + LEASE_MS;
        return ++partition.fence;
      },
      renew: async (index, fence) => {
        await call();
        if (partitions[index].fence !== fence) return false;
        partitions[index].leaseEnd = Date.now() + LEASE_MS;
        return true;
      },
      release: async (index, fence) => {
        await call();
        if (partitions[index].fence === fence) partitions[index].leaseEnd = 0;
      },
      load: async (index) => {
        await call();
        return new Map(partitions[index].pending);
      },
      read: async (index, afterId, limit) => {
        await call();
        const all = partitions[index].entries;
        return all.filter(({ id }) => afterId === null || id > afterId).slice(0, limit);
      },
      commit: async (index, fence, { set, remove, upTo, announced = null }) => {
        await call();
        const partition = partitions[index];
        if (partition.fence !== fence) return false;
        this.commits++;
        if (announced !== null) {
          partition.announced = announced;
          partition.isUnknown = false;
        }
        for (const [field, text] of set) partition.pending.set(field, text);
        for (const field of remove) partition.pending.delete(field);
        if (upTo !== null) partition.entries = partition.entries.filter(({ id }) => id > upTo);
        return true;
      },
      lost: async (index) => {
        await call();
        const { lost, announced, isUnknown } = partitions[index];
        return { count: lost - announced, upTo: lost, ...(isUnknown && { isUnknown }) };
      },
      pauseLeaves: async (ms) => {
        await call();
        this.leavesPausedUntil = Math.max(this.leavesPausedUntil, Date.now() + ms);
      },
      makeUncertain: async (ms) => {
        await call();
        this.uncertainUntil = Date.now() + ms;
      },
      periods: async () => {
        await call();
        const now = Date.now();
        return {
          leavesMs: Math.max(0, this.leavesPausedUntil - now),
          uncertainMs: Math.max(0, this.uncertainUntil - now),
        };
      },
      size: async () => {
        await call();
        const entries = partitions.reduce((sum, partition) => sum + partition.entries.length, 0);
        return { entries, pending: this.pending, bytes: 0 };
      },
    };
  }
}
