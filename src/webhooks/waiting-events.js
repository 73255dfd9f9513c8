// waiting-events.js: all events that wait for one endpoint, by kind, each kind with its bound.

/** Waiting states of one endpoint, about 50 MB. */
const MAX_STATES = 100_000;

/** @import { PendingEvent } from './pending-event.js' */
/** @typedef {Map<string, PendingEvent>} Events */

/** Events by key, in the order of arrival: a partition that is taken over brings older ones. */
export class WaitingEvents {
  states = /** @type {Events} */ (new Map());
  messages = /** @type {Events} */ (new Map());
  /** Gap events are sent before all others. */
  gaps = /** @type {Events} */ (new Map());

  /** @param {number} maxMessages */
  constructor(maxMessages) {
    this.maxMessages = maxMessages;
  }

  get size() {
    return this.states.size + this.messages.size + this.gaps.size;
  }

  /** @param {PendingEvent} pending with a key that does not wait yet */
  add(pending) {
    this.#allOf(pending).set(pending.key, pending);
  }

  /** @param {PendingEvent} pending */
  delete(pending) {
    const all = this.#allOf(pending);
    if (all.get(pending.key) === pending) all.delete(pending.key);
  }

  /**
   * Events of the same kind, the oldest first, if there are too many.
   * @param {PendingEvent} added
   */
  overflowOf(added) {
    const all = this.#allOf(added);
    const max = added.kind === 'message' ? this.maxMessages : MAX_STATES;
    return all.size > max ? all.values() : [];
  }

  /** @returns {PendingEvent[]} states and messages */
  listEvents() {
    return [...this.states.values(), ...this.messages.values()];
  }

  /** @param {number} unixMs @returns {number} age of the oldest state or message, in seconds */
  oldestSeconds(unixMs) {
    let at = unixMs;
    for (const map of [this.states, this.messages])
      for (const { event } of map.values()) at = Math.min(at, event.at);
    return (unixMs - at) / 1000;
  }

  /** @param {PendingEvent} pending */
  #allOf({ kind }) {
    return kind === 'message' ? this.messages : kind === 'gap' ? this.gaps : this.states;
  }
}
