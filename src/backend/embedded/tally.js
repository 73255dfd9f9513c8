// tally.js: numbers by key, and their sum. A key whose number is 0 is forgotten.

export class Tally {
  /** Numbers by key; others do not modify them. @type {Map<string, number>} */
  byKey = new Map();
  total = 0;

  /** @param {string} key */
  countOf(key) {
    return this.byKey.get(key) ?? 0;
  }

  /** @param {string} key @param {number} change @returns {number} of the key now */
  add(key, change) {
    const number = this.countOf(key) + change;
    if (number > 0) this.byKey.set(key, number);
    else this.byKey.delete(key);
    this.total += change;
    return number;
  }
}
