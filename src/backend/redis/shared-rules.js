// shared-rules.js: exchanges the history rules of all servers over the channel of the fleet.
//
//   #?          a worker has started or is back: a worker with rules answers
//   #<rules>    a worker's own rules, as in FANFARE_HISTORY; as an answer, and as a heartbeat
//
// Each message reaches all workers. So a worker waits for a random time, and sends nothing if it
// hears its own rules meanwhile.
//
// A room must have history on every server or on none: a publication without offset would break the
// guarantee, and no reader could notice. So a worker adopts missing rules until it is restarted.
// Workers send their own rules only, so a rule ends with the servers that were started with it.

import { isAnyPattern, parseHistoryRules } from '../../config/room-patterns.js';

/** A heartbeat follows the latest one of the same rules after a random time between these two. */
const MIN_HEARTBEAT_MS = 2000;
const MAX_HEARTBEAT_MS = 6000;
/** Time that a starting worker waits for the rules of other workers. */
const ANSWERS_MS = 80;
const MAX_ANSWER_MS = 30;
/** Few answer early, so that the others hear them: 640 workers send some four answers. */
const ANSWER_EXPONENT = 1 / 8;
/** Interval between two answers: after an outage the whole fleet asks at once. */
const MIN_INTERVAL_MS = 20;
const MAX_MESSAGE_BYTES = 32 * 1024;
/** The most rules adopted from others, so that a stray program can't fill the memory. */
const MAX_ADOPTED = 100;
const ASK = Buffer.from('#?');

/** @import { HistoryRule, RoomRules } from '../../config/room-patterns.js' */

export class SharedRules {
  /**
   * @param {object} parts
   * @param {RoomRules<HistoryRule>} parts.rules of this worker; adopted rules are added
   * @param {(message: Buffer) => void} parts.send best effort
   * @param {(text: string) => void} parts.onAdopted
   */
  constructor({ rules, send, onAdopted }) {
    this.rules = rules;
    this.send = send;
    this.onAdopted = onAdopted;
    const entries = rules.own.map(
      ({ pattern, value: { size, ttlMs } }) => `${pattern}=${size}/${ttlMs}ms`,
    );
    this.own = Buffer.from(`#${entries}`);
    this.hasOwn = entries.length > 0;
    this.adopted = 0;
    this.isLive = false;
    /** The time of the latest message with these rules, and that of the next heartbeat. */
    this.saidMs = Number.NEGATIVE_INFINITY;
    this.heartbeatMs = Number.NEGATIVE_INFINITY;
    /** @type {NodeJS.Timeout|null} */
    this.timer = null;
    /** The wait of a worker that starts. @type {Promise<void>|null} */
    this.settling = null;
  }

  /** @param {Buffer} message of the fleet's channel @returns {boolean} is it for this exchange? */
  static isOne(message) {
    return message[0] === ASK[0];
  }

  join() {
    this.isLive = true;
    this.send(ASK);
    this.#say();
    this.settling ??= new Promise((resolve) => void setTimeout(resolve, ANSWERS_MS));
  }

  pause() {
    this.isLive = false;
    this.#clearTimer();
  }

  async settled() {
    await this.settling;
  }

  tick() {
    if (this.isLive && performance.now() >= this.heartbeatMs) this.#say();
  }

  /** @param {Buffer} message @returns {boolean} false if the message is malformed */
  receive(message) {
    if (message.equals(ASK)) {
      if (this.isLive) this.#answer();
      return true;
    }
    if (message.equals(this.own)) {
      this.#said();
      return true;
    }
    if (message.length > MAX_MESSAGE_BYTES) return false;
    const entries = message.toString('latin1', 1).split(',');
    const { rules, faults } = parseHistoryRules(entries, isAnyPattern);
    if (faults.length > 0) return false;
    const fresh = rules
      .filter(({ pattern }) => !this.rules.has(pattern))
      .slice(0, MAX_ADOPTED - this.adopted);
    if (fresh.length === 0) return true;
    this.adopted += fresh.length;
    this.rules.add(fresh);
    this.onAdopted(fresh.map(({ pattern }) => pattern).join());
    return true;
  }

  /** Sends one answer for all workers that ask at the same time, unless another worker does. */
  #answer() {
    if (this.timer !== null || !this.hasOwn) return;
    const random = MAX_ANSWER_MS * Math.random() ** ANSWER_EXPONENT;
    const wait = Math.max(random, this.saidMs + MIN_INTERVAL_MS - performance.now());
    this.timer = setTimeout(() => this.#say(), wait).unref();
  }

  #say() {
    if (!this.hasOwn) return;
    this.#said();
    this.send(this.own);
  }

  #said() {
    this.#clearTimer();
    const nowMs = performance.now();
    this.saidMs = nowMs;
    this.heartbeatMs =
      nowMs + MIN_HEARTBEAT_MS + Math.random() * (MAX_HEARTBEAT_MS - MIN_HEARTBEAT_MS);
  }

  #clearTimer() {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }
}
