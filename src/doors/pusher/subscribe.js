// subscribe.js: pusher:subscribe and pusher:unsubscribe.
//
// A channel is a room. The client gets the reply, then the channel's last event or a cache_miss,
// then live events. Signed data is parsed only after its signature was checked.

import { RoomList } from '../../auth/rights.js';
import { isChannel, kindOf, roomOf, userOfChannel } from '../../protocol/pusher-channels.js';
import { channelText, checkAuth } from '../../protocol/pusher-signature.js';
import { cacheMissText, errorText, notSubscribedText, subscribedText } from './codec/frames.js';
import { fieldsOf, readObject } from './codec/messages.js';
import { socketIdOf } from './codec/socket-id.js';
import { WaitingSubscriptions } from './waiting.js';

const MAX_USER_LENGTH = 128;
/** Reads of a cache channel that are not free count as ten messages: each may cause a webhook. */
const CACHE_READ_BYTES = 40_960;

/** @import { App } from '../../config/pusher.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { RoomRequest } from '../../hub/hub.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */
/** @import { Joined } from '../../recovery/room-joins.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { Kind } from '../../protocol/pusher-channels.js' */
/** @import { PusherClient, Handler } from './client.js' */
/** @import { PusherPresence } from './presence.js' */

/** Why a subscription is refused. @typedef {{type: string, status: number, error: string}} Refused */

/**
 * A subscription that is not answered yet.
 * @typedef {object} Wanted
 * @property {string} channel @property {string} name of its room @property {Readonly<Kind>} kind
 * @property {Member|null} member null: no presence channel
 * @property {number} attempt how often it was postponed
 * @property {boolean} isTold does the client know that the channel is full?
 */

/** In a presence channel. @typedef {{user: string, info: Buffer|null, member: Buffer}} Member */

/** @param {string} error @returns {Refused} */
const authError = (error) => ({ type: 'AuthError', status: 401, error });
/** @param {number} status @param {string} error @returns {Refused} */
const limitReached = (status, error) => ({ type: 'LimitReached', status, error });

const UNAUTHORIZED = authError('The connection is unauthorized.');
const NOT_PUBLIC = authError('The "publicRooms" of this app do not name this channel.');
const INVALID_MEMBER = authError('Invalid presence information');
const UNAVAILABLE = { type: 'Unavailable', status: 503, error: 'The server is unavailable.' };

export class PusherSubscriptions {
  /**
   * @param {DoorServices} services @param {PusherPresence} presence
   * @param {(connection: Connection) => void} onAuthorized
   * @param {(connection: Connection) => void} onUnavailable
   */
  constructor(services, presence, onAuthorized, onUnavailable) {
    this.services = services;
    this.presence = presence;
    this.onAuthorized = onAuthorized;
    this.onUnavailable = onUnavailable;
    this.waiting = new WaitingSubscriptions();
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
    const { app } = client;
    const { joins } = this.services.operations;
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
    if (kind.isUser) return this.#subscribeOwn(connection, client, channel);
    const name = roomOf(app, channel);
    // A second subscription needs no signature.
    if (joins.isIn(connection, name)) return this.#repeated(connection, channel);
    this.waiting.delete(connection, channel);
    if (kind.isPrivate) {
      const faulty = verifySignature(connection, client, channel, auth, data);
      if (faulty !== null) return refuse(faulty);
    } else if (this.publicRooms.get(app.id)?.has(name) === false) return refuse(NOT_PUBLIC);
    /** @type {Member|Refused|null} */
    const member = kind.isPresence ? memberOf(client, data) : null;
    if (member !== null && 'type' in member) return refuse(member);
    if (kind.isPrivate) this.onAuthorized(connection);
    const wanted = { channel, name, kind, member, attempt: 0, isTold: false };
    this.#enter(connection, client, wanted);
  };

