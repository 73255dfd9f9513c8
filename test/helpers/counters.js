// counters.js: compares two pages of metrics: a counter may never fall.

import { samples } from '../harness/server.js';

/**
 * Names of the samples that may never fall: those of counters and histograms.
 * @param {string} text @returns {Set<string>}
 */
function cumulative(text) {
  /** @type {Set<string>} */
  const names = new Set();
  for (const [, name, type] of text.matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
    if (type === 'counter') names.add(name);
    if (type === 'histogram')
      for (const part of ['bucket', 'sum', 'count']) names.add(`${name}_${part}`);
  }
  return names;
}

/**
 * Counters of `before` that are gone or smaller in `after`.
 * @param {string} before @param {string} after @returns {string[]}
 */
export function fallen(before, after) {
  const names = cumulative(before);
  const now = samples(after);
  const result = [];
  for (const [key, value] of samples(before)) {
    if (!names.has(key.replace(/\{.*$/s, ''))) continue;
    const later = now.get(key);
    if (later === undefined || later < value) result.push(`${key}: ${value} -> ${later}`);
  }
  return result;
}
