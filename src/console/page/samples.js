// samples.js: what the charts of this page show, as it comes from the server.

/**
 * @typedef {object} Line
 * @property {string} chart @property {string} name
 * @property {(number|null)[]} values with one for each time
 */

/** @typedef {{timeMs: number, kind: string, text: string}} Mark */

/** @typedef {{times: number[], lines: Line[]}} Figures */

/**
 * @typedef {object} Part an answer of the server: the samples after those that the page has
 * @property {number[]} times @property {Line[]} lines @property {Mark[]} marks
 * @property {number} startedMs
 * @property {{ready: number, workers: number, draining: boolean}} readiness
 * @property {{slot: number, state: string, pid: number|null}[]} slots
 * @property {import('../fleet-figures.js').Overview} fleet
 * @property {{sinceMs: number|null, without: number, workers: number}} broker `sinceMs`: the outage
 *   began; null: there is none
 */

export class Samples {
  /** ms since 1970, ascending. @type {number[]} */
  times = [];
  /** Lines by chart and name. @type {Map<string, Line>} */
  lines = new Map();
  /** @type {Mark[]} */
  marks = [];
  /** @type {Part|null} */
  last = null;

  /** @param {number} points the most that are kept */
  constructor(points) {
    this.points = points;
  }

  /** The time after which the page has no samples. */
  get since() {
    return this.times.at(-1) ?? 0;
  }

  /** @param {Part} part */
  addPart(part) {
    // A server that has started over has a history of its own.
    if (this.last !== null && this.last.startedMs !== part.startedMs) this.#clear();
    const before = this.times.length;
    this.times.push(...part.times);
    for (const { chart, name, values } of part.lines) {
      const key = `${chart} ${name}`;
      const line = this.lines.get(key) ?? { chart, name, values: nulls(before) };
      line.values.push(...values);
      this.lines.set(key, line);
    }
    const excess = Math.max(0, this.times.length - this.points);
    this.times.splice(0, excess);
    for (const line of this.lines.values()) {
      line.values.push(...nulls(before + part.times.length - line.values.length));
      line.values.splice(0, excess);
    }
    this.marks = part.marks;
    this.last = part;
  }

  /** @param {string} chart @returns {Line[]} with at least one value, those of workers by number */
  linesOf(chart) {
    return [...this.lines.values()]
      .filter((line) => line.chart === chart && line.values.some((value) => value !== null))
      .sort((one, other) => numberOf(one.name) - numberOf(other.name));
  }

  #clear() {
    this.times = [];
    this.lines.clear();
  }
}

/**
 * Adds up the events of the samples in each span.
 * @param {readonly number[]} times @param {readonly Line[]} lines @param {number} spanMs
 * @returns {Figures} `times`: the starts of the spans
 */
export function inSpans(times, lines, spanMs) {
  /** @type {number[]} */
  const starts = [];
  const places = times.map((timeMs) => {
    const start = Math.floor(timeMs / spanMs) * spanMs;
    if (starts.at(-1) !== start) starts.push(start);
    return starts.length - 1;
  });
  return {
    times: starts,
    lines: lines.map(({ chart, name, values }) => {
      /** @type {(number|null)[]} */
      const sums = Array(starts.length).fill(null);
      for (const [i, value] of values.entries())
        if (value !== null) sums[places[i]] = (sums[places[i]] ?? 0) + value;
      return { chart, name, values: sums };
    }),
  };
}

/** @param {number} count */
function nulls(count) {
  return /** @type {null[]} */ (Array(Math.max(0, count)).fill(null));
}

/** @param {string} name `worker 12` */
function numberOf(name) {
  return Number(/\d+$/.exec(name)?.[0] ?? 0);
}
