// connections.js: connections of Pusher clients: handshakes, messages, ends.
//
// If possible, a handshake is refused inside the WebSocket (operations/late-closes.js), because
// these clients take an HTTP status for a network failure.
//
// Three buckets bound a connection's messages. Pings and pongs have their own, so that a client
// over another limit does not look dead. So do subscriptions and sign-ins, which a client sends all
// at once after a reconnect. Everything else counts like native messages.

import { Rate } from '../../admission/rate.js';
import { isOfAdmission, LateCloses } from '../../operations/late-closes.js';
import { CommandRate, MAX_UNCOUNTED_BYTES } from '../command-rate.js';
import { createAppOf } from './app-of.js';
import { PusherClient } from './client.js';
import { closeOfRefusal, overQuota, PUSHER_CLOSES, PusherClose } from './codec/closes.js';
import { errorText, establishedText, PONG_TEXT } from './codec/frames.js';
import { isReserved, readMessage } from './codec/messages.js';
import { socketIdOf } from './codec/socket-id.js';

const PINGS_PER_MINUTE = 600;
const MAX_PINGS = 10;

/** @import { Door } from '../../hub/door.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { Credentials } from '../../auth/credentials.js' */
/** @import { App } from '../../config/pusher.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */
/** @import { Handler } from './client.js' */

/** What an app's place is taken for. */
const NOBODY = Object.freeze({ identity: null, lease: null });

/**
 * @typedef {object} Handlers
 * @property {ReadonlyMap<string, Handler>} commands by event
 * @property {Handler} clientEvent all other events
 */

export class PusherConnections {
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
    this.lateCloses = new LateCloses({ ...services, closeOf: closeOfRefusal });
    this.pingRate = new Rate(PINGS_PER_MINUTE, MAX_PINGS);
    this.commandRate = new CommandRate(services);
    this.appOfHandshake = createAppOf(services.config);
  }

  /** @param {{readonly id: string}} connection @returns {string|null} */
  appOf(connection) {
    return this.#clients.get(/** @type {Connection} */ (connection))?.app.id ?? null;
  }

  /** @type {Door['open']} */
  open(connection, request, credentials) {
    const admitted = this.appOfHandshake(request);
    if (admitted instanceof PusherClose) return connection.close(admitted);
    const refused = credentials?.refusal ?? null;
    if (refused !== null && isOfAdmission(refused))
      return this.lateCloses.refuseGuest(connection, refused);
    if (admitted.maxConnections > 0)
      return void this.#openInPlace(connection, admitted, credentials);
    const lease = this.services.appPlaces.leaseOf(admitted);
    this.#enterHub(connection, new PusherClient(admitted, lease), credentials);
  }

  /**
   * Opens a connection of an app with a connection limit.
   * @param {Connection} connection @param {App} app @param {Credentials|null} credentials
   */
  async #openInPlace(connection, app, credentials) {
    let placed;
    try {
      placed = await this.services.appPlaces.takePlace(app, NOBODY);
    } catch {
      return connection.close(PUSHER_CLOSES.OVER_CAPACITY); // the primary is gone
    }
    const { lease, refusal } = placed;
    if (refusal !== null) return this.#overQuota(connection, app, refusal);
    if (!connection.isOpen) return lease?.release();
    try {
      this.#enterHub(connection, new PusherClient(app, lease), credentials);
    } catch (error) {
      connection.fail(error);
    }
  }

  /** @param {Connection} connection @param {App} app without a place @param {Refusal} refused */
  #overQuota(connection, app, refused) {
    const close = overQuota(app);
    if (close === PUSHER_CLOSES.OVER_QUOTA && this.services.appPlaces.isFullForGood(app))
      connection.close(close);
    else if (connection.isOpen) this.lateCloses.refuseGuest(connection, refused);
  }

  /** @param {Connection} connection @param {PusherClient} client @param {Credentials|null} credentials */
  #enterHub(connection, client, credentials) {
    const { operations } = this.services;
    const { app } = client;
    this.#clients.set(connection, client);
    operations.identities.enterSession(connection, credentials);
    if (!connection.isOpen) return;
    if (app.authorizeWithinMs > 0)
      this.#unauthorized.set(connection, performance.now() + app.authorizeWithinMs);
    connection.send(establishedText(socketIdOf(connection.id), app.activityTimeoutS));
  }

  /** @type {Door['closed']} */
  closed(connection) {
    const { operations } = this.services;
    this.lateCloses.forgetConnection(connection);
    operations.watchLists.endWatch(connection);
    operations.identities.leave(connection);
    this.#unauthorized.delete(connection);
    this.#clients.get(connection)?.lease?.release();
    this.#clients.delete(connection);
  }

  /** Called after a sign-in, or in a channel that needs a signature. @param {Connection} connection */
  authorized(connection) {
    this.#unauthorized.delete(connection);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    this.lateCloses.sweep(nowMs);
    for (const [connection, endMs] of this.#unauthorized) {
      if (endMs > nowMs) continue;
      this.#unauthorized.delete(connection);
      connection.close(PUSHER_CLOSES.AUTHORIZE_TIMEOUT);
    }
  }

  /** @type {Door['receive']} */
  receive(connection, bytes) {
    const client = this.#clients.get(connection);
    if (client === undefined) return this.lateCloses.endGuest(connection);
    const { counters, operations } = this.services;
    counters.messages++;
    counters.apps.messages[client.app.id]++;
    const isLong = bytes.length > MAX_UNCOUNTED_BYTES;
    if (isLong && !this.commandRate.admitMessage(connection, bytes.length)) return;
    const message = readMessage(bytes.toString());
    const event = message?.event ?? '';
    if (event === 'pusher:ping' || event === 'pusher:pong')
      return this.#receiveSign(connection, client, event);
    const isCommand = this.#handlers.commands.has(event);
    if (isCommand) {
      if (!this.commandRate.admit(connection, client, undefined)) return;
    } else if (!isLong && !this.commandRate.admitMessage(connection, bytes.length)) return;
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
    if (!this.commandRate.admitMessage(connection, bytes.length)) return;
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
    else if (!this.commandRate.admitMessage(connection, 0)) return;
    if (event === 'pusher:ping') connection.send(PONG_TEXT);
  }
}
