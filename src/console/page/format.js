// format.js: figures and times as people read them.

const COMPACT = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });
const WHOLE = new Intl.NumberFormat('en');
const SECOND = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
});
const BYTE_UNITS = ['B', 'KB', 'MB', 'GB', 'TB'];
const DASH = '–';

/** @typedef {'count'|'perSecond'|'events'|'ms'|'bytes'} Unit */

/** Behind the figure, by unit. */
const SUFFIX = Object.freeze({ count: '', perSecond: '/s', ms: ' ms' });

/** @param {number} value */
export function whole(value) {
  return WHOLE.format(value);
}

/** @param {number} value */
export function compact(value) {
  return Math.abs(value) < 10_000
    ? WHOLE.format(Number(value.toPrecision(4)))
    : COMPACT.format(value);
}

/** @param {number} value */
export function bytes(value) {
  const power = value < 1 ? 0 : Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log10(value) / 3));
  return `${Number((value / 1000 ** power).toPrecision(3))} ${BYTE_UNITS[power]}`;
}

/** @param {Unit} unit @param {number|null|undefined} value @returns {string} with its unit */
export function quantity(unit, value) {
  if (value === null || value === undefined) return DASH;
  if (unit === 'bytes') return bytes(value);
  if (unit === 'events') return compact(value);
  const digits = value >= 100 ? Math.round(value) : Number(value.toPrecision(3));
  const text = unit === 'count' ? compact(value) : compact(unit === 'ms' ? digits : round(value));
  return text + SUFFIX[unit];
}

/** Short, without the unit in the chart's head. @param {Unit} unit @param {number} value */
export function axisText(unit, value) {
  return unit === 'bytes' ? bytes(value) : COMPACT.format(value);
}

/** @param {number} value */
function round(value) {
  return value >= 10 ? Math.round(value) : Math.round(value * 10) / 10;
}

/** @param {number} timeMs */
export function clock(timeMs) {
  return SECOND.format(timeMs);
}

/** @param {number} seconds */
export function duration(seconds) {
  const units = /** @type {const} */ ([
    ['d', 86_400],
    ['h', 3600],
    ['min', 60],
  ]);
  for (const [index, [name, size]] of units.entries()) {
    if (seconds < size) continue;
    const [nextName, nextSize] = units[index + 1] ?? ['s', 1];
    const rest = Math.floor((seconds % size) / nextSize);
    return `${Math.floor(seconds / size)} ${name}${rest > 0 ? ` ${rest} ${nextName}` : ''}`;
  }
  return `${Math.max(0, Math.floor(seconds))} s`;
}

/** @param {number} count @param {string} noun */
export function plural(count, noun) {
  return `${WHOLE.format(count)} ${noun}${count === 1 ? '' : 's'}`;
}
