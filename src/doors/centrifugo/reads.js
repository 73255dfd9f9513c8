// reads.js: the commands history, presence and presence_stats.
//
// An answer with history has at most half of the bytes that may wait for a connection; the client
// asks again from its end. Presence has no pages: a larger list is refused.

import { payloadOf, timestampOf } from '../../protocol/publication.js';
import { roomOf } from './channels.js';
import { DISCONNECTS } from './codes.js';
import { DoorError } from './errors.js';
import { infoOf } from './frames.js';
import { membersOf, statsOf } from './members.js';
import { checkChannel } from './publish.js';
import { readStream } from './stream.js';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { Client, Handler } from './client.js' */
/** @import { Connections } from './connections.js' */
/** @import { Reply } from './messages.js' */
/** @import { ClientRights } from './rights.js' */
/** @import { Stream } from './stream.js' */

/** Publications of one answer, as in Centrifugo. */
const MAX_LIMIT = 300;

export class ReadCommands {
  /** @param {DoorServices} services @param {Connections} connections @param {ClientRights} rights */
  constructor(services, connections, rights) {
    this.services = services;
    this.connections = connections;
    this.rights = rights;
    this.maxBytes = services.config.maxUnsentBytes / 2;
  }

  /** @type {Handler} */
  history = (connection, client, { id, request }) => {
    const { channel = '', limit = 0, since, reverse = false } = request;
    if (channel === '') return connection.close(DISCONNECTS.BAD_REQUEST);
    const room = this.#roomFor(connection, client, channel, 'history');
    if (this.services.historyOf(room) === null) throw new DoorError(108);
    const query = {
      limit: limit < 0 ? MAX_LIMIT : Math.min(limit, MAX_LIMIT),
      since: since === undefined ? null : { offset: 0, epoch: '', ...since },
      isReverse: reverse,
      maxBytes: this.maxBytes,
    };
    const { historyReader } = this.services;
    /** @param {Stream} stream */
    const reply = (stream) => ({ history: resultOf(stream) });
    this.#answer(
      connection,
      client,
      { id, room },
      () => readStream(historyReader, room, query),
      reply,
    );
  };

  /** @type {Handler} */
  presence = (connection, client, { id, request }) => {
    const room = this.#roomWithPresence(connection, client, request.channel);
    const read = () => this.services.hub.listUsers(room);
    /** @param {import('../../hub/user-lists.js').UserList} listed */
    const reply = (listed) => {
      const { members } = listed.attended();
      const bytes = (members ?? []).reduce((sum, { length }) => sum + length, 0);
      if (members === null || bytes > this.maxBytes) throw new DoorError(106, 'too many members');
      return { presence: { presence: membersOf(members) } };
    };
    this.#answer(connection, client, { id, room }, read, reply, true);
  };

  /** @type {Handler} */
  stats = (connection, client, { id, request }) => {
    const room = this.#roomWithPresence(connection, client, request.channel);
    const read = () => this.services.tracker.read(room);
    /** @param {Awaited<ReturnType<typeof read>>} attended */
    const reply = (attended) => ({ presence_stats: statsOf(attended) });
    this.#answer(connection, client, { id, room }, read, reply, true);
  };

  /** @type {Handler} */
  ping = (connection, client, { id }) => client.send(connection, { id, ping: {} });

  /**
   * @param {Connection} connection @param {Client} client @param {string} [channel]
   * @throws {DoorError}
   */
  #roomWithPresence(connection, client, channel = '') {
    const room = this.#roomFor(connection, client, channel, 'presence');
    if (!this.services.tracker.covers(room)) throw new DoorError(108);
    return room;
  }

  /**
   * @param {Connection} connection @param {Client} client @param {string} channel
   * @param {'history'|'presence'} right @throws {DoorError}
   */
  #roomFor(connection, client, channel, right) {
    checkChannel(channel);
    const room = roomOf(channel);
    if (!this.rights.has(connection, client, right, channel, room)) throw new DoorError(103);
    return room;
  }

  /**
   * Every read of a room asks the hook onJoin here.
   * @template T @param {Connection} connection @param {Client} client
   * @param {{id: number, room: string}} command
   * @param {() => Promise<T>} read @param {(read: T) => Reply} reply @param {boolean} [isOfUsers]
   */
  #answer(connection, client, { id, room }, read, reply, isOfUsers) {
    const { charge, operations } = this.services;
    const refuse = (/** @type {unknown} */ error) => {
      if (error instanceof DoorError) this.connections.refuse(connection, id, error);
      else operations.replies.brokerError(connection, error, id);
    };
    /** @param {T} result */
    const send = (result) => {
      let message;
      try {
        message = client.codec.encode({ id, ...reply(result) });
      } catch (error) {
        if (!(error instanceof DoorError)) throw error;
        return refuse(error);
      }
      charge(connection, message.length);
      connection.send(message);
    };
    operations.joins.askFor(connection, room, id, () =>
      operations.pendingReads.wait(connection, id, read, send, isOfUsers, refuse),
    );
  }
}

/** @param {Stream} stream */
function resultOf({ publications, epoch, offset }) {
  return {
    publications: publications.map(({ offset: own, publication }) => ({
      data: payloadOf(publication),
      offset: own,
      info: infoOf(publication) ?? undefined,
      time: timestampOf(publication),
    })),
    epoch,
    offset,
  };
}
