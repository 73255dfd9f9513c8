// index.js: the door of Centrifugo's client protocol: what it answers to, and its parts.

import { ExpiryWheel } from '../../auth/expiry-wheel.js';
import { FORMAT } from '../../protocol/format.js';
import { partsOf } from '../../protocol/url-parts.js';
import { UpstreamRequests } from '../upstream-requests.js';
import { registerFormats } from './codec/frames.js';
import { FRAMINGS } from './codec/framing.js';
import { jsonCodec, decodeEmulation as readJson } from './codec/json.js';
import { protobufCodec, decodeEmulation as readProtobuf } from './codec/protobuf.js';
import { ConnectCommand } from './connect.js';
import { CentrifugoConnections } from './connections.js';
import { CentrifugoApi, isApiPath } from './http/api.js';
import { PublishCommand } from './publish.js';
import { ReadCommands } from './reads.js';
import { RefreshCommands } from './refresh.js';
import { ClientRights } from './rights.js';
import { RpcCommands } from './rpc.js';
import { ServerSubscriptions } from './server-subscriptions.js';
import { CentrifugoStreams, isProtobuf, MAX_BODY_BYTES } from './streams.js';
import { CentrifugoSubscriptions } from './subscribe.js';

/** @import { Door } from '../../hub/door.js' */
/** @import { CreateDoor, DoorServices } from '../contract.js' */
/** @import { Framing } from './codec/framing.js' */
/** @import { Expiry, Handler } from './client.js' */
/** @import { Codec, Method } from './codec/messages.js' */

const PROTOBUF = 'centrifuge-protobuf';

/** @type {CreateDoor} */
export function createDoor(services) {
  const { pathPrefix = '', apiPath = '', apiKeyHashes = [] } = services.config.centrifugo ?? {};
  const serverApi = apiKeyHashes.length === 0 ? null : new CentrifugoApi(services.api);
  registerFormats();
  const { connections, expiries, expire } = createConnections(services);
  const json = webSocketDoor(connections, jsonCodec, FRAMINGS.text, {
    format: FORMAT.CENTRIFUGO_JSON,
    subprotocol: 'centrifuge-json',
  });
  const protobuf = webSocketDoor(connections, protobufCodec, FRAMINGS.binary, {
    format: FORMAT.CENTRIFUGO_PROTOBUF,
    subprotocol: PROTOBUF,
  });
  const streams = new CentrifugoStreams(services, connections);
  const emulation = new UpstreamRequests(
    services,
    (headers) => (isProtobuf(headers) ? readProtobuf : readJson),
    MAX_BODY_BYTES,
  );
  const own = (/** @type {string} */ path) =>
    path.startsWith(pathPrefix) ? path.slice(pathPrefix.length) : '';
  const isEmulation = (/** @type {string} */ path) => own(path) === '/emulation';
  return {
    route(path) {
      if (own(path) === '/connection/websocket') return 'websocket';
      if (streams.isPath(own(path))) return 'stream';
      const isServerApi = serverApi !== null && isApiPath(path, apiPath);
      return isEmulation(path) || isServerApi ? 'api' : null;
    },
    door: json,
    doorFor: ({ url = '', headers }) =>
      asksForProtobuf(url, headers['sec-websocket-protocol']) ? protobuf : json,
    streams,
    api: serverApi,
    apiFor: ({ url }) => (isEmulation(partsOf(url).path) ? emulation : serverApi),
    sweep(nowMs) {
      connections.sweep(nowMs);
      for (const { connection, channel } of expiries.takeDue()) expire(connection, channel);
    },
    async drain(timeoutMs) {
      connections.drain();
      await serverApi?.drain(timeoutMs);
    },
    close() {},
  };
}

/** @param {DoorServices} services */
function createConnections(services) {
  const connections = new CentrifugoConnections(services);
  const rights = new ClientRights(services.config);
  /** @type {ExpiryWheel<Expiry>} */
  const expiries = new ExpiryWheel({ endOf: ({ second }) => second, periodS: 1 });
  const subscriptions = new CentrifugoSubscriptions(services, connections, rights, expiries);
  const server = new ServerSubscriptions(services, connections, subscriptions);
  const { connect, readClaims } = new ConnectCommand(services, connections, server, subscriptions);
  const { publish } = new PublishCommand(services, connections, rights);
  const { history, presence, stats, ping } = new ReadCommands(services, connections, rights);
  const tokens = new RefreshCommands(services, connections, subscriptions, server, readClaims);
  const { refresh, subRefresh, expire } = tokens;
  const { rpc, send } = new RpcCommands(services);
  const { subscribe, unsubscribe } = subscriptions;
  /** @type {Partial<Record<Method, Handler>>} */
  const handlers = {
    ...{ connect, subscribe, unsubscribe, publish, history, presence, ping, refresh, rpc, send },
    presence_stats: stats,
    sub_refresh: subRefresh,
  };
  connections.serve(
    new Map(/** @type {[Method, Handler][]} */ (Object.entries(handlers))),
    subscriptions,
  );
  return { connections, expiries, expire };
}

/**
 * @param {CentrifugoConnections} connections @param {Codec} codec @param {Framing} framing
 * @param {{format: number, subprotocol: string}} form @returns {Door}
 */
function webSocketDoor(connections, codec, framing, { format, subprotocol }) {
  const ping = framing.frame([codec.ping]);
  const form = { codec, framing };
  return {
    ...connections.textsOf(codec),
    format,
    subprotocol,
    mayDeflate: false,
    frame: (message) => framing.frame([message]),
    ping(connection) {
      const isExpected = connections.expectPong(connection);
      if (isExpected) connection.transport.write(ping);
      return isExpected;
    },
    open: (connection, request, credentials) =>
      connections.open(connection, request, credentials, form),
    closed: (connection) => connections.closed(connection),
    receive: (connection, text) => connections.receiveCommands(connection, text),
    // Some clients send JSON in binary messages.
    receiveBinary: (connection, bytes) => connections.receiveUnchecked(connection, bytes),
  };
}

/** @param {string} url @param {string} [subprotocols] offered */
function asksForProtobuf(url, subprotocols = '') {
  if (subprotocols !== '') return subprotocols.split(/, ?/).includes(PROTOBUF);
  return new URLSearchParams(partsOf(url).query).get('format') === 'protobuf';
}
