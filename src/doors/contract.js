// contract.js: the contract between a worker and a door.

/** @import { WebhookReporter } from '../backend/webhook-reporter.js' */
/** @import { Broker, HistoryOf } from '../backend/broker.js' */
/** @import { Config } from '../config/settings.js' */
/** @import { StreamDoor } from '../hub/door.js' */
/** @import { LoadedDoor } from '../transport/route.js' */

/**
 * What a worker gives to its doors.
 * @typedef {object} DoorServices
 * @property {Config} config @property {import('../hub/hub.js').Hub} hub
 * @property {Pick<Broker, 'publish'|'history'|'countConnections'|'state'>} broker
 * @property {import('../operations/publisher.js').Publisher} publisher
 * @property {import('../recovery/scheduler.js').SyncScheduler} scheduler
 * @property {HistoryOf} historyOf
 * @property {Pick<import('../recovery/history-reader.js').HistoryReader, 'read'|'page'>}
 *   historyReader
 * @property {import('../hub/room-users.js').Tracker} tracker
 * @property
 *   {import('../transport/http-api/call.js').Services['fleet'] & Pick<import('../worker/fleet.js').Fleet, 'name'|'listen'|'deliver'>}
 *   fleet
 * @property {import('../hub/upstreams.js').Upstreams} upstreams of this worker's streams
 * @property {Pick<import('../auth/sessions.js').Sessions, 'begin'|'renew'|'end'|'isRevoked'|'connectionsOf'>}
 *   sessions of connections with a user
 * @property {import('../auth/user-places.js').UserPlaces} userPlaces limits connections per user
 * @property {import('../backend/places.js').Places} places counts connections across all workers
 * @property {import('./native/native-door.js').Entrance|null} entrance lets connections into the
 *   hub, after the hook onConnect; null if neither tokens nor hooks are configured
 * @property {Pick<import('../auth/verifier.js').TokenVerifier, 'verify'>|null} verifier null if no
 *   tokens are configured
 * @property
 *   {(import('../operations/hook-gate.js').HookCalls & Pick<import('../hooks/entrance.js').HookEntrance, 'askJoins'>)|null}
 *   hooks null if there are none
 * @property {import('../operations/index.js').Operations} operations what clients may do
 * @property {import('../operations/index.js').OperationParts['admitMessage']} admitMessage
 * @property {import('../operations/index.js').OperationParts['charge']} charge
 * @property {WebhookReporter|null} reporter null: nothing is recorded for webhooks
 * @property {import('../transport/http-api/call.js').Meters} meters shared by all HTTP APIs
 * @property {() => string|null} readiness why the worker is not ready; null: it is
 * @property {{readonly isDraining: boolean, readonly isSettling: boolean}} phase of the worker
 * @property {import('../observability/counters.js').Counters} counters
 * @property {import('../worker/turn.js').Turn} turn
 * @property {import('../worker/close-all.js').CloseAll} closeAll
 * @property {import('pino').Logger} log
 */

/**
 * @typedef {object} Parts
 * @property {(nowMs: number) => void} sweep called once a second
 * @property {(timeoutMs: number) => Promise<void>} drain resolves when the door's HTTP API has no
 *   open request, or after that time
 * @property {() => void} close
 */

/** @typedef {Omit<LoadedDoor, 'streams'> & {streams?: StreamDoor|null} & Parts} OpenDoor */
/** @typedef {(services: DoorServices) => OpenDoor} CreateDoor */

export {};
