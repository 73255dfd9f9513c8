// app-places.js: the limit of connections per app, over all workers and servers, and their number,
// for connections whose tokens name an app. Those of Pusher clients share the places.

import { appPlaceKey } from '../protocol/place-keys.js';
import { refusal, spread } from '../protocol/refusal.js';

/** @import { Places } from '../backend/places.js' */
/** @import { App } from '../config/pusher.js' */
/** @import { AuthCounters, Counters } from '../observability/counters.js' */
/** @import { Credentials } from './credentials.js' */
/** @import { Lease } from './session.js' */

export class AppPlaces {
  /**
   * @param {object} parts @param {Places} parts.places @param {AuthCounters} parts.counters
   * @param {Counters['apps']} parts.appCounters
   */
  constructor({ places, counters, appCounters }) {
    this.places = places;
    this.counters = counters;
    this.appCounters = appCounters;
  }

  /**
   * @param {App} app @param {Credentials} credentials of a token of the app
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

  /** @param {App} app */
  async #admits({ id, maxConnections }) {
    if (maxConnections === 0) return true;
    return (await this.places.acquire(appPlaceKey(id), maxConnections, false)).admitted;
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
