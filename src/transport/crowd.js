// crowd.js: idle sockets by client address. At a bound, the address with most sockets loses its
// oldest, so a client that opens sockets and stays silent loses its own. All operations take
// constant time: there is a set of addresses for each number of sockets.

/** @template T */
export class Group {
  /** @param {string} address */
  constructor(address) {
    this.address = address;
    /** Oldest first. @type {Set<T>} */
    this.items = new Set();
  }
}

/** @template {object} T */
export class Crowd {
  /** Items without an address, oldest first: each is a group of one. @type {Set<T>} */
  #singles = new Set();
  /** @type {Map<string, Group<T>>} */
  #groups = new Map();
  /** `#bySize[n]` has the groups of n items, oldest first. @type {Set<Group<T>>[]} */
  #bySize = [new Set()];
  /** The size of the largest group; 0 if the crowd is empty. */
  #largest = 0;
  #size = 0;

  get size() {
    return this.#size;
  }

  get largest() {
    return this.#largest > 0 || this.#singles.size === 0 ? this.#largest : 1;
  }

  /**
   * @param {T} item not in the crowd @param {string|null} address null: its own
   * @returns {Group<T>|null} the item's group, for `delete`
   */
  add(item, address) {
    this.#size++;
    if (address === null) {
      this.#singles.add(item);
      return null;
    }
    let group = this.#groups.get(address);
    if (group === undefined) {
      group = new Group(address);
      this.#groups.set(address, group);
    }
    const { size } = group.items;
    group.items.add(item);
    this.#moveGroup(group, size, size + 1);
    return group;
  }

  /** @param {T} item in the crowd @param {Group<T>|null} group from `add` */
  delete(item, group) {
    this.#size--;
    if (group === null) {
      this.#singles.delete(item);
      return;
    }
    const { size } = group.items;
    group.items.delete(item);
    this.#moveGroup(group, size, size - 1);
    if (size === 1) this.#groups.delete(group.address);
  }

  /** @returns {T|undefined} the oldest item of a largest group; undefined: the crowd is empty */
  oldest() {
    if (this.#largest < 2) {
      for (const item of this.#singles) return item;
    }
    for (const group of this.#bySize[this.#largest]) {
      for (const item of group.items) return item;
    }
    return undefined;
  }

  /** @param {Group<T>} group @param {number} from size @param {number} to size */
  #moveGroup(group, from, to) {
    if (from > 0) this.#bySize[from].delete(group);
    if (to > 0) {
      this.#bySize[to] ??= new Set();
      this.#bySize[to].add(group);
    }
    if (to > this.#largest) this.#largest = to;
    else if (from === this.#largest && this.#bySize[from].size === 0) this.#largest = to;
  }
}
