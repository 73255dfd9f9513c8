// shared-rules.js: exchanges the servers' rules for rooms with history, or for those with state,
// over the fleet's channel.
//   #?          a worker has started or is back: a worker with rules of either kind answers
//   #<rules>    a worker's own rules, as in FANFARE_HISTORY; as an answer, and as a heartbeat
//   #=<bytes>;<rules>    the same for rooms with state, as in FANFARE_STATE_MAX_BYTES and
//                        FANFARE_STATE. Older versions count it as malformed
//
// Each message reaches all workers. So a worker waits for a random time, and sends nothing if
// another worker sends the same rules meanwhile.
//
// A room must have history, or state, on every server or on none: a publication without an offset
// would break the guarantee unnoticed. So a worker adopts the rules that it lacks, until it is
// restarted. It sends only its own: a rule ends with the servers that were started with it.

import {
  isSharedPattern,
  parseHistoryRules,
  parseStateRules,
  ruleText,
} from '../../config/room-patterns.js';

/** A heartbeat follows the last message with the same rules after a random time in this range. */
const MIN_HEARTBEAT_MS = 2000;
const MAX_HEARTBEAT_MS = 6000;
/** How long a starting worker waits for the rules of others. */
const ANSWERS_MS = 80;
const MAX_ANSWER_MS = 30;
/** Few workers answer early, so that the others hear them: of 640 workers some four answer. */
const ANSWER_EXPONENT = 1 / 8;
/** Between answers, because after an outage the whole fleet asks at once. */
const MIN_INTERVAL_MS = 20;
const MAX_MESSAGE_BYTES = 32 * 1024;
/** So that a stray program cannot fill the memory. */
const MAX_ADOPTED = 100;
const START = '#'.charCodeAt(0);
const QUESTION = Buffer.from('#?');

/**
 * @typedef {object} Kind of rules, and its form in messages
 * @property {string} head of its messages
 * @property {boolean} asks sends the question for both kinds when a worker starts
 * @property {(rule: HistoryRule) => boolean} has
 * @property {(rules: readonly Rule[]) => string} format
 * @property {(text: string) => {rules: Rule[], faults: string[]}} parse
 * @property {boolean} isFirst do adopted rules apply before all others?
 */

/** @type {Kind} */
const HISTORY = {
  head: '#',
  asks: true,
  has: ({ state }) => state === undefined,
  format: (rules) => rules.map(ruleText).join(),
  parse: (text) => parseHistoryRules(text.split(','), isSharedPattern),
  isFirst: false,
};

/** @type {Kind} */
const STATE = {
  head: '#=',
  asks: false,
  has: ({ state }) => state !== undefined,
  format: (rules) => `${rules[0]?.value.state?.maxBytes};${rules.map(ruleText)}`,
  parse: (text) => {
    const [bytes, entries = ''] = text.split(';');
    const maxBytes = /^\d{1,9}$/.test(bytes) ? Number(bytes) : 0;
    if (maxBytes === 0) return { rules: [], faults: ['no bytes'] };
    return parseStateRules(entries.split(','), maxBytes);
  },
  isFirst: true,
};

/** @import { HistoryRule, RoomRules } from '../../config/room-patterns.js' */
/** @typedef {import('../../config/room-patterns.js').Rule<HistoryRule>} Rule */

export class SharedRules {
  /**
   * @param {object} parts
   * @param {RoomRules<HistoryRule>} parts.rules of this worker; adopted rules are added
   * @param {(message: Buffer) => void} parts.send best effort
   * @param {(text: string) => void} parts.onAdopted
   * @param {boolean} [parts.areOfState] the rules of rooms with state
   */
  constructor({ rules, send, onAdopted, areOfState = false }) {
    this.kind = areOfState ? STATE : HISTORY;
    this.rules = rules;
    this.send = send;
    this.onAdopted = onAdopted;
    const { head, has, format } = this.kind;
    const own = rules.own.filter(({ value }) => has(value));
    this.patterns = new Set(own.map(({ pattern }) => pattern));
    this.own = Buffer.from(head + format(own));
    this.hasOwn = own.length > 0;
    this.adopted = 0;
    this.isLive = false;
    /** When these rules were last sent by any worker, and when the next heartbeat is due. */
    this.saidMs = Number.NEGATIVE_INFINITY;
    this.heartbeatMs = Number.NEGATIVE_INFINITY;
    /** @type {NodeJS.Timeout|null} */
    this.timer = null;
    /** The first wait for answers. @type {Promise<void>|null} */
    this.settling = null;
  }

  /** Is it about rules? @param {Buffer} message on the fleet's channel */
  static isOne(message) {
    return message[0] === START;
  }

  /**
   * @param {Buffer} message about rules
   * @param {SharedRules} history @param {SharedRules} state
   * @returns {boolean} false if the message is malformed
   */
  static dispatch(message, history, state) {
    if (message.equals(QUESTION)) state.receive(message);
    const isOfState = message.toString('latin1', 0, STATE.head.length) === STATE.head;
    return (isOfState ? state : history).receive(message);
  }

  join() {
    this.isLive = true;
    if (this.kind.asks) this.send(QUESTION);
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

  /**
   * @param {Buffer} message the question, or rules of this kind
   * @returns {boolean} false if the message is malformed
   */
  receive(message) {
    if (message.equals(QUESTION)) {
      this.#answer();
      return true;
    }
    if (message.equals(this.own)) {
      this.#said();
      return true;
    }
    if (message.length > MAX_MESSAGE_BYTES) return false;
    const { head, parse, isFirst } = this.kind;
    const { rules, faults } = parse(message.toString('latin1', head.length));
    if (faults.length > 0) return false;
    const fresh = rules
      .filter(({ pattern }) => !this.patterns.has(pattern))
      .slice(0, MAX_ADOPTED - this.adopted);
    if (fresh.length === 0) return true;
    this.adopted += fresh.length;
    this.rules.add(fresh, isFirst);
    for (const { pattern } of fresh) this.patterns.add(pattern);
    this.onAdopted(fresh.map(({ pattern }) => pattern).join());
    return true;
  }

  /** Answers all workers that ask at the same time, unless another worker does. */
  #answer() {
    if (!this.isLive || this.timer !== null || !this.hasOwn) return;
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
