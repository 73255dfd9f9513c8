// membership.js: the connection's membership in one room, which its handles (room.js) share.
//
//   join()  join()            leave()  leave()
//     │       │                  │        │
//     join, since ──> joined ──> …      leave
//
// The connection joins for the first handle and leaves after the last. A join begins at the
// earliest position that a handle needs, and each handle drops what it has had. If a later handle
// wants older messages, the connection joins again without leaving: the server replays them.

import { reconnectDelay } from './delay.js';
import { FanfareError } from './error.js';
import { presenceOf, Users } from './presence.js';
import { startOf } from './wire.js';

/** Own messages, published without an echo, that a replay may repeat; older ones are forgotten. */
const MAX_OWN = 1000;

/** @import { Command, Message, Position } from './wire.js' */

/**
 * The reply to a join, with `since` and `last` of that join, and `start`, the offset of the message
 * before the replay.
 * @typedef {Message & {since: Message|undefined, last: number}} Joined
 */

/**
 * A handle as its membership sees it: a Room.
 * @typedef {object} Handle
 * @property {boolean} isJoined
 * @property {{since?: Position, last: number, presence?: unknown}} wish what the next join has to
 *   bring
 * @property {(joined: Joined) => boolean} joined the connection is in the room; false: another join
 *   has to bring messages before these
 * @property {(message: Message) => void} receive
 * @property {(push: Message) => void} resync
 * @property {() => void} skip own messages that come next are not received
 * @property {() => void} lost the connection is not in the room
 * @property {() => void} leave
 * @property {() => void} end the client is closed
 * @property {(event: 'error', error: FanfareError) => boolean} emit
 */

export class Membership {
  #port;
  /** @type {Set<Handle>} */
  #handles = new Set();
  #isJoined = false;
  #isJoining = false;
  /** Did the token not permit the room? */
  #isForbidden = false;
  #attempt = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;
  /** As the connection has joined, as JSON. @type {string|undefined} */
  #presence;
  /** The room's newest message, or the reply that named its position. @type {Message} */
  #newest = {};
  /**
   * Positions of messages that this client does not receive, as text. The server replays them to
   * the next connection.
   * @type {Set<string|undefined>}
   */
  own = new Set();

  /** @param {string} name @param {import('./outgoing.js').Port} port */
  constructor(name, port) {
    this.name = name;
    this.users = new Users(name, port);
    this.#port = port;
  }

