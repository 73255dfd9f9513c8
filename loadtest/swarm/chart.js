// chart.js: a line chart as SVG, drawn when the report is written: it is there without any script,
// and when printed.
//
// The figure carries its data, so that the script of the report can show the values under the
// pointer.

/** @typedef {{name: string, from: number, to: number}} Span */

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {number} tone 0 … 3: which of the report's colours
 * @property {(readonly [number, number|null])[]} points x rising; null is a gap
 */

/**
 * @typedef {object} Chart
 * @property {string} title
 * @property {string} unit of the values: ' ms', '/s', ' %'; stands behind them
 * @property {string} xUnit
 * @property {Series[]} series
 * @property {Span[]} [spans] shaded, with their names; x is stretched where one would be too narrow
 *   to see
 * @property {{value: number, name: string}} [mark] a level to compare with
 * @property {boolean} [log] logarithmic values
 * @property {boolean} [dots] a dot at each point
 * @property {string} [note] a line below
 */

/** Of the drawing; the page scales it, and keeps the letters at one size (report.js). */
export const WIDTH = 640;
const HEIGHT = 230;
const EDGE = Object.freeze({ left: 52, right: 12, top: 22, bottom: 26 });
const X_TICKS = 7;
const Y_TICKS = 5;
/** Narrowest span, and nearest labels below the axis, of WIDTH. */
const MIN_SPAN = 68;
const MIN_TICK = 56;
/** Spans take no more than this share from the others. */
const MAX_STRETCHED = 0.75;
/**
 * Width of a letter of a span's name, of WIDTH, in a chart as wide as a desktop's and as narrow as
 * a phone's.
 */
const LETTER = 7.5;
const PHONE_LETTER = 14;

/**
 * @param {Chart} chart
 * @returns {string} HTML; '' if there is nothing to draw
 */
export function chartFigure({
  title,
  unit,
  xUnit,
  series,
  spans = [],
  mark,
  log = false,
  dots = false,
  note,
}) {
  const drawn = series.filter(({ points }) => points.some(([, value]) => value !== null));
  const values = drawn.flatMap(({ points }) =>
    points.flatMap(([, value]) => (value === null ? [] : [value])),
  );
  if (values.length === 0) return '';
  const right = WIDTH - EDGE.right;
  const xs = drawn.flatMap(({ points }) => points.map(([at]) => at));
  const x = stretched(Math.min(...xs, ...spans.map(({ from }) => from)), Math.max(...xs), spans);
  const most = Math.max(...values, mark?.value ?? 0);
  const y = log
    ? logScale(
        Math.min(...values.filter((value) => value > 0), most),
        most,
        HEIGHT - EDGE.bottom,
        EDGE.top,
      )
    : scale(0, niceTicks(0, most, Y_TICKS).at(-1) ?? 1, HEIGHT - EDGE.bottom, EDGE.top);
  const yTicks = log ? decades(y.low, y.high) : niceTicks(0, y.high, Y_TICKS);
  const parts = [
    ...spans.map((span, i) => band(span, x, right, i)),
    ...yTicks.map(
      (value) =>
        `<line class="grid" x1="${EDGE.left}" x2="${right}" y1="${px(y.at(value))}" y2="${px(y.at(value))}"/>` +
        `<text class="tick" x="${EDGE.left - 6}" y="${px(y.at(value))}" text-anchor="end" dominant-baseline="central">${short(value)}</text>`,
    ),
    ...apart(
      niceTicks(x.low, x.high, X_TICKS).filter((value) => value >= x.low && value <= x.high),
      x,
    ).map(
      (value) =>
        `<text class="tick" x="${px(x.at(value))}" y="${HEIGHT - EDGE.bottom + 5}" text-anchor="${value === x.low ? 'start' : 'middle'}" dominant-baseline="hanging">${short(value)}${xUnit}</text>`,
    ),
    mark
      ? `<line class="mark" x1="${EDGE.left}" x2="${right}" y1="${px(y.at(mark.value))}" y2="${px(y.at(mark.value))}"/>` +
        `<text class="tick" x="${EDGE.left + 4}" y="${px(y.at(mark.value) - 5)}">${escaped(mark.name)}</text>`
      : '',
    ...drawn.map(
      ({ points, tone }) => `<path class="line tone${tone}" d="${pathOf(points, x, y)}"/>`,
    ),
    ...(dots ? drawn : []).flatMap(({ points, tone }) =>
      points.flatMap(([at, value]) =>
        value === null
          ? []
          : [
              `<circle class="dot tone${tone}" cx="${px(x.at(at))}" cy="${px(y.at(value))}" r="3"/>`,
            ],
      ),
    ),
    `<line class="axis" x1="${EDGE.left}" x2="${right}" y1="${HEIGHT - EDGE.bottom}" y2="${HEIGHT - EDGE.bottom}"/>`,
    `<line class="cursor" y1="${EDGE.top}" y2="${HEIGHT - EDGE.bottom}" x1="0" x2="0"/>`,
  ];
  const keys =
    drawn.length > 1
      ? drawn.map(({ name, tone }) => `<span class="key tone${tone}">${escaped(name)}</span>`)
      : [];
  const data = JSON.stringify({
    unit,
    xUnit,
    x: x.knots.map(([value, at]) => [rounded(value), rounded(at / WIDTH)]),
    series: drawn.map(({ name, tone, points }) => ({
      name,
      tone,
      points: points.map(([at, value]) => [rounded(at), value === null ? null : rounded(value)]),
    })),
  });
  return [
    '<figure class="chart">',
    `<figcaption><strong>${escaped(title)}</strong> <small>${escaped(unit.trim())}${log ? ', logarithmic' : ''}</small><span class="keys">${keys.join('')}</span></figcaption>`,
    `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escaped(title)}">${parts.join('')}</svg>`,
    note ? `<p class="note">${escaped(note)}</p>` : '',
    `<script type="application/json">${data.replaceAll('<', '\\u003c')}</script>`,
    '</figure>',
  ].join('\n');
}

