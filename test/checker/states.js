// states.js: what a record says about rooms with state: publications by epoch and offset, and the
// map that each member should have.
//
// A removal has no payload, so only its ack names its offset. Most rows are therefore judged at the
// end of the run, when all acks are there (invariants-of-states.js).

import { Held, SEES_ALL } from './held.js';

/** @typedef {import('./record.js').StateEvent} StateEvent */
/** @typedef {import('./record.js').StateWhat} StateWhat */

/**
 * A room of orders: each has a key of its own, and is removed when others have come. So removals
 * are forgotten all the time.
 */
export const ORDERS = 'k.orders';
const OPEN_ORDERS = 8;
const KEYS = 40;

/** @param {string} room @returns {number} how many keys it may have, and how many removals it keeps */
export const sizeOf = (room) => (room === ORDERS ? OPEN_ORDERS : KEYS);

/**
 * A publication to a key.
 * @typedef {object} Put
 * @property {string} value
 * @property {string} room
 * @property {string} key
 * @property {boolean} removes
 * @property {readonly string[]} audience who may see it; empty: everybody
 * @property {'ok'|'fail'|'info'|undefined} outcome
 */

/** What a member or an ack says is at an offset. @typedef {{key: string, value: string|null, isAcked: boolean}} Spot */

/** One epoch of a room. */
export class Line {
  /** @param {string} room @param {string} epoch */
  constructor(room, epoch) {
    this.room = room;
    this.epoch = epoch;
    /** By offset. @type {Map<number, Spot>} */
    this.spots = new Map();
    /** Offsets of each key, for `newest`. @type {Map<string, number[]>|null} */
    this.byKey = null;
  }

  toString() {
    return `${this.room} ${this.epoch}`;
  }

  /**
   * The newest publication of a key up to an offset. Only when all events have been seen.
   * @param {string} key @param {number} to
   * @param {boolean} [isAcked] only those with an ack
   * @returns {{offset: number, value: string|null}|undefined}
   */
  newest(key, to, isAcked = false) {
    const offsets = this.keys.get(key) ?? [];
    for (let i = offsets.length - 1; i >= 0; i--) {
      const offset = offsets[i];
      const spot = /** @type {Spot} */ (this.spots.get(offset));
      if (offset <= to && (spot.isAcked || !isAcked)) return { offset, value: spot.value };
    }
    return undefined;
  }

  /**
   * Is there an offset that nobody has seen?
   * @param {number} after @param {number} to
   */
  hasUnseen(after, to) {
    for (let offset = after + 1; offset <= to; offset++) if (!this.spots.has(offset)) return true;
    return false;
  }

  /** Offsets of each key, in order. */
  get keys() {
    if (this.byKey !== null) return this.byKey;
    /** @type {Map<string, number[]>} */
    const keys = new Map();
    for (const [offset, { key }] of [...this.spots].sort(([a], [b]) => a - b)) {
      const list = keys.get(key);
      if (list === undefined) keys.set(key, [offset]);
      else list.push(offset);
    }
    this.byKey = keys;
    return keys;
  }
}

/** A client in a room with state. */
export class StateMember {
  /** @param {number} client @param {string} room */
  constructor(client, room) {
    this.client = client;
    this.room = room;
    this.isOpen = false;
    this.openedAt = 0;
    /** The audiences that it holds. */
    this.held = SEES_ALL;
    /** Its latest join or reset. */
    this.begunAt = 0;
    this.isSynced = false;
    /** @type {Line|null} */
    this.line = null;
    /** Of its last change, or of `synced`. */
    this.last = 0;
    /** Everything up to this offset was in the room when the member joined or was reset. */
    this.until = 0;
    /** It began with an empty map at this offset; 0: it came back. */
    this.begins = 0;
    /** Its newest change of each key. @type {Map<string, {offset: number, value: string|null}>} */
    this.keys = new Map();
  }

  toString() {
    return `client ${this.client} in ${this.room}`;
  }
}

/** The map of a room at the backend, in calm. @typedef {{line: Line, offset: number, entries: Map<string, {offset: number, value: string}>}} Truth */

export class States {
  /** By value. @type {Map<string, Put>} */
  puts = new Map();
  /** @type {Map<string, Line>} */
  lines = new Map();
  /** @type {Map<string, StateMember>} */
  members = new Map();
  /** Of each room, the last one. @type {Map<string, Truth>} */
  truths = new Map();
  /** All of them. @type {Truth[]} */
  allTruths = [];
  /** Values that came after a join or a reset, and were there before it. @type {{member: string, line: Line, key: string, offset: number, until: number}[]} */
  snapshots = [];
  /** Maps that the server called whole. @type {{member: string, line: Line, offset: number, until: number, held: Held, begunAt: number, keys: Map<string, {offset: number, value: string|null}>}[]} */
  syncs = [];
  /** Removals that reached a member. @type {{member: string, line: Line, key: string, offset: number, held: Held}[]} */
  removals = [];
  /** Members whose positions were recovered. @type {{member: string, line: Line, since: number, offset: number}[]} */
  recoveries = [];
  /** Members that had to begin again, and what they had until then. @type {{member: string, line: Line, last: number, offset: number, isSameEpoch: boolean}[]} */
  resets = [];
  /** Two publications at one offset. @type {string[]} */
  clashes = [];

  /** @param {string} room @param {string} epoch */
  line(room, epoch) {
    const name = `${room} ${epoch}`;
    const line = this.lines.get(name) ?? new Line(room, epoch);
    this.lines.set(name, line);
    return line;
  }

