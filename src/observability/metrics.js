// metrics.js: the table of metrics.
//
// A row gives the name, type, help, label, buckets, how the workers' values add up (`aggregator`),
// and the source: plain numbers of counters.js, or a histogram of registry.js. Those of the process
// are in process-metrics.js.
//
// Names without `fanfare_` are fixed, against Prometheus' rules: published dashboards use them.

import { getHeapStatistics } from 'node:v8';
import { privateBytes } from '../config/system-memory.js';
import { VERSION } from '../config/version.js';
import { HOOK_NAMES, TURN_SLOTS } from './counters.js';
import { droppedLines } from './log.js';
import { counter, gauge, histogram } from './rows.js';

/** @import { Counters } from './counters.js' */
/** @template [S=Source] @typedef {import('./rows.js').Row<S>} Row */

/**
 * @typedef {object} Source of a worker's rows
 * @property {Counters} counters @property {() => number} connectionRate
 * @property {() => number} loopLagSeconds
 * @property {number} memoryBytes this worker's share of the memory
 */

/**
 * @typedef {object} PrimarySource of the primary's rows
 * @property {() => Record<string, number>} workersUp 1 or 0 by slot
 * @property {() => number} restarts
 * @property {() => Record<string, number>} deaths of workers, by cause
 * @property {() => boolean} isCrashLoop @property {() => number} reloads
 * @property {() => boolean} hasReloadSucceeded
 * @property {() => number} skew connections of the fullest worker, divided by the mean
 * @property {() => Record<string, number>} rebalances by result
 * @property {() => Record<string, number>} leftOut by the relay
 * @property {() => number} reconciledPlaces by the relay
 * @property {() => FleetLimits} fleetLimits connections per address and user over all servers
 * @property {() => Record<string, number>} presenceEvents of the embedded broker
 * @property {() => {bytes: number, publications: number, lost: Record<string, number>}} history of
 *   the embedded broker
 * @property {() => Record<string, number>} opsSocketsClosed by the operations port
 * @property {() => number} courierRestarts
 */

/**
 * @typedef {{servers: number, decisions: Record<string, number>, reports: Record<string, number>,
 *   keys: Record<string, number>, excess: Record<string, number>}} FleetLimits
 */

/**
 * The source of the courier's rows. Counts by endpoint; those with two labels have keys such as
 * `example.com,failed`.
 * @typedef {object} CourierSource
 * @property {() => Record<string, number>} pending
 * @property {() => Record<string, number>} oldestSeconds
 * @property {() => Record<string, number>} up
 * @property {() => Record<string, number>} attempts by endpoint and outcome
 * @property {() => Record<string, number>} dropped by endpoint and reason
 * @property {() => Record<string, number>} cancelled @property {() => number} partitions
 * @property {() => import('../webhooks/queue.js').QueueSize & {failures: number}} size
 */

