// publish.js: the command message.

import { onceOnly } from '../../hub/publisher.js';
import { isIdempotencyKey } from '../../protocol/decode.js';
import { encodeAck } from '../../protocol/encode.js';
import { encodeKeyed, encodePublication, isStateKey, KIND } from '../../protocol/publication.js';

const NO_PAYLOAD = 'A message has either a payload or a text, which is a string.';
const BAD_ECHO = 'echo is true or false.';
const BAD_IDEMPOTENCY_KEY = 'idempotencyKey is a string of 1 to 128 characters.';
const A_VALUE = 'The payload of a key';
const MAX_EVENT_BYTES = '"maxEventBytes" of the app';
const NO_KEY = 'The room has state: give a key of 1 to 200 characters without control characters.';
const NO_STATE = 'Only rooms with state take a key (FANFARE_STATE).';
const NO_ECHO = 'In a room with state all members get a message: echo must not be false.';

/** @import { App } from '../../config/pusher.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { PublishListener, Publisher } from '../../hub/publisher.js' */
/** @import { Counters } from '../../observability/counters.js' */
/** @import { Handler } from './handler.js' */

/** A publisher, or the hooks. @typedef {Pick<Publisher, 'publishFor'>} CommandPublisher */

/** @implements {PublishListener} */
export class MessageCommand {
  /**
   * @param {object} parts
   * @param {CommandPublisher} parts.publisher @param {import('../../operations/replies.js').Replies} parts.replies
   * @param {number} parts.maxInlineBytes of a payload
   * @param {(room: string) => boolean} [parts.hasState]
   * @param {number} [parts.maxValueBytes] of a payload in a room with state
   * @param {Counters['apps']|null} [parts.appCounters] null: there are no apps
   */
  constructor({
    publisher,
    replies,
    maxInlineBytes,
    hasState = () => false,
    maxValueBytes = maxInlineBytes,
    appCounters = null,
  }) {
    this.hasState = hasState;
    this.maxValueBytes = maxValueBytes;
    this.publisher = publisher;
    this.replies = replies;
    this.maxInlineBytes = maxInlineBytes;
    this.appCounters = appCounters;
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
    const { session } = connection;
    const name = command.room === undefined ? onlyRoom(connection) : session.roomOf(command.room);
    if (name === undefined) return this.replies.error(connection, 'ROOM_REQUIRED', id);
    if (name === null) return this.replies.invalidRoom(connection, id, command.room);
    if (!session.mayPublish(name)) return this.replies.forbidden(connection, id, 'publish');
    const start = isText ? textStart : payloadStart;
    const end = isText ? command.textEnd : command.payloadEnd;
    if (end - start > this.#maxBytesIn(session.app))
      return this.#tooLarge(connection, id, session.app, end - start);
    const now = Date.now();
    if (command.key !== undefined || this.hasState(name))
      return this.#set(connection, command, name, now, start, end);
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

  /**
   * Publishes the message of a key.
   * @param {Connection} connection @param {import('../../protocol/decode.js').Command} command
   * @param {string} name of the room @param {number} now
   * @param {number} start of the payload @param {number} end
   */
  #set(connection, { id, source, echo, key, idempotencyKey }, name, now, start, end) {
    const { replies, publisher } = this;
    const refuse = (/** @type {string} */ fault) => replies.invalid(connection, id, fault);
    if (!this.hasState(name)) return refuse(NO_STATE);
    if (!isStateKey(key)) return refuse(NO_KEY);
    if (echo === false) return refuse(NO_ECHO);
    if (end - start > this.maxValueBytes) {
      const setting = 'FANFARE_STATE_MAX_VALUE_BYTES';
      return replies.tooLarge(connection, id, A_VALUE, end - start, this.maxValueBytes, setting);
    }
    const publication = encodeKeyed(now, connection.sender, key, source, start, end);
    const { keyOwner } = connection.session;
    const options = onceOnly(
      keyOwner,
      /** @type {string|undefined} */ (idempotencyKey),
      publication,
    );
    publisher.publishFor(this, connection, id, name, publication, options);
  }

  /** @param {App|null} app */
  #maxBytesIn(app) {
    return Math.min(app?.maxEventBytes ?? this.maxInlineBytes, this.maxInlineBytes);
  }

  /**
   * @param {Connection} connection @param {import('./handler.js').Id} id @param {App|null} app
   * @param {number} bytes
   */
  #tooLarge(connection, id, app, bytes) {
    const max = this.#maxBytesIn(app);
    const setting = max < this.maxInlineBytes ? MAX_EVENT_BYTES : 'FANFARE_MAX_INLINE_BYTES';
    this.replies.tooLarge(connection, id, 'The payload', bytes, max, setting);
  }

  onPublish() {}

  /** @type {PublishListener['onPublished']} */
  onPublished(connection, id, position) {
    if (this.appCounters !== null) this.#countFor(connection.session.app);
    if (id !== undefined) connection.send(encodeAck(id, position));
  }

  /** @param {App|null} app */
  #countFor(app) {
    if (app !== null && this.appCounters !== null) this.appCounters.events[`${app.id},client`]++;
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
