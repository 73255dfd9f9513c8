// membership.js: the connection's membership in one room, which its handles (room.js) share.
//   join()  join()            leave()  leave()
//     │       │                  │        │
//     join, since ──> joined ──> …      leave
//
// The connection joins for the first handle and leaves after the last. A join begins at the
// earliest position that a handle needs, and each handle drops what it already delivered. If a
// later handle wants older messages, the connection joins again without leaving, and the server
// replays them. All handles of a room with state share its map (state.js).

import { reconnectDelay } from './delay.js';
import { FanfareError } from './error.js';
import { MAX_OWN } from './limits.js';
import { presenceOf, Users } from './presence.js';
import { State } from './state.js';

/** @import { Client } from './client.js' */
/** @import { Message, Position } from './wire.js' */

/**
 * @typedef {object} JoinOptions
 * @property {Position} [since] of the last message that the application has processed
 * @property {number} [last] begins with this many of the newest messages; ignored with `since`
 * @property {number} [lastSeconds] begins with the messages of this time, at most `last`; ignored
 *   with `since`
 * @property {{user: string, info?: unknown}|false} [presence] false: watch without being listed
 * @property {(position: Position|undefined) => unknown} [recoverFailed] loads the application's
 *   state. Messages after `position` follow. If it fails, it is called again
 */

/**
 * @typedef {object} Handle a Room, as its membership sees it
 * @property {boolean} isJoined @property {import('./presence.js').Presence} presence
 * @property {Position|undefined} _position the next join must bring the messages after it
 * @property {JoinOptions|undefined} _latest what its first join must bring
 * @property {JoinOptions} _options
 * @property {(
 *   newest: Message,
 *   recovered: boolean,
 *   start: number,
 *   asked: number,
 *   recent?: JoinOptions,
 * ) => boolean} _joined the connection is in the room. Gets the newest message, whether messages
 *   were recovered, the offset before the replay, the offset that the join asked for, and the
 *   options whose `lastSeconds` it used. Returns false if a join must bring older messages first
 * @property {(push: Message) => void} _receive a message, or `resync`
 * @property {() => void} _moveTo moves past own messages, which do not arrive
 * @property {() => void} _lost the connection is not in the room
 * @property {(error: FanfareError) => boolean} _refused does the application hear of it?
 * @property {() => void} leave
 * @property {(event: '_refused'|'change'|'reset'|'synced', ...args: any[]) => boolean} emit
 */

export class Membership {
  #client;
  /** @type {Set<Handle>} */
  #handles = new Set();
  #isJoined = false;
  #isJoining = false;
  #isSettling = false;
  /** Has the server refused the room for lack of rights? */
  #isForbidden = false;
  #attempt = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;
  /** Sent with the last join, as JSON. @type {string|undefined} */
  #presence;
  /** The newest message, or the reply that named its position. @type {Message} */
  #newest = {};
  /** Own messages without an echo, to be dropped from replays. @type {Set<string|undefined>} */
  _own = new Set();
  /** Only in a room with state. @type {State|undefined} */
  _state;

