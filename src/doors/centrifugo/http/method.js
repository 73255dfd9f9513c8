// method.js: the contract of a method of Centrifugo's server API.

/** @import { RouteName, Call } from '../../../transport/http-api/call.js' */
/** @import { Fields, Shape } from '../../../transport/http-api/fields.js' */
/** @import { DoorServices } from '../../contract.js' */

/**
 * The parts of a worker that the API uses.
 * @typedef {Pick<DoorServices['api'], 'config'|'publisher'|'fleet'|'tracker'|'historyOf'|'historyReader'
 *   |'phase'|'log'>} Used
 * @typedef {Used & {meters: DoorServices['api']['meters']}} ApiServices
 * @typedef {Used & {counters: DoorServices['api']['meters']['counters']}} MethodServices
 */

/**
 * @typedef {object} Method
 * @property {RouteName} route for metrics
 * @property {Shape} shape of its request; other fields are passed over, as in Centrifugo
 * @property {(fields: Fields, call: Call, body: Buffer) => Promise<object|Buffer>} run resolves
 *   with the result, as an object or as JSON; rejects as errorOf knows. `body` has the slices
 */

export {};
