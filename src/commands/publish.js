// publish.js: the command message.

import { onceOnly } from '../hub/publisher.js';
import { isIdempotencyKey, isRoom } from '../protocol/decode.js';
import { encodeAck } from '../protocol/encode.js';
import { encodePublication, KIND } from '../protocol/publication.js';

/** @import { Connection } from '../hub/connection.js' */
/** @import { PublishListener, Publisher } from '../hub/publisher.js' */
/** @import { Handler } from './handler.js' */

/**
 * Where the commands publish: the worker's publisher, or it behind hooks.
 * @typedef {Pick<Publisher, 'publishFor'>} CommandPublisher
 */

/** @implements {PublishListener} */
export class MessageCommand {
  /**
   * @param {object} parts
   * @param {CommandPublisher} parts.publisher @param {import('./replies.js').Replies} parts.replies
   * @param {number} parts.maxInlineBytes of a payload
   */
  constructor({ publisher, replies, maxInlineBytes }) {
    this.publisher = publisher;
    this.replies = replies;
    this.maxInlineBytes = maxInlineBytes;
  }

  /** @type {Handler} */
  message(connection, command) {
    const { id, source, payloadStart, textStart, echo, idempotencyKey: key } = command;
    const isText = payloadStart < 0;
    if (isText === textStart < 0) return this.replies.malformed(connection, id);
    if (echo !== undefined && typeof echo !== 'boolean')
      return this.replies.malformed(connection, id);
    if (key !== undefined && !isIdempotencyKey(key)) return this.replies.malformed(connection, id);
    const name = command.room ?? onlyRoom(connection);
    if (name === undefined) return this.replies.error(connection, 'ROOM_REQUIRED', id);
    if (!isRoom(name)) return this.replies.error(connection, 'INVALID_ROOM', id);
    const { session } = connection;
    if (!session.mayPublish(name)) return this.replies.error(connection, 'PERMISSION_DENIED', id);
    const start = isText ? textStart : payloadStart;
    const end = isText ? command.textEnd : command.payloadEnd;
    if (end - start > this.maxInlineBytes)
      return this.replies.error(connection, 'MESSAGE_TOO_LARGE', id);
    const now = Date.now();
    const publication = encodePublication(
      KIND.MESSAGE,
      now,
      0,
      connection.sender,
      source,
      start,
      end,
      echo === false ? connection.id : '',
    );
    const options = key === undefined ? undefined : onceOnly(session.keyOwner, key, publication);
    this.publisher.publishFor(this, connection, id, name, publication, options);
  }

  onPublish() {}

  /** @type {PublishListener['onPublished']} */
  onPublished(connection, id, position) {
    if (id !== undefined) connection.send(encodeAck(id, position));
  }

  /** @type {PublishListener['onRefused']} */
  onRefused(connection, id, error) {
    this.replies.brokerError(connection, error, id);
  }
}

/** @param {Connection} connection @returns {string|undefined} undefined: none or several */
function onlyRoom(connection) {
  return connection.roomCount === 1
    ? (connection.room ?? connection.listRooms()[0]).name
    : undefined;
}
