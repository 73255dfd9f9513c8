// outgoing.js: published messages, until the server accepts or refuses them.
//
// Without a connection, a message is refused (`offline: 'reject'`) or waits (`'queue'`); before the
// first one it always waits. Waiting messages are bounded by `maxPending`. If a connection breaks
// before the reply, a message is sent again only while the server remembers its idempotency key;
// otherwise the publisher gets `OUTCOME_UNKNOWN`.

import { checkRoom, NO_PAYLOAD } from './advice.js';
import { reconnectDelay } from './delay.js';
import { FanfareError } from './error.js';
import { promised } from './promised.js';

/** @import { Client, PublishOptions } from './client.js' */

/** @typedef {import('./wire.js').Position} Position */

/**
 * @typedef {object} Outgoing
 * @property {string} room @property {string} text the command, as JSON
 * @property {boolean} [_isSent]
 * @property {number} [_firstSentMs] by performance.now()
 * @property {FanfareError} [_doubt] why it may have been accepted
 * @property {(error: FanfareError|false|undefined, position?: Partial<Position>) => void} _settle
 */

export class OutgoingMessages {
  #client;
  #isQueueing;
  #maxPending;
  /** Messages in publishing order. @type {Set<Outgoing>} */
  #pending = new Set();
  /** Has the client connected since it was opened? */
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
  async publish(room, payload, { idempotencyKey, ...options } = {}) {
    if (!(/** @type {any} */ (globalThis).FANFARE_BRIEF)) checkRoom('publish', room);
    const { state } = this.#client;
    const mayWait = this.#isQueueing || (state === 'connecting' && !this.#wasConnected);
    const json = JSON.stringify(payload);
    // `undefined` or a function. The server closes a connection after three commands without it.
    if (!json)
      throw new FanfareError('INVALID_MESSAGE_FORMAT', {
        room,
        message: /** @type {any} */ (globalThis).FANFARE_BRIEF ? 'no payload' : NO_PAYLOAD,
      });
    // A missing value must not make a message public.
    if ('audience' in options && !options.audience?.length)
      throw new FanfareError('INVALID_MESSAGE_FORMAT', { room, message: 'no audience' });
    if (this.#pending.size >= this.#maxPending) throw new FanfareError('QUEUE_FULL', { room });
    if (state === 'closed' || !(mayWait || state === 'connected'))
      throw this.#client._offline(room);
    if (this.#isQueueing) idempotencyKey ??= newKey();
    // The server would take the connection's only room if none were named.
    const command = { ...options, type: 'message', room: room ?? '', idempotencyKey };
    const text = `${JSON.stringify(command).slice(0, -1)},"payload":${json}}`;
    return promised((settle) => {
      /** @type {Outgoing} */
      const message = { room, text, _settle: settle };
      this.#pending.add(message);
      this.#sendMessage(message);
    });
  }

  /** @param {number} [rememberedMs] of `welcome` */
  _connected(rememberedMs = 0) {
    this.#rememberedMs = rememberedMs;
    this.#wasConnected = true;
    this.#flush();
  }

  /** There is no connection. */
  _disconnected() {
    // There will be none later.
    if (this.#client.state === 'closed') this.#wasConnected = false;
    else if (this.#isQueueing) return;
    for (const { room, _settle, _doubt } of this.#pending)
      _settle(_doubt ?? this.#client._offline(room));
    this.#pending.clear();
    this.#flush();
  }

  #flush() {
    clearTimeout(this.#pause);
    this.#pause = undefined;
    for (const message of this.#pending) this.#sendMessage(message);
  }

  /** @param {Outgoing} message */
  #sendMessage(message) {
    if (message._isSent || this.#pause || this.#client.state !== 'connected') return;
    if (message._doubt && !this.#isRemembered(message))
      return this.#settleMessage(message, message._doubt);
    message._isSent = true;
    message._firstSentMs ??= performance.now();
    this.#client._request(
      message,
      (error, reply) => {
        if (error && error.code === 'OUTCOME_UNKNOWN') message._doubt = error;
        // Sends it again only if the server cannot accept it twice.
        if (
          error &&
          this.#isQueueing &&
          (error.retryable || (error === message._doubt && this.#isRemembered(message)))
        ) {
          message._isSent = false;
          const delayMs = reconnectDelay(0, {}, 1011, error.retryAfterMs);
          this.#pause ??= setTimeout(() => this.#flush(), delayMs);
          return;
        }
        this.#settleMessage(message, error, reply);
      },
      message.text,
    );
  }

  /** @param {Outgoing} message */
  #isRemembered({ _firstSentMs = 0 }) {
    return performance.now() - _firstSentMs < this.#rememberedMs;
  }

  /** @param {Outgoing} message @param {FanfareError|false} [error] @param {Partial<Position>} [reply] */
  #settleMessage(message, error, { epoch, offset } = {}) {
    this.#pending.delete(message);
    message._settle(error, { epoch, offset });
  }
}

let count = 0;
/** Unique among a user's clients, and no secret. React Native has no `crypto`. */
const newKey = () => [Date.now(), ++count, Math.random(), Math.random()].join('-');
