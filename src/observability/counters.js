// counters.js: the plain counters of a worker. The rows of metrics.js read them at each scrape.
//
// The hot path only adds to a number in an object: prom-client would hash the labels every time.

import { API_ERRORS, ERRORS } from '../protocol/codes.js';

/** Reasons of refused admissions: the labels of `fanfare_admissions_refused_total`. */
// biome-ignore format: several names a line
export const REFUSALS = /** @type {const} */ ([
  'origin', 'per_ip', 'handshakes', 'handshakes_per_ip', 'handshake_timeout', 'draining',
  'loop_lag', 'memory', 'descriptors', 'bad_request', 'unknown_socket', 'tls', 'tokens', 'denied',
  'hooks',
]);

/** Limits with a mode `observe`: the labels of `fanfare_limits_observed_total`. */
// biome-ignore format: as above
export const OBSERVED = /** @type {const} */ ([
  'connections_per_ip', 'messages', 'messages_per_ip', 'messages_per_user', 'broadcasts_per_ip',
  'frames', 'handshakes', 'handshakes_per_ip', 'rooms', 'loop_lag', 'memory', 'descriptors',
  'api_messages',
]);

/** Routes of the HTTP API: the labels of `fanfare_api_requests_total`. */
// biome-ignore format: as above
export const API_ROUTES = /** @type {const} */ ([
  'publish', 'publish_batch', 'broadcast', 'rooms', 'room', 'history', 'delete_history', 'state',
  'presence', 'query_presence', 'connections', 'connection', 'create_upload', 'disconnect', 'join',
  'leave', 'revoke', 'servers', 'pusher_events', 'pusher_batch_events', 'pusher_channels', 'pusher_channel',
  'pusher_users', 'pusher_terminate', 'centrifugo_publish', 'centrifugo_broadcast',
  'centrifugo_subscribe', 'centrifugo_unsubscribe', 'centrifugo_disconnect', 'centrifugo_refresh',
  'centrifugo_presence', 'centrifugo_presence_stats', 'centrifugo_history',
  'centrifugo_history_remove', 'centrifugo_channels', 'centrifugo_info', 'centrifugo_rpc',
  'centrifugo_batch', 'unknown',
]);

/** Statuses of the HTTP API: the labels of `fanfare_api_responses_total`. */
const API_STATUSES = Object.freeze([
  '200',
  '416', // Centrifugo's server API answers it
  ...new Set(Object.values(API_ERRORS).map(({ status }) => String(status))),
]);

/** Reasons for refusing a request unread: the labels of `fanfare_api_refused_total`. */
// biome-ignore format: as above
export const API_REFUSALS = /** @type {const} */ ([
  'key', 'rate', 'busy', 'draining', 'media_type', 'body_size', 'body_time',
]);

/** Why idle sockets are closed: the labels of `fanfare_idle_sockets_closed_total`. */
export const EVICTIONS = /** @type {const} */ (['handshakes', 'plain_http', 'descriptors']);
/** Reasons for closing a connection while reading: the labels of `fanfare_reader_closes_total`. */
const READER_CLOSES = /** @type {const} */ (['flood', 'unfinished', 'overload']);

/** Fast paths (src/transport/fast/README.md): the labels of `fanfare_fast_path`. */
// biome-ignore format: as above
export const FAST_PATHS = /** @type {const} */ ([
  'direct_write', 'shared_reads', 'http_listeners', 'short_handshake', 'redis_pushes',
  'redis_commands', 'redis_reset',
]);
/** @typedef {typeof FAST_PATHS[number]} FastPath */

/** Slots of a turn except reads: labels of `fanfare_turn_seconds`, with `loop` and `total`. */
// biome-ignore format: as above
export const TURN_SLOTS = /** @type {const} */ ([
  'flushes', 'short_reads', 'joins', 'lagging_members', 'hooks', 'long_reads', 'handshakes',
  'admitted', 'refused_peers', 'closes', 'notices', 'presence', 'surveys', 'tls',
]);

/** Reasons for refusing a token: labels of `fanfare_tokens_total`, beside `accepted`. */
// biome-ignore format: as above
export const TOKEN_REFUSALS = /** @type {const} */ ([
  'oversized', 'malformed', 'algorithm', 'unknown_key', 'signature', 'expired', 'not_yet_valid',
  'lifetime', 'audience', 'issuer', 'claims', 'kind', 'app', 'revoked', 'keys_unavailable',
  'revocations_unavailable', 'overload',
]);

/** Causes of closes by authentication: the labels of `fanfare_auth_closes_total`. */
// biome-ignore format: as above
const AUTH_CLOSES = /** @type {const} */ ([
  'timeout', 'expired', 'revoked', 'user_limit', 'app_limit',
]);

/** The hooks: the labels of `fanfare_hook_calls_total`. */
// biome-ignore format: as above
export const HOOK_NAMES = /** @type {const} */ ([
  'onConnect', 'onJoin', 'onPublish', 'onRpc', 'onSend', 'onDisconnect',
]);

