// election.js: elects the leading tab with a Web Lock.
//
// All tabs wait for the lock. When the leader is closed or crashes, the browser grants it to the
// next tab. A suspended leader keeps it, so a tab that gets no answer steals it. The former leader
// notices that when it runs again. Until then two tabs lead, and all others follow the newer one.

import { ignoreAbort } from './browser.js';
import { SEIZE_TIMEOUT_MS } from './limits.js';

export class Election {
  #locks;
  #name;
  #onElected;
  #onDeposed;
  /** Numbers the requests, so that the end of an older one is noticed. */
  #run = 0;
  #withdraw = () => {};

  /**
   * @param {object} parts @param {import('./browser.js').Locks} parts.locks
   * @param {string} parts.name of the lock @param {() => void} parts._onElected
   * @param {() => void} parts._onDeposed another tab has stolen the lock; this one waits again
   */
  constructor({ locks, name, _onElected, _onDeposed }) {
    this.#locks = locks;
    this.#name = name;
    this.#onElected = _onElected;
    this.#onDeposed = _onDeposed;
  }

  stand() {
    const controller = new AbortController();
    this.#requestLock({ signal: controller.signal }, () => controller.abort());
  }

  /**
   * Steals the lock from a leader that does not answer. Timers of hidden pages fire together, so a
   * second lock lets only one page try.
   * @param {() => boolean} isNeeded is there still no answer?
   */
  async seize(isNeeded) {
    await this.#locks.request(`${this.#name} seize`, { ifAvailable: true }, async (lock) => {
      if (!lock || !isNeeded()) return;
      await new Promise((resolve) => {
        // A request that steals cannot be aborted.
        this.#requestLock({ steal: true }, () => {}, resolve);
        setTimeout(resolve, SEIZE_TIMEOUT_MS);
      });
    });
  }

  /** Stops waiting, or gives the lock to the next tab. */
  withdraw() {
    this.#run++;
    this.#withdraw();
  }

  /**
   * @param {{signal?: AbortSignal, steal?: boolean}} options @param {() => void} abort
   * @param {(value?: unknown) => void} [onGranted]
   */
  #requestLock(options, abort, onGranted = () => {}) {
    this.withdraw();
    const run = this.#run;
    this.#withdraw = abort;
    const held = this.#locks.request(this.#name, options, () => {
      if (run !== this.#run) return;
      const released = new Promise((resolve) => {
        this.#withdraw = () => resolve(undefined);
      });
      this.#onElected();
      onGranted();
      return released;
    });
    held.catch((error) => {
      ignoreAbort(error);
      if (run !== this.#run) return;
      this.#onDeposed();
      this.stand();
    });
  }
}
