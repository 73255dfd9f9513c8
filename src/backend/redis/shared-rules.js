// shared-rules.js: exchanges the history rules of all servers over the channel of the fleet.
//
//   #?          a worker has started or is back: workers with rules answer
//   #<rules>    a worker's own rules, as in FANFARE_HISTORY; as an answer, and as a heartbeat
//
// A room must have history on every server or on none. If one server published there without
// offsets, it would break the guarantee of the others, and no reader could notice. So a worker
// adopts missing rules until it is restarted. Workers send their own rules only, so a rule ends
// with the servers that were started with it.

import { parseHistoryRules } from '../../config/room-patterns.js';

const HEARTBEAT_MS = 2000;
/** Time that a starting worker waits for the rules of other workers, which answer at once. */
const ANSWER_MS = 50;
/**
 * Interval between two answers. After an outage the whole fleet asks at once, and each answer
 * reaches all workers.
 */
const MIN_INTERVAL_MS = 20;
const MAX_MESSAGE_BYTES = 32 * 1024;
/** The most rules adopted from others, so that a stray program can't fill the memory. */
const MAX_ADOPTED = 100;
const ASK = Buffer.from('#?');

/** @typedef {import('../../config/room-patterns.js').HistoryRule} HistoryRule */

export class SharedRules {
  /**
   * @param {object} parts
   * @param {import('../../config/room-patterns.js').RoomRules<HistoryRule>} parts.rules of this
   *   worker; adopted rules are added
   * @param {(message: Buffer) => void} parts.send best effort
   * @param {(text: string) => void} parts.onAdopted called with the adopted rules
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
    this.saidMs = Number.NEGATIVE_INFINITY;
    /** @type {NodeJS.Timeout|null} */
    this.timer = null;
    /** The wait of a worker that starts. @type {Promise<void>|null} */
    this.settling = null;
  }

  /**
   * @param {Buffer} message of the fleet's channel
   * @returns {boolean} true if the message belongs to this exchange
   */
  static isOne(message) {
    return message[0] === ASK[0];
  }

  /** Redis is available, for the first time or again. */
  join() {
    this.isLive = true;
    this.send(ASK);
    this.#say();
    this.settling ??= new Promise((resolve) => void setTimeout(resolve, ANSWER_MS));
  }

  pause() {
    this.isLive = false;
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }

  /** Resolves when the other workers have had time to send their rules. */
  async settled() {
    await this.settling;
  }

  tick() {
    if (this.isLive && performance.now() - this.saidMs >= HEARTBEAT_MS) this.#say();
  }

  /**
   * @param {Buffer} message
   * @returns {boolean} false if the message is malformed
   */
  receive(message) {
    if (message.equals(ASK)) {
      if (this.isLive) this.#answer();
      return true;
    }
    if (message.equals(this.own)) return true;
    if (message.length > MAX_MESSAGE_BYTES) return false;
    const { rules, faults } = parseHistoryRules(message.toString('latin1', 1).split(','));
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

  /** Sends one answer for all workers that ask at the same time. */
  #answer() {
    if (this.timer !== null) return;
    const wait = this.saidMs + MIN_INTERVAL_MS - performance.now();
    if (wait <= 0) this.#say();
    else {
      this.timer = setTimeout(() => {
        this.timer = null;
        this.#say();
      }, wait).unref();
    }
  }

  #say() {
    if (!this.hasOwn) return;
    this.saidMs = performance.now();
    this.send(this.own);
  }
}
