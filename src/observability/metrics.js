// metrics.js: the table of metrics.
//
// A row gives the name, type, help, label, buckets, how the workers' values add up (`aggregator`),
// and the source of the value. Most values are plain numbers of counters.js, read at a scrape: the
// hot path never calls prom-client. Durations and sizes are observed one by one, in the histograms
// of registry.js. A test holds the table in the documentation equal to this one.
//
// Names without `fanfare_` are fixed because published dashboards use them, though some break the
// naming rules of Prometheus.

import { getHeapStatistics } from 'node:v8';
import { privateBytes } from '../config/system-memory.js';
import { HOOK_NAMES } from './counters.js';
import { droppedLines } from './log.js';

/** @typedef {import('./counters.js').Counters} Counters */

/**
 * The sources of a worker's rows.
 * @typedef {object} Source
 * @property {Counters} counters
 * @property {() => number} connectionRate
 * @property {() => number} loopLagSeconds
 * @property {number} memoryBytes this worker's share of the memory
 */

/**
 * The sources of the primary's rows.
 * @typedef {object} PrimarySource
 * @property {() => Record<string, number>} workersUp 1 or 0 by slot
 * @property {() => number} restarts
 * @property {() => Record<string, number>} deaths of workers, by cause
 * @property {() => boolean} isCrashLoop
 * @property {() => number} reloads
 * @property {() => number} skew connections of the fullest worker, divided by the mean
 * @property {() => Record<string, number>} rebalances by result
 * @property {() => Record<string, number>} leftOut by the relay
 * @property {() => number} reconciledPlaces by the relay
 * @property {() => FleetLimits} fleetLimits connections per address and user over all servers
 * @property {() => Record<string, number>} presenceEvents of the embedded broker
 * @property {() => {bytes: number, publications: number, lost: Record<string, number>}} history of
 *   the embedded broker
 * @property {() => Record<string, number>} opsSocketsClosed by the operations port
 */

/**
 * @typedef {object} FleetLimits
 * @property {number} servers
 * @property {Record<string, number>} decisions
 * @property {Record<string, number>} reports
 * @property {Record<string, number>} keys
 * @property {Record<string, number>} excess
 */

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {'counter'|'gauge'|'histogram'} type
 * @property {string} help
 * @property {'sum'|'max'|'min'|'first'} [aggregator] over the workers; counters and histograms
 *   always add up
 * @property {string} [label] its values are the keys that `read` returns. Two labels have a comma
 *   between them, and so have their values.
 * @property {readonly string[]} [values] of the label of a histogram
 * @property {readonly number[]} [buckets] of a histogram, ascending
 * @property {(source: Source) => number|Record<string, number>} [read] absent for histograms
 */

