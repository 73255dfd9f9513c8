// fanfare.js: the client: one connection, its rooms, and the commands that wait for replies.

import { Connection } from './connection.js';
import { Emitter } from './emitter.js';
import { errorOf, FanfareError } from './error.js';
import { Membership } from './membership.js';
import { Publisher } from './outgoing.js';
import { followPage } from './page.js';
import { Room } from './room.js';

/** @import { Command, Position, Welcome } from './wire.js' */

/** @typedef {import('./connection.js').State} State */
/** @typedef {import('./connection.js').StateDetail} StateDetail */
/** @typedef {import('./outgoing.js').Sendable} Sendable */
/** @typedef {import('./wire.js').Message} Message */

/**
 * @typedef {object} Options
 * @property {import('./token.js').TokenOption} [token] a token, or a function that gets one. The
 *   function is called again when the token ends
 * @property {'reject'|'queue'} [offline] what happens to messages published without a connection;
 *   `reject` by default
 * @property {number} [maxPending] messages that may wait for a connection or a reply; 1,000 by
 *   default
 * @property {number} [firstDelayMs] upper end of the first reconnect delay; 1,000 by default
 * @property {number} [maxDelayMs] upper end of later ones; 30,000 by default
 * @property {import('./connection.js').SocketClass} [WebSocket] in place of the global one
 */

/**
 * `state`: of the connection. `welcome`: connection id, user and limits. `broadcast`: a message to
 * all connections. `degraded`: the broker is away (true) or back (false). `error`: an error of no
 * other place; without a listener it goes to the console.
 * @typedef {{
 *   state: [state: State, detail: StateDetail],
 *   welcome: [welcome: Welcome],
 *   broadcast: [payload: any],
 *   degraded: [degraded: boolean],
 *   error: [error: FanfareError],
 * }} Events
 */

/** @extends {Emitter<Events>} */
export class Fanfare extends Emitter {
  #connection;
  #publisher;
  /** @type {import('./outgoing.js').Port} */
  #port;
  /** @type {Map<string, Membership>} */
  #rooms = new Map();
  /** Commands that wait for a reply, by id. @type {Map<number, Sendable>} */
  #replies = new Map();
  #lastId = 0;
  #stopFollowing = () => {};
  /** Of `connect`, while there is no connection. @type {Promise<void>|undefined} */
  #opening;
  /** @type {(error?: FanfareError) => void} */
  #opened = () => {};

