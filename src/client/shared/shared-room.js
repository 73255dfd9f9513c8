// shared-room.js: one room of the shared connection, and the tabs that are in it.
//
// The connection joins the room for the first tab, and leaves it after the last. Tabs that join
// later may be behind or ahead of it, for example after the leader changed:
//   ahead, or level          the tab drops messages that it already has
//   slightly behind          the leader still has the missed messages: `#recent`
//   further behind           the leader reads them with `history`, page by page
//   the server lacks them    the reply has `recovered: false`, as without sharing
//
// In a room with state the leader keeps the newest change of each key, and serves tabs from these.
// It joins without `since`, because it needs the whole state even if the first tab does not.
//
// The connection receives its own messages, because other tabs need them. While a tab publishes
// with `echo: false`, its messages wait for the `ack`, which shows which of them to leave out.

import { FanfareError } from '../error.js';
import { presenceOf } from '../presence.js';
import {
  MAX_AWAITED,
  MAX_HELD,
  MAX_LAST,
  MAX_PAGES,
  MAX_RECENT,
  MAX_REMOVED,
  PAGE_SIZE,
  REJOIN_MS,
} from './limits.js';

/** @import { Command } from '../wire.js' */
/** @typedef {import('../wire.js').Message} Message */
/** @typedef {import('../wire.js').Position} Position */

/**
 * @typedef {object} Port the leader, as its rooms see it
 * @property {() => string|undefined} self `from` of the connection's messages
 * @property {(command: Command, onReply?: (reply: Message) => void) => void} request
 * @property {(tabs: readonly string[], pushes: readonly Message[]) => void} push
 * @property {() => void} leave the room; tries again after a temporary refusal
 * @property {() => void} forget the connection has left the room
 */

/**
 * @typedef {object} Member a tab in the room
 * @property {unknown} presence of its join
 * @property {boolean} isLive its join has been answered
 * @property {Message[]} held
 * @property {Map<unknown, string>} unechoed payloads published with `echo: false`, by id
 */

/** @typedef {{tab: string, member: Member, command: Record<string, any>}} Join */

export class SharedRoom {
  #name;
  #port;
  /** @type {Map<string, Member>} */
  #members = new Map();
  /** Joins of tabs until the connection has joined. @type {Join[]} */
  #waiting = [];
  #isJoining = false;
  #isJoined = false;
  /** The position that was passed on last; undefined in a plain room. @type {Position|undefined} */
  #position;
  /** Offset of the newest known message. */
  #newest = 0;
  /** The last messages up to the position, without those for others. @type {Message[]} */
  #recent = [];
  /** After this offset `#recent` has them all. */
  #recentFrom = 0;
  /**
   * Newest change of each key, oldest first, in a room with state.
   * @type {Map<string, Message>|undefined}
   */
  #changes;
  /** Keys whose newest change is a removal, oldest first. @type {Set<string>} */
  #removed = new Set();
  /** Removals up to this offset are forgotten. */
  #floor = 0;
  #isSynced = false;
  /** Sent with the last join, as JSON. @type {string|undefined} */
  #presence;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;

  /** @param {string} name @param {Port} port */
  constructor(name, port) {
    this.#name = name;
    this.#port = port;
  }

  get _isState() {
    return !!this.#changes;
  }