const MS_BUCKETS = [0.1, 1, 5, 15, 50, 100, 500];
const LAG_MS_BUCKETS = [1, 5, 10, 25, 50, 100, 250, 500, 1000];
const MEMBER_BUCKETS = [1, 2, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 50_000];
const FLUSH_BUCKETS = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
const API_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const BUS_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** @type {readonly Row[]} */
export const METRICS = Object.freeze([
  // Fixed names.
  gauge(
    'websocket_connections_total',
    'Open connections.',
    'sum',
    ({ counters }) => counters.connections,
  ),
  counter(
    'websocket_messages_total',
    'Messages received from clients.',
    ({ counters }) => counters.messages,
  ),
  labelled(
    'websocket_errors_total',
    'Error replies sent to clients, by error code.',
    'code',
    ({ counters }) => counters.errors,
  ),
  gauge(
    'websocket_connection_rate',
    'New connections per second, averaged over the last five seconds.',
    'sum',
    (source) => source.connectionRate(),
  ),
  histogram(
    'websocket_message_duration_ms',
    'Milliseconds from the receipt of a message to the end of its command, for one message in eight.',
    MS_BUCKETS,
  ),
  histogram(
    'redis_publish_lag_ms',
    'Milliseconds from a publish to the reply of Redis.',
    LAG_MS_BUCKETS,
  ),
  gauge(
    'message_queue_depth',
    'Publications queued and not yet written to all members.',
    'sum',
    ({ counters }) => counters.queueDepth,
  ),
  // process.memoryUsage() opens a file and fails if no descriptor is left.
  gauge(
    'nodejs_heap_used_bytes',
    'Used heap, in bytes.',
    'sum',
    () => getHeapStatistics().used_heap_size,
  ),

  // Connections.
  gauge(
    'fanfare_transport_connections',
    'Open connections, by transport: `websocket` or `sse`.',
    'sum',
    ({ counters: { connections, eventStreams } }) => ({
      websocket: connections - eventStreams,
      sse: eventStreams,
    }),
    'transport',
  ),
  counter(
    'fanfare_connections_accepted_total',
    'Accepted connections.',
    ({ counters }) => counters.accepted,
  ),
  counter(
    'fanfare_connections_closed_total',
    'Closed connections.',
    ({ counters }) => counters.closed,
  ),
  labelled(
    'fanfare_admissions_refused_total',
    'Requests refused before the upgrade, by reason.',
    'reason',
    ({ counters }) => counters.refused,
  ),
  labelled(
    'fanfare_tls_handshakes_total',
    'Finished TLS handshakes of the public port: `full`, or `resumed` from an earlier session.',
    'kind',
    ({ counters }) => counters.tls.handshakes,
  ),
  gauge(
    'fanfare_tls_certificate_expiry_timestamp_seconds',
    'Unix time at which the first certificate of the chain expires; 0 without TLS.',
    'min',
    ({ counters }) => counters.tls.expiresMs / 1000,
  ),
  gauge(
    'fanfare_public_sockets',
    'Open sockets of the public port: WebSockets, handshakes and plain HTTP.',
    'sum',
    ({ counters }) => counters.sockets,
  ),
  labelled(
    'fanfare_idle_sockets_closed_total',
    'Idle sockets closed to free a scarce resource, by resource.',
    'reason',
    ({ counters }) => counters.idleClosed,
  ),
  labelled(
    'fanfare_limits_observed_total',
    'Requests that a limit in mode `observe` would have refused, by limit.',
    'limit',
    ({ counters }) => counters.observed,
  ),
  counter(
    'fanfare_heartbeat_timeouts_total',
    'Connections terminated because no pong arrived in time.',
    ({ counters }) => counters.heartbeatTimeouts,
  ),
  counter(
    'fanfare_connection_failures_total',
    'Connections closed with 1011 because the server failed to build or send their bytes: a bug, logged at most once a minute.',
    ({ counters }) => counters.connectionFailures,
  ),
  labelled(
    'fanfare_relocated_connections_total',
    'Connections closed so that their clients connect anew, by cause: `age` or `rebalance`.',
    'cause',
    ({ counters }) => counters.relocated,
  ),
  labelled(
    'fanfare_fleet_limit_closes_total',
    'Connections closed because all servers together had too many of their address or user, by limit.',
    'limit',
    ({ counters }) => counters.fleetLimitCloses,
  ),
  counter(
    'fanfare_rate_limit_closes_total',
    'Connections closed because they kept exceeding their message rate.',
    ({ counters }) => counters.rateLimitCloses,
  ),
  labelled(
    'fanfare_reader_closes_total',
    'Connections closed while reading, by reason: too many frames (flood), an unfinished message (unfinished), too many unread bytes in the worker (overload).',
    'reason',
    ({ counters }) => counters.readerCloses,
  ),
  counter(
    'fanfare_reads_deferred_total',
    'Reads deferred to a later turn of the event loop because a connection had used its share of the current one.',
    ({ counters }) => counters.readsDeferred,
  ),
  counter(
    'fanfare_addresses_forgotten_total',
    'Client addresses whose message rate was dropped because the table was full.',
    ({ counters }) => counters.addressesForgotten,
  ),
  counter(
    'fanfare_users_forgotten_total',
    'Users of tokens whose message rate was dropped because the table was full.',
    ({ counters }) => counters.usersForgotten,
  ),

  // Fan-out.
  gauge(
    'fanfare_rooms',
    'Rooms with members. A room with members on two workers counts twice.',
    'sum',
    ({ counters }) => counters.rooms,
  ),
  counter(
    'fanfare_publications_total',
    'Publications accepted from clients.',
    ({ counters }) => counters.publications,
  ),
  counter(
    'fanfare_deliveries_total',
    'Publications written to a connection.',
    ({ counters }) => counters.deliveries,
  ),
  counter(
    'fanfare_sent_bytes_total',
    'Bytes of publications written to connections.',
    ({ counters }) => counters.bytesOut,
  ),
  counter(
    'fanfare_flushes_total',
    'Flushes. A flush writes the queued publications of one room to its members.',
    ({ counters }) => counters.flushes,
  ),
  histogram('fanfare_fanout_members', 'Members that one flush wrote to.', MEMBER_BUCKETS),
  histogram(
    'fanfare_flush_seconds',
    'Seconds from the start of a flush to its last write.',
    FLUSH_BUCKETS,
  ),
  labelled(
    'fanfare_slow_consumers_total',
    'Slow consumers, by consequence.',
    'consequence',
    ({ counters }) => counters.slow,
  ),
  gauge(
    'fanfare_lagging_members',
    'Members of rooms with history that read too slowly, and get messages when they read.',
    'sum',
    ({ counters }) => counters.laggingMembers,
  ),
  labelled(
    'fanfare_lagging_members_ended_total',
    'Members that lag no more: caught up, sent a `resync`, or left.',
    'outcome',
    ({ counters }) => counters.lagsEnded,
  ),
  counter(
    'fanfare_overflowed_publications_total',
    'Publications dropped because the queue of their room was full.',
    ({ counters }) => counters.overflowed,
  ),

  gauge(
    'fanfare_fast_path',
    'Fast paths: 1 in use by every worker, 0 not in use by some.',
    'min',
    ({ counters }) =>
      Object.fromEntries(
        Object.entries(counters.fastPaths).map(([name, reason]) => [name, reason === '' ? 1 : 0]),
      ),
    'name',
  ),

  // Broker.
  gauge(
    'fanfare_broker_up',
    'Whether the broker of every worker is up: 1 or 0.',
    'min',
    ({ counters }) => counters.brokerUp,
  ),
  counter(
    'fanfare_broker_reconnects_total',
    'Reconnections of workers to the broker.',
    ({ counters }) => counters.brokerReconnects,
  ),
  counter(
    'fanfare_broker_probe_misses_total',
    'Loopback probes that did not return in time.',
    ({ counters }) => counters.probeMisses,
  ),
  counter(
    'fanfare_skipped_publications_total',
    'Publications lost because a worker could not fetch their body.',
    ({ counters }) => counters.skipped,
  ),
  counter(
    'fanfare_reads_refused_total',
    'Commands answered with UNAVAILABLE because too many reads or commands were waiting.',
    ({ counters }) => counters.readsRefused,
  ),
  counter(
    'fanfare_unnumbered_publications_total',
    'Messages without an offset in rooms with history, caused by a server with other history rules. Members get `resync`.',
    ({ counters }) => counters.unnumbered,
  ),
  counter(
    'fanfare_malformed_publications_total',
    'Malformed messages from the broker. They are dropped, or delivered as null in a room with history.',
    ({ counters }) => counters.malformed,
  ),
  counter(
    'fanfare_unknown_versions_total',
    'Messages in Redis that a newer version of Fanfare wrote and this one cannot read. Members of rooms with history get `resync`.',
    ({ counters }) => counters.unknownVersions,
  ),
  labelled(
    'fanfare_surveys_total',
    'Questions and actions of this server to all workers of the fleet, by result. `partial`: a worker did not answer.',
    'result',
    ({ counters }) => counters.surveys,
  ),
  counter(
    'fanfare_surveys_unanswered_total',
    'Surveys of the fleet that a worker could not answer.',
    ({ counters }) => counters.surveysUnanswered,
  ),
  // Rooms with history.
  counter(
    'fanfare_history_reads_total',
    'Reads of publications from the broker, to load a room or to fill a gap.',
    ({ counters }) => counters.historyReads,
  ),
  counter(
    'fanfare_position_checks_total',
    'Comparisons of the position of a room with the broker, to detect lost publications.',
    ({ counters }) => counters.positionChecks,
  ),
  labelled(
    'fanfare_recoveries_total',
    'Join requests with `since`, by result.',
    'result',
    ({ counters }) => counters.recoveries,
  ),
  counter(
    'fanfare_gaps_total',
    'Gaps: times a worker detected missing publications in a room.',
    ({ counters }) => counters.gaps,
  ),
  counter(
    'fanfare_backfilled_total',
    'Missing publications that a worker read from the broker and delivered in order.',
    ({ counters }) => counters.backfilled,
  ),
  counter(
    'fanfare_resyncs_total',
    'Rooms of a worker whose members got `resync` because a gap could not be filled.',
    ({ counters }) => counters.resyncs,
  ),
  gauge(
    'fanfare_window_bytes',
    'Bytes of recent publications in the replay buffers of rooms.',
    'sum',
    ({ counters }) => counters.replayBufferBytes,
  ),
  counter(
    'fanfare_windows_evicted_total',
    'Replay buffers evicted to free memory.',
    ({ counters }) => counters.replayBuffersEvicted,
  ),
  histogram(
    'fanfare_bus_round_trip_seconds',
    'Seconds that a loopback probe took through the broker: the delivery canary.',
    BUS_BUCKETS,
  ),

  // Tokens.
  labelled(
    'fanfare_tokens_total',
    'Tokens checked, by result: `accepted`, or the reason of the refusal.',
    'result',
    ({ counters }) => counters.auth.tokens,
  ),
  labelled(
    'fanfare_jwks_reads_total',
    'Reads of `JWT_JWKS_URL`, by result. The known keys stay in use after a failed one.',
    'result',
    ({ counters }) => counters.auth.keyReads,
  ),
  gauge(
    'fanfare_authenticated_connections',
    'Connections with a token.',
    'sum',
    ({ counters }) => counters.auth.sessions,
  ),
  gauge(
    'fanfare_unauthenticated_connections',
    'Connections that have to authenticate and have not done so yet.',
    'sum',
    ({ counters }) => counters.auth.unauthenticated,
  ),
  labelled(
    'fanfare_auth_closes_total',
    'Connections closed by authentication, by cause: no token in time, token expired or revoked, user over its limit.',
    'cause',
    ({ counters }) => counters.auth.closes,
  ),
  counter(
    'fanfare_user_limit_observed_total',
    'Connections that `FANFARE_MAX_CONNECTIONS_PER_USER` in mode `observe` would have refused.',
    ({ counters }) => counters.auth.userLimitsObserved,
  ),
  gauge(
    'fanfare_revocations',
    'Revocations in force, of users and of tokens.',
    'max',
    ({ counters }) => counters.auth.revocations,
  ),
  counter(
    'fanfare_revocations_refused_total',
    'Revocations refused because too many are in force.',
    ({ counters }) => counters.auth.revocationsRefused,
  ),
  gauge(
    'fanfare_revocations_unreadable',
    'Damaged lines in the file of revocations. Their revocations do not hold.',
    'max',
    ({ counters }) => counters.auth.revocationsUnreadable,
  ),

  // HTTP API.
  labelled(
    'fanfare_api_requests_total',
    'Requests of the HTTP API, by route. `unknown`: refused before a route was found.',
    'route',
    ({ counters }) => counters.api.requests,
  ),
  labelled(
    'fanfare_api_responses_total',
    'Answers of the HTTP API, by status.',
    'status',
    ({ counters }) => counters.api.responses,
  ),
  labelled(
    'fanfare_api_refused_total',
    'Requests that the HTTP API refused at its door: no valid key, the rate of the key, too many requests at once, a drain, the type, size or time of the body.',
    'reason',
    ({ counters }) => counters.api.refused,
  ),
  gauge(
    'fanfare_api_requests_in_flight',
    'Requests of the HTTP API under way, until the client has taken the answer.',
    'sum',
    ({ counters }) => counters.api.inFlight,
  ),
  counter(
    'fanfare_api_unread_total',
    'Answers of the HTTP API that a client did not take in time. Its connection was closed.',
    ({ counters }) => counters.api.unread,
  ),
  counter(
    'fanfare_api_messages_total',
    'Messages and broadcasts that the HTTP API published, one for each room.',
    ({ counters }) => counters.api.messages,
  ),
  histogram(
    'fanfare_api_request_seconds',
    'Seconds from the head of a request to its answer, in the HTTP API.',
    API_BUCKETS,
  ),

  // Hooks.
  labelled(
    'fanfare_hook_calls_total',
    'Calls of hooks, by hook.',
    'hook',
    ({ counters }) => counters.hooks.calls,
  ),
  labelled(
    'fanfare_hook_denied_total',
    'Calls of hooks that denied a connection, a join or a message, by hook.',
    'hook',
    ({ counters }) => counters.hooks.denied,
  ),
  labelled(
    'fanfare_hook_failures_total',
    'Calls of hooks that failed, and so refused, by hook and reason: `throw`, `timeout`, `answer` (of another form), `busy` (too many calls).',
    'hook,reason',
    ({ counters }) => counters.hooks.failures,
  ),
  gauge(
    'fanfare_hook_calls_running',
    'Promises of hooks that are not settled, those past their deadline included.',
    'sum',
    ({ counters }) => counters.hooks.running,
  ),
  {
    ...histogram(
      'fanfare_hook_seconds',
      'Seconds from the start of a hook to its answer, its failure or its deadline, by hook.',
      API_BUCKETS,
    ),
    label: 'hook',
    values: HOOK_NAMES,
  },
  // Large messages.
  labelled(
    'fanfare_blob_uploads_total',
    'Uploads to the bucket: stored through Fanfare, announced and verified past it; refused because too many were under way, failed because of the bucket, or aborted by their sender.',
    'result',
    ({ counters }) => counters.blobs.uploads,
  ),
  counter(
    'fanfare_blob_stored_bytes_total',
    'Bytes of large messages that this server has put into the bucket.',
    ({ counters }) => counters.blobs.storedBytes,
  ),
  gauge(
    'fanfare_blob_uploads_in_flight',
    'Uploads to the bucket, and checks of uploads, under way.',
    'sum',
    ({ counters }) => counters.blobs.inFlight,
  ),
  labelled(
    'fanfare_blob_references_total',
    'References to objects that workers made for their members: signed, without a URL because the object has expired, or malformed.',
    'result',
    ({ counters }) => counters.blobs.references,
  ),
  gauge(
    'fanfare_blob_bucket_up',
    '1 unless the last request of a worker to the bucket for large messages failed.',
    'min',
    ({ counters }) => counters.blobs.bucketUp,
  ),
  histogram(
    'fanfare_blob_request_seconds',
    'Seconds of requests to the bucket, uploads included.',
    API_BUCKETS,
  ),

  // Presence.
  gauge(
    'fanfare_presence_members',
    'Users in rooms with presence. A user on two workers, or in two rooms, counts twice.',
    'sum',
    ({ counters }) => counters.presenceMembers,
  ),
  labelled(
    'fanfare_presence_events_total',
    'Presence events, by kind: `join`, `leave`, or `suppressed` because the room was too large.',
    'event',
    ({ counters }) => counters.presenceEvents,
  ),
  counter(
    'fanfare_presence_reaped_workers_total',
    'Dead workers whose users were removed from presence in Redis.',
    ({ counters }) => counters.presenceReaped,
  ),

  // The process.
  gauge(
    'fanfare_event_loop_lag_seconds',
    'Highest event-loop lag of any worker since the last scrape, or within the last ten seconds.',
    'max',
    (source) => source.loopLagSeconds(),
  ),
  counter('fanfare_log_lines_dropped_total', 'Log lines that could not be written.', () =>
    droppedLines(),
  ),
]);

