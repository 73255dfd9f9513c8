// expiry-wheel.js: what ends in a certain second unless it is removed before: sessions with their
// token, subscriptions with theirs. Items are kept by period, so that a sweep looks at few of them.

/** @template T */
export class ExpiryWheel {
  /** Items by period since 1970. @type {Map<number, Set<T>>} */
  #periods = new Map();
  #sweptS;

  /**
   * @param {object} parts
   * @param {(item: T) => number} parts.endOf the second of an item, from `secondAfter`. It stays the
   *   same while the item is here
   * @param {number} parts.periodS 1: a sweep looks only at what ends. More: fewer sets, which may each
   *   have one item
   * @param {() => number} [parts.now] ms since 1970
   */
  constructor({ endOf, periodS, now = Date.now }) {
    this.endOf = endOf;
    this.periodS = periodS;
    this.now = now;
    this.#sweptS = this.#nowS();
  }

  /** The number of items. */
  get itemCount() {
    let count = 0;
    for (const items of this.#periods.values()) count += items.size;
    return count;
  }

  /** @param {number} atS since 1970 @returns {number} the first second for which a sweep will come */
  secondAfter(atS) {
    return Math.max(Math.ceil(atS), this.#sweptS + 1);
  }

  /** @param {T} item */
  addItem(item) {
    const period = this.#periodOf(this.endOf(item));
    const items = this.#periods.get(period);
    if (items === undefined) this.#periods.set(period, new Set([item]));
    else items.add(item);
  }

  /** May be called twice. @param {T} item */
  removeItem(item) {
    const period = this.#periodOf(this.endOf(item));
    const items = this.#periods.get(period);
    if (items?.delete(item) && items.size === 0) this.#periods.delete(period);
  }

  /**
   * Returns the items whose second has come since the last sweep. They stay until they are removed,
   * and are returned again if the clock goes back. Call it every second.
   */
  takeDue() {
    const from = this.#sweptS;
    const to = this.#nowS();
    this.#sweptS = to; // earlier than before, if the clock has gone back
    const due = [];
    for (const period of this.#periodsIn(this.#periodOf(from + 1), this.#periodOf(to)))
      for (const item of this.#periods.get(period) ?? []) {
        const endS = this.endOf(item);
        if (endS > from && endS <= to) due.push(item);
      }
    return due;
  }

  /**
   * Periods that may have items. If the clock jumped, there are fewer sets than periods.
   * @param {number} first @param {number} last
   */
  #periodsIn(first, last) {
    return last - first > this.#periods.size
      ? [...this.#periods.keys()].filter((period) => period >= first && period <= last)
      : Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
  }

  /** @param {number} second */
  #periodOf(second) {
    return Math.floor(second / this.periodS);
  }

  #nowS() {
    return Math.floor(this.now() / 1000);
  }
}