  /**
   * Does not connect yet: `join`, `publish` and `connect` do.
   * @param {string} url `wss://chat.example`; in a page it may be relative
   * @param {Options} [options]
   * @param {import('./connection.js').LinkClass} [Link] for the entries of this library
   */
  constructor(url, options = {}, Link = Connection) {
    super();
    const { offline = 'reject', maxPending = 1000, WebSocket: Socket, ...rest } = options;
    const page = /** @type {{location?: {href: string}, WebSocket: any}} */ (globalThis);
    this.#connection = new Link({
      ...rest,
      url: new URL(url, page.location?.href).href.replace(/^http/, 'ws'),
      Socket: Socket ?? page.WebSocket,
      listener: {
        onState: (state, detail) => this.#entered(state, detail),
        onWelcome: (welcome) => this.#welcomed(welcome),
        onMessage: (message) => this.#receive(message),
        onLost: () => this.#lost(),
        onError: (error) => this.#report(error),
      },
    });
    this.#port = {
      link: this.#connection,
      nextId: () => ++this.#lastId,
      transmit: (command) => this.#transmit(command),
      request: (command, onReply = () => {}, onError = () => {}) => {
        const id = ++this.#lastId;
        const text = JSON.stringify({ ...command, id });
        this.#transmit({ id, room: command.room, text, onReply, onError });
      },
      ask: (command) => this.request(command),
      // After close() a new one may have its name.
      forget: (room) => {
        if (this.#rooms.get(room.name) === room) this.#rooms.delete(room.name);
      },
      report: (error) => this.#report(error),
    };
    this.#publisher = new Publisher(this.#port, offline, maxPending);
  }

  /** @returns {State} */
  get state() {
    return this.#connection.state;
  }

  /**
   * Connects, also after `close` and after the server has refused the connection.
   * @returns {Promise<void>} when there is a connection. Rejects when the client is closed, or the
   *   server refuses it for good; unlike other promises, it need not be awaited
   */
  connect() {
    this.#stopFollowing();
    this.#stopFollowing = followPage({
      wake: () => this.#connection.wake(),
      sleep: () => this.#connection.sleep(),
    });
    this.#connection.open();
    if (this.state === 'connected') return Promise.resolve();
    this.#opening ??= new Promise((resolve, reject) => {
      this.#opened = (error) => (error ? reject(error) : resolve());
    });
    // Its error is an event, too.
    this.#opening.catch(() => {});
    return this.#opening;
  }

  /**
   * @template [Payload=any]
   * @param {string} name @param {import('./room.js').JoinOptions} [options]
   * @returns {Room<Payload>} a handle of its own: the connection leaves the room when its last handle
   *   has left
   */
  join(name, options = {}) {
    let membership = this.#rooms.get(name);
    if (membership === undefined) {
      membership = new Membership(name, this.#port);
      this.#rooms.set(name, membership);
    }
    const room = new Room(options, membership, this.#publisher);
    membership.add(room);
    this.#wakeUp();
    return room;
  }

  /**
   * Publishes to a room without joining it.
   * @param {string} room @param {unknown} payload
   * @param {import('./outgoing.js').PublishOptions} [options] @returns {Promise<Partial<Position>>}
   */
  publish(room, payload, options) {
    this.#wakeUp();
    return this.#publisher.publish(room, payload, options);
  }

  /**
   * Sends any command of the protocol.
   * @param {Command} command
   * @returns {Promise<Message>} the reply; rejects with a FanfareError
   */
  async request(command) {
    if (this.state !== 'connected') throw new FanfareError('OFFLINE');
    return new Promise((resolve, reject) => this.#port.request(command, resolve, reject));
  }

  /** Leaves all rooms and closes the connection. @returns {Promise<void>} */
  async close() {
    this.#stopFollowing();
    const closed = this.#connection.close();
    const rooms = [...this.#rooms.values()];
    this.#rooms.clear();
    for (const room of rooms) room.end();
    this.#settle(new FanfareError('CLOSED'));
    await closed;
  }

  /** The attempt to connect has ended. @param {FanfareError} [error] */
  #settle(error) {
    this.#opened(error);
    this.#opening = undefined;
  }

  /** @param {State} state @param {StateDetail} detail */
  #entered(state, detail) {
    // In every other state no connection is being made.
    if (!state.startsWith('connect')) this.#publisher.disconnected(state === 'closed');
    this.emit('state', state, detail);
  }

  #wakeUp() {
    if (this.state === 'idle') this.connect();
  }

  /** @param {Welcome} welcome */
  #welcomed(welcome) {
    for (const room of this.#rooms.values()) room.enter();
    this.#publisher.connected(welcome.limits?.idempotencyMs);
    this.#settle();
    this.emit('welcome', welcome);
  }

  #lost() {
    for (const room of this.#rooms.values()) room.lost();
    const waiting = [...this.#replies.values()];
    this.#replies.clear();
    for (const { room, onError } of waiting) onError(new FanfareError('OUTCOME_UNKNOWN', { room }));
  }

  /** @param {Sendable} command */
  #transmit(command) {
    this.#replies.set(command.id, command);
    this.#connection.send(command.text);
  }

  /** @param {Message} message */
  #receive(message) {
    const command = this.#replies.get(message.id);
    if (command !== undefined) {
      this.#replies.delete(message.id);
      if (message.type === 'error') command.onError(errorOf(message, command.room));
      else command.onReply(message);
      return;
    }
    const room = this.#rooms.get(message.room);
    switch (message.type) {
      case 'message':
        return room?.receive(message);
      case 'presence':
        return room?.users.receive(message);
      case 'resync':
        return room?.resync(message);
      case 'left':
        return room?.expelled(message);
      case 'broadcast':
        return void this.emit('broadcast', message.payload);
      case 'degraded':
        this.emit('degraded', message.degraded);
        if (!message.degraded) for (const { users } of this.#rooms.values()) users.refresh();
        return;
      case 'authenticated':
        for (const room of this.#rooms.values()) room.permitted();
        return;
      case 'error':
        return this.#report(errorOf(message));
    }
  }

  /** @param {FanfareError} error */
  #report(error) {
    if (error.code === 'REFUSED') this.#settle(error);
    if (!this.emit('error', error)) console.error(error);
  }
}
