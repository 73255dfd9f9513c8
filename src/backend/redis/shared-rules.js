// shared-rules.js: the rules for rooms with history and with state that servers take from each
// other. Workers report:
//   knows   a hash of all patterns that a worker has rules for: its own, and adopted ones
//   rules   its own rules: {history, state: as in FANFARE_HISTORY and FANFARE_STATE, stateBytes: as
//           in FANFARE_STATE_MAX_BYTES}; only while another worker knows other patterns
//
// A room must have history, or state, on every server or on none: a publication without an offset
// would break the guarantee unnoticed. So a worker adopts the rules that it lacks, until it is
// restarted. It sends only its own: a rule ends with the servers that were started with it.
//
// Each message reaches all workers. So of workers with the same rules, one tells them.

import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import {
  isSharedPattern,
  MAX_RULES,
  parseHistoryRules,
  parseStateRules,
  ruleText,
} from '../../config/room-patterns.js';

/** So that a stray program cannot fill the memory. */
const MAX_ADOPTED = 100;
const MAX_STATE_BYTES = 999_999_999;
const HASH_CHARS = 16;

/** @import { HistoryRule, RoomRules } from '../../config/room-patterns.js' */
/** @import { Fields } from '../membership.js' */
/** @typedef {import('../../config/room-patterns.js').Rule<HistoryRule>} Rule */
/** @typedef {'history'|'state'} Kind */
/** @typedef {{history: string[], state: string[], stateBytes: number}} RulesText */

export class SharedRules {
  #adopted = 0;
  /** When any worker last told these rules. */
  #toldMs = Number.NEGATIVE_INFINITY;

  /**
   * @param {object} parts
   * @param {RoomRules<HistoryRule>} parts.rules of this worker; adopted rules are added
   * @param {(kind: Kind, patterns: string) => void} parts.onAdopted
   */
  constructor({ rules, onAdopted }) {
    this.rules = rules;
    this.onAdopted = onAdopted;
    const history = rules.own.filter(({ value }) => value.state === undefined);
    const state = rules.own.filter(({ value }) => value.state !== undefined);
    this.patterns = {
      history: new Set(history.map(({ pattern }) => pattern)),
      state: new Set(state.map(({ pattern }) => pattern)),
    };
    /** @type {RulesText} */
    this.own = {
      history: history.map(ruleText),
      state: state.map(ruleText),
      stateBytes: state[0]?.value.state?.maxBytes ?? 0,
    };
    this.knows = this.#hash();
  }

  /**
   * @param {number|null} sinceMs leaves out what another worker has told after this time; null:
   *   leaves out the rules
   * @param {Iterable<unknown>} known what the others know; none: nobody has reported yet
   * @returns {Fields}
   */
  toTell(sinceMs, known) {
    const { knows } = this;
    if (this.rules.own.length === 0 || sinceMs === null || this.#toldMs > sinceMs) return { knows };
    const others = [...known];
    if (others.length > 0 && others.every((one) => one === knows)) return { knows };
    this.#toldMs = performance.now();
    return { knows, rules: this.own };
  }

  /** @param {unknown} rules of another worker @returns {boolean} false if they are malformed */
  read(rules) {
    if (!isRulesText(rules)) return false;
    if (isDeepStrictEqual(rules, this.own)) {
      this.#toldMs = performance.now();
      return true;
    }
    const { history, state, stateBytes } = rules;
    const parsed = {
      history: parseHistoryRules(history, isSharedPattern),
      state: parseStateRules(state, stateBytes),
    };
    if (parsed.history.faults.length + parsed.state.faults.length > 0) return false;
    this.#adopt('history', parsed.history.rules);
    this.#adopt('state', parsed.state.rules);
    return true;
  }

  /** @param {Kind} kind @param {readonly Rule[]} rules */
  #adopt(kind, rules) {
    const patterns = this.patterns[kind];
    const fresh = rules
      .filter(({ pattern }) => !patterns.has(pattern))
      .slice(0, MAX_ADOPTED - this.#adopted);
    if (fresh.length === 0) return;
    this.#adopted += fresh.length;
    // The rules for state apply before all others.
    this.rules.addRules(fresh, kind === 'state');
    for (const { pattern } of fresh) patterns.add(pattern);
    this.knows = this.#hash();
    this.onAdopted(kind, fresh.map(({ pattern }) => pattern).join());
  }

  #hash() {
    const { history, state } = this.patterns;
    const text = JSON.stringify([[...history].sort(), [...state].sort()]);
    return createHash('sha1').update(text).digest('hex').slice(0, HASH_CHARS);
  }
}

/** @param {any} rules @returns {rules is RulesText} */
function isRulesText(rules) {
  const { history, state, stateBytes } = rules ?? {};
  const areTexts = [history, state].every(
    (list) =>
      Array.isArray(list) &&
      list.length <= MAX_RULES &&
      list.every((entry) => typeof entry === 'string'),
  );
  if (!areTexts || !Number.isInteger(stateBytes) || stateBytes > MAX_STATE_BYTES) return false;
  return state.length === 0 || stateBytes > 0;
}
