// room.js: a handle: one room as one user of the client sees it, each message once, in order.
//
// The handles of a room share its membership (membership.js). Each has its own listeners, options
// and position, and drops messages that it has had. If the server cannot prove that nothing is
// missing, the application loads its state again (`recoverFailed`). Live messages wait meanwhile,
// and follow the new state.
//
//   joined, recovered ────────────────────────────────> missed messages, live messages
//   joined, not recovered ─┐
//   resync ────────────────┴─> recoverFailed ─> reset ─> messages that waited, live messages

import { reconnectDelay } from './delay.js';
import { Emitter } from './emitter.js';
import { FanfareError } from './error.js';
import { Presence } from './presence.js';

/** Messages that wait for the state, or for the reader of an iterator. */
const MAX_WAITING = 1000;

/** @typedef {import('./wire.js').Message} Wire */
/** @typedef {import('./wire.js').Position} Position */

/**
 * @typedef {object} Meta
 * @property {string} from user of the publisher's token, or its connection id
 * @property {number} timestamp ms since 1970
 * @property {number} [offset] in rooms with history
 * @property {string} [epoch] in rooms with history
 */

/**
 * A message, as an async iterator yields it.
 * @template [Payload=any]
 * @typedef {Meta & {payload: Payload}} RoomMessage
 */

/**
 * `joined`: the connection is a member; `recovered`: nothing was missed. `reset`: messages may have
 * been missed, and `state` is the result of `recoverFailed`. `left`: the handle has ended.
 * @template Payload
 * @typedef {{
 *   message: [payload: Payload, meta: Meta],
 *   joined: [about: {recovered: boolean, since: Position|undefined, position: Position|undefined}],
 *   resync: [position: Position],
 *   reset: [state: any, position: Position|undefined],
 *   error: [error: FanfareError],
 *   left: [],
 * }} RoomEvents
 */

/**
 * @typedef {object} JoinOptions
 * @property {Position} [since] of the last message that the application has processed
 * @property {number} [last] begins with this many of the newest messages; ignored beside `since`
 * @property {{user: string, info?: unknown}|false} [presence] false: watch without being listed
 * @property {(position: Position|undefined) => unknown} [recoverFailed] loads the application's
 *   state. Messages behind `position` follow it. If it fails, it is called again
 */

/**
 * @typedef {object} HistoryOptions
 * @property {Partial<Position> & {payload?: unknown}} [before] a message or its position: the page
 *   ends before it
 * @property {number} [sinceTime] ms since 1970: the page begins with the first message that was
 *   published then or later
 * @property {number} [limit] of messages; 100 by default
 */

/**
 * @template [Payload=any]
 * @typedef {object} HistoryPage
 * @property {RoomMessage<Payload>[]} messages oldest first
 * @property {boolean} more are there older messages? With `sinceTime`: newer ones?
 * @property {string} [epoch] of the room. If `before` has another one, its messages are gone.
 *   Without history there is none
 * @property {number} [offset] of the room's newest message
 */

/**
 * @template [Payload=any]
 * @extends {Emitter<RoomEvents<Payload>>}
 */
export class Room extends Emitter {
  #membership;
  #publisher;
  #options;
  /** Of the last message received, or `since`. @type {Position|undefined} */
  #position;
  /** Of the last message handed to the application. @type {Position|undefined} */
  #processed;
  #isJoined = false;
  #hasLeft = false;
  /** Does the application have a state that a gap would make wrong? */
  #isContinuing;
  /** Messages that wait for the state; null: it is not being loaded. @type {Wire[]|null} */
  #waiting = null;
  /** Numbers the gaps, so that a state that is older than one is noticed. */
  #gaps = 0;
  /** Where the messages after the last gap begin. @type {Position|undefined} */
  #resumeAt;

  /**
   * @param {JoinOptions} options @param {import('./membership.js').Membership} membership
   * @param {import('./outgoing.js').Publisher} publisher
   */
  constructor(options, membership, publisher) {
    super();
    this.name = membership.name;
    this.presence = new Presence(membership.users);
    this.#membership = membership;
    this.#publisher = publisher;
    this.#options = options;
    this.#position = options.since;
    this.#processed = options.since;
    this.#isContinuing = options.since !== undefined;
  }

  get isJoined() {
    return this.#isJoined;
  }

  /**
   * Of the last message that the application has had. A later visit may pass it as `since`.
   * @returns {Position|undefined} undefined in a room without history
   */
  get position() {
    return this.#processed;
  }

