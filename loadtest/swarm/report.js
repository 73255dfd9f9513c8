// report.js: the run as a file to keep: JSON with everything, and a page of HTML that needs nothing
// but itself.

import { writeFileSync } from 'node:fs';
import { availableParallelism, cpus, release, totalmem } from 'node:os';
import { count } from '../../test/harness/run.js';
import { chartFigure, escaped, stretched, WIDTH } from './chart.js';
import { processWords } from './plan.js';
import { SIDE } from './verdict.js';

/**
 * Metrics of the server to draw, if it has them: those of Fanfare, and of every server with
 * prom-client. Name | title | unit | factor. With the unit /s or cores the chart shows the rate of a
 * counter.
 */
const METRICS = Object.freeze(
  [
    'websocket_connections_total | Connections, as the server counts | |',
    'websocket_messages_total | Messages received | /s |',
    'process_cpu_seconds_total | Processor time | cores | 1',
    'process_resident_memory_bytes | Resident memory | MB | 1e-6',
    'nodejs_heap_used_bytes | Heap used | MB | 1e-6',
    'fanfare_event_loop_lag_seconds | Event-loop lag, the worst worker | ms | 1000',
    'message_queue_depth | Publications not yet written | |',
    'fanfare_deliveries_total | Deliveries | /s |',
    'fanfare_admissions_refused_total | Admissions refused | /s |',
    'fanfare_slow_consumers_total | Slow consumers | /s |',
  ].map((row) => {
    const [name, title, unit, factor] = row.split('|').map((cell) => cell.trim());
    return {
      ...{ name, title, rate: unit === '/s' || unit === 'cores', factor: Number(factor || 1) },
      unit: unit === '' || unit === '/s' ? unit : ` ${unit}`,
    };
  }),
);

/** Letters of a table's cell that wants a wide column. */
const LONG = 60;

export const METRIC_NAMES = METRICS.map(({ name }) => name);

/**
 * @typedef {object} Run
 * @property {Date} startedAt
 * @property {string[]} args as they were given
 * @property {import('./options.js').Options} options
 * @property {import('./plan.js').Plan} plan
 * @property {import('./phases.js').Results} results
 * @property {import('./failures.js').Failure[]} failures
 * @property {import('./timeline.js').Timeline} timeline
 * @property {import('./verdict.js').Verdict} verdict
 */

/**
 * @param {string} path without an ending
 * @param {Run} run
 */
export function writeReport(path, run) {
  writeFileSync(`${path}.json`, `${JSON.stringify(asJson(run), null, 1)}\n`);
  writeFileSync(`${path}.html`, asHtml(run));
}

/** Figures that are not finite (a round trip that never came back) are null. @param {Run} run */
function asJson({ startedAt, args, options, plan, results, failures, timeline, verdict }) {
  return {
    startedAt: startedAt.toISOString(),
    args,
    machine: machine(),
    plan: { ...plan, ports: plan.ports.length },
    verdict,
    connections: { asked: options.connections, peak: timeline.peak },
    results,
    failures,
    client: { processes: plan.processes },
    phases: timeline.spans,
    samples: timeline.samples,
    metrics: timeline.scrapes,
  };
}

function machine() {
  return {
    processor: `${cpus()[0]?.model.trim() ?? 'unknown'} × ${availableParallelism()}`,
    memoryGb: Math.round(totalmem() / 1e8) / 10,
    kernel: release(),
    node: process.version,
  };
}

