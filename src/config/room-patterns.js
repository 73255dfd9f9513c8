// room-patterns.js: rules for rooms by their names. They decide which rooms have history, how much,
// and which rooms have presence.
//
//   FANFARE_HISTORY=chat.*=100/300s, news=1000/1h     the last 100 publications, for 300 s after the latest
//   FANFARE_PRESENCE=chat.*, lobby
//
// A pattern is a room name in which `*` matches any number of characters. The first rule that
// matches applies. Each publication looks up its room, so the results of up to MAX_REMEMBERED rooms
// are cached.

const PATTERN = /^[A-Za-z0-9_.:@/*-]{1,200}$/;
/** Names that begin with it belong to doors of other protocols. No native client can give one. */
const INTERNAL = '~';
const MAX_REMEMBERED = 20_000;
const MAX_HISTORY_SIZE = 10_000;
const MAX_HISTORY_TTL_MS = 7 * 86_400_000;
export const MAX_RULES = 100;
const UNIT_MS = /** @type {Readonly<Record<string, number>>} */ (
  Object.freeze({ ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 })
);

/**
 * How much of a room's history is stored.
 * @typedef {object} HistoryRule
 * @property {number} size publications
 * @property {number} ttlMs the whole history is deleted when this time has passed since the latest
 *   publication
 */

/**
 * A rule for the rooms that match a pattern.
 * @template T
 * @typedef {{pattern: string, value: T}} Rule
 */

/** Looks up the rule of a room. @template T */
export class RoomRules {
  /** @param {readonly Rule<T>[]} rules */
  constructor(rules) {
    /** The rules given at construction. */
    this.own = rules;
    /** @type {Set<string>} */
    this.patterns = new Set();
    /** @type {{parts: string[], value: T}[]} */
    this.rules = [];
    this.isEmpty = true;
    /** @type {Map<string, T|null>} */
    this.remembered = new Map();
    this.add(rules);
  }

  /** Adds rules with a lower priority than the existing ones. @param {readonly Rule<T>[]} rules */
  add(rules) {
    for (const { pattern, value } of rules) {
      this.patterns.add(pattern);
      this.rules.push({ parts: pattern.split('*'), value });
    }
    this.isEmpty = this.rules.length === 0;
    this.remembered.clear();
  }

  /** @param {string} pattern */
  has(pattern) {
    return this.patterns.has(pattern);
  }

  /** @param {string} room @returns {T|null} null if no pattern matches */
  of(room) {
    if (this.isEmpty) return null;
    const known = this.remembered.get(room);
    if (known !== undefined) return known;
    // `*` is the room of all connections, and `*<id>` that of one worker. Clients can't join them.
    const value = room.startsWith('*')
      ? null
      : (this.rules.find((rule) => isInSpace(rule, room) && fits(rule.parts, room))?.value ?? null);
    if (this.remembered.size >= MAX_REMEMBERED) this.remembered.clear();
    this.remembered.set(room, value);
    return value;
  }
}

/** @param {unknown} value @returns {value is string} a room name, or a pattern */
export function isRoomPattern(value) {
  return typeof value === 'string' && PATTERN.test(value);
}

/** As `isRoomPattern`, or a pattern of the rooms of doors. @param {string} value */
export function isAnyPattern(value) {
  return isRoomPattern(value.startsWith(INTERNAL) ? value.slice(1) : value);
}

/** `*` covers native rooms only. @param {{parts: readonly string[]}} rule @param {string} room */
function isInSpace({ parts }, room) {
  return room.startsWith(INTERNAL) === parts[0].startsWith(INTERNAL);
}

/**
 * Searches each part after the previous one, leftmost first. Unlike a regular expression, no
 * pattern can take exponential time.
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
  return parse(entries, isPattern, (entry) => {
    const match = /^([^=]*)=(\d{1,6})\/(\d{1,9})(ms|s|m|h|d)$/.exec(entry);
    if (match === null)
      return `${JSON.stringify(entry)} is not pattern=size/time, as in chat.*=100/300s`;
    const size = Number(match[2]);
    const ttlMs = Number(match[3]) * UNIT_MS[match[4]];
    if (size < 1 || size > MAX_HISTORY_SIZE)
      return `${JSON.stringify(entry)}: the size must be 1 to ${MAX_HISTORY_SIZE}`;
    if (ttlMs < 1000 || ttlMs > MAX_HISTORY_TTL_MS)
      return `${JSON.stringify(entry)}: the time must be 1s to 7d`;
    return { pattern: match[1], value: Object.freeze({ size, ttlMs }) };
  });
}

/**
 * @param {readonly string[]} entries patterns @param {(pattern: string) => boolean} [isPattern]
 * @returns {{rules: Rule<true>[], faults: string[]}}
 */
export function parsePresenceRules(entries, isPattern = isRoomPattern) {
  return parse(entries, isPattern, (pattern) => ({
    pattern,
    value: /** @type {const} */ (true),
  }));
}

/**
 * @template T @param {readonly string[]} entries @param {(pattern: string) => boolean} isPattern
 * @param {(entry: string) => Rule<T>|string} read returns a string for a fault
 */
function parse(entries, isPattern, read) {
  /** @type {Rule<T>[]} */
  const rules = [];
  const faults =
    entries.length > MAX_RULES
      ? [`${entries.length} patterns, at most ${MAX_RULES} are allowed`]
      : [];
  for (const entry of entries) {
    const rule = read(entry);
    if (typeof rule === 'string') faults.push(rule);
    else if (!isPattern(rule.pattern))
      faults.push(`${JSON.stringify(rule.pattern)} is not a pattern of room names, as chat.* is`);
    else rules.push(rule);
  }
  return { rules, faults };
}
