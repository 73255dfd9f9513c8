// publish.js: the command message, and the publisher that message and broadcast share.

import { EVERYONE } from '../hub/hub.js';
import { isIdempotencyKey, isRoom } from '../protocol/decode.js';
import { encodeAck } from '../protocol/encode.js';
import { fingerprintOf } from '../protocol/fingerprint.js';
import { encodePublication, KIND } from '../protocol/publication.js';

/** @typedef {import('../hub/connection.js').Connection} Connection */
/** @typedef {import('./handler.js').Handler} Handler */
/** @typedef {import('./handler.js').Id} Id */

/** @typedef {import('../protocol/position.js').Position} Position */

/**
 * @typedef {object} BroadcastListener
 * @property {() => void} onPublish called before the broker gets the broadcast
 * @property {() => void} onRefused the broker has refused it; called before the error reply
 */

/**
 * Where the commands publish: a Publisher, or one behind hooks.
 * @typedef {Pick<Publisher, 'message'|'broadcast'>} MessagePublisher
 */

export class Publisher {
  /**
   * @param {object} parts
   * @param {Pick<import('../backend/broker.js').Broker, 'publish'>} parts.broker
   * @param {import('./replies.js').Replies} parts.replies
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ broker, replies, counters }) {
    this.broker = broker;
    this.replies = replies;
    this.counters = counters;
    /** Publishes that wait for the broker's answer, of all connections. */
    this.unanswered = 0;
    this.isRefusing = false;
  }

  /** When the worker drains, it refuses each further publish with UNAVAILABLE. */
  refuseAll() {
    this.isRefusing = true;
  }

  /**
   * Publishes a message.
   * @param {Connection} connection
   * @param {string} room
   * @param {Buffer} publication
   * @param {Id} id undefined if the client wants no ack
   * @param {import('../backend/broker.js').PublishOptions} [options]
   */
  message(connection, room, publication, id, options) {
    if (this.isRefusing) return this.replies.error(connection, 'UNAVAILABLE', id);
    this.counters.publications++;
    this.unanswered++;
    this.broker.publish(room, publication, options).then(
      (position) => {
        this.unanswered--;
        if (id !== undefined) connection.send(encodeAck(id, position));
      },
      (error) => this.#refused(connection, error, id),
    );
  }

  /**
   * Publishes a broadcast. It gets no ack, because its result follows.
   * @param {Connection} connection
   * @param {Buffer} publication
   * @param {Id} id
   * @param {BroadcastListener} listener
   */
  broadcast(connection, publication, id, { onPublish, onRefused }) {
    if (this.isRefusing) return this.replies.error(connection, 'UNAVAILABLE', id);
    onPublish();
    this.counters.publications++;
    this.unanswered++;
    this.broker.publish(EVERYONE, publication).then(
      () => {
        this.unanswered--;
      },
      (error) => {
        onRefused();
        this.#refused(connection, error, id);
      },
    );
  }

  /**
   * @param {Connection} connection
   * @param {unknown} error
   * @param {Id} id
   */
  #refused(connection, error, id) {
    this.unanswered--;
    this.replies.brokerError(connection, error, id);
  }
}

export class MessageCommand {
  /**
   * @param {object} parts
   * @param {import('../hub/hub.js').Hub} parts.hub
   * @param {MessagePublisher} parts.publisher
   * @param {import('./replies.js').Replies} parts.replies
   * @param {import('./pending.js').PendingJoins} parts.pendingJoins
   * @param {number} parts.maxInlineBytes of a payload
   */
  constructor({ hub, publisher, replies, pendingJoins, maxInlineBytes }) {
    this.hub = hub;
    this.publisher = publisher;
    this.replies = replies;
    this.pendingJoins = pendingJoins;
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
    if (session !== null && !session.mayPublish(name))
      return this.replies.error(connection, 'PERMISSION_DENIED', id);
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
    const options = key === undefined ? undefined : onceOnly(connection, key, publication);
    const room = this.hub.rooms.get(name);
    // If a client publishes right behind its join, it expects its own message.
    if (room?.isJoining(connection)) {
      this.pendingJoins.afterJoin(room, connection, id, publication.length, () =>
        this.publisher.message(connection, name, publication, id, options),
      );
    } else {
      this.publisher.message(connection, name, publication, id, options);
    }
  }
}

/**
 * @param {Connection} connection
 * @param {string} key of the client
 * @param {Buffer} publication
 * @returns {import('../backend/broker.js').PublishOptions}
 */
function onceOnly({ session }, key, publication) {
  // No user can use up the keys of another, nor those of the HTTP API. Anonymous clients share
  // theirs, because a client that comes back has another connection.
  const owner = session === null ? 'anonymous' : `user ${JSON.stringify(session.user)}`;
  return { idempotencyKey: `${owner} ${key}`, fingerprint: fingerprintOf(publication) };
}

/**
 * @param {Connection} connection
 * @returns {string|undefined} the room of the connection; undefined if the connection is in no room
 *   or in several
 */
function onlyRoom(connection) {
  return connection.roomCount === 1
    ? (connection.room ?? connection.listRooms()[0]).name
    : undefined;
}
