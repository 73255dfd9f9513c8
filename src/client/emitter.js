// emitter.js: events for browsers and Node.

import { checkEvent } from './advice.js';

/** @template {Record<keyof Events, any[]>} Events listeners' arguments, by event name */
export class Emitter {
  /** @type {Map<keyof Events, Set<Function>>} */
  #listeners = new Map();

  /**
   * @template {keyof Events} Name
   * @param {Name} event @param {(...args: Events[Name]) => void} listener
   * @returns {() => void} removes the listener
   */
  on(event, listener) {
    if (!(/** @type {any} */ (globalThis).FANFARE_BRIEF)) checkEvent(event);
    const listeners = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, listeners.add(listener));
    return () => this.off(event, listener);
  }

  /**
   * @template {keyof Events} Name
   * @param {Name} event @param {(...args: Events[Name]) => void} listener
   */
  off(event, listener) {
    this.#listeners.get(event)?.delete(listener);
  }

  /**
   * Calls all listeners, even if one throws. Its error is reported as uncaught.
   * @template {keyof Events} Name @param {Name} event @param {Events[Name]} args
   * @returns {boolean} false if there is no listener
   */
  emit(event, ...args) {
    const listeners = [...(this.#listeners.get(event) ?? [])];
    for (const listener of listeners) {
      try {
        listener(...args);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
    return listeners.length > 0;
  }
}