/** @typedef {{low: number, high: number, at: (value: number) => number}} Scale */

/**
 * @param {number} low
 * @param {number} high
 * @param {number} from pixels
 * @param {number} to
 * @returns {Scale}
 */
function scale(low, high, from, to) {
  const size = high - low || 1;
  return { low, high, at: (value) => from + ((value - low) / size) * (to - from) };
}

/**
 * From the left edge to the right one, with each span at least MIN_SPAN wide: half a second of a
 * minute can be seen.
 * @param {number} low @param {number} high @param {readonly Span[]} spans
 * @returns {Scale & {knots: [number, number][], isStretched: boolean}} `knots`: values and where
 *   they are; straight between
 */
export function stretched(low, high, spans) {
  const [from, to] = [EDGE.left, WIDTH - EDGE.right];
  const end = high > low ? high : low + 1;
  const within = (/** @type {number} */ value) => Math.min(end, Math.max(low, value));
  const cuts = [low, end, ...spans.flatMap((span) => [within(span.from), within(span.to)])];
  const edges = [...new Set(cuts)].sort((a, b) => a - b);
  const least = Math.min(MIN_SPAN, ((to - from) * MAX_STRETCHED) / Math.max(1, spans.length));
  const parts = edges.slice(1).map((edge, i) => {
    const middle = (edges[i] + edge) / 2;
    return {
      time: edge - edges[i],
      isSpan: spans.some((span) => span.from < middle && middle < span.to),
      isShort: false,
    };
  });
  // If one part gets more, the others get less, so that the next one may be too narrow.
  let perTime = 0;
  for (let before = -1, short = 0; short !== before; ) {
    before = short;
    const time = parts.reduce((sum, part) => sum + (part.isShort ? 0 : part.time), 0);
    perTime = time > 0 ? (to - from - short * least) / time : 0;
    for (const part of parts) part.isShort ||= part.isSpan && part.time * perTime < least;
    short = parts.filter((part) => part.isShort).length;
  }
  const widths = parts.map((part) => (part.isShort ? least : part.time * perTime));
  // All of them are short: they share the whole.
  const factor = (to - from) / widths.reduce((sum, width) => sum + width, 0);
  /** @type {[number, number][]} */
  const knots = [[low, from]];
  for (const [i, width] of widths.entries())
    knots.push([edges[i + 1], knots[i][1] + width * factor]);
  const at = (/** @type {number} */ value) => {
    const i = Math.max(
      1,
      knots.findIndex(([knot]) => knot >= value),
    );
    const [[a, left], [b, right]] = value > end ? knots.slice(-2) : [knots[i - 1], knots[i]];
    return left + ((value - a) / (b - a)) * (right - left);
  };
  return { low, high: end, at, knots, isStretched: parts.some((part) => part.isShort) };
}

