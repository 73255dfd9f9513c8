// figures.js: how figures are shown: medians, numbers with separators, tables in Markdown.

/** @param {readonly number[]} numbers */
export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * @param {number} number
 * @param {number} [digits] behind the point
 * @returns {string} with separators between thousands; – if it is not finite
 */
export function show(number, digits = 0) {
  if (!Number.isFinite(number)) return '–';
  const range = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return number.toLocaleString('en', range);
}

/**
 * @param {number} value
 * @returns {string} with as many digits as a repetition would confirm
 */
export function showMs(value) {
  return `${show(value, value < 10 ? 1 : 0)} ms`;
}

/**
 * Markdown for a terminal. A row of a table becomes a column, so that long titles do not make it
 * wider than a window.
 * @param {string} text @returns {string}
 */
export function forTerminal(text) {
  return text.replaceAll(/\*\*|`/g, '').replace(/(^\|.*\|\n?)+/gm, (block) => {
    const [head, , ...rows] = block
      .trim()
      .split('\n')
      .map((line) => line.slice(1, -1).split('|'))
      .map((cells) => cells.map((cell) => cell.trim()));
    const width = (/** @type {string[]} */ cells) => Math.max(...cells.map(({ length }) => length));
    const line = (/** @type {string} */ title, /** @type {number} */ i) =>
      [title.padEnd(width(head)), ...rows.map((row) => row[i].padStart(width(row)))].join('  ');
    return `${head.map(line).join('\n')}\n`;
  });
}

/**
 * @param {readonly string[]} head
 * @param {readonly (readonly (string|number)[])[]} rows
 * @param {number} [left] columns that hold text, and are aligned to the left
 * @returns {string[]} lines
 */
export function markdownTable(head, rows, left = 0) {
  const line = (/** @type {readonly (string|number)[]} */ cells) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, i) => (i < left ? '---' : '---:'))), ...rows.map(line)];
}
