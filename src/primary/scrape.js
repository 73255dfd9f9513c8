// scrape.js: the page of metrics, rendered once for all who ask within half a second.
//
// A rendering takes each worker 0.5 ms and the primary 3 to 6, so the next one begins INTERVAL_MS
// after the last. A lone scraper does not wait. Its bytes are shared by all answers.

import { setTimeout as delay } from 'node:timers/promises';

const INTERVAL_MS = 500;

export class Scrape {
  #beganMs = Number.NEGATIVE_INFINITY;
  /** The rendering that is under way or waits for its time. @type {Promise<Buffer>|null} */
  #next = null;

  /** @param {() => Promise<string>} render */
  constructor(render) {
    this.render = render;
  }

  /** @returns {Promise<Buffer>} no older than the call, or under way when it came */
  read() {
    this.#next ??= this.#render().finally(() => {
      this.#next = null;
    });
    return this.#next;
  }

  async #render() {
    const waitMs = this.#beganMs + INTERVAL_MS - performance.now();
    if (waitMs > 0) await delay(waitMs);
    this.#beganMs = performance.now();
    return Buffer.from(await this.render());
  }
}
