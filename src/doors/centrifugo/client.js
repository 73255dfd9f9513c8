// client.js: a connection's state in this door.

/** @import { Lease } from '../../auth/session.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { Framing } from './codec/framing.js' */
/** @import { Codec, Command, Reply } from './codec/messages.js' */
/** @import { ChannelIdentity } from './codec/tokens.js' */

/**
 * May throw a DoorError, which becomes the reply.
 * @typedef {(connection: Connection, client: CentrifugoClient, command: Command) => void} Handler
 */

/**
 * `new` until its `connect`, `connecting` until the answer, `refused` if that is an error.
 * @typedef {'new'|'connecting'|'connected'|'refused'} State
 */

/** Codec and framing, shared by all connections of a kind. @typedef {{codec: Codec, framing: Framing}} Form */

/** Where the client of a stream sends its commands. @typedef {{session: string, node: string}} Upstream */

/**
 * What permits a subscription: a right, its own token, the connection's token, which names the
 * channel, or the backend. The server makes those of the last two kinds, so the client cannot
 * repeat them. A new token of the connection decides anew about the first and the third kind.
 * @typedef {'right'|'token'|'connection'|'backend'} Source
 */

/**
 * A subscription, or the connection itself (channel ''), ends in this second unless a new token
 * arrives.
 * @typedef {{connection: Connection, channel: string, second: number}} Expiry
 */

/**
 * A subscription, in addition to the membership in the room.
 * @typedef {object} Subscription
 * @property {Source} by
 * @property {Expiry|null} expiry null: it ends with the connection
 */

/** @param {Source} by @returns {Readonly<Subscription>} */
const endless = (by) => Object.freeze({ by, expiry: null });
/** Most subscriptions end with their connection, and are one of these. */
const ENDLESS = Object.freeze({
  right: endless('right'),
  token: endless('token'),
  connection: endless('connection'),
  backend: endless('backend'),
});

/** @param {Source} by @param {Subscription['expiry']} expiry @returns {Readonly<Subscription>} */
export function subscriptionOf(by, expiry) {
  return expiry === null ? ENDLESS[by] : { by, expiry };
}

// A server has very many clients. Most have one subscription, which needs no Map.
export class CentrifugoClient {
  /** @type {State} */
  state = 'new';
  /** Pings without an answer. A client that was suspended answers several at once. */
  pings = 0;
  /** The identity of the token or hook. @type {import('../../auth/claims.js').Identity|null} */
  identity = null;
  /** @type {Lease|null} */
  lease = null;
  /** The expiry of a connection without a user. @type {Expiry|null} */
  expiry = null;
  /** Bucket for CommandRate. A double, so that V8 updates it in place. */
  fullAt = -0.5;
  /** Of `#first`. */
  #channel = '';
  /** One of its subscriptions. @type {Readonly<Subscription>|null} */
  #first = null;
  /** The others, by channel. @type {Map<string, Readonly<Subscription>>|null} */
  #others = null;

  /**
   * @param {Form} form
   * @param {{headers: import('node:http').IncomingHttpHeaders, url: string, address: string}|null}
   *   handshake until it is connected
   * @param {Upstream|null} upstream null: it sends commands itself
   */
  constructor(form, handshake, upstream) {
    this.form = form;
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

  /** @param {Expiry|null} expiry */
  expireBy(expiry) {
    this.expiry = expiry;
  }

  /** @param {1|-1} change a ping is sent, or answered */
  countPings(change) {
    this.pings += change;
  }

  /** @param {string} channel @returns {Readonly<Subscription>|null} */
  subscriptionTo(channel) {
    if (this.#first !== null && this.#channel === channel) return this.#first;
    return this.#others?.get(channel) ?? null;
  }

  /** Returns a copy. @returns {[channel: string, Readonly<Subscription>][]} */
  listSubscriptions() {
    const others = [...(this.#others ?? [])];
    return this.#first === null ? others : [[this.#channel, this.#first], ...others];
  }

  /** @param {string} channel not subscribed to @param {Readonly<Subscription>} subscription */
  subscribed(channel, subscription) {
    if (this.#first === null) {
      this.#channel = channel;
      this.#first = subscription;
    } else {
      this.#others ??= new Map();
      this.#others.set(channel, subscription);
    }
  }

  /** @param {string} channel */
  unsubscribed(channel) {
    if (this.#first !== null && this.#channel === channel) {
      this.#channel = '';
      this.#first = null;
    } else if (this.#others?.delete(channel) && this.#others.size === 0) this.#others = null;
  }

  /** '': none. */
  get user() {
    return this.identity?.user ?? '';
  }

  get codec() {
    return this.form.codec;
  }

  /** @param {Connection} connection @param {Reply} reply */
  send(connection, reply) {
    connection.send(this.codec.encode(reply));
  }

  /** Sends several messages in one write. @param {Connection} connection @param {Buffer[]} messages */
  sendAll(connection, messages) {
    if (!connection.isOpen) return;
    try {
      connection.transport.write(this.form.framing.frame(messages));
    } catch (error) {
      connection.fail(error);
    }
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
