// nearest.js: "did you mean": finds the known name that a misspelt one resembles.

/** Two, because swapping two letters takes two steps. */
export const MAX_STEPS = 2;

/**
 * @param {string} name @param {Iterable<string>} known
 * @returns {string} the nearest known name within MAX_STEPS, whatever its case; '' if there is none
 */
export function nearest(name, known) {
  const lower = name.toLowerCase();
  let found = '';
  let least = MAX_STEPS + 1;
  // Two steps would turn most of a shorter name into something else: `ls` into `who`.
  const most = Math.min(MAX_STEPS, lower.length - 2);
  for (const one of known) {
    if (!isWithin(most, lower, one.toLowerCase())) continue;
    const steps = distance(lower, one.toLowerCase());
    if (steps < least) [found, least] = [one, steps];
  }
  return found;
}

/** @param {string} name @param {Iterable<string>} known @returns {string} a hint, or '' */
export function didYouMean(name, known) {
  const found = nearest(name, known);
  return found === '' ? '' : `; did you mean ${found}?`;
}

/**
 * Is their distance at most `steps`? Quick for the many names that resemble no setting.
 * @param {number} steps @param {string} a @param {string} b
 */
export function isWithin(steps, a, b) {
  return Math.abs(a.length - b.length) <= steps && distance(a, b) <= steps;
}

/** The Levenshtein distance. @param {string} a @param {string} b */
export function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length];
}
