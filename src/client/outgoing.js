// outgoing.js: messages that the application publishes, until each is accepted or refused.
//
// Without a connection, a message is refused (`offline: 'reject'`) or waits (`'queue'`). Before the
// first connection it always waits, until the attempt succeeds or fails. Waiting messages are
// bounded by `maxPending`. If a connection breaks before the reply, the message may have been
// accepted. It is sent again only if the server remembers its idempotency key; otherwise the
// publisher gets `OUTCOME_UNKNOWN`.

import { reconnectDelay } from './delay.js';
import { FanfareError } from './error.js';

/** @import { Command, Message } from './wire.js' */

/** @typedef {import('./wire.js').Position} Position */

/**
 * A command on its way.
 * @typedef {object} Sendable
 * @property {number} id
 * @property {string} [room]
 * @property {string} text the command, as JSON
 * @property {(reply: Message) => void} onReply
 * @property {(error: FanfareError) => void} onError also if the connection breaks before the reply:
 *   OUTCOME_UNKNOWN
 */

/**
 * @typedef {object} Waiting
 * @property {boolean} isSent
 * @property {number} firstSentMs on the clock of performance.now(); 0: never
 * @property {(error: FanfareError) => void} reject
 */

/** @typedef {Sendable & Waiting} Outgoing */

/**
 * @typedef {object} PublishOptions
 * @property {boolean} [echo] false: this connection does not receive the message itself
 * @property {string} [idempotencyKey] a server that remembers it accepts the message once
 */

/**
 * The client as its parts see it.
 * @typedef {object} Port
 * @property {import('./connection.js').Link} link
 * @property {() => number} nextId
 * @property {(command: Sendable) => void} transmit
 * @property {(
 *   command: Command & {room?: string},
 *   onReply?: Sendable['onReply'],
 *   onError?: Sendable['onError'],
 * ) => void} request
 * @property {(command: Command) => Promise<Message>} ask
 * @property {(room: {name: string}) => void} forget its membership has ended
 * @property {(error: FanfareError) => void} report
 */

export class Publisher {
  #port;
  #isQueueing;
  #maxPending;
  /** In the order of publishing. @type {Set<Outgoing>} */
  #pending = new Set();
  /** Has there been a connection since the client was opened? */
  #wasConnected = false;
  /** How long the server remembers idempotency keys. */
  #rememberedMs = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #pause;

  /** @param {Port} port @param {'reject'|'queue'} offline @param {number} maxPending */
  constructor(port, offline, maxPending) {
    this.#port = port;
    this.#isQueueing = offline === 'queue';
    this.#maxPending = maxPending;
  }

  /**
   * @param {string} room @param {unknown} payload @param {PublishOptions} [options]
   * @returns {Promise<Partial<Position>>} rejects with a FanfareError
   */
  async publish(room, payload, { echo, idempotencyKey } = {}) {
    if (payload === undefined) throw new TypeError('A payload is any JSON value.');
    if (this.#pending.size >= this.#maxPending) throw new FanfareError('QUEUE_FULL', { room });
    const { state } = this.#port.link;
    if (state === 'closed') throw new FanfareError('CLOSED', { room });
    const mayWait = this.#isQueueing || (state === 'connecting' && !this.#wasConnected);
    if (!mayWait && state !== 'connected') throw new FanfareError('OFFLINE', { room });
    const id = this.#port.nextId();
    const key = idempotencyKey ?? (this.#isQueueing ? randomKey() : undefined);
    const command = { type: 'message', id, room, payload, echo, idempotencyKey: key };
    const text = JSON.stringify(command);
    return new Promise((resolve, reject) => {
      /** @type {Outgoing} */
      const message = {
        room,
        id,
        text,
        isSent: false,
        firstSentMs: 0,
        reject,
        onReply: ({ epoch, offset }) => {
          this.#pending.delete(message);
          resolve({ epoch, offset });
        },
        onError: (error) => this.#refused(message, error),
      };
      this.#pending.add(message);
      this.#send(message);
    });
  }

  /** @param {number} [rememberedMs] of `welcome` */
  connected(rememberedMs = 0) {
    this.#rememberedMs = rememberedMs;
    this.#wasConnected = true;
    this.#flush();
  }

  /**
   * There is no connection, and none is being made.
   * @param {boolean} isClosed will there be none later, either?
   */
  disconnected(isClosed) {
    if (isClosed) {
      clearTimeout(this.#pause);
      this.#pause = undefined;
      this.#wasConnected = false;
    } else if (this.#isQueueing) return;
    for (const { room, reject } of this.#pending)
      reject(new FanfareError(isClosed ? 'CLOSED' : 'OFFLINE', { room }));
    this.#pending.clear();
  }

  #flush() {
    clearTimeout(this.#pause);
    this.#pause = undefined;
    for (const message of this.#pending) this.#send(message);
  }

  /** @param {Outgoing} message */
  #send(message) {
    if (message.isSent || this.#pause !== undefined || this.#port.link.state !== 'connected')
      return;
    message.isSent = true;
    message.firstSentMs ||= performance.now();
    this.#port.transmit(message);
  }

  /** @param {Outgoing} message @param {FanfareError} error */
  #refused(message, error) {
    // Does the server accept the message once, however often it is sent?
    const isRemembered = performance.now() - message.firstSentMs < this.#rememberedMs;
    const isSafe = error.retryable || (error.code === 'OUTCOME_UNKNOWN' && isRemembered);
    if (!this.#isQueueing || !isSafe) {
      this.#pending.delete(message);
      return message.reject(error);
    }
    message.isSent = false;
    const delayMs = error.retryAfterMs ?? reconnectDelay({ code: 1011, attempt: 0 });
    this.#pause ??= setTimeout(() => this.#flush(), delayMs);
  }
}

function randomKey() {
  return crypto.getRandomValues(new Uint32Array(4)).join('-');
}
