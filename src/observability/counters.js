// counters.js: a worker's plain counters, read by the rows of metrics.js at each scrape.
//
// The hot path adds to a number in an object, nothing more: a labelled prom-client counter hashes
// its labels on every inc(), which at millions of deliveries a second is a core of its own.

import { ERRORS } from '../protocol/codes.js';

/** Why an admission was refused: the closed label set of `fanfare_admissions_refused_total`. */
export const REFUSALS = /** @type {const} */ ([
  'origin',
  'per_ip',
  'handshakes',
  'handshakes_per_ip',
  'handshake_timeout',
  'draining',
  'loop_lag',
  'memory',
  'descriptors',
  'bad_request',
]);

/** Limits that can be observed: the closed label set of `fanfare_limits_observed_total`. */
export const OBSERVED = /** @type {const} */ ([
  'connections_per_ip',
  'messages',
  'messages_per_ip',
  'broadcasts_per_ip',
  'frames',
  'handshakes',
  'handshakes_per_ip',
  'rooms',
  'loop_lag',
  'memory',
  'descriptors',
]);

/**
 * Why an idle socket was closed to make room: the closed label set of
 * `fanfare_idle_sockets_closed_total`.
 */
export const EVICTIONS = /** @type {const} */ (['handshakes', 'plain_http', 'descriptors']);
/**
 * Why a connection was closed for how it sends: the closed label set of
 * `fanfare_reader_closes_total`.
 */
export const READER_CLOSES = /** @type {const} */ (['flood', 'unfinished', 'overload']);

/**
 * Fast paths, by the places that use them (src/transport/fast/README.md): the closed label set of
 * `fanfare_fast_path`.
 */
export const FAST_PATHS = /** @type {const} */ ([
  'direct_write',
  'shared_reads',
  'ws_listener',
  'http_listeners',
  'redis_pushes',
  'redis_commands',
  'redis_reset',
]);
/** @typedef {typeof FAST_PATHS[number]} FastPath */

/** What became of joins and leaves: the closed label set of `fanfare_presence_events_total`. */
export const PRESENCE_EVENTS = /** @type {const} */ (['join', 'leave', 'suppressed']);
/** What became of a join with `since`: the closed label set of `fanfare_recoveries_total`. */
export const RECOVERIES = /** @type {const} */ (['recovered', 'insufficient', 'unavailable']);

/**
 * @template {string} K
 * @param {readonly K[]} keys
 * @returns {Record<K, number>}
 */
function zeros(keys) {
  return /** @type {Record<K, number>} */ (Object.fromEntries(keys.map((key) => [key, 0])));
}

/** @returns one worker's counters, all zero; gauges say so. */
export function createCounters() {
  return {
    /** gauge */ connections: 0,
    /** gauge: sockets of the public port, WebSockets included */ sockets: 0,
    idleClosed: zeros(EVICTIONS),
    accepted: 0,
    closed: 0,
    messages: 0,
    errors: zeros(/** @type {(keyof typeof ERRORS)[]} */ (Object.keys(ERRORS))),
    publications: 0,
    deliveries: 0,
    bytesOut: 0,
    flushes: 0,
    /** gauge: frames gathered and not yet written to all members */ queueDepth: 0,
    /** gauge */ rooms: 0,
    slow: zeros(/** @type {const} */ (['closed', 'dropped', 'shed'])),
    /** publications left out because a room's outbox was full: the worker itself is too slow */ overflowed: 0,
    refused: zeros(REFUSALS),
    observed: zeros(OBSERVED),
    heartbeatTimeouts: 0,
    rateLimitCloses: 0,
    readerCloses: zeros(READER_CLOSES),
    /** reads that waited for a later turn of the event loop, in whole or in part */ readsDeferred: 0,
    /** address buckets forgotten because there were too many */ addressesForgotten: 0,
    /** by name: '' in use, else why not; without an entry if it does not apply */
    fastPaths: /** @type {Partial<Record<FastPath, string>>} */ ({}),
    /** gauge: 1 up, 0 not */ brokerUp: 0,
    brokerReconnects: 0,
    probeMisses: 0,
    /** gauge: users here in rooms with presence */ presenceMembers: 0,
    presenceEvents: zeros(PRESENCE_EVENTS),
    /** dead workers whose users this one has taken out of presence */ presenceReaped: 0,
    /** broker reads of publications */ historyReads: 0,
    /** broker reads of a position alone */ positionChecks: 0,
    recoveries: zeros(RECOVERIES),
    /** times a worker found that it had missed publications */ gaps: 0,
    /** missed publications that were read and delivered */ backfilled: 0,
    /** times members were told that they may have missed some */ resyncs: 0,
    /** gauge */ replayBufferBytes: 0,
    /** replay buffers emptied because all of them together were too large */ replayBuffersEvicted: 0,
    /** publications announced by the broker whose body this worker could not get */ skipped: 0,
    /** reads for joins, `history` and `presence` refused because too many waited */ readsRefused: 0,
    /** messages without an offset that came to a room with history */ unnumbered: 0,
    /** publications and positions from the broker that are not valid */ malformed: 0,
  };
}

/** @typedef {ReturnType<typeof createCounters>} Counters */
