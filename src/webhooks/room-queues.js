// room-queues.js: the order in which one endpoint gets its events.
//   add --> queue of its room --due--> ready --take--> in flight --finish--> removed, or due again
//
// A room's states are sent one after the other, and so are its messages. Rooms do not wait for each
// other. An event that left its order has a queue of its own.

import { pendingKeyOf } from './pending-event.js';

/** Events in one request. */
const MAX_BATCH = 100;

/** @import { Form } from './message.js' */
/** @import { PendingEvent } from './pending-event.js' */

/** Events that are sent in order. */
class RoomQueue {
  /** @param {string} key @param {boolean} areLeavesApart nothing waits for a leave's grace */
  constructor(key, areLeavesApart) {
    this.key = key;
    /** @type {Map<string, PendingEvent>} */
    this.events = new Map();
    /** Leaves that may still be in their grace period. */
    this.leaves = areLeavesApart
      ? /** @type {Map<string, PendingEvent>} */ (new Map())
      : this.events;
    /** @type {Set<PendingEvent>} */
    this.inFlight = new Set();
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
  }

  /** @param {PendingEvent} pending */
  listOf(pending) {
    return pending.isLeave ? this.leaves : this.events;
  }
}

export class RoomQueues {
  /** @type {Map<string, RoomQueue>} */
  #queues = new Map();
  /** Queues whose first event is due, longest due first. @type {Set<RoomQueue>} */
  #ready = new Set();

  /**
   * @param {object} parts @param {Form} parts.form @param {number} parts.maxAgeS
   * @param {() => number} parts.leavesPausedUntilMs until then, clients of a draining worker may
   *   return
   * @param {() => number} parts.now ascending, in ms @param {() => void} parts.onReady
   */
  constructor({ form, maxAgeS, leavesPausedUntilMs, now, onReady }) {
    this.form = form;
    this.maxAgeS = maxAgeS;
    this.leavesPausedUntilMs = leavesPausedUntilMs;
    this.now = now;
    this.onReady = onReady;
  }

  get hasReady() {
    return this.#ready.size > 0;
  }

