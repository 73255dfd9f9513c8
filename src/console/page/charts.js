// charts.js: a chart of the page: a head with the latest value, the plot, its table of values.
//
// uPlot draws on a canvas, so a reader without sight or a mouse has two other ways: the arrow keys
// move the cursor over the plot, and a button shows the values as a table.

import { Component, createRef } from 'preact';
import { clock, quantity } from './format.js';
import { html } from './html.js';
import { icon } from './parts.js';
import { colorOf, plotOptions, UPlot } from './plot.js';
import { inSpans } from './samples.js';

/** @import { Unit } from './format.js' */
/** @import { Figures, Line, Part, Samples } from './samples.js' */

const WINDOW_S = 15 * 60;
/** The window of a server that has just started. */
const LEAST_WINDOW_S = 2 * 60;
const MAX_ROWS = 100;
/** Events are counted in these spans: samples of 3 s would draw a comb and not a rate. */
const SPAN_MS = 30_000;

/** @typedef {{id: string, title: string, help: string, unit: Unit}} ChartInfo */
/** @typedef {(number|null)[]} Values */

/**
 * @typedef {object} Props
 * @property {ChartInfo} info @property {Samples} samples @property {Part|null} last part of them:
 *   a chart draws again for another one @property {number} look of the frame
 */

/** `cursor`: the index of the sample under it. @extends {Component<Props, {isTable: boolean, cursor: number|null}>} */
export class Chart extends Component {
  state = { isTable: false, cursor: /** @type {number|null} */ (null) };
  /** @type {import('preact').RefObject<HTMLElement|null>} */
  #canvas = createRef();
  #plot = /** @type {import('uplot')|null} */ (null);
  /** The names of the lines that the plot has. */
  #names = '';

  componentDidMount() {
    this.#draw();
  }

  /** @param {Props} before @param {{isTable: boolean}} state before */
  componentDidUpdate({ last, look }, { isTable }) {
    const isSame = look === this.props.look && isTable === this.state.isTable;
    // The legend alone follows the cursor.
    if (isSame && last === this.props.last) return;
    if (!isSame) this.#destroyPlot();
    this.#draw();
  }

  componentWillUnmount() {
    this.#destroyPlot();
  }

  #destroyPlot() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** @returns {Figures} the samples, or the events counted in spans */
  #figures() {
    const { info, samples } = this.props;
    const lines = samples.linesOf(info.id);
    return info.unit === 'events'
      ? inSpans(samples.times, lines, SPAN_MS)
      : { times: samples.times, lines };
  }

  #draw() {
    const { info, samples } = this.props;
    const canvas = this.#canvas.current;
    if (this.state.isTable || canvas === null) return;
    const { times, lines } = this.#figures();
    const names = lines.map(({ name }) => name).join('\n');
    const values = lines.map((line) => line.values);
    const data = /** @type {import('uplot').AlignedData} */ ([
      times.map((timeMs) => timeMs / 1000),
      ...(info.unit === 'events' ? stacked(values) : values),
    ]);
    if (this.#plot === null || names !== this.#names) {
      this.#destroyPlot();
      this.#names = names;
      const options = plotOptions({
        unit: info.unit,
        lines,
        width: canvas.clientWidth,
        marks: () => samples.marks,
        onCursor: (cursor) => {
          if (cursor !== this.state.cursor) this.setState({ cursor });
        },
      });
      this.#plot = new UPlot(options, data, canvas);
    } else {
      this.#plot.setData(data, false);
    }
    const end = (samples.times.at(-1) ?? Date.now()) / 1000;
    const span = end - (samples.times[0] ?? 0) / 1000;
    const window = Math.min(WINDOW_S, Math.max(LEAST_WINDOW_S, span));
    this.#plot.batch(() => {
      this.#plot?.setScale('x', { min: end - window, max: end });
    });
  }

  /** Moves the cursor. @param {KeyboardEvent} event */
  #keydown = (event) => {
    const plot = this.#plot;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (plot === null || step === undefined) return;
    event.preventDefault();
    const [times] = plot.data;
    const last = times.length - 1;
    const index = Math.min(last, Math.max(0, (plot.cursor.idx ?? last) + step));
    plot.setCursor({ left: plot.valToPos(times[index], 'x'), top: 0 });
  };

  render() {
    const { info, samples } = this.props;
    const { isTable, cursor } = this.state;
    const titleId = `chart-${info.id}`;
    const lines = samples.linesOf(info.id);
    const figures = this.#figures();
    const latest = lines.map(({ name, values }) => `${name}: ${latestOf(info.unit, values)}`);
    const minutes = Math.round(((samples.times.at(-1) ?? 0) - (samples.times[0] ?? 0)) / 60_000);
    const toggle = () => this.setState({ isTable: !isTable, cursor: null });
    return html`<section
      class="card chart stack ${lines.length === 0 ? 'is-empty' : ''}" aria-labelledby=${titleId}
    >
      <header class="flex">
        <div>
          <h3 id=${titleId} title=${info.help}>${info.title}</h3>
          <p class="chart-value">${headOf(info, lines, Math.max(1, minutes))}</p>
        </div>
        <button
          class="icon-button" type="button" title="Values as a table" aria-pressed=${isTable}
          aria-label=${`${info.title}: show the values as a table`} onclick=${toggle}
        >${icon('table')}</button>
      </header>
      <div
        ref=${this.#canvas} class="plot" tabindex="0" role="img" hidden=${isTable}
        aria-labelledby=${titleId} aria-describedby=${`${titleId}-text`} onkeydown=${this.#keydown}
      />
      <p class="visually-hidden" id=${`${titleId}-text`}>${info.help} ${latest.join(', ')}</p>
      <div
        class="chart-table" tabindex="0" role="region" hidden=${!isTable} aria-labelledby=${titleId}
      >${isTable && tableOf(info, figures)}</div>
      <ul class="legend muted flex wrap">${legendOf(info.unit, figures, lines, cursor)}</ul>
    </section>`;
  }
}

