// reads.js: the commands history, presence and presence_stats.
//
// An answer with history has at most half of the bytes that may wait for a connection; the client
// asks again from its end. Presence has no pages: a larger list is refused.

import { payloadOf, timestampOf } from '../../protocol/publication.js';
import { roomOf } from './codec/channels.js';
import { DISCONNECTS } from './codec/codes.js';
import { DoorError } from './codec/errors.js';
import { infoOf } from './codec/frames.js';
import { membersOf, statsOf } from './codec/members.js';
import { checkChannel } from './publish.js';
import { readStream } from './stream.js';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Audiences } from '../../protocol/audiences.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { CentrifugoClient, Handler } from './client.js' */
/** @import { CentrifugoConnections } from './connections.js' */
/** @import { Reply } from './codec/messages.js' */
/** @import { ClientRights } from './rights.js' */
/** @import { Stream } from './stream.js' */

/** Publications of one answer, as in Centrifugo. */
const MAX_LIMIT = 300;

export class ReadCommands {
  /** @param {DoorServices} services @param {CentrifugoConnections} connections @param {ClientRights} rights */
  constructor(services, connections, rights) {
    this.services = services;
    this.connections = connections;
    this.rights = rights;
    this.maxBytes = services.api.historyReader.maxBytes;
  }

  /** @type {Handler} */
  history = (connection, client, { id, request }) => {
    const { channel = '', limit = 0, since, reverse = false } = request;
    if (channel === '') return connection.close(DISCONNECTS.BAD_REQUEST);
    const room = roomNamed(channel);
    const query = {
      limit: limit < 0 ? MAX_LIMIT : Math.min(limit, MAX_LIMIT),
      since: since === undefined ? null : { offset: 0, epoch: '', ...since },
      isReverse: reverse,
      maxBytes: this.maxBytes,
    };
    const { historyReader, historyOf } = this.services.api;
    const reader = () => connection.audiencesIn(room);
    this.#read(connection, client, id, {
      ...{ right: 'history', channel, room, hasPart: historyOf(room) !== null },
      read: () => readStream(historyReader, room, query, reader),
      reply: (/** @type {Stream} */ stream) => ({ history: resultOf(stream, reader()) }),
      costOf: (/** @type {Stream} */ { searchedBytes }) => searchedBytes,
    });
  };

  /** @type {Handler} */
  presence = (connection, client, { id, request: { channel = '' } }) => {
    const room = roomNamed(channel);
    this.#read(connection, client, id, {
      ...{ right: 'presence', channel, room, hasPart: this.services.hub.tracker.covers(room) },
      read: () => this.services.hub.listUsers(room),
      reply: (/** @type {import('../../hub/user-lists.js').UserList} */ listed) => {
        const { members } = listed.attended();
        const bytes = (members ?? []).reduce((sum, { length }) => sum + length, 0);
        if (members === null || bytes > this.maxBytes) throw new DoorError(106, 'too many members');
        return { presence: { presence: membersOf(members) } };
      },
    });
  };

  /** @type {Handler} */
  stats = (connection, client, { id, request: { channel = '' } }) => {
    const room = roomNamed(channel);
    const { tracker } = this.services.hub;
    this.#read(connection, client, id, {
      ...{ right: 'presence', channel, room, hasPart: tracker.covers(room) },
      read: () => tracker.read(room),
      reply: (/** @type {Awaited<ReturnType<typeof tracker.read>>} */ attended) => ({
        presence_stats: statsOf(attended),
      }),
    });
  };

  /** @type {Handler} */
  ping = (connection, client, { id }) => client.send(connection, { id, ping: {} });

  /**
   * @template T @param {Connection} connection @param {CentrifugoClient} client @param {number} id
   * @param {object} asked @param {'history'|'presence'} asked.right
   * @param {string} asked.channel @param {string} asked.room
   * @param {boolean} asked.hasPart does the room have history, or presence?
   * @param {() => Promise<T>} asked.read @param {(result: T) => Reply} asked.reply
   * @param {(result: T) => number} [asked.costOf] bytes that were read beside those of the reply
   * @throws {DoorError} 108
   */
  #read(connection, client, id, { right, channel, room, hasPart, read, reply, costOf }) {
    const mayRead = this.rights.has(connection, client, right, channel, room);
    if (mayRead && !hasPart) throw new DoorError(108);
    const refuse = (/** @type {unknown} */ error) => {
      if (!(error instanceof DoorError)) return false;
      this.connections.refuse(connection, id, error);
      return true;
    };
    /** @param {T} result */
    const send = (result) => {
      const cost = costOf?.(result) ?? 0;
      let message;
      try {
        message = client.codec.encode({ id, ...reply(result) });
      } catch (error) {
        if (!refuse(error)) throw error;
        return cost;
      }
      connection.send(message);
      return message.length + cost;
    };
    const isOfUsers = right === 'presence';
    const request = { right, mayRead, isOfUsers, read, send, refuse };
    this.services.operations.reads.read(connection, id, room, request);
  }
}

/** @param {string} channel @returns {string} its room @throws {DoorError} */
function roomNamed(channel) {
  checkChannel(channel);
  return roomOf(channel);
}

/**
 * Rights may have changed since the pages were read.
 * @param {Stream} stream @param {Audiences} audiences of its reader, now @throws {DoorError} 106
 */
function resultOf({ publications, epoch, offset, isUnfinished }, audiences) {
  if (isUnfinished) throw new DoorError(106, 'too many publications for others');
  const visible = publications.filter(({ publication }) => audiences.maySee(publication));
  return {
    publications: visible.map(({ offset: own, publication }) => ({
      data: payloadOf(publication),
      offset: own,
      info: infoOf(publication) ?? undefined,
      time: timestampOf(publication),
    })),
    epoch,
    offset,
  };
}