  close() {
    for (const { timer } of this.#queues.values()) clearTimeout(timer);
    this.#queues.clear();
    this.#ready.clear();
  }

  /** @param {PendingEvent} pending */
  add(pending) {
    const key = pending.queueKey;
    let queue = this.#queues.get(key);
    if (queue === undefined)
      this.#queues.set(key, (queue = new RoomQueue(key, this.form.entersAtOnce)));
    const list = queue.listOf(pending);
    list.set(pending.key, pending);
    if (this.form.entersAtOnce) putInOrder(list, pending);
    if (list.size === 1) this.#schedule(queue);
  }

  /** @param {PendingEvent} pending */
  remove(pending) {
    const queue = this.#queues.get(pending.queueKey);
    const list = queue?.listOf(pending);
    if (queue === undefined || list?.get(pending.key) !== pending) return;
    list.delete(pending.key);
    this.#schedule(queue);
  }

  /** Lets the other events of its room pass. @param {PendingEvent} pending */
  moveApart(pending) {
    this.#queues.get(pending.queueKey)?.listOf(pending).delete(pending.key);
    pending.leaveOrder();
    this.add(pending);
  }

  /** Is its answer awaited? @param {PendingEvent} pending */
  isSending(pending) {
    return this.#queues.get(pending.queueKey)?.inFlight.has(pending) ?? false;
  }

  /** The queue of this event, if it is ready. @param {PendingEvent} pending */
  readyOf(pending) {
    const queue = this.#queues.get(pending.queueKey);
    return queue !== undefined && this.#ready.has(queue) ? queue : undefined;
  }

  /** @param {boolean} isTrial prefers events that have not failed often */
  nextReady(isTrial) {
    if (isTrial)
      for (const queue of this.#ready) if (!this.firstOf(queue)?.isUnordered) return queue;
    return this.#ready.values().next().value;
  }

  /**
   * Takes the events of the next request: one, or all that are due. An event that left its order
   * goes alone, because it may be why its batch failed.
   * @param {RoomQueue} first
   */
  takeDue(first) {
    const isUnordered = (/** @type {RoomQueue} */ queue) =>
      this.firstOf(queue)?.isUnordered ?? false;
    const isAlone = this.form.batchMs === 0 || isUnordered(first);
    const taken = [];
    for (const queue of isAlone ? [first] : this.#ready) {
      if (!isAlone && isUnordered(queue)) continue;
      this.#ready.delete(queue);
      for (const pending of isAlone ? [this.firstOf(queue)] : this.#dueOf(queue)) {
        if (pending === undefined) break;
        queue.inFlight.add(pending);
        if (taken.push(pending) === MAX_BATCH) return taken;
      }
    }
    return taken;
  }

  /**
   * Ends an attempt.
   * @param {readonly PendingEvent[]} all that `takeDue` returned
   * @param {() => void} judge may remove them or move them apart
   */
  finishEvents(all, judge) {
    const queues = all.map((pending) => this.#queues.get(pending.queueKey));
    all.forEach((pending, i) => {
      queues[i]?.inFlight.delete(pending);
    });
    judge();
    for (const queue of new Set(queues)) if (queue !== undefined) this.#schedule(queue);
  }

  /** @param {RoomQueue} queue @returns {PendingEvent|undefined} */
  firstOf({ events, leaves }) {
    const pending = events.values().next().value;
    if (leaves === events) return pending;
    const leave = leaves.values().next().value;
    if (pending === undefined || leave === undefined) return pending ?? leave;
    return this.#dueMs(leave) < this.#dueMs(pending) ? leave : pending;
  }

  /** Is it due? If a pause began meanwhile, it waits again. @param {RoomQueue} queue ready */
  isStillDue(queue) {
    const first = this.firstOf(queue);
    if (first === undefined || this.#dueMs(first) <= this.now()) return true;
    this.#schedule(queue);
    return false;
  }

  /** @param {PendingEvent} pending */
  hasExpired({ event, kind }) {
    return kind !== 'gap' && Date.now() - event.at > this.maxAgeS * 1000;
  }

  /** @param {RoomQueue} queue @returns {Iterable<PendingEvent>} what one request may carry */
  *#dueOf({ events, leaves }) {
    for (const list of new Set([events, leaves]))
      for (const pending of list.values()) {
        if (this.#dueMs(pending) > this.now() || this.hasExpired(pending)) break;
        yield pending;
      }
  }

  /** Waits until the first event is due. @param {RoomQueue} queue */
  #schedule(queue) {
    clearTimeout(queue.timer);
    if (queue.inFlight.size > 0) return;
    const first = this.firstOf(queue);
    if (first === undefined) {
      this.#ready.delete(queue);
      this.#queues.delete(queue.key);
      return;
    }
    const waitMs = this.#dueMs(first) - this.now();
    if (waitMs <= 0) this.#ready.add(queue);
    else {
      this.#ready.delete(queue);
      queue.timer = setTimeout(() => {
        this.#ready.add(queue);
        this.onReady();
      }, waitMs);
    }
  }

  /** @param {PendingEvent} pending */
  #dueMs({ dueMs, mayReturn, event }) {
    if (!mayReturn) return dueMs;
    // Drains in a row must not delay an event until it expires.
    const latestMs = this.now() + event.at + this.maxAgeS * 500 - Date.now();
    return Math.max(dueMs, Math.min(this.leavesPausedUntilMs(), latestMs));
  }
}

/**
 * A room is occupied before its members join, and vacated after they leave. Different calls record
 * presence and occupancy, so after a worker died either may come first.
 * @param {Map<string, PendingEvent>} list @param {PendingEvent} pending the last in the list
 */
function putInOrder(list, { kind, isLeave, event, endpoint }) {
  if (list.size === 1 || kind !== (isLeave ? 'member' : 'room')) return;
  const ofRoom = pendingKeyOf(endpoint.name, { ...event, type: 'room.occupied', user: undefined });
  const room = list.get(ofRoom);
  if (room === undefined) return;
  const later = isLeave ? [] : [...list].filter(([key]) => key !== ofRoom);
  list.delete(ofRoom);
  for (const [key] of later) list.delete(key);
  list.set(ofRoom, room);
  for (const [key, one] of later) list.set(key, one);
}
