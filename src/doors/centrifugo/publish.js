// publish.js: the command publish.

import { isPayload } from '../../protocol/decode.js';
import { encodePublication, KIND } from '../../protocol/publication.js';
import { channelFault, roomOf } from './channels.js';
import { clientOf } from './client-id.js';
import { DISCONNECTS } from './codes.js';
import { DoorError } from './errors.js';

/** @import { PublishListener } from '../../hub/publisher.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { Handler } from './client.js' */
/** @import { Connections } from './connections.js' */
/** @import { ClientRights } from './rights.js' */

/** @implements {PublishListener} */
export class PublishCommand {
  /** @param {DoorServices} services @param {Connections} connections @param {ClientRights} rights */
  constructor(services, connections, rights) {
    this.services = services;
    this.connections = connections;
    this.rights = rights;
    this.publisher = services.commands.hookGate ?? services.publisher;
  }

  /** @type {Handler} */
  publish = (connection, client, { id, request }) => {
    const { channel = '', data, key } = request;
    if (channel === '') return connection.close(DISCONNECTS.BAD_REQUEST);
    checkChannel(channel);
    // Publications of maps have a key.
    if (key || request.removed) throw new DoorError(108);
    if (data === undefined || data.length === 0) throw new DoorError(107, 'no data');
    if (data.length > this.services.config.maxInlineBytes)
      throw new DoorError(107, 'data is too large');
    if (client.codec.isBinary && !isPayload(data)) throw new DoorError(107, 'data is not JSON');
    const room = roomOf(channel);
    if (!this.rights.has(connection, client, 'publish', room)) throw new DoorError(103);
    const { session } = connection;
    const publication = encodePublication(
      KIND.MESSAGE,
      Date.now(),
      0,
      session.isAnonymous ? clientOf(connection.id) : session.sender,
      data,
      0,
      data.length,
    );
    this.publisher.publishFor(this, connection, id, room, publication);
  };

  onPublish() {}

  /** @type {PublishListener['onPublished']} */
  onPublished(connection, id) {
    const codec = this.connections.clientOf(connection)?.codec;
    if (codec !== undefined) connection.send(codec.encodeDone(Number(id), 'publish'));
  }

  /** @type {PublishListener['onRefused']} */
  onRefused(connection, id, error) {
    this.services.commands.replies.brokerError(connection, error, id);
  }
}

/** @param {string} channel @throws {DoorError} 102 or 107 */
export function checkChannel(channel) {
  const fault = channelFault(channel);
  if (fault !== null) throw new DoorError(fault === 'length' ? 107 : 102);
}
