// route.js: what a request on the public port asks for, by its path.

import { partsOf } from '../protocol/url-parts.js';

/** @import { AdmissionLease, DoorRules } from '../admission/admission.js' */
/** @import { Door } from '../hub/door.js' */
/** @import { Answer, Refusal } from '../protocol/refusal.js' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { Socket } from 'node:net' */
/** @typedef {'websocket'|'stream'|'livez'|'readyz'|'api'|'none'} RouteName */

/**
 * @typedef {object} Route
 * @property {RouteName} name
 * @property {LoadedDoor|null} door null: the native one
 */

/**
 * A door beside the native one, as the public port knows it.
 * @typedef {object} LoadedDoor
 * @property {(path: string) => 'websocket'|'stream'|'api'|null} route the raw path, without the
 *   query; null: not of this door
 * @property {Door} door
 * @property {(request: IncomingMessage) => Door} [doorFor] if its WebSockets have several forms,
 *   all with the rules of `door`
 * @property {Streams|null} [streams] null: it has none
 * @property {Api|null} api null: it has none
 * @property {(request: IncomingMessage) => Api|null} [apiFor] if it has several
 */

/**
 * Opens streams: responses that do not end.
 * @typedef {object} Streams
 * @property {string} allow the methods of its requests, besides OPTIONS
 * @property {DoorRules|undefined} rules for admission; undefined: those of the native door
 * @property {number} maxBodyBytes of a request; 0: requests have no body
 * @property {(request: IncomingMessage) => Answer} preflight of CORS
 * @property {(request: IncomingMessage) => any} read what the request wants, from its head; the
 *   other functions get it
 * @property {(request: IncomingMessage, wanted: any) => Refusal|null} faultOf checks the head
 * @property {(wanted: any, body: Buffer) => Refusal|null} withBody reads the body; empty if the
 *   request has none
 * @property {(wanted: any, refused: Refusal) => string} refusalText the last response of a
 *   connection
 * @property
 *   {(wanted: any, socket: Socket, admitted: AdmissionLease) => Refusal|null|Promise<Refusal|null>}
 *   open answers an admitted request, and takes over the socket. Null: the stream is open, or the
 *   client is gone. A refusal has written nothing. The promise never rejects.
 */

/**
 * An HTTP API. `begin` decides from the head alone; an answer refuses the request, whose body is
 * then not read.
 * @typedef {object} Api
 * @property {(request: IncomingMessage, hasBody: boolean) => ApiCall|Answer} begin
 * @property
 *   {(call: any, request: IncomingMessage, response: ServerResponse, onCut: (answer: Answer) => void, flow: {pause(): void, resume(): void}, onUnread: () => void) => void}
 *   handle gets the call of `begin`; onCut: answers instead of `response`, without reading the rest
 *   of the body; flow: of the body; onUnread: closes the socket if the client does not read the
 *   answer
 */

/** A request under way. @typedef {{endConnection(): void, isOfClient?: boolean}} ApiCall */

/** @param {RouteName} name @returns {Route} */
const native = (name) => Object.freeze({ name, door: null });
const API = native('api');
const NONE = native('none');

/** @type {ReadonlyMap<string, Route>} */
const ROUTES = new Map([
  ['/ws', native('websocket')],
  ['/', native('websocket')],
  ['/sse', native('stream')],
  ['/livez', native('livez')],
  ['/readyz', native('readyz')],
  ['/api', API],
]);

/**
 * The raw path decides: nothing is decoded or resolved, so there is one spelling of each path.
 * @param {Pick<IncomingMessage, 'url'>} request
 * @param {readonly LoadedDoor[]} [doors] beside the native one @returns {Route}
 */
export function routeOf({ url }, doors = []) {
  const { path } = partsOf(url);
  const route = ROUTES.get(path);
  if (route !== undefined) return route;
  for (const door of doors) {
    const name = door.route(path);
    if (name !== null) return { name, door };
  }
  return path.startsWith('/api/') ? API : NONE;
}
