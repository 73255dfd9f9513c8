// user-places.js: the limit of connections per user, over all workers and servers.

import { hash } from 'node:crypto';
import { USER_PREFIX } from '../protocol/place-keys.js';
import { refusal, spread } from '../protocol/refusal.js';

/** @import { Places } from '../backend/places.js' */
/** @import { Identity } from './claims.js' */
/** @import { Credentials } from './credentials.js' */

export class UserPlaces {
  /**
   * @param {object} parts
   * @param {import('../config/settings.js').Config} parts.config @param {Places} parts.places
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {(user: string) => void} [parts.onRefused]
   */
  constructor({ config, places, counters, onRefused = () => {} }) {
    this.max = config.maxConnectionsPerUser;
    this.mode = config.maxConnectionsPerUserMode;
    this.places = places;
    this.counters = counters;
    this.onRefused = onRefused;
  }

  get isOff() {
    return this.mode === 'off';
  }

  /** @param {Identity} identity @returns {Promise<Credentials>} rejects if it cannot count now */
  async takePlace(identity) {
    const { mode, max, places, counters } = this;
    if (mode === 'off') return { identity, lease: null, refusal: null };
    const key = placeKey(identity.user);
    const { admitted, connections } = await places.acquire(key, max, mode === 'observe');
    if (mode === 'observe' && connections > max) counters.userLimitsObserved++;
    if (admitted) return { identity, lease: new PlaceLease(places, key), refusal: null };
    counters.closes.user_limit++;
    this.onRefused(identity.user);
    return { identity: null, lease: null, refusal: spread(refusal('USER_LIMIT')) };
  }
}

/** The relay counts users like addresses: short ASCII, unlike any address. @param {string} user */
function placeKey(user) {
  return `${USER_PREFIX}${hash('sha256', user, 'base64url')}`;
}

class PlaceLease {
  /** @param {Places} places @param {string} key */
  constructor(places, key) {
    /** @type {Places|null} */
    this.places = places;
    this.key = key;
  }

  /** May be called again: by the session's end, and by the socket's. */
  release() {
    const { places } = this;
    this.places = null;
    places?.release(this.key);
  }
}
