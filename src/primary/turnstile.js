// turnstile.js: lets requests of the operations port pass at a bounded rate. Above it they wait in
// line, and addresses take turns.
//
// The primary also relays publications, so a flood of requests must not take its CPU time. A
// refusal would cost as much as an answer; a request that waits costs nothing. The line is as long
// as the port has sockets, because each socket has one request at most.

const TURN_MS = 20;

export class Turnstile {
  /** The requests of each address that wait, oldest first. @type {Map<string, Set<() => void>>} */
  #line = new Map();
  /** @type {NodeJS.Timeout|undefined} */
  #timer;

  /**
   * @param {{perSecond: number, burst: number}} rate
   * @param {() => number} [now] ms, monotonic
   */
  constructor({ perSecond, burst }, now = () => performance.now()) {
    this.perSecond = perSecond;
    this.burst = burst;
    this.now = now;
    this.tokens = burst;
    this.filledMs = now();
  }

  /**
   * @param {string} address
   * @param {() => void} go called at once or in its turn
   * @returns {() => void} leaves the line, if it has not been called
   */
  enter(address, go) {
    this.#fill();
    if (this.#line.size === 0 && this.tokens >= 1) {
      this.tokens--;
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

  #fill() {
    const nowMs = this.now();
    const filled = this.tokens + ((nowMs - this.filledMs) * this.perSecond) / 1000;
    this.tokens = Math.min(this.burst, filled);
    this.filledMs = nowMs;
  }

  #turn() {
    this.#fill();
    // An address that has more to pass is added again, so this loop comes back to it.
    for (const [address, waiting] of this.#line) {
      if (this.tokens < 1) return;
      this.tokens--;
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
