// routes.js: the table of routes.

import { ConnectionRoutes } from './connections.js';
import { ControlRoutes } from './control.js';
import { asRead } from './fault.js';
import { PublishRoutes } from './publish.js';
import { RoomRoutes } from './rooms.js';
import { ServerRoutes } from './servers.js';
import { UploadRoutes } from './uploads.js';

/** @import { AppRoute } from './app.js' */
/** @import { Call, Services } from './call.js' */

/**
 * `right`: that a key needs.
 * @typedef {AppRoute<Call> & {right: import('../../config/api-keys.js').ApiRight}} Route
 */

/** @param {Services} services @param {PublishRoutes} [publish] @returns {readonly Route[]} */
export function routesOf(services, publish = new PublishRoutes(services)) {
  const rooms = new RoomRoutes(services);
  const connections = new ConnectionRoutes(services);
  const control = new ControlRoutes(services);
  const servers = new ServerRoutes(services);
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
    get('/api/rooms/:room/state', 'history', 'state', rooms.state),
    get('/api/rooms/:room/presence', 'presence', 'presence', rooms.presence),
    post('/api/presence', 'presence', 'query_presence', asRead(rooms.queryPresence)),
    get('/api/connections', 'presence', 'connections', connections.list),
    get('/api/connections/:connectionId', 'presence', 'connection', connections.one),
    post('/api/disconnect', 'disconnect', 'disconnect', control.disconnect),
    post('/api/users/:user/join', 'join', 'join', control.join),
    post('/api/users/:user/leave', 'join', 'leave', control.leave),
    post('/api/revoke', 'revoke', 'revoke', control.revoke),
    get('/api/servers', 'console', 'servers', servers.list),
  ];
}

/**
 * @param {Route['method']} method
 * @returns {(path: string, right: Route['right'], name: Route['name'], handle: Route['handle']) => Route}
 */
function routesBy(method) {
  return (path, right, name, handle) => ({
    method,
    path,
    right,
    name,
    handle: method === 'get' ? asRead(handle) : handle,
  });
}
