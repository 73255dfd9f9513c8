// connections.js: connections of Pusher clients: handshakes, messages, ends.
//
// If possible, a handshake is refused inside the WebSocket (refused.js), because these clients take
// an HTTP status for a network failure.
//
// Three buckets bound a connection's messages. Pings and pongs have their own, so that a client
// over another limit does not look dead. So do subscriptions and sign-ins, which a client sends all
// at once after a reconnect. Everything else counts like native messages.

import { createOriginCheck } from '../../admission/origin.js';
import { Rate } from '../../admission/rate.js';
import { compileTrustProxy } from '../../config/trust-proxy.js';
import { FORMAT } from '../../protocol/format.js';
import { appPlaceKey } from '../../protocol/place-keys.js';
import { errorOf, refusal } from '../../protocol/refusal.js';
import { CommandRate } from '../command-rate.js';
import { PusherClient } from './client.js';
import { OVER_QUOTA } from './client-events.js';
import { closeOf, noApp, overQuota, PUSHER_CLOSES, PusherClose } from './codec/closes.js';
import { errorText, establishedText, PONG_TEXT, ROSTER_TEXTS } from './codec/frames.js';
import { isReserved, readMessage } from './codec/messages.js';
import { socketIdOf } from './codec/socket-id.js';
import { Quotas } from './quotas.js';
import { isOfAdmission, RefusedConnections } from './refused.js';

const MIN_VERSION = 4;
const MAX_VERSION = 7;
/** A longer message counts against the message limit before it is read. */
const MAX_UNCOUNTED_BYTES = 4096;
const PINGS_PER_MINUTE = 600;
const MAX_PINGS = 10;
const APP_PATH = /^\/app\/([^/]+)$/;

/** @import { Door } from '../../hub/door.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { Credentials } from '../../auth/credentials.js' */
/** @import { App } from '../../config/pusher.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { Handler } from './client.js' */

/** Pusher's error codes by ours, where one exists. @type {ReadonlyMap<string, number>} */
const CODES = new Map([
  ['RATE_LIMIT_EXCEEDED', 4301],
  ['MESSAGE_TOO_LARGE', 4301],
  ['DENIED', 4009],
  ['USER_LIMIT', 4100],
  ['HOOK_FAILED', 4100],
]);

/**
 * @typedef {object} Handlers
 * @property {ReadonlyMap<string, Handler>} commands by event
 * @property {Handler} clientEvent all other events
 */

/** @implements {Door} */
export class PusherConnections {
  name = 'pusher';
  usesTokens = false;
  takesState = false;
  repeatsJoins = false;
  waitsToJoin = true;
  roster = ROSTER_TEXTS;
  backendJoins = /** @type {const} */ ('none');
  /** @type {number} */
  format = FORMAT.PUSHER;
  subprotocol = '';
  mayDeflate = false;
  silentClose = PUSHER_CLOSES.NO_PONG;
  /** @type {Map<Connection, PusherClient>} */
  #clients = new Map();
  /** Connections that must authorize, with their deadlines. @type {Map<Connection, number>} */
  #unauthorized = new Map();
  /** @type {Handlers} */
  #handlers;

  /** @param {DoorServices} services @param {Handlers} handlers */
  constructor(services, handlers) {
    this.services = services;
    this.#handlers = handlers;
    this.refused = new RefusedConnections(services);
    this.quotas = new Quotas(services.config);
    this.pingRate = new Rate(PINGS_PER_MINUTE, MAX_PINGS);
    this.commandRate = new CommandRate(services);
    this.trustsProxy = compileTrustProxy(services.config.trustProxy);
    const apps = services.config.pusher?.apps ?? [];
    /** May pages of that origin use the app? By id. */
    this.isOriginOf = new Map(apps.map(({ id, origins }) => [id, createOriginCheck(origins)]));
  }

  /** @param {string} path without the query and the configured prefix */
  isPath(path) {
    return APP_PATH.test(path);
  }

  /** @param {{readonly id: string}} connection @returns {string|null} */
  appOf(connection) {
    return this.#clients.get(/** @type {Connection} */ (connection))?.app.id ?? null;
  }

  /** @type {Door['open']} */
  open(connection, request, credentials) {
    const admitted = this.#admit(request);
    if (admitted instanceof PusherClose) return connection.close(admitted);
    const refused = credentials?.refusal ?? null;
    if (refused !== null && isOfAdmission(refused)) return this.refused.add(connection, refused);
    if (admitted.maxConnections > 0) this.#openInPlace(connection, admitted, credentials);
    else this.#enterHub(connection, new PusherClient(admitted), credentials);
  }

