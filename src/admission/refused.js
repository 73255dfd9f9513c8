// refused.js: the addresses and users that limits refuse most often.
//
// A metric must not have a label for each address, so MAX_NAMES names are kept here. Another name
// replaces the one with the lowest rank and inherits its rank, but not its counts (Space-Saving:
// Metwally and others 2005, "Efficient Computation of Frequent and Top-k Elements in Data
// Streams"). So a name with more than 1/MAX_NAMES of all refusals is always here, and no count is
// too high.
//
// Counts cover the current and the previous window. A refusal costs 0.04 us, or 1.5 us if a name
// has to make room.

export const MAX_NAMES = 64;
const WINDOW_MS = 300_000;

/** What was refused. @typedef {'connections'|'messages'} Kind */

/**
 * @typedef {object} Count
 * @property {number} rank its refusals, and those of names that it has replaced
 * @property {number} connections @property {number} messages
 */

class TopNames {
  /** @type {Map<string, Count>} */
  #now = new Map();
  /** @type {ReadonlyMap<string, Count>} */
  #before = new Map();

  /** @param {string} name @param {Kind} kind @returns {boolean} false: another was forgotten */
  add(name, kind) {
    const known = this.#now.get(name);
    const isFull = known === undefined && this.#now.size >= MAX_NAMES;
    const count = known ?? { rank: isFull ? this.#forgetLowest() : 0, connections: 0, messages: 0 };
    if (known === undefined) this.#now.set(name, count);
    count.rank++;
    count[kind]++;
    return !isFull;
  }

  turn() {
    this.#before = this.#now;
    this.#now = new Map();
  }

  /** @returns {[string, number, number][]} name, connections and messages refused; most first */
  listNames() {
    /** @type {Map<string, [string, number, number]>} */
    const sums = new Map();
    for (const counts of [this.#before, this.#now])
      for (const [name, { connections, messages }] of counts) {
        const [, c = 0, m = 0] = sums.get(name) ?? [];
        sums.set(name, [name, c + connections, m + messages]);
      }
    return topRefused(sums.values(), MAX_NAMES);
  }

  #forgetLowest() {
    let lowest = '';
    let rank = Number.POSITIVE_INFINITY;
    for (const [name, count] of this.#now)
      if (count.rank < rank) {
        rank = count.rank;
        lowest = name;
      }
    this.#now.delete(lowest);
    return rank;
  }
}

export class RefusedNames {
  #addresses = new TopNames();
  #users = new TopNames();
  #turnMs = 0;
  /** Names that made room for others. */
  forgotten = 0;

  /** @param {Kind} kind @param {string} address '': not counted @param {string} [user] '': none */
  countRefusal(kind, address, user = '') {
    if (address !== '' && !this.#addresses.add(address, kind)) this.forgotten++;
    if (user !== '' && !this.#users.add(user, kind)) this.forgotten++;
  }

  /** Call it about once a second. @param {number} nowMs of a clock that never goes back */
  sweep(nowMs) {
    if (nowMs - this.#turnMs < WINDOW_MS) return;
    this.#turnMs = nowMs;
    this.#addresses.turn();
    this.#users.turn();
  }

  /** The addresses and users refused most often in the last five to ten minutes. */
  mostRefused() {
    return { addresses: this.#addresses.listNames(), users: this.#users.listNames() };
  }
}

/** @param {Iterable<[string, number, number]>} rows @param {number} limit */
export function topRefused(rows, limit) {
  return [...rows].sort((one, other) => other[1] + other[2] - one[1] - one[2]).slice(0, limit);
}
