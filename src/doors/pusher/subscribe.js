// subscribe.js: pusher:subscribe and pusher:unsubscribe.
//
// A channel is a room. The client gets the reply, then the channel's last event or a cache_miss,
// then live events. A presence channel answers with the list of its members.

import { RoomList } from '../../auth/rights.js';
import { isChannel, kindOf, roomOf, userOfChannel } from '../../protocol/pusher-channels.js';
import {
  cacheMissText,
  errorText,
  membersData,
  notSubscribedText,
  subscribedText,
} from './codec/frames.js';
import { fieldsOf } from './codec/messages.js';
import { authError, channelFault, limitReached, memberOf, UNAUTHORIZED } from './codec/signed.js';

/** Reads of a cache channel that are not free count as ten messages: each may cause a webhook. */
const CACHE_READ_BYTES = 40_960;

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */
/** @import { Joined } from '../../recovery/room-joins.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { Member, Refused } from './codec/signed.js' */
/** @import { PusherClient, Handler } from './client.js' */

const NOT_PUBLIC = authError('The "publicRooms" of this app do not name this channel.');
const UNAVAILABLE = { type: 'Unavailable', status: 503, error: 'The server is unavailable.' };

export class PusherSubscriptions {
  /**
   * @param {DoorServices} services
   * @param {(connection: Connection) => void} onAuthorized
   * @param {(connection: Connection) => void} onUnavailable
   */
  constructor(services, onAuthorized, onUnavailable) {
    this.services = services;
    this.onAuthorized = onAuthorized;
    this.onUnavailable = onUnavailable;
    const apps = services.config?.pusher?.apps ?? [];
    /** Rooms whose channels need no signature, by app; null: all. */
    this.publicRooms = new Map(
      apps.map(({ id, publicRooms }) => [id, publicRooms && new RoomList(publicRooms)]),
    );
  }

  /** @type {Handler} */
  subscribe = (connection, client, message) => {
    const { channel, auth, channel_data: given } = fieldsOf(message);
    const data = given ?? ''; // pusher-js passes on the null of an auth endpoint
    if (typeof channel !== 'string')
      return this.#error(connection, 'INVALID_MESSAGE_FORMAT', 'Name a channel.');
    const refuse = (/** @type {Refused} */ refused) => this.#refuse(connection, channel, refused);
    const { app, user } = client;
    if (channel.length > app.maxChannelLength)
      return refuse(
        limitReached(
          4009,
          `The channel name is longer than the allowed ${app.maxChannelLength} characters.`,
        ),
      );
    if (!isChannel(channel))
      return refuse({ type: 'InvalidChannel', status: 4009, error: 'Invalid channel name.' });
    const kind = kindOf(channel);
    if (kind.isUser) {
      // A signed-in connection gets the events of its user anyway.
      if (user === null || user.id !== userOfChannel(channel)) return refuse(UNAUTHORIZED);
      return connection.send(subscribedText(channel));
    }
    const name = roomOf(app, channel);
    // A second subscription needs no signature.
    if (this.services.operations.joins.isIn(connection, name))
      return this.#repeated(connection, channel);
    if (kind.isPrivate) {
      const faulty = channelFault(connection.id, app, channel, auth, data);
      if (faulty !== null) return refuse(faulty);
    } else if (this.publicRooms.get(app.id)?.has(name) === false) return refuse(NOT_PUBLIC);
    const member = kind.isPresence ? memberOf(app, user, data) : null;
    if (member !== null && 'type' in member) return refuse(member);
    if (kind.isPrivate) this.onAuthorized(connection);
    this.#joinChannel(connection, client, channel, name, member, kind.isCache);
  };

  /**
   * @param {Connection} connection @param {PusherClient} client @param {string} channel
   * @param {string} name of its room @param {Member|null} member null: no presence channel
   * @param {boolean} isCache
   */
  #joinChannel(connection, client, channel, name, member, isCache) {
    const { maxPresenceMembers: max } = client.app;
    this.services.operations.joins.subscribe(connection, name, {
      since: null,
      last: isCache ? 1 : 0,
      hasOwn: true,
      // A cache channel sends its last event, or asks the application for one by a webhook.
      readCost: CACHE_READ_BYTES,
      who: null, // a presence channel lists its members
      listed: member && { ...member, max },
      onJoined: (joined, _paidBytes, users) => {
        connection.send(subscribedText(channel, member === null ? '{}' : membersData(users)));
        if (isCache) this.#sentLast(connection, name, channel, joined);
      },
      onRefused: (refused) => this.#answerRefused(connection, client, channel, refused),
    });
  }

  /**
   * @param {Connection} connection @param {PusherClient} client @param {string} channel
   * @param {Refusal} refused
   */
  #answerRefused(connection, { app }, channel, refused) {
    const { code, message } = refused;
    const full = `The channel has the most members allowed (${app.maxPresenceMembers}).`;
    if (code === 'ALREADY_JOINED') this.#repeated(connection, channel);
    else if (code === 'ROOM_LIMIT') this.#refuse(connection, channel, limitReached(4100, message));
    else if (code === 'ROOM_FULL') this.#refuse(connection, channel, limitReached(4100, full));
    else if (code === 'DENIED' || code === 'PERMISSION_DENIED')
      this.#refuse(connection, channel, authError(message));
    else this.#refuse(connection, channel, UNAVAILABLE);
  }

  /**
   * A cache channel without an event asks the application for one.
   * @param {Connection} connection @param {string} name @param {string} channel
   * @param {Joined|null} joined
   */
  #sentLast(connection, name, channel, joined) {
    if (joined !== null && joined.replayed > 0) return;
    connection.send(cacheMissText(channel));
    const mark = joined === null ? '' : `${joined.epoch}:${joined.offset}`;
    this.services.reporter?.report(name, 'cache.missed', {}, { mark });
  }

  /** @type {Handler} */
  unsubscribe = (connection, { app }, message) => {
    const { channel } = fieldsOf(message);
    if (isChannel(channel) && !kindOf(channel).isUser)
      this.services.operations.joins.unsubscribe(connection, roomOf(app, channel));
  };

  /** Refuses a second subscription. @param {Connection} connection @param {string} channel */
  #repeated(connection, channel) {
    const text = `Existing subscription to channel ${channel}`;
    this.#error(connection, 'ALREADY_JOINED', text, channel);
  }

  /** @param {Connection} connection @param {string} channel @param {Refused} refused */
  #refuse(connection, channel, refused) {
    const { errors } = this.services.counters;
    if (refused === UNAVAILABLE) errors.UNAVAILABLE++;
    else if (refused.type === 'AuthError') errors.PERMISSION_DENIED++;
    else if (refused.type === 'InvalidChannel') errors.INVALID_ROOM++;
    else errors.ROOM_LIMIT++;
    connection.send(notSubscribedText(channel, refused));
    if (refused === UNAVAILABLE) this.onUnavailable(connection);
  }

  /**
   * @param {Connection} connection @param {'INVALID_MESSAGE_FORMAT'|'ALREADY_JOINED'} code
   * @param {string} text @param {string} [channel]
   */
  #error(connection, code, text, channel) {
    this.services.counters.errors[code]++;
    connection.send(errorText(null, text, channel));
  }
}
