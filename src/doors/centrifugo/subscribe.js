// subscribe.js: the commands subscribe and unsubscribe.
//
//   name -> subscription token, user-limited channel or right -> hook onJoin -> room -> reply
//
// A returning client names its last position. If all later publications are kept, the reply
// contains them, and live ones follow. Otherwise the reply has none and says that they are gone.

import { NOBODY } from '../../operations/joins.js';
import { encodeMember } from '../../protocol/encode.js';
import { subscriptionOf, tokenIdentity } from './client.js';
import { channelOf, roomOf } from './codec/channels.js';
import { clientOf } from './codec/client-id.js';
import { DISCONNECTS } from './codec/codes.js';
import { DoorError } from './codec/errors.js';
import { GRACE_S, subscriptionReader } from './codec/tokens.js';
import { checkChannel } from './publish.js';
import { expiryOf, positionOf } from './results.js';

/** @import { Identity } from '../../auth/claims.js' */
/** @import { ReadClaims } from '../../auth/verifier.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { Since } from '../../protocol/decode.js' */
/** @import { Joined } from '../../recovery/room-joins.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { CentrifugoClient, Expiry, Handler, Source } from './client.js' */
/** @import { CentrifugoConnections } from './connections.js' */
/** @import { Request, SubscribeResult } from './codec/messages.js' */
/** @import { ClientRights } from './rights.js' */
/** @import { SubscriptionIdentity } from './codec/tokens.js' */

/** Flag: the client wants an error if its position is lost, to load its state again. */
const REJECT_UNRECOVERED = 2;

export class CentrifugoSubscriptions {
  /**
   * @param {DoorServices} services @param {CentrifugoConnections} connections @param {ClientRights} rights
   * @param {import('../../auth/expiry-wheel.js').ExpiryWheel<Expiry>} expiries
   */
  constructor(services, connections, rights, expiries) {
    this.services = services;
    this.connections = connections;
    this.rights = rights;
    this.expiries = expiries;
    this.readClaims = subscriptionReader(services.config.centrifugo?.isLenient ?? false);
  }

  /** @type {Handler} */
  subscribe = (connection, client, { id, request }) => {
    const { channel = '', token = '', type = 0 } = request;
    if (channel === '') return connection.close(DISCONNECTS.BAD_REQUEST);
    checkChannel(channel);
    if (type !== 0) throw new DoorError(108);
    if (request.tf) throw new DoorError(107, 'filters are not supported');
    // A second subscription needs no token, and no right.
    if (this.isIn(connection, channel)) throw new DoorError(105);
    if (token === '') {
      const room = roomOf(channel);
      if (!this.rights.has(connection, client, 'join', channel, room)) throw new DoorError(103);
      return this.#enter(connection, client, id, request, null);
    }
    this.verifyToken(connection, client, channel, token, (identity, code, why) => {
      if (identity === null)
        return this.connections.refuse(connection, id, new DoorError(code, why || undefined));
      this.#enter(connection, client, id, request, identity);
    });
  };

  /** @type {Handler} */
  unsubscribe = (connection, client, { id, request }) => {
    const { channel = '' } = request;
    if (channel === '') return connection.close(DISCONNECTS.BAD_REQUEST);
    this.leave(connection, client, channel);
    client.send(connection, { id, unsubscribe: {} });
  };

  /** @param {Connection} connection @param {CentrifugoClient} client @param {string} channel */
  leave(connection, client, channel) {
    this.#forgetChannel(client, channel);
    this.services.operations.joins.unsubscribe(connection, roomOf(channel));
  }

  /**
   * Ends a subscription, and tells the client.
   * @param {Connection} connection @param {CentrifugoClient} client @param {string} channel
   * @param {{code: number, reason: string}} unsubscribe
   */
  end(connection, client, channel, unsubscribe) {
    const isIn = this.isIn(connection, channel);
    this.#forgetChannel(client, channel);
    this.services.operations.joins.end(connection, roomOf(channel));
    // The backend may have ended it before.
    if (isIn) client.send(connection, { push: { channel, unsubscribe } });
  }

