// outgoing.js: messages that the application publishes, until each is accepted or refused.
//
// While there is no connection, a message is refused (`offline: 'reject'`) or waits (`'queue'`).
// Before the first connection it waits in any case, until the attempt succeeds or fails. Waiting
// messages are bounded by `maxPending`. If a connection breaks before the reply, the message may
// have been accepted. It is sent again only if the server remembers its idempotency key; otherwise
// the publisher gets `OUTCOME_UNKNOWN`.

import { reconnectDelay } from './delay.js';
import { errorOf, FanfareError } from './error.js';

/** @import { Command, Message } from './wire.js' */

/** @typedef {import('./wire.js').Position} Position */

/**
 * @typedef {object} Outgoing
 * @property {string} room
 * @property {number} id
 * @property {string} text the command
 * @property {boolean} isSent
 * @property {number} firstSentMs on the clock of performance.now(); 0: never
 * @property {(position: Partial<Position>) => void} resolve
 * @property {(error: FanfareError) => void} reject
 */

/**
 * @typedef {object} PublishOptions
 * @property {boolean} [echo] false: this connection does not receive the message itself
 * @property {string} [idempotencyKey] a server that remembers it accepts the message once
 */

/**
 * The client as its parts see it.
 * @typedef {object} Port
 * @property {() => boolean} isConnected
 * @property {() => import('./connection.js').State} state
 * @property {() => number} nextId
 * @property {(id: number, text: string, onReply: OnReply) => void} transmit
 * @property {(command: Command, onReply: OnReply) => void} request
 * @property {(command: Command) => Promise<Message>} ask
 * @property {(room: string) => void} forget the room is left
 * @property {(error: FanfareError) => void} report
 */

/**
 * Called once, with the reply or the error; null: the connection broke first.
 * @typedef {(reply: Message|null) => void} OnReply
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
    const state = this.#port.state();
    if (state === 'closed') throw new FanfareError('CLOSED', { room });
    const mayWait = this.#isQueueing || (state === 'connecting' && !this.#wasConnected);
    if (!mayWait && state !== 'connected') throw new FanfareError('OFFLINE', { room });
    const id = this.#port.nextId();
    const key = idempotencyKey ?? (this.#isQueueing ? randomKey() : undefined);
    const command = { type: 'message', id, room, payload, echo, idempotencyKey: key };
    const text = JSON.stringify(command);
    return new Promise((resolve, reject) => {
      const message = { room, id, text, isSent: false, firstSentMs: 0, resolve, reject };
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
    for (const message of this.#pending) this.#reject(message, isClosed ? 'CLOSED' : 'OFFLINE');
  }

  #flush() {
    clearTimeout(this.#pause);
    this.#pause = undefined;
    for (const message of this.#pending) this.#send(message);
  }

  /** @param {Outgoing} message */
  #send(message) {
    if (message.isSent || this.#pause !== undefined || !this.#port.isConnected()) return;
    message.isSent = true;
    message.firstSentMs ||= performance.now();
    this.#port.transmit(message.id, message.text, (reply) => {
      if (!this.#pending.has(message)) return;
      if (reply === null) this.#unanswered(message);
      else if (reply.type === 'error') this.#refused(message, errorOf(reply, message.room));
      else {
        this.#pending.delete(message);
        message.resolve({ epoch: reply.epoch, offset: reply.offset });
      }
    });
  }

  /** @param {Outgoing} message */
  #unanswered(message) {
    message.isSent = false;
    if (this.#isQueueing && this.#isRemembered(message)) return;
    this.#reject(message, 'OUTCOME_UNKNOWN');
  }

  /** @param {Outgoing} message @param {FanfareError} error */
  #refused(message, error) {
    const isSafe =
      error.retryable || (error.code === 'OUTCOME_UNKNOWN' && this.#isRemembered(message));
    if (!this.#isQueueing || !isSafe) {
      this.#pending.delete(message);
      return message.reject(error);
    }
    message.isSent = false;
    const delayMs = error.retryAfterMs ?? reconnectDelay({ code: 1011, attempt: 0 });
    this.#pause ??= setTimeout(() => this.#flush(), delayMs);
  }

  /**
   * Does the server accept the message once, however often it is sent?
   * @param {Outgoing} message
   */
  #isRemembered({ firstSentMs }) {
    return performance.now() - firstSentMs < this.#rememberedMs;
  }

  /** @param {Outgoing} message @param {import('./error.js').Code} code */
  #reject(message, code) {
    this.#pending.delete(message);
    message.reject(new FanfareError(code, { room: message.room }));
  }
}

function randomKey() {
  return crypto.getRandomValues(new Uint32Array(4)).join('-');
}
