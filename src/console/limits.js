// limits.js: the limits of this server, with their modes and how often each of them acted.

import { LIMIT_MODES, SETTINGS } from '../config/settings.js';

const REFUSED = 'fanfare_admissions_refused_total';
const OBSERVED = 'fanfare_limits_observed_total';
const FLEET = 'fanfare_fleet_limit_closes_total';

/**
 * @typedef {object} Limit
 * @property {string} setting of its value
 * @property {string} limit the name of its mode in FANFARE_LIMITS
 * @property {readonly string[]} acted counters of refusals; empty: the row above counts them, too
 * @property {string} observed the counter of requests that the mode `observe` has let through
 */

/** @type {readonly Limit[]} */
export const LIMITS = Object.freeze([
  {
    setting: 'FANFARE_MAX_CONNECTIONS_PER_IP',
    limit: 'connections_per_ip',
    acted: [`${REFUSED}{per_ip}`, `${FLEET}{address}`],
    observed: `${OBSERVED}{connections_per_ip}`,
  },
  {
    setting: 'FANFARE_MAX_CONNECTIONS_PER_USER',
    limit: 'connections_per_user',
    acted: ['fanfare_auth_closes_total{user_limit}', `${FLEET}{user}`],
    observed: 'fanfare_user_limit_observed_total',
  },
  {
    setting: 'FANFARE_MESSAGES_RATE',
    limit: 'messages',
    acted: ['websocket_errors_total{RATE_LIMIT_EXCEEDED}'],
    observed: `${OBSERVED}{messages}`,
  },
  {
    setting: 'FANFARE_MESSAGES_RATE_PER_IP',
    limit: 'messages_per_ip',
    acted: [],
    observed: `${OBSERVED}{messages_per_ip}`,
  },
  {
    setting: 'FANFARE_MESSAGES_RATE_PER_USER',
    limit: 'messages_per_user',
    acted: [],
    observed: `${OBSERVED}{messages_per_user}`,
  },
  {
    setting: 'FANFARE_BROADCASTS_RATE_PER_IP',
    limit: 'broadcasts_per_ip',
    acted: [],
    observed: `${OBSERVED}{broadcasts_per_ip}`,
  },
  {
    setting: 'FANFARE_MAX_ROOMS_PER_CONNECTION',
    limit: 'rooms',
    acted: ['websocket_errors_total{ROOM_LIMIT}'],
    observed: `${OBSERVED}{rooms}`,
  },
  {
    setting: 'FANFARE_FRAMES_RATE',
    limit: 'frames',
    acted: ['fanfare_reader_closes_total{flood}'],
    observed: `${OBSERVED}{frames}`,
  },
  {
    setting: 'FANFARE_HANDSHAKES_RATE_PER_IP',
    limit: 'handshakes_per_ip',
    acted: [`${REFUSED}{handshakes_per_ip}`],
    observed: `${OBSERVED}{handshakes_per_ip}`,
  },
  {
    setting: 'FANFARE_MAX_HANDSHAKES',
    limit: 'handshakes',
    acted: [`${REFUSED}{handshakes}`],
    observed: `${OBSERVED}{handshakes}`,
  },
  {
    setting: 'FANFARE_MAX_LOOP_LAG_MS',
    limit: 'overload',
    acted: [`${REFUSED}{loop_lag}`],
    observed: `${OBSERVED}{loop_lag}`,
  },
  {
    setting: 'FANFARE_MAX_HEAP_PERCENT',
    limit: 'overload',
    acted: [`${REFUSED}{memory}`],
    observed: `${OBSERVED}{memory}`,
  },
  {
    setting: 'FANFARE_API_MESSAGES_RATE',
    limit: 'api_messages',
    acted: ['fanfare_api_refused_total{rate}'],
    observed: `${OBSERVED}{api_messages}`,
  },
]);

export const LIMIT_METRICS = new Set(
  LIMITS.flatMap(({ acted, observed }) => [...acted, observed]).map((key) => key.split('{')[0]),
);

/** @import { Config, Mode, Setting } from '../config/settings.js' */

/**
 * @typedef {object} LimitRow
 * @property {string} setting
 * @property {string} meaning
 * @property {string} unit
 * @property {number} value
 * @property {Mode} mode
 * @property {number|null} acted refusals since the start of the server; null: counted in a row above
 * @property {number} observed
 */

/** @param {Config} config @param {ReadonlyMap<string, number>} totals @returns {LimitRow[]} */
export function limitsOf(config, totals) {
  const values = /** @type {Record<string, any>} */ (/** @type {unknown} */ (config));
  const count = (/** @type {string} */ key) => totals.get(key) ?? 0;
  return LIMITS.map(({ setting, limit, acted, observed }) => {
    const mode = LIMIT_MODES.find((one) => one.limit === limit)?.key ?? '';
    const { key, meaning, type, unit = type === 'rate' ? 'a minute' : '' } = rowOf(setting);
    return {
      setting,
      meaning,
      unit,
      value: values[key],
      mode: values[mode],
      acted: acted.length === 0 ? null : acted.reduce((sum, one) => sum + count(one), 0),
      observed: count(observed),
    };
  });
}

/** @param {string} env @returns {Setting} */
function rowOf(env) {
  const row = SETTINGS.find((setting) => setting.env === env);
  if (row === undefined) throw new Error(`no setting ${env}`);
  return row;
}