  /** @param {Handle} handle */
  add(handle) {
    this.#handles.add(handle);
    if (this.#isJoined) this.#settleSoon();
    else this.enter();
  }

  /** @param {Handle} handle */
  remove(handle) {
    this.#handles.delete(handle);
    this.#settleSoon();
  }

  /** Handles that come and go in one turn, as those of components do, change nothing. */
  #settleSoon() {
    queueMicrotask(() => this.#settle());
  }

  /** Asks the server for what the handles do not have yet. */
  #settle() {
    if (this.#handles.size === 0) {
      this.#port.forget(this);
      this.#leave();
    } else if (this.#isJoined && !this.#isJoining) {
      if (JSON.stringify(this.#wantedPresence) !== this.#presence) return this.#rejoin();
      const since = this.#newest;
      const now = { ...since, recovered: true, start: since.offset, since, last: 0 };
      for (const handle of this.#handles)
        if (!handle.isJoined && !handle.joined(now)) return this.enter();
    }
  }

  #leave() {
    this.lost();
    if (this.#port.link.state === 'connected')
      this.#port.request({ type: 'leave', room: this.name });
  }

  #rejoin() {
    this.#leave();
    this.enter();
  }

  /** There is a connection: joins. */
  enter() {
    if (this.#isJoining || this.#port.link.state !== 'connected') return;
    /** @type {Position|undefined} */
    let since;
    let last = 0;
    for (const { wish } of this.#handles) {
      last = Math.max(last, wish.last);
      const own = wish.since;
      if (!since || (own?.epoch === since.epoch && own.offset < since.offset)) since = own;
    }
    if (since) {
      // Handles that are in the room continue. One that wants older messages is served by itself.
      if (this.#isJoined) since = { ...since, offset: Math.max(0, since.offset - last) };
      else last = 0;
    }
    const presence = this.#wantedPresence;
    this.#presence = JSON.stringify(presence);
    this.#isForbidden = false;
    this.#isJoining = true;
    clearTimeout(this.#timer);
    const command = { type: 'join', room: this.name, since, last: last || undefined, presence };
    this.#port.request(
      command,
      (reply) => {
        if (!this.#isJoining) return;
        const start = reply.recovered ? since?.offset : startOf(reply);
        if (!this.#isJoined) this.users.refresh();
        this.#newest = reply;
        this.#attempt = 0;
        this.#isJoining = false;
        this.#isJoined = true;
        for (const handle of this.#handles) handle.joined({ ...reply, start, since, last });
        this.#settle();
      },
      (error) => {
        if (this.#isJoining) this.#refused(error);
      },
    );
  }

  /** @param {FanfareError} error */
  #refused(error) {
    this.#isJoining = false;
    // The token's `autojoin` was first, and without `since`.
    if (error.code === 'ALREADY_JOINED') return this.#rejoin();
    if (error.retryable) {
      this.lost();
      const delayMs = reconnectDelay({ code: 1006, attempt: this.#attempt++ });
      this.#timer = setTimeout(() => this.enter(), Math.max(delayMs, error.retryAfterMs ?? 0));
      return;
    }
    this.#isForbidden = error.code === 'PERMISSION_DENIED';
    const refused = [...this.#handles].filter(({ isJoined }) => !isJoined);
    this.report(error, refused);
    // The connection is in the room: only what these handles want is refused.
    if (this.#isJoined) for (const handle of refused) handle.leave();
  }

  /** The connection is not in the room any more, or has ended. */
  lost() {
    this.#isJoined = false;
    this.#isJoining = false;
    clearTimeout(this.#timer);
    this.users.stop();
    for (const handle of this.#handles) handle.lost();
  }

  /** The client is closed. */
  end() {
    this.lost();
    const handles = [...this.#handles];
    this.#handles.clear();
    for (const handle of handles) handle.end();
  }

  /** @param {Message} message */
  receive(message) {
    if (!this.#isJoined) return;
    const { epoch, offset } = message;
    if (epoch !== this.#newest.epoch || offset > this.#newest.offset) this.#newest = message;
    for (const handle of this.#handles) handle.receive(message);
  }

  /** Messages are missing here. @param {Message} push */
  resync(push) {
    for (const handle of this.#handles) handle.resync(push);
    this.#newest = push;
  }

  /** The server has taken the connection out of the room. @param {Message} push */
  expelled({ reason }) {
    this.lost();
    this.#isForbidden = reason !== 'removed';
    const message = `taken out: ${reason}`;
    this.report(new FanfareError('PERMISSION_DENIED', { message, room: this.name }));
  }

  /** The connection has a new token: joins if the one before did not permit it. */
  permitted() {
    if (this.#isForbidden) this.enter();
  }

  /** This client has published without an echo. @param {Partial<Position>} position */
  published({ epoch, offset }) {
    if (this.own.add(`${epoch} ${offset}`).size > MAX_OWN)
      this.own.delete(this.own.values().next().value);
    for (const handle of this.#handles) handle.skip();
  }

  /** @param {Command} command of this room @returns {Promise<Message>} */
  ask(command) {
    return this.#port.ask({ ...command, room: this.name });
  }

  /** @param {FanfareError} error @param {Iterable<Pick<Handle, 'emit'>>} [handles] */
  report(error, handles = this.#handles) {
    let isHeard = false;
    for (const handle of handles) isHeard = handle.emit('error', error) || isHeard;
    if (!isHeard) this.#port.report(error);
  }

  get #wantedPresence() {
    return presenceOf([...this.#handles].map(({ wish }) => wish.presence));
  }
}
