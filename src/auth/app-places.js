// app-places.js: the limit of connections per app, over all workers and servers, and their number.
//
// Some clients never return after they have heard that their app is full, so it must be full of
// living connections. After a change of network, dead ones count until their next missed ping, and
// those of a killed server until its report expires. So an app is full for good only after it has
// been full without a break for longer than that.

import { appPlaceKey } from '../protocol/place-keys.js';
import { refusal, spread } from '../protocol/refusal.js';

/** More than the time for which a killed server's last report counts (fleet-places.js). */
const REPORT_MS = 10_000;
/** Refused clients return within 10 s: after a longer gap there may have been places. */
const MAX_GAP_MS = 15_000;

/** @import { Places } from '../backend/places.js' */
/** @import { App } from '../config/pusher.js' */
/** @import { AuthCounters, Counters } from '../observability/counters.js' */
/** @import { Credentials } from './credentials.js' */
/** @import { Lease } from './session.js' */

export class AppPlaces {
  /** Full apps, by id. @type {Map<string, {sinceMs: number, lastMs: number}>} */
  #full = new Map();

  /**
   * @param {object} parts
   * @param {Pick<import('../config/settings.js').Config, 'pingIntervalMs'|'pongTimeoutMs'>} parts.config
   * @param {Pick<Places, 'acquire'|'release'>} parts.places @param {AuthCounters} parts.counters
   * @param {Counters['apps']} parts.appCounters
   */
  constructor({ config, places, counters, appCounters }) {
    this.ghostMs = config.pingIntervalMs + config.pongTimeoutMs + REPORT_MS;
    this.places = places;
    this.counters = counters;
    this.appCounters = appCounters;
  }

  /**
   * @param {App} app @param {Pick<Credentials, 'identity'|'lease'>} credentials of a token of the app,
   *   if it has one
   * @returns {Promise<Credentials>} with a lease of both places, which is released if it is
   *   refused, or rejects because it cannot count now
   */
  async takePlace(app, { identity, lease }) {
    try {
      if (await this.#admits(app))
        return { identity, lease: new AppLease(this, app, lease), refusal: null };
    } catch (error) {
      lease?.release();
      throw error;
    }
    lease?.release();
    this.counters.closes.app_limit++;
    return { identity: null, lease: null, refusal: spread(refusal('APP_LIMIT')) };
  }

  /** A place in an app without a limit. @param {App} app @returns {Lease} */
  leaseOf(app) {
    return new AppLease(this, app, null);
  }

  /** Has it been full for longer than dead connections count? @param {App} app just refused */
  isFullForGood({ id }) {
    const { sinceMs = 0, lastMs = 0 } = this.#full.get(id) ?? {};
    return lastMs - sinceMs > this.ghostMs;
  }

  /** @param {App} app */
  async #admits({ id, maxConnections }) {
    if (maxConnections === 0) return true;
    const { admitted } = await this.places.acquire(appPlaceKey(id), maxConnections, false);
    if (admitted) this.#full.delete(id);
    else this.#countFull(id);
    return admitted;
  }

  /** @param {string} app id */
  #countFull(app) {
    const nowMs = performance.now();
    const full = this.#full.get(app);
    if (full !== undefined && nowMs - full.lastMs <= MAX_GAP_MS) full.lastMs = nowMs;
    else this.#full.set(app, { sinceMs: nowMs, lastMs: nowMs });
  }
}

/** A place of the app, and one of the user. @implements {Lease} */
class AppLease {
  #isReleased = false;

  /** @param {AppPlaces} owner @param {App} app @param {Lease|null} ofUser */
  constructor(owner, app, ofUser) {
    this.owner = owner;
    this.app = app;
    this.ofUser = ofUser;
    owner.appCounters.connections[app.id]++;
  }

  get key() {
    return this.ofUser?.key ?? '';
  }

  /** May be called again: by the session's end, and by the socket's. */
  release() {
    if (this.#isReleased) return;
    this.#isReleased = true;
    const { id, maxConnections } = this.app;
    this.owner.appCounters.connections[id]--;
    if (maxConnections > 0) this.owner.places.release(appPlaceKey(id));
    this.ofUser?.release();
  }
}