  /**
   * After a resync the client can subscribe again. Server-side subscriptions come with its next
   * connection.
   * @type {import('../../hub/door.js').Door['expelled']}
   */
  expelled(connection, room, reason) {
    const client = this.connections.clientOf(connection);
    const channel = channelOf(room);
    if (client === undefined || channel === null) return;
    const by = client.subscriptionTo(channel)?.by;
    const isOwn = by === 'right' || by === 'token';
    this.#forgetChannel(client, channel);
    if (reason === 'resync' && !isOwn) connection.close(DISCONNECTS.INSUFFICIENT_STATE);
  }

  /** @param {Connection} connection @param {string} channel */
  isIn(connection, channel) {
    return this.services.operations.joins.isIn(connection, roomOf(channel));
  }

  /**
   * Closes the connection if the subscription token is for another user or channel.
   * @param {Connection} connection @param {CentrifugoClient} client @param {string} channel
   * @param {string} token
   * @param {(identity: SubscriptionIdentity|null, code: number, why?: string) => void} act as for
   *   `check`
   */
  verifyToken(connection, client, channel, token, act) {
    this.check(connection, token, this.readClaims, 'join', (checked, code, why) => {
      if (checked === null) return act(null, code, why);
      const identity = /** @type {SubscriptionIdentity} */ (checked);
      if (isFor(identity, client, channel)) return act(identity, 0);
      this.services.counters.errors.INVALID_TOKEN++;
      connection.close(DISCONNECTS.INVALID_TOKEN);
    });
  }

