// limit-modes.js: reads FANFARE_LIMITS, the modes of all limits.
//   enforce                             all limits act
//   observe,frames=off,rooms=enforce    all only count, but two have a mode of their own
//
// Each limit once had a setting for its mode: those names are still read.

import { didYouMean } from './nearest.js';
import { LIMIT_MODES, MODES } from './settings.js';

/** @import { Mode } from './settings.js' */

/**
 * @param {Record<string, unknown>} values gets the mode of each limit
 * @param {(name: string) => string} textOf the environment
 * @returns {{faults: string[], warnings: string[]}} warnings name the new form of an old setting
 */
export function readLimitModes(values, textOf) {
  const faults = [];
  const warnings = [];
  /** Modes by limit; that of all has the name ''. @type {Map<string, string>} */
  const modes = new Map();
  for (const entry of /** @type {string[]} */ (values.limits)) {
    const fault = readEntry(entry, modes);
    if (fault !== '') faults.push(`FANFARE_LIMITS: ${JSON.stringify(entry)} ${fault}`);
  }
  for (const { limit, key, old } of LIMIT_MODES) {
    const text = textOf(old);
    if (text !== '' && !isMode(text))
      faults.push(`${old}: ${JSON.stringify(text)} is not one of ${MODES.join(', ')}`);
    else if (text !== '' && modes.has(limit))
      faults.push(`${old}: FANFARE_LIMITS has a mode for ${limit}, too; set one of them`);
    else if (text !== '')
      warnings.push(`${old} is an old name: set FANFARE_LIMITS=…,${limit}=${text}`);
    values[key] = modes.get(limit) ?? (text || (modes.get('') ?? 'enforce'));
  }
  return { faults, warnings };
}

/** @param {string} entry `limit=mode` @param {Map<string, string>} modes @returns fault or '' */
function readEntry(entry, modes) {
  const parts = entry.split('=').map((part) => part.trim());
  const [limit, mode] = parts.length === 1 ? ['', parts[0]] : parts;
  if (parts.length > 2 || !isMode(mode)) return `is not one of ${MODES.join(', ')}`;
  const names = LIMIT_MODES.map((one) => one.limit);
  if (limit !== '' && !(/** @type {string[]} */ (names).includes(limit)))
    return `names no limit${didYouMean(limit, names) || `; the limits are ${names.join(', ')}`}`;
  if (parts.length === 2 && limit === '') return `is not one of ${MODES.join(', ')}`;
  if (modes.has(limit)) return limit === '' ? 'is a second mode of all limits' : 'is set twice';
  modes.set(limit, mode);
  return '';
}

/** @param {string} text @returns {text is Mode} */
function isMode(text) {
  return /** @type {readonly string[]} */ (MODES).includes(text);
}
