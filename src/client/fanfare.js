// fanfare.js: the client: one connection, its rooms, and the commands that wait for replies.

import { checkClient, checkRoom, tooLargeText } from './advice.js';
import { ClientConnection } from './connection.js';
import { Emitter } from './emitter.js';
import { FanfareError } from './error.js';
import { RETRY_MS } from './limits.js';
import { Membership } from './membership.js';
import { OutgoingMessages } from './outgoing.js';
import { followPage } from './page.js';
import { promised } from './promised.js';
import { Room } from './room.js';

/** @import { OnReply, PublishOptions, Sendable } from './client.js' */
/** @import { Command, Position, Welcome } from './wire.js' */
/** @typedef {import('./wire.js').Message} Message */

/** @typedef {import('./connection.js').State} State */
/** @typedef {import('./connection.js').StateDetail} StateDetail */

/**
 * @typedef {object} Options
 * @property {import('./token.js').TokenOption} [token] a token, or a function that gets one. The
 *   function is called again before the token expires, and when the server has refused it
 * @property {'reject'|'queue'} [offline] what happens to messages published without a connection;
 *   default `reject`
 * @property {number} [maxPending] messages that may wait for a connection or a reply; default 1,000
 * @property {number} [firstDelayMs] upper limit of the first reconnect delay; default 1,000
 * @property {number} [maxDelayMs] upper limit of later delays; default 30,000
 * @property {import('./connection.js').SocketClass} [WebSocket] instead of the global one
 */

/**
 * `state`: the connection's state has changed. `welcome`: connection id, user and limits.
 * `broadcast`: a message to all connections. `degraded`: the broker is unavailable (true) or back
 * (false). `error`: an error that no promise or room reports; without a listener it goes to the
 * console.
 * @typedef {{
 *   state: [state: State, detail: StateDetail],
 *   welcome: [welcome: Welcome],
 *   broadcast: [payload: any],
 *   degraded: [degraded: boolean],
 *   error: [error: FanfareError],
 * }} Events
 */

/** Implements Client (client.js) and ConnectionListener. @extends {Emitter<Events>} */
export class Fanfare extends Emitter {
  #connection;
  #publisher;
  /** @type {Map<string, Membership>} */
  #rooms = new Map();
  /** Commands that wait for a reply, by id. @type {Map<number, [string|undefined, OnReply]>} */
  #replies = new Map();
  #lastId = 0;
  /** The size of a command. Nothing is longer than `undefined`. @type {any} */
  #maxBytes;
  /** @type {AbortController|undefined} */
  #following;
  /** The result of `connect`, until it settles. @type {Promise<void>|undefined} */
  #opening;
  /** @type {((error?: FanfareError) => void)|undefined} */
  #opened;

  /**
   * Does not connect yet: `join`, `publish` and `connect` do.
   * @param {string} url `wss://chat.example`; in a page it may be relative
   * @param {Options} [options]
   * @param {import('./connection.js').LinkClass} [Link] internal
   */
  constructor(url, options = {}, Link = ClientConnection) {
    super();
    if (!(/** @type {any} */ (globalThis).FANFARE_BRIEF)) checkClient(url, options);
    const base = /** @type {any} */ (globalThis).location?.href;
    // Only pages have relative URLs. The URL of older React Natives appends a slash to paths.
    const href = base ? new URL(url, base).href : `${url}`;
    // A WebSocket URL must not have a fragment.
    const [whole] = href.replace(/^http/, 'ws').split('#');
    this.#connection = new Link({ ...options, url: whole }, this);
    this.#publisher = new OutgoingMessages(this, options);
  }

  /** @returns {State} */
  get state() {
    return this.#connection.state;
  }

