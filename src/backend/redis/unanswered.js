// unanswered.js: messages to Redis whose answers have not come. Their number and bytes are bounded,
// and so is the time that each waits.

import { MAX_BYTES_TO_REDIS } from '../../config/system-limits.js';
import { deferred } from '../deferred.js';

const MAX_MESSAGES = 10_000;

/** @import { Deferred } from '../deferred.js' */

export class UnansweredMessages {
  /** Gathered or written. */
  messages = 0;
  bytes = 0;
  /** Written, in order. @type {WrittenBatch[]} */
  batches = [];
  #answeredMs = 0;
  /** @type {Deferred<void>|null} */
  #idle = null;

  /**
   * @param {object} parts @param {import('./stall-aware-clock.js').StallAwareClock} parts.clock
   * @param {number} parts.timeoutMs for each answer
   * @param {(ms: number) => void} [parts.onPublishLag] from write to answer, once a batch
   * @param {(reason: string) => void} parts.onSilent the connection is unresponsive, not slow
   */
  constructor({ clock, timeoutMs, onPublishLag, onSilent }) {
    this.clock = clock;
    this.timeoutMs = timeoutMs;
    this.onPublishLag = onPublishLag;
    this.onSilent = onSilent;
  }

  /** As of the last `expireLate`. */
  get isWaiting() {
    return this.batches.length > 0;
  }

  /** @param {number} bytes of one more message */
  isFullFor(bytes) {
    return this.messages >= MAX_MESSAGES || this.bytes + bytes > MAX_BYTES_TO_REDIS;
  }

  /** A message has been gathered. */
  count() {
    this.messages++;
  }

  /** @param {number} bytes until the answer arrives */
  holdBytes(bytes) {
    this.bytes += bytes;
  }

  /** A message was answered, or never written. @param {number} bytes that it held */
  releaseBytes(bytes) {
    this.messages--;
    this.bytes -= bytes;
    if (this.messages === 0 && this.#idle !== null) {
      this.#idle.resolve();
      this.#idle = null;
    }
  }

  /** @param {Written[]} messages of a tick, about to be written @returns {WrittenBatch} */
  write(messages) {
    this.#forgetAnswered();
    const batch = new WrittenBatch(messages, this.clock.nowMs);
    this.batches.push(batch);
    return batch;
  }

  /** @param {WrittenBatch} batch of which a message was answered */
  answered(batch) {
    this.#answeredMs = this.clock.nowMs;
    batch.settle();
    if (batch.isTimed()) this.onPublishLag?.(performance.now() - batch.writtenAt);
  }

  #forgetAnswered() {
    const { batches } = this;
    while (batches.length > 0 && batches[0].unanswered === 0) batches.shift();
  }

  /** @param {number} nowMs on the live clock */
  expireLate(nowMs) {
    const { batches, timeoutMs } = this;
    this.#forgetAnswered();
    if (batches.length === 0 || nowMs - batches[0].writtenMs < timeoutMs) return;
    if (nowMs - Math.max(this.#answeredMs, batches[0].writtenMs) >= timeoutMs) {
      // Messages under way are rejected with the connection.
      this.onSilent(`no answer within ${timeoutMs} ms`);
      return;
    }
    for (const batch of batches) {
      if (nowMs - batch.writtenMs < timeoutMs) break;
      for (const message of batch.messages) message.expire();
    }
  }

  /** @returns {Promise<void>} Resolves when nothing is under way; time-outs bound the wait. */
  drained() {
    if (this.messages === 0) return Promise.resolve();
    this.#idle ??= deferred();
    return this.#idle.promise;
  }
}

/** A message. @typedef {{expire: () => void, reject: (error: Error) => void}} Written */

/** The messages of one write. */
export class WrittenBatch {
  #isTimed = false;

  /** @param {Written[]} messages @param {number} nowMs */
  constructor(messages, nowMs) {
    this.messages = messages;
    this.unanswered = messages.length;
    /** On the live clock. */
    this.writtenMs = nowMs;
    this.writtenAt = performance.now();
  }

  /** A message was answered, or will never be. */
  settle() {
    this.unanswered--;
  }

  /** Is this its first answer, whose time counts? */
  isTimed() {
    const isFirst = !this.#isTimed;
    this.#isTimed = true;
    return isFirst;
  }
}
