// fair-queue.js: two queues: first come, first served; and one in which addresses take turns, each
// with its items in order. All operations take constant time.

/** An array may begin with this many removed entries. */
const COMPACT_FROM = 1000;

/**
 * Decides in which order its items leave.
 * @template T @typedef {object} Queue
 * @property {number} size @property {(item: T, address: string|null) => void} push
 * @property {() => T|undefined} shift
 */

/** First come, first served. @template T @implements {Queue<T>} */
export class Fifo {
  /** @param {string|null} [key] */
  constructor(key = null) {
    this.key = key;
    /** @type {T[]} */
    this.items = [];
    this.next = 0;
  }

  get size() {
    return this.items.length - this.next;
  }

  /** @param {T} item */
  push(item) {
    this.items.push(item);
  }

  /** @returns {T} of a queue that is not empty */
  shift() {
    const item = this.items[this.next++];
    if (this.next === this.items.length || this.next >= COMPACT_FROM) {
      this.items.splice(0, this.next);
      this.next = 0;
    }
    return item;
  }
}

/** @template {object} T @implements {Queue<T>} */
export class FairQueue {
  size = 0;
  /** The items of each address that has any. @type {Map<string, Fifo<T>>} */
  #byAddress = new Map();
  /** Turns: the items of an address, or one item without address. @type {Fifo<Fifo<T>|T>} */
  #turns = new Fifo();

  /** @param {T} item @param {string|null} address null: the item is on its own */
  push(item, address) {
    this.size++;
    if (address === null) return this.#turns.push(item);
    let queue = this.#byAddress.get(address);
    if (queue === undefined) {
      queue = new Fifo(address);
      this.#byAddress.set(address, queue);
      this.#turns.push(queue);
    }
    queue.push(item);
  }

  /** @returns {T|undefined} undefined if the queue is empty */
  shift() {
    if (this.size === 0) return undefined;
    this.size--;
    const turn = this.#turns.shift();
    if (!(turn instanceof Fifo)) return turn;
    const item = turn.shift();
    if (turn.size === 0) this.#byAddress.delete(/** @type {string} */ (turn.key));
    else this.#turns.push(turn);
    return item;
  }
}
