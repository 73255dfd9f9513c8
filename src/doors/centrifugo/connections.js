// connections.js: connections of Centrifugo clients: the order of commands, limits, ends.
//
// The first command is `connect`. Until it is answered, a connection is not in the hub and receives
// nothing. A client that breaks the protocol is disconnected. A command that cannot be served gets
// an error. No message can explain a close, so its reason must be clear.
//
// Subscriptions have their own bucket, because a client sends all of them at once after a
// reconnect. Everything else counts like native messages.

import { isUtf8 } from 'node:buffer';
import { Lobby } from '../../auth/lobby.js';
import { TokenError } from '../../auth/token-error.js';
import { CLOSES } from '../../protocol/codes.js';
import { lastFault } from '../../protocol/json-scan.js';
import { errorOf, toClose } from '../../protocol/refusal.js';
import { CommandRate, MAX_UNCOUNTED_BYTES } from '../command-rate.js';
import { CentrifugoClient } from './client.js';
import { MAX_COMMANDS } from './codec/bounds.js';
import { channelOf } from './codec/channels.js';
import {
  closeOf,
  DISCONNECTS,
  DoorClose,
  errorOfRefusal,
  replyError,
  UNSUBSCRIBED,
} from './codec/codes.js';
import { DoorError } from './codec/errors.js';
import { GRACE_S } from './codec/tokens.js';
import { expiryOf } from './results.js';

const NOTHING = Buffer.alloc(0);
/** The time from the handshake to `connect`. */
const CONNECT_TIMEOUT_MS = 15_000;
/** Commands in one message, in addition to two for each room that a connection may join. */
const MORE_COMMANDS = 128;
/** Commands that use the bucket of subscriptions. @type {ReadonlySet<Method>} */
const FREE = new Set(['connect', 'subscribe', 'unsubscribe', 'refresh', 'sub_refresh']);

/** Commands that may overlap with others of their kind. @type {ReadonlyMap<Method, 'join'|'message'>} */
const KINDS = new Map(
  /** @type {const} */ ([
    ['subscribe', 'join'],
    ['publish', 'message'],
  ]),
);

/** @import { Connection } from '../../hub/connection.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { Form, Handler, Upstream } from './client.js' */
/** @import { Codec, Command, Method } from './codec/messages.js' */

/**
 * Called when the server adds or removes a member, and when a connection ends.
 * @typedef {object} Listener
 * @property {import('../../hub/door.js').Door['entered']} enteredByBackend
 * @property {import('../../hub/door.js').Door['expelled']} expelled
 * @property {(client: import('./client.js').CentrifugoClient) => void} closed
 */

export class CentrifugoConnections {
  /** @type {Map<Connection, CentrifugoClient>} */
  #clients = new Map();
  /** `connect` is accepted, but not answered: deadlines. @type {Map<Connection, number>} */
  #accepted = new Map();
  /** @type {ReadonlyMap<Method, Handler>} */
  #handlers = new Map();
  /** @type {Listener} */
  #listener = { enteredByBackend() {}, expelled() {}, closed() {} };

  /** @param {DoorServices} services */
  constructor(services) {
    this.services = services;
    this.maxCommands = maxCommandsOf(services.config);
    this.commandRate = new CommandRate(services);
    /** Connections whose `connect` is not accepted. */
    this.lobby = new Lobby({
      max: services.config.maxHandshakes,
      timeoutMs: CONNECT_TIMEOUT_MS,
      counters: services.counters.auth,
    });
  }

  /** @param {ReadonlyMap<Method, Handler>} handlers @param {Listener} listener */
  serve(handlers, listener) {
    this.#handlers = handlers;
    this.#listener = listener;
  }

  /** @param {Connection} connection @returns {CentrifugoClient|undefined} */
  clientOf(connection) {
    return this.#clients.get(connection);
  }

  /**
   * @param {Connection} connection
   * @param {Pick<import('node:http').IncomingMessage, 'headers'|'url'>} request of its handshake
   * @param {unknown} _credentials checked at `connect`
   * @param {Form} form @param {Upstream|null} [upstream]
   */
  open(connection, { headers, url = '' }, _credentials, form, upstream = null) {
    const { address } = connection;
    this.#clients.set(connection, new CentrifugoClient(form, { headers, url, address }, upstream));
    this.lobby.admitGuest(connection);
  }

  /** @param {Connection} connection whose socket is closed */
  closed(connection) {
    const { operations, counters } = this.services;
    const client = this.#clients.get(connection);
    if (client?.state === 'connected') counters.doors.centrifugo--;
    operations.identities.leave(connection);
    this.admitted(connection);
    this.#clients.delete(connection);
    if (client === undefined) return;
    this.#listener.closed(client);
    client.lease?.release();
  }

  /**
   * Its `connect` was accepted and waits for rooms and hooks. It is no longer closed to make room
   * for others.
   * @param {Connection} connection
   */
  accepted(connection) {
    if (!this.lobby.removeGuest(connection)) return;
    const limitMs = Math.max(CONNECT_TIMEOUT_MS, 2 * this.services.config.hookTimeoutMs);
    this.#accepted.set(connection, performance.now() + limitMs);
  }