  /**
   * Opens a connection of an app with a connection limit.
   * @param {Connection} connection @param {App} app @param {Credentials|null} credentials
   */
  async #openInPlace(connection, app, credentials) {
    const { places } = this.services;
    const key = appPlaceKey(app.id);
    let admitted;
    try {
      ({ admitted } = await places.acquire(key, app.maxConnections, false));
    } catch {
      return connection.close(PUSHER_CLOSES.OVER_CAPACITY); // the primary is gone
    }
    if (!admitted) return this.#overQuota(connection, app);
    this.quotas.admitted(app.id);
    if (!connection.isOpen) return places.release(key);
    try {
      this.#enterHub(connection, new PusherClient(app, true), credentials);
    } catch (error) {
      connection.fail(error);
    }
  }

  /** @param {Connection} connection @param {App} app without a place */
  #overQuota(connection, app) {
    const isLasting = this.quotas.refused(app.id);
    const close = overQuota(app);
    if (isLasting && close === PUSHER_CLOSES.OVER_QUOTA) connection.close(close);
    else if (connection.isOpen) this.refused.add(connection, refusal('APP_LIMIT'));
  }

  /** @param {Connection} connection @param {PusherClient} client @param {Credentials|null} credentials */
  #enterHub(connection, client, credentials) {
    const { operations, counters } = this.services;
    const { app } = client;
    this.#clients.set(connection, client);
    counters.apps.connections[app.id]++;
    operations.identities.enterSession(connection, credentials);
    if (!connection.isOpen) return;
    if (app.authorizeWithinMs > 0)
      this.#unauthorized.set(connection, performance.now() + app.authorizeWithinMs);
    connection.send(establishedText(socketIdOf(connection.id), app.activityTimeoutS));
  }

  /** @param {import('node:http').IncomingMessage} request @returns {App|PusherClose} */
  #admit({ url = '', headers, socket }) {
    const { config } = this.services;
    const { byKey, pathPrefix } = /** @type {NonNullable<typeof config.pusher>} */ (config.pusher);
    const mark = url.indexOf('?');
    const path = mark < 0 ? url : url.slice(0, mark);
    const own = path.startsWith(`${pathPrefix}/`) ? path.slice(pathPrefix.length) : path;
    const key = (APP_PATH.exec(own) ?? APP_PATH.exec(path))?.[1] ?? '';
    const app = byKey.get(key);
    if (app === undefined) return noApp(key);
    if (!app.isEnabled) return PUSHER_CLOSES.APP_DISABLED;
    const isFromProxy = this.trustsProxy?.(socket.remoteAddress ?? '', 0) === true;
    const hasTls = isFromProxy && headers['x-forwarded-proto'] === 'https';
    const isEncrypted = 'encrypted' in socket && socket.encrypted;
    if (app.tlsOnly && !hasTls && !isEncrypted) return PUSHER_CLOSES.TLS_ONLY;
    const version = new URLSearchParams(mark < 0 ? '' : url.slice(mark)).get('protocol');
    if (version !== null && !/^\d{1,9}$/.test(version)) return PUSHER_CLOSES.INVALID_VERSION;
    if (version !== null && (Number(version) < MIN_VERSION || Number(version) > MAX_VERSION))
      return PUSHER_CLOSES.UNSUPPORTED_VERSION;
    // Admission has checked ALLOWED_ORIGINS, which an app's own list only narrows.
    return this.isOriginOf.get(app.id)?.(headers.origin) ? app : PUSHER_CLOSES.ORIGIN;
  }

  /** @type {NonNullable<Door['takesRefusal']>} */
  takesRefusal(refused) {
    return this.refused.takes(refused);
  }

  /** @type {Door['closed']} */
  closed(connection) {
    this.refused.delete(connection);
    const { operations, counters, places } = this.services;
    const client = this.#clients.get(connection);
    operations.watchLists.endWatch(connection);
    operations.identities.leave(connection);
    this.#unauthorized.delete(connection);
    if (!this.#clients.delete(connection) || client === undefined) return;
    counters.apps.connections[client.app.id]--;
    if (client.hasPlace) places.release(appPlaceKey(client.app.id));
  }

  /** Called after a sign-in, or in a channel that needs a signature. @param {Connection} connection */
  authorized(connection) {
    this.#unauthorized.delete(connection);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    this.refused.sweep(nowMs);
    for (const [connection, endMs] of this.#unauthorized) {
      if (endMs > nowMs) continue;
      this.#unauthorized.delete(connection);
      connection.close(PUSHER_CLOSES.AUTHORIZE_TIMEOUT);
    }
  }

  /** @type {Door['receive']} */
  receive(connection, bytes) {
    const client = this.#clients.get(connection);
    if (client === undefined) return this.refused.end(connection);
    const { counters, operations } = this.services;
    counters.messages++;
    counters.apps.messages[client.app.id]++;
    const isLong = bytes.length > MAX_UNCOUNTED_BYTES;
    if (isLong && !this.#admitMessage(connection, bytes.length)) return;
    const message = readMessage(bytes.toString());
    const event = message?.event ?? '';
    if (event === 'pusher:ping' || event === 'pusher:pong')
      return this.#receiveSign(connection, client, event);
    const isCommand = this.#handlers.commands.has(event);
    if (isCommand) {
      if (!this.commandRate.admit(connection, client, undefined)) return;
    } else if (!isLong && !this.#admitMessage(connection, bytes.length)) return;
    if (message === null) return operations.replies.malformed(connection);
    const kind =
      event === 'pusher:subscribe' ? 'join' : event.startsWith('client-') ? 'message' : undefined;
    const { lane } = operations;
    if (!lane.isEmpty && lane.holds(connection, kind, { source: bytes }, this.#resume)) return;
    this.#handle(connection, client, message);
  }

  /** Handles a message that waited in the lane. @type {import('../../operations/lane.js').Resume} */
  #resume = (connection, bytes) => {
    const client = this.#clients.get(connection);
    const message = readMessage(bytes.toString());
    if (client === undefined || message === null) return;
    try {
      this.#handle(connection, client, message);
    } catch (error) {
      connection.fail(error);
    }
  };

  /** @type {Handler} */
  #handle(connection, client, message) {
    const { event } = message;
    const command = this.#handlers.commands.get(event);
    if (command !== undefined) return command(connection, client, message);
    if (!isReserved(event)) return this.#handlers.clientEvent(connection, client, message);
    this.services.counters.errors.UNKNOWN_TYPE++;
    connection.send(errorText(null, `Unsupported event received on socket: ${event}`));
  }

  /** @type {Door['receiveBinary']} */
  receiveBinary(connection, bytes) {
    if (!this.#admitMessage(connection, bytes.length)) return;
    this.services.counters.errors.INVALID_MESSAGE_FORMAT++;
    connection.send(errorText(null, 'Binary frames are not supported.'));
  }

  /**
   * Receives a ping or pong. Above their rate they count as messages.
   * @param {Connection} connection @param {PusherClient} client @param {string} event
   */
  #receiveSign(connection, client, event) {
    const bucket = client.bucket('pings');
    const now = performance.now();
    if (this.pingRate.has(bucket, now)) this.pingRate.take(bucket, now);
    else if (!this.#admitMessage(connection, 0)) return;
    if (event === 'pusher:ping') connection.send(PONG_TEXT);
  }

  /** @param {Connection} connection @param {number} bytes @returns {boolean} false: refused */
  #admitMessage(connection, bytes) {
    const { admitMessage, replies } = this.services.operations;
    const wait = admitMessage(connection, performance.now(), bytes);
    if (wait !== 0) replies.overRate(connection, undefined, wait);
    return wait === 0;
  }

  /** @type {Door['encodeError']} */
  encodeError(refused) {
    const error = errorOf(refused);
    if (error === 'INVALID_MESSAGE_FORMAT') return errorText(null, 'Received invalid JSON');
    if (error === 'RATE_LIMIT_EXCEEDED') return errorText(4301, `${OVER_QUOTA} ${refused.message}`);
    return errorText(CODES.get(refused.code) ?? null, refused.message);
  }

  entered() {}

  expelled() {}

  /** Pusher has no such notice. @type {Door['encodeLeft']} */
  encodeLeft() {
    return null;
  }

  /** @type {Door['encodeDegraded']} */
  encodeDegraded() {
    return null;
  }

  /** @type {Door['encodeShutdown']} */
  encodeShutdown() {
    return null;
  }

  closeOf = closeOf;
}
