// rates.js: reads rates: `100/min burst 20`, or `100/min` with the default burst.
//
// A rate is a token bucket: what a minute refills, and what may come at once. Each number once had
// a setting: those names are still read.

import { SETTINGS } from './settings.js';

const RATE = /^(\d{1,10})\s*\/\s*min(?:\s+burst\s+(\d{1,10}))?$/;
const MAX = 1e9;

/** @import { Setting } from './settings.js' */

/** The names of older versions for one rate: its refill, its burst. @param {string} env */
export function oldNamesOf(env) {
  return [env.replace('_RATE', '_PER_MINUTE'), env.replace('_RATE', '_BURST')];
}

export const RATES = SETTINGS.filter(({ type }) => type === 'rate');

/**
 * Reads a rate into the two entries of its row. If the text is invalid, they get the default.
 * @param {Setting} setting @param {string} text @param {Record<string, unknown>} values
 * @returns {string} the fault, or ''
 */
export function readRate({ env, key, burst: burstKey = '', default: usual }, text, values) {
  [values[key], values[burstKey]] = numbersOf(String(usual));
  if (text === '') return '';
  const [perMinute, burst] = numbersOf(text);
  if (![perMinute, burst ?? 1].every((number) => number >= 1 && number <= MAX))
    return `${env}: ${JSON.stringify(text)} is not a rate: 100/min, or 100/min burst 20, from 1 to ${MAX}`;
  values[key] = perMinute;
  values[burstKey] = burst ?? values[burstKey];
  return '';
}

/** @param {string} text @returns {[perMinute: number, burst: number|undefined]} NaN: not a rate */
function numbersOf(text) {
  const [, perMinute, burst] = RATE.exec(text) ?? [];
  return [Number(perMinute), burst === undefined ? undefined : Number(burst)];
}

/**
 * @param {Record<string, unknown>} values gets the rates that are set by their old names
 * @param {(name: string) => string} textOf the environment
 * @returns {{faults: string[], warnings: string[]}} warnings name the new form of an old setting
 */
export function readOldRates(values, textOf) {
  /** @type {string[]} */
  const faults = [];
  /** @type {string[]} */
  const warnings = [];
  for (const { env, key, burst = '' } of RATES) {
    const keys = [key, burst];
    const used = oldNamesOf(env).filter((old, i) => {
      const text = textOf(old);
      if (text === '') return false;
      if (textOf(env) !== '') faults.push(`${old}: ${env} is set, too; set one of them`);
      else if (!/^\d{1,10}$/.test(text) || Number(text) < 1 || Number(text) > MAX)
        faults.push(`${old}: ${JSON.stringify(text)} is not an integer from 1 to ${MAX}`);
      else values[keys[i]] = Number(text);
      return true;
    });
    if (used.length === 0) continue;
    const verb = used.length === 1 ? 'is an old name' : 'are old names';
    const rate = `${values[key]}/min burst ${values[burst]}`;
    warnings.push(`${used.join(' and ')} ${verb}: set ${env}=${rate}`);
  }
  return { faults, warnings };
}
