// publisher.js: publishes over the wire, and records the outcome of each message.
//
// `ok`: accepted. `fail`: certainly not accepted. `info`: unknown, because the error leaves it
// open, no answer came in time, or the connection ended first. A message of unknown outcome is
// never sent again.

import { WebSocket } from 'ws';

const OPEN_TIMEOUT_MS = 5000;
const REPLY_TIMEOUT_MS = 6000;
const RECONNECT_MS = 200;
/** Errors that prove that nothing was accepted; after others the outcome is unknown. */
const REFUSALS = new Set([
  'UNAVAILABLE',
  'RATE_LIMIT_EXCEEDED',
  'PERMISSION_DENIED',
  'MESSAGE_TOO_LARGE',
  'INVALID_ROOM',
  'STATE_FULL',
]);

/** @typedef {(outcome: 'ok'|'fail'|'info') => void} Settled */

export class Publisher {
  /**
   * @param {object} parts
   * @param {string} parts.id first part of its messages' values; `m` is for markers
   * @param {readonly string[]} parts.urls
   * @param {number} parts.window messages without a reply at a time; with 1 each is sent after the
   *   reply to the one before
   * @param {import('./record.js').Recorder} parts.recorder
   */
  constructor({ id, urls, window, recorder }) {
    this.id = id;
    this.urls = urls;
    this.window = window;
    this.recorder = recorder;
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
    /**
     * By id.
     * @type {Map<number, {value: string, timer: NodeJS.Timeout, settled: Settled|undefined}>}
     */
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
   * @param {Settled} [options.settled]
   * @returns {string} its value; '' if the publisher is not ready and sent nothing
   */
  publish(room, { isMarker = false, bytes = 0, key, removes, settled } = {}) {
    const { socket } = this;
    if (socket === null || !this.isReady) return '';
    const id = ++this.sequence;
    const value = `${this.id}:${id}:${room}`;
    this.recorder.write({
      type: 'invoke',
      value,
      via: this.attempts,
      server: this.server,
      ...(isMarker && { marker: true }),
      ...(key !== undefined && { room, key, removes }),
    });
    const timer = setTimeout(() => this.#expire(id, value), REPLY_TIMEOUT_MS);
    this.pending.set(id, { value, timer, settled });
    const content = bytes > 0 ? { value, padding: 'x'.repeat(bytes) } : value;
    const payload = removes ? null : content;
    socket.send(JSON.stringify({ type: 'message', id, room, key, payload }));
    return value;
  }

  /** @returns {Promise<void>} when it is closed and every message has its outcome */
  async stop() {
    this.isWanted = false;
    clearTimeout(this.timer);
    const { socket } = this;
    if (socket === null) return;
    await new Promise((resolve) => {
      socket.once('close', resolve);
      socket.close(1000);
      setTimeout(() => socket.terminate(), 1000).unref();
    });
  }

  #connect() {
    const number = Number.parseInt(this.id.slice(1), 10) || 0;
    this.server = (number + this.attempts) % this.urls.length;
    const socket = new WebSocket(this.urls[this.server], {
      handshakeTimeout: OPEN_TIMEOUT_MS,
      perMessageDeflate: false,
    });
    this.socket = socket;
    socket.on('message', (data) => {
      const { type, id, error, epoch, offset } = JSON.parse(String(data));
      if (type === 'ack') this.#settle(id, 'ok', { epoch, offset });
      else if (type === 'error')
        this.#settle(id, REFUSALS.has(error) ? 'fail' : 'info', { reason: error });
    });
    // `close` follows.
    socket.on('error', () => {});
    socket.on('close', () => {
      this.socket = null;
      this.late.clear();
      for (const id of [...this.pending.keys()]) this.#settle(id, 'info', { reason: 'closed' });
      if (!this.isWanted) return;
      this.attempts++;
      this.timer = setTimeout(() => this.#connect(), RECONNECT_MS);
    });
  }

  /** @param {number} id @param {string} value */
  #expire(id, value) {
    this.late.set(id, value);
    this.#settle(id, 'info', { reason: 'no reply' });
  }

  /**
   * @param {number} id
   * @param {'ok'|'fail'|'info'} type
   * @param {{reason?: string, epoch?: string, offset?: number}} about
   */
  #settle(id, type, about) {
    const message = this.pending.get(id);
    if (message === undefined) {
      // An answer after the time-out: the outcome stays unknown, but a refusal is a promise all the
      // same.
      const value = this.late.get(id);
      if (value !== undefined && type === 'fail')
        this.recorder.write({ type, value, reason: `${about.reason}, late` });
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
    message.settled?.(type);
  }
}
