// rows.js: the form of a metric in the tables of metrics.js and process-metrics.js.

/** @typedef {number|Record<string, number>} Value one, or several by label */

/**
 * @template S its source
 * @typedef {object} Row
 * @property {string} name @property {'counter'|'gauge'|'histogram'} type @property {string} help
 * @property {'sum'|'max'|'min'|'first'} [aggregator] over the workers; counters and histograms
 *   always add up
 * @property {string} [label] its values are the keys that `read` returns. Two labels have a comma
 *   between them, and so have their values.
 * @property {readonly string[]} [values] of the label of a histogram
 * @property {readonly number[]} [buckets] of a histogram, ascending
 * @property {(source: S) => Value} [read] absent for histograms
 */

/**
 * @template S @param {string} title the name, perhaps with a label: `errors_total{code}`
 * @param {(source: S) => Value} read @param {string} help @returns {Row<S>}
 */
export function counter(title, read, help) {
  return { ...named(title), type: 'counter', help, read };
}

/**
 * @template S @param {string} title @param {'sum'|'max'|'min'|'first'} aggregator
 * @param {(source: S) => Value} read @param {string} help @returns {Row<S>}
 */
export function gauge(title, aggregator, read, help) {
  return { ...named(title), type: 'gauge', aggregator, help, read };
}

/**
 * @param {string} title @param {readonly number[]} buckets @param {string} help
 * @param {readonly string[]} [values] of its label @returns {Row<any>} it reads no source
 */
export function histogram(title, buckets, help, values) {
  return { ...named(title), type: 'histogram', buckets, help, values };
}

/** @param {string} title */
function named(title) {
  const [name, label] = title.split(/[{}]/);
  return { name, label };
}
