// holdings.js: which names (rooms, users of rooms) each holder has, each with a value, and who has
// a name. A holder is any object, in the relay a worker's link.

/** @template O @template V */
export class Holdings {
  /** @type {Map<string, Map<O, V>>} */
  #holders = new Map();
  /** @type {Map<O, Set<string>>} */
  #names = new Map();

  get size() {
    return this.#holders.size;
  }

  get holderCount() {
    return this.#names.size;
  }

  /** @param {O} holder @param {string} name @param {V} value @returns whether nobody had it */
  hold(holder, name, value) {
    const names = this.#names.get(holder);
    if (names === undefined) this.#names.set(holder, new Set([name]));
    else names.add(name);
    const holders = this.#holders.get(name);
    if (holders === undefined) this.#holders.set(name, new Map([[holder, value]]));
    else holders.set(holder, value);
    return holders === undefined;
  }

  /** @param {O} holder @param {string} name @returns whether it was the last one that had it */
  drop(holder, name) {
    const names = this.#names.get(holder);
    if (!names?.delete(name)) return false;
    if (names.size === 0) this.#names.delete(holder);
    const holders = /** @type {Map<O, V>} */ (this.#holders.get(name));
    holders.delete(holder);
    if (holders.size > 0) return false;
    this.#holders.delete(name);
    return true;
  }

  /** @param {string} name @returns {ReadonlyMap<O, V>|undefined} */
  holdersOf(name) {
    return this.#holders.get(name);
  }

  names() {
    return this.#holders.keys();
  }

  /** @param {O} holder @returns {Iterable<string>} its names; they may be dropped meanwhile */
  namesOf(holder) {
    return this.#names.get(holder) ?? [];
  }
}
