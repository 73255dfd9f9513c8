// plot.js: how uPlot draws a chart: its axes, lines or stacked bars, and the marks of events.

import { axisText, clock } from './format.js';

/** @import { Line, Mark } from './samples.js' */
/** @typedef {import('./format.js').Unit} Unit */
/** @typedef {import('uplot')} Plot */

/** @type {typeof import('uplot')} */
export const UPlot = /** @type {any} */ (globalThis).uPlot;

const HEIGHT = 168;
const MAX_COLORS = 8;
/** Steps of the time axis. Its labels have no seconds, so it has no step below a minute. */
const TIME_STEPS_S = [60, 120, 300, 600];
/** Half the width of a time label, so that the label of the last minute is not cut. */
const LABEL_REST = 20;

/** @param {number} index of a line @returns {string} the custom property of its colour */
export function colorOf(index) {
  return `--line-${(index % MAX_COLORS) + 1}`;
}

/**
 * @param {object} chart
 * @param {Unit} chart.unit @param {readonly Line[]} chart.lines @param {number} chart.width
 * @param {() => readonly Mark[]} chart.marks those of now
 * @param {(index: number|null) => void} chart.onCursor the sample under the cursor; null: none
 * @returns {import('uplot').Options}
 */
export function plotOptions({ unit, lines, width, marks, onCursor }) {
  return {
    width: Math.max(200, width),
    height: HEIGHT,
    padding: [8, LABEL_REST, 0, 0],
    legend: { show: false },
    cursor: {
      sync: { key: 'fanfare', setSeries: false },
      y: false,
      drag: { x: false, y: false },
      points: { size: 6 },
    },
    scales: { x: { time: true }, y: { range: (_plot, _min, max) => [0, top(max, unit)] } },
    axes: axesOf(unit),
    series: [{}, ...(unit === 'events' ? barsOf(lines) : curvesOf(lines))],
    hooks: {
      drawClear: [(plot) => drawOutages(plot, marks())],
      draw: [(plot) => drawMarks(plot, marks())],
      setCursor: [({ cursor }) => onCursor(cursor.idx ?? null)],
    },
  };
}

/** Noise of tiny values must not fill it. @param {number|null} max @param {Unit} unit */
function top(max, unit) {
  const least = { count: 4, perSecond: 2, events: 4, ms: 2, bytes: 1e6 }[unit];
  return Math.max(least, (max ?? 0) * 1.15);
}

/** @param {Unit} unit @returns {import('uplot').Axis[]} */
function axesOf(unit) {
  const axis = {
    stroke: color('--faint'),
    font: `11px ${getComputedStyle(document.body).fontFamily}`,
    grid: { stroke: color('--grid'), width: 1 },
    ticks: { show: false },
  };
  return [
    {
      ...axis,
      grid: { show: false },
      space: 56,
      incrs: TIME_STEPS_S,
      // Low enough that the first label does not touch the 0 of the other axis.
      size: 32,
      gap: 9,
      values: (_plot, splits) => splits.map((second) => clock(second * 1000).slice(0, 5)),
    },
    {
      ...axis,
      size: 48,
      gap: 6,
      space: 36,
      values: (_plot, splits) => splits.map((value) => axisText(unit, value)),
    },
  ];
}

/** @param {readonly Line[]} lines in the order of `stacked` @returns {import('uplot').Series[]} */
function barsOf(lines) {
  const paths = UPlot.paths.bars?.({ size: [0.8, 14, 2], align: 1 });
  const bars = lines.map(({ name }, i) => ({
    ...{ label: name, fill: color(colorOf(i)), width: 0, points: { show: false }, paths },
  }));
  return bars.reverse();
}

/** @param {readonly Line[]} lines @returns {import('uplot').Series[]} */
function curvesOf(lines) {
  const fill = lines.length === 1 ? color('--line-fill') : undefined;
  return lines.map(({ name }, i) => ({
    ...{ label: name, stroke: color(colorOf(i)), fill, width: 1.6 },
    points: { show: false },
    spanGaps: false,
  }));
}

/** The times without the broker as areas behind the lines. @param {Plot} plot @param {readonly Mark[]} marks */
function drawOutages(plot, marks) {
  const { ctx, bbox } = plot;
  const right = bbox.left + bbox.width;
  const xOf = (/** @type {number} */ timeMs) =>
    Math.min(right, Math.max(bbox.left, plot.valToPos(timeMs / 1000, 'x', true)));
  ctx.save();
  ctx.fillStyle = color('--outage');
  for (const [i, { kind, timeMs }] of marks.entries()) {
    if (kind !== 'outage') continue;
    const back = marks.slice(i).find((mark) => mark.kind === 'back');
    const end = back === undefined ? right : xOf(back.timeMs);
    ctx.fillRect(xOf(timeMs), bbox.top, end - xOf(timeMs), bbox.height);
  }
  ctx.restore();
}

/** Restarts, reloads, drains and outages as vertical lines. @param {Plot} plot @param {readonly Mark[]} marks */
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { timeMs, kind } of marks) {
    // A start explains nothing that the restart or reload before it does not.
    if (kind === 'start') continue;
    const x = Math.round(plot.valToPos(timeMs / 1000, 'x', true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = color(`--mark-${kind}`);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** A theme's colour, without variables. @param {string} name of a custom property */
function color(name) {
  const probe = document.body.appendChild(document.createElement('span'));
  probe.hidden = true;
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