/**
 * @param {readonly number[]} values rising
 * @param {Scale} x
 * @returns {number[]} those whose labels do not touch
 */
function apart(values, x) {
  let last = Number.NEGATIVE_INFINITY;
  return values.filter((value) => {
    if (x.at(value) - last < MIN_TICK) return false;
    last = x.at(value);
    return true;
  });
}

/**
 * Whole decades.
 * @param {number} low above 0
 * @param {number} high
 * @param {number} from
 * @param {number} to
 * @returns {Scale}
 */
function logScale(low, high, from, to) {
  const least = Math.floor(Math.log10(Math.max(low, 0.01)));
  const most = Math.max(least + 1, Math.ceil(Math.log10(Math.max(high, 0.01)) - 0.001));
  const linear = scale(least, most, from, to);
  return {
    low: 10 ** least,
    high: 10 ** most,
    at: (value) => linear.at(Math.min(most, Math.max(least, Math.log10(Math.max(value, 1e-9))))),
  };
}

/** @param {number} low @param {number} high @returns {number[]} */
function decades(low, high) {
  const ticks = [];
  for (let value = low; value <= high * 1.001; value *= 10)
    ticks.push(Number(value.toPrecision(3)));
  return ticks;
}

/**
 * Steps of 1, 2 or 5 × 10ⁿ, the last at or beyond the end.
 * @param {number} low
 * @param {number} end
 * @param {number} count approximate
 * @returns {number[]}
 */
export function niceTicks(low, end, count) {
  const high = end > low ? end : low + 1;
  const raw = (high - low) / count;
  const magnitude = 10 ** Math.floor(Math.log10(raw));
  const step =
    magnitude * ([1, 2, 5, 10].find((factor) => factor * magnitude >= raw * 0.999) ?? 10);
  const ticks = [];
  for (let i = Math.floor(low / step); ; i++) {
    ticks.push(Number((i * step).toPrecision(10)));
    if (i * step >= high - step * 1e-9) return ticks;
  }
}

/** @param {readonly (readonly [number, number|null])[]} points @param {Scale} x @param {Scale} y */
function pathOf(points, x, y) {
  let isPenUp = true;
  let path = '';
  for (const [at, value] of points) {
    if (value === null) {
      isPenUp = true;
      continue;
    }
    path += `${isPenUp ? 'M' : 'L'}${px(x.at(at))} ${px(y.at(value))}`;
    isPenUp = false;
  }
  return path;
}

/** @param {Span} span @param {Scale} x @param {number} edge @param {number} index */
function band({ name, from, to }, x, edge, index) {
  const [left, right] = [x.at(from), Math.min(x.at(to), edge)];
  const width = Math.max(0, right - left);
  const tight = width > name.length * PHONE_LETTER ? '' : ' tight';
  const label =
    width > name.length * LETTER - 10
      ? `<text class="phase${tight}" x="${px(left + 4)}" y="${EDGE.top - 17}" dominant-baseline="hanging">${escaped(name)}</text>`
      : '';
  const seconds = Number((to - from).toPrecision(3));
  return `<rect class="band${index % 2}" x="${px(left)}" y="${EDGE.top - 20}" width="${px(width)}" height="${HEIGHT - EDGE.bottom - EDGE.top + 20}"><title>${escaped(name)}: ${seconds} s</title></rect>${label}`;
}

/** @param {number} value */
function px(value) {
  return Math.round(value * 10) / 10;
}

/** @param {number} value */
function rounded(value) {
  return Number(value.toPrecision(6));
}

/**
 * @param {number} value
 * @returns {string} 12,500 as 12.5k
 */
function short(value) {
  const units = /** @type {const} */ ([
    [1e9, 'G'],
    [1e6, 'M'],
    [1e3, 'k'],
  ]);
  const [size, unit] = units.find(([least]) => Math.abs(value) >= least) ?? [1, ''];
  return `${Number((value / size).toPrecision(3))}${unit}`;
}

/**
 * @param {unknown} text
 * @returns {string} for HTML
 */
export function escaped(text) {
  return String(text).replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}
