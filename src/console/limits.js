// limits.js: the limits of this server, with their modes and how often each of them acted.

import { SETTINGS } from '../config/settings.js';

const REFUSED = 'fanfare_admissions_refused_total';
const OBSERVED = 'fanfare_limits_observed_total';
const FLEET = 'fanfare_fleet_limit_closes_total';
const OVERLOAD_MODE = 'FANFARE_OVERLOAD_MODE';

/**
 * @typedef {object} Limit
 * @property {string} setting of its value
 * @property {string} [mode] the setting of its mode; that of its value with `_MODE` if it is absent
 * @property {readonly string[]} acted counters of refusals; empty: the row above counts them, too
 * @property {string} observed the counter of requests that the mode `observe` has let through
 */

/** @type {readonly Limit[]} */
export const LIMITS = Object.freeze([
  {
    setting: 'FANFARE_MAX_CONNECTIONS_PER_IP',
    acted: [`${REFUSED}{per_ip}`, `${FLEET}{address}`],
    observed: `${OBSERVED}{connections_per_ip}`,
  },
  {
    setting: 'FANFARE_MAX_CONNECTIONS_PER_USER',
    acted: ['fanfare_auth_closes_total{user_limit}', `${FLEET}{user}`],
    observed: 'fanfare_user_limit_observed_total',
  },
  {
    setting: 'FANFARE_MESSAGES_PER_MINUTE',
    acted: ['websocket_errors_total{RATE_LIMIT_EXCEEDED}'],
    observed: `${OBSERVED}{messages}`,
  },
  {
    setting: 'FANFARE_MESSAGES_PER_MINUTE_PER_IP',
    acted: [],
    observed: `${OBSERVED}{messages_per_ip}`,
  },
  {
    setting: 'FANFARE_MESSAGES_PER_MINUTE_PER_USER',
    acted: [],
    observed: `${OBSERVED}{messages_per_user}`,
  },
  {
    setting: 'FANFARE_BROADCASTS_PER_MINUTE_PER_IP',
    acted: [],
    observed: `${OBSERVED}{broadcasts_per_ip}`,
  },
  {
    setting: 'FANFARE_MAX_ROOMS_PER_CONNECTION',
    acted: ['websocket_errors_total{ROOM_LIMIT}'],
    observed: `${OBSERVED}{rooms}`,
  },
  {
    setting: 'FANFARE_FRAMES_PER_MINUTE',
    acted: ['fanfare_reader_closes_total{flood}'],
    observed: `${OBSERVED}{frames}`,
  },
  {
    setting: 'FANFARE_HANDSHAKES_PER_MINUTE_PER_IP',
    acted: [`${REFUSED}{handshakes_per_ip}`],
    observed: `${OBSERVED}{handshakes_per_ip}`,
  },
  {
    setting: 'FANFARE_MAX_HANDSHAKES',
    acted: [`${REFUSED}{handshakes}`],
    observed: `${OBSERVED}{handshakes}`,
  },
  {
    setting: 'FANFARE_MAX_LOOP_LAG_MS',
    mode: OVERLOAD_MODE,
    acted: [`${REFUSED}{loop_lag}`],
    observed: `${OBSERVED}{loop_lag}`,
  },
  {
    setting: 'FANFARE_MAX_HEAP_PERCENT',
    mode: OVERLOAD_MODE,
    acted: [`${REFUSED}{memory}`],
    observed: `${OBSERVED}{memory}`,
  },
  {
    setting: 'FANFARE_API_MESSAGES_PER_MINUTE',
    acted: ['fanfare_api_refused_total{rate}'],
    observed: `${OBSERVED}{api_messages}`,
  },
]);

/** The metrics that the table reads. */
export const LIMIT_METRICS = new Set(
  LIMITS.flatMap(({ acted, observed }) => [...acted, observed]).map((key) => key.split('{')[0]),
);

/**
 * @typedef {object} LimitRow
 * @property {string} setting
 * @property {string} meaning
 * @property {string} unit
 * @property {number} value
 * @property {import('../config/settings.js').Mode} mode
 * @property {number|null} acted refusals since the start of the server; null: counted in a row above
 * @property {number} observed
 */

/**
 * @param {import('../config/settings.js').Config} config
 * @param {ReadonlyMap<string, number>} totals
 * @returns {LimitRow[]}
 */
export function limitsOf(config, totals) {
  const values = /** @type {Record<string, any>} */ (/** @type {unknown} */ (config));
  const count = (/** @type {string} */ key) => totals.get(key) ?? 0;
  return LIMITS.map(({ setting, mode = `${setting}_MODE`, acted, observed }) => {
    const { key, meaning, unit = '' } = rowOf(setting);
    return {
      setting,
      meaning,
      unit,
      value: values[key],
      mode: values[rowOf(mode).key],
      acted: acted.length === 0 ? null : acted.reduce((sum, one) => sum + count(one), 0),
      observed: count(observed),
    };
  });
}

/**
 * @param {string} env
 * @returns {import('../config/settings.js').Setting}
 */
function rowOf(env) {
  const row = SETTINGS.find((setting) => setting.env === env);
  if (row === undefined) throw new Error(`no setting ${env}`);
  return row;
}
