// index.js: the door of Pusher's protocol: what it answers to, and its parts.

import { FORMAT, registerFormat } from '../../protocol/format.js';
import { frameEnd } from '../../protocol/frame.js';
import { ClientEvents } from './client-events.js';
import { PusherFrames } from './codec/frames.js';
import { PusherConnections } from './connections.js';
import { isApiPath, ownPath, PusherApi } from './http/api.js';
import { PusherPresence } from './presence.js';
import { SignIn } from './signin.js';
import { PusherSubscriptions } from './subscribe.js';
import { Watchlists } from './watchlist.js';

const NOTHING = Buffer.alloc(0);

/** @import { CreateDoor, DoorServices } from '../contract.js' */

/** @type {CreateDoor} */
export function createDoor(services) {
  const { tokens, apiKeys, pusher } = services.config;
  const { pathPrefix = '' } = pusher ?? {};
  const hasNatives = tokens !== null || apiKeys.some(({ app }) => app !== null);
  const api = new PusherApi(services.api);
  const { presenceLine } = services.operations.reads;
  const presence = new PusherPresence({ ...services, tracker: services.hub.tracker, presenceLine });
  const frames = new PusherFrames(hasNatives);
  registerFormat(FORMAT.PUSHER, {
    encode: frames.encode.bind(frames),
    endOf: frameEnd,
    // Clients know no positions. Those that lag get the channel's last events.
    encodeResync: () => NOTHING,
  });
  const { connections, waiting } = createConnections(services, presence);
  return {
    route(path) {
      const own = ownPath(path, pathPrefix);
      if (connections.isPath(own)) return 'websocket';
      return isApiPath(own) ? 'api' : null;
    },
    door: connections,
    api,
    sweep(nowMs) {
      connections.sweep(nowMs);
      presence.sweep(nowMs);
      waiting.sweep(nowMs);
    },
    drain: (timeoutMs) => api.drain(timeoutMs),
    close: () => connections.refused.close(),
  };
}

/** @param {DoorServices} services @param {PusherPresence} presence */
function createConnections(services, presence) {
  const authorized = (/** @type {import('../../hub/connection.js').Connection} */ connection) =>
    connections.authorized(connection);
  const unavailable = (/** @type {import('../../hub/connection.js').Connection} */ connection) =>
    connections.refused.addLacking(connection);
  const subscriptions = new PusherSubscriptions(services, presence, authorized, unavailable);
  const watchlists = new Watchlists(presence, unavailable);
  const onSignedIn = (
    /** @type {import('../../hub/connection.js').Connection} */ connection,
    /** @type {import('./client.js').PusherClient} */ client,
  ) => {
    authorized(connection);
    watchlists.begin(connection, client);
  };
  const signIn = new SignIn(services, onSignedIn, unavailable, (connection, refused) =>
    connections.refused.closeLater(connection, refused),
  );
  const events = new ClientEvents(services);
  const { waiting } = subscriptions;
  const connections = new PusherConnections(services, {
    commands: new Map([
      ['pusher:subscribe', subscriptions.subscribe],
      ['pusher:unsubscribe', subscriptions.unsubscribe],
      ['pusher:signin', signIn.signIn],
    ]),
    clientEvent: events.receive,
    closing(connection) {
      watchlists.end(connection);
      waiting.forget(connection);
      const rooms = connection.listRooms();
      return () => {
        for (const { name, users } of rooms) if (users !== null) presence.left(name, connection);
      };
    },
  });
  return { connections, waiting };
}