  /** @param {string} tab @param {Record<string, any>} command */
  join(tab, command) {
    const { presence } = command;
    // A tab joins again when a later handle of its own wants older messages.
    const unechoed = this.#members.get(tab)?.unechoed ?? new Map();
    const member = { presence, isLive: false, held: [], unechoed };
    this.#members.delete(tab);
    this.#members.set(tab, member);
    const join = { tab, member, command };
    if (this.#isJoined) {
      this.#serve(join);
      this.#updatePresence();
    } else {
      this.#waiting.push(join);
      if (!this.#isJoining) this.#sendJoin(command);
    }
  }

  /** @param {string} tab */
  leave(tab) {
    if (!this.#members.delete(tab)) return;
    if (this.#members.size > 0) return this.#updatePresence();
    this.#port.leave();
    this.end();
    this.#port.forget();
  }

  /** The connection is lost, or has left. */
  end() {
    clearTimeout(this.#timer);
    this.#members.clear();
    this.#waiting = [];
  }

  /** @param {string} tab @param {Record<string, any>} command */
  _publishWithoutEcho(tab, { echo, ...command }) {
    const { id } = command;
    this.#members.get(tab)?.unechoed.set(id, JSON.stringify(command.payload ?? command.text));
    const toSend = /** @type {Command} */ (command);
    this.#port.request(toSend, (reply) => {
      this.#port.push([tab], [{ ...reply, id }]);
      const member = this.#members.get(tab);
      if (!member) return;
      // The `ack` of a plain room has no position: `#isOwn` compares payloads.
      if (reply.error || reply.epoch) member.unechoed.delete(id);
      else if (member.unechoed.size > MAX_AWAITED)
        member.unechoed.delete(member.unechoed.keys().next().value);
      if (!member.unechoed.size) this.#release(tab, member);
    });
  }

  /** @param {Message} message or `position`: the message there is for others */
  receive(message) {
    // Until the join is answered, messages belong to an earlier membership.
    if (!this.#isJoined) return;
    const { type, epoch, offset } = message;
    if (!epoch) return this.#deliver(message);
    const isSame = this.#position?.epoch === epoch;
    const last = Number(this.#position?.offset);
    if (isSame && offset <= last) return;
    if (!isSame) this.#forgetRecent(offset - 1);
    this.#position = { epoch, offset };
    this.#newest = Math.max(this.#newest, offset);
    if (type === 'message' && this.#recent.push(message) > MAX_RECENT)
      this.#recentFrom = this.#recent.shift()?.offset;
    this.#deliver(isSame ? { ...message, last } : message);
  }

  /** @param {number} offset of the last message that is not kept */
  #forgetRecent(offset) {
    this.#recent = [];
    this.#recentFrom = offset;
  }

  /** @param {Message} push a message of a room with state, `reset` or `synced` */
  _receiveState(push) {
    const { type, epoch, offset, key, payload } = push;
    const changes = this.#changes;
    if (!this.#isJoined || !changes) return;
    const last = Number(this.#position?.offset);
    this.#newest = offset;
    if (type === 'reset') this.#resetState(push);
    else if (type === 'synced') this.#isSynced = true;
    else {
      if (offset <= last) return;
      changes.delete(key);
      changes.set(key, push);
      this.#removed.delete(key);
      if (payload === null) this.#rememberRemoved(changes, key);
    }
    if (type !== 'reset') this.#position = { epoch, offset };
    // A tab that lacks the message at `last` notices the gap.
    this.#deliver({ ...push, last });
  }

  /** The whole state follows. @param {Message} position the room's newest */
  #resetState({ epoch, offset }) {
    this.#changes = new Map();
    this.#removed.clear();
    this.#floor = this.#newest = offset;
    this.#position = { epoch, offset: 0 };
    this.#isSynced = false;
  }

  /** @param {Map<string, Message>} changes @param {string} key */
  #rememberRemoved(changes, key) {
    if (this.#removed.add(key).size <= MAX_REMOVED) return;
    const [oldest] = this.#removed;
    this.#floor = changes.get(oldest)?.offset;
    changes.delete(oldest);
    this.#removed.delete(oldest);
  }

  /** @param {Message} push */
  _receivePresence(push) {
    this.#port.push(this.#liveTabs(), [push]);
  }

  /** @param {Message} push `resync`: messages are missing here */
  resync(push) {
    const { epoch, offset } = push;
    this.#position = { epoch, offset };
    this.#newest = offset;
    this.#forgetRecent(offset);
    this.#port.push(this.#liveTabs(), [push]);
  }

  /** The server has taken the connection out of the room. @param {Message} push */
  _expelled(push) {
    this.#port.push([...this.#members.keys()], [push]);
    this.end();
    this.#port.forget();
  }

  /**
   * Joins with the connection.
   * @param {{since?: Position, last?: number, lastSeconds?: number}} wish of the first tab, or of all
   *   when the connection joins again
   */
  #sendJoin(wish) {
    this.#isJoining = true;
    const { since, last, lastSeconds } = wish;
    const presence = this.#wantedPresence();
    this.#presence = JSON.stringify(presence);
    const command = { type: 'join', room: this.#name, since, last, lastSeconds, presence };
    this.#port.request(command, (reply) => {
      if (!this.#members.size) return;
      this.#isJoining = false;
      if (reply.error === 'ALREADY_JOINED') {
        // The token's `autojoin` has joined, which has no `since`.
        this.#port.leave();
        this.#sendJoin(wish);
      } else if (reply.error) this.#refused(reply);
      else if (this.#isJoined) this.#reentered(reply);
      else this.#entered(reply, wish);
    });
  }

  /** @param {Message} reply */
  #refused(reply) {
    if (this.#isJoined) {
      if (!new FanfareError(reply.error, reply).retryable)
        return this._expelled({ type: 'left', room: this.#name, reason: reply.error });
      this.#timer = setTimeout(() => this.#sendJoin({ since: this.#position }), REJOIN_MS);
      return;
    }
    for (const { tab, command } of this.#waiting)
      this.#port.push([tab], [{ ...reply, id: command.id }]);
    this.end();
    this.#port.forget();
  }

  /**
   * The connection has joined for the first tab.
   * @param {Message} reply @param {{since?: Position, last?: number}} wish
   */
  #entered(reply, { since }) {
    const { epoch, offset, recovered, state } = reply;
    if (state && recovered) {
      this.#port.leave();
      return this.#sendJoin({});
    }
    this.#isJoined = true;
    if (state) this.#resetState(reply);
    else if (epoch) {
      this.#newest = offset;
      const { first = offset + 1 } = reply;
      this.#position = { epoch, offset: recovered ? Number(since?.offset) : first - 1 };
      this.#forgetRecent(this.#position.offset);
    }
    const [first, ...others] = this.#waiting;
    this.#waiting = [];
    if (state) this.#serve(first);
    else this.#answerJoin(first, reply, []);
    for (const join of others) this.#serve(join);
    this.#updatePresence();
  }

  /** The connection has left and joined again. @param {Message} reply */
  #reentered({ epoch, offset, recovered, state }) {
    const where = { room: this.#name, epoch, offset };
    if (state && !recovered) this._receiveState({ type: 'reset', ...where });
    else if (epoch && !recovered) this.resync({ type: 'resync', ...where, reloadAfterMs: 0 });
    this.#updatePresence();
  }

  /** Answers a join while the connection is in the room. @param {Join} join */
  #serve(join) {
    const { since, last } = join.command;
    const position = this.#position;
    if (this.#changes) this.#serveState(join, this.#changes);
    else if (position === undefined)
      this.#answerJoin(join, { recovered: since && false, replayed: last && 0 }, []);
    else if (since?.epoch === position.epoch) this.#catchUp(join, Number(since.offset), [], 0);
    else this.#beginTab(join);
  }

  /** @param {Join} join @param {Map<string, Message>} changes */
  #serveState(join, changes) {
    const { since } = join.command;
    const position = /** @type {Position} */ (this.#position);
    const recovered = since?.epoch === position.epoch && since.offset >= this.#floor;
    const pushes = [...changes.values()].filter(({ offset, payload }) =>
      recovered ? offset > since.offset : payload !== null,
    );
    if (this.#isSynced) pushes.push({ type: 'synced', room: this.#name, ...position });
    this.#answerJoin(join, { recovered, state: true }, pushes);
  }

  /**
   * Continues a tab's stream after an offset.
   * @param {Join} join @param {number} offset @param {readonly Message[]} missed up to the offset
   * @param {number} pages read so far
   */
  #catchUp(join, offset, missed, pages) {
    const { epoch } = /** @type {Position} */ (this.#position);
    const rest = this.#after(offset);
    if (rest !== null) {
      const messages = [...missed, ...rest];
      if (join.command.since) this.#answerJoin(join, { recovered: true }, messages);
      else this.#admitLatest(join, messages);
      return;
    }
    if (pages === MAX_PAGES) return this.#beginTab(join);
    this.#answerRead(join, { since: { epoch, offset }, limit: PAGE_SIZE }, (page) => {
      const isNext = page.at(0)?.epoch === epoch && page[0].offset === offset + 1;
      if (!isNext || this.#position?.epoch !== epoch) return this.#beginTab(join);
      this.#catchUp(join, Number(page.at(-1)?.offset), [...missed, ...page], pages + 1);
    });
  }

  /** Starts a tab with the newest messages, or with none. @param {Join} join */
  #beginTab(join) {
    const { last, lastSeconds } = join.command;
    if (lastSeconds) return this.#beginAt(join, Date.now() - lastSeconds * 1000);
    if (!last) return this.#answerJoin(join, { recovered: false }, []);
    if (this.#recent.length >= last) return this.#admitLatest(join, this.#recent);
    this.#answerRead(join, { limit: last }, (page) => {
      const isSame = page.at(-1)?.epoch === this.#position?.epoch;
      const rest = isSame && this.#after(page.at(-1)?.offset);
      this.#admitLatest(join, rest ? [...page, ...rest] : this.#recent);
    });
  }

  /** @param {Join} join @param {number} sinceTime Unix ms by the local clock */
  #beginAt(join, sinceTime) {
    const { lastSeconds, last = MAX_LAST, ...command } = join.command;
    this.#answerRead(join, { sinceTime, limit: 1 }, ([first]) => {
      if (first?.epoch !== this.#position?.epoch) return this.#admitLatest(join, []);
      const offset = Math.max(first.offset - 1, this.#newest - last);
      // If reading by pages fails, the tab gets its `last`.
      this.#catchUp({ ...join, command: { ...command, last } }, offset, [], 0);
    });
  }

  /** @param {Join} join @param {readonly Message[]} messages cut to the `last` of the join */
  #admitLatest(join, messages) {
    const latest = messages.slice(-join.command.last || 0);
    const newest = latest.at(-1);
    const about = newest && {
      offset: newest.offset,
      replayed: latest.length,
      first: latest[0].offset,
    };
    this.#answerJoin(join, { recovered: false, replayed: 0, ...about }, latest);
  }

  /**
   * @param {Join} join @param {{since?: Position, sinceTime?: number, limit: number}} wish
   * @param {(page: Message[]) => void} onPage oldest first, in the form of pushes
   */
  #answerRead({ tab, member, command }, wish, onPage) {
    const room = this.#name;
    this.#port.request({ type: 'history', room, ...wish }, (reply) => {
      if (this.#members.get(tab) !== member) return;
      if (!reply.error) {
        const { epoch, messages } = reply;
        const toPush = (/** @type {Message} */ one) => ({ type: 'message', room, epoch, ...one });
        return onPage(messages.map(toPush));
      }
      this.leave(tab);
      this.#port.push([tab], [{ ...reply, id: command.id }]);
    });
  }