const MS_BUCKETS = [0.1, 1, 5, 15, 50, 100, 500];
const LAG_MS_BUCKETS = [1, 5, 10, 25, 50, 100, 250, 500, 1000];
const MEMBER_BUCKETS = [1, 2, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 50_000];
const FLUSH_BUCKETS = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
/** The shares of a turn are 1, 2, 4, 8 and 16 ms, and 32 together. */
const TURN_BUCKETS = [0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1];
const API_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const BUS_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** @type {readonly Row[]} */
// biome-ignore format: a row has two lines, and not one for each argument
export const METRICS = Object.freeze([
  // Fixed names.
  gauge('websocket_connections_total', 'sum', ({ counters }) => counters.connections,
    'Open connections.'),
  counter('websocket_messages_total', ({ counters }) => counters.messages,
    'Messages received from clients.'),
  counter('websocket_errors_total{code}', ({ counters }) => counters.errors,
    'Error replies sent to clients, by error code.'),
  gauge('websocket_connection_rate', 'sum', (source) => source.connectionRate(),
    'New connections per second, averaged over the last five seconds.'),
  histogram('websocket_message_duration_ms', MS_BUCKETS,
    'Milliseconds from the receipt of a message to the end of its command, for one message in eight.'),
  histogram('redis_publish_lag_ms', LAG_MS_BUCKETS,
    'Milliseconds from a publish to the reply of Redis.'),
  gauge('message_queue_depth', 'sum', ({ counters }) => counters.queueDepth,
    'Publications queued and not yet written to all members.'),
  // process.memoryUsage() opens a file and fails if no descriptor is left.
  gauge('nodejs_heap_used_bytes', 'sum', () => getHeapStatistics().used_heap_size,
    'Used heap, in bytes.'),

  // Connections.
  gauge('fanfare_transport_connections{transport}', 'sum', transportConnections,
    'Open connections, by transport: `websocket`, `sse`, `pusher` if there are apps, or `centrifugo`.'),
  gauge('fanfare_app_connections{app}', 'sum', ({ counters }) => counters.apps.connections,
    'Open connections by app: those of Pusher clients, and native ones with a token of the app.'),
  counter('fanfare_app_messages_total{app}', ({ counters }) => counters.apps.messages,
    'Messages received from clients of apps, by app.'),
  counter('fanfare_app_events_total{app,publisher}', ({ counters }) => counters.apps.events,
    'Events published in apps, by app and publisher: a client (`client`), or an HTTP API (`api`). An event for three channels counts three times.'),
  counter('fanfare_connections_accepted_total', ({ counters }) => counters.accepted,
    'Accepted connections.'),
  counter('fanfare_connections_closed_total', ({ counters }) => counters.closed,
    'Closed connections.'),
  counter('fanfare_admissions_refused_total{reason}', ({ counters }) => counters.refused,
    'Connections refused before the upgrade, by reason (runbook: FanfareRefusalsRising). `bad_request` counts stray plain HTTP, too.'),
  counter('fanfare_tls_handshakes_total{kind}', ({ counters }) => counters.tls.handshakes,
    'Finished TLS handshakes of the public port: `full`, or `resumed` from an earlier session.'),
  gauge('fanfare_tls_certificate_expiry_timestamp_seconds', 'min', ({ counters }) => counters.tls.expiresMs / 1000,
    'Unix time at which the first certificate of the chain expires; 0 without TLS.'),
  gauge('fanfare_public_sockets', 'sum', ({ counters }) => counters.sockets,
    'Open sockets of the public port: WebSockets, handshakes and plain HTTP.'),
  counter('fanfare_idle_sockets_closed_total{reason}', ({ counters }) => counters.idleClosed,
    'Idle sockets closed to free a scarce resource, by resource.'),
  counter('fanfare_limits_observed_total{limit}', ({ counters }) => counters.observed,
    'Requests that a limit in mode `observe` would have refused, by limit.'),
  counter('fanfare_heartbeat_timeouts_total', ({ counters }) => counters.heartbeatTimeouts,
    'Connections terminated because no pong arrived in time.'),
  counter('fanfare_connection_failures_total', ({ counters }) => counters.connectionFailures,
    'Connections closed with 1011 because the server failed to build or send their bytes: a bug, logged at most once a minute.'),
  counter('fanfare_relocated_connections_total{cause}', ({ counters }) => counters.relocated,
    'Connections closed so that their clients reconnect, by cause: `age` or `rebalance`.'),
  counter('fanfare_fleet_limit_closes_total{limit}', ({ counters }) => counters.fleetLimitCloses,
    'Connections closed because their address or user had too many over all servers, by limit.'),
  counter('fanfare_rate_limit_closes_total', ({ counters }) => counters.rateLimitCloses,
    'Connections closed because they kept exceeding the message rate.'),
  counter('fanfare_reader_closes_total{reason}', ({ counters }) => counters.readerCloses,
    'Connections closed while reading, by reason: too many frames (flood), an unfinished message (unfinished), too many unread bytes in the worker (overload).'),
  counter('fanfare_reads_deferred_total', ({ counters }) => counters.readsDeferred,
    'Reads deferred to a later turn of the event loop because a connection had used its share of the current one.'),
  counter('fanfare_addresses_forgotten_total', ({ counters }) => counters.addressesForgotten,
    'Client addresses whose message count was forgotten because the table was full.'),
  counter('fanfare_users_forgotten_total', ({ counters }) => counters.usersForgotten,
    'Users whose message count was forgotten because the table was full.'),

  // Fan-out.
  gauge('fanfare_rooms', 'sum', ({ counters }) => counters.rooms,
    'Rooms with members. A room with members on two workers counts twice.'),
  counter('fanfare_publications_total', ({ counters }) => counters.publications,
    'Publications accepted from clients.'),
  counter('fanfare_deliveries_total', ({ counters }) => counters.deliveries,
    'Publications written to a connection.'),
  counter('fanfare_sent_bytes_total', ({ counters }) => counters.bytesOut,
    'Bytes of publications written to connections.'),
  counter('fanfare_flushes_total', ({ counters }) => counters.flushes,
    'Flushes. A flush writes the queued publications of one room to its members.'),
  histogram('fanfare_fanout_members', MEMBER_BUCKETS, 'Members that one flush wrote to.'),
  histogram('fanfare_turn_seconds{slot}', TURN_BUCKETS,
    'Seconds that each slot took in a turn of the event loop. `total`: all slots; `loop`: reads, timers and the broker between two turns, when the first one left work.',
    [...TURN_SLOTS, 'loop', 'total']),
  counter('fanfare_slow_consumers_total{consequence}', ({ counters }) => counters.slow,
    'Slow consumers, by consequence.'),
  gauge('fanfare_lagging_members', 'sum', ({ counters }) => counters.laggingMembers,
    'Members of rooms with history that read too slowly. They get their messages when they read again.'),
  counter('fanfare_lagging_members_ended_total{outcome}', ({ counters }) => counters.lagsEnded,
    'Members that no longer lag, by outcome: caught up, sent a `resync`, or left.'),
  gauge('fanfare_state_syncing_members', 'sum', ({ counters }) => counters.syncingMembers,
    'Members of rooms with state that are receiving the state after a join or a `reset`, or wait for the flush after it.'),
  gauge('fanfare_state_bytes', 'sum', ({ counters }) => counters.stateBytes,
    'Bytes of the copies of rooms with state: keys, messages and 512 for each key.'),
  counter('fanfare_state_conflated_total', ({ counters }) => counters.conflated,
    'Messages in rooms with state that a newer message with the same key replaced before they were written.'),
  counter('fanfare_state_full_total', ({ counters }) => counters.stateFull,
    'Messages refused with `STATE_FULL`.'),
  counter('fanfare_state_closes_total', ({ counters }) => counters.stateCloses,
    'Members of the room with the largest state, closed with 1013 because the states in their worker had grown too large.'),
  counter('fanfare_overflowed_publications_total', ({ counters }) => counters.overflowed,
    'Publications dropped because the queue of their room was full.'),

  gauge('fanfare_fast_path{name}', 'min', fastPaths,
    'Fast paths: 1 if every worker uses it, 0 if some worker does not.'),

  // Broker.
  gauge('fanfare_broker_up', 'min', ({ counters }) => counters.brokerUp,
    'Whether the broker of every worker is up: 1 or 0.'),
  counter('fanfare_broker_reconnects_total', ({ counters }) => counters.brokerReconnects,
    'Reconnections of workers to the broker.'),
  counter('fanfare_broker_probe_misses_total', ({ counters }) => counters.probeMisses,
    'Loopback probes that did not return in time.'),
  gauge('fanfare_hearing_workers{from}', 'sum', ({ counters }) => counters.hearing,
    'With `REDIS_SUBSCRIBE_URL`: workers that hear from the `primary` of Redis or through a `replica`.'),
  counter('fanfare_skipped_publications_total', ({ counters }) => counters.skipped,
    'Publications lost because a worker could not fetch the body.'),
  counter('fanfare_reads_refused_total', ({ counters }) => counters.readsRefused,
    'Commands refused because too many reads or commands were waiting, or the replies of a batch too large.'),
  counter('fanfare_unnumbered_publications_total', ({ counters }) => counters.unnumbered,
    'Messages without an offset in rooms with history, caused by a server with other history rules. Members get `resync`.'),
  counter('fanfare_malformed_publications_total', ({ counters }) => counters.malformed,
    'Malformed messages from the broker. They are dropped, or delivered as null in a room with history.'),
  counter('fanfare_unknown_versions_total', ({ counters }) => counters.unknownVersions,
    'Messages in Redis from a newer version of Fanfare that this version cannot read. Members of rooms with history get `resync`.'),
  counter('fanfare_surveys_total{result}', ({ counters }) => counters.surveys,
    'Surveys and actions that this server sent to all workers of the fleet, by result. `partial`: a worker did not answer.'),
  counter('fanfare_surveys_unanswered_total', ({ counters }) => counters.surveysUnanswered,
    'Surveys of the fleet that a worker could not answer.'),
  counter('fanfare_emulation_requests_total{result}', ({ counters }) => counters.emulation,
    'Requests with commands of Centrifugo clients that use HTTP streaming or SSE, by result. `unknown`: no worker has the stream.'),
  // Rooms with history.
  counter('fanfare_history_reads_total', ({ counters }) => counters.historyReads,
    'Reads of publications from the broker, to load a room or to fill a gap.'),
  counter('fanfare_position_checks_total', ({ counters }) => counters.positionChecks,
    'Comparisons of a room position in a worker with the broker, to detect lost publications.'),
  counter('fanfare_recoveries_total{result}', ({ counters }) => counters.recoveries,
    'Join requests with `since`, by result.'),
  counter('fanfare_gaps_total', ({ counters }) => counters.gaps,
    'Gaps: a worker detected missing publications in a room.'),
  counter('fanfare_backfilled_total', ({ counters }) => counters.backfilled,
    'Missing publications that a worker read from the broker and delivered in order.'),
  counter('fanfare_resyncs_total', ({ counters }) => counters.resyncs,
    'Gaps that could not be filled, so the members of the room in that worker got `resync`.'),
  gauge('fanfare_replay_buffer_bytes', 'sum', ({ counters }) => counters.replayBufferBytes,
    'Bytes of recent publications in the replay buffers of rooms, and of the frames of their last replays.'),
  counter('fanfare_replay_buffers_evicted_total', ({ counters }) => counters.replayBuffersEvicted,
    'Replay buffers evicted to free memory.'),
  // The names of older versions, for one version.
  gauge('fanfare_window_bytes', 'sum', ({ counters }) => counters.replayBufferBytes,
    'Deprecated: old name of `fanfare_replay_buffer_bytes`.'),
  counter('fanfare_windows_evicted_total', ({ counters }) => counters.replayBuffersEvicted,
    'Deprecated: old name of `fanfare_replay_buffers_evicted_total`.'),
  histogram('fanfare_flush_seconds', FLUSH_BUCKETS,
    'Deprecated: old name of `fanfare_turn_seconds{slot="flushes"}`.'),
  histogram('fanfare_bus_round_trip_seconds', BUS_BUCKETS,
    'Seconds that a loopback probe took through the broker. With `REDIS_SUBSCRIBE_URL`: to the primary and back through the replica.'),

  // Tokens.
  counter('fanfare_tokens_total{result}', ({ counters }) => counters.auth.tokens,
    'Tokens checked, by result: `accepted`, or the reason of the refusal.'),
  counter('fanfare_jwks_reads_total{result}', ({ counters }) => counters.auth.keyReads,
    'Reads of `JWT_JWKS_URL`, by result. After a failed read the known keys stay in use.'),
  gauge('fanfare_authenticated_connections', 'sum', ({ counters }) => counters.auth.sessions,
    'Connections with a token.'),
  gauge('fanfare_unauthenticated_connections', 'sum', ({ counters }) => counters.auth.unauthenticated,
    'Connections that must authenticate and have not done so yet.'),
  counter('fanfare_auth_closes_total{cause}', ({ counters }) => counters.auth.closes,
    'Connections closed by authentication, by cause: no token in time, token expired or revoked, user over its limit.'),
  counter('fanfare_user_limit_observed_total', ({ counters }) => counters.auth.userLimitsObserved,
    'Connections that `FANFARE_MAX_CONNECTIONS_PER_USER` in mode `observe` would have refused.'),
  gauge('fanfare_revocations', 'max', ({ counters }) => counters.auth.revocations,
    'Revocations in force, of users and of tokens.'),
  counter('fanfare_revocations_refused_total', ({ counters }) => counters.auth.revocationsRefused,
    'Revocations refused because too many are in force.'),
  gauge('fanfare_revocations_unreadable', 'max', ({ counters }) => counters.auth.revocationsUnreadable,
    'Damaged lines in the revocation file. The tokens that they revoke are accepted.'),

  // HTTP API.
  counter('fanfare_api_requests_total{route}', ({ counters }) => counters.api.requests,
    'Requests to the HTTP API, by route. `unknown`: refused before a route was found.'),
  counter('fanfare_api_responses_total{status}', ({ counters }) => counters.api.responses,
    'Answers of the HTTP API, by status.'),
  counter('fanfare_api_refused_total{reason}', ({ counters }) => counters.api.refused,
    'Requests that the HTTP API refused before reading them, by reason: no valid key, the rate of the key, too many requests at once, a drain, the type, size or time of the body.'),
  gauge('fanfare_api_requests_in_flight', 'sum', ({ counters }) => counters.api.inFlight,
    'HTTP API requests under way, until the client has read the answer.'),
  counter('fanfare_api_unread_total', ({ counters }) => counters.api.unread,
    'HTTP API answers that a client did not read in time. Its connection was closed.'),
  counter('fanfare_api_messages_total', ({ counters }) => counters.api.messages,
    'Messages and broadcasts that the HTTP API published, one for each room.'),
  histogram('fanfare_api_request_seconds', API_BUCKETS,
    'Seconds from the head of an HTTP API request to its answer.'),

  // Hooks.
  counter('fanfare_hook_calls_total{hook}', ({ counters }) => counters.hooks.calls,
    'Hook calls, by hook.'),
  counter('fanfare_hook_denied_total{hook}', ({ counters }) => counters.hooks.denied,
    'Hook calls that denied a connection, a join or a message, by hook.'),
  counter('fanfare_hook_failures_total{hook,reason}', ({ counters }) => counters.hooks.failures,
    'Hook calls that failed, which refuses the request, by hook and reason: `throw`, `timeout`, `answer` (malformed), `busy` (too many calls); over HTTP also `unreachable`, `status` (neither 200 nor 204) and `paused` (after failures).'),
  counter('fanfare_hook_cache_total{result}', ({ counters }) => counters.hooks.cache,
    'Answers of hooks over HTTP that may be reused, by result: `hit` saved a request, `stored`, `evicted` because there were too many.'),
  gauge('fanfare_hook_backends_paused', 'sum', ({ counters }) => counters.hooks.paused,
    'Backends of hooks that get no requests now because several in a row have failed, counted in each worker.'),
  gauge('fanfare_hook_calls_running', 'sum', ({ counters }) => counters.hooks.running,
    'Hook promises that are not settled, including those past their deadline.'),
  histogram('fanfare_hook_seconds{hook}', API_BUCKETS,
    'Seconds from the start of a hook to its answer, its failure or its deadline, by hook.',
    HOOK_NAMES),

  // Large messages.
  counter('fanfare_blob_uploads_total{result}', ({ counters }) => counters.blobs.uploads,
    'Uploads to the bucket, by result: stored through Fanfare, verified after a direct upload, refused because too many were under way, failed because of the bucket, or aborted by the sender.'),
  counter('fanfare_blob_stored_bytes_total', ({ counters }) => counters.blobs.storedBytes,
    'Bytes of large messages that this server has stored in the bucket.'),
  gauge('fanfare_blob_uploads_in_flight', 'sum', ({ counters }) => counters.blobs.inFlight,
    'Uploads to the bucket, and checks of uploads, under way.'),
  counter('fanfare_blob_references_total{result}', ({ counters }) => counters.blobs.references,
    'References to objects that workers made for their members, by result: signed, without a URL because the object has expired, or malformed.'),
  gauge('fanfare_blob_bucket_up', 'min', ({ counters }) => counters.blobs.bucketUp,
    '0 if the last request that a worker sent to the bucket for large messages failed, else 1.'),
  histogram('fanfare_blob_request_seconds', API_BUCKETS,
    'Seconds that requests to the bucket took, including uploads.'),

  // Presence.
  gauge('fanfare_presence_members', 'sum', ({ counters }) => counters.presenceMembers,
    'Users in rooms with presence. A user on two workers, or in two rooms, counts twice.'),
  counter('fanfare_presence_events_total{event}', ({ counters }) => counters.presenceEvents,
    'Presence events, by kind: `join`, `leave`, or `suppressed` because the room was too large.'),
  counter('fanfare_presence_reaped_workers_total', ({ counters }) => counters.presenceReaped,
    'Dead workers whose users were removed from presence in Redis.'),

  // The process.
  gauge('fanfare_event_loop_lag_seconds', 'max', (source) => source.loopLagSeconds(),
    'Highest event-loop lag of any worker since the last scrape, or within the last ten seconds.'),
  counter('fanfare_log_lines_dropped_total', () => droppedLines(),
    'Log lines that could not be written.'),
]);

