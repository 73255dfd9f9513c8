// newest.js: reads the output of test runs, and says in words what the newest programs break.

/** @typedef {{file: string, name: string, reason: string}} Failure `file` as `unit/hub` */

/**
 * @typedef {object} Trial of one program
 * @property {string} name with its version
 * @property {string} [note]
 * @property {Counts} [counts] absent if nothing was run
 * @property {readonly Failure[]} [failures] that failed twice
 * @property {readonly Failure[]} [chance] that failed once
 * @property {string} [lost] the end of an output that names no failed test, though the run failed
 */

/** @typedef {{tests: number, pass: number, fail: number, skipped: number}} Counts of several runs */

const NO_COUNTS = { tests: 0, pass: 0, fail: 0, skipped: 0 };
/** At the end of what node:test's `spec` prints: a place, a name, and an indented error. */
const FAILED =
  /^test at (?:test\/)?(\S+?)(?:\.test\.js)?:\d+:\d+\n✖ (.+) \([\d.]+ms\)\n((?: {2}.*\n|\n)*)/gm;
const MAX_REASON_LINES = 6;

/** @param {string} output @returns {Counts} */
export function countsOf(output) {
  const counts = { ...NO_COUNTS };
  for (const [, what, count] of output.matchAll(/^ℹ (tests|pass|fail|skipped) (\d+)$/gm))
    counts[/** @type {keyof Counts} */ (what)] += Number(count);
  return counts;
}

/** @param {string} output @returns {Failure[]} each test once, though several runs failed in it */
export function failuresOf(output) {
  /** @type {Map<string, Failure>} */
  const failures = new Map();
  for (const [, file, name, error] of output.matchAll(FAILED))
    failures.set(`${file} ${name}`, { file, name, reason: reasonOf(error) });
  return [...failures.values()];
}

/** The message, without the stack. @param {string} error @returns {string} */
function reasonOf(error) {
  const lines = error.split('\n').map((line) => line.trim());
  const stack = lines.findIndex((line) => line.startsWith('at '));
  return lines
    .slice(0, stack === -1 ? lines.length : stack)
    .filter((line) => line !== '' && line !== '+ actual - expected')
    .slice(0, MAX_REASON_LINES)
    .join('\n');
}

/**
 * The newest release in a list of versions.
 * @param {readonly string[]} versions those with a suffix, like `9.0.0-beta.1`, do not count
 * @returns {string}
 */
export function newestOf(versions) {
  const released = versions.filter((version) => /^\d+\.\d+\.\d+$/.test(version));
  if (released.length === 0) throw new Error('there is no released version');
  return released.sort(byVersion)[released.length - 1];
}

/** @param {string} one @param {string} other */
function byVersion(one, other) {
  const [a, b] = [one, other].map((version) => version.split('.').map(Number));
  return a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
}

/** @param {readonly Trial[]} trials @returns {{text: string, breaks: boolean}} */
export function verdictOf(trials) {
  return {
    text: trials.flatMap(linesOf).join('\n'),
    breaks: trials.some(({ failures = [], lost }) => failures.length > 0 || lost !== undefined),
  };
}

/** @param {Trial} trial @returns {string[]} */
function linesOf({ name, note = '', counts, failures = [], chance = [], lost }) {
  if (counts === undefined) return [`${name}: ${note}.`];
  const ran = `${counts.tests.toLocaleString('en')} tests, ${counts.skipped} skipped`;
  const lines = [];
  if (lost !== undefined)
    lines.push(`${name}: the run failed and names no test. Its output ends with:`, indented(lost));
  else if (failures.length === 0) lines.push(`${name}: ${ran}. Nothing breaks.`);
  else {
    lines.push(`${name}: ${ran}. ${failures.length} failed twice:`);
    for (const one of failures) lines.push(`  ${one.file}: ${one.name}`, indented(one.reason, 4));
  }
  for (const one of chance)
    lines.push(`  Failed once, and passed when it ran again: ${one.file}: ${one.name}`);
  if (note !== '') lines.push(`  ${note}.`);
  return lines;
}

/** @param {string} text @param {number} [spaces] */
function indented(text, spaces = 2) {
  return text.trimEnd().replace(/^/gm, ' '.repeat(spaces));
}
