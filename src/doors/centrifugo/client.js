// client.js: what the door knows of one connection.

/** @import { Lease } from '../../auth/session.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { Codec, Command, Reply } from './messages.js' */
/** @import { ChannelIdentity } from './tokens.js' */

/**
 * Handles a command. It may throw a DoorError: the reply is that error.
 * @typedef {(connection: Connection, client: Client, command: Command) => void} Handler
 */

/**
 * How far a connection is: `new` until its `connect`, `connecting` until the answer, `refused` if
 * that is an error.
 * @typedef {'new'|'connecting'|'connected'|'refused'} State
 */

/** Where commands for a connection that only listens have to be sent. @typedef {{session: string, node: string}} Upstream */

/**
 * A subscription, beside its membership of the room.
 * @typedef {object} Subscription
 * @property {boolean} isGranted by a token of its own, by the connection's token or by the backend:
 *   another token of the connection does not end it
 * @property {boolean} isServers has the server made it? Then the client cannot make it again
 * @property {import('./expiry.js').Expiry|null} expiry null: it ends with the connection
 */

export class Client {
  /** @type {State} */
  state = 'new';
  /** Pings without an answer. A client that was suspended answers several at once. */
  pings = 0;
  /** Of its token or its hook; null: it has none. @type {import('../../auth/claims.js').Identity|null} */
  identity = null;
  /** @type {Lease|null} */
  lease = null;
  /** Of a connection without a user. @type {import('./expiry.js').Expiry|null} */
  expiry = null;
  /** By channel. @type {Map<string, Subscription>|null} */
  subscriptions = null;
  /** Of its commands. @type {{fullAt: number}|null} */
  #bucket = null;

  /**
   * @param {Codec} codec
   * @param {{headers: import('node:http').IncomingHttpHeaders, url: string, address: string}|null}
   *   handshake until it is connected
   * @param {Upstream|null} upstream null: it sends commands itself
   */
  constructor(codec, handshake, upstream) {
    this.codec = codec;
    this.handshake = handshake;
    this.upstream = upstream;
  }

  /** @param {State} state */
  become(state) {
    this.state = state;
    if (state === 'connected' || state === 'refused') this.handshake = null;
  }

  /** @param {import('../../auth/claims.js').Identity|null} identity @param {Lease|null} lease */
  identify(identity, lease) {
    this.identity = identity;
    this.lease = lease;
  }

  /** @param {import('./expiry.js').Expiry|null} expiry */
  expireBy(expiry) {
    this.expiry = expiry;
  }

  /** @param {1|-1} change a ping is sent, or answered */
  countPings(change) {
    this.pings += change;
  }

  /** @param {string} channel @param {Subscription} subscription */
  subscribed(channel, subscription) {
    this.subscriptions ??= new Map();
    this.subscriptions.set(channel, subscription);
  }

  /** @param {string} channel */
  unsubscribed(channel) {
    this.subscriptions?.delete(channel);
  }

  get bucket() {
    this.#bucket ??= { fullAt: -0.5 };
    return this.#bucket;
  }

  /** The user of its token or hook; '': none. */
  get user() {
    return this.identity?.user ?? '';
  }

  /** @param {Connection} connection @param {Reply} reply */
  send(connection, reply) {
    connection.send(this.codec.encode(reply));
  }
}

/**
 * @param {import('../../auth/claims.js').Identity|null} identity
 * @returns {ChannelIdentity|null} null: not of a token of this door
 */
export function tokenIdentity(identity) {
  return identity !== null && 'subscriptions' in identity
    ? /** @type {ChannelIdentity} */ (identity)
    : null;
}