/**
 * One series per worker, because a sum over the workers hides an imbalance or a leak.
 * @type {readonly Row[]}
 */
// biome-ignore format: as above
export const WORKER_METRICS = Object.freeze([
  gauge('fanfare_worker_connections{worker}', 'sum', ({ counters }) => counters.connections,
    'Open connections, by worker.'),
  gauge('fanfare_worker_heap_used_ratio{worker}', 'max', heapUsedRatio,
    'Used heap divided by the heap limit, by worker.'),
  gauge('fanfare_worker_memory_used_ratio{worker}', 'max', ({ memoryBytes }) => privateBytes() / memoryBytes,
    'Private memory (heap and buffers) divided by the memory share of the worker, by worker.'),
]);

/** The primary's own. @type {readonly Row<PrimarySource>[]} */
// biome-ignore format: as above
export const PRIMARY_METRICS = Object.freeze([
  gauge('fanfare_build_info{version}', 'first', () => ({ [VERSION]: 1 }),
    'The version of the server, as a label. The value is always 1.'),
  gauge('fanfare_worker_up{worker}', 'sum', (source) => source.workersUp(),
    'Whether the worker answered this scrape: 1 or 0.'),
  counter('fanfare_worker_restarts_total', (source) => source.restarts(),
    'Workers replaced after an unexpected exit.'),
  counter('fanfare_worker_deaths_total{cause}', (source) => source.deaths(),
    'Unexpected exits of workers, by cause: crashed, hung (killed because it was unresponsive), start (never became ready).'),
  gauge('fanfare_worker_crash_loop', 'sum', (source) => (source.isCrashLoop() ? 1 : 0),
    'Whether five workers have died within the last minute: 1 or 0.'),
  counter('fanfare_reloads_total', (source) => source.reloads(),
    'Completed rolling reloads.'),
  gauge('fanfare_last_reload_successful', 'min', (source) => (source.hasReloadSucceeded() ? 1 : 0),
    'Whether the last reload succeeded: 1 (also before the first), or 0. After a failed one the old configuration stays in use, and the server may not start again with the new one.'),
  gauge('fanfare_worker_skew_ratio', 'sum', (source) => source.skew(),
    'Connections of the fullest worker, divided by the mean of all workers.'),
  counter('fanfare_rebalances_total{result}', (source) => source.rebalances(),
    'Rebalances of connections between workers, by result: `done`, `interrupted` (a worker died, or a reload or stop began), `abandoned` (no effect).'),
  counter('fanfare_presence_events_total{event}', (source) => source.presenceEvents(),
    'Presence events, by kind: `join`, `leave`, or `suppressed` because the room was too large.'),
  counter('fanfare_relay_left_out_total{room}', (source) => source.leftOut(),
    'Publications that the embedded broker did not send to a worker because it reads too slowly. Rooms with history recover them.'),
  counter('fanfare_relay_places_reconciled_total', (source) => source.reconciledPlaces(),
    'Connections per client address corrected in the primary, because its count differed from that of the worker.'),
  gauge('fanfare_fleet_limit_servers', 'sum', (source) => source.fleetLimits().servers,
    'Servers that the limits over all servers count, including this one. 0: no report has come through Redis for 5 s, or these limits are off.'),
  counter('fanfare_fleet_limit_decisions_total{decision}', (source) => source.fleetLimits().decisions,
    'Decisions about connections: `refused`, although the count of this server alone permits it; `observed`, the same in mode `observe`; `alone`, admitted by the count of this server because Redis was unavailable, with at least a fifth of the limit in use here.'),
  gauge('fanfare_fleet_limit_excess{limit}', 'sum', (source) => source.fleetLimits().excess,
    'Connections of this server above a limit over all servers, by limit. In mode `enforce` they are closed within a second.'),
  gauge('fanfare_fleet_limit_keys{state}', 'sum', (source) => source.fleetLimits().keys,
    'Addresses and users with at least a fifth of their limit on this server, and apps with `maxConnections`: `reported` to the other servers, or `left_out` because a report has room for 1,000.'),
  counter('fanfare_fleet_limit_reports_total{kind}', (source) => source.fleetLimits().reports,
    'Reports about connections per address and user: `sent`, `received` from other servers, of an `unknown_version`, or `malformed`.'),
  gauge('fanfare_embedded_history_bytes', 'sum', (source) => source.history().bytes,
    'Memory used by the histories of the embedded broker.'),
  gauge('fanfare_embedded_history_publications', 'sum', (source) => source.history().publications,
    'Publications in the histories of the embedded broker.'),
  counter('fanfare_embedded_history_lost_total{what}', (source) => source.history().lost,
    'Publications, positions and idempotency keys evicted early, and reads refused, because the embedded broker had no room.'),
  counter('fanfare_ops_sockets_closed_total{reason}', (source) => source.opsSocketsClosed(),
    'Sockets that the operations port closed, by reason: `full`, the port had 256, and this was the oldest of the address with the most; `pipelined`, a second request came before the answer to the first.'),
  counter('fanfare_webhooks_courier_restarts_total', (source) => source.courierRestarts(),
    'Replacements of the courier, the process that sends webhooks, after unexpected exits.'),
  counter('fanfare_primary_cpu_seconds_total', primaryCpuSeconds,
    'CPU time of the primary, in seconds.'),
  gauge('fanfare_primary_resident_memory_bytes', 'sum', () => process.memoryUsage.rss(),
    'Resident memory of the primary, in bytes.'),
  counter('fanfare_log_lines_dropped_total', () => droppedLines(),
    'Log lines that could not be written.'),
]);

