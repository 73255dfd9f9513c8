// subscriptions.js: the subscribers of each room. A subscriber is any object, in the relay a
// worker's link.

/** @template S */
export class Subscriptions {
  constructor() {
    /** @type {Map<string, Set<S>>} */
    this.subscribers = new Map();
    /** @type {Map<S, Set<string>>} */
    this.rooms = new Map();
  }

  get size() {
    return this.subscribers.size;
  }

  get subscriberCount() {
    return this.rooms.size;
  }

  /** @param {string} room @param {S} subscriber */
  subscribe(room, subscriber) {
    const subscribers = this.subscribers.get(room);
    if (subscribers === undefined) this.subscribers.set(room, new Set([subscriber]));
    else subscribers.add(subscriber);
    const rooms = this.rooms.get(subscriber);
    if (rooms === undefined) this.rooms.set(subscriber, new Set([room]));
    else rooms.add(room);
  }

  /** @param {string} room @param {S} subscriber */
  unsubscribe(room, subscriber) {
    const rooms = this.rooms.get(subscriber);
    if (rooms === undefined || !rooms.delete(room)) return;
    if (rooms.size === 0) this.rooms.delete(subscriber);
    this.#remove(room, subscriber);
  }

  /** Removes a subscriber from all its rooms. @param {S} subscriber */
  leave(subscriber) {
    const rooms = this.rooms.get(subscriber);
    if (rooms === undefined) return;
    this.rooms.delete(subscriber);
    for (const room of rooms) this.#remove(room, subscriber);
  }

  /** @param {string} room @param {S} subscriber */
  #remove(room, subscriber) {
    const subscribers = /** @type {Set<S>} */ (this.subscribers.get(room));
    subscribers.delete(subscriber);
    if (subscribers.size === 0) this.subscribers.delete(room);
  }

  /** Not to be modified. @param {string} room @returns {ReadonlySet<S>|undefined} */
  of(room) {
    return this.subscribers.get(room);
  }
}
