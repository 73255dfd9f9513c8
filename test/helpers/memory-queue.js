// memory-queue.js: a queue of webhook events in memory, for tests of the delivery.

import { keyOf, LANES, LEASE_MS, laneOf } from '../../src/webhooks/queue.js';

/** @typedef {import('../../src/webhooks/queue.js').EventQueue} EventQueue */
/** @typedef {import('../../src/webhooks/queue.js').WebhookEvent} WebhookEvent */

/** Each object made by `connect` is one courier's view. */
export class MemoryQueue {
  constructor() {
    this.lanes = Array.from({ length: LANES }, () => ({
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
    this.heldUntil = 0;
    this.doubtUntil = 0;
    /** While it is set, every call rejects. */
    this.isDown = false;
  }

  /** @param {Partial<WebhookEvent> & {type: WebhookEvent['type']}} event @returns {WebhookEvent} */
  record(event) {
    const key = keyOf(event);
    const seq = (this.sequences.get(key) ?? 0) + 1;
    this.sequences.set(key, seq);
    const whole = { seq, epoch: 'e1', at: Date.now(), ...event };
    this.lanes[laneOf(key)].entries.push({
      id: String(++this.nextId).padStart(9, '0'),
      body: JSON.stringify(whole),
    });
    return whole;
  }

  /** All effects that are stored. */
  get pending() {
    return this.lanes.reduce((sum, { pending }) => sum + pending.size, 0);
  }

  /** @returns {EventQueue} */
  connect() {
    const { lanes } = this;
    const call = async () => {
      if (this.isDown) throw new Error('unreachable');
    };
    return {
      acquire: async (index) => {
        await call();
        const lane = lanes[index];
        if (Date.now() < lane.leaseEnd) return null;
        lane.leaseEnd = Date.now() + LEASE_MS;
        return ++lane.fence;
      },
      renew: async (index, fence) => {
        await call();
        if (lanes[index].fence !== fence) return false;
        lanes[index].leaseEnd = Date.now() + LEASE_MS;
        return true;
      },
      release: async (index, fence) => {
        await call();
        if (lanes[index].fence === fence) lanes[index].leaseEnd = 0;
      },
      load: async (index) => {
        await call();
        return new Map(lanes[index].pending);
      },
      read: async (index, afterId, limit) => {
        await call();
        const all = lanes[index].entries;
        return all.filter(({ id }) => afterId === null || id > afterId).slice(0, limit);
      },
      commit: async (index, fence, { set, remove, upTo, announced = null }) => {
        await call();
        const lane = lanes[index];
        if (lane.fence !== fence) return false;
        this.commits++;
        if (announced !== null) {
          lane.announced = announced;
          lane.isUnknown = false;
        }
        for (const [field, text] of set) lane.pending.set(field, text);
        for (const field of remove) lane.pending.delete(field);
        if (upTo !== null) lane.entries = lane.entries.filter(({ id }) => id > upTo);
        return true;
      },
      lost: async (index) => {
        await call();
        const { lost, announced, isUnknown } = lanes[index];
        return { count: lost - announced, upTo: lost, ...(isUnknown && { isUnknown }) };
      },
      hold: async (ms) => {
        await call();
        this.heldUntil = Math.max(this.heldUntil, Date.now() + ms);
      },
      doubt: async (ms) => {
        await call();
        this.doubtUntil = Date.now() + ms;
      },
      held: async () => {
        await call();
        const now = Date.now();
        return {
          leavesMs: Math.max(0, this.heldUntil - now),
          doubtMs: Math.max(0, this.doubtUntil - now),
        };
      },
      size: async () => {
        await call();
        const entries = lanes.reduce((sum, lane) => sum + lane.entries.length, 0);
        return { entries, pending: this.pending, bytes: 0 };
      },
    };
  }
}
