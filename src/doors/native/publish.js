// publish.js: the command message.

import { readAudience } from '../../protocol/audiences.js';
import { isIdempotencyKey, readExpect } from '../../protocol/decode.js';
import { encodeAck } from '../../protocol/encode.js';

const NO_PAYLOAD = 'A message has either a payload or a text, which is a string.';
const BAD_ECHO = 'echo is true or false.';
const BAD_EXPECT =
  'expect is a position, {epoch, offset}; for a room without messages {offset: 0}.';
const BAD_AUDIENCE = 'audience is a list of 1 to 4 different names of 1 to 64 characters.';
const BAD_IDEMPOTENCY_KEY = 'idempotencyKey is a string of 1 to 128 characters.';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Publisher, PublishListener } from '../../operations/publisher.js' */
/** @import { Handler } from './handler.js' */

/** @implements {PublishListener} */
export class MessageCommand {
  /**
   * @param {object} parts @param {Pick<Publisher, 'publishFor'>} parts.publisher
   * @param {import('../../operations/replies.js').Replies} parts.replies
   */
  constructor({ publisher, replies }) {
    this.publisher = publisher;
    this.replies = replies;
  }

  /** @type {Handler} */
  message(connection, command) {
    const { id, source, payloadStart, textStart, echo, idempotencyKey: key } = command;
    const isText = payloadStart < 0;
    if (isText === textStart < 0) return this.replies.invalid(connection, id, NO_PAYLOAD);
    if (echo !== undefined && typeof echo !== 'boolean')
      return this.replies.invalid(connection, id, BAD_ECHO);
    if (key !== undefined && !isIdempotencyKey(key))
      return this.replies.invalid(connection, id, BAD_IDEMPOTENCY_KEY);
    const expect = readExpect(command.expect);
    if (expect === undefined) return this.replies.invalid(connection, id, BAD_EXPECT);
    const audience = command.audience === undefined ? '' : readAudience(command.audience);
    if (audience === undefined) return this.replies.invalid(connection, id, BAD_AUDIENCE);
    const { session } = connection;
    const name =
      command.room === undefined ? onlyRoom(connection) : session.validRoomOf(command.room);
    if (name === undefined) return this.replies.error(connection, 'ROOM_REQUIRED', id);
    this.publisher.publishFor(this, connection, id, name, {
      source,
      start: isText ? textStart : payloadStart,
      end: isText ? command.textEnd : command.payloadEnd,
      sender: connection.sender,
      except: echo === false ? connection.id : '',
      key: command.key,
      idempotencyKey: key,
      owner: key === undefined ? '' : session.keyOwner,
      app: session.app,
      expect: expect ?? undefined,
      audience,
      mayPublish: name !== null && session.hasRight('publish', name),
    });
  }

  /** @type {PublishListener['onPublished']} */
  onPublished(connection, id, position) {
    if (id !== undefined) connection.send(encodeAck(id, position));
  }

  /** @type {PublishListener['onRefused']} */
  onRefused(connection, id, refused) {
    this.replies.refuse(connection, refused, id);
  }
}

/** @param {Connection} connection @returns {string|undefined} undefined: none or several */
function onlyRoom(connection) {
  return connection.roomCount === 1
    ? (connection.room ?? connection.listRooms()[0]).name
    : undefined;
}
