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
 * @param {readonly string[]} head
 * @param {readonly (readonly (string|number)[])[]} rows
 * @param {number} [left] columns that hold text, and are aligned to the left
 * @returns {string[]} lines
 */
export function markdownTable(head, rows, left = 0) {
  const line = (/** @type {readonly (string|number)[]} */ cells) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, i) => (i < left ? '---' : '---:'))), ...rows.map(line)];
}
