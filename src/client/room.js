// room.js: the handle that `join` returns. It delivers each message of a room once, in order.
//
// The handles of a room share its membership (membership.js). Each has its own listeners, options
// and position, and drops messages that it already delivered. If messages may be missing, the
// application loads its state again (`recoverFailed`) while live messages wait.
//
//   joined, recovered ────────────────────────────────> missed messages, live messages
//   joined, not recovered ─┐
//   resync ────────────────┴─> recoverFailed ─> reset ─> messages that waited, live messages
//
// In a room with state, the membership keeps the map and emits changes instead of messages.

import { reconnectDelay } from './delay.js';
import { Emitter } from './emitter.js';
import { FanfareError } from './error.js';
import { MAX_WAITING } from './limits.js';
import { Presence } from './presence.js';

/** @import { Client, PublishOptions } from './client.js' */
/** @import { Membership } from './membership.js' */

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
 * A message as async iterators yield it.
 * @template [Payload=any]
 * @typedef {Meta & {payload: Payload}} RoomMessage
 */

/**
 * A change in a room with state.
 * @template [Payload=any]
 * @typedef {Meta & Position & {key: string, payload: Payload|null, previous: Payload|undefined}} Change
 */

/**
 * `joined`: the connection is a member; `recovered`: it missed nothing. `resync`: messages are
 * missing here. `reset`: the application's state was loaded again, `state` is the result of
 * `recoverFailed`. `left`: the handle has ended.
 *
 * In a room with state: `change`: the map has changed. `reset`: the map was emptied, and the
 * whole state follows. `synced`: after a join or a `reset`, the map is complete.
 * @template Payload
 * @typedef {{
 *   message: [payload: Payload, meta: Meta],
 *   joined: [about: {recovered: boolean, since: Position|undefined, position: Position|undefined}],
 *   resync: [position: Position],
 *   change: [change: Change<Payload>],
 *   synced: [position: Position],
 *   reset: [state: any, position: Position|undefined],
 *   error: [error: FanfareError],
 *   _refused: [error: FanfareError],
 *   left: [],
 * }} RoomEvents
 */

/** @typedef {import('./membership.js').JoinOptions} JoinOptions */

/**
 * @typedef {object} HistoryOptions
 * @property {{epoch?: string|undefined, offset?: number|undefined, payload?: unknown}} [before] a
 *   message or its position: the page ends before it
 * @property {number} [sinceTime] ms since 1970: the page begins with the first message published
 *   then or later
 * @property {number} [limit] of messages; 100 by default
 */

/**
 * @template [Payload=any]
 * @typedef {object} HistoryPage
 * @property {RoomMessage<Payload>[]} messages oldest first
 * @property {boolean} more are there older messages? With `sinceTime`: newer ones?
 * @property {Position} [next] if you may see none of the messages of a page, and there are more:
 *   where the next page ends, as `before`
 * @property {string} [epoch] of the room; absent without history. If `before` has another epoch,
 *   its messages are gone
 * @property {number} [offset] of the room's newest message
 */

/** @template [Payload=any] @extends {Emitter<RoomEvents<Payload>>} */
export class Room extends Emitter {
  #membership;
  #client;
  /** The last message received, or `since`. @type {Position|undefined} */
  _position;
  _options;
  /** The options of the join, without `since` until the first is answered. @type {JoinOptions|undefined} */
  _latest;
  /** The last message that the application received. @type {Position|undefined} */
  #processed;
  #isJoined = false;
  #hasLeft = false;
  /** Messages since the last gap, while the state is loaded. @type {Wire[]|undefined} */
  #waiting;
  /** The end of the last gap. @type {Position|undefined} */
  #resumeAt;

  /** @param {JoinOptions} options @param {Membership} membership @param {Client} client */
  constructor(options, membership, client) {
    super();
    this.name = membership.name;
    this.presence = new Presence(membership._users);
    this.#membership = membership;
    this.#client = client;
    this._options = options;
    this._position = this.#processed = options.since;
    if (!options.since) this._latest = options;
  }