  /** @param {Connection} connection @param {PusherClient} client @param {Wanted} wanted */
  #enter(connection, client, wanted) {
    const { channel, name, kind, member } = wanted;
    const last = kind.isCache ? 1 : 0;
    let data = '{}';
    /** @param {RoomRequest} request */
    const enterPresence = (request) =>
      this.presence.subscribe({
        .../** @type {Member} */ (member),
        ...{ connection, last, room: name, max: client.app.maxPresenceMembers },
        onJoined: (members, joined) => {
          data = members;
          request.onJoined(joined);
        },
        onRefused: (reason) => {
          if (reason === 'full') this.#full(connection, client, wanted);
          else this.#refuse(connection, channel, UNAVAILABLE);
        },
      });
    this.services.operations.joins.subscribe(connection, name, {
      since: null,
      last,
      hasOwn: true,
      // A cache channel sends its last event, or asks the application for one by a webhook.
      readCost: CACHE_READ_BYTES,
      who: null, // presence channels list their own
      enter: member === null ? undefined : enterPresence,
      onJoined: (joined) => this.#joined(connection, name, channel, last > 0, data, joined),
      onRefused: (refused) => this.#refused(connection, client, wanted, refused),
    });
  }

  /**
   * @param {Connection} connection @param {PusherClient} client @param {Wanted} wanted
   * @param {Refusal} refused
   */
  #refused(connection, client, wanted, refused) {
    const { channel } = wanted;
    switch (refused.code) {
      case 'ALREADY_JOINED':
        return this.#repeated(connection, channel);
      case 'ROOM_LIMIT':
        return this.#refuse(connection, channel, limitReached(4100, refused.message));
      case 'DENIED':
      case 'PERMISSION_DENIED':
        return this.#refuse(connection, channel, authError(refused.message));
      case 'RATE_LIMIT_EXCEEDED':
        this.services.counters.errors.RATE_LIMIT_EXCEEDED++;
        return this.#postpone(connection, client, wanted);
      case 'HOOK_FAILED':
      case 'READS_WAIT':
        return this.#postpone(connection, client, wanted);
      default:
        this.#refuse(connection, channel, UNAVAILABLE);
    }
  }

  /**
   * A presence channel has no place now. The application may show that; the client enters when a
   * member leaves.
   * @param {Connection} connection @param {PusherClient} client @param {Wanted} wanted
   */
  #full(connection, client, wanted) {
    const text = `The channel has the most members allowed (${client.app.maxPresenceMembers}).`;
    if (!wanted.isTold) this.#refuse(connection, wanted.channel, limitReached(4100, text));
    wanted.isTold = true;
    this.#postpone(connection, client, wanted);
  }

  /**
   * Asks again later. What refused it passes.
   * @param {Connection} connection @param {PusherClient} client @param {Wanted} wanted
   */
  #postpone(connection, client, wanted) {
    const again = () => this.#enter(connection, client, wanted);
    if (!connection.isOpen) return;
    if (!this.waiting.add(connection, wanted.channel, wanted.attempt++, again))
      this.#refuse(connection, wanted.channel, UNAVAILABLE);
  }

  /**
   * Subscribes to the user's own channel. A signed-in connection gets its events anyway.
   * @param {Connection} connection @param {PusherClient} client @param {string} channel
   */
  #subscribeOwn(connection, client, channel) {
    if (client.user !== null && client.user.id === userOfChannel(channel))
      connection.send(subscribedText(channel));
    else this.#refuse(connection, channel, UNAUTHORIZED);
  }

  /**
   * @param {Connection} connection @param {string} name @param {string} channel
   * @param {boolean} isCache @param {string} data @param {Joined|null} joined
   */
  #joined(connection, name, channel, isCache, data, joined) {
    connection.send(subscribedText(channel, data));
    if (!isCache || (joined !== null && joined.replayed > 0)) return;
    connection.send(cacheMissText(channel));
    const mark = joined === null ? '' : `${joined.epoch}:${joined.offset}`;
    this.services.reporter?.report(name, 'cache.missed', {}, { mark });
  }

  /** @type {Handler} */
  unsubscribe = (connection, { app }, message) => {
    const { channel } = fieldsOf(message);
    if (!isChannel(channel) || kindOf(channel).isUser) return;
    this.waiting.delete(connection, channel);
    const name = roomOf(app, channel);
    if (this.services.operations.joins.unsubscribe(connection, name))
      this.presence.left(name, connection);
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

/**
 * @param {Connection} connection @param {PusherClient} client @param {string} channel
 * @param {unknown} auth @param {unknown} data as received
 * @returns {Refused|null} null: the signature is valid
 */
function verifySignature({ id }, { app }, channel, auth, data) {
  if (typeof data !== 'string') return UNAUTHORIZED;
  switch (checkAuth(app, auth, channelText(socketIdOf(id), channel, data))) {
    case 'ok':
      return null;
    case 'key': {
      const key = String(auth).split(':', 1)[0].slice(0, 64);
      return authError(`Invalid key in subscription auth data: '${key}'`);
    }
    default:
      return UNAUTHORIZED;
  }
}

/** @param {PusherClient} client @param {unknown} data channel_data, verified @returns {Member|Refused} */
function memberOf({ app, user: signedIn }, data) {
  const text = String(data);
  if (text === '' && signedIn !== null)
    return newMember(app, signedIn.id, JSON.stringify(signedIn.id), signedIn.info);
  const parsed = readObject(text);
  if (parsed === null) return INVALID_MEMBER;
  const { user_id: id } = parsed.value;
  const source = parsed.sourceOf('user_id') ?? '';
  const user = typeof id === 'string' ? id : typeof id === 'number' ? source : '';
  if (user === '') return INVALID_MEMBER;
  const info = parsed.sourceOf('user_info') ?? null;
  if (user.length > MAX_USER_LENGTH)
    return limitReached(
      4301,
      `The user_id is longer than the allowed ${MAX_USER_LENGTH} characters.`,
    );
  return newMember(app, user, source, info);
}

/**
 * @param {App} app @param {string} user @param {string} id JSON, as the application wrote it
 * @param {string|null} info JSON @returns {Member|Refused}
 */
function newMember(app, user, id, info) {
  if (info !== null && Buffer.byteLength(info) > app.maxMemberBytes)
    return limitReached(4301, `The user_info is larger than ${app.maxMemberBytes} bytes.`);
  const shown = info === null ? '' : `,"info":${info}`;
  // A string id equals the user's name.
  const raw = id.startsWith('"') ? '' : `,"user_id":${id}`;
  return {
    user,
    info: info === null ? null : Buffer.from(info),
    member: Buffer.from(`{"user":${JSON.stringify(user)}${shown}${raw}}`),
  };
}
