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
// biome-ignore format: one or two lines each
export const LIMITS = Object.freeze([
  row('FANFARE_MAX_CONNECTIONS_PER_IP', 'connections_per_ip',
    [`${REFUSED}{per_ip}`, `${FLEET}{address}`]),
  row('FANFARE_MAX_CONNECTIONS_PER_USER', 'connections_per_user',
    ['fanfare_auth_closes_total{user_limit}', `${FLEET}{user}`], 'fanfare_user_limit_observed_total'),
  row('FANFARE_MESSAGES_RATE', 'messages', ['websocket_errors_total{RATE_LIMIT_EXCEEDED}']),
  row('FANFARE_MESSAGES_RATE_PER_IP', 'messages_per_ip', []),
  row('FANFARE_MESSAGES_RATE_PER_USER', 'messages_per_user', []),
  row('FANFARE_BROADCASTS_RATE_PER_IP', 'broadcasts_per_ip', []),
  row('FANFARE_MAX_ROOMS_PER_CONNECTION', 'rooms', ['websocket_errors_total{ROOM_LIMIT}']),
  row('FANFARE_FRAMES_RATE', 'frames', ['fanfare_reader_closes_total{flood}']),
  row('FANFARE_HANDSHAKES_RATE_PER_IP', 'handshakes_per_ip', [`${REFUSED}{handshakes_per_ip}`]),
  row('FANFARE_MAX_HANDSHAKES', 'handshakes', [`${REFUSED}{handshakes}`]),
  row('FANFARE_MAX_LOOP_LAG_MS', 'overload', [`${REFUSED}{loop_lag}`], `${OBSERVED}{loop_lag}`),
  row('FANFARE_MAX_HEAP_PERCENT', 'overload', [`${REFUSED}{memory}`], `${OBSERVED}{memory}`),
  row('FANFARE_API_MESSAGES_RATE', 'api_messages', ['fanfare_api_refused_total{rate}']),
]);

export const LIMIT_METRICS = new Set(
  LIMITS.flatMap(({ acted, observed }) => [...acted, observed]).map((key) => key.split('{')[0]),
);

/** @import { Config, Mode, Setting } from '../config/settings.js' */

/**
 * @typedef {object} LimitRow
 * @property {string} setting @property {string} meaning @property {string} unit
 * @property {number} value @property {Mode} mode
 * @property {number|null} acted refusals since the start of the server; null: counted in a row above
 * @property {number} observed
 */

/** @param {Config} config @param {ReadonlyMap<string, number>} totals @returns {LimitRow[]} */
export function limitsOf(config, totals) {
  const values = /** @type {Record<string, any>} */ (/** @type {unknown} */ (config));
  const count = (/** @type {string} */ key) => totals.get(key) ?? 0;
  return LIMITS.map(({ setting, limit, acted, observed }) => {
    const mode = LIMIT_MODES.find((one) => one.limit === limit)?.key ?? '';
    const { key, meaning, burst, unit = '' } = settingOf(setting);
    return {
      setting,
      meaning,
      unit: burst === undefined ? unit : `a minute, burst ${values[burst]}`,
      value: values[key],
      mode: values[mode],
      acted: acted.length === 0 ? null : acted.reduce((sum, one) => sum + count(one), 0),
      observed: count(observed),
    };
  });
}

/**
 * @param {string} setting @param {string} limit @param {readonly string[]} acted
 * @param {string} [observed] @returns {Limit}
 */
function row(setting, limit, acted, observed = `${OBSERVED}{${limit}}`) {
  return { setting, limit, acted, observed };
}

/** @param {string} env @returns {Setting} */
function settingOf(env) {
  const found = SETTINGS.find((setting) => setting.env === env);
  if (found === undefined) throw new Error(`no setting ${env}`);
  return found;
}
