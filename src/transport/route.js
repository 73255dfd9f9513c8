// route.js: what a request on the public port asks for, by its path.

/** @import { Door } from '../hub/door.js' */
/** @import { Answer } from '../protocol/refusal.js' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @typedef {'websocket'|'stream'|'livez'|'readyz'|'api'|'none'} RouteName */

/**
 * @typedef {object} Route
 * @property {RouteName} name
 * @property {LoadedDoor|null} door whose WebSocket or HTTP API it is; null: the native door's
 */

/**
 * A door beside the native one, as the public port knows it.
 * @typedef {object} LoadedDoor
 * @property {(path: string) => 'websocket'|'api'|null} route the raw path, without the query; null:
 *   not of this door
 * @property {Door} door
 * @property {(request: IncomingMessage) => Door} [doorFor] its WebSockets have several forms; all of
 *   them admit as `door`
 * @property {Api|null} api null: it has none
 */

/**
 * An HTTP API behind the public port. `begin` decides from the head alone; an answer refuses the
 * request, whose body is then not read.
 * @typedef {object} Api
 * @property {(request: IncomingMessage, hasBody: boolean) => ApiCall|Answer} begin
 * @property
 *   {(call: any, request: IncomingMessage, response: ServerResponse, onCut: (answer: Answer) => void, flow: {pause(): void, resume(): void}, onUnread: () => void) => void}
 *   handle gets the call of `begin`; onCut: answers in place of `response`, because the rest of the
 *   body is not read; flow: of the body; onUnread: closes the socket of a client that does not take
 *   the answer
 */

/** A request under way. @typedef {{endConnection(): void}} ApiCall */

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
 * The raw path decides. Nothing is decoded or resolved, so no other spelling of a path passes.
 * @param {Pick<IncomingMessage, 'url'>} request
 * @param {readonly LoadedDoor[]} [doors] beside the native one
 * @returns {Route}
 */
export function routeOf({ url = '' }, doors = []) {
  const query = url.indexOf('?');
  const path = query === -1 ? url : url.slice(0, query);
  const route = ROUTES.get(path);
  if (route !== undefined) return route;
  if (path.startsWith('/api/')) return API;
  for (const door of doors) {
    const name = door.route(path);
    if (name !== null) return { name, door };
  }
  return NONE;
}
