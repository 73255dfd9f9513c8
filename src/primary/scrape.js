// scrape.js: the page of metrics, rendered once for all requests within half a second.
//
// Rendering takes each worker 0.5 ms and the primary 3 to 6, so it begins at most every
// INTERVAL_MS. A lone scraper does not wait. All answers share the bytes.

import { setTimeout as delay } from 'node:timers/promises';

const INTERVAL_MS = 500;

export class Scrape {
  #beganMs = Number.NEGATIVE_INFINITY;
  /** Under way, or waiting for its time. @type {Promise<Buffer>|null} */
  #next = null;

  /** @param {() => Promise<string>} render */
  constructor(render) {
    this.render = render;
  }

  /** Resolves with values from after the call, or from a rendering under way. */
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
