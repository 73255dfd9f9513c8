// quotas.js: may a full app refuse a client for good?
//
// After 4004 a page is dead until it is reloaded, so the app must be full of living connections.
// After a change of network, dead ones count until their next missed ping, and those of a killed
// server until its report expires. So 4004 comes only after an app has been full without a break
// for longer than that.

/** More than the time for which a killed server's last report counts (fleet-places.js). */
const REPORT_MS = 10_000;
/** Refused clients return within 10 s: after a longer gap there may have been places. */
const MAX_GAP_MS = 15_000;

export class Quotas {
  /** Full apps. @type {Map<string, {sinceMs: number, lastMs: number}>} */
  #full = new Map();

  /** @param {Pick<import('../../config/settings.js').Config, 'pingIntervalMs'|'pongTimeoutMs'>} config */
  constructor({ pingIntervalMs, pongTimeoutMs }) {
    this.ghostMs = pingIntervalMs + pongTimeoutMs + REPORT_MS;
  }

  /** The app had a place. @param {string} app id */
  admitted(app) {
    this.#full.delete(app);
  }

  /**
   * The app had no place.
   * @param {string} app id @param {number} [nowMs] monotonic
   * @returns {boolean} true: it has been full for longer than dead connections count
   */
  refused(app, nowMs = performance.now()) {
    const full = this.#full.get(app);
    if (full === undefined || nowMs - full.lastMs > MAX_GAP_MS) {
      this.#full.set(app, { sinceMs: nowMs, lastMs: nowMs });
      return false;
    }
    full.lastMs = nowMs;
    return nowMs - full.sinceMs > this.ghostMs;
  }
}