/**
 * One series per worker, because a sum over the workers hides an imbalance or a leak.
 * @type {readonly Row[]}
 */
export const WORKER_METRICS = Object.freeze([
  gauge(
    'fanfare_worker_connections',
    'Open connections, by worker.',
    'sum',
    ({ counters }) => counters.connections,
    'worker',
  ),
  gauge(
    'fanfare_worker_heap_used_ratio',
    'Used heap divided by the heap limit, by worker.',
    'max',
    heapUsedRatio,
    'worker',
  ),
  gauge(
    'fanfare_worker_memory_used_ratio',
    'Private memory (heap and buffers) divided by the memory share of the worker, by worker.',
    'max',
    ({ memoryBytes }) => privateBytes() / memoryBytes,
    'worker',
  ),
]);

/**
 * The primary's own.
 * @type
 *   {readonly (Omit<Row, 'read'> & {read: (source: PrimarySource) => number|Record<string, number>})[]}
 */
export const PRIMARY_METRICS = Object.freeze([
  {
    name: 'fanfare_worker_up',
    type: 'gauge',
    label: 'worker',
    help: 'Whether the worker answered this scrape: 1 or 0.',
    read: (source) => source.workersUp(),
  },
  {
    name: 'fanfare_worker_restarts_total',
    type: 'counter',
    help: 'Workers replaced after an unexpected exit.',
    read: (source) => source.restarts(),
  },
  {
    name: 'fanfare_worker_deaths_total',
    type: 'counter',
    help: 'Unexpected exits of workers, by cause: crashed, hung (killed because it was unresponsive), start (never became ready).',
    label: 'cause',
    read: (source) => source.deaths(),
  },
  {
    name: 'fanfare_worker_crash_loop',
    type: 'gauge',
    help: 'Whether five workers have died within the last minute: 1 or 0.',
    read: (source) => (source.isCrashLoop() ? 1 : 0),
  },
  {
    name: 'fanfare_reloads_total',
    type: 'counter',
    help: 'Completed rolling reloads.',
    read: (source) => source.reloads(),
  },
  {
    name: 'fanfare_worker_skew_ratio',
    type: 'gauge',
    help: 'Connections of the fullest worker, divided by the mean of all workers.',
    read: (source) => source.skew(),
  },
  {
    name: 'fanfare_rebalances_total',
    type: 'counter',
    help: 'Rebalances of connections over the workers, by result: `done`, `interrupted` (a worker died, a reload or stop began), `abandoned` (no effect).',
    label: 'result',
    read: (source) => source.rebalances(),
  },
  {
    name: 'fanfare_presence_events_total',
    type: 'counter',
    help: 'Presence events, by kind: `join`, `leave`, or `suppressed` because the room was too large.',
    label: 'event',
    read: (source) => source.presenceEvents(),
  },
  {
    name: 'fanfare_relay_left_out_total',
    type: 'counter',
    help: 'Publications of the embedded broker not sent to a worker because it reads too slowly. Rooms with history recover them.',
    label: 'room',
    read: (source) => source.leftOut(),
  },
  {
    name: 'fanfare_relay_places_reconciled_total',
    type: 'counter',
    help: 'Connections per client address corrected in the primary, because its count differed from that of the worker.',
    read: (source) => source.reconciledPlaces(),
  },
  {
    name: 'fanfare_fleet_limit_servers',
    type: 'gauge',
    help: 'Servers whose connections the limits over all servers count, this one included. 0: no report has come through Redis for 5 s, or these limits are off.',
    read: (source) => source.fleetLimits().servers,
  },
  {
    name: 'fanfare_fleet_limit_decisions_total',
    type: 'counter',
    label: 'decision',
    help: 'Decisions about connections: `refused`, although this server alone would have admitted it; `observed`, the same in mode `observe`; `alone`, admitted by the count of this server while Redis was away, with a fifth of the limit in use here.',
    read: (source) => source.fleetLimits().decisions,
  },
  {
    name: 'fanfare_fleet_limit_excess',
    type: 'gauge',
    label: 'limit',
    help: 'Connections of this server that are too many for all servers together, by limit. In mode `enforce` they are closed within a second.',
    read: (source) => source.fleetLimits().excess,
  },
  {
    name: 'fanfare_fleet_limit_keys',
    type: 'gauge',
    label: 'state',
    help: 'Addresses and users with at least a fifth of their limit on this server: `reported` to the other servers, or `left_out` because a report has room for 1,000.',
    read: (source) => source.fleetLimits().keys,
  },
  {
    name: 'fanfare_fleet_limit_reports_total',
    type: 'counter',
    label: 'kind',
    help: 'Reports about connections per address and user: `sent`, `received` from other servers, of an `unknown_version`, or `malformed`.',
    read: (source) => source.fleetLimits().reports,
  },
  {
    name: 'fanfare_embedded_history_bytes',
    type: 'gauge',
    help: 'Memory used by the histories of the embedded broker.',
    read: (source) => source.history().bytes,
  },
  {
    name: 'fanfare_embedded_history_publications',
    type: 'gauge',
    help: 'Publications in the histories of the embedded broker.',
    read: (source) => source.history().publications,
  },
  {
    name: 'fanfare_embedded_history_lost_total',
    type: 'counter',
    help: 'Publications, positions and idempotency keys evicted early, and reads refused, because the embedded broker had no room.',
    label: 'what',
    read: (source) => source.history().lost,
  },
  {
    name: 'fanfare_ops_sockets_closed_total',
    type: 'counter',
    label: 'reason',
    help: 'Sockets that the operations port closed: `full`, it had 256 and this one was the oldest of the address with most; `pipelined`, a second request came before the first was answered.',
    read: (source) => source.opsSocketsClosed(),
  },
  {
    name: 'fanfare_primary_cpu_seconds_total',
    type: 'counter',
    help: 'CPU time of the primary, in seconds.',
    read: primaryCpuSeconds,
  },
  {
    name: 'fanfare_primary_resident_memory_bytes',
    type: 'gauge',
    help: 'Resident memory of the primary, in bytes.',
    read: () => process.memoryUsage.rss(),
  },
  {
    name: 'fanfare_log_lines_dropped_total',
    type: 'counter',
    help: 'Log lines that could not be written.',
    read: () => droppedLines(),
  },
]);

/** @param {Source} _source */
function heapUsedRatio(_source) {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  return used / limit;
}

function primaryCpuSeconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/**
 * @param {string} name
 * @param {string} help
 * @param {(source: Source) => number} read
 * @returns {Row}
 */
function counter(name, help, read) {
  return { name, type: 'counter', help, read };
}

/**
 * A counter with one label.
 * @param {string} name
 * @param {string} help
 * @param {string} label
 * @param {(source: Source) => Record<string, number>} read
 * @returns {Row}
 */
function labelled(name, help, label, read) {
  return { name, type: 'counter', help, label, read };
}

/**
 * @param {string} name
 * @param {string} help
 * @param {'sum'|'max'|'min'|'first'} aggregator
 * @param {(source: Source) => number|Record<string, number>} read
 * @param {string} [label]
 * @returns {Row}
 */
function gauge(name, help, aggregator, read, label) {
  return { name, type: 'gauge', help, aggregator, read, label };
}

/**
 * @param {string} name
 * @param {string} help
 * @param {readonly number[]} buckets
 * @returns {Row}
 */
function histogram(name, help, buckets) {
  return { name, type: 'histogram', help, buckets };
}