/** @typedef {typeof HOOK_NAMES[number]} HookName */

/** Reasons of failed calls of hooks: labels of `fanfare_hook_failures_total`, with the hook. */
// biome-ignore format: as above
const HOOK_FAILURES = /** @type {const} */ ([
  'throw', 'timeout', 'answer', 'busy', 'unreachable', 'status', 'paused',
]);
/** @typedef {typeof HOOK_FAILURES[number]} HookFailure */
/** What happens to answers that may be reused: the labels of `fanfare_hook_cache_total`. */
const HOOK_CACHE = /** @type {const} */ (['hit', 'stored', 'evicted']);
/**
 * Results of uploads to the bucket: the labels of `fanfare_blob_uploads_total`. `stored`: through
 * Fanfare; `announced` and `verified`: past it; `refused`: too many at once; `failed`: the bucket;
 * `aborted`: the sender, or its body.
 */
// biome-ignore format: as above
const BLOB_UPLOADS = /** @type {const} */ ([
  'stored', 'announced', 'verified', 'refused', 'failed', 'aborted',
]);

/** References to objects in messages: the labels of `fanfare_blob_references_total`. */
const BLOB_REFERENCES = /** @type {const} */ (['signed', 'expired', 'malformed']);

/** TLS handshakes: the labels of `fanfare_tls_handshakes_total`. */
const TLS_HANDSHAKES = /** @type {const} */ (['full', 'resumed']);

/** Causes of relocations: the labels of `fanfare_relocated_connections_total`. */
const RELOCATIONS = /** @type {const} */ (['age', 'rebalance']);

/** Limits over all servers: the labels of `fanfare_fleet_limit_closes_total`. */
const FLEET_LIMITS = /** @type {const} */ (['address', 'user']);

/** Results of surveys of the fleet: the labels of `fanfare_surveys_total`. */
const SURVEYS = /** @type {const} */ (['complete', 'partial', 'failed', 'refused']);

/** Requests with commands of streams: the labels of `fanfare_emulation_requests_total`. */
const EMULATION = /** @type {const} */ (['delivered', 'unknown', 'malformed', 'unavailable']);

/** Kinds of presence events: the labels of `fanfare_presence_events_total`. */
const PRESENCE_EVENTS = /** @type {const} */ (['join', 'leave', 'suppressed']);
/** Results of a join with `since`: the labels of `fanfare_recoveries_total`. */
const RECOVERIES = /** @type {const} */ (['recovered', 'insufficient', 'unavailable']);

/** @template {string} K @param {readonly K[]} keys @returns {Record<K, number>} */
function zeros(keys) {
  return /** @type {Record<K, number>} */ (Object.fromEntries(keys.map((key) => [key, 0])));
}

/**
 * @param {readonly string[]} [apps] ids
 * @param {readonly string[]} [doors] names of those that are on, without the native one and apps
 * @returns a worker's, all zero. Gauges are marked.
 */
