// routes.js: the table of routes, and the express application that is built from it.

import express from 'express';

import { toHttp } from '../../protocol/refusal.js';
import { ConnectionRoutes } from './connections.js';
import { ControlRoutes } from './control.js';
import { ApiFault, faultOf } from './fault.js';
import { PublishRoutes } from './publish.js';
import { RoomRoutes } from './rooms.js';
import { UploadRoutes } from './uploads.js';

/** @import { Call, Log, RouteName, Services } from './call.js' */

/**
 * @typedef {object} Route
 * @property {'get'|'post'|'delete'} method
 * @property {string} path in the notation of express
 * @property {import('../../config/api-keys.js').ApiRight} right that a key needs
 * @property {RouteName} name for metrics
 * @property {(call: Call) => Promise<object|Buffer>} handle resolves with the body of the answer,
 *   as an object or as JSON text; rejects with an ApiFault, or an error of the backend
 */

/** @param {Services} services @param {PublishRoutes} [publish] @returns {readonly Route[]} */
export function routesOf(services, publish = new PublishRoutes(services)) {
  const rooms = new RoomRoutes(services);
  const connections = new ConnectionRoutes(services);
  const control = new ControlRoutes(services);
  const uploads = new UploadRoutes(services);
  const get = routesBy('get');
  const post = routesBy('post');
  const remove = routesBy('delete');
  return [
    post('/api/publish', 'publish', 'publish', publish.publish),
    post('/api/publish/batch', 'publish', 'publish_batch', publish.batch),
    post('/api/uploads', 'publish', 'create_upload', uploads.create),
    post('/api/broadcast', 'broadcast', 'broadcast', publish.broadcast),
    get('/api/rooms', 'rooms', 'rooms', rooms.rooms),
    get('/api/rooms/:room', 'rooms', 'room', rooms.room),
    get('/api/rooms/:room/history', 'history', 'history', rooms.history),
    remove('/api/rooms/:room/history', 'delete', 'delete_history', rooms.deleteHistory),
    get('/api/rooms/:room/presence', 'presence', 'presence', rooms.presence),
    post('/api/presence', 'presence', 'query_presence', rooms.queryPresence),
    get('/api/connections', 'presence', 'connections', connections.list),
    get('/api/connections/:connectionId', 'presence', 'connection', connections.one),
    post('/api/disconnect', 'disconnect', 'disconnect', control.disconnect),
    post('/api/users/:user/join', 'join', 'join', control.join),
    post('/api/users/:user/leave', 'join', 'leave', control.leave),
    post('/api/revoke', 'revoke', 'revoke', control.revoke),
  ];
}

/**
 * @param {Route['method']} method
 * @returns {(path: string, right: Route['right'], name: Route['name'], handle: Route['handle']) => Route}
 */
function routesBy(method) {
  return (path, right, name, handle) => ({ method, path, right, name, handle });
}

/**
 * Builds the application. The body of a request has been read before.
 * @param {readonly Route[]} routes
 * @param {(request: import('node:http').IncomingMessage) => Call} callOf @param {Log} log
 */
export function createApp(routes, callOf, log) {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', false);
  app.enable('case sensitive routing');
  app.enable('strict routing');
  for (const { method, path, right, name, handle } of routes) {
    app[method](path, async (request, response) => {
      const call = callOf(request);
      call.routed(name, /** @type {Record<string, string>} */ (request.params));
      try {
        if (!call.key.rights.has(right)) throw new ApiFault('PERMISSION_DENIED');
        const result = await handle(call);
        call.answer(response, 200, {}, Buffer.isBuffer(result) ? result : JSON.stringify(result));
      } catch (error) {
        refuse(call, response, faultOf(error, log));
      }
    });
  }
  /** The methods of each path. @type {Map<string, string[]>} */
  const methods = new Map();
  for (const { path, method } of routes) {
    const others = method === 'get' ? ['GET', 'HEAD'] : [method.toUpperCase()];
    methods.set(path, [...(methods.get(path) ?? []), ...others]);
  }
  for (const [path, allowed] of methods) {
    app.all(path, (request, response) => {
      response.setHeader('Allow', allowed.join(', '));
      refuse(callOf(request), response, new ApiFault('METHOD_NOT_ALLOWED'));
    });
  }
  app.use((request, response) => refuse(callOf(request), response, new ApiFault('NOT_FOUND')));
  /**
   * A path that cannot be decoded. Express recognizes an error handler by its four parameters.
   * @param {Error & {status?: number}} error @param {import('express').Request} request
   * @param {import('express').Response} response @param {import('express').NextFunction} _next
   */
  const onError = (error, request, response, _next) => {
    const isClients = error.status === 400;
    const fault = isClients ? new ApiFault('INVALID_REQUEST') : faultOf(error, log);
    refuse(callOf(request), response, fault);
  };
  app.use(onError);
  return app;
}

/**
 * @param {Call} call @param {import('node:http').ServerResponse} response @param {ApiFault} fault
 */
function refuse(call, response, fault) {
  const { status, headers, body } = toHttp(fault);
  call.answer(response, status, headers, body);
}
