// turnstile.js: lets requests of the operations port pass at a bounded rate. Above it they wait in
// line, and addresses take turns. A refusal would cost as much CPU as an answer; a waiting request
// costs none. Each socket has one request at most, which bounds the line.

import { Rate } from '../admission/rate.js';

const TURN_MS = 20;

export class Turnstile {
  /** The requests of each address that wait, oldest first. @type {Map<string, Set<() => void>>} */
  #line = new Map();
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  #rate;
  #bucket = { fullAt: -0.5 };

  /** @param {{perSecond: number, burst: number}} rate @param {() => number} [now] ms, monotonic */
  constructor({ perSecond, burst }, now = () => performance.now()) {
    this.#rate = new Rate(60 * perSecond, burst);
    this.now = now;
  }

  /**
   * @param {string} address @param {() => void} go called at once or in its turn
   * @returns {() => void} leaves the line, if it has not been called
   */
  enter(address, go) {
    if (this.#line.size === 0 && this.#take()) {
      go();
      return () => {};
    }
    const waiting = this.#line.get(address) ?? new Set();
    this.#line.set(address, waiting.add(go));
    this.#timer ??= setInterval(() => this.#turn(), TURN_MS).unref();
    return () => {
      const mine = this.#line.get(address);
      if (mine?.delete(go) && mine.size === 0) this.#line.delete(address);
    };
  }

  close() {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#line.clear();
  }

  #take() {
    const nowMs = this.now();
    if (!this.#rate.has(this.#bucket, nowMs)) return false;
    this.#rate.take(this.#bucket, nowMs);
    return true;
  }

  #turn() {
    // An address that has more to pass is added again, so this loop comes back to it.
    for (const [address, waiting] of this.#line) {
      if (!this.#take()) return;
      const [go] = waiting;
      waiting.delete(go);
      this.#line.delete(address);
      if (waiting.size > 0) this.#line.set(address, waiting);
      go();
    }
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
