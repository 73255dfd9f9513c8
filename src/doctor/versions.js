// versions.js: until when lines of Node get fixes, and which versions of Node and Redis have some.
//
// Both tables age, so a row is a note and not a fault: an old version does not limit the number of
// connections, and a distribution may have added the fix to a version that keeps its number.

/**
 * Lines of Node that the tests run on, and the day on which their support ends
 * (https://github.com/nodejs/Release, schedule.json).
 * @type {Readonly<Record<string, string>>}
 */
export const NODE_LINES = Object.freeze({
  20: '2026-04-30',
  22: '2027-04-30',
  24: '2028-04-30',
  26: '2029-04-30',
});

/**
 * The first version of each line without CVE-2026-111497, by which a body compressed by Brotli
 * writes outside its buffer. No door decodes bodies, but `fetch` in hooks does.
 * @type {Readonly<Record<string, string>>}
 */
export const BROTLI_FIXES = Object.freeze({ 22: '22.23.4', 24: '24.22.1', 26: '26.12.1' });

/**
 * @typedef {object} StoreFault
 * @property {string} name @property {string} effect
 * @property {{Redis?: readonly string[], Valkey?: readonly string[]}} fixes the first version of
 *   each line that has the fix. Lines before the last one that are not listed never got it
 */

/**
 * Faults of Redis and Valkey that an operator should know of, oldest first. Sources, as read on
 * 2026-11-29: docker-library/official-images#21922 and #22078, redis.io's advisory on
 * CVE-2026-81934, valkey-io/valkey#3631 to #3634, the release notes of Valkey 9.0.5 and 9.1.1.
 * @type {readonly StoreFault[]}
 */
export const STORE_FAULTS = Object.freeze([
  {
    name: 'CVE-2025-49844',
    effect: 'a user who may run scripts can run code in the server',
    fixes: {
      Redis: ['6.2.20', '7.2.11', '7.4.6', '8.0.4', '8.2.2'],
      Valkey: ['7.2.11', '8.0.6', '8.1.4'],
    },
  },
  {
    name: 'CVE-2026-23479',
    effect: 'a user can run code when a blocked client is evicted',
    // Redis has this fix in its releases of May 2026, and each of July includes it.
    fixes: { Valkey: ['7.2.13', '8.0.9', '8.1.7', '9.0.4', '9.1.0'] },
  },
  {
    name: 'CVE-2026-12087',
    effect: 'a user who may RESTORE a stream can run code in the server',
    fixes: { Redis: ['6.2.23', '7.2.15', '7.4.10', '8.2.8', '8.4.5', '8.6.5', '8.8.1'] },
  },
  {
    name: 'CVE-2026-63639',
    effect: 'a user who may RESTORE a corrupt stream can run code in the server',
    fixes: { Valkey: ['8.1.9', '9.0.5', '9.1.1'] },
  },
  {
    name: 'CVE-2026-81934',
    effect: 'with TLS, a client can run code in the server',
    fixes: {
      Redis: ['6.2.24', '7.2.16', '7.4.11', '8.2.9', '8.4.6', '8.6.6', '8.8.2', '8.10.1'],
    },
  },
  {
    name: 'CVE-2026-56684',
    effect: 'with TLS, a user who may kill clients can run code in the server',
    fixes: { Valkey: ['8.1.9', '9.0.5', '9.1.1'] },
  },
]);

/** @typedef {{product: 'Redis'|'Valkey', version: string}} RedisVersion */

/** @param {string} version `v22.1.0` @param {number} nowMs @returns {string} or '' */
export function nodeNote(version, nowMs) {
  const line = String(numbersOf(version)[0]);
  const end = NODE_LINES[line];
  if (end === undefined)
    return `Node ${line} is not among the tested lines (${Object.keys(NODE_LINES).join(', ')})`;
  const aged = endedNote(version, nowMs);
  if (aged !== '') return aged;
  const fix = BROTLI_FIXES[line];
  return fix === undefined || isAtLeast(version, fix)
    ? ''
    : `Node before ${fix} has no fix for CVE-2026-111497 (Brotli): the doors decode no bodies, but fetch in hooks does`;
}

/** @param {string} version `v20.20.2` @param {number} nowMs @returns {string} '' if its line gets fixes */
export function endedNote(version, nowMs) {
  const line = String(numbersOf(version)[0]);
  const end = NODE_LINES[line];
  // The line has support on its last day.
  return end !== undefined && nowMs >= Date.parse(end) + 86_400_000
    ? `Node ${line} has had no security fixes since its support ended on ${end}`
    : '';
}

/** @param {RedisVersion} version @returns {string} '' if it has all fixes */
export function storeNote({ product, version }) {
  const open = STORE_FAULTS.filter(({ fixes }) => !hasFix(version, fixes[product] ?? []));
  if (open.length === 0) return '';
  const faults = open.map(({ name, effect }) => `${name} (${effect})`).join(', ');
  return `${product} ${version} has no fix for ${faults}. Some distributions add a fix and keep the number`;
}

/** @param {string} version @param {readonly string[]} fixes by line, in order */
function hasFix(version, fixes) {
  const [major, minor, patch] = numbersOf(version);
  const rank = 1000 * major + minor;
  const known = fixes.map(numbersOf);
  const fix = known.find(([first, second]) => 1000 * first + second === rank);
  if (fix !== undefined) return patch >= fix[2];
  const last = known.at(-1);
  return last === undefined || rank > 1000 * last[0] + last[1];
}

/** @param {string} version @param {string} other of the same line */
function isAtLeast(version, other) {
  const [, minor, patch] = numbersOf(version);
  const [, least, leastPatch] = numbersOf(other);
  return minor > least || (minor === least && patch >= leastPatch);
}

/** @param {string} version */
function numbersOf(version) {
  return version.replace(/^v/, '').split('.').map(Number);
}
