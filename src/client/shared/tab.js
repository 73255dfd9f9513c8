// tab.js: a tab's end of the shared connection.
//   tab ── attach, commands, ping ──> leader ──> one WebSocket
//       <── attached, state, pushes, pong ──
//
// A BroadcastChannel carries the messages. Each tab keeps its own rooms, positions and waiting
// publishes. A new leader means a new connection: the tab joins its rooms with `since`, and repeats
// its publishes with their idempotency keys. A new leader has a higher term, so a leader that was
// suspended is ignored when it wakes up.

import { FanfareError } from '../error.js';
import { ignoreAbort, thisBrowser } from './browser.js';
import { Election } from './election.js';
import { Leader, lockOfTab } from './leader.js';
import { ANSWER_MS, LOOK_MS, MAX_LOOK_MS } from './limits.js';

/** @import { Browser, Channel, Locks } from './browser.js' */

/** @typedef {import('../connection.js').State} State */
/** @typedef {import('../connection.js').Link} Link */
/** @typedef {import('./leader.js').FromLeader} FromLeader */
/** @typedef {import('./leader.js').FromTab} FromTab */

/** @implements {Link} */
export class Tab {
  /** @type {State} */
  state = 'idle';
  #parts;
  #listener;
  #browser;
  #name;
  #election;
  /** @type {Leader|null} */
  #leader = null;
  /** @type {Channel|null} */
  #channel = null;
  /** New after each sleep. '': the tab takes no part. */
  #id = '';
  #term = 0;
  /** Is the leader of this term believed to be alive? */
  #isFollowing = false;
  #isAttached = false;
  /** The position of each room's last message. @type {Map<string, import('../wire.js').Position>} */
  #positions = new Map();
  #lookedAtMs = 0;
  /** When the unanswered ping was sent to the leader; 0: it has answered. */
  #askedAtMs = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;
  #depart = () => {};
  /** A frozen page answers nothing, so it takes no part until it goes on. */
  #freeze = () => {
    this._sleep();
    this.#browser.document?.addEventListener('resume', () => this._wake(), { once: true });
  };

  /**
   * @param {import('../connection.js').ConnectionParts & {name?: string}} parts tabs with the same
   *   `url` and `name` share a connection
   * @param {import('../connection.js').ConnectionListener} listener @param {Browser} [browser]
   */
  constructor(parts, listener, browser = thisBrowser()) {
    this.#parts = parts;
    this.#listener = listener;
    this.#browser = browser;
    this.#name = `fanfare ${parts.url} ${parts.name ?? ''}`;
    this.#election = new Election({
      locks: this.#locks,
      name: this.#name,
      _onElected: () => this.#lead(),
      _onDeposed: () => this.#stepDown(),
    });
  }

  open() {
    if (this.state === 'idle' || this.state === 'closed') this.#beginElection();
  }

  /** @param {string} text JSON */
  send(text) {
    this.#post('command', text);
  }

  _sleep() {
    if (!this.#id) return;
    this.#endLeading();
    this.#setState('sleeping');
  }

  _wake() {
    if (this.state === 'sleeping') this.#beginElection();
    else if (this.#channel) {
      this.#post('wake');
      this.#look();
    }
  }

  async close() {
    const stopped = this.#endLeading();
    this.#setState('closed');
    await stopped;
  }

  get #locks() {
    return /** @type {Locks} */ (this.#browser.navigator?.locks);
  }

  get #Channel() {
    return /** @type {new (name: string) => Channel} */ (this.#browser.BroadcastChannel);
  }

  #beginElection() {
    const id = crypto.randomUUID();
    this.#id = id;
    this.#setState('connecting');
    this.#browser.document?.addEventListener('freeze', this.#freeze);
    // The leader waits for this lock, so it notices the end of this tab.
    const held = this.#locks.request(lockOfTab(this.#name, id), {}, () => {
      if (id !== this.#id) return;
      const departed = new Promise((resolve) => {
        this.#depart = () => resolve(undefined);
      });
      this.#channel = new this.#Channel(this.#name);
      this.#channel.addEventListener('message', ({ data }) => this.#receiveFromLeader(data));
      this.#election.stand();
      this.#look();
      return departed;
    });
    held.catch(ignoreAbort);
  }

  /** @returns {Promise<void>|undefined} if this tab led: resolves when the connection has closed */
  #endLeading() {
    this.#id = '';
    clearTimeout(this.#timer);
    this.#browser.document?.removeEventListener('freeze', this.#freeze);
    const stopped = this.#stepDown();
    this.#election.withdraw();
    this.#isFollowing = false;
    this.#isAttached = false;
    this.#channel?.close();
    this.#channel = null;
    this.#depart();
    this.#listener._lost();
    return stopped;
  }

  #lead() {
    this.#leader = new Leader({
      name: this.#name,
      term: Math.max(Date.now(), this.#term + 1) + Math.random(),
      locks: this.#locks,
      Channel: this.#Channel,
      parts: this.#parts,
    });
  }

  #stepDown() {
    const stopped = this.#leader?.resign();
    this.#leader = null;
    return stopped;
  }

  #look() {
    const nowMs = performance.now();
    const isLate = nowMs - this.#lookedAtMs > MAX_LOOK_MS;
    this.#lookedAtMs = nowMs;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#look(), LOOK_MS);
    if (this.#leader) return;
    if (!this.#askedAtMs || isLate) {
      this.#askedAtMs = nowMs;
      this.#post('ping');
    } else if (nowMs - this.#askedAtMs >= ANSWER_MS) {
      this.#askedAtMs = nowMs;
      this.#unfollow();
      this.#election.seize(() => !this.#isFollowing && this.#id !== '');
    }
  }

  /** @param {FromLeader} message */
  #receiveFromLeader(message) {
    const { term, type, to } = message;
    if (!term) return;
    if (term !== this.#term || !this.#isFollowing) {
      if ((term > this.#term || !this.#isFollowing) && type !== 'resigned') this.#follow(term);
      return;
    }
    this.#askedAtMs = 0;
    if (type === 'resigned') return this.#unfollow();
    if (to && !to.includes(this.#id)) return;
    if (type === 'attached') this.#isAttached = true;
    if (!this.#isAttached) return;
    if (message.state) this.#mirror(message);
    if (message.error) this.#listener._report(new FanfareError(message.error.code, message.error));
    for (const push of message.pushes ?? []) {
      if (this.state !== 'connected') return;
      // Following again joins the rooms again, after the last messages received.
      if (this.#isBehindGap(push)) return this.#follow(term);
      delete push.last;
      this.#listener._receive(push);
    }
  }

  /** Channels lose messages under a debugger. @param {import('../wire.js').Message} push */
  #isBehindGap({ type, room, epoch, offset, key, last }) {
    if (/joined|resync|reset|synced/.test(type)) this.#positions.delete(room);
    if (!/message|position/.test(type) || !epoch) return false;
    const own = this.#positions.get(room);
    // Rooms with state, and messages for others, skip offsets: the leader names the one before.
    const before = last ?? (key === undefined ? offset - 1 : 0);
    const isSame = own?.epoch === epoch;
    const ownOffset = isSame ? Number(own?.offset) : before;
    if (!isSame || offset > ownOffset) this.#positions.set(room, { epoch, offset });
    return ownOffset < before;
  }

  /** @param {number} term of a new leader */
  #follow(term) {
    this.#unfollow();
    this.#term = term;
    this.#isFollowing = true;
    this.#askedAtMs = 0;
    this.#post('attach');
  }

  #unfollow() {
    this.#isFollowing = false;
    this.#isAttached = false;
    this.#positions.clear();
    if (this.state !== 'connected') return;
    this.#listener._lost();
    this.#setState('connecting');
  }

  /** Takes over the state of the leader's connection. @param {FromLeader} message */
  #mirror({ state = 'connecting', detail, welcome }) {
    if (state === 'closed') this.#endLeading();
    else if (this.state === 'connected') this.#listener._lost();
    this.#positions.clear();
    this.state = state;
    if (welcome) this.#listener._welcomed(welcome);
    // A listener may have closed the client.
    if (this.state === state) this.#listener._entered(state, detail ?? {});
  }

  /** @param {FromTab['type']} type @param {string} [text] */
  #post(type, text) {
    /** @type {FromTab} */
    const message = { tab: this.#id, for: this.#term, type, text };
    this.#channel?.postMessage(message);
  }

  /** @param {State} state */
  #setState(state) {
    this.state = state;
    this.#listener._entered(state, {});
  }
}
