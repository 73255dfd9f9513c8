// turnstile.js: bounds the rate of requests on the operations port. Above it requests wait in line,
// and addresses take turns. A refusal would cost as much CPU as an answer; a waiting request costs
// none. Each socket has at most one request, which bounds the line.

import { Rate } from '../admission/rate.js';

const TURN_MS = 20;

export class Turnstile {
  /** Waiting requests by address, the oldest first. @type {Map<string, Set<() => void>>} */
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
   * @returns {() => void} leaves the line
   */
  waitInLine(address, go) {
    if (this.#line.size === 0 && this.#takeToken()) {
      go();
      return () => {};
    }
    const waiting = this.#line.get(address) ?? new Set();
    this.#line.set(address, waiting.add(go));
    this.#timer ??= setInterval(() => this.#letThrough(), TURN_MS).unref();
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

  #takeToken() {
    const nowMs = this.now();
    if (!this.#rate.has(this.#bucket, nowMs)) return false;
    this.#rate.take(this.#bucket, nowMs);
    return true;
  }

  #letThrough() {
    // An address with more requests is added again at the end, so this loop reaches it again.
    for (const [address, waiting] of this.#line) {
      if (!this.#takeToken()) return;
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