  get isJoined() {
    return this.#isJoined;
  }

  /**
   * Position of the last message that the application received: `since` for a later visit.
   * @returns {Position|undefined} undefined in a room without history
   */
  get position() {
    return this.#membership._state?._position ?? this.#processed;
  }

  /**
   * The current values of a room with state, by key. All handles share this map.
   * @returns {ReadonlyMap<string, Payload>|undefined} undefined before the first join, and in other
   *   rooms
   */
  get state() {
    return this.#membership._state?._values;
  }

  /**
   * @param {Payload|null} payload null with a `key` removes the key
   * @param {PublishOptions} [options]
   * @returns {Promise<Partial<Position>>} resolves when the server has accepted the message, with
   *   its position if the room has history
   */
  async publish(payload, options) {
    this.#mustBeHere();
    const position = await this.#client.publish(this.name, payload, options);
    if (options?.echo === false && position.epoch) this.#membership._published(position);
    return position;
  }

  /**
   * Reads a page of the room's history: the newest messages, or those before one or since a time.
   * @param {HistoryOptions} [options]
   * @returns {Promise<HistoryPage<Payload>>} rejects with a FanfareError
   */
  async history({ before, ...rest } = {}) {
    this.#mustBeHere();
    const page = /** @type {HistoryPage<Payload>} */ (
      await this.#client.request({
        type: 'history',
        room: this.name,
        before: before && { ...before, payload: undefined },
        ...rest,
      })
    );
    for (const message of page.messages) message.epoch = page.epoch;
    return page;
  }

  /** Ends this handle. When the last one ends, the connection leaves the room. */
  leave() {
    if (this.#hasLeft) return;
    this._lost();
    this.#hasLeft = true;
    this.#waiting = undefined;
    this.#membership._remove(this);
    this.emit('left');
  }

  /** Yields messages until the room is left. Throws if the room, or the client, is refused. */
  async *[Symbol.asyncIterator]() {
    /** @type {RoomMessage<Payload>[]} */
    const queue = [];
    /** @type {(value?: undefined) => void} */
    let wake = () => {};
    /** @type {FanfareError|undefined} */
    let refusal;
    /** @param {FanfareError} [error] */
    const end = (error) => {
      refusal ??= error;
      wake();
    };
    const stops = [
      this.on('message', (payload, meta) => {
        if (queue.length <= MAX_WAITING) queue.push({ payload, ...meta });
        wake();
      }),
      this.on('reset', () => {
        queue.length = 0; // the new state includes them
      }),
      this.on('_refused', end),
      this.on('left', end),
    ];
    try {
      while (queue.length || refusal || !this.#hasLeft) {
        if (queue.length > MAX_WAITING) throw new FanfareError('BUFFER_FULL', { room: this.name });
        if (queue.length) yield/** @type {RoomMessage<Payload>} */ (queue.shift());
        else if (refusal) throw refusal;
        else
          await new Promise((resolve) => {
            wake = resolve;
          });
      }
    } finally {
      for (const stop of stops) stop();
    }
  }

  #mustBeHere() {
    if (this.#hasLeft) throw new FanfareError('CLOSED', { room: this.name });
  }

  _lost() {
    this.#isJoined = false;
  }

  /** @param {FanfareError} error of the join @returns {boolean} does the application hear of it? */
  _refused(error) {
    const isRead = this.emit('_refused', error);
    return this.emit('error', error) || isRead;
  }

  /**
   * The connection is in the room (membership.js).
   * @param {Wire} newest @param {boolean} recovered @param {number} start @param {number} asked
   * @param {JoinOptions} [recent]
   * @returns {boolean} false: another join has to bring messages before these
   */
  _joined({ epoch, offset, state }, recovered, start, asked, recent) {
    const own = this._position;
    const wasJoined = this.#isJoined;
    const { last = 0, lastSeconds } = this._latest ?? {};
    const isContinuing = !this._latest;
    let isMissing = isContinuing && !state;
    if (epoch && !state) {
      if (lastSeconds && this._latest !== recent) return false;
      let from = lastSeconds ? start : Math.max(0, offset - last);
      if (own) from = own.epoch === epoch ? own.offset : -1;
      if (from < start && from >= 0 && from < asked) return false;
      isMissing &&= from < start || !(recovered || wasJoined);
      this._moveTo({ epoch, offset: isMissing ? start : Math.max(start, from) });
    } else this._position = undefined;
    this.#isJoined = true;
    this._latest = undefined;
    if (!isMissing) this.#processed ??= this._position;
    if (!wasJoined) {
      recovered &&= isContinuing && !isMissing;
      this.emit('joined', { recovered, since: own, position: epoch && { epoch, offset } });
      if (this.#membership._state?._isSynced)
        this.emit('synced', /** @type {Position} */ (this.position));
    }
    if (isMissing) this.#gap();
    return true;
  }

  /** @param {Wire} push a message, `position`, or `resync` where messages are missing */
  _receive(push) {
    // Until the join is answered, messages are for other handles.
    if (!this.#isJoined) return;
    const { type, epoch, offset } = push;
    if (type === 'resync') {
      this._moveTo(push);
      this.emit(type, /** @type {Position} */ (this._position));
      return this.#gap(push.reloadAfterMs);
    }
    if (epoch) {
      const position = this._position;
      if (position?.epoch === epoch && offset <= /** @type {Position} */ (position).offset) return;
      this._moveTo(push);
      if (this.#membership._own.has(`${epoch} ${offset}`)) return;
    }
    if (!this.#waiting) this.#deliver(push);
    else if (this.#waiting.push(push) > MAX_WAITING) this.#gap();
  }

  /** Moves past own messages, which do not arrive. @param {Wire} [position] */
  _moveTo({ epoch, offset } = this._position ?? {}) {
    while (this.#membership._own.has(`${epoch} ${offset + 1}`)) offset++;
    this._position = epoch && { epoch, offset };
  }

  /** Loads the application's state again, because messages are missing. @param {number} [delayMs] */
  async #gap(delayMs = 0) {
    // A listener may have ended this handle.
    if (this.#hasLeft) return;
    const { recoverFailed } = this._options;
    const isLoading = this.#waiting;
    this.#resumeAt = this._position;
    this.#waiting = [];
    // The loop below drops the state being loaded, and loads it again.
    if (isLoading) return;
    if (recoverFailed) await sleep(delayMs);
    for (let attempt = 0; this.#waiting; ) {
      /** @type {Wire[]} */
      const waiting = this.#waiting;
      try {
        const state = await recoverFailed?.(this.#resumeAt);
        if (waiting !== this.#waiting) continue;
        this.#waiting = undefined;
        this.#processed = this.#resumeAt;
        this.emit('reset', state, this.#processed);
        for (const message of waiting) this.#deliver(message);
      } catch (cause) {
        if (!this.#waiting) return;
        const error = new FanfareError('STATE_UNAVAILABLE', { cause, room: this.name });
        if (!this.emit('error', error)) this.#client._report(error);
        await sleep(reconnectDelay(attempt++));
      }
    }
  }

  /** @param {Wire} message */
  #deliver({ type, room, payload, ...meta }) {
    if (this.#hasLeft) return;
    const { epoch, offset } = meta;
    if (epoch) this.#processed = { epoch, offset };
    if (type === 'message') this.emit('message', payload, /** @type {Meta} */ (meta));
  }
}

/** @param {number} ms */
function sleep(ms) {
  // Does not keep a Node program running. The connection does, while the client is open.
  return new Promise((resolve) => setTimeout(resolve, ms).unref?.());
}
