// limits.js: the limits of this server, with their modes and how often each of them acted.

import { SETTINGS } from '../config/settings.js';

/**
 * The counters of a limit, by the setting of its value: refusals, and requests that the mode
 * `observe` has let through.
 * @type {Readonly<Record<string, {acted?: string, observed?: string}>>}
 */
const COUNTERS = Object.freeze({
  FANFARE_MAX_CONNECTIONS_PER_IP: row(
    'fanfare_admissions_refused_total{per_ip}',
    'connections_per_ip',
  ),
  FANFARE_MAX_CONNECTIONS_PER_USER: {
    acted: 'fanfare_auth_closes_total{user_limit}',
    observed: 'fanfare_user_limit_observed_total',
  },
  FANFARE_MESSAGES_PER_MINUTE: row('websocket_errors_total{RATE_LIMIT_EXCEEDED}', 'messages'),
  FANFARE_MESSAGES_PER_MINUTE_PER_IP: row(undefined, 'messages_per_ip'),
  FANFARE_MESSAGES_PER_MINUTE_PER_USER: row(undefined, 'messages_per_user'),
  FANFARE_BROADCASTS_PER_MINUTE_PER_IP: row(undefined, 'broadcasts_per_ip'),
  FANFARE_FRAMES_PER_MINUTE: row('fanfare_reader_closes_total{flood}', 'frames'),
  FANFARE_MAX_HANDSHAKES: row('fanfare_admissions_refused_total{handshakes}', 'handshakes'),
  FANFARE_HANDSHAKES_PER_MINUTE_PER_IP: row(
    'fanfare_admissions_refused_total{handshakes_per_ip}',
    'handshakes_per_ip',
  ),
  FANFARE_MAX_ROOMS_PER_CONNECTION: row('websocket_errors_total{ROOM_LIMIT}', 'rooms'),
  FANFARE_API_MESSAGES_PER_MINUTE: row('fanfare_api_refused_total{rate}', 'api_messages'),
});

/** The metrics that the table reads. */
export const LIMIT_METRICS = new Set([
  'fanfare_admissions_refused_total',
  'fanfare_auth_closes_total',
  'fanfare_user_limit_observed_total',
  'fanfare_limits_observed_total',
  'fanfare_reader_closes_total',
  'fanfare_api_refused_total',
  'websocket_errors_total',
]);

/** @typedef {import('../config/settings.js').Config} Config */

/**
 * @typedef {object} LimitRow
 * @property {string} setting
 * @property {string} meaning
 * @property {string} unit
 * @property {number} value
 * @property {import('../config/settings.js').Mode} mode
 * @property {number|null} acted refusals of the workers that run, and of those before; null: the limit
 *   shares its counter with the row above it
 * @property {number} observed
 */

/**
 * @param {Config} config
 * @param {ReadonlyMap<string, number>} totals
 * @returns {LimitRow[]} in the order of the settings
 */
export function limitsOf(config, totals) {
  const values = /** @type {Record<string, any>} */ (/** @type {unknown} */ (config));
  /** @param {string|undefined} key */
  const count = (key) => (key === undefined ? null : (totals.get(key) ?? 0));
  return SETTINGS.filter(({ type }) => type === 'mode').flatMap(({ env, key: modeKey }) => {
    const setting = env.replace(/_MODE$/, '');
    const limit = SETTINGS.find((one) => one.env === setting && one.type === 'integer');
    if (limit === undefined) return [];
    const { acted, observed } = COUNTERS[setting] ?? {};
    return {
      setting,
      meaning: limit.meaning,
      unit: limit.unit ?? '',
      value: values[limit.key],
      mode: values[modeKey],
      acted: count(acted),
      observed: count(observed) ?? 0,
    };
  });
}

/**
 * @param {string|undefined} acted
 * @param {typeof import('../observability/counters.js').OBSERVED[number]} limit
 */
function row(acted, limit) {
  return { acted, observed: `fanfare_limits_observed_total{${limit}}` };
}
