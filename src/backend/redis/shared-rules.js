// shared-rules.js: exchanges the history rules of all servers over the channel of the fleet.
//
//   #?          a worker has started or is back: workers with rules answer
//   #<rules>    a worker's own rules, as in FANFARE_HISTORY; when asked, and as a heartbeat
//
// A room must have history on every server or on none. If one server published there without
// offsets, it would break the guarantee of the others, and no reader could notice. So a worker
// adopts rules that it lacks, until it is restarted. Workers send their own rules only, so that a
// rule ends with the servers that were started with it.

import { parseHistoryRules } from '../../config/room-patterns.js';

const HEARTBEAT_MS = 2000;
/** How long a worker that starts waits for the rules of others: they answer at once. */
const ANSWER_MS = 50;
/**
 * Between two answers: after an outage a whole fleet asks at once, and each answer reaches all of
 * it.
 */
const MIN_INTERVAL_MS = 20;
const MAX_MESSAGE_BYTES = 32 * 1024;
/** Rules of others that a worker uses: a stray program must not make it remember without end. */
const MAX_ADOPTED = 100;
const ASK = Buffer.from('#?');

/** @typedef {import('../../config/room-patterns.js').HistoryRule} HistoryRule */

export class SharedRules {
  /**
   * @param {object} parts
   * @param {import('../../config/room-patterns.js').RoomRules<HistoryRule>} parts.rules of this
   *   worker; those of others are added
   * @param {(message: Buffer) => void} parts.send best effort
   * @param {(text: string) => void} parts.onAdopted rules of others that this worker did not have
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
    /** Of a worker that starts. @type {Promise<void>|null} */
    this.settling = null;
  }

  /**
   * @param {Buffer} message of the connectionCount channel
   * @returns {boolean} is it one of these?
   */
  static isOne(message) {
    return message[0] === ASK[0];
  }

  /** The bus is there, for the first time or again. */
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

  /** Resolves when the others have had time to tell their rules. */
  async settled() {
    await this.settling;
  }

  tick() {
    if (this.isLive && performance.now() - this.saidMs >= HEARTBEAT_MS) this.#say();
  }

  /**
   * @param {Buffer} message
   * @returns {boolean} false where it is malformed
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

  /** One answer for all that ask together. */
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
