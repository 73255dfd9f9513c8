// places.js: the contract of places: connections counted by client address and by user.
//
// The relay counts a server's places for every backend. A key is short ASCII: an address as limits
// count it (admission/address.js), or the hash of a user's name.

import { MODES } from '../config/settings.js';

/**
 * @typedef {object} Places
 * @property
 *   {(key: string, cap: number, force: boolean) => Promise<{admitted: boolean, connections: number}>}
 *   acquire counts one more connection of the key, unless it is one too many: for `cap` on this
 *   server, or for the limit over all servers. With `force` it always counts
 * @property {(key: string) => void} release gives back one admitted connection
 */

/** @import { Config, Mode } from '../config/settings.js' */

/**
 * A limit over all servers.
 * @typedef {object} FleetRule
 * @property {number} cap connections of one key
 * @property {Mode} mode
 */

/** @typedef {{address: FleetRule, user: FleetRule}} FleetRules */
/** @typedef {keyof FleetRules} PlaceKind */

/** Begins the keys of users. No address begins so. */
export const USER_PREFIX = 'user:';

/** @param {string} key @returns {PlaceKind} */
export function kindOfKey(key) {
  return key.startsWith(USER_PREFIX) ? 'user' : 'address';
}

/**
 * @param
 *   {Pick<Config, 'tokens'|'hooks'|'fleetLimitsMode'|'maxConnectionsPerIp'|'maxConnectionsPerIpMode'|'maxConnectionsPerUser'|'maxConnectionsPerUserMode'>}
 *   config
 * @returns {FleetRules} the weaker of two modes counts: a limit that servers do not enforce by
 *   themselves is not enforced together either
 */
export function fleetRulesOf(config) {
  const { fleetLimitsMode: mode, maxConnectionsPerIpMode, maxConnectionsPerUserMode } = config;
  return {
    address: {
      cap: config.maxConnectionsPerIp,
      mode: weakerOf(mode, maxConnectionsPerIpMode),
    },
    user: {
      cap: config.maxConnectionsPerUser,
      mode:
        config.tokens === null && config.hooks === null
          ? 'off'
          : weakerOf(mode, maxConnectionsPerUserMode),
    },
  };
}

/** @param {Mode} a @param {Mode} b */
function weakerOf(a, b) {
  return MODES[Math.min(MODES.indexOf(a), MODES.indexOf(b))];
}
