// connect.js: the command connect: token, onConnect, server-side subscriptions, reply.

import { VERSION } from '../../config/version.js';
import { isPayload } from '../../protocol/decode.js';
import { tokenIdentity } from './client.js';
import { clientOf } from './codec/client-id.js';
import { DISCONNECTS, DoorClose } from './codec/codes.js';
import { DoorError } from './codec/errors.js';
import { connectionReader } from './codec/tokens.js';
import { expiryOf } from './results.js';

/** @import { Credentials } from '../../auth/credentials.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { CentrifugoClient, Handler } from './client.js' */
/** @import { CentrifugoConnections } from './connections.js' */
/** @import { Command } from './codec/messages.js' */

/** The door as hooks and limits see it. */
const DOOR = Object.freeze({ name: 'centrifugo', usesTokens: true, asksLater: true });

/** As Centrifugo closes, with the cause. */
const NO_TOKEN = new DoorClose(DISCONNECTS.BAD_REQUEST.code, 'bad request: a token is required');
/** After an error of these the client tries again: at once with a new token, or later. */
const PASSING = new Set(['TOKEN_EXPIRED', 'TOKEN_NOT_YET_VALID', 'UNAVAILABLE']);

export class ConnectCommand {
  /**
   * @param {DoorServices} services @param {CentrifugoConnections} connections
   * @param {import('./server-subscriptions.js').ServerSubscriptions} serverSubscriptions
   * @param {import('./subscribe.js').CentrifugoSubscriptions} subscriptions
   */
  constructor(services, connections, serverSubscriptions, subscriptions) {
    this.subscriptions = subscriptions;
    this.services = services;
    this.connections = connections;
    this.serverSubscriptions = serverSubscriptions;
    const { config } = services;
    this.readClaims = connectionReader(config.centrifugo?.isLenient ?? false);
    this.pingS = Math.ceil(config.pingIntervalMs / 1000);
  }

  /** @type {Handler} */
  connect = (connection, client, command) => {
    const { identities, lane } = this.services.operations;
    const { token = '' } = command.request;
    const { handshake } = client;
    if (handshake === null) return;
    const asked = { ...handshake, data: this.#dataOf(client, command) };
    const credentials = identities.identify(
      token === '' ? null : token,
      asked,
      DOOR,
      this.readClaims,
    );
    lane.after(connection, 'token', 0, credentials, (checked) =>
      this.#conclude(connection, client, command, checked),
    );
  };

  /** Data for the hook. @param {CentrifugoClient} client @param {Command} command */
  #dataOf({ codec }, { request: { data } }) {
    if (!this.services.operations.hookGate.hooks.has('onConnect') || data === undefined)
      return undefined;
    if (data.length === 0 || (codec.isBinary && !isPayload(data))) return undefined;
    return JSON.parse(data.toString());
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client @param {Command} command
   * @param {Credentials|null} credentials
   */
  #conclude(connection, client, command, credentials) {
    if (!connection.isOpen) return credentials?.lease?.release();
    const { identities } = this.services.operations;
    const refused = credentials?.refusal ?? null;
    if (refused !== null && PASSING.has(refused.code)) {
      client.become('refused');
      const error = new DoorError(refused.code === 'TOKEN_EXPIRED' ? 109 : 100);
      return this.connections.refuse(connection, command.id, error);
    }
    if (refused !== null) return this.connections.end(connection, refused);
    const { identity = null, lease = null } = credentials ?? {};
    client.identify(identity, lease);
    if (identity === null && identities.isRequired) {
      this.services.counters.errors.PERMISSION_DENIED++;
      return connection.close(NO_TOKEN);
    }
    this.connections.accepted(connection);
    const isRevoked = () => identity !== null && identities.isRevoked(identity);
    // A revocation does not apply to clients that connected after it.
    const wasRevoked = isRevoked();
    // Before the reply, no broadcasts and no requests of the backend for the user reach the client.
    this.serverSubscriptions.begin(connection, client, command, credentials, (subs) => {
      if (!wasRevoked && isRevoked()) return connection.close(DISCONNECTS.INVALID_TOKEN);
      this.#enterHub(connection, credentials);
      if (connection.isOpen) this.#reply(connection, client, command.id, subs);
    });
  }

  /** @param {Connection} connection @param {Credentials|null} credentials */
  #enterHub(connection, credentials) {
    // Not earlier: after a refused `connect` the connection must still time out.
    this.connections.admitted(connection);
    this.services.operations.identities.enterSession(connection, credentials, () => {});
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client @param {number} id
   * @param {Map<string, import('./codec/messages.js').SubscribeResult>|null} subs null: none
   */
  #reply(connection, client, id, subs) {
    client.become('connected');
    this.services.counters.doors.centrifugo++;
    const { upstream, identity } = client;
    const endS = tokenIdentity(identity)?.endS ?? 0;
    this.subscriptions.limit(connection, client, endS);
    client.send(connection, {
      id,
      connect: {
        client: clientOf(connection.id),
        version: `fanfare ${VERSION}`,
        ...expiryOf(endS),
        subs: subs ?? undefined,
        ping: this.pingS,
        pong: true,
        session: upstream?.session,
        node: upstream?.node,
      },
    });
  }
}
