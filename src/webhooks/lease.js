// lease.js: the right of this courier to a partition.
//   begin --renewed every RENEW_MS--> … --> lose: another courier has it, or end: it is released
//
// A fence proves the right to the queue. The lease says how long the courier may rely on it: until
// then no other courier can own the partition.

import { LEASE_MS } from './queue.js';
import { untilNext } from './together.js';

const RENEW_MS = LEASE_MS / 4;
const TAKEN = 'another courier has taken it over, or Redis lost its data';

/** @import { EventQueue } from './queue.js' */
/** @import { QueueHealth } from './queue-health.js' */

export class Lease {
  #endMs = Number.NEGATIVE_INFINITY;
  /** @type {NodeJS.Timeout|undefined} */
  #renewal;
  /** Null: the partition is not owned. @type {number|null} */
  fence = null;

  /**
   * @param {object} parts @param {number} parts.index of the partition
   * @param {Pick<EventQueue, 'renew'>} parts.queue
   * @param {Pick<QueueHealth, 'queueFailed'>} parts.health @param {() => number} parts.now
   * @param {() => void} parts.onRenewed the queue was reached, perhaps in another Redis
   * @param {() => void} parts.onEnded
   * @param {Pick<import('../observability/rare-log.js').RareLog, 'warn'>} parts.log
   */
  constructor({ index, queue, health, now, onRenewed, onEnded, log }) {
    this.index = index;
    this.queue = queue;
    this.health = health;
    this.now = now;
    this.onRenewed = onRenewed;
    this.onEnded = onEnded;
    this.log = log;
  }

  /** May the courier still rely on it? */
  get isValid() {
    return this.now() < this.#endMs;
  }

  /** @param {number} fence @param {number} askedMs when it was asked for */
  begin(fence, askedMs) {
    this.fence = fence;
    this.#endMs = askedMs + LEASE_MS;
    this.#renewLater(fence);
  }

  /** @param {number} fence */
  #renewLater(fence) {
    this.#renewal = setTimeout(
      () => {
        this.#renewLater(fence);
        this.#renew(fence);
      },
      untilNext(RENEW_MS, this.now()),
    );
  }

  /** @param {number} fence */
  async #renew(fence) {
    const askedMs = this.now();
    try {
      const isOurs = await this.queue.renew(this.index, fence);
      if (this.fence !== fence) return;
      if (!isOurs) return this.lose();
      this.#endMs = askedMs + LEASE_MS;
      this.onRenewed();
    } catch (error) {
      this.health.queueFailed(this.index, error);
    }
  }

  /** The fence is out of date. */
  lose() {
    if (this.fence === null) return;
    this.log.warn({ partition: this.index, why: TAKEN }, 'webhooks: lost a partition');
    this.end();
  }

  /** The partition is released, or has another owner. */
  end() {
    if (this.fence === null) return;
    this.fence = null;
    this.#endMs = Number.NEGATIVE_INFINITY;
    clearTimeout(this.#renewal);
    this.onEnded();
  }
}