  /** @param {number} client @param {string} room */
  member(client, room) {
    const name = `${client} ${room}`;
    const member = this.members.get(name) ?? new StateMember(client, room);
    this.members.set(name, member);
    return member;
  }

  /** @param {string|null} value @returns {readonly string[]} who may see it; empty: everybody */
  audienceOf(value) {
    return value === null ? [] : (this.puts.get(value)?.audience ?? []);
  }

  /** Rooms and keys with a publication whose outcome is unknown. @returns {Set<string>} */
  unknownKeys() {
    /** @type {Set<string>} */
    const unknown = new Set();
    for (const { room, key, outcome } of this.puts.values())
      if (outcome !== 'ok' && outcome !== 'fail') unknown.add(`${room} ${key}`);
    return unknown;
  }

  /** @param {StateEvent} event */
  see(event) {
    TAKEN[event.what](this, /** @type {never} */ (event));
  }

  /**
   * @param {Line} line @param {number} offset
   * @param {string} key @param {string|null} value @param {boolean} isAcked
   */
  place(line, offset, key, value, isAcked) {
    const spot = line.spots.get(offset);
    if (spot === undefined) line.spots.set(offset, { key, value, isAcked });
    else if (spot.key !== key || spot.value !== value)
      this.clashes.push(`${line}:${offset} is ${spot.key}=${spot.value}, and also ${key}=${value}`);
    else spot.isAcked ||= isAcked;
  }
}

/** @type {{[W in StateEvent['what']]: (states: States, event: Extract<StateEvent, {what: W}>) => void}} */
const TAKEN = {
  put(states, { value, room, key, removes = false, audience = [] }) {
    if (states.puts.has(value)) throw new Error(`the record is wrong: ${value} twice`);
    states.puts.set(value, { value, room, key, removes, audience, outcome: undefined });
  },

  holds(states, { t, client, room, may, surely }) {
    const member = states.member(client, room);
    if (member.held === SEES_ALL) member.held = new Held();
    member.held.become(may, surely, t);
  },

  ok(states, { value, epoch, offset }) {
    const put = settle(states, value, 'ok');
    const line = states.line(put.room, epoch);
    states.place(line, offset, put.key, put.removes ? null : value, true);
  },

  fail(states, { value }) {
    settle(states, value, 'fail');
  },

  info(states, { value }) {
    settle(states, value, 'info');
  },

  joined(states, { t, client, room, epoch, offset, recovered, since }) {
    const member = states.member(client, room);
    if (recovered && since !== undefined)
      states.recoveries.push({
        member: `${member}`,
        ...{ line: states.line(room, epoch), since, offset },
      });
    member.isOpen = true;
    member.openedAt = member.begunAt = t;
    member.begins = 0;
    if (recovered) begin(member, states.line(room, epoch), offset);
    else forget(member, states.line(room, epoch), offset);
  },

  reset(states, { t, client, room, epoch, offset }) {
    const member = states.member(client, room);
    const line = states.line(room, epoch);
    member.begunAt = t;
    if (member.held === SEES_ALL) {
      // Who began with an empty map has no keys that were removed before.
      const last = Math.max(member.last, member.begins);
      const isSameEpoch = member.line === line;
      states.resets.push({ member: `${member}`, line, last, offset, isSameEpoch });
    }
    forget(member, line, offset);
  },

  change(states, { client, room, key, value, epoch, offset }) {
    const member = states.member(client, room);
    const line = states.line(room, epoch);
    states.place(line, offset, key, value, false);
    member.last = offset;
    if (value === null && member.held !== SEES_ALL)
      states.removals.push({ member: `${member}`, line, key, offset, held: member.held.copy() });
    member.keys.set(key, { offset, value });
    if (offset <= member.until && member.line === line)
      states.snapshots.push({ member: `${member}`, line, key, offset, until: member.until });
  },

  synced(states, { client, room, epoch, offset }) {
    const member = states.member(client, room);
    member.isSynced = true;
    member.last = offset;
    const line = states.line(room, epoch);
    const { begunAt, keys } = member;
    const about = { member: `${member}`, held: member.held.copy(), begunAt };
    states.syncs.push({ ...about, line, offset, until: member.until, keys: new Map(keys) });
  },

  close(states, { client }) {
    for (const member of states.members.values())
      if (member.client === client) member.isOpen = member.isSynced = false;
  },

  truth(states, { room, epoch, offset, entries }) {
    const list = entries.map(
      ([key, value, at]) => /** @type {const} */ ([key, { value, offset: at }]),
    );
    const truth = { line: states.line(room, epoch), offset, entries: new Map(list) };
    states.truths.set(room, truth);
    states.allTruths.push(truth);
  },

  map() {},
};

/** @param {States} states @param {string} value @param {'ok'|'fail'|'info'} outcome */
function settle(states, value, outcome) {
  const put = states.puts.get(value);
  if (put === undefined) throw new Error(`the record is wrong: nobody published ${value}`);
  // A refusal may still follow an unknown outcome.
  put.outcome = outcome;
  return put;
}

/** @param {StateMember} member @param {Line} line @param {number} offset */
function begin(member, line, offset) {
  member.line = line;
  member.until = offset;
  member.isSynced = false;
}

/** @param {StateMember} member @param {Line} line @param {number} offset */
function forget(member, line, offset) {
  begin(member, line, offset);
  member.last = 0;
  member.begins = offset;
  member.keys = new Map();
}