  /**
   * @param {Connection} connection @param {string} token @param {ReadClaims} readClaims
   * @param {'join'|'token'} kind which later commands may overlap
   * @param {(identity: Identity|null, code: number, why?: string) => void} act not called if the
   *   connection has closed; null: refused with that code, 103 if the token is not valid; `why` if
   *   clients are told
   */
  check(connection, token, readClaims, kind, act) {
    const { identities } = this.services.operations;
    identities.verifyToken(connection, token, readClaims, kind, (identity, code, told) => {
      if (identity !== null) return act(identity, 0);
      if (code === 'NO_TOKENS') return act(null, 108);
      if (code === 'TOKEN_EXPIRED') return act(null, 109);
      // Temporary, so that the client tries again.
      if (code === 'UNAVAILABLE' || code === 'TOKEN_NOT_YET_VALID') return act(null, 100);
      this.services.counters.errors.INVALID_TOKEN++;
      act(null, 103, told);
    });
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client @param {string} channel
   * @param {number} endS its new end; 0: with the connection
   */
  prolong(connection, client, channel, endS) {
    const by = client.subscriptionTo(channel)?.by ?? 'right';
    this.keepUntil(connection, client, channel, endS, by === 'right' ? 'token' : by);
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client @param {string} channel
   * @param {number} endS 0: with the connection
   * @param {Source} by
   */
  keepUntil(connection, client, channel, endS, by) {
    this.#forgetChannel(client, channel);
    client.subscribed(channel, subscriptionOf(by, this.#expiryAt(connection, channel, endS)));
  }

  /** @param {CentrifugoClient} client @param {string} channel */
  #forgetChannel(client, channel) {
    this.#stay(client.subscriptionTo(channel)?.expiry);
    client.unsubscribed(channel);
  }

  /**
   * Ends a connection without a user, which has no session to end with its token.
   * @param {Connection} connection @param {CentrifugoClient} client @param {number} endS 0: never
   */
  limit(connection, client, endS) {
    this.#stay(client.expiry);
    client.expireBy(this.#expiryAt(connection, '', connection.session.isAnonymous ? endS : 0));
  }

  /** @param {CentrifugoClient} client whose connection is closed */
  closed(client) {
    this.#stay(client.expiry);
    for (const [, { expiry }] of client.listSubscriptions()) this.#stay(expiry);
  }

  /**
   * @param {Connection} connection @param {string} channel @param {number} endS 0: with the connection
   */
  #expiryAt(connection, channel, endS) {
    if (endS === 0) return null;
    const expiry = { connection, channel, second: this.expiries.secondAfter(endS + GRACE_S) };
    this.expiries.addItem(expiry);
    return expiry;
  }

  /** @param {Expiry|null|undefined} expiry which no longer applies */
  #stay(expiry) {
    if (expiry != null) this.expiries.removeItem(expiry);
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client @param {number} id
   * @param {Request} request @param {SubscriptionIdentity|null} granted by a token of its own
   */
  #enter(connection, client, id, request, granted) {
    const channel = String(request.channel);
    const room = roomOf(channel);
    const { joins, replies } = this.services.operations;
    joins.subscribe(connection, room, {
      since: sinceOf(request),
      // FANFARE_CENTRIFUGO_ALLOW and a channel's name give rights that its session does not know.
      mayJoin: () => granted !== null || this.rights.has(connection, client, 'join', channel, room),
      mayReadAll: this.mayReadAll(client, room),
      readCost: 0,
      who: whoOf(connection, client),
      onJoined: (joined, paidBytes) => {
        if (paidBytes > 0) this.connections.commandRate.charge(client, paidBytes);
        const isLost = request.recover === true && !(joined?.recovered ?? false);
        if (isLost && (Number(request.flag ?? 0) & REJECT_UNRECOVERED) !== 0) {
          this.leave(connection, client, channel);
          return this.connections.refuse(connection, id, new DoorError(112));
        }
        const endS = granted?.endS ?? 0;
        this.keepUntil(connection, client, channel, endS, granted === null ? 'right' : 'token');
        const result = { ...resultOf(request, joined), ...expiryOf(endS) };
        client.send(connection, {
          id,
          subscribe: { ...result, data: granted?.data ?? null },
        });
      },
      onRefused: (refused) => replies.refuse(connection, refused, id),
    });
  }

  /** @type {import('../../hub/door.js').Door['entered']} */
  enteredByBackend(connection, room, joined) {
    const client = this.connections.clientOf(connection);
    if (client === undefined) return;
    this.enteredByServer(connection, client, room, 'backend', positionOf(joined));
  }

  /**
   * Called when the server has made a connection a member after its `connect`.
   * @param {Connection} connection @param {CentrifugoClient} client @param {string} room
   * @param {'connection'|'backend'} by @param {SubscribeResult} subscribe for the client
   */
  enteredByServer(connection, client, room, by, subscribe) {
    if (!this.services.operations.joins.isIn(connection, room)) return;
    const channel = channelOf(room) ?? room;
    client.send(connection, { push: { channel, subscribe } });
    this.keepUntil(connection, client, channel, 0, by);
    this.services.operations.joins.attend(connection, room, whoOf(connection, client));
  }

  /**
   * May recovery replay all publications, and not only recent ones?
   * @param {CentrifugoClient} client @param {string} room
   */
  mayReadAll({ identity }, room) {
    return (
      tokenIdentity(identity)?.hasRights !== true ||
      identity?.rights.history.has(room) === true ||
      this.rights.allowed.history.has(room)
    );
  }
}

/**
 * What presence shows of a connection without a user: its own id, and its `client`.
 * @param {Connection} connection @param {CentrifugoClient} client
 * @returns {import('../../operations/joins.js').Who}
 */
export function whoOf({ session, id }, { identity }) {
  const info = identity?.info ?? null;
  if (!session.isAnonymous) return NOBODY;
  const member = encodeMember(id, info);
  const own = Buffer.from(`,"client":"${clientOf(id)}"}`);
  return { info, member: Buffer.concat([member.subarray(0, member.length - 1), own]) };
}

/** @param {SubscriptionIdentity} identity @param {CentrifugoClient} client @param {string} channel */
function isFor({ user, channel: named }, client, channel) {
  return user === client.user && named === channel;
}

/** @param {Request} request @returns {Since|null} null: no recovery */
export function sinceOf({ recover, epoch = '', offset = 0 }) {
  if (!recover) return null;
  return { epoch, offset, connectionId: '', isAnyEpoch: epoch === '' };
}

/**
 * @param {Request} request @param {Joined|null} joined null: the channel has no history
 * @returns {SubscribeResult}
 */
export function resultOf({ recover = false, offset = 0 }, joined) {
  const result = positionOf(joined);
  if (!recover) return result;
  if (!joined?.recovered) return { ...result, was_recovering: true };
  const { replay } = joined;
  return {
    ...result,
    offset,
    was_recovering: true,
    recovered: true,
    publications: replay !== undefined && replay.length > 0 ? replay : undefined,
  };
}