/** @param {Run} run @returns {string} */
function asHtml(run) {
  const { startedAt, args, options, verdict, failures } = run;
  const { processor, memoryGb, kernel, node } = machine();
  const title = `${count(options.connections)} connections to ${options.targets.map(({ host }) => host).join(', ')}`;
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Swarm: ${escaped(title)}</title>
<style>${STYLE}</style>
<header>
<p class="what">Swarm <time datetime="${startedAt.toISOString()}">${startedAt.toISOString().slice(0, 16).replace('T', ' ')} UTC</time></p>
<h1>${escaped(title)}</h1>
<p class="verdict ${verdict.held ? 'held' : 'failed'}">${escaped(capital(verdict.headline))}</p>
</header>
<main>
<section class="tiles">${tiles(run)}</section>
${failures.length > 0 ? `<section><h2>What failed</h2>${failureTable(failures)}</section>` : ''}
${verdict.notes.length > 0 ? `<section><h2>Mind</h2><ul>${verdict.notes.map((note) => `<li>${escaped(note)}</li>`).join('')}</ul></section>` : ''}
<section><h2>Clients</h2>${stretchNote(run)}<div class="charts">${clientCharts(run)}</div></section>
${broadcastSection(run)}
<section><h2>Server</h2>${serverSection(run)}</section>
<section><h2>What this client machine can open</h2>${planTable(run.plan)}</section>
<section><h2>How it was run</h2>
<p><code>npm run swarm -- ${escaped(args.map(quoted).join(' '))}</code></p>
<p>${processWords(run.plan.processes)} on ${escaped(processor)}, ${memoryGb} GB, Linux ${escaped(kernel)}, Node ${escaped(node)}; ${count(Math.max(...run.timeline.samples.map(({ residentMb }) => residentMb)))} MB resident at most.</p></section>
</main>
<script>${SCRIPT}</script>
</html>
`;
}

/** @param {Run} run */
function tiles({ options, results, timeline }) {
  const { connect, burst, endurance, broadcast } = results;
  /** @type {[string, string, string][]} value, what, more */
  const cells = [
    [
      count(timeline.peak),
      'connections open at once',
      `of ${count(options.connections)} asked for`,
    ],
  ];
  if (connect)
    cells.push([
      `${count(connect.perSecond)}/s`,
      'connections opened',
      `in ${connect.seconds.toFixed(1)} s; handshake p99 ${ms(connect.handshake.p99)}`,
    ]);
  if (burst)
    cells.push([
      `${count(burst.perSecond)}/s`,
      'echoes in the burst',
      `${count(burst.replies)} of ${count(burst.asked)}; p99 ${ms(burst.roundTrip.p99)}`,
    ]);
  if (endurance)
    cells.push([
      `${count(endurance.perSecond)}/s`,
      endurance.held
        ? 'echoes, a rate that held'
        : `echoes, not the ${count(endurance.asked)}/s asked for`,
      `for ${endurance.seconds.toFixed(0)} s; p99 ${ms(endurance.roundTrip.p99)}; ${count(endurance.lost)} lost`,
    ]);
  if (broadcast)
    cells.push([
      count(broadcast.held),
      `connections with p${broadcast.percentile} ≤ ${broadcast.limitMs} ms`,
      broadcast.ended === 'connections'
        ? 'or more: no more were asked for'
        : 'round trip of a broadcast to all',
    ]);
  return cells
    .map(
      ([value, what, more]) =>
        `<div><b>${escaped(value)}</b><span>${escaped(what)}</span><small>${escaped(more)}</small></div>`,
    )
    .join('');
}

/** @param {Run} run */
function stretchNote({ timeline: { samples, spans } }) {
  const { isStretched } = stretched(0, samples.at(-1)?.t ?? 0, spans);
  return isStretched ? '<p class="note">Short phases are drawn wider than their time.</p>' : '';
}

/** @typedef {import('./timeline.js').Sample} Sample */
/** @typedef {[name: string, tone: number, value: (sample: Sample) => number|null]} Line */
/** @type {readonly {title: string, unit: string, log?: boolean, note?: string, lines: Line[]}[]} */
const CLIENT_CHARTS = Object.freeze([
  {
    title: 'Connections open',
    unit: '',
    lines: [
      ['open', 0, ({ open }) => open],
      ['errors so far', 3, ({ errors }) => errors],
    ],
  },
  {
    title: 'Connections opened',
    unit: '/s',
    lines: [['opened', 0, ({ openedPerSecond }) => openedPerSecond]],
  },
  {
    title: 'Latency',
    unit: ' ms',
    log: true,
    lines: [
      ['p50', 1, ({ p50 }) => p50],
      ['p95', 0, ({ p95 }) => p95],
      ['p99', 2, ({ p99 }) => p99],
    ],
    note: 'Handshakes during connect, then round trips; in endurance from the time a message was due.',
  },
  {
    title: 'Messages received',
    unit: '/s',
    lines: [
      ['replies', 0, ({ repliesPerSecond }) => repliesPerSecond],
      ['deliveries of broadcasts', 1, ({ deliveriesPerSecond }) => deliveriesPerSecond],
    ],
  },
  {
    title: 'Busiest client process',
    unit: ' %',
    lines: [['of a core', 0, ({ clientCpu }) => clientCpu * 100]],
    note: 'Near 100 % the client measures itself.',
  },
  {
    title: 'Memory of the client processes',
    unit: ' MB',
    lines: [['resident', 0, ({ residentMb }) => residentMb]],
    note: 'All processes; the sockets in the kernel come on top.',
  },
]);

/** @param {Run} run */
function clientCharts({ timeline: { samples, spans } }) {
  return CLIENT_CHARTS.map(({ lines, ...chart }) => {
    const series = lines.map(([name, tone, value]) => ({
      name,
      tone,
      points: samples.map((sample) => /** @type {const} */ ([sample.t, value(sample)])),
    }));
    // The first line stays; a second one that is always 0 does not help.
    const shown = series.filter(({ points }, i) => i === 0 || points.some(([, y]) => y !== 0));
    return chartFigure({ ...chart, xUnit: ' s', spans, series: shown });
  }).join('\n');
}

/** @param {Run} run */
function broadcastSection({ results }) {
  const { broadcast } = results;
  if (!broadcast || broadcast.steps.length === 0) return '';
  const { steps, percentile, limitMs } = broadcast;
  /**
   * @param {(step: import('./phases.js').Step) => number|null} value
   * @returns {(readonly [number, number|null])[]}
   */
  const points = (value) =>
    steps.map((step) => {
      const ms = value(step);
      return [step.connections, ms !== null && Number.isFinite(ms) ? ms : null];
    });
  const chart = chartFigure({
    title: 'Round trip of a broadcast to all, by connections',
    unit: ' ms',
    xUnit: '',
    dots: true,
    mark: { value: limitMs, name: `limit: p${percentile} ${limitMs} ms` },
    series: [
      { name: 'p50', tone: 1, points: points(({ p50 }) => p50) },
      { name: `p${percentile}`, tone: 0, points: points(({ pLimit }) => pLimit) },
      { name: 'p99 until any receiver', tone: 2, points: points(({ delivery }) => delivery.p99) },
    ],
  });
  const rows = steps.map((step) => [
    count(step.connections),
    ms(step.p50),
    ms(step.pLimit),
    ms(step.maxMs),
    ms(step.delivery.p99),
    step.deliveries === step.expected
      ? count(step.deliveries)
      : `${count(step.deliveries)} of ${count(step.expected)}`,
    step.within ? 'yes' : 'no',
  ]);
  const head = [
    'connections',
    'p50',
    `p${percentile}`,
    'max',
    'p99 until any receiver',
    'deliveries',
    'within the limit',
  ];
  return `<section><h2>Broadcast</h2><div class="charts">${chart}${table(head, rows)}</div></section>`;
}

/** @param {Run} run */
function serverSection({ options, timeline }) {
  const { scrapes, scrapeFault, spans } = timeline;
  const charts = METRICS.map(({ name, title, unit, rate, factor }) => {
    /** @type {(readonly [number, number|null])[]} */
    const points = scrapes.flatMap(({ t, values }, i) => {
      if (!(name in values)) return [];
      if (!rate) return [[t, values[name] * factor]];
      const before = scrapes[i - 1];
      if (before === undefined || !(name in before.values)) return [];
      return [
        [
          t,
          (Math.max(0, values[name] - before.values[name]) * factor) /
            Math.max(0.001, t - before.t),
        ],
      ];
    });
    // A line of zeros does not help.
    if (points.length < 2 || points.every(([, value]) => value === 0)) return '';
    return chartFigure({
      title,
      unit,
      xUnit: ' s',
      spans,
      series: [{ name: title, tone: 0, points }],
      note: name,
    });
  });
  if (charts.some(Boolean)) return `<div class="charts">${charts.join('\n')}</div>`;
  if (options.metrics === '')
    return '<p>No metrics were asked for: <code>--metrics http://127.0.0.1:9090/metrics</code> draws them here.</p>';
  return `<p>${escaped(options.metrics)} had none to draw${scrapeFault ? `: ${escaped(scrapeFault)}` : '.'}</p>`;
}

/** @param {import('./failures.js').Failure[]} failures */
function failureTable(failures) {
  return table(
    ['times', 'error', 'limit', 'whose', 'first', 'open then', 'what it means, and what to change'],
    failures.map(({ count: times, key, limit, side, firstSeconds, openThen, means, fix }) => [
      count(times),
      key,
      limit,
      SIDE[side],
      `${firstSeconds.toFixed(1)} s`,
      count(openThen),
      `${capital(means)}.${fix ? ` To change: ${fix}.` : ''}`,
    ]),
  );
}

/** @param {import('./plan.js').Plan} plan */
function planTable({ rows, first, most }) {
  const text = rows.map(({ limit, permits, detail }) => [
    limit === first.limit && Number.isFinite(most) ? `${limit} (first)` : limit,
    Number.isFinite(permits) ? count(permits) : 'not known',
    detail,
  ]);
  return table(['limit', 'connections', 'how'], text);
}

/** @param {string[]} head @param {string[][]} rows */
function table(head, rows) {
  /** @param {string} tag @param {string[]} cells */
  const row = (tag, cells) =>
    `<tr>${cells.map((cell) => `<${tag}${cellClass(cell)}>${escaped(cell)}</${tag}>`).join('')}</tr>`;
  return `<div class="scroll" tabindex="0"><table><thead>${row('th', head)}</thead><tbody>${rows.map((cells) => row('td', cells)).join('')}</tbody></table></div>`;
}

/** @param {string} cell */
function cellClass(cell) {
  if (/^[\d,.∞]+( of [\d,]+| ms| s)?$/.test(cell)) return ' class="number"';
  return cell.length > LONG ? ' class="long"' : '';
}

/** @param {number|null} value */
function ms(value) {
  if (value === null) return '–';
  if (!Number.isFinite(value)) return 'not back';
  return `${value < 10 ? value.toFixed(1) : count(value)} ms`;
}

/** @param {string} text */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {string} arg as a shell takes it */
function quoted(arg) {
  return /^[\w@%+=:,./-]+$/.test(arg) ? arg : `'${arg.replaceAll("'", "'\\''")}'`;
}

const STYLE = `
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --page: #f6f7f9; --card: #fff; --line: #e2e6eb;
  --band: #f1f4f8; --tone0: #2563c9; --tone1: #8fb4ea; --tone2: #0b2c63; --tone3: #c8372d; --good: #17703c; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --page: #12161c; --card: #1a2029; --line: #2c3540;
  --band: #202834; --tone0: #5b9bff; --tone1: #39608f; --tone2: #c9e0ff; --tone3: #ff6f61; --good: #2f9e5f; --bad: #e5534b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
header, main { max-width: 1360px; margin: 0 auto; padding: 0 28px; }
header { padding-top: 28px; }
.what { margin: 0; color: var(--soft); } .what time { margin-left: .6em; }
h1 { margin: 0 0 12px; font-size: 28px; font-weight: 650; letter-spacing: -.01em; }
h2 { margin: 34px 0 12px; font-size: 17px; font-weight: 650; }
.verdict { margin: 0; padding: 10px 16px; border-radius: 8px; color: #fff; font-weight: 600; }
.held { background: var(--good); } .failed { background: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 12px; margin-top: 16px; }
.tiles div { display: flex; flex-direction: column; padding: 14px 16px; }
.tiles div, .chart, .scroll { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.tiles b { font-size: 25px; font-weight: 650; font-variant-numeric: tabular-nums; }
.tiles small, .note, small { color: var(--soft); font-size: 12.5px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 500px), 1fr)); gap: 12px; align-items: start; }
.charts > * { min-width: 0; } .charts td, .charts th { padding: 7px 9px; }
.chart { position: relative; margin: 0; padding: 12px 14px 6px; container-type: inline-size; }
figcaption { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 6px; }
.keys { margin-left: auto; font-size: 12.5px; color: var(--soft); }
.key::before { content: ""; display: inline-block; width: 14px; height: 3px; margin: 0 6px 3px 14px; border-radius: 2px; background: currentColor; }
.key.tone0::before { background: var(--tone0); } .key.tone1::before { background: var(--tone1); }
.key.tone2::before { background: var(--tone2); } .key.tone3::before { background: var(--tone3); }
.note { margin: 0; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
.line { fill: none; vector-effect: non-scaling-stroke; stroke-width: 1.6px; stroke-linejoin: round; stroke-linecap: round; }
.line.tone0 { stroke: var(--tone0); } .line.tone1 { stroke: var(--tone1); } .line.tone2 { stroke: var(--tone2); } .line.tone3 { stroke: var(--tone3); }
.dot.tone0 { fill: var(--tone0); } .dot.tone1 { fill: var(--tone1); } .dot.tone2 { fill: var(--tone2); }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } .mark { stroke: var(--tone3); stroke-dasharray: 5 4; }
.cursor { stroke: var(--soft); visibility: hidden; }
.band0 { fill: var(--band); } .band1 { fill: none; }
/* A drawing is scaled to its card, its letters are not: tan(atan2(a, b)) is a / b, which calc() can't do with lengths. */
.tick, .phase { fill: var(--soft); font-size: 11px; font-size: calc(11px * tan(atan2(${WIDTH}px, 100cqw))); } .phase { font-weight: 600; }
@container (max-width: 420px) { .tight { display: none; } }
.tip { position: absolute; pointer-events: none; padding: 6px 9px; border-radius: 6px; background: var(--ink); color: var(--page); font-size: 12.5px; line-height: 1.4; white-space: nowrap; z-index: 1; }
.scroll { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 13.5px; } .long { min-width: 320px; }
th, td { padding: 7px 12px; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; } th { color: var(--soft); font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
footer, main { padding-bottom: 40px; }
@media print { body { background: #fff; } .chart, .scroll, .tiles div { break-inside: avoid; } }
`;

/** Values under the pointer. The charts are whole without it. */
const SCRIPT = `
/** On the line through the points, of which the first rises. */
const between = (points, value) => {
  const i = Math.max(1, points.findIndex(([a]) => a >= value));
  const [[a, b], [c, d]] = value > points.at(-1)[0] ? [points.at(-1), points.at(-1)] : [points[i - 1], points[i]];
  return b + Math.min(1, Math.max(0, (value - a) / (c - a || 1))) * (d - b);
};
for (const figure of document.querySelectorAll('.chart')) {
  const { unit, xUnit, x: knots, series } = JSON.parse(figure.querySelector('script').textContent);
  const svg = figure.querySelector('svg');
  const cursor = figure.querySelector('.cursor');
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  figure.append(tip);
  const words = (value) => value.toLocaleString('en-US', { maximumFractionDigits: Math.abs(value) < 10 ? 2 : 0 });
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const wanted = between(knots.map(([value, share]) => [share, value]), (event.clientX - box.left) / box.width);
    const all = series[0].points.map(([at]) => at);
    const at = all.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best), all[0]);
    const shown = between(knots, at);
    cursor.setAttribute('x1', shown * svg.viewBox.baseVal.width);
    cursor.setAttribute('x2', shown * svg.viewBox.baseVal.width);
    cursor.style.visibility = 'visible';
    tip.replaceChildren(...[words(at) + xUnit, ...series.map(({ name, points }) => {
      const point = points.find(([one]) => one === at);
      return point && point[1] !== null ? name + ': ' + words(point[1]) + unit : '';
    })].filter(Boolean).map((line) => Object.assign(document.createElement('div'), { textContent: line })));
    tip.hidden = false;
    const place = box.left - figure.getBoundingClientRect().left + shown * box.width;
    tip.style.left = Math.min(place + 12, figure.clientWidth - tip.offsetWidth - 4) + 'px';
    tip.style.top = event.clientY - figure.getBoundingClientRect().top + 14 + 'px';
  });
  svg.addEventListener('pointerleave', () => {
    tip.hidden = true;
    cursor.style.visibility = 'hidden';
  });
}
`;
