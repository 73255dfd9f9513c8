// handover.js: moves a worker's hearing from the primary to a replica, without a loss, a repeat or
// a change of order.
//
// The replica passes on what the primary publishes, in the same order, some time later. So one
// message, a probe of this worker, divides both: the worker takes what comes before it from the
// primary, and what comes after it from the replica.
//   primary   a b c | d e   -> a b c
//   replica     a b c | d e ->       d e
//
// The side that reaches the probe first waits for the other one: what follows there is held. If the
// other side does not reach it within HOLD_MS, or too much is held, nothing has happened: the
// worker goes on with the primary, and begins again. It then needs twice as many probes, because
// messages were late in vain.
//
// A probe is chosen only if the PROOFS probes before it came back through the replica before the
// next one left: the replica keeps up.

const PROOFS = 3;
/**
 * After a replica that was left soon after a return, or was waited for in vain: as many probes, one
 * every 1.5 s.
 */
const MAX_PROOFS = 48;
const HOLD_MS = 1000;
/** After so long without a probe the replica's connection is replaced. */
const SILENCE_MS = 30_000;
const MAX_HELD_BYTES = 8 * 1024 * 1024;
/** Memory of a held message, in addition to its bytes. */
const OVERHEAD_BYTES = 128;

/** @typedef {{channel: Buffer, message: Buffer}} Held */

export class Handover {
  /** Probes in a row that came back in time. */
  proofs = 0;
  /** The probe that divides; 0: not chosen yet. */
  divider = 0;
  /** The messages after it, of each side that has reached it. */
  #ofPrimary = /** @type {Held[]|null} */ (null);
  #ofReplica = /** @type {Held[]|null} */ (null);
  #heldBytes = 0;
  /** Since when messages are held; on the live clock. */
  #holdsSinceMs = 0;

  /**
   * @param {object} parts
   * @param {(channel: Buffer, message: Buffer) => number} parts.tokenOf of a probe of this worker;
   *   0 if it is another message
   * @param {() => number} parts.lastToken of the latest probe sent
   * @param {() => number} parts.nextToken of the probe after it
   * @param {() => number} parts.nowMs on the live clock
   * @param {(channel: Buffer, message: Buffer) => void} parts.deliver
   * @param {() => void} parts.onDone the worker hears the replica from now on; called before the
   *   held messages are delivered
   * @param {number} parts.returns recent ones that did not last
   */
  constructor({ tokenOf, lastToken, nextToken, nowMs, deliver, onDone, returns }) {
    this.tokenOf = tokenOf;
    this.lastToken = lastToken;
    this.nextToken = nextToken;
    this.nowMs = nowMs;
    this.deliver = deliver;
    this.onDone = onDone;
    this.neededProofs = Math.min(PROOFS * 2 ** returns, MAX_PROOFS);
    /** When a probe last came through the replica; on the live clock. */
    this.heardMs = nowMs();
  }

  get isHolding() {
    return this.#ofPrimary !== null || this.#ofReplica !== null;
  }

  /** When something is due next; on the live clock. */
  get dueMs() {
    return this.isHolding ? this.#holdsSinceMs + HOLD_MS : this.heardMs + SILENCE_MS;
  }

  /** @param {number} nowMs on the live clock @returns {boolean} has the replica long been silent? */
  tick(nowMs) {
    if (nowMs < this.dueMs) return false;
    if (this.isHolding) {
      this.#giveUp();
      return false;
    }
    this.heardMs = nowMs;
    return true;
  }

  /** The primary published. @param {Buffer} channel @param {Buffer} message */
  hearPrimary(channel, message) {
    if (this.#ofPrimary !== null) return this.#hold(this.#ofPrimary, channel, message);
    const token = this.tokenOf(channel, message);
    if (token !== 0 && token === this.divider) {
      this.#begin();
      this.#ofPrimary = [];
    }
    this.deliver(channel, message);
    if (this.#ofReplica !== null && this.#ofPrimary !== null) this.#finish(this.#ofReplica);
  }

  /** The replica passed on. @param {Buffer} channel @param {Buffer} message */
  hearReplica(channel, message) {
    if (this.#ofReplica !== null) return this.#hold(this.#ofReplica, channel, message);
    const token = this.tokenOf(channel, message);
    if (token === 0) return;
    this.heardMs = this.nowMs();
    if (token === this.divider) {
      this.#begin();
      this.#ofReplica = [];
      if (this.#ofPrimary !== null) this.#finish(this.#ofReplica);
      return;
    }
    this.proofs = token === this.lastToken() ? this.proofs + 1 : 0;
    // A divider that was not published is replaced by the next one.
    if (this.#ofPrimary === null)
      this.divider = this.proofs >= this.neededProofs ? this.nextToken() : 0;
  }

  /** The replica is lost or late: goes on with the primary, and begins again. */
  reset() {
    const held = this.#ofPrimary ?? [];
    this.proofs = 0;
    this.divider = 0;
    this.#ofPrimary = this.#ofReplica = null;
    this.#heldBytes = 0;
    for (const { channel, message } of held) this.deliver(channel, message);
  }

  #begin() {
    if (!this.isHolding) this.#holdsSinceMs = this.nowMs();
  }

  /** @param {Held[]} held @param {Buffer} channel @param {Buffer} message slices of a read */
  #hold(held, channel, message) {
    this.#heldBytes += channel.length + message.length + OVERHEAD_BYTES;
    held.push({ channel, message });
    if (this.#heldBytes > MAX_HELD_BYTES) this.#giveUp();
  }

  #giveUp() {
    this.neededProofs = Math.min(2 * this.neededProofs, MAX_PROOFS);
    this.reset();
  }

  /** Both sides have reached the divider. @param {Held[]} held of the replica */
  #finish(held) {
    this.#ofPrimary = this.#ofReplica = null;
    this.onDone();
    for (const { channel, message } of held) this.deliver(channel, message);
  }
}
