// charts.js: a chart of the page: a head with the latest value, the plot, its table of values.
//
// uPlot draws on a canvas, so a reader without sight or a mouse has two other ways: the arrow keys
// move the cursor over the plot, and a button shows the values as a table.

import { el, fill, h, icon } from './dom.js';
import { axisText, clock, quantity } from './format.js';
import { inSpans } from './store.js';

/** @import { Figures, Line, Store } from './store.js' */

const WINDOW_S = 15 * 60;
/** The window of a server that has just started. */
const LEAST_WINDOW_S = 2 * 60;
const HEIGHT = 168;
const MAX_COLORS = 8;
const MAX_ROWS = 100;
/** Events are counted in these spans: samples of 3 s would draw a comb and not a rate. */
const SPAN_MS = 30_000;
/** Steps of the time axis. Its labels have no seconds, so it has no step below a minute. */
const TIME_STEPS_S = [60, 120, 300, 600];
/** Half the width of a time label, so that the label of the last minute is not cut. */
const LABEL_REST = 20;

/** @typedef {import('./format.js').Unit} Unit */
/** @typedef {{id: string, title: string, help: string, unit: Unit}} ChartInfo */

/** @type {typeof import('uplot')} */
const UPlot = /** @type {any} */ (globalThis).uPlot;

export class Chart {
  #plot = /** @type {import('uplot')|null} */ (null);
  /** The names of the lines that the plot has. */
  #names = '';
  #isTable = false;

  /** @param {ChartInfo} info @param {Store} store */
  constructor(info, store) {
    this.info = info;
    this.store = store;
    const titleId = `chart-${info.id}`;
    this.value = el('p.chart-value');
    this.legend = el('ul.legend');
    this.canvas = h('div.plot', {
      tabindex: 0,
      role: 'img',
      'aria-labelledby': titleId,
      'aria-describedby': `${titleId}-text`,
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.#move(event),
    });
    this.text = h('p.visually-hidden', { id: `${titleId}-text` });
    this.table = h('div.chart-table', {
      hidden: true,
      tabindex: 0,
      role: 'region',
      'aria-labelledby': titleId,
    });
    this.toggle = h(
      'button.icon-button',
      {
        type: 'button',
        'aria-pressed': 'false',
        'aria-label': `${info.title}: show the values as a table`,
        title: 'Values as a table',
        onclick: () => this.#showTable(!this.#isTable),
      },
      icon('table'),
    );
    this.element = h(
      'section.card.chart',
      { 'aria-labelledby': titleId },
      el(
        'header',
        el('div', h('h3', { id: titleId, title: info.help }, info.title), this.value),
        this.toggle,
      ),
      this.canvas,
      this.text,
      this.table,
      this.legend,
    );
  }