  /** The connection enters the hub now, or ends. @param {Connection} connection */
  admitted(connection) {
    this.lobby.removeGuest(connection);
    this.#accepted.delete(connection);
  }

  /** Closes connections without a `connect`, which the hub does not know. */
  drain() {
    this.lobby.close();
    for (const connection of this.#accepted.keys()) connection.close(CLOSES.DRAIN);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    for (const [connection, endMs] of this.#accepted) {
      if (endMs > nowMs) break;
      this.admitted(connection);
      this.services.counters.auth.closes.timeout++;
      connection.close(CLOSES.CLIENT_TIMEOUT);
    }
  }

  /** @param {Connection} connection @returns {boolean} true: the caller sends a ping */
  expectPong(connection) {
    const client = this.#clients.get(connection);
    if (client === undefined || client.state !== 'connected') return false;
    client.countPings(1);
    return true;
  }

  /**
   * As `receiveCommands`, for bytes that were in no text frame. The reader checks text frames, and
   * members of a room get `data` as it came.
   * @param {Connection} connection @param {Buffer} bytes
   */
  receiveUnchecked(connection, bytes) {
    const isReadable = this.clientOf(connection)?.codec.isBinary || isUtf8(bytes);
    this.receiveCommands(connection, isReadable ? bytes : NOTHING);
  }

  /** @param {Connection} connection @param {Buffer} bytes a message with one or more commands */
  receiveCommands(connection, bytes) {
    const client = this.#clients.get(connection);
    if (client === undefined) return;
    const { counters } = this.services;
    counters.messages++;
    const isLong = bytes.length > MAX_UNCOUNTED_BYTES;
    if (isLong && !this.#admitLong(connection, client, bytes.length)) return;
    const commands = client.codec.decode(bytes, this.maxCommands);
    if (commands === null) {
      counters.errors.INVALID_MESSAGE_FORMAT++;
      // Valid data, which a limit refuses: a stop would last as long as the client's page.
      // `connect` would bring the same data again.
      const { codec, state } = client;
      const isTooDeep = !codec.isBinary && state !== 'new' && lastFault().kind === 'depth';
      return connection.close(isTooDeep ? DISCONNECTS.TOO_DEEP : DISCONNECTS.BAD_REQUEST);
    }
    if (commands === 'too_many') return this.#closeAsTooMany(connection);
    for (const command of commands) {
      if (!connection.isOpen) return;
      this.#receive(connection, client, command, isLong);
    }
  }

  /**
   * Counts a message before it is decoded. The handshake has paid for 4 KB of the first message. No
   * reply can refuse that one, so a refusal closes the connection with a code after which clients
   * return.
   * @param {Connection} connection @param {CentrifugoClient} client @param {number} bytes
   */
  #admitLong(connection, { state }, bytes) {
    if (state !== 'new') return this.commandRate.admitMessage(connection, bytes);
    const more = bytes - MAX_UNCOUNTED_BYTES;
    if (this.services.operations.admitMessage(connection, performance.now(), more) === 0)
      return true;
    this.#closeAsTooMany(connection);
    return false;
  }

  /** @param {Connection} connection */
  #closeAsTooMany(connection) {
    this.services.counters.errors.RATE_LIMIT_EXCEEDED++;
    connection.close(DISCONNECTS.TOO_MANY_REQUESTS);
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client @param {Command} command
   * @param {boolean} isCounted its bytes have been counted
   */
  #receive(connection, client, command, isCounted) {
    const { method, id, source } = command;
    if (!this.#isInOrder(client, command)) return this.#disconnect(connection);
    if (method === 'pong') return client.countPings(-1);
    if (method === 'connect') client.become('connecting');
    if (!this.#admit(connection, client, command, isCounted)) return;
    const kind = client.state === 'connected' ? KINDS.get(method) : undefined;
    const { lane } = this.services.operations;
    if (!lane.isEmpty && lane.holds(connection, kind, { id, source }, this.#resume)) return;
    this.#handle(connection, client, command);
  }

  /**
   * @param {CentrifugoClient} client @param {Command} command
   * @returns {boolean} false: the client breaks the protocol
   */
  #isInOrder({ state, pings }, { method, id }) {
    if (method === 'pong') return pings > 0;
    if (id === 0 && method !== 'send') return false;
    return method === 'connect' ? state === 'new' : state === 'connecting' || state === 'connected';
  }

  /** @param {Connection} connection */
  #disconnect(connection) {
    this.services.counters.errors.INVALID_MESSAGE_FORMAT++;
    connection.close(DISCONNECTS.BAD_REQUEST);
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client @param {Command} command
   * @param {boolean} isCounted
   */
  #admit(connection, client, { method, id, source }, isCounted) {
    if (method === 'connect') return true;
    if (FREE.has(method)) return this.commandRate.admit(connection, client, id);
    // A long message with one command was counted as a whole.
    const isOnly = isCounted && source.length > MAX_UNCOUNTED_BYTES;
    const bytes = isCounted ? 0 : source.length;
    return isOnly || this.commandRate.admitMessage(connection, bytes, id || undefined);
  }

  /** Handles a command that waited in the lane. @type {import('../../operations/lane.js').Resume} */
  #resume = (connection, bytes) => {
    const client = this.#clients.get(connection);
    const commands = client?.codec.decode(bytes, this.maxCommands) ?? null;
    if (client === undefined || commands === null || commands === 'too_many') return;
    const [command] = commands;
    // `connect` was refused meanwhile.
    if (client.state === 'refused') return this.#disconnect(connection);
    try {
      this.#handle(connection, client, command);
    } catch (error) {
      connection.fail(error);
    }
  };

