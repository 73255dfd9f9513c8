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
 * The first version of each line without CVE-2025-49844, by which a user with EVAL leaves Lua's
 * sandbox, and CVE-2025-46817 to 46819. Other lines never got the fix, or have it from the start.
 * @type {Readonly<Record<RedisVersion['product'], readonly string[]>>}
 */
export const LUA_FIXES = Object.freeze({
  Redis: Object.freeze(['6.2.20', '7.2.11', '7.4.6', '8.0.4', '8.2.2']),
  Valkey: Object.freeze(['7.2.11', '8.0.6', '8.1.4']),
});

/** @typedef {{product: 'Redis'|'Valkey', version: string}} RedisVersion */

/** @param {string} version `v22.1.0` @param {number} nowMs @returns {string} or '' */
export function nodeNote(version, nowMs) {
  const line = String(numbersOf(version)[0]);
  const end = NODE_LINES[line];
  if (end === undefined)
    return `Node ${line} is not among the tested lines (${Object.keys(NODE_LINES).join(', ')})`;
  // The line has support on its last day.
  if (nowMs >= Date.parse(end) + 86_400_000)
    return `Node ${line} has had no security fixes since its support ended on ${end}`;
  const fix = BROTLI_FIXES[line];
  return fix === undefined || isAtLeast(version, fix)
    ? ''
    : `Node before ${fix} has no fix for CVE-2026-111497 (Brotli): the doors decode no bodies, but fetch in hooks does`;
}

/** @param {RedisVersion} version @returns {string} '' if it has the fixes */
export function luaNote({ product, version }) {
  const [major, minor, patch] = numbersOf(version);
  const rank = 1000 * major + minor;
  const fixes = LUA_FIXES[product].map(numbersOf);
  const fix = fixes.find(([first, second]) => 1000 * first + second === rank);
  const [last] = fixes.slice(-1);
  const isFixed = fix === undefined ? rank > 1000 * last[0] + last[1] : patch >= fix[2];
  return isFixed
    ? ''
    : `${product} ${version} has no fix for CVE-2025-49844: a user who may run scripts can run code in the server. Some distributions add the fix and keep the number`;
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
