// console.js: the operator's console, in the primary: its history, its actions and its routes.
//   sampler --> History, Fleet --GET history--> page
//   page --POST actions/:route--> Actions --IPC--> a ready worker
//   page --GET tail--> Actions --IPC--> the same, until the page closes it
//
// It begins to sample with the first worker and costs nothing if FANFARE_CONSOLE=off. Each sample
// wakes all workers, so while nothing happens and nobody watches, samples are rarer.

import { consoleAccess } from '../config/console.js';
import { Actions } from './actions.js';
import { CHART_METRICS } from './charts.js';
import { FleetFigures } from './fleet-figures.js';
import { Gate } from './gate.js';
import { History, SAMPLE_MS } from './history.js';
import { LIMIT_METRICS } from './limits.js';
import { BROKER_METRIC, Outages } from './outages.js';
import { createRoutes } from './routes.js';

/** The metrics of the workers that the console reads. @type {ReadonlySet<string>} */
export const CONSOLE_METRICS = new Set([...CHART_METRICS, ...LIMIT_METRICS, BROKER_METRIC]);

/** Asks all workers, on every server. @type {import('../worker/control-messages.js').OperatorRequest} */
const SURVEY = Object.freeze({
  route: 'workers',
  params: {},
  query: {},
  body: '',
  rights: Object.freeze(/** @type {const} */ (['console'])),
  rooms: null,
});

/** Between two samples at rest. Surveys of the fleet are as far apart. */
const REST_MS = 12_000;

/** @import { Server } from './routes.js' */

export class Console {
  /** @param {Server} server */
  constructor(server) {
    this.server = server;
    this.history = new History();
    this.outages = new Outages((timeMs, kind, forMs) => {
      const broker = server.config().redis === null ? 'The embedded broker' : 'Redis';
      const text =
        kind === 'outage'
          ? `${broker} is unavailable`
          : `${broker} is back after ${Math.round(forMs / 1000)} s`;
      this.history.mark(timeMs, kind, text);
    });
    this.actions = new Actions(server.nextReady);
    this.fleet = new FleetFigures({
      survey: () => this.#survey(),
      onChange: (timeMs, kind, text) => this.history.mark(timeMs, kind, text),
    });
    /** @type {ReadonlyMap<string, number>} */
    this.totals = new Map();
    /** When the last sample was due; on the monotonic clock. */
    this.sampledMs = Number.NEGATIVE_INFINITY;
    this.routes = createRoutes({
      server,
      history: this.history,
      actions: this.actions,
      fleet: this.fleet,
      gate: new Gate(server.config),
      totals: () => this.totals,
      broker: () => this.outages.state,
    });
  }

  /** Call it about once a second. @param {number} nowMs monotonic */
  sampleIfDue(nowMs) {
    const dueMs = this.sampledMs + (this.#isAtRest() ? REST_MS : SAMPLE_MS);
    if (nowMs < dueMs) return;
    this.sampledMs = nowMs - dueMs < SAMPLE_MS ? dueMs : nowMs;
    this.#sample().catch((error) => this.server.log.error({ err: error }, 'console'));
  }

  /** No client, no page, no worker that starts or drains, no outage and no server in doubt. */
  #isAtRest() {
    if (this.outages.state.sinceMs !== null || this.fleet.wantsSamples(Date.now())) return false;
    return this.server
      .workers()
      .every(({ state, beat }) => state === 'ready' && beat.isSteady && beat.connections === 0);
  }

  async #sample() {
    const { config, collect, aggregate, workers } = this.server;
    if (consoleAccess(config()).access === 'off') return;
    await collect();
    this.totals = aggregate.totals(CONSOLE_METRICS);
    const all = workers().map(({ id, slot, state }) => ({
      slot,
      state,
      values: aggregate.valuesOf(id, CONSOLE_METRICS),
    }));
    const bySlot = all.map(({ slot, values }) => /** @type {const} */ ([slot, values]));
    const timeMs = Date.now();
    this.history.addSample(timeMs, { totals: this.totals, workers: new Map(bySlot) });
    this.fleet.update(timeMs, config().redis !== null);
    const ready = all.filter(({ state }) => state === 'ready');
    this.outages.addSample(
      timeMs,
      ready.map(({ values }) => values),
    );
  }

  /** @returns {Promise<{workers: import('./fleet-figures.js').WorkerInfo[], partial: boolean}>} */
  async #survey() {
    const { status, body } = await this.actions.run(SURVEY);
    const answer = JSON.parse(body);
    if (status !== 200) throw new Error(answer.message);
    return answer;
  }

  /** @param {import('./history.js').MarkKind} kind @param {string} text */
  mark(kind, text) {
    this.history.mark(Date.now(), kind, text);
  }
}