  /** @param {Connection} connection @param {CentrifugoClient} client @param {Command} command */
  #handle(connection, client, command) {
    const handler = this.#handlers.get(command.method);
    try {
      if (handler === undefined) throw new DoorError(104);
      handler(connection, client, command);
    } catch (error) {
      if (!(error instanceof DoorError)) throw error;
      this.refuse(connection, command.id, error);
    }
  }

  /**
   * @param {Connection} connection @param {number} id of the command
   * @param {Pick<DoorError, 'code'|'message'|'counted'>} error
   */
  refuse(connection, id, { code, message, counted = COUNTED[code] }) {
    const { counters } = this.services;
    counters.errors[counted ?? 'INTERNAL_ERROR']++;
    if (id !== 0)
      this.#clients.get(connection)?.send(connection, { id, error: replyError(code, message) });
  }

  /** The door's texts for connections with this codec. @param {Codec} codec */
  textsOf(codec) {
    return {
      name: 'centrifugo',
      usesTokens: true,
      asksLater: true,
      takesState: false,
      repeatsJoins: false,
      backendJoins: /** @type {const} */ ('told'),
      silentClose: DISCONNECTS.NO_PONG,
      closeOf,
      /** @type {import('../../hub/door.js').Door['encodeError']} */
      encodeError: (refused, id) =>
        typeof id === 'number' ? codec.encode({ id, error: errorOfRefusal(refused) }) : null,
      /** @type {import('../../hub/door.js').Door['encodeLeft']} */
      encodeLeft: (room) => {
        const channel = channelOf(room);
        return channel === null
          ? null
          : codec.encode({ push: { channel, unsubscribe: UNSUBSCRIBED.SERVER } });
      },
      /** @type {import('../../hub/door.js').Door['entered']} */
      entered: (...args) => this.#listener.enteredByBackend(...args),
      /** @type {NonNullable<import('../../hub/door.js').Door['encodeRenewed']>} */
      encodeRenewed: (_connection, atMs) => codec.encode({ push: { refresh: renewalOf(atMs) } }),
      /** @type {import('../../hub/door.js').Door['expelled']} */
      expelled: (...args) => this.#listener.expelled(...args),
      encodeShutdown: () => null,
      encodeDegraded: () => null,
    };
  }

  /**
   * Ends a connection whose token, user or place is refused.
   * @param {Connection} connection @param {import('../../protocol/refusal.js').Refusal} refused
   */
  end(connection, refused) {
    const error = /** @type {import('../../protocol/codes.js').ErrorCode} */ (errorOf(refused));
    this.services.counters.errors[error]++;
    const close = closeOf(toClose(refused));
    connection.close(new DoorClose(close.code, reasonOf(refused, close.reason)));
  }
}

/**
 * A client subscribes to all its rooms in one message after a reconnect. If the number of rooms is
 * not limited, neither are they.
 * @param {import('../../config/settings.js').Config} config
 */
function maxCommandsOf({ maxRoomsPerConnection, maxRoomsPerConnectionMode }) {
  if (maxRoomsPerConnectionMode !== 'enforce') return MAX_COMMANDS;
  return Math.min(MAX_COMMANDS, MORE_COMMANDS + 2 * maxRoomsPerConnection);
}

/** @param {import('../../protocol/refusal.js').Refusal} refused @param {string} usual */
function reasonOf(refused, usual) {
  if (refused.code === 'DENIED') return refused.message; // the hook's text
  return refused instanceof TokenError && refused.told !== '' ? `${usual}: ${refused.told}` : usual;
}

/** @param {number} atMs when the connection is closed @returns {{expires: boolean, ttl?: number}} */
function renewalOf(atMs) {
  const endS = atMs === Number.POSITIVE_INFINITY ? 0 : atMs / 1000 - GRACE_S;
  return { expires: false, ...expiryOf(endS) };
}

/** How errors are counted. @type {Readonly<Record<number, import('../../protocol/codes.js').ErrorCode>>} */
const COUNTED = Object.freeze({
  100: 'UNAVAILABLE',
  102: 'INVALID_ROOM',
  103: 'PERMISSION_DENIED',
  104: 'UNKNOWN_TYPE',
  105: 'ALREADY_JOINED',
  106: 'ROOM_LIMIT',
  107: 'INVALID_MESSAGE_FORMAT',
  108: 'UNKNOWN_TYPE',
  109: 'TOKEN_EXPIRED',
  110: 'TOKEN_EXPIRED',
  111: 'RATE_LIMIT_EXCEEDED',
  112: 'UNAVAILABLE',
});
