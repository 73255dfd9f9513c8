// leader.js: the leader's end of the shared connection: one Connection, and the tabs that use it.
//
// The leader forwards a tab's commands under ids of its own, except joins: the connection joins a
// room once for all tabs (shared-room.js). When it is lost, the tabs join their rooms again.
//
// Each tab holds a lock, which the leader gets when the tab ends. Leaders request it in shared
// mode, because a frozen leader may hold it, too.

import { ClientConnection } from '../connection.js';
import { FanfareError } from '../error.js';
import { RETRY_MS } from '../limits.js';
import { ignoreAbort } from './browser.js';
import { SharedRoom } from './shared-room.js';

/** @import { State, StateDetail } from '../connection.js' */
/** @import { Welcome } from '../wire.js' */
/** @typedef {import('../wire.js').Message} Message */
/** @typedef {import('../wire.js').Command} Command */

/**
 * @typedef {object} FromTab
 * @property {string} tab
 * @property {number} for the term of the leader that the tab follows
 * @property {'attach'|'command'|'ping'|'wake'} type
 * @property {string} [text] a command, as JSON
 */

/**
 * @typedef {object} FromLeader any type may have `state`, `error` and `pushes`
 * @property {number} term @property {'lead'|'pong'|'attached'|'news'|'resigned'} type
 * @property {readonly string[]} [to] tabs; absent: all
 * @property {State} [state] @property {StateDetail} [detail] @property {Welcome} [welcome]
 * @property {{code: import('../error.js').Code, message: string, closeCode?: number}} [error]
 * @property {readonly Message[]} [pushes] pushes and replies of the server
 */

/** @param {string} name of the channel @param {string} tab */
export function lockOfTab(name, tab) {
  return `${name} ${tab}`;
}

/** Implements ConnectionListener for the shared connection. */
export class Leader {
  #name;
  #term;
  #locks;
  #channel;
  #connection;
  #controller = new AbortController();
  /** @type {Map<string, SharedRoom>} */
  #rooms = new Map();
  /** Replies by command id. @type {Map<number, (reply: Message) => void>} */
  #replies = new Map();
  #lastId = 0;
  /** @type {StateDetail} */
  #detail = {};
  /** @type {Welcome|undefined} */
  #welcome;

  /**
   * Connects.
   * @param {object} parts @param {string} parts.name of the channel
   * @param {number} parts.term @param {import('./browser.js').Locks} parts.locks
   * @param {new (name: string) => import('./browser.js').Channel} parts.Channel
   * @param {import('../connection.js').ConnectionParts} parts.parts of the connection
   */
  constructor({ name, term, locks, Channel, parts }) {
    this.#name = name;
    this.#term = term;
    this.#locks = locks;
    this.#channel = new Channel(name);
    this.#channel.addEventListener('message', ({ data }) => this.#receiveFromTab(data));
    this.#connection = new ClientConnection(parts, this);
    this.#post('lead');
  }

  /** Resolves when the connection has closed. */
  resign() {
    this.#controller.abort();
    this.#post('resigned');
    this.#channel.close();
    return this.#connection.close();
  }