/** @param {ChartInfo} info @param {readonly Line[]} samples @param {number} minutes of them */
function headOf({ id, unit }, samples, minutes) {
  if (samples.length === 0) return 'none';
  // A sample without a value has no figure: an old one would look like the present.
  const latest = samples.map(({ values }) => values.at(-1) ?? null);
  if (unit === 'events') {
    const count = totalOf(samples.map(({ values }) => totalOf(values))) ?? 0;
    return html`${quantity('count', count)}<small>${` in ${minutes} min`}</small>`;
  }
  // Received and published are not parts of one sum, and the worst latency counts.
  const figure =
    id === 'messages' ? latest[0] : unit === 'ms' ? largestOf(latest) : totalOf(latest);
  return quantity(unit, figure);
}

/**
 * The figures beside the names, those of the sample at the cursor if there is one.
 * @param {Unit} unit @param {Figures} figures @param {readonly Line[]} samples that they count
 * @param {number|null} cursor
 */
function legendOf(unit, { times, lines }, samples, cursor) {
  const isPointed = cursor !== null && cursor < times.length;
  const entries = lines.map(
    ({ name, values }, i) => html`<li class="flex">
      <span class="swatch" style=${{ background: `var(${colorOf(i)})` }} aria-hidden="true" />
      <span>${name.replaceAll('_', ' ')}</span>
      <span class="legend-value">
        ${isPointed ? quantity(unit, values[cursor]) : latestOf(unit, samples[i].values)}
      </span>
    </li>`,
  );
  return [
    (lines.length > 1 || isPointed || unit === 'events') && entries,
    isPointed && html`<li class="legend-time">${timeText(unit, times[cursor])}</li>`,
  ];
}

/** @param {ChartInfo} info @param {Figures} figures */
function tableOf({ help, unit }, { times, lines }) {
  const latest = times.map((_, i) => i).slice(-MAX_ROWS);
  return html`<table>
    <caption class="visually-hidden">${help}</caption>
    <thead>
      <tr>
        <th scope="col">Time</th>
        ${lines.map(
          ({ name }) => html`<th class="number" scope="col">${name.replaceAll('_', ' ')}</th>`,
        )}
      </tr>
    </thead>
    <tbody>
      ${latest.reverse().map(
        (i) => html`<tr>
          <th scope="row">${timeText(unit, times[i])}</th>
          ${lines.map(({ values }) => html`<td class="number">${quantity(unit, values[i])}</td>`)}
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/**
 * The figure of a line: the value of its last sample, or the events of all samples.
 * @param {Unit} unit @param {Values} values of the samples
 */
function latestOf(unit, values) {
  return quantity(unit, unit === 'events' ? totalOf(values) : (values.at(-1) ?? null));
}

/** @param {Unit} unit @param {number} timeMs of a sample, or the start of a span */
function timeText(unit, timeMs) {
  return unit === 'events' ? `${clock(timeMs)}–${clock(timeMs + SPAN_MS)}` : clock(timeMs);
}

/**
 * Bars on top of each other: the highest comes first, and later ones are drawn over it.
 * @param {readonly Values[]} values of the lines
 * @returns {Values[]} in reverse order, each with the sum of its line and those before it
 */
function stacked(values) {
  /** @type {Values[]} */
  const sums = [];
  for (const line of values) {
    const below = sums[0];
    sums.unshift(line.map((value, i) => (value ?? 0) + (below?.[i] ?? 0) || null));
  }
  return sums;
}

/** @param {Values} values */
function largestOf(values) {
  return values.reduce((max, value) => (value !== null && value > (max ?? 0) ? value : max), null);
}

/** @param {Values} values */
function totalOf(values) {
  return values.reduce((sum, value) => (value === null ? sum : (sum ?? 0) + value), null);
}
