// random.js: chance that can be had again: the same seed, the same sequence.

/** The increment of SplitMix: odd, and near 2³² divided by the golden ratio. */
const STEP = 0x9e3779b9;

export class Random {
  /** @param {number} seed an integer; 32 bits of it count */
  constructor(seed) {
    this.seed = seed >>> 0;
    this.state = this.seed;
  }

  /** @returns {number} 0 ≤ n < 1 (SplitMix with the finisher of MurmurHash3) */
  next() {
    this.state = (this.state + STEP) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
    return ((mixed ^ (mixed >>> 16)) >>> 0) / 0x1_0000_0000;
  }

  /**
   * @param {number} n
   * @returns {number} an integer, 0 ≤ i < n
   */
  below(n) {
    return Math.floor(this.next() * n);
  }

  /** @param {number} low @param {number} high @returns {number} */
  between(low, high) {
    return low + this.next() * (high - low);
  }

  /**
   * @template T
   * @param {readonly T[]} list not empty
   * @returns {T}
   */
  pick(list) {
    return list[this.below(list.length)];
  }

  /**
   * @template T
   * @param {readonly T[]} list
   * @returns {T[]} another list, in any order
   */
  shuffled(list) {
    const result = [...list];
    for (let i = result.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [result[i], result[j]] = [result[j], result[i]];
    }
    return result;
  }
}
