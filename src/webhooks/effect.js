// effect.js: one pending effect: what an endpoint has still to hear about one thing.
//
// State events are states. As long as an endpoint has not heard of an edge, the opposite edge
// cancels it, and a later one replaces an earlier one: what waits is bounded by the rooms and users
// in motion, not by traffic. A published message is an effect of its own.

import { keyOf } from './queue.js';

/** @import { Sendable } from './message.js' */
/** @typedef {'room'|'member'|'user'|'count'|'message'|'gap'} Kind */

/**
 * @typedef {object} EffectLane the lane of an effect: lane.js
 * @property {number} index @property {(effect: Effect) => boolean} has does it still wait?
 * @property {(effect: Effect) => void} store its state has changed
 * @property {(effect: Effect) => void} forget it is dropped or cancelled
 * @property {(effect: Effect) => void} delivered the endpoint has it
 * @property {(effect: Effect) => Promise<boolean>} approve may it be sent? Marks it as uncertain, and
 *   resolves when that is stored; with false if the lane has another owner, or the effect is gone
 * @property {(endpoint: EffectEndpoint, count: number) => void} announceGap tells the endpoint that
 *   events are missing
 */

/**
 * @typedef {object} EffectEndpoint the endpoint of an effect: endpoint.js
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
   * @param {number} parts.dueMs when it may be sent, in the courier's time
   */
  constructor({ lane, endpoint, event, dueMs }) {
    this.lane = lane;
    this.endpoint = endpoint;
    this.event = event;
    this.dueMs = dueMs;
    this.kind = KINDS[event.type];
    this.field = fieldOf(endpoint.name, event);
    /**
     * The endpoint has certainly not heard of it, and knows the opposite state: the opposite event
     * cancels it. False from its first attempt on.
     */
    this.certain = true;
    /** Attempts that failed, for the schedule. */
    this.attempts = 0;
    /** It has failed too often to hold up its room. */
    this.isAside = false;
    /** Attempts without an answer. */
    this.suspicions = 0;
    /** What the endpoint had got at the last of these. @type {number|null} */
    this.deliveredBefore = null;
  }

  /** An edge that nobody has tried to send. */
  get isNew() {
    return this.certain && this.kind !== 'message' && this.kind !== 'gap';
  }

  get isLeave() {
    return LEAVES.has(this.event.type);
  }

  /** The same, and it may still be cancelled by a return. */
  get mayReturn() {
    return this.attempts === 0 && this.isLeave;
  }

  /** @param {number} dueMs of the next attempt */
  postpone(dueMs) {
    this.dueMs = dueMs;
  }

  /** The endpoint may know of it: an attempt begins, or it reads the state again. */
  doubt() {
    this.certain = false;
  }

  /** An attempt has failed, and not for the endpoint as a whole. @param {number} dueMs */
  fail(dueMs) {
    this.attempts++;
    this.dueMs = dueMs;
  }

  stepAside() {
    this.isAside = true;
  }

  /** An attempt had no answer. @param {number} delivered requests that the endpoint has got */
  suspect(delivered) {
    this.suspicions++;
    this.deliveredBefore = delivered;
  }

  /** It replaces another effect of its field. @param {Effect} before */
  succeed(before) {
    this.certain = before.certain;
  }

  /** The endpoint has heard of an earlier event of the field. @param {Sendable} event */
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

  /** A later event of the same field. @param {Sendable} event @returns {boolean} */
  isOpposite(event) {
    return this.kind !== 'gap' && this.event.type !== event.type;
  }

  /** @param {Effect} other of the same field */
  isSame({ event: { epoch, seq } }) {
    return this.event.epoch === epoch && this.event.seq === seq;
  }

  /** Recorded twice, or before this one? @param {Sendable} event */
  isNewerThan(event) {
    return this.event.epoch === event.epoch && this.event.seq >= event.seq;
  }

  /** @param {number} delayMs from now to its next attempt @returns {string} for the queue */
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

/** @param {string} field @returns {string} the endpoint's name; '' if the field is none of ours */
export function endpointOf(field) {
  try {
    const parts = JSON.parse(field);
    return Array.isArray(parts) ? String(parts[0]) : '';
  } catch {
    return '';
  }
}
