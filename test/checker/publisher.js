// publisher.js: publishes over the wire, and records the outcome of each message.
//
// `ok`: accepted. `fail`: certainly not accepted. `info`: unknown, because the error leaves it
// open, no answer came in time, or the connection ended first. A message of unknown outcome is sent
// again only by a publisher with idempotency keys, which repeats it until it has an outcome.

import { WebSocket } from 'ws';
import { NO_REPLY } from './record.js';

const OPEN_TIMEOUT_MS = 5000;
const REPLY_TIMEOUT_MS = 6000;
const RECONNECT_MS = 200;
const REPEAT_MS = 500;
/** After a refusal, a stubborn one repeats a message after one of these pauses. */
const STUBBORN_MS = [500, 5000, 19_000];
/** A server keeps a key for five minutes. */
const REPEATED_FOR_MS = 60_000;
/** Errors that prove that nothing was accepted; after others the outcome is unknown. */
const REFUSALS = new Set([
  'UNAVAILABLE',
  'RATE_LIMIT_EXCEEDED',
  'PERMISSION_DENIED',
  'MESSAGE_TOO_LARGE',
  'INVALID_ROOM',
  'STATE_FULL',
  'CONFLICT',
  'IDEMPOTENCY_CONFLICT',
]);

/** Refusals that may be another answer later. */
const RETRYABLE = new Set(['UNAVAILABLE', 'STATE_FULL']);

/** @typedef {import('./record.js').Position} Position */
/** @typedef {import('./record.js').Expected} Expected */
/** @typedef {'ok'|'fail'|'info'} Outcome */
/**
 * `position`: the room's, with CONFLICT
 * @typedef {{reason?: string, epoch?: string, offset?: number, position?: Position}} About
 */
/** @typedef {(outcome: Outcome, about: About) => void} Settled */
/**
 * A message without an outcome.
 * @typedef {object} Pending
 * @property {string} value
 * @property {string} frame
 * @property {Expected|undefined} expect
 * @property {NodeJS.Timeout|undefined} timer
 * @property {number} sends
 * @property {number} givenUpMs on the clock of performance.now()
 * @property {Settled|undefined} settled
 */

export class Publisher {
  /**
   * @param {object} parts
   * @param {string} parts.id first part of its messages' values; `m` is for markers
   * @param {readonly string[]} parts.urls
   * @param {number} parts.window messages without a reply at a time; with 1 each is sent after the
   *   reply to the one before
   * @param {import('./record.js').Recorder} parts.recorder
   * @param {boolean} [parts.isKeyed] sends idempotency keys, and repeats what has no outcome
   * @param {boolean} [parts.isStubborn] sends idempotency keys, and repeats what was refused, as a user
   *   does who presses the button again
   */
  constructor({ id, urls, window, recorder, isKeyed = false, isStubborn = false }) {
    this.id = id;
    this.urls = urls;
    this.window = window;
    this.recorder = recorder;
    this.isKeyed = isKeyed;
    this.isStubborn = isStubborn;
    this.sequence = 0;
    this.attempts = 0;
    /** Which of the servers it is connected to. */
    this.server = 0;
    /** Messages that were certainly not accepted. */
    this.refused = 0;
    /** Those that were accepted, and when the last one was; on the clock of performance.now(). */
    this.accepted = 0;
    this.lastOkMs = 0;
    this.isWanted = false;
    /** @type {WebSocket|null} */
    this.socket = null;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** By id. @type {Map<number, Pending>} */
    this.pending = new Map();
    /**
     * Values by id: messages of this connection that got no answer in time.
     * @type {Map<number, string>}
     */
    this.late = new Map();
  }

  start() {
    this.isWanted = true;
    this.#connect();
  }

  /** May a message be sent now? */
  get isReady() {
    return this.socket?.readyState === WebSocket.OPEN && this.pending.size < this.window;
  }

  /**
   * @param {string} room
   * @param {object} [options]
   * @param {boolean} [options.isMarker]
   * @param {number} [options.bytes] of padding
   * @param {string} [options.key] in a room with state
   * @param {boolean} [options.removes] it
   * @param {Expected} [options.expect] the room's position
   * @param {readonly string[]} [options.audience]
   * @param {Settled} [options.settled]
   * @returns {string} its value; '' if the publisher is not ready and sent nothing
   */
  publish(room, { isMarker = false, bytes = 0, key, removes, expect, audience, settled } = {}) {
    if (!this.isReady) return '';
    const { isKeyed, isStubborn } = this;
    const id = ++this.sequence;
    const value = `${this.id}:${id}:${room}`;
    this.recorder.write({
      type: 'invoke',
      value,
      via: this.attempts,
      server: this.server,
      ...(isMarker && { marker: true }),
      ...(key !== undefined && { room, key, removes }),
      ...((isKeyed || isStubborn) && { keyed: true }),
      ...(expect !== undefined && { expect }),
      ...(audience !== undefined && { audience: [...audience] }),
    });
    const content = bytes > 0 ? { value, padding: 'x'.repeat(bytes) } : value;
    const payload = removes ? null : content;
    const more = { expect, audience, ...((isKeyed || isStubborn) && { idempotencyKey: value }) };
    /** @type {Pending} */
    const message = {
      value,
      frame: JSON.stringify({ type: 'message', id, room, key, payload, ...more }),
      expect,
      timer: undefined,
      sends: 0,
      givenUpMs: performance.now() + REPEATED_FOR_MS,
      settled,
    };
    this.pending.set(id, message);
    this.#send(id, message);
    return value;
  }

