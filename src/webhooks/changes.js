// changes.js: the changes of a partition that are not stored yet.
//
// One commit at a time writes all of them, so applied entries leave the partition in the same step
// that stores their pending events.

const RETRY_MS = 500;

/** @import { Lease } from './lease.js' */
/** @import { PendingEvent } from './pending-event.js' */
/** @import { Change, EventQueue } from './queue.js' */
/** @import { QueueHealth } from './queue-health.js' */

/**
 * @typedef {object} Unstored
 * @property {Map<string, PendingEvent|null>} events changed ones by key; null: to be removed
 * @property {string|null} upTo @property {number|null} announced as in Change
 */

/** @returns {Unstored} */
const nothing = () => ({ events: new Map(), upTo: null, announced: null });

export class Changes {
  #unstored = nothing();
  /** @type {Promise<boolean>|null} */
  #committing = null;

  /**
   * @param {object} parts @param {number} parts.index of the partition
   * @param {Pick<EventQueue, 'commit'>} parts.queue @param {Lease} parts.lease
   * @param {Pick<QueueHealth, 'ok'|'queueFailed'>} parts.health @param {() => number} parts.now
   */
  constructor({ index, queue, lease, health, now }) {
    this.index = index;
    this.queue = queue;
    this.lease = lease;
    this.health = health;
    this.now = now;
  }

  /** @param {PendingEvent} pending */
  store(pending) {
    this.#unstored.events.set(pending.key, pending);
  }

  /** @param {string} key */
  remove(key) {
    this.#unstored.events.set(key, null);
  }

  /** @param {string} id of the last entry that was applied */
  applied(id) {
    this.#unstored.upTo = id;
  }

  /** @param {number} upTo lost events up to this number are announced */
  announced(upTo) {
    this.#unstored.announced = upTo;
  }

  /** Forgets all, because the partition has another owner. */
  dropChanges() {
    this.#unstored = nothing();
  }

  /** Writes all changes. @returns {Promise<boolean>} false if the partition has another owner */
  async writeChanges() {
    // The commit under way may lack the caller's change.
    while (this.#committing !== null) await this.#committing;
    const { fence } = this.lease;
    if (fence === null) return false;
    const { events, upTo, announced } = this.#unstored;
    if (events.size === 0 && upTo === null && announced === null) return true;
    this.#committing = this.#commit(fence, this.#taken()).finally(() => {
      this.#committing = null;
    });
    return this.#committing;
  }

  /** @returns {Change} */
  #taken() {
    const { events, upTo, announced } = this.#unstored;
    this.#unstored = nothing();
    const set = new Map();
    const remove = [];
    for (const [key, pending] of events)
      if (pending === null) remove.push(key);
      else set.set(key, pending.toText(pending.dueMs - this.now()));
    return { set, remove, upTo, announced };
  }

  /** @param {number} fence @param {Change} change */
  async #commit(fence, change) {
    while (this.lease.fence === fence) {
      try {
        const isOurs = await this.queue.commit(this.index, fence, change);
        this.health.ok(this.index);
        if (!isOurs) this.lease.lose();
        return isOurs;
      } catch (error) {
        // Redis may have done it. Repeating a commit is harmless.
        this.health.queueFailed(this.index, error);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    return false;
  }
}
