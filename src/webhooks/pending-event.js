// pending-event.js: an event that an endpoint has yet to hear.
//
// Until an endpoint has heard of a transition, the opposite transition cancels it, and a later one
// replaces an earlier one. So the number of rooms and users in motion bounds what waits, not the
// traffic. Each published message is a pending event, too.

import { keyOf } from './queue.js';
import { isEvent } from './recorded-event.js';

/** @import { Sendable } from './message.js' */
/** @typedef {'room'|'member'|'user'|'count'|'message'|'gap'} Kind */

/**
 * The partition of a pending event, which partition.js implements.
 * @typedef {object} EventPartition
 * @property {number} index @property {(pending: PendingEvent) => boolean} has is it still pending?
 * @property {(pending: PendingEvent) => void} store its state has changed
 * @property {(pending: PendingEvent) => void} forget it is dropped or cancelled
 * @property {(pending: PendingEvent) => void} delivered the endpoint accepted it
 * @property {(pending: PendingEvent) => Promise<boolean>} approve may it be sent? Marks it as
 *   uncertain, and resolves when that is stored; false: the partition has another owner, or the
 *   event no longer waits
 * @property {(endpoint: EventEndpoint, count: number) => void} announceGap adds to the gap event
 */

/**
 * The endpoint of a pending event, which endpoint.js implements.
 * @typedef {object} EventEndpoint
 * @property {string} name
 * @property {(pending: PendingEvent) => void} cancel the opposite event came before it was sent
 * @property {(pending: PendingEvent) => void} add
 * @property {(pending: PendingEvent) => void} remove it is delivered, cancelled, replaced or
 *   dropped
 * @property {(pending: PendingEvent) => boolean} isSending is its answer awaited?
 * @property {() => void} pump sends what may be sent now
 */

/** @type {Readonly<Record<string, Kind>>} */
const KINDS = Object.freeze({
  'room.occupied': 'room',
  'room.vacated': 'room',
  'member.joined': 'member',
  'member.left': 'member',
  'user.connected': 'user',
  'user.disconnected': 'user',
  'room.counted': 'count',
  'message.published': 'message',
  'client.event': 'message',
  'cache.missed': 'message',
  'webhook.gap': 'gap',
});

const LEAVES = new Set(['room.vacated', 'member.left', 'user.disconnected']);

export class PendingEvent {
  /**
   * @param {object} parts @param {EventPartition} parts.partition
   * @param {EventEndpoint} parts.endpoint @param {Sendable} parts.event
   * @param {number} parts.dueMs when it may be sent, by the courier's clock
   */
  constructor({ partition, endpoint, event, dueMs }) {
    this.partition = partition;
    this.endpoint = endpoint;
    this.event = event;
    this.dueMs = dueMs;
    this.kind = KINDS[event.type];
    this.key = pendingKeyOf(endpoint.name, event);
    /**
     * Does the endpoint certainly know the opposite state, so that the opposite event cancels this
     * one? False from the first attempt on.
     */
    this.isCertain = true;
    /** Failed attempts. */
    this.attempts = 0;
    /** After several failures, the other events of its room no longer wait for it. */
    this.isUnordered = false;
    /** Attempts without an answer. */
    this.suspicions = 0;
    /** Requests that the endpoint had accepted by the last of these. @type {number|null} */
    this.deliveredBefore = null;
  }

  /** A transition without an attempt. */
  get isNew() {
    return this.isCertain && this.kind !== 'message' && this.kind !== 'gap';
  }

  get isLeave() {
    return LEAVES.has(this.event.type);
  }

  /** A leave that a return may still cancel. */
  get mayReturn() {
    return this.attempts === 0 && this.isLeave;
  }

  /** @param {number} dueMs of the next attempt */
  postpone(dueMs) {
    this.dueMs = dueMs;
  }

  /** The endpoint may know: an attempt begins, or it reads the state again. */
  becomeUncertain() {
    this.isCertain = false;
  }

  /** An attempt failed because of this event. @param {number} dueMs */
  fail(dueMs) {
    this.attempts++;
    this.dueMs = dueMs;
  }

  leaveOrder() {
    this.isUnordered = true;
  }

  /** An attempt had no answer. @param {number} delivered requests that the endpoint accepted */
  suspect(delivered) {
    this.suspicions++;
    this.deliveredBefore = delivered;
  }

  /** @param {PendingEvent} before with the same key, which this one replaces */
  succeed(before) {
    this.isCertain = before.isCertain;
  }

  /** @param {Sendable} event earlier, with the same key, which the endpoint accepted */
  knows(event) {
    this.isCertain = this.isOpposite(event);
  }

  /** Events with the same key are sent one after the other. */
  get queueKey() {
    if (this.isUnordered) return `unordered ${this.key}`;
    if (this.kind === 'gap') return `gap ${this.partition.index}`;
    return `${this.kind === 'message' ? 'messages' : 'states'} ${keyOf(this.event)}`;
  }

  /** @param {Sendable} event later, with the same key */
  isOpposite(event) {
    return this.kind !== 'gap' && this.event.type !== event.type;
  }

  /** @param {PendingEvent} other with the same key */
  isSame({ event: { epoch, seq } }) {
    return this.event.epoch === epoch && this.event.seq === seq;
  }

  /** Was the event recorded before this one, or is it the same? @param {Sendable} event */
  isNewerThan(event) {
    return this.event.epoch === event.epoch && this.event.seq >= event.seq;
  }

  /**
   * The text for the queue. Other versions read it.
   * @param {number} delayMs until the next attempt
   */
  toText(delayMs) {
    const { event, isCertain: certain, attempts, isUnordered: isAside } = this;
    const retryAt = attempts === 0 ? undefined : Date.now() + Math.round(delayMs);
    return JSON.stringify({ event, certain, attempts, isAside, retryAt });
  }

  /** @param {Stored} stored */
  restore({ certain, attempts, isAside }) {
    this.isCertain = certain;
    this.attempts = attempts;
    this.isUnordered = isAside;
  }
}

/**
 * A pending event as the queue stores it (`toText`).
 * @typedef {object} Stored
 * @property {import('./queue.js').WebhookEvent} event @property {boolean} certain
 * @property {number} attempts @property {boolean} isAside `isUnordered`
 * @property {number} retryAt Unix time in ms; 0: no attempt has failed
 */

/** @param {string} text @returns {Stored|null} null: malformed */
export function readStored(text) {
  let stored;
  try {
    stored = JSON.parse(text);
  } catch {
    return null;
  }
  const { event, certain, attempts = 0, isAside = false, retryAt = 0 } = stored ?? {};
  return isEvent(event) ? { event, certain: certain === true, attempts, isAside, retryAt } : null;
}

/** @param {string} endpoint @param {Sendable} event @returns {string} its name in its partition */
export function pendingKeyOf(endpoint, event) {
  const { type, room, user, epoch, seq } = event;
  const kind = KINDS[type];
  const parts = kind === 'message' ? [room, epoch, seq] : kind === 'gap' ? [] : [room, user];
  return JSON.stringify([endpoint, kind, ...parts.map((part) => part ?? '')]);
}

/** @param {string} key @returns {string} the endpoint's name; '' if the key is malformed */
export function endpointOf(key) {
  try {
    const parts = JSON.parse(key);
    return Array.isArray(parts) ? String(parts[0]) : '';
  } catch {
    return '';
  }
}