  /** @returns {Promise<void>} when it is closed and every message has its outcome */
  async stop() {
    this.isWanted = false;
    clearTimeout(this.timer);
    const { socket } = this;
    if (socket === null) return this.#forsake();
    await new Promise((resolve) => {
      socket.once('close', resolve);
      socket.close(1000);
      setTimeout(() => socket.terminate(), 1000).unref();
    });
  }

  /** Loses its connection, and returns. */
  leave() {
    this.socket?.terminate();
  }

  #connect() {
    const number = Number.parseInt(this.id.slice(1), 10) || 0;
    this.server = (number + this.attempts) % this.urls.length;
    const socket = new WebSocket(this.urls[this.server], {
      handshakeTimeout: OPEN_TIMEOUT_MS,
      perMessageDeflate: false,
    });
    this.socket = socket;
    socket.on('open', () => {
      // Only messages with a key outlive a connection.
      for (const [id, message] of this.pending) this.#send(id, message);
    });
    socket.on('message', (data) => {
      const { type, id, error, epoch, offset, position } = JSON.parse(String(data));
      if (type === 'ack') this.#settle(id, 'ok', { epoch, offset });
      else if (type === 'error') this.#refused(id, error, position);
    });
    // `close` follows.
    socket.on('error', () => {});
    socket.on('close', () => {
      this.socket = null;
      this.late.clear();
      if (!this.isKeyed || !this.isWanted) this.#forsake();
      for (const { timer } of this.pending.values()) clearTimeout(timer);
      if (!this.isWanted) return;
      this.attempts++;
      this.timer = setTimeout(() => this.#connect(), RECONNECT_MS);
    });
  }

  /** No answer will come. */
  #forsake() {
    for (const id of [...this.pending.keys()]) this.#settle(id, 'info', { reason: 'closed' });
  }

  /** @param {number} id @param {Pending} message */
  #send(id, message) {
    message.sends++;
    message.timer = setTimeout(() => this.#expire(id, message), REPLY_TIMEOUT_MS);
    this.socket?.send(message.frame);
  }

  /** @param {number} id @param {Pending} message */
  #expire(id, message) {
    if (this.isKeyed) return this.#repeat(id, message, 'no reply');
    this.late.set(id, message.value);
    this.#settle(id, 'info', { reason: NO_REPLY });
  }

  /** @param {number} id @param {Pending} message @param {string} reason why it has no outcome */
  #repeat(id, message, reason) {
    clearTimeout(message.timer);
    if (performance.now() > message.givenUpMs) return this.#settle(id, 'info', { reason });
    // A connection that ends meanwhile is another reason to send it.
    message.timer = setTimeout(() => this.#send(id, message), REPEAT_MS);
  }

  /** @param {number} id @param {string} error @param {Position|undefined} position */
  #refused(id, error, position) {
    const about = { reason: error, ...(position && { position }) };
    const message = this.pending.get(id);
    const isCertain = REFUSALS.has(error);
    if (this.isStubborn && message !== undefined && RETRYABLE.has(error) && message.sends < 3) {
      clearTimeout(message.timer);
      const delayMs = STUBBORN_MS[id % STUBBORN_MS.length];
      message.timer = setTimeout(() => this.#send(id, message), delayMs);
      return;
    }
    if (!this.isKeyed || message === undefined)
      return this.#settle(id, isCertain ? 'fail' : 'info', about);
    if (message.sends === 1 && isCertain) return this.#settle(id, 'fail', about);
    // The key comes first, so a repeat is not compared if an earlier one was accepted. A backend that
    // has lost the room has lost the key, too.
    if (error === 'CONFLICT')
      this.#settle(id, position?.epoch === message.expect?.epoch ? 'fail' : 'info', about);
    else if (error === 'IDEMPOTENCY_CONFLICT') this.#settle(id, 'fail', about);
    else this.#repeat(id, message, error);
  }

  /** @param {number} id @param {Outcome} type @param {About} about */
  #settle(id, type, about) {
    const message = this.pending.get(id);
    if (message === undefined) {
      // An answer after the time-out: the outcome stays unknown, but a refusal is a promise all the
      // same.
      const value = this.late.get(id);
      if (value !== undefined && type === 'fail')
        this.recorder.write({ type, value, reason: `${about.reason}, late` });
      else if (value !== undefined) this.recorder.write({ type: 'late', value });
      this.late.delete(id);
      return;
    }
    this.pending.delete(id);
    clearTimeout(message.timer);
    if (type === 'fail') this.refused++;
    if (type === 'ok') {
      this.accepted++;
      this.lastOkMs = performance.now();
    }
    this.recorder.write(
      /** @type {import('./record.js').What} */ ({ type, value: message.value, ...about }),
    );
    message.settled?.(type, about);
  }
}