  /** @param {string} name @param {Client} client */
  constructor(name, client) {
    this.name = name;
    this._users = new Users(name, client, this.#handles);
    this.#client = client;
  }

  /** @param {Handle} handle */
  _add(handle) {
    this.#handles.add(handle);
    if (this.#isJoined) this.#settleSoon();
    else this._enter();
  }

  /** @param {Handle} handle */
  _remove(handle) {
    this.#handles.delete(handle);
    this.#settleSoon();
  }

  /** Handles that come and go within one turn, as in UI components, cost no request. */
  #settleSoon() {
    if (this.#isSettling) return;
    this.#isSettling = true;
    queueMicrotask(() => this.#reconcile());
  }

  /** Leaves, or joins again if the handles want something else. */
  #reconcile() {
    this.#isSettling = false;
    if (!this.#handles.size) {
      this._lost();
      this.#client._forget(this.name);
    } else if (this.#isJoined && !this.#isJoining) {
      if (JSON.stringify(this.#wantedPresence) !== this.#presence) return this.#rejoin();
      const { offset } = this.#newest;
      for (const handle of this.#handles)
        if (
          this.#isJoined &&
          !handle.isJoined &&
          !handle._joined(this.#newest, true, offset, offset)
        )
          return this._enter();
    }
  }

  #rejoin() {
    this._lost();
    this.#client._leave(this.name);
    this._enter();
  }

  _enter() {
    if (this.#isJoining || this.#client.state !== 'connected') return;
    let since = /** @type {Position|undefined} */ (undefined);
    let last = 0;
    let recent = /** @type {JoinOptions|undefined} */ (undefined);
    for (const { _position: own, _latest } of this.#handles) {
      last = Math.max(last, _latest?.last ?? 0);
      if (_latest?.lastSeconds) recent = _latest;
      if (!since || (own?.epoch === since.epoch && own.offset < since.offset)) since = own;
    }
    if (this._state) since = this._state._position;
    // After a reconnect, handles continue first. What else a new handle wants needs another join.
    if (since && !this.#isJoined) {
      last = 0;
      recent = undefined;
    } else if (recent) {
      // Only the server knows where this time begins.
      last = recent.last ?? 0;
      since = undefined;
    } else if (since) since = { ...since, offset: Math.max(0, since.offset - last) };
    const presence = this.#wantedPresence;
    this.#presence = JSON.stringify(presence);
    this.#isJoining = true;
    clearTimeout(this.#timer);
    this.#client._request(
      {
        type: 'join',
        room: this.name,
        since,
        last: last || undefined,
        lastSeconds: recent?.lastSeconds,
        presence,
      },
      (error, reply) => {
        if (!this.#isJoining) return;
        this.#isJoining = false;
        if (error) return this.#refused(error);
        if (!this.#isJoined) this._users._refresh();
        this.#isJoined = true;
        this.#attempt = 0;
        this.#newest = reply;
        const { epoch, offset, first = offset + 1, recovered = false, state } = reply;
        const map = this._state;
        this._state = state && (map ?? new State());
        // Recovered from the application's `since`, but there is no map to apply changes to.
        if (recovered && map !== this._state) return this.#rejoin();
        this.#follow(reply);
        const from = /** @type {number} */ (since?.offset);
        const start = recovered ? from : first - 1;
        const asked = recent ? offset : since?.epoch === epoch ? from : offset - last;
        let isBehind;
        // The set is not copied, because a listener may end other handles or close the client.
        for (const handle of this.#handles)
          if (this.#isJoined && !handle._joined(reply, recovered, start, asked, recent))
            isBehind ||= handle.isJoined;
        if (!isBehind) return this.#settleSoon();
        // A handle that is in the room would miss messages before the replay.
        this._lost();
        this._enter();
      },
    );
  }

  /** @param {FanfareError} error */
  #refused(error) {
    // The token's `autojoin` has joined, which has no `since`.
    if (error.code === 'ALREADY_JOINED') return this.#rejoin();
    if (error.retryable) {
      this._lost();
      this.#timer = setTimeout(
        () => this._enter(),
        Math.max(reconnectDelay(this.#attempt++), error.retryAfterMs ?? 0),
      );
      return;
    }
    this.#isForbidden = error.code === 'PERMISSION_DENIED';
    const refused = [...this.#handles].filter(({ isJoined }) => !isJoined);
    this.#reportError(error, refused);
    // The connection is in the room: only what these handles want is refused.
    if (this.#isJoined) for (const handle of refused) handle.leave();
  }

  /** The connection has left the room, or has ended. */
  _lost() {
    this.#isJoined = this.#isJoining = false;
    clearTimeout(this.#timer);
    this._users._stop();
    for (const handle of this.#handles) handle._lost();
  }

  _end() {
    // A copy, because a listener may join again.
    for (const handle of [...this.#handles]) handle.leave();
  }

  /** @param {Message} message */
  _receive(message) {
    const { type, epoch, offset, reason } = message;
    if (type === 'left') {
      this._lost();
      this.#isForbidden = reason !== 'removed';
      this.#reportError(
        new FanfareError('PERMISSION_DENIED', { message: reason, room: this.name }),
      );
    } else if (type === 'authenticated') {
      // The new token may permit the room.
      if (this.#isForbidden && !this.#isJoined) this._enter();
    } else if (!this.#isJoined) return;
    else if (type === 'presence') this._users._receive(message);
    else if (type === 'degraded') {
      if (!message.degraded) this._users._refresh();
    } else if (this._state) this.#follow(message);
    // `position`: the message there is for others.
    else if (type === 'message' || type === 'resync' || type === 'position') {
      if (type === 'resync' || epoch !== this.#newest.epoch || offset > this.#newest.offset)
        this.#newest = message;
      for (const handle of this.#handles) handle._receive(message);
    }
  }

  /** @param {Message} message in a room with state */
  #follow(message) {
    const event = this._state?._receive(message);
    if (event) this._emit(...event);
  }

  /** @param {Parameters<Handle['emit']>} event */
  _emit(...event) {
    for (const handle of this.#handles) handle.emit(...event);
  }

  /** @param {Partial<Position>} position of an own message without an echo */
  _published({ epoch, offset }) {
    const [oldest] = this._own.add(`${epoch} ${offset}`);
    if (this._own.size > MAX_OWN) this._own.delete(oldest);
    for (const handle of this.#handles) handle._moveTo();
  }

  /** @param {FanfareError} error @param {Iterable<Handle>} [handles] */
  #reportError(error, handles = this.#handles) {
    const heard = [...handles].filter((handle) => handle._refused(error));
    if (!heard.length) this.#client._report(error);
  }

  get #wantedPresence() {
    return presenceOf([...this.#handles].map(({ _options }) => _options.presence));
  }
}
