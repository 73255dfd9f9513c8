// backend.js: the contract of a backend, which connects the workers of a server or a fleet. The
// `createBackend` of its index.js builds a worker's broker and presence without I/O.

/**
 * @typedef {object} BackendParts
 * @property {import('../config/settings.js').Config} config @property {import('pino').Logger} log
 * @property {import('../observability/counters.js').Counters} counters
 * @property {string} workerId names this worker in the fleet; after a restart another worker may
 *   have the same name
 * @property {RoomRules<HistoryRule>} historyRules rooms with history or state. The backend may add
 *   rules of other servers, because the worker reads them here
 * @property {import('./presence.js').Announcements} announcements
 * @property {WorkerPlaces} machine what the primary of its machine does for this worker. The
 *   backend's owner opens its link before the broker starts and closes it after `close`
 * @property {BackendEvents} events
 */

/**
 * @typedef {object} BackendEvents measurements, for the worker's metrics
 * @property {(ms: number) => void} onPublishLag from writing publications to their acceptance
 * @property {(seconds: number) => void} onRoundTrip of a probe through the backend
 */

/**
 * @typedef {object} Backend
 * @property {import('./broker.js').Broker} broker
 * @property {import('./presence.js').Presence|null} presence null if no room has presence
 * @property {import('./revocations.js').RevocationStore} revocations usable once the broker has
 *   started
 * @property {import('./webhook-reporter.js').EventStore|null} [eventStore] null or absent: nothing is recorded for
 *   webhooks
 * @property {() => Promise<void>} close closes presence and the event store, then the broker; may be called
 *   twice
 */

/**
 * The option `recorder` of createBackend is the module that records for webhooks, loaded if
 * `config.webhooks` has endpoints.
 * @typedef {(parts: BackendParts) => Backend} CreateBackend
 */
/** @import { HistoryRule, RoomRules } from '../config/room-patterns.js' */
/** @import { WorkerPlaces } from './embedded/worker-places.js' */

export {};
