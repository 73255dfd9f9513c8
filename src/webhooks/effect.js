// effect.js: a pending effect: what an endpoint has yet to hear about one room or user.
//
// Until an endpoint has heard of an edge, the opposite edge cancels it, and a later edge replaces
// an earlier one. So the number of rooms and users in motion bounds what waits, not the traffic.
// Each published message is an effect, too.

import { keyOf } from './queue.js';

/** @import { Sendable } from './message.js' */
/** @typedef {'room'|'member'|'user'|'count'|'message'|'gap'} Kind */

/**
 * @typedef {object} EffectLane the lane of an effect, which lane.js implements
 * @property {number} index @property {(effect: Effect) => boolean} has is it still pending?
 * @property {(effect: Effect) => void} store its state has changed
 * @property {(effect: Effect) => void} forget it is dropped or cancelled
 * @property {(effect: Effect) => void} delivered the endpoint accepted it
 * @property {(effect: Effect) => Promise<boolean>} approve may it be sent? Marks it as uncertain, and
 *   resolves when that is stored; false: the lane has another owner, or the effect is gone
 * @property {(endpoint: EffectEndpoint, count: number) => void} announceGap adds to the gap event
 */

/**
 * @typedef {object} EffectEndpoint the endpoint of an effect, which endpoint.js implements
 * @property {string} name
 * @property {(effect: Effect) => void} cancel the opposite event came before it was sent
 * @property {(effect: Effect) => void} add
 * @property {(effect: Effect) => void} remove it is delivered, cancelled, replaced or dropped
 * @property {(effect: Effect) => boolean} isSending is its answer awaited?
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

export class Effect {
  /**
   * @param {object} parts @param {EffectLane} parts.lane @param {EffectEndpoint} parts.endpoint
   * @param {Sendable} parts.event
   * @param {number} parts.dueMs when it may be sent, by the courier's clock
   */
  constructor({ lane, endpoint, event, dueMs }) {
    this.lane = lane;
    this.endpoint = endpoint;
    this.event = event;
    this.dueMs = dueMs;
    this.kind = KINDS[event.type];
    this.field = fieldOf(endpoint.name, event);
    /**
     * Does the endpoint certainly know the opposite state, so that the opposite event cancels this
     * one? False from the first attempt on.
     */
    this.certain = true;
    /** Failed attempts. */
    this.attempts = 0;
    /** After several failures it no longer holds up its room. */
    this.isAside = false;
    /** Attempts without an answer. */
    this.suspicions = 0;
    /** Requests that the endpoint had accepted by the last of these. @type {number|null} */
    this.deliveredBefore = null;
  }

  /** An edge without an attempt. */
  get isNew() {
    return this.certain && this.kind !== 'message' && this.kind !== 'gap';
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
  doubt() {
    this.certain = false;
  }

  /** An attempt failed because of this event. @param {number} dueMs */
  fail(dueMs) {
    this.attempts++;
    this.dueMs = dueMs;
  }

  stepAside() {
    this.isAside = true;
  }

  /** An attempt had no answer. @param {number} delivered requests that the endpoint accepted */
  suspect(delivered) {
    this.suspicions++;
    this.deliveredBefore = delivered;
  }

  /** @param {Effect} before of the same field, which this one replaces */
  succeed(before) {
    this.certain = before.certain;
  }

  /** @param {Sendable} event earlier, of the same field, which the endpoint accepted */
  knows(event) {
    this.certain = this.isOpposite(event);
  }

  /** @param {{certain: boolean, attempts: number, isAside: boolean}} stored */
  restore({ certain, attempts, isAside }) {
    this.certain = certain;
    this.attempts = attempts;
    this.isAside = isAside;
    return this;
  }

  /** Effects with the same order are sent one after the other. */
  get order() {
    if (this.isAside) return `aside ${this.field}`;
    if (this.kind === 'gap') return `gap ${this.lane.index}`;
    return `${this.kind === 'message' ? 'messages' : 'states'} ${keyOf(this.event)}`;
  }

  /** @param {Sendable} event later, of the same field */
  isOpposite(event) {
    return this.kind !== 'gap' && this.event.type !== event.type;
  }

  /** @param {Effect} other of the same field */
  isSame({ event: { epoch, seq } }) {
    return this.event.epoch === epoch && this.event.seq === seq;
  }

  /** Was the event recorded before this one, or is it the same? @param {Sendable} event */
  isNewerThan(event) {
    return this.event.epoch === event.epoch && this.event.seq >= event.seq;
  }

  /** For the queue. @param {number} delayMs until the next attempt */
  toText(delayMs) {
    const { event, certain, attempts, isAside } = this;
    const retryAt = attempts === 0 ? undefined : Date.now() + Math.round(delayMs);
    return JSON.stringify({ event, certain, attempts, isAside, retryAt });
  }
}

/** @param {string} endpoint @param {Sendable} event @returns {string} its name in its lane */
export function fieldOf(endpoint, event) {
  const { type, room, user, epoch, seq } = event;
  const kind = KINDS[type];
  const parts = kind === 'message' ? [room, epoch, seq] : kind === 'gap' ? [] : [room, user];
  return JSON.stringify([endpoint, kind, ...parts.map((part) => part ?? '')]);
}

/** @param {string} field @returns {string} the endpoint's name; '' if the field is malformed */
export function endpointOf(field) {
  try {
    const parts = JSON.parse(field);
    return Array.isArray(parts) ? String(parts[0]) : '';
  } catch {
    return '';
  }
}