  /** What the next join has to bring for this handle. */
  get wish() {
    const { last = 0, presence } = this.#options;
    return { since: this.#position, last: this.#isContinuing ? 0 : last, presence };
  }

  /**
   * @param {Payload} payload @param {import('./outgoing.js').PublishOptions} [options]
   * @returns {Promise<Partial<Position>>} the message is accepted; its position if the room has
   *   history
   */
  async publish(payload, options) {
    this.#mustBeHere();
    const position = await this.#publisher.publish(this.name, payload, options);
    if (options?.echo === false && position.epoch) this.#membership.published(position);
    return position;
  }

  /**
   * Reads what the room keeps: its newest messages, those before one, or those since a time.
   * @param {HistoryOptions} [options]
   * @returns {Promise<HistoryPage<Payload>>} rejects with a FanfareError
   */
  async history({ before, ...rest } = {}) {
    this.#mustBeHere();
    if (before) before = { ...before, payload: undefined };
    const page = /** @type {HistoryPage<Payload>} */ (
      await this.#membership.ask({ type: 'history', before, ...rest })
    );
    for (const message of page.messages) message.epoch = page.epoch;
    return page;
  }

  /** Ends this handle. With the last one the connection leaves the room. */
  leave() {
    if (this.#hasLeft) return;
    this.#membership.remove(this);
    this.end();
  }

  /** Yields messages until the room is left. */
  async *[Symbol.asyncIterator]() {
    /** @type {RoomMessage<Payload>[]} */
    const queue = [];
    let hasOverflowed = false;
    let wake = () => {};
    const stops = [
      this.on('message', (payload, meta) => {
        hasOverflowed ||= queue.push({ payload, ...meta }) > MAX_WAITING;
        wake();
      }),
      // The new state includes them.
      this.on('reset', () => void queue.splice(0)),
      this.on('left', () => wake()),
    ];
    try {
      for (;;) {
        if (hasOverflowed) throw new FanfareError('BUFFER_FULL', { room: this.name });
        const message = queue.shift();
        if (message !== undefined) yield message;
        else if (this.#hasLeft) return;
        else
          await new Promise((resolve) => {
            wake = () => resolve(undefined);
          });
      }
    } finally {
      for (const stop of stops) stop();
    }
  }

  #mustBeHere() {
    if (this.#hasLeft) throw new FanfareError('CLOSED', { room: this.name });
  }

  /** The connection is not in the room. */
  lost() {
    this.#isJoined = false;
  }

  /** This handle has ended. */
  end() {
    this.lost();
    this.#hasLeft = true;
    this.#waiting = null;
    this.presence.end();
    this.emit('left');
  }

  /**
   * The connection is in the room.
   * @param {import('./membership.js').Joined} about
   * @returns {boolean} false: another join has to bring messages before these
   */
  joined({ epoch, offset, recovered, start, since, last }) {
    const own = this.#position;
    const wasJoined = this.#isJoined;
    const isContinuing = this.#isContinuing;
    let isMissing = isContinuing;
    if (epoch === undefined) this.#position = undefined;
    else {
      const wanted = this.wish.last;
      let from = Math.max(0, offset - wanted);
      if (own) from = own.epoch === epoch ? own.offset : -1;
      const isAsked = own
        ? since?.epoch === epoch && since?.offset <= from
        : !recovered && wanted <= last;
      if (from < start && from >= 0 && !isAsked) return false;
      isMissing &&= from < start || !(recovered || wasJoined);
      this.#moveTo(epoch, isMissing ? start : Math.max(start, from));
    }
    this.#isJoined = true;
    this.#isContinuing = true;
    if (!isMissing) this.#processed ??= this.#position;
    if (!wasJoined) {
      const position = epoch === undefined ? undefined : { epoch, offset };
      this.emit('joined', { recovered: isContinuing && !isMissing, since: own, position });
    }
    if (isMissing && !this.#hasLeft) this.#gap();
    return true;
  }

  /** @param {Wire} message */
  receive(message) {
    // Before the reply to the join it is a message for earlier handles.
    if (!this.#isJoined) return;
    const { epoch, offset } = message;
    if (epoch !== undefined) {
      const position = this.#position;
      if (position?.epoch === epoch && offset <= Number(position?.offset)) return;
      this.#moveTo(epoch, offset);
      if (this.#membership.own.has(`${epoch} ${offset}`)) return;
    }
    if (this.#waiting === null) this.#deliver(message);
    else if (this.#waiting.push(message) > MAX_WAITING) this.#gap();
  }

  /** Own messages that come next are not received. @param {string} epoch @param {number} offset */
  #moveTo(epoch, offset) {
    while (this.#membership.own.has(`${epoch} ${offset + 1}`)) offset++;
    this.#position = { epoch, offset };
  }

  skip() {
    if (this.#position) this.#moveTo(this.#position.epoch, this.#position.offset);
  }

  /** Messages are missing here. @param {Wire} push */
  resync({ epoch, offset, reloadAfterMs }) {
    if (!this.#isJoined) return;
    this.#moveTo(epoch, offset);
    this.emit('resync', /** @type {Position} */ (this.#position));
    this.#gap(reloadAfterMs);
  }

  /**
   * Messages are missing up to the position. A state that is loaded from now on includes them.
   * @param {number} [afterMs]
   */
  async #gap(afterMs = 0) {
    const { recoverFailed } = this.#options;
    this.#gaps++;
    this.#resumeAt = this.#position;
    if (this.#waiting !== null) return void this.#waiting.splice(0);
    /** @type {Wire[]} */
    const waiting = [];
    this.#waiting = waiting;
    let state;
    let gaps;
    if (recoverFailed) await sleep(afterMs);
    for (let attempt = 0; recoverFailed && gaps !== this.#gaps; ) {
      if (this.#waiting !== waiting) return;
      gaps = this.#gaps;
      try {
        state = await recoverFailed(this.#resumeAt);
      } catch (cause) {
        if (this.#waiting !== waiting) return;
        const error = new FanfareError('STATE_UNAVAILABLE', { cause, room: this.name });
        this.#membership.report(error, [this]);
        gaps = undefined;
        await sleep(reconnectDelay({ code: 1006, attempt: attempt++ }));
      }
    }
    if (this.#waiting !== waiting) return;
    this.#waiting = null;
    this.#processed = this.#resumeAt;
    this.emit('reset', state, this.#processed);
    for (const message of waiting) this.#deliver(message);
  }

  /** @param {Wire} message */
  #deliver({ type, room, payload, ...meta }) {
    if (this.#hasLeft) return;
    const { epoch, offset } = meta;
    if (epoch !== undefined) this.#processed = { epoch, offset };
    this.emit('message', payload, /** @type {Meta} */ (meta));
  }
}

/** @param {number} ms */
function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
