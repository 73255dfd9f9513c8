// presence.js: the users of one room, as a list that follows the events of the server, and the view
// of it that each handle has.
//
// Events are not replayed. So the view asks for the list after each join and after each outage of
// the broker. Events that arrive while the pages of the list arrive are applied again at the end.

import { Emitter } from './emitter.js';

const RETRY_MS = 5000;

/** A user of a room. @typedef {{user: string, info?: any}} Member */

/** The list, which all handles of a room share. */
export class Users {
  #room;
  #port;
  /** @type {Set<Presence>} */
  #views = new Set();
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
    this.#room = room;
    this.#port = port;
  }

  get members() {
    return [...this.#members.values()];
  }

  get count() {
    return this.#count;
  }

  /** @param {Presence} view gets the list, and each change */
  watch(view) {
    if (this.#views.has(view)) return;
    this.#views.add(view);
    this.refresh();
  }

  /** @param {Presence} view */
  unwatch(view) {
    this.#views.delete(view);
  }

  refresh() {
    this.stop();
    if (this.#views.size === 0 || this.#port.link.state !== 'connected') return;
    this.#changes = new Map();
    this.#ask(this.#run, new Map(), undefined);
  }

  stop() {
    this.#run++;
    this.#changes = null;
    clearTimeout(this.#timer);
  }

  /** @param {import('./wire.js').Message} push */
  receive({ event, member }) {
    if (this.#views.size === 0) return;
    const change = event === 'join' ? member : null;
    this.#changes?.set(member.user, change);
    const { size } = this.#members;
    this.#apply(member.user, change);
    this.#count += this.#members.size - size;
    this.#changed();
  }

  /** @param {number} run @param {Map<string, Member>} found @param {string|undefined} after */
  #ask(run, found, after) {
    const command = { type: 'presence', room: this.#room, after };
    this.#port.request(
      command,
      ({ members = [], count, more }) => {
        if (run !== this.#run) return;
        for (const member of members) found.set(member.user, member);
        if (more) return this.#ask(run, found, members.at(-1).user);
        this.#members = found;
        for (const [user, change] of this.#changes ?? []) this.#apply(user, change);
        this.#changes = null;
        this.#count = count;
        this.#changed();
      },
      (error) => {
        if (run !== this.#run) return;
        // NOT_IN_ROOM: the answer to the join will ask again.
        if (error.retryable)
          this.#timer = setTimeout(() => this.refresh(), error.retryAfterMs ?? RETRY_MS);
        else if (error.code !== 'NOT_IN_ROOM') this.#port.report(error);
      },
    );
  }

  /** @param {string} user @param {Member|null} change */
  #apply(user, change) {
    if (change === null) this.#members.delete(user);
    else this.#members.set(user, change);
  }

  #changed() {
    for (const view of this.#views) view.emit('change', this.members, this.#count);
  }
}

/** @extends {Emitter<{change: [members: Member[], count: number]}>} */
export class Presence extends Emitter {
  #users;
  #hasEnded = false;

  /** @param {Users} users */
  constructor(users) {
    super();
    this.#users = users;
  }

  /** The users. Empty before the first `change`, and if the room is too large for a list. */
  get members() {
    return this.#users.members;
  }

  /** Number of users; also right if the room is too large for a list. */
  get count() {
    return this.#users.count;
  }

  /**
   * The first listener starts the view.
   * @override
   * @type {Emitter<{change: [members: Member[], count: number]}>['on']}
   */
  on(event, listener) {
    const stop = super.on(event, listener);
    if (!this.#hasEnded) this.#users.watch(this);
    return stop;
  }

  /** The handle has left. */
  end() {
    this.#hasEnded = true;
    this.#users.unwatch(this);
  }
}

/**
 * A connection is one user: the last wish that names one counts. It is listed unless all say
 * `false`.
 * @param {unknown[]} wishes `presence` of joins
 */
export function presenceOf(wishes) {
  return wishes.filter(Boolean).at(-1) ?? (wishes.includes(undefined) ? undefined : false);
}
