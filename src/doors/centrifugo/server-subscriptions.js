// server-subscriptions.js: the channels to which a token subscribes its connection, and the user's
// personal channel. The reply to `connect` contains their results.
//
// A new token ends the channels that it no longer names, and begins the others: what `connect`
// applies of a token, `refresh` applies.

import { isDenied } from '../../operations/early-joins.js';
import { tokenIdentity } from './client.js';
import { personalChannelOf, roomOf } from './codec/channels.js';
import { DISCONNECTS, UNSUBSCRIBED } from './codec/codes.js';
import { DoorError } from './codec/errors.js';
import { positionOf } from './results.js';
import { resultOf, sinceOf, whoOf } from './subscribe.js';

/** @import { Credentials } from '../../auth/credentials.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { CentrifugoClient } from './client.js' */
/** @import { CentrifugoConnections } from './connections.js' */
/** @import { Request, SubscribeResult } from './codec/messages.js' */
/** @import { CentrifugoSubscriptions } from './subscribe.js' */
/** @import { ServerSubscription } from './codec/tokens.js' */

/** @type {ReadonlyMap<string, ServerSubscription>} */
const NONE = new Map();

export class ServerSubscriptions {
  /**
   * @param {DoorServices} services @param {CentrifugoConnections} connections
   * @param {CentrifugoSubscriptions} subscriptions
   */
  constructor(services, connections, subscriptions) {
    this.services = services;
    this.connections = connections;
    this.subscriptions = subscriptions;
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client
   * @param {{id: number, request: Request}} command connect
   * @param {Credentials|null} credentials from its token or hook
   * @param {(subs: Map<string, SubscribeResult>|null) => void} reply lets the connection into the
   *   hub, or closes it
   */
  begin(connection, client, { id, request }, credentials, reply) {
    const wanted = this.#wantedBy(client);
    if (wanted.size === 0) return reply(null);
    if (this.#isOverLimit(connection, wanted.size)) return;
    const channels = new Map([...wanted.keys()].map((channel) => [roomOf(channel), channel]));
    const subOf = (/** @type {string} */ channel) => request.subs?.get(channel) ?? {};
    const rooms = [...channels].map(([name, channel]) => ({
      name,
      since: sinceOf(subOf(channel)),
      mayReadAll: this.subscriptions.mayReadAll(client, name),
    }));
    const channelOf = (/** @type {string} */ room) => /** @type {string} */ (channels.get(room));
    this.services.operations.earlyJoins.joinBeforeReply(connection, credentials, rooms, {
      onJoined: (joined) =>
        reply(
          new Map(
            [...joined].map(([room, one]) => {
              const channel = channelOf(room);
              const data = wanted.get(channel)?.data ?? null;
              return [channel, { ...resultOf(subOf(channel), one), data }];
            }),
          ),
        ),
      onFailed: () => {
        client.become('refused');
        this.connections.refuse(connection, id, new DoorError(100));
      },
      whoOf: () => whoOf(connection, client),
      onEntered: (room, paidBytes) => {
        if (paidBytes > 0) this.connections.commandRate.charge(client, paidBytes);
        this.subscriptions.keepUntil(connection, client, channelOf(room), 0, 'connection');
      },
      onLost: () => connection.close(DISCONNECTS.INSUFFICIENT_STATE),
    });
  }

  /**
   * Applies the new token of a connected client.
   * @param {Connection} connection @param {CentrifugoClient} client
   */
  renewSubscriptions(connection, client) {
    const wanted = this.#wantedBy(client);
    if (this.#isOverLimit(connection, wanted.size)) return;
    for (const [channel, { by }] of client.listSubscriptions())
      if (!wanted.has(channel) && !this.#remains(connection, client, channel, by))
        this.subscriptions.end(connection, client, channel, UNSUBSCRIBED.SERVER);
    for (const [channel, { data }] of wanted)
      if (!this.subscriptions.isIn(connection, channel))
        this.#enterChannel(connection, client, channel, data);
  }

  /** Closes it if so. @param {Connection} connection @param {number} channels of its token */
  #isOverLimit(connection, channels) {
    const { joins, replies } = this.services.operations;
    const refused = joins.limitFault(channels);
    if (refused === null) return false;
    replies.count(refused);
    connection.close(DISCONNECTS.CHANNEL_LIMIT);
    return true;
  }

  /**
   * Does a subscription remain that the new token does not name?
   * @param {Connection} connection @param {CentrifugoClient} client @param {string} channel
   * @param {import('./client.js').Source} by
   */
  #remains(connection, client, channel, by) {
    const room = roomOf(channel);
    // The backend may have joined the connection to a room that a token had named before.
    if (connection.session.granted?.has(room)) return true;
    if (by === 'right')
      return this.subscriptions.rights.has(connection, client, 'join', channel, room);
    return by !== 'connection';
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client @param {string} channel
   * @param {Buffer|null} data for the client
   */
  #enterChannel(connection, client, channel, data) {
    const { joins, replies } = this.services.operations;
    const room = roomOf(channel);
    joins.subscribe(connection, room, {
      since: null,
      who: null,
      onJoined: (joined) =>
        this.subscriptions.enteredByServer(connection, client, room, 'connection', {
          ...positionOf(joined),
          data,
        }),
      onRefused: (refused) => {
        if (refused.code === 'ALREADY_JOINED') return;
        replies.count(refused);
        // The client returns, and its next `connect` applies the token.
        if (!isDenied(refused)) connection.close(DISCONNECTS.INSUFFICIENT_STATE);
      },
    });
  }

  /** @param {CentrifugoClient} client @returns {ReadonlyMap<string, ServerSubscription>} by channel */
  #wantedBy({ identity, user }) {
    const named = tokenIdentity(identity)?.subscriptions ?? NONE;
    const personal = personalChannelOf(this.services.config.centrifugo?.personal ?? '', user);
    if (personal === null || named.has(personal)) return named;
    return new Map([...named, [personal, { data: null }]]);
  }
}
