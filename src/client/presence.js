// presence.js: the users of one room, as a view that follows the events of the server.
//
// Events are not replayed. So the view asks for the list after each join and after each outage of
// the broker. Events that arrive while the pages of the list arrive are applied again at the end.

import { Emitter } from './emitter.js';
import { errorOf } from './error.js';

const RETRY_MS = 5000;

/** A user of a room. @typedef {{user: string, info?: any}} Member */

/** @extends {Emitter<{change: [members: Member[], count: number]}>} */
export class Presence extends Emitter {
  #room;
  #port;
  /** Has the application asked for the view? */
  #isWatched = false;
  /** @type {Map<string, Member>} */
  #members = new Map();
  #count = 0;
  /** Numbers the lists, so that a late page of an older one is noticed. */
  #run = 0;
  /** Events while a list arrives; null: none does. @type {Map<string, Member|null>|null} */
  #changes = null;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;

  /** @param {string} room @param {import('./outgoing.js').Port} port */
  constructor(room, port) {
    super();
    this.#room = room;
    this.#port = port;
  }

  /** The users. Empty before the first `change`, and if the room is too large for a list. */
  get members() {
    return [...this.#members.values()];
  }

  /** Number of users; also right if the room is too large for a list. */
  get count() {
    return this.#count;
  }

  /**
   * The first listener starts the view.
   * @override @type {Emitter<{change: [members: Member[], count: number]}>['on']}
   */
  on(event, listener) {
    const stop = super.on(event, listener);
    if (!this.#isWatched) {
      this.#isWatched = true;
      this.refresh();
    }
    return stop;
  }

  /** The connection is a member of the room: asks for the list. */
  refresh() {
    this.stop();
    if (!this.#isWatched || !this.#port.isConnected()) return;
    this.#changes = new Map();
    this.#ask(this.#run, new Map(), undefined);
  }

  /** The connection has left the room. */
  stop() {
    this.#run++;
    this.#changes = null;
    clearTimeout(this.#timer);
  }

  /** @param {import('./wire.js').Message} push */
  receive({ event, member }) {
    if (!this.#isWatched) return;
    const change = event === 'join' ? member : null;
    this.#changes?.set(member.user, change);
    const { size } = this.#members;
    this.#apply(member.user, change);
    this.#count += this.#members.size - size;
    this.#changed();
  }

  /** @param {number} run @param {Map<string, Member>} found @param {string|undefined} after */
  #ask(run, found, after) {
    this.#port.request({ type: 'presence', room: this.#room, after }, (reply) => {
      if (run !== this.#run || reply === null) return;
      if (reply.type === 'error') return this.#failed(errorOf(reply, this.#room));
      const { members = [], count, more } = reply;
      for (const member of members) found.set(member.user, member);
      if (more) return this.#ask(run, found, members.at(-1).user);
      this.#members = found;
      for (const [user, change] of this.#changes ?? []) this.#apply(user, change);
      this.#changes = null;
      this.#count = count;
      this.#changed();
    });
  }

  /** @param {import('./error.js').FanfareError} error */
  #failed(error) {
    // NOT_IN_ROOM: the answer to the join will ask again.
    if (error.retryable)
      this.#timer = setTimeout(() => this.refresh(), error.retryAfterMs ?? RETRY_MS);
    else if (error.code !== 'NOT_IN_ROOM') this.#port.report(error);
  }

  /** @param {string} user @param {Member|null} change */
  #apply(user, change) {
    if (change === null) this.#members.delete(user);
    else this.#members.set(user, change);
  }

  #changed() {
    this.emit('change', this.members, this.#count);
  }
}
