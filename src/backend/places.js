// places.js: the contract of places: connections counted by client address, by user and by app.
//
// The relay counts a server's places for every backend. protocol/place-keys.js makes their keys.

import { MODES } from '../config/settings.js';

/**
 * @typedef {object} Places
 * @property
 *   {(key: string, cap: number, force: boolean) => Promise<{admitted: boolean, connections: number}>}
 *   acquire counts one more connection of the key, unless that exceeds `cap` on this server or the
 *   limit over all servers. With `force` it always counts
 * @property {(key: string) => void} release gives back one admitted connection
 */

/** @import { Config, Mode } from '../config/settings.js' */

/**
 * @typedef {object} FleetRule a limit over all servers
 * @property {number} cap connections of one key
 * @property {Mode} mode
 */

/**
 * Each app has a cap of its own, which `acquire` names.
 * @typedef {{address: FleetRule, user: FleetRule, app?: {mode: Mode}}} FleetRules
 */
/**
 * @param
 *   {Pick<Config, 'tokens'|'hooks'|'pusher'|'fleetLimitsMode'|'maxConnectionsPerIp'|'maxConnectionsPerIpMode'|'maxConnectionsPerUser'|'maxConnectionsPerUserMode'>}
 *   config
 * @returns {FleetRules} The weaker of two modes applies: a limit that single servers do not enforce
 *   is not enforced over all servers either.
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
        config.tokens === null && config.hooks === null && config.pusher === null
          ? 'off'
          : weakerOf(mode, maxConnectionsPerUserMode),
    },
    app: { mode: config.pusher?.apps.some((app) => app.maxConnections > 0) ? mode : 'off' },
  };
}

/** @param {Mode} a @param {Mode} b */
function weakerOf(a, b) {
  return MODES[Math.min(MODES.indexOf(a), MODES.indexOf(b))];
}
