// room.js: one room of a stream. Delivers each message once, in order, like ../room.js.
//
// After a gap the application loads its state again (`recoverFailed`) while live messages wait.
// Another gap meanwhile starts a new load, and the older result is dropped.

import { sentenceOf } from '../advice.js';
import { Emitter } from '../emitter.js';
import { State } from '../state.js';
import { FanfareError } from './error.js';

/** @import { Change, Meta } from '../room.js' */

const MAX_WAITING = 1000;
/** Longest delay before a failed load is repeated. */
const RELOAD_MS = 10_000;

/** @typedef {import('../wire.js').Message} Wire */
/** @typedef {import('../wire.js').Position} Position */
/** @typedef {Pick<import('../room.js').JoinOptions, 'since'|'recoverFailed'>} JoinOptions */

/**
 * The events of ../room.js that a stream has.
 * @template Payload
 * @typedef {{
 *   message: [payload: Payload, meta: Meta],
 *   joined: [about: {recovered: boolean, position: Position|undefined}],
 *   resync: [position: Position],
 *   change: [change: Change<Payload>],
 *   synced: [position: Position],
 *   reset: [state: any, position: Position|undefined],
 *   error: [error: FanfareError],
 *   left: [],
 * }} RoomEvents
 */

/** @template [Payload=any] @extends {Emitter<RoomEvents<Payload>>} */
export class Room extends Emitter {
  #on;
  #recoverFailed;
  #hasLeft = false;
  /** Would a gap make the application's state wrong? */
  #isContinuing;
  /** Messages that arrive while the state is loaded. @type {Wire[]|undefined} */
  #waiting;
  /** Only in a room with state. @type {State|undefined} */
  #state;

  /**
   * @param {string} name @param {JoinOptions} options
   * @param {(error?: FanfareError) => void} onEnd no error: the room was left
   */
  constructor(name, { since, recoverFailed }, onEnd) {
    super();
    this.name = name;
    /** Position of the last message received. @type {Position|undefined} */
    this.since = since;
    /** Position of the last message that the application received. @type {Position|undefined} */
    this.position = since;
    this.#isContinuing = !!since;
    this.#recoverFailed = recoverFailed;
    this.#on = onEnd;
  }

  /**
   * The current values of a room with state, by key.
   * @returns {ReadonlyMap<string, Payload>|undefined} undefined before the first join, and in other
   *   rooms
   */
  get state() {
    return this.#state?._values;
  }

  leave() {
    if (this.#hasLeft) return;
    this.#hasLeft = true;
    this.#waiting = undefined;
    // First: a listener may join again.
    this.#on();
    this.emit('left');
  }

  /**
   * @param {Wire} push
   * @returns {boolean|undefined} true: the stream must start again from the room's `since`
   */
  receive(push) {
    const { type, epoch, offset, recovered = false } = push;
    const position = pushPosition(push);
    const { since } = this;
    if (type === 'joined') {
      const map = this.#state;
      this.#state = push.state && (map ?? new State());
      // Recovered from the application's `since`, but there is no map to apply changes to.
      if (recovered && map !== this.#state) {
        this.since = undefined;
        return true;
      }
    }
    if (this.#state) {
      const event = this.#state._receive(push);
      this.since = this.position = this.#state._position;
      if (event) this.emit(.../** @type {['change', Change]} */ (event));
      if (type === 'joined') this.emit(type, { recovered, position });
      return;
    }
    // `position`: the message there is for others.
    if (type === 'message' || type === 'position') {
      const last = /** @type {number} */ (since?.offset);
      if (since?.epoch === epoch && offset <= last) return;
      this.since = position;
      if (!this.#waiting) this.#deliver(push);
      else if (this.#waiting.push(push) > MAX_WAITING) this.#load(0);
    } else if (type === 'joined') {
      const isContinuing = this.#isContinuing;
      this.#isContinuing = true;
      if (!isContinuing) this.since = this.position = position;
      this.emit(type, { recovered, position });
      // `resync` follows if messages of a room with history are missing.
      if (isContinuing && !epoch) this.#load(0);
    } else if (type === 'resync') {
      this.since = position;
      this.emit(type, position);
      this.#load(push.reloadAfterMs);
    }
  }

  /** Loads the application's state after a gap. @param {number} afterMs */
  async #load(afterMs) {
    const { since } = this;
    /** @type {Wire[]} */
    const waiting = [];
    this.#waiting = waiting;
    // Does not keep a Node program running.
    await new Promise((resolve) => setTimeout(resolve, afterMs).unref?.());
    try {
      const state = waiting === this.#waiting && (await this.#recoverFailed?.(since));
      if (waiting !== this.#waiting) return;
      this.#waiting = undefined;
      this.position = since;
      this.emit('reset', state, since);
      for (const push of waiting) this.#deliver(push);
    } catch (cause) {
      if (waiting !== this.#waiting) return;
      this.#on(
        new FanfareError('STATE_UNAVAILABLE', {
          message: /** @type {any} */ (globalThis).FANFARE_BRIEF
            ? 'recoverFailed failed'
            : sentenceOf('STATE_UNAVAILABLE', cause),
          cause,
        }),
      );
      this.#load(RELOAD_MS * Math.random());
    }
  }

  /** @param {Wire} push */
  #deliver(push) {
    if (this.#hasLeft) return;
    const { type, room, payload, ...meta } = push;
    this.position = pushPosition(push);
    if (type === 'message') this.emit(type, payload, /** @type {Meta} */ (meta));
  }
}

/** @param {Wire} push @returns {Position|undefined} undefined in a room without history */
function pushPosition({ epoch, offset }) {
  return epoch && { epoch, offset };
}
