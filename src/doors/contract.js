// contract.js: the contract between a worker and a door.

/** @import { WebhookReporter } from '../backend/webhook-reporter.js' */
/** @import { Broker } from '../backend/broker.js' */
/** @import { Config } from '../config/settings.js' */
/** @import { Operations } from '../operations/index.js' */
/** @import { StreamDoor } from '../hub/door.js' */
/** @import { LoadedDoor } from '../transport/route.js' */

/**
 * What a worker gives to its doors.
 * @typedef {object} DoorServices
 * @property {Config} config
 * @property {Operations} operations what clients may do
 * @property {import('../hub/hub.js').Hub} hub
 * @property {Pick<Broker, 'state'>} broker
 * @property {ApiParts} api for the HTTP API of the door
 * @property {import('../hub/upstreams.js').Upstreams} upstreams of this worker's streams
 * @property {import('../auth/app-places.js').AppPlaces} appPlaces limits and counts connections by app
 * @property {WebhookReporter|null} reporter null: nothing is recorded for webhooks
 * @property {{readonly isDraining: boolean, readonly isSettling: boolean}} phase of the worker
 * @property {import('../observability/counters.js').Counters} counters
 * @property {import('../worker/close-all.js').CloseAll} closeAll
 */

/**
 * The parts of a worker that HTTP APIs use, and what only those of doors need.
 * @typedef {object} DoorApiParts
 * @property {Pick<Broker, 'publish'|'history'|'countConnections'|'state'>} broker
 * @property {Pick<import('../recovery/history-reader.js').HistoryReader, 'read'|'page'|'maxBytes'>}
 *   historyReader
 * @property
 *   {import('../transport/http-api/call.js').Services['fleet'] & Pick<import('../worker/fleet.js').Fleet, 'name'|'listenForReplies'|'deliver'>}
 *   fleet
 * @property {import('../hub/room-users.js').Tracker} tracker
 * @property {{readonly isDraining: boolean, readonly isSettling: boolean}} phase
 * @property {import('../transport/http-api/call.js').Meters} meters shared by all HTTP APIs
 * @property {() => string|null} readiness why the worker is not ready; null: it is
 * @property {import('pino').Logger} log
 */
/** @typedef {import('../transport/http-api/call.js').Services & DoorApiParts} ApiParts */

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