  /**
   * Connects, also after `close` and after the server refused the connection.
   * @returns {Promise<void>} resolves when the client is connected. Rejects when it is closed or
   *   the server refuses it for good. You need not handle the rejection: it is an event, too
   */
  connect() {
    this.#following?.abort();
    this.#following = followPage(this.#connection);
    const opening = (this.#opening ??= promised((opened) => {
      this.#opened = opened;
    }));
    opening.catch(() => {});
    this.#connection.open();
    if (this.state === 'connected') this.#settleConnect();
    return opening;
  }

  /**
   * Joins a room. Returns a new handle each time. When the last one leaves, the connection leaves
   * the room.
   * @template {string} Name @overload @param {Name} name
   * @param {import('./room.js').JoinOptions} [options]
   * @returns {Room<import('./rooms.js').RoomPayload<Name>>}
   */
  /**
   * @template Payload @overload @param {string} name
   * @param {import('./room.js').JoinOptions} [options] @returns {Room<Payload>}
   */
  /** @param {string} name @param {import('./room.js').JoinOptions} [options] */
  join(name, options = {}) {
    if (!(/** @type {any} */ (globalThis).FANFARE_BRIEF)) checkRoom('join', name);
    const membership = this.#rooms.get(name) ?? new Membership(name, this);
    this.#rooms.set(name, membership);
    const room = new Room(options, membership, this);
    membership._add(room);
    this.#wakeUp();
    return room;
  }

  /**
   * Publishes to a room without joining it.
   * @template {string} Name
   * @param {Name} room @param {import('./rooms.js').RoomPayload<Name>|null} payload
   * @param {PublishOptions} [options] @returns {Promise<Partial<Position>>}
   */
  publish(room, payload, options) {
    this.#wakeUp();
    return this.#publisher.publish(room, payload, options);
  }

  /**
   * Sends any command of the protocol.
   * @param {Command} command @returns {Promise<Message>} the reply; rejects with a FanfareError
   */
  request(command) {
    return promised((onReply) => this._request({ ...command, id: undefined }, onReply));
  }

  /**
   * Closes the connection until `wake` or `connect`, as for an app in the background. Rooms keep
   * their handles and positions, so they recover what they missed.
   */
  sleep() {
    if (this.state !== 'closed') this.#connection._sleep();
  }

  /** Ends a sleep. Otherwise checks the connection at once, or makes the next attempt soon. */
  wake() {
    this.#connection._wake();
  }

  /** Leaves all rooms and closes the connection. @returns {Promise<void>} */
  close() {
    // First, because a listener may connect again.
    this.#settleConnect(new FanfareError('CLOSED'));
    const closed = this.#connection.close();
    for (const room of [...this.#rooms.values()]) room._end();
    return closed;
  }

  /** Settles the promise of `connect`. @param {FanfareError} [error] */
  #settleConnect(error) {
    this.#opened?.(error);
    this.#opening = undefined;
  }

  #wakeUp() {
    if (this.state === 'idle') this.connect();
  }

  /** @param {string} [room] @returns {FanfareError} why nothing can be sent */
  _offline(room) {
    return new FanfareError(this.state === 'closed' ? 'CLOSED' : 'OFFLINE', { room });
  }

  /** @param {Sendable} command @param {OnReply} onReply @param {string} [text] as JSON */
  _request(command, onReply, text = JSON.stringify(command)) {
    const { room } = command;
    if (this.state !== 'connected') return onReply(this._offline(room));
    const id = ++this.#lastId;
    // First, because the server may not read a message to its end before it refuses it.
    const whole = `{"id":${id},${text.slice(1)}`;
    // The server would close the connection. Not every React Native has a TextEncoder.
    const bytes = encodeURIComponent(whole).replace(/%../g, '1').length;
    if (bytes > this.#maxBytes)
      return onReply(
        new FanfareError('MESSAGE_TOO_LARGE', {
          room,
          message: /** @type {any} */ (globalThis).FANFARE_BRIEF
            ? 'too large'
            : tooLargeText(bytes, this.#maxBytes),
        }),
      );
    this.#replies.set(id, [room, onReply]);
    this.#connection.send(whole);
  }

  /** @param {string} room whose last handle has left */
  _forget(room) {
    this.#rooms.delete(room);
    this._leave(room);
  }

  /** @param {string} room */
  _leave(room) {
    this._request({ type: 'leave', room }, (/** @type {any} */ error) => {
      // There is nothing to leave if the connection is gone.
      if (error?.retryable && this.state === 'connected')
        setTimeout(
          () => this.#rooms.has(room) || this._leave(room),
          error.retryAfterMs ?? RETRY_MS,
        ).unref?.();
    });
  }

  /** @param {FanfareError} error */
  _report(error) {
    // A listener may be connecting again.
    if (error.code === 'REFUSED' && this.state === 'closed') {
      this.#settleConnect(error);
      // Who reads a room would wait for ever.
      for (const room of this.#rooms.values()) room._emit('_refused', error);
    }
    if (!this.emit('error', error)) console.error(error);
  }

  /** @param {State} state @param {StateDetail} detail */
  _entered(state, detail) {
    if (state === 'closed') this.#following?.abort();
    // No connection is being made in any other state.
    if (!state.startsWith('connect')) this.#publisher._disconnected();
    this.emit('state', state, detail);
  }

  /** @param {Welcome} welcome */
  _welcomed(welcome) {
    const { maxMessageBytes, idempotencyMs } = welcome.limits ?? {};
    this.#maxBytes = maxMessageBytes;
    for (const room of this.#rooms.values()) room._enter();
    this.#publisher._connected(idempotencyMs);
    this.#settleConnect();
    this.emit('welcome', welcome);
  }

  _lost() {
    for (const room of this.#rooms.values()) room._lost();
    const replies = this.#replies;
    this.#replies = new Map();
    for (const [room, onReply] of replies.values())
      onReply(new FanfareError('OUTCOME_UNKNOWN', { room }));
  }

  /** @param {Message} message */
  _receive(message) {
    const { type, id } = message;
    const [room, onReply] = this.#replies.get(id) ?? [];
    const error = type === 'error' && new FanfareError(message.error, { ...message, room });
    if (onReply) {
      this.#replies.delete(id);
      onReply(error, message);
    } else if (error) this._report(error);
    else if (type === 'broadcast') this.emit(type, message.payload);
    else if (message.room) this.#rooms.get(message.room)?._receive(message);
    else {
      if (type === 'degraded') this.emit(type, message.degraded);
      for (const room of this.#rooms.values()) room._receive(message);
    }
  }
}