  /** @param {number} offset @returns {readonly Message[]|null} null: some are missing */
  #after(offset) {
    if (offset >= Number(this.#position?.offset)) return [];
    if (offset < this.#recentFrom) return null;
    return this.#recent.filter((message) => message.offset > offset);
  }

  /** @param {Join} join @param {Message} about @param {readonly Message[]} messages */
  #answerJoin({ tab, member, command }, about, messages) {
    if (this.#members.get(tab) !== member) return;
    member.isLive = true;
    const epoch = this.#position?.epoch;
    const where = epoch ? { epoch, offset: this.#newest } : {};
    const reply = { type: 'joined', room: this.#name, ...where, ...about, id: command.id };
    const pushes = messages.map((message, i) =>
      i > 0 ? { ...message, last: messages[i - 1].offset } : message,
    );
    const end = messages.at(-1) ?? command.since;
    const isShort = end?.epoch === epoch && end?.offset < Number(this.#position?.offset);
    // The newest messages are for others.
    if (isShort && !this.#changes)
      pushes.push({ type: 'position', room: this.#name, ...this.#position, last: end.offset });
    this.#port.push([tab], [reply, ...pushes]);
  }

  /** @param {Message} message */
  #deliver(message) {
    const tabs = [];
    for (const [tab, member] of this.#members) {
      if (!member.isLive) continue;
      if (!member.unechoed.size) tabs.push(tab);
      else if (message.epoch) {
        if (member.held.push(message) === MAX_HELD) this.#release(tab, member);
      } else if (!this.#isOwn(member, message)) tabs.push(tab);
    }
    this.#port.push(tabs, [message]);
  }

  /**
   * Did this tab publish the message? Equal messages may be confused.
   * @param {Member} member @param {Message} message of a plain room
   */
  #isOwn({ unechoed }, { from, payload }) {
    if (from !== this.#port.self()) return false;
    const text = JSON.stringify(payload);
    for (const [id, own] of unechoed) if (own === text) return unechoed.delete(id);
    return false;
  }

  /** @param {string} tab @param {Member} member */
  #release(tab, member) {
    if (this.#members.get(tab) === member) this.#port.push([tab], member.held);
    member.held = [];
  }

  #liveTabs() {
    return [...this.#members].filter(([, { isLive }]) => isLive).map(([tab]) => tab);
  }

  #wantedPresence() {
    return presenceOf([...this.#members.values()].map(({ presence }) => presence));
  }

  /** Leaves and joins again if presence must list the connection differently. */
  #updatePresence() {
    if (!this.#isJoined || this.#isJoining || !this.#members.size) return;
    if (JSON.stringify(this.#wantedPresence()) === this.#presence) return;
    this.#port.leave();
    this.#sendJoin({ since: this.#position });
  }
}