export function createCounters(apps = [], doors = []) {
  return {
    /** gauge */ connections: 0,
    /** gauge: those of `connections` that are streams of server-sent events */ eventStreams: 0,
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
    /** gauge: frames queued and not yet written to all members */ queueDepth: 0,
    /** gauge */ rooms: 0,
    slow: zeros(/** @type {const} */ (['closed', 'dropped', 'shed'])),
    /** gauge: members of rooms with history that read too slowly */ laggingMembers: 0,
    /** gauge: members that are still receiving a room's state */ syncingMembers: 0,
    /** gauge: copies of states */ stateBytes: 0,
    /** messages of rooms with state that a newer one of their key replaced before a flush */
    conflated: 0,
    /** publications refused because the state of their room was full */ stateFull: 0,
    /** connections closed because the copies of states had grown too large */ stateCloses: 0,
    lagsEnded: zeros(/** @type {const} */ (['caught_up', 'resync', 'left'])),
    /** publications dropped because an outbox was full: the worker is too slow */ overflowed: 0,
    refused: zeros(REFUSALS),
    observed: zeros(OBSERVED),
    heartbeatTimeouts: 0,
    /** connections closed because building or sending their bytes threw */ connectionFailures: 0,
    relocated: zeros(RELOCATIONS),
    rateLimitCloses: 0,
    /** connections closed because their address or user had too many on all servers together */
    fleetLimitCloses: zeros(FLEET_LIMITS),
    readerCloses: zeros(READER_CLOSES),
    /** reads deferred to a later turn of the event loop, in whole or in part */ readsDeferred: 0,
    /** address buckets forgotten because there were too many */ addressesForgotten: 0,
    /** the same for users */ usersForgotten: 0,
    /** the state of each: '' in use, else why not; no entry if it does not apply */
    fastPaths: /** @type {Partial<Record<FastPath, string>>} */ ({}),
    /** gauge: 1 up, 0 not */ brokerUp: 0,
    brokerReconnects: 0,
    probeMisses: 0,
    /** gauge: 1 for what this worker hears, `primary` or `replica`; no entries without a replica */
    hearing: /** @type {Record<string, number>} */ ({}),
    /** gauge: users here in rooms with presence */ presenceMembers: 0,
    presenceEvents: zeros(PRESENCE_EVENTS),
    /** dead workers whose users this worker removed from presence */ presenceReaped: 0,
    /** broker reads of publications */ historyReads: 0,
    /** broker reads of a position alone */ positionChecks: 0,
    recoveries: zeros(RECOVERIES),
    /** times this worker detected missing publications */ gaps: 0,
    /** missing publications that were read and delivered */ backfilled: 0,
    /** times the members of a room got `resync` */ resyncs: 0,
    /** gauge */ replayBufferBytes: 0,
    /** replay buffers evicted to free memory */ replayBuffersEvicted: 0,
    /** publications announced by the broker whose body this worker could not fetch */ skipped: 0,
    /** commands refused because too many reads or commands waited */ readsRefused: 0,
    /** messages without an offset in a room with history */ unnumbered: 0,
    /** malformed publications and positions from the broker */ malformed: 0,
    /** messages and keys in Redis of a version that this server does not know */
    unknownVersions: 0,
    surveys: zeros(SURVEYS),
    /** requests of the fleet that this worker could not answer */ surveysUnanswered: 0,
    emulation: zeros(EMULATION),
    tls: {
      /** gauge: end of the certificate's validity, in ms since the epoch; 0 without TLS */
      expiresMs: 0,
      handshakes: zeros(TLS_HANDSHAKES),
    },
    auth: createAuthCounters(),
    api: createApiCounters(),
    hooks: createHookCounters(),
    blobs: createBlobCounters(),
    apps: createAppCounters(apps),
    /** gauge: those of `connections` that came through another door */ doors: zeros(doors),
  };
}

/** A door's apps. Configuration bounds the labels. @param {readonly string[]} ids of apps */
function createAppCounters(ids) {
  return {
    /** gauge */ connections: zeros(ids),
    /** received from clients, of any kind */ messages: zeros(ids),
    /** published, by app and publisher: `123,client` or `123,api` */
    events: zeros(ids.flatMap((id) => [`${id},client`, `${id},api`])),
  };
}

/** @returns a worker's counters of hooks */
export function createHookCounters() {
  return {
    calls: zeros(HOOK_NAMES),
    denied: zeros(HOOK_NAMES),
    /** keys are hook and reason: `onPublish,timeout` */
    failures: zeros(
      HOOK_NAMES.flatMap((hook) =>
        HOOK_FAILURES.map((reason) => /** @type {const} */ (`${hook},${reason}`)),
      ),
    ),
    /** gauge: unsettled promises of hooks, including calls that timed out */
    running: 0,
    cache: zeros(HOOK_CACHE),
    /** gauge: backends of hooks that get no requests now */ paused: 0,
  };
}

/** @returns a worker's counters of tokens */
export function createAuthCounters() {
  return {
    tokens: { accepted: 0, ...zeros(TOKEN_REFUSALS) },
    /** reads of the JWKS URL */ keyReads: zeros(/** @type {const} */ (['ok', 'failed'])),
    closes: zeros(AUTH_CLOSES),
    /** connections above the limit of their user, which is only observed */ userLimitsObserved: 0,
    /** gauge: connections that have to authenticate */ unauthenticated: 0,
    /** gauge: connections with a token */ sessions: 0,
    /** gauge: revocations in force */ revocations: 0,
    /** revocations refused because too many are in force */ revocationsRefused: 0,
    /** gauge: lines of the revocation file that cannot be read */ revocationsUnreadable: 0,
  };
}

/** @returns a worker's counters of the HTTP API */
function createApiCounters() {
  return {
    requests: zeros(API_ROUTES),
    responses: zeros(API_STATUSES),
    refused: zeros(API_REFUSALS),
    /** messages of the publish routes, one for each room */ messages: 0,
    /** gauge: requests whose answers the clients do not have yet */ inFlight: 0,
    /** answers that the client did not take in time */ unread: 0,
  };
}

/** @returns a worker's counters of large messages */
export function createBlobCounters() {
  return {
    uploads: zeros(BLOB_UPLOADS),
    references: zeros(BLOB_REFERENCES),
    /** bytes of `stored` uploads */ storedBytes: 0,
    /** gauge: uploads and checks under way */ inFlight: 0,
    /** gauge: 1 unless the last request to the bucket failed */ bucketUp: 1,
  };
}

/** @typedef {ReturnType<typeof createHookCounters>} HookCounters */
/** @typedef {ReturnType<typeof createBlobCounters>} BlobCounters */
/** @typedef {ReturnType<typeof createCounters>} Counters */
/** @typedef {ReturnType<typeof createAuthCounters>} AuthCounters */
