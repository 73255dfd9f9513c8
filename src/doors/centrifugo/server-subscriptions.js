// server-subscriptions.js: the channels to which a token subscribes its connection, and the user's
// personal channel.
//
// The reply to `connect` contains their results, and no push may precede it. So a stand-in joins
// each room and collects messages. When all rooms have answered, the reply is written, then the
// collected messages, and the connection replaces the stand-ins, all in one turn.
//
// A new token ends the channels that it no longer names, and begins the others: what `connect`
// applies of a token, `refresh` applies.

import { Clientless } from '../../hub/clientless.js';
import { Connection } from '../../hub/connection.js';
import { tokenIdentity } from './client.js';
import { personalChannelOf, roomOf } from './codec/channels.js';
import { DISCONNECTS, UNSUBSCRIBED } from './codec/codes.js';
import { DoorError } from './codec/errors.js';
import { positionOf } from './results.js';
import { resultOf, sinceOf, whoOf } from './subscribe.js';

/** @import { Credentials } from '../../auth/credentials.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */
/** @import { Joined } from '../../recovery/room-joins.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { CentrifugoClient } from './client.js' */
/** @import { CentrifugoConnections } from './connections.js' */
/** @import { Request, SubscribeResult } from './codec/messages.js' */
/** @import { CentrifugoSubscriptions } from './subscribe.js' */
/** @import { ServerSubscription } from './codec/tokens.js' */

/**
 * The subscriptions of one connection, until all are answered.
 * @typedef {object} Round
 * @property {Connection} connection @property {CentrifugoClient} client
 * @property {Credentials|null} credentials from its token or hook
 * @property {number} id of its `connect`
 * @property {number} open rooms that have not answered
 * @property {boolean} isFailed a room has refused
 * @property {Map<string, {standIn: StandIn, joined: Joined|null, result: SubscribeResult}>} entries by channel
 * @property {(subs: Map<string, SubscribeResult>) => void} reply @property {() => void} settle
 */

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
    const { operations } = this.services;
    if (this.#isOverLimit(connection, wanted.size)) return;
    /** @type {() => void} */
    let settle = () => {};
    const answered = new Promise((resolve) => {
      settle = () => resolve(undefined);
    });
    /** @type {Round} */
    const round = {
      connection,
      client,
      credentials,
      id,
      open: wanted.size,
      isFailed: false,
      entries: new Map(),
      reply,
      settle,
    };
    // Commands after `connect` wait for its reply.
    operations.lane.awaitJoin(
      connection,
      answered.then(() => {}),
    );
    for (const [channel, { data }] of wanted)
      this.#askOnJoin(round, channel, () => this.#join(round, channel, request, data));
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
        if (!isFinal(refused)) connection.close(DISCONNECTS.INSUFFICIENT_STATE);
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

  /** Asks the hook onJoin. @param {Round} round @param {string} channel @param {() => void} join */
  #askOnJoin(round, channel, join) {
    const { joins } = this.services.operations;
    const enter = (/** @type {Refusal|null} */ refused) => {
      try {
        if (refused !== null) return this.#refused(round, refused);
        if (round.connection.isOpen) return join();
      } catch (error) {
        round.connection.fail(error);
      }
      this.#answered(round); // without a subscription
    };
    // Not through the lane, which waits for this round.
    const asked = joins.askEarly(round.connection, round.credentials, [roomOf(channel)]);
    if (asked === null) enter(null);
    else asked.then(([refused]) => enter(refused));
  }

  /**
   * @param {Round} round @param {string} channel @param {Request} request
   * @param {Buffer|null} data for the client
   */
  #join(round, channel, { subs }, data) {
    const { config, operations } = this.services;
    const room = roomOf(channel);
    const sub = subs?.get(channel) ?? {};
    const standIn = new StandIn(round.connection, config.maxUnsentBytes);
    operations.joins.prepare(standIn, room, {
      since: sinceOf(sub),
      mayReadAll: this.subscriptions.mayReadAll(round.client, room),
      onJoined: (joined) => {
        const result = { ...resultOf(sub, joined), data };
        round.entries.set(channel, { standIn, joined, result });
        this.#answered(round);
      },
      onRefused: (refused) => this.#refused(round, refused),
    });
  }

  /** A room has refused. @param {Round} round @param {Refusal} refused */
  #refused(round, refused) {
    // What fails has decided nothing: the client connects again.
    if (isFinal(refused)) this.services.operations.replies.count(refused);
    else round.isFailed = true;
    this.#answered(round);
  }

  /** A room has answered. @param {Round} round */
  #answered(round) {
    if (--round.open > 0) return;
    // Later, because the last join has not returned, and a flush may be under way.
    queueMicrotask(() => {
      try {
        this.#conclude(round);
      } catch (error) {
        round.connection.fail(error);
      }
      this.#dismiss(round);
      round.settle();
    });
  }

  /** Removes stand-ins that the connection has not replaced. @param {Round} round */
  #dismiss({ entries }) {
    const { joins } = this.services.operations;
    for (const [channel, { standIn }] of entries) joins.unsubscribe(standIn, roomOf(channel));
  }

  /** @param {Round} round */
  #conclude({ connection, client, id, isFailed, entries, reply }) {
    const { joins } = this.services.operations;
    if (!connection.isOpen) return;
    const isFull = [...entries.values()].some(({ standIn }) => standIn.isFull);
    if (isFull) return connection.close(DISCONNECTS.SLOW);
    if (isFailed) {
      client.become('refused');
      return this.connections.refuse(connection, id, new DoorError(100));
    }
    reply(new Map([...entries].map(([channel, { result }]) => [channel, result])));
    for (const [channel, { standIn, joined }] of entries) {
      if (!connection.isOpen) return;
      for (const frames of standIn.frames) connection.transport.write(frames);
      // Now the connection has a user, whose rate is charged, too.
      const who = whoOf(connection, client);
      const paidBytes = joins.adopt(connection, standIn, roomOf(channel), joined, who);
      // A resync, now among the frames, has ended the membership.
      if (paidBytes < 0) return connection.close(DISCONNECTS.INSUFFICIENT_STATE);
      if (paidBytes > 0) this.connections.commandRate.charge(client, paidBytes);
      this.subscriptions.keepUntil(connection, client, channel, 0, 'connection');
    }
  }
}

/** Is the client refused for good? @param {Refusal} refused */
function isFinal({ code }) {
  return code === 'DENIED' || code === 'PERMISSION_DENIED';
}

/** A member for a connection whose `connect` is not answered. */
class StandIn extends Connection {
  /** @type {Buffer[]} */
  frames = [];
  isFull = false;
  #bytes = 0;

  /** @param {Connection} connection @param {number} maxBytes */
  constructor(connection, maxBytes) {
    super(new Collector(connection, (frames) => this.#keepFrames(frames)), connection.address);
    // So that publications exclude both of them.
    this.number = connection.number;
    this.maxBytes = maxBytes;
  }

  /** @param {Buffer} frames */
  #keepFrames(frames) {
    this.#bytes += frames.length;
    if (this.#bytes > this.maxBytes) {
      this.isFull = true;
      this.frames = [];
    } else this.frames.push(frames);
  }
}

/** The transport of a stand-in. */
class Collector extends Clientless {
  /** @param {Connection} connection @param {(frames: Buffer) => void} write */
  constructor({ transport }, write) {
    super(transport.format);
    this.door = transport.door;
    this.write = write;
    this.failed = (/** @type {unknown} */ error) => transport.failed(error);
  }
}