/** The courier's; none without endpoints. @type {readonly Row<CourierSource>[]} */
// biome-ignore format: as above
export const COURIER_METRICS = Object.freeze([
  gauge('fanfare_webhooks_pending{endpoint}', 'sum', (source) => source.pending(),
    'Events that wait for an endpoint, in the partitions that this server owns, without those that cancel each other.'),
  gauge('fanfare_webhooks_oldest_seconds{endpoint}', 'max', (source) => source.oldestSeconds(),
    'Age of the oldest event that waits for an endpoint, in seconds. Up to 3 s, the grace period, is normal.'),
  gauge('fanfare_webhooks_endpoint_up{endpoint}', 'min', (source) => source.up(),
    '0 if the endpoint failed 20 times in a row or answered 410, else 1.'),
  counter('fanfare_webhooks_attempts_total{endpoint,outcome}', (source) => source.attempts(),
    'Requests to endpoints, by outcome: `delivered`, `failed` (refused, or no answer in time), `unavailable` (unreachable, 429, 502 to 504, or `Retry-After`), `refused` (its address is not allowed), `gone` (410).'),
  counter('fanfare_webhooks_dropped_total{endpoint,reason}', (source) => source.dropped(),
    'Events that an endpoint will not receive, by reason: `overflow` (too many wait), `expired` (older than `maxAgeS`), `lost` (the queue was full, or Redis lost its data), `gone` (410), `malformed`. A `webhook.gap` announces them.'),
  counter('fanfare_webhooks_cancelled_total{endpoint}', (source) => source.cancelled(),
    'Events cancelled by their opposite before they were sent, for example by a reconnect within the grace period.'),
  histogram('fanfare_webhooks_seconds{endpoint}', API_BUCKETS,
    'Seconds from a request to an endpoint to the head of its answer.'),
  gauge('fanfare_webhooks_lanes', 'sum', (source) => source.partitions(),
    'Partitions of the event queue, out of 16, whose events this server sends.'),
  gauge('fanfare_webhooks_queue_entries', 'max', (source) => source.size().entries,
    'Recorded events that no courier has read, over all servers.'),
  gauge('fanfare_webhooks_queue_bytes', 'max', (source) => source.size().bytes,
    'Estimated memory of the event queue, in Redis or the primary, in bytes.'),
  counter('fanfare_webhooks_queue_failures_total', (source) => source.size().failures,
    'Failed calls of the event queue: Redis or the primary was unreachable, or refused a step. The events of the partition wait meanwhile.'),
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

/** @param {Source} source */
function transportConnections({ counters: { connections, eventStreams, apps, doors } }) {
  const ofApps = Object.values(apps.connections);
  const pusher = ofApps.reduce(sumOf, 0);
  const others = pusher + Object.values(doors).reduce(sumOf, 0);
  const native = { websocket: connections - eventStreams - others, sse: eventStreams };
  return ofApps.length === 0 ? { ...native, ...doors } : { ...native, pusher, ...doors };
}

/** @param {number} sum @param {number} count */
function sumOf(sum, count) {
  return sum + count;
}

/** @param {Source} source */
function fastPaths({ counters }) {
  const reasons = Object.entries(counters.fastPaths);
  return Object.fromEntries(reasons.map(([name, reason]) => [name, reason === '' ? 1 : 0]));
}
