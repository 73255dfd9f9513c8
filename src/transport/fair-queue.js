// fair-queue.js: a queue in which addresses take turns. Items of one address leave in the order in
// which they came.
//
// All operations take constant time.

/** Largest number of removed entries that are still in an array. */
const COMPACT_FROM = 1000;

/** @template T */
class Fifo {
  /** @param {string|null} [key] */
  constructor(key = null) {
    this.key = key;
    /** @type {T[]} */
    this.items = [];
    this.next = 0;
  }

  get isEmpty() {
    return this.next === this.items.length;
  }

  /** @param {T} item */
  push(item) {
    this.items.push(item);
  }

  /** @returns {T} of a queue that is not empty */
  shift() {
    const item = this.items[this.next++];
    if (this.isEmpty || this.next >= COMPACT_FROM) {
      this.items.splice(0, this.next);
      this.next = 0;
    }
    return item;
  }
}

/** @template {object} T */
export class FairQueue {
  /** The items of each address that has any. @type {Map<string, Fifo<T>>} */
  #byAddress = new Map();
  /** Next in turn: an address' items, or one without address. @type {Fifo<Fifo<T>|T>} */
  #turns = new Fifo();

  /** @param {T} item @param {string|null} address null: the item is on its own */
  push(item, address) {
    if (address === null) return this.#turns.push(item);
    let queue = this.#byAddress.get(address);
    if (queue === undefined) {
      queue = new Fifo(address);
      this.#byAddress.set(address, queue);
      this.#turns.push(queue);
    }
    queue.push(item);
  }

  /** @returns {T|undefined} the next item in turn; undefined if the queue is empty */
  shift() {
    if (this.#turns.isEmpty) return undefined;
    const turn = this.#turns.shift();
    if (!(turn instanceof Fifo)) return turn;
    const item = turn.shift();
    if (turn.isEmpty) this.#byAddress.delete(/** @type {string} */ (turn.key));
    else this.#turns.push(turn);
    return item;
  }
}
