// index.js: the door of Pusher's protocol: what it answers to, and its parts.

import { isApiPath, ownPath, PusherApi } from './http/api.js';

/** @import { CreateDoor } from '../contract.js' */

/** @type {CreateDoor} */
export function createDoor(services) {
  const { pathPrefix = '' } = services.config.pusher ?? {};
  const api = new PusherApi(services);
  return {
    route: (path) => (isApiPath(ownPath(path, pathPrefix)) ? 'api' : null),
    // No route leads to it yet.
    door: /** @type {any} */ (undefined),
    api,
    sweep() {},
    drain: (timeoutMs) => api.drain(timeoutMs),
    close() {},
  };
}