  /** @param {FromTab} message */
  #receiveFromTab({ tab, for: term, type, text = '' }) {
    if (type === 'ping') this.#post('pong');
    else if (type === 'wake') this.#connection._wake();
    else if (type === 'attach' && term === this.#term) this.#attach(tab);
    else if (type === 'command' && term === this.#term && this.#connection.state === 'connected')
      this.#command(tab, JSON.parse(text));
  }

  /** @param {string} tab */
  #attach(tab) {
    // A tab that attaches again joins its rooms again, and may have left some meanwhile.
    this.#detach(tab);
    // Now that a tab can hear of errors.
    this.#connection.open();
    const { state } = this.#connection;
    this.#post('attached', { to: [tab], state, detail: this.#detail, welcome: this.#welcome });
    const { signal } = this.#controller;
    this.#locks
      .request(lockOfTab(this.#name, tab), { mode: 'shared', signal }, () => this.#detach(tab))
      .catch(ignoreAbort);
  }

  /** @param {string} tab */
  #detach(tab) {
    for (const room of this.#rooms.values()) room.leave(tab);
  }

  /** @param {string} tab @param {Command & Record<string, any>} command */
  #command(tab, command) {
    const { type, id, room: name } = command;
    const room = this.#rooms.get(name);
    if (type === 'join') this.#roomOf(name).join(tab, command);
    else if (type === 'leave' && room) {
      room.leave(tab);
      this.#push([tab], [{ type: 'left', room: name, id }]);
    } else if (type === 'message' && command.echo === false && room?._isState === false)
      room._publishWithoutEcho(tab, command);
    else this.#sendCommand(command, (reply) => this.#push([tab], [{ ...reply, id }]));
  }

  /** @param {string} name */
  #roomOf(name) {
    let room = this.#rooms.get(name);
    if (!room) {
      room = new SharedRoom(name, {
        self: () => this.#welcome?.userId ?? this.#welcome?.connectionId,
        request: (command, onReply) => this.#sendCommand(command, onReply),
        push: (tabs, pushes) => this.#push(tabs, pushes),
        leave: () => this.#leave(name),
        forget: () => void this.#rooms.delete(name),
      });
      this.#rooms.set(name, room);
    }
    return room;
  }

  /** @param {string} name of a room */
  #leave(name) {
    this.#sendCommand({ type: 'leave', room: name }, (reply) => {
      const { retryable, retryAfterMs = RETRY_MS } = new FanfareError(reply.error, reply);
      const isWanted = () => !this.#rooms.has(name) && this.#connection.state === 'connected';
      if (retryable) setTimeout(() => isWanted() && this.#leave(name), retryAfterMs);
    });
  }

  /** @param {Command} command @param {(reply: Message) => void} [onReply] not if the connection is lost */
  #sendCommand(command, onReply = () => {}) {
    const id = ++this.#lastId;
    this.#replies.set(id, onReply);
    this.#connection.send(JSON.stringify({ ...command, id }));
  }

  /** @param {Message} message */
  _receive(message) {
    const onReply = this.#replies.get(message.id);
    if (onReply) {
      this.#replies.delete(message.id);
      return onReply(message);
    }
    const room = this.#rooms.get(message.room);
    switch (message.type) {
      case 'message':
        return room?._isState ? room._receiveState(message) : room?.receive(message);
      case 'reset':
      case 'synced':
        return room?._receiveState(message);
      // A room with state skips offsets anyway.
      case 'position':
        return room?._isState ? undefined : room?.receive(message);
      case 'presence':
        return room?._receivePresence(message);
      case 'resync':
        return room?.resync(message);
      case 'left':
        return room?._expelled(message);
      case 'joined':
      case 'pong':
      case 'SERVER_SHUTDOWN':
        return;
      default:
        this.#post('news', { pushes: [message] });
    }
  }

  /** @param {State} state @param {StateDetail} detail */
  _entered(state, detail) {
    this.#detail = detail;
    // `_report` follows, with the reason.
    if (state === 'closed') return;
    if (state !== 'connected') this.#welcome = undefined;
    this.#post('news', { state, detail, welcome: this.#welcome });
  }

  /** @param {Welcome} welcome */
  _welcomed(welcome) {
    this.#welcome = welcome;
  }

  _lost() {
    for (const room of this.#rooms.values()) room.end();
    this.#rooms.clear();
    this.#replies.clear();
  }

  /** @param {import('../error.js').FanfareError} error */
  _report({ code, message, closeCode, cause }) {
    const error = { code, message: cause ? `${message}: ${cause}` : message, closeCode };
    if (this.#connection.state !== 'closed') return this.#post('news', { error });
    this.#post('news', { state: 'closed', detail: this.#detail, error });
  }

  /** @param {readonly string[]} to @param {readonly Message[]} pushes */
  #push(to, pushes) {
    if (to.length && pushes.length) this.#post('news', { to, pushes });
  }

  /** @param {FromLeader['type']} type @param {Partial<FromLeader>} [about] */
  #post(type, about = {}) {
    /** @type {FromLeader} */
    const message = { term: this.#term, type, ...about };
    this.#channel.postMessage(message);
  }
}
