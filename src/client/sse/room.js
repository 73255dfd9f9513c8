// room.js: one room of a stream: each message once, in order, as in `fanfare/client` (../room.js).
//
// After a gap the application loads its state again (`recoverFailed`). Live messages wait, and
// follow the new state. A further gap begins a new load, and the older state is dropped.

import { Emitter } from '../emitter.js';
import { State } from '../state.js';
import { FanfareError } from './error.js';

/** @import { Change, Meta } from '../room.js' */

const MAX_WAITING = 1000;
/** Longest time until a state that could not be loaded is loaded again. */
const RELOAD_MS = 10_000;

/** @typedef {import('../wire.js').Message} Wire */
/** @typedef {import('../wire.js').Position} Position */
/** @typedef {Pick<import('../room.js').JoinOptions, 'since'|'recoverFailed'>} JoinOptions */

/**
 * As in `fanfare/client` (../room.js).
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
  /** Does the application have a state that a gap would make wrong? */
  #isContinuing;
  /** Messages that wait for the state while it is loaded. @type {Wire[]|undefined} */
  #waiting;
  /** In a room with state. @type {State|undefined} */
  #state;

  /**
   * @param {string} name @param {JoinOptions} options
   * @param {(error?: FanfareError) => void} onEnd without an error: the room has been left
   */
  constructor(name, { since, recoverFailed }, onEnd) {
    super();
    this.name = name;
    /** Of the last message received. @type {Position|undefined} */
    this.since = since;
    /** Of the last message that the application has had. @type {Position|undefined} */
    this.position = since;
    this.#isContinuing = !!since;
    this.#recoverFailed = recoverFailed;
    this.#on = onEnd;
  }

  /**
   * The values of a room with state by key, which follow its changes.
   * @returns {ReadonlyMap<string, Payload>|undefined} undefined unless the room is known to be one
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
   * @returns {boolean|undefined} true: the stream has to begin anew, from the room's `since`
   */
  receive(push) {
    const { type, epoch, offset, recovered = false } = push;
    const position = positionOf(push);
    const { since } = this;
    if (type === 'joined') {
      const map = this.#state;
      this.#state = push.state && (map ?? new State());
      // The application's `since`: without a map there is nothing to continue.
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
    if (type === 'message') {
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
      // In a room with history `resync` follows if messages are missing.
      if (isContinuing && !epoch) this.#load(0);
    } else if (type === 'resync') {
      this.since = position;
      this.emit(type, position);
      this.#load(push.reloadAfterMs);
    }
  }

  /** Messages are missing. @param {number} afterMs */
  async #load(afterMs) {
    const { since } = this;
    /** @type {Wire[]} */
    const waiting = [];
    this.#waiting = waiting;
    // A program does not wait for it (../room.js).
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
      this.#on(new FanfareError('STATE_UNAVAILABLE', { message: 'recoverFailed failed', cause }));
      this.#load(RELOAD_MS * Math.random());
    }
  }

  /** @param {Wire} push */
  #deliver(push) {
    if (this.#hasLeft) return;
    const { type, room, payload, ...meta } = push;
    this.position = positionOf(push);
    this.emit('message', payload, /** @type {Meta} */ (meta));
  }
}

/** @param {Wire} push @returns {Position|undefined} undefined in a room without history */
function positionOf({ epoch, offset }) {
  return epoch && { epoch, offset };
}
