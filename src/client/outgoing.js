// outgoing.js: messages that the application publishes, until each is accepted or refused.
//
// Without a connection, a message is refused (`offline: 'reject'`) or waits (`'queue'`). Before the
// first connection it always waits, until the attempt succeeds or fails. Waiting messages are
// bounded by `maxPending`. If a connection breaks before the reply, the message may have been
// accepted. It is sent again only if the server remembers its idempotency key; otherwise the
// publisher gets `OUTCOME_UNKNOWN`.

import { reconnectDelay } from './delay.js';
import { FanfareError } from './error.js';

/** @import { Client, PublishOptions } from './client.js' */

/** @typedef {import('./wire.js').Position} Position */

/**
 * @typedef {object} Outgoing
 * @property {string} room
 * @property {string} text the command, as JSON
 * @property {boolean} [_isSent]
 * @property {number} [_firstSentMs] on the clock of performance.now()
 * @property {(position: Partial<Position>) => void} resolve
 * @property {(error: FanfareError) => void} reject
 */

export class Publisher {
  #client;
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

  /** @param {Client} client @param {{offline?: 'reject'|'queue', maxPending?: number}} options */
  constructor(client, { offline, maxPending = 1000 }) {
    this.#client = client;
    this.#isQueueing = offline === 'queue';
    this.#maxPending = maxPending;
  }

  /**
   * @param {string} room @param {unknown} payload @param {PublishOptions} [options]
   * @returns {Promise<Partial<Position>>} rejects with a FanfareError
   */
  async publish(room, payload, { key, echo, idempotencyKey } = {}) {
    const { state } = this.#client;
    const mayWait = this.#isQueueing || (state === 'connecting' && !this.#wasConnected);
    /** @type {import('./error.js').Code|undefined} */
    let refusal;
    if (this.#pending.size >= this.#maxPending) refusal = 'QUEUE_FULL';
    else if (state === 'closed') refusal = 'CLOSED';
    else if (!mayWait && state !== 'connected') refusal = 'OFFLINE';
    if (refusal) throw new FanfareError(refusal, { room });
    if (this.#isQueueing) idempotencyKey ??= randomKey();
    const text = JSON.stringify({ type: 'message', room, key, payload, echo, idempotencyKey });
    return new Promise((resolve, reject) => {
      /** @type {Outgoing} */
      const message = { room, text, resolve, reject };
      this.#pending.add(message);
      this.#send(message);
    });
  }

  /** @param {number} [rememberedMs] of `welcome` */
  _connected(rememberedMs = 0) {
    this.#rememberedMs = rememberedMs;
    this.#wasConnected = true;
    this.#flush();
  }

  /** There is no connection. @param {boolean} isClosed will there be none later? */
  _disconnected(isClosed) {
    if (isClosed) this.#wasConnected = false;
    else if (this.#isQueueing) return;
    for (const { room, reject } of this.#pending)
      reject(new FanfareError(isClosed ? 'CLOSED' : 'OFFLINE', { room }));
    this.#pending.clear();
    this.#flush();
  }

  /** Ends the pause. */
  #flush() {
    clearTimeout(this.#pause);
    this.#pause = undefined;
    for (const message of this.#pending) this.#send(message);
  }

  /** @param {Outgoing} message */
  #send(message) {
    if (message._isSent || this.#pause || this.#client.state !== 'connected') return;
    message._isSent = true;
    const sentMs = (message._firstSentMs ??= performance.now());
    this.#client._request(
      message,
      (error, reply) => {
        // It is sent again if the server certainly accepts it once.
        if (
          this.#isQueueing &&
          (error?.retryable ||
            (error?.code === 'OUTCOME_UNKNOWN' && performance.now() - sentMs < this.#rememberedMs))
        ) {
          message._isSent = false;
          const delayMs = error.retryAfterMs ?? reconnectDelay({ code: 1011 });
          this.#pause ??= setTimeout(() => this.#flush(), delayMs);
          return;
        }
        this.#pending.delete(message);
        if (error) message.reject(error);
        else message.resolve({ epoch: reply.epoch, offset: reply.offset });
      },
      message.text,
    );
  }
}

function randomKey() {
  return crypto.getRandomValues(new Uint32Array(4)).join('-');
}
