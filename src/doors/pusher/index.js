// index.js: the door of Pusher's protocol: what it answers to, and its parts.

import { FORMAT, registerFormat } from '../../protocol/format.js';
import { frameEnd } from '../../protocol/frame.js';
import { refusal } from '../../protocol/refusal.js';
import { isAppPath } from './app-of.js';
import { ClientEvents } from './client-events.js';
import { PusherFrames } from './codec/frames.js';
import { PUSHER_TEXTS } from './codec/texts.js';
import { PusherConnections } from './connections.js';
import { isApiPath, ownPath, PusherApi } from './http/api.js';
import { SignIn } from './signin.js';
import { PusherSubscriptions } from './subscribe.js';

const UNAVAILABLE = refusal('UNAVAILABLE');
const NOTHING = Buffer.alloc(0);

/** @import { Connection } from '../../hub/connection.js' */
/** @import { CreateDoor, DoorServices } from '../contract.js' */

/** @type {CreateDoor} */
export function createDoor(services) {
  const { tokens, apiKeys, pusher } = services.config;
  const { pathPrefix = '' } = pusher ?? {};
  const hasNatives = tokens !== null || apiKeys.some(({ app }) => app !== null);
  const api = new PusherApi(services.api);
  const frames = new PusherFrames(hasNatives);
  registerFormat(FORMAT.PUSHER, {
    encode: frames.encode.bind(frames),
    endOf: frameEnd,
    // Clients know no positions. Those that lag get the channel's last events.
    encodeResync: () => NOTHING,
  });
  const connections = createConnections(services);
  return {
    route(path) {
      const own = ownPath(path, pathPrefix);
      if (isAppPath(own)) return 'websocket';
      return isApiPath(own) ? 'api' : null;
    },
    door: {
      ...PUSHER_TEXTS,
      ...{ format: FORMAT.PUSHER, subprotocol: '', mayDeflate: false },
      appOf: connections.appOf.bind(connections),
      open: connections.open.bind(connections),
      takesRefusal: (refused) => connections.lateCloses.takes(refused),
      closed: connections.closed.bind(connections),
      receive: connections.receive.bind(connections),
      receiveBinary: connections.receiveBinary.bind(connections),
    },
    api,
    sweep: (nowMs) => connections.sweep(nowMs),
    drain: (timeoutMs) => api.drain(timeoutMs),
    close: () => connections.lateCloses.closeGuests(),
  };
}

/** @param {DoorServices} services @returns {PusherConnections} */
function createConnections(services) {
  const authorized = (/** @type {Connection} */ connection) => connections.authorized(connection);
  const unavailable = (/** @type {Connection} */ connection) =>
    connections.lateCloses.refuseMember(connection, UNAVAILABLE);
  const subscriptions = new PusherSubscriptions(services, authorized, unavailable);
  const signIn = new SignIn(services, authorized, unavailable, (connection, refused) =>
    connections.lateCloses.refuseMember(connection, refused),
  );
  const commands = new Map([
    ['pusher:subscribe', subscriptions.subscribe],
    ['pusher:unsubscribe', subscriptions.unsubscribe],
    ['pusher:signin', signIn.signIn],
  ]);
  const { receive: clientEvent } = new ClientEvents(services);
  const connections = new PusherConnections(services, { commands, clientEvent });
  return connections;
}
