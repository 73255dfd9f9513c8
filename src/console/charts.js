// charts.js: the table of the console's charts. A row has its source in the workers' metrics, and
// adds a chart, a table of values and a history.

/**
 * The ways in which a metric becomes lines.
 * - gauge: its value, added up over the workers
 * - rate: its growth a second
 * - counts: its growth for each of its labels
 * - quantiles: p50 and p99 of the observations of one sample, from the buckets of a histogram
 * - workers: its value for each worker
 * @typedef {'gauge'|'rate'|'counts'|'quantiles'|'workers'} SourceKind
 */

/**
 * @typedef {object} Source
 * @property {SourceKind} kind @property {string} metric
 * @property {string} [name] of the line; those of labels, quantiles and workers have their own
 * @property {number} [scale] 1 if it is absent
 */

/**
 * @typedef {object} Chart
 * @property {string} id @property {string} title
 * @property {string} help one sentence under the title
 * @property {'count'|'perSecond'|'events'|'ms'|'bytes'} unit `events`: those of one sample
 * @property {readonly Source[]} sources
 */

const MS = 1000;

/** @type {readonly Chart[]} */
// biome-ignore format: a row has two or three lines, and not one for each property
export const CHARTS = Object.freeze([
  { id: 'connections', title: 'Connections', help: 'Open connections of this server.',
    unit: 'count',
    sources: [{ kind: 'gauge', metric: 'websocket_connections_total', name: 'connections' }] },
  { id: 'messages', title: 'Messages in',
    help: 'Messages received from clients, and publications accepted from them.', unit: 'perSecond',
    sources: [{ kind: 'rate', metric: 'websocket_messages_total', name: 'received' },
      { kind: 'rate', metric: 'fanfare_publications_total', name: 'published' }] },
  { id: 'deliveries', title: 'Deliveries out', help: 'Publications written to a connection.',
    unit: 'perSecond',
    sources: [{ kind: 'rate', metric: 'fanfare_deliveries_total', name: 'deliveries' }] },
  { id: 'bus', title: 'Bus latency', help: 'Time of a probe through the broker and back.',
    unit: 'ms',
    sources: [{ kind: 'quantiles', metric: 'fanfare_bus_round_trip_seconds', scale: MS }] },
  { id: 'lag', title: 'Event-loop lag', help: 'Highest lag of the last ten seconds, by worker.',
    unit: 'ms',
    sources: [{ kind: 'workers', metric: 'fanfare_event_loop_lag_seconds', scale: MS }] },
  { id: 'memory', title: 'Memory', help: 'Resident memory, by worker.', unit: 'bytes',
    sources: [{ kind: 'workers', metric: 'process_resident_memory_bytes' }] },
  { id: 'refusals', title: 'Refused connections',
    help: 'Requests refused before the upgrade, by reason.', unit: 'events',
    sources: [{ kind: 'counts', metric: 'fanfare_admissions_refused_total' }] },
  { id: 'errors', title: 'Error replies',
    help: 'Commands of clients that were refused, by error code.', unit: 'events',
    sources: [{ kind: 'counts', metric: 'websocket_errors_total' }] },
  { id: 'slow', title: 'Slow consumers', help: 'Clients that read too slowly, by consequence.',
    unit: 'events', sources: [{ kind: 'counts', metric: 'fanfare_slow_consumers_total' }] },
  { id: 'recoveries', title: 'Recoveries', help: 'Joins with a position, by result.',
    unit: 'events', sources: [{ kind: 'counts', metric: 'fanfare_recoveries_total' }] },
]);

export const CHART_METRICS = new Set(
  CHARTS.flatMap(({ sources }) => sources.map(({ metric }) => metric)),
);
