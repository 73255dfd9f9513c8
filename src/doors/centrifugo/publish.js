// publish.js: the command publish.

import { isPayload } from '../../protocol/decode.js';
import { channelFault, roomOf } from './codec/channels.js';
import { clientOf } from './codec/client-id.js';
import { DISCONNECTS } from './codec/codes.js';
import { DoorError } from './codec/errors.js';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { PublishListener } from '../../operations/publisher.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { Handler } from './client.js' */
/** @import { CentrifugoConnections } from './connections.js' */
/** @import { ClientRights } from './rights.js' */

/** @implements {PublishListener} */
export class PublishCommand {
  /**
   * Replies of this turn: the backend answers many publications at once, and those of a connection
   * leave in one write.
   * @type {Map<Connection, Buffer[]>}
   */
  #replies = new Map();

  /** @param {DoorServices} services @param {CentrifugoConnections} connections @param {ClientRights} rights */
  constructor(services, connections, rights) {
    this.services = services;
    this.connections = connections;
    this.rights = rights;
  }

  /** @type {Handler} */
  publish = (connection, client, { id, request }) => {
    const { channel = '', data, key } = request;
    if (channel === '') return connection.close(DISCONNECTS.BAD_REQUEST);
    checkChannel(channel);
    // Publications of maps have a key.
    if (key || request.removed) throw new DoorError(108);
    if (data === undefined || data.length === 0) throw new DoorError(107, 'no data');
    if (client.codec.isBinary && !isPayload(data)) throw new DoorError(107, 'data is not JSON');
    const room = roomOf(channel);
    const { session } = connection;
    this.services.operations.publisher.publishFor(this, connection, id, room, {
      source: data,
      start: 0,
      end: data.length,
      sender: session.isAnonymous ? clientOf(connection.id) : session.sender,
      except: '',
      key: undefined,
      idempotencyKey: undefined,
      owner: '',
      app: null,
      mayPublish: this.rights.has(connection, client, 'publish', channel, room),
    });
  };

  /** @type {PublishListener['onPublished']} */
  onPublished(connection, id) {
    const client = this.connections.clientOf(connection);
    if (client === undefined) return;
    const reply = client.codec.encodeDone(Number(id), 'publish');
    if (this.#replies.size === 0) queueMicrotask(this.#sendReplies);
    const others = this.#replies.get(connection);
    if (others === undefined) this.#replies.set(connection, [reply]);
    else others.push(reply);
  }

  #sendReplies = () => {
    const all = this.#replies;
    this.#replies = new Map();
    for (const [connection, replies] of all)
      this.connections.clientOf(connection)?.sendAll(connection, replies);
  };

  /** @type {PublishListener['onRefused']} */
  onRefused(connection, id, refused) {
    this.services.operations.replies.refuse(connection, refused, id);
  }
}

/** @param {string} channel @throws {DoorError} 102 or 107 */
export function checkChannel(channel) {
  const fault = channelFault(channel);
  if (fault === 'length') throw new DoorError(107, undefined, 'INVALID_ROOM');
  if (fault !== null) throw new DoorError(102);
}
