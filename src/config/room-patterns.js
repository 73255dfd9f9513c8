// room-patterns.js: which rooms, by their names, have history, state and presence, and how much.
//   FANFARE_HISTORY=chat.*=100/300s, news=1000/1h     the last 100 publications, for 300 s after the latest
//   FANFARE_STATE=price.*=1000/1h every 100ms         the newest publication of up to 1000 keys
//   FANFARE_PRESENCE=chat.*, lobby
//
// A pattern is a room name in which `*` matches any number of characters. The first rule that
// matches applies. The results of up to MAX_REMEMBERED rooms are cached.

const PATTERN = /^[A-Za-z0-9_.:@/*-]{1,200}$/;
/** Names that begin with it belong to doors of other protocols. No native client can give one. */
const INTERNAL = '~';
const MAX_REMEMBERED = 20_000;
const MAX_HISTORY_SIZE = 10_000;
const MAX_HISTORY_TTL_MS = 7 * 86_400_000;
/** The most keys of a room with state: reads of Redis take a time in proportion to them. */
const MAX_STATE_KEYS = 10_000;
const MAX_STATE_TTL_MS = 30 * 86_400_000;
const MAX_INTERVAL_MS = 60_000;
export const MAX_RULES = 100;
const UNIT_MS = /** @type {Readonly<Record<string, number>>} */ (
  Object.freeze({ ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 })
);

/**
 * @typedef {object} HistoryRule how much of a room's history is stored
 * @property {number} size publications; in a room with state, keys
 * @property {number} ttlMs since the latest publication; then the whole history or state is deleted
 * @property {StateBounds} [state] the room has state: of each key the newest publication is kept
 */

/**
 * @typedef {object} StateBounds
 * @property {number} everyMs members get changes at most once in this time; 0: at once
 * @property {number} maxBytes of all keys and their publications together
 */

/** The rule of a room with state. @typedef {HistoryRule & {state: StateBounds}} StateRule */

/**
 * A rule for the rooms that match a pattern.
 * @template T
 * @typedef {{pattern: string, value: T}} Rule
 */

/** Looks up the rule of a room. @template T */
export class RoomRules {
  /** @param {readonly Rule<T>[]} rules */
  constructor(rules) {
    this.own = rules;
    /** @type {{parts: string[], value: T}[]} */
    this.rules = [];
    this.isEmpty = true;
    /** @type {Map<string, T|null>} */
    this.remembered = new Map();
    this.addRules(rules);
  }

  /**
   * Adds rules with a lower priority than the existing ones.
   * @param {readonly Rule<T>[]} rules @param {boolean} [isFirst] with a higher one
   */
  addRules(rules, isFirst = false) {
    const added = rules.map(({ pattern, value }) => ({ parts: pattern.split('*'), value }));
    this.rules = isFirst ? [...added, ...this.rules] : [...this.rules, ...added];
    this.isEmpty = this.rules.length === 0;
    this.remembered.clear();
  }

  /** @param {string} room @returns {T|null} null if no pattern matches */
  ruleFor(room) {
    if (this.isEmpty) return null;
    const known = this.remembered.get(room);
    if (known !== undefined) return known;
    // `*` is the room of all connections, and `*<id>` that of one worker. Clients can't join them.
    const rule = room.startsWith('*')
      ? undefined
      : this.rules.find(({ parts }) => shareSpace(parts[0], room) && fits(parts, room));
    const value = rule?.value ?? null;
    if (this.remembered.size >= MAX_REMEMBERED) this.remembered.clear();
    this.remembered.set(room, value);
    return value;
  }
}

/** @param {unknown} value @returns {value is string} a room name, or a pattern */
export function isRoomPattern(value) {
  return typeof value === 'string' && PATTERN.test(value);
}

/** Is it a room pattern, or a pattern of the rooms of doors? @param {string} value */
export function isAnyPattern(value) {
  return isRoomPattern(value.startsWith(INTERNAL) ? value.slice(1) : value);
}

/** The same, also of rooms of apps (protocol/app-names.js). @param {string} value */
export function isSharedPattern(value) {
  return isRoomPattern(value.startsWith(INTERNAL) ? value.slice(1).replaceAll('~', ':') : value);
}

/** `*` covers native rooms only. @param {string} pattern @param {string} room or their beginnings */
export function shareSpace(pattern, room) {
  return room.startsWith(INTERNAL) === pattern.startsWith(INTERNAL);
}

/**
 * Searches each part after the previous one, leftmost first: never in exponential time.
 * @param {readonly string[]} parts a pattern, split at its stars @param {string} room
 */
export function fits(parts, room) {
  const first = parts[0];
  const last = parts[parts.length - 1];
  if (parts.length === 1) return room === first;
  if (room.length < first.length + last.length || !room.startsWith(first) || !room.endsWith(last))
    return false;
  const end = room.length - last.length;
  let at = first.length;
  for (let i = 1; i < parts.length - 1; i++) {
    const found = room.indexOf(parts[i], at);
    if (found < 0 || found + parts[i].length > end) return false;
    at = found + parts[i].length;
  }
  return true;
}

/**
 * @param {readonly string[]} entries `pattern=size/ttl`
 * @param {(pattern: string) => boolean} [isPattern]
 * @returns {{rules: Rule<HistoryRule>[], faults: string[]}} one line per fault
 */
export function parseHistoryRules(entries, isPattern = isRoomPattern) {
  return parse(entries, isPattern, historyRule);
}

/** @param {string} entry `pattern=size/ttl` @returns {Rule<HistoryRule>|string} a fault */
export function historyRule(entry) {
  const match = /^([^=]*)=(\d{1,6})\/(\d{1,9})(ms|s|m|h|d)$/.exec(entry);
  if (match === null) return 'not pattern=size/time, as in chat.*=100/300s (or m, h, d)';
  const size = Number(match[2]);
  const ttlMs = Number(match[3]) * UNIT_MS[match[4]];
  if (size < 1 || size > MAX_HISTORY_SIZE) return `the size must be 1 to ${MAX_HISTORY_SIZE}`;
  if (ttlMs < 1000 || ttlMs > MAX_HISTORY_TTL_MS) return 'the time must be 1s to 7d';
  return { pattern: match[1], value: Object.freeze({ size, ttlMs }) };
}

/**
 * @param {readonly string[]} entries `pattern=keys/ttl`, perhaps with ` every interval`
 * @param {number} maxBytes of a room
 * @returns {{rules: Rule<StateRule>[], faults: string[]}} one line per fault
 */
export function parseStateRules(entries, maxBytes) {
  return parse(entries, isRoomPattern, (entry) => {
    const match = /^([^=]*)=(\d{1,6})\/(\d{1,9})(ms|s|m|h|d)(?: +every +(\d{1,6})(ms|s|m))?$/.exec(
      entry,
    );
    if (match === null)
      return 'not pattern=keys/time or pattern=keys/time every interval, as in price.*=1000/1h every 100ms';
    const size = Number(match[2]);
    const ttlMs = Number(match[3]) * UNIT_MS[match[4]];
    const everyMs = match[5] === undefined ? 0 : Number(match[5]) * UNIT_MS[match[6]];
    if (size < 1 || size > MAX_STATE_KEYS)
      return `the number of keys must be 1 to ${MAX_STATE_KEYS}`;
    if (ttlMs < 1000 || ttlMs > MAX_STATE_TTL_MS) return 'the time must be 1s to 30d';
    if (match[5] !== undefined && (everyMs < 1 || everyMs > MAX_INTERVAL_MS))
      return 'the interval must be 1ms to 60s';
    const state = Object.freeze({ everyMs, maxBytes });
    return { pattern: match[1], value: Object.freeze({ size, ttlMs, state }) };
  });
}

/** A rule as the settings have it. @param {Rule<HistoryRule>} rule */
export function ruleText({ pattern, value: { size, ttlMs, state } }) {
  const every = state === undefined || state.everyMs === 0 ? '' : ` every ${state.everyMs}ms`;
  return `${pattern}=${size}/${ttlMs}ms${every}`;
}

/**
 * The rules of rooms with a stream: those with state come first.
 * @param {{state: readonly Rule<HistoryRule>[], history: readonly Rule<HistoryRule>[]}} config
 * @returns {Rule<HistoryRule>[]}
 */
export function streamRulesOf({ state, history }) {
  return [...state, ...history];
}

/**
 * @param {readonly string[]} entries patterns @param {(pattern: string) => boolean} [isPattern]
 * @returns {{rules: Rule<true>[], faults: string[]}}
 */
export function parsePresenceRules(entries, isPattern = isRoomPattern) {
  return parse(entries, isPattern, presenceRule);
}

/** @param {string} pattern @returns {Rule<true>} */
export function presenceRule(pattern) {
  return { pattern, value: true };
}

/** Why a rule is refused whose pattern is none. */
export const NOT_A_PATTERN = 'not a pattern of room names, as chat.* is';

/**
 * @template T @param {readonly string[]} entries @param {(pattern: string) => boolean} isPattern
 * @param {(entry: string) => Rule<T>|string} read returns a fault, without the entry
 */
function parse(entries, isPattern, read) {
  const rules = [];
  const faults =
    entries.length > MAX_RULES
      ? [`${entries.length} patterns, at most ${MAX_RULES} are allowed`]
      : [];
  for (const entry of entries) {
    const rule = read(entry);
    if (typeof rule === 'string')
      faults.push(`${JSON.stringify(entry)}${rule.startsWith('not ') ? ' is ' : ': '}${rule}`);
    else if (!isPattern(rule.pattern))
      faults.push(`${JSON.stringify(rule.pattern)} is ${NOT_A_PATTERN}`);
    else rules.push(rule);
  }
  return { rules, faults };
}
