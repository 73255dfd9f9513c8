// routes.js: routes of Pusher's HTTP API.

import { audited } from '../../../transport/http-api/audited.js';
import { ChannelRoutes } from './channels.js';
import { EventRoutes } from './events.js';
import { UserRoutes } from './users.js';

/** @import { AppRoute } from '../../../transport/http-api/app.js' */
/** @import { AppCall, RouteServices } from './app-call.js' */

/** @param {RouteServices} services @returns {readonly AppRoute<AppCall>[]} */
export function routesOf(services) {
  const channels = new ChannelRoutes(services);
  const events = new EventRoutes(services, channels);
  const users = new UserRoutes(services);
  const get = routesBy('get');
  const post = routesBy('post');
  return [
    post('/apps/:app/events', 'pusher_events', events.publish),
    post('/apps/:app/batch_events', 'pusher_batch_events', events.publishBatch),
    get('/apps/:app/channels', 'pusher_channels', channels.list),
    get('/apps/:app/channels/:channel', 'pusher_channel', channels.one),
    get('/apps/:app/channels/:channel/users', 'pusher_users', channels.users),
    post('/apps/:app/users/:user/terminate_connections', 'pusher_terminate', users.terminate),
    post('/users/:user/terminate_connections', 'pusher_terminate', users.terminate),
  ];
}

/**
 * @param {AppRoute<AppCall>['method']} method
 * @returns {(path: string, name: AppRoute<AppCall>['name'], handle: AppRoute<AppCall>['handle']) => AppRoute<AppCall>}
 */
function routesBy(method) {
  return (path, name, handle) => ({
    method,
    path,
    name,
    handle: (call) => audited(call, name, () => handle(call)),
  });
}
