// room.js: one room as the application sees it: each message once, in order.
//
// In a room with history the client rejoins with the position of its last message, and drops
// messages that it has had. If the server cannot prove that nothing is missing, the application
// loads its state anew (`recoverFailed`). Live messages wait meanwhile, and follow the new state.
//
//   joined, recovered ────────────────────────────────> missed messages, live messages
//   joined, not recovered ─┐
//   resync ────────────────┴─> recoverFailed ─> reset ─> messages that waited, live messages

import { reconnectDelay } from './delay.js';
import { Emitter } from './emitter.js';
import { errorOf, FanfareError } from './error.js';
import { Presence } from './presence.js';
import { startOf } from './wire.js';

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
 * been missed, and `state` is the result of `recoverFailed`. `left`: the room has ended.
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
 * @property {number} [last] the first join replays so many of the newest messages
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
  #port;
  #publisher;
  #options;
  /** Of the last message received. @type {Position|undefined} */
  #position;
  /** Of the last message handed to the application. @type {Position|undefined} */
  #processed;
  #isJoined = false;
  #hasLeft = false;
  /** Did the token not permit the room? */
  #isForbidden = false;
  /** Does the application have a state that a gap would make wrong? */
  #isContinuing;
  #attempt = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;
  /** Messages that wait for the state; null: it is not being loaded. @type {Wire[]|null} */
  #waiting = null;
  /** Numbers the gaps, so that a state that is older than one is noticed. */
  #gaps = 0;
  /**
   * Messages of this client that it does not receive, behind the position. The server replays them
   * to the next connection.
   * @type {Set<Position>}
   */
  #unechoed = new Set();
  /** Where the messages behind the last gap begin. @type {Position|undefined} */
  #resumeAt;

  /**
   * @param {string} name @param {JoinOptions} options @param {import('./outgoing.js').Port} port
   * @param {import('./outgoing.js').Publisher} publisher
   */
  constructor(name, options, port, publisher) {
    super();
    this.name = name;
    this.presence = new Presence(name, port);
    this.#port = port;
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

  /**
   * @param {Payload} payload @param {import('./outgoing.js').PublishOptions} [options]
   * @returns {Promise<Partial<Position>>} the message is accepted; its position if the room has
   *   history
   */
  publish(payload, options) {
    const accepted = this.#publisher.publish(this.name, payload, options);
    if (options?.echo === false)
      accepted.then(
        (position) => {
          if (position.epoch) this.#unechoed.add(/** @type {Position} */ (position));
          this.#skipUnechoed();
        },
        () => {},
      );
    return accepted;
  }

  /**
   * Reads what the room keeps: its newest messages, those before one, or those since a time.
   * @param {HistoryOptions} [options]
   * @returns {Promise<HistoryPage<Payload>>} rejects with a FanfareError
   */
  async history({ before, ...rest } = {}) {
    if (before) before = { ...before, payload: undefined };
    const page = /** @type {HistoryPage<Payload>} */ (
      await this.#port.ask({ type: 'history', room: this.name, before, ...rest })
    );
    for (const message of page.messages) message.epoch = page.epoch;
    return page;
  }

  /** Leaves the room for good. */
  leave() {
    if (this.#hasLeft) return;
    const { name } = this;
    if (this.#port.isConnected()) this.#port.request({ type: 'leave', room: name }, () => {});
    this.#port.forget(name);
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

  /** There is a connection: joins. */
  enter() {
    const { last, presence } = this.#options;
    const since = this.#position;
    this.#isForbidden = false;
    const command = {
      type: 'join',
      room: this.name,
      since,
      last: this.#isContinuing ? undefined : last,
      presence,
    };
    this.#port.request(command, (reply) => {
      if (reply === null || this.#hasLeft) return;
      if (reply.type === 'error') this.#refused(errorOf(reply, this.name));
      else this.#joined(reply, since);
    });
  }

  /** The connection has ended. */
  lost() {
    this.#isJoined = false;
    clearTimeout(this.#timer);
    this.presence.stop();
  }

  /** The room has ended: it was left, or the client was closed. */
  end() {
    this.lost();
    this.#hasLeft = true;
    this.#waiting = null;
    this.emit('left');
  }

  /** @param {Wire} message */
  receive(message) {
    // Before the reply to the join it is a message of the room's former membership.
    if (!this.#isJoined) return;
    const { epoch, offset } = message;
    if (epoch !== undefined) {
      const position = this.#position;
      if (position !== undefined && position.epoch === epoch && offset <= position.offset) return;
      let isOwn = false;
      for (const own of this.#unechoed) isOwn ||= own.epoch === epoch && own.offset === offset;
      this.#moveTo({ epoch, offset });
      if (isOwn) return;
    }
    if (this.#waiting === null) this.#deliver(message);
    else if (this.#waiting.push(message) > MAX_WAITING) this.#gap();
  }

  /** @param {Position} position */
  #moveTo(position) {
    // Messages of a former stream do not come any more.
    if (this.#position?.epoch !== position.epoch)
      for (const own of this.#unechoed)
        if (own.epoch !== position.epoch) this.#unechoed.delete(own);
    this.#position = position;
    this.#skipUnechoed();
  }

  /** Moves the position behind messages that this client has published without an echo. */
  #skipUnechoed() {
    for (const own of this.#unechoed) {
      const { epoch, offset = 0 } = this.#position ?? {};
      if (own.epoch !== epoch || own.offset > offset + 1) continue;
      if (own.offset > offset) this.#position = own;
      this.#unechoed.delete(own);
    }
  }

  /** Messages are missing here. @param {Wire} push */
  resync({ epoch, offset, reloadAfterMs }) {
    if (!this.#isJoined) return;
    this.#moveTo({ epoch, offset });
    this.emit('resync', /** @type {Position} */ (this.#position));
    this.#gap();
    this.#reload(reloadAfterMs);
  }

  /** The server has taken the connection out of the room. @param {Wire} push */
  expelled({ reason }) {
    this.lost();
    this.#isForbidden = reason !== 'removed';
    this.#report(
      new FanfareError('PERMISSION_DENIED', { message: `taken out: ${reason}`, room: this.name }),
    );
  }

  /** The connection has a new token: joins if the one before did not permit it. */
  permitted() {
    if (this.#isForbidden) this.enter();
  }

  /** @param {FanfareError} error */
  #refused(error) {
    const { name } = this;
    if (error.code === 'ALREADY_JOINED') {
      // The token's `autojoin` was first, and without `since`.
      this.#port.request({ type: 'leave', room: name }, () => {});
      return this.enter();
    }
    this.#isForbidden = error.code === 'PERMISSION_DENIED';
    if (!error.retryable) return this.#report(error);
    const delayMs = reconnectDelay({ code: 1006, attempt: this.#attempt++ });
    this.#timer = setTimeout(() => this.enter(), Math.max(delayMs, error.retryAfterMs ?? 0));
  }

  /** @param {Wire} reply @param {Position|undefined} since */
  #joined(reply, since) {
    const { epoch, offset, recovered = false } = reply;
    this.#isJoined = true;
    this.#attempt = 0;
    if (epoch === undefined) this.#position = undefined;
    else if (!recovered) this.#moveTo({ epoch, offset: startOf(reply, this.#options.last) });
    const position = epoch === undefined ? undefined : { epoch, offset };
    const isMissing = this.#isContinuing && !recovered;
    this.#isContinuing = true;
    if (!isMissing && this.#processed === undefined) this.#processed = this.#position;
    this.emit('joined', { recovered, since, position });
    this.presence.refresh();
    if (!isMissing || this.#hasLeft) return;
    this.#gap();
    this.#reload(0);
  }

  /** A state that is loaded from now on makes up for everything before. */
  #gap() {
    this.#gaps++;
    this.#resumeAt = this.#position;
    this.#waiting?.splice(0);
  }

  /** @param {number} afterMs */
  async #reload(afterMs = 0) {
    if (this.#waiting !== null) return;
    const { recoverFailed } = this.#options;
    /** @type {Wire[]} */
    const waiting = [];
    this.#waiting = waiting;
    let state;
    if (recoverFailed !== undefined) {
      let gaps;
      await sleep(afterMs);
      for (let attempt = 0; gaps !== this.#gaps; ) {
        if (this.#waiting !== waiting) return;
        gaps = this.#gaps;
        try {
          state = await recoverFailed(this.#resumeAt);
        } catch (cause) {
          this.#report(new FanfareError('STATE_UNAVAILABLE', { cause, room: this.name }));
          gaps = undefined;
          await sleep(reconnectDelay({ code: 1006, attempt: attempt++ }));
        }
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

  /** @param {FanfareError} error */
  #report(error) {
    if (!this.emit('error', error)) this.#port.report(error);
  }
}

/** @param {number} ms */
function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