  update() {
    const { info, store } = this;
    const lines = store.linesOf(info.id);
    const isEmpty = lines.length === 0;
    this.element.classList.toggle('is-empty', isEmpty);
    const spanMs = (store.times.at(-1) ?? 0) - (store.times[0] ?? 0);
    fill(this.value, ...headOf(info, lines, Math.max(1, Math.round(spanMs / 60_000))));
    this.text.textContent = `${info.help} ${lines
      .map(({ name, values }) => `${name}: ${quantity(info.unit, this.#latest(values))}`)
      .join(', ')}`;
    this.#drawLegend(null);
    if (this.#isTable) this.#fillTable();
    else this.#draw();
  }

  redraw() {
    this.#plot?.destroy();
    this.#plot = null;
    this.#draw();
  }

  close() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** @returns {Figures} the samples, or the events counted in spans */
  #figures() {
    const { info, store } = this;
    const lines = store.linesOf(info.id);
    return info.unit === 'events'
      ? inSpans(store.times, lines, SPAN_MS)
      : { times: store.times, lines };
  }

  /**
   * The figure beside a name: the value of the last sample, or the events of all samples.
   * @param {readonly (number|null)[]} values of the store
   */
  #latest(values) {
    return this.info.unit === 'events' ? sumOf(values) : (values.at(-1) ?? null);
  }

  #draw() {
    const { info, store } = this;
    if (this.#isTable || !this.element.isConnected) return;
    const { times, lines } = this.#figures();
    const names = lines.map(({ name }) => name).join('\n');
    const end = (store.times.at(-1) ?? Date.now()) / 1000;
    const span = end - (store.times[0] ?? 0) / 1000;
    const window = Math.min(WINDOW_S, Math.max(LEAST_WINDOW_S, span));
    const values = lines.map((line) => line.values);
    const data = /** @type {import('uplot').AlignedData} */ ([
      times.map((timeMs) => timeMs / 1000),
      ...(info.unit === 'events' ? stacked(values) : values),
    ]);
    if (this.#plot === null || names !== this.#names) {
      this.#plot?.destroy();
      this.#names = names;
      this.#plot = new UPlot(this.#options(lines), data, this.canvas);
    } else {
      this.#plot.setData(data, false);
    }
    this.#plot.batch(() => {
      this.#plot?.setScale('x', { min: end - window, max: end });
    });
  }

  /** @param {Line[]} lines @returns {import('uplot').Options} */
  #options(lines) {
    const { info } = this;
    return {
      width: Math.max(200, this.canvas.clientWidth),
      height: HEIGHT,
      padding: [8, LABEL_REST, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: 'fanfare', setSeries: false },
        y: false,
        drag: { x: false, y: false },
        points: { size: 6 },
      },
      scales: {
        x: { time: true },
        y: { range: (_plot, _min, max) => [0, top(max, info.unit)] },
      },
      axes: this.#axes(),
      series: [{}, ...this.#series(lines)],
      hooks: {
        drawClear: [(plot) => this.#drawOutages(plot)],
        draw: [(plot) => this.#drawMarks(plot)],
        setCursor: [({ cursor }) => this.#drawLegend(cursor.idx ?? null)],
      },
    };
  }

  /** @returns {import('uplot').Axis[]} */
  #axes() {
    const { unit } = this.info;
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

  /** Curves, or stacked bars of events. @param {Line[]} lines @returns {import('uplot').Series[]} */
  #series(lines) {
    const paint = (/** @type {Line} */ line) =>
      color(`--line-${(lines.indexOf(line) % MAX_COLORS) + 1}`);
    if (this.info.unit === 'events')
      return lines.toReversed().map((line) => ({
        label: line.name,
        fill: paint(line),
        width: 0,
        points: { show: false },
        paths: UPlot.paths.bars?.({ size: [0.8, 14, 2], align: 1 }),
      }));
    return lines.map((line) => ({
      label: line.name,
      stroke: paint(line),
      fill: lines.length === 1 ? color('--line-fill') : undefined,
      width: 1.6,
      points: { show: false },
      spanGaps: false,
    }));
  }

  /** The times without the broker as areas behind the lines. @param {import('uplot')} plot */
  #drawOutages(plot) {
    const { ctx, bbox } = plot;
    const { marks } = this.store;
    ctx.save();
    ctx.fillStyle = color('--outage');
    const xOf = (/** @type {number} */ timeMs) =>
      Math.min(
        bbox.left + bbox.width,
        Math.max(bbox.left, plot.valToPos(timeMs / 1000, 'x', true)),
      );
    for (const [i, { kind, timeMs }] of marks.entries()) {
      if (kind !== 'outage') continue;
      const back = marks.slice(i).find((mark) => mark.kind === 'back');
      const end = back === undefined ? bbox.left + bbox.width : xOf(back.timeMs);
      ctx.fillRect(xOf(timeMs), bbox.top, end - xOf(timeMs), bbox.height);
    }
    ctx.restore();
  }

  /** Restarts, reloads, drains and outages as vertical lines. @param {import('uplot')} plot */
  #drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const { timeMs, kind } of this.store.marks) {
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

  /** @param {number|null} index of the sample under the cursor; null: the latest */
  #drawLegend(index) {
    const { info } = this;
    const { times, lines } = this.#figures();
    // Of events the sum is shown, until the cursor points at some.
    const shownOf = (/** @type {(number|null)[]} */ values) =>
      index === null ? this.#latest(values) : values[index];
    fill(
      this.legend,
      (lines.length > 1 || index !== null || info.unit === 'events' ? lines : []).map(
        ({ name, values }, line) =>
          el(
            'li',
            h('span', { class: `swatch line-${(line % MAX_COLORS) + 1}`, 'aria-hidden': 'true' }),
            el('span.legend-name', name.replaceAll('_', ' ')),
            el('span.legend-value', quantity(info.unit, shownOf(values))),
          ),
      ),
      index !== null && el('li.legend-time', this.#timeText(times[index])),
    );
  }

  /** @param {number} timeMs of a sample, or the start of a span */
  #timeText(timeMs) {
    return this.info.unit === 'events'
      ? `${clock(timeMs)}–${clock(timeMs + SPAN_MS)}`
      : clock(timeMs);
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const plot = this.#plot;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (plot === null || step === undefined) return;
    event.preventDefault();
    const [times] = plot.data;
    const last = times.length - 1;
    const index = Math.min(last, Math.max(0, (plot.cursor.idx ?? last) + step));
    plot.setCursor({ left: plot.valToPos(times[index], 'x'), top: 0 });
  }

  /** @param {boolean} isTable */
  #showTable(isTable) {
    this.#isTable = isTable;
    this.toggle.setAttribute('aria-pressed', String(isTable));
    this.canvas.hidden = isTable;
    this.table.hidden = !isTable;
    if (isTable) this.#fillTable();
    else this.redraw();
  }

  #fillTable() {
    const { info } = this;
    const { times, lines } = this.#figures();
    const first = Math.max(0, times.length - MAX_ROWS);
    const rows = [];
    for (let i = times.length - 1; i >= first; i--)
      rows.push(
        el(
          'tr',
          h('th', { scope: 'row' }, this.#timeText(times[i])),
          lines.map(({ values }) => el('td.number', quantity(info.unit, values[i]))),
        ),
      );
    fill(
      this.table,
      el(
        'table',
        el('caption.visually-hidden', info.help),
        el(
          'thead',
          el(
            'tr',
            h('th', { scope: 'col' }, 'Time'),
            lines.map(({ name }) => h('th.number', { scope: 'col' }, name.replaceAll('_', ' '))),
          ),
        ),
        el('tbody', rows),
      ),
    );
  }
}

/** A theme's colour, without variables. @param {string} name of a custom property */
function color(name) {
  document.body.append(probe);
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const probe = h('span', { hidden: true });

/** @param {ChartInfo} info @param {Line[]} lines @param {number} minutes */
function headOf({ id, unit }, lines, minutes) {
  if (lines.length === 0) return ['none'];
  // A sample without a value has no figure: an old one would look like the present.
  const latest = lines.map(({ values }) => values.at(-1) ?? null);
  if (unit === 'events') {
    const count = sumOf(lines.map(({ values }) => sumOf(values))) ?? 0;
    return [quantity('count', count), el('small', ` in ${minutes} min`)];
  }
  // Received and published are not parts of one sum, and the worst latency counts.
  const figure = id === 'messages' ? latest[0] : unit === 'ms' ? maxOf(latest) : sumOf(latest);
  return [quantity(unit, figure)];
}

/** Noise of tiny values must not fill it. @param {number|null} max @param {Unit} unit */
function top(max, unit) {
  const least = { count: 4, perSecond: 2, events: 4, ms: 2, bytes: 1e6 }[unit];
  return Math.max(least, (max ?? 0) * 1.15);
}

/**
 * Bars on top of each other: the highest comes first, and later ones are drawn over it.
 * @param {readonly (readonly (number|null)[])[]} values of the lines
 * @returns {(number|null)[][]} in reverse order, each with the sum of its line and those before it
 */
function stacked(values) {
  /** @type {(number|null)[][]} */
  const sums = [];
  for (const line of values) {
    const below = sums[0];
    sums.unshift(line.map((value, i) => (value ?? 0) + (below?.[i] ?? 0) || null));
  }
  return sums;
}

/** @param {readonly (number|null)[]} values */
function maxOf(values) {
  return values.reduce((max, value) => (value !== null && value > (max ?? 0) ? value : max), null);
}

/** @param {readonly (number|null)[]} values */
function sumOf(values) {
  return values.reduce((sum, value) => (value === null ? sum : (sum ?? 0) + value), null);
}
