// values.js: sorted sets and streams as Redis keeps them.

import { Failure } from './resp.js';

/** Members in the order of their scores, and with the same score in that of their bytes. */
export class SortedSet {
  constructor() {
    /** @type {Map<string, number>} */
    this.scores = new Map();
    /** @type {[member: string, score: number][]|null} null: to be sorted */
    this.sorted = null;
  }

  get size() {
    return this.scores.size;
  }

  /** @param {string} member @param {number} score @returns {boolean} is it new? */
  put(member, score) {
    const isNew = !this.scores.has(member);
    if (isNew || this.scores.get(member) !== score) this.sorted = null;
    this.scores.set(member, score);
    return isNew;
  }

  /** @param {string} member @returns {boolean} */
  drop(member) {
    if (!this.scores.delete(member)) return false;
    this.sorted = null;
    return true;
  }

  /** @returns {[member: string, score: number][]} */
  list() {
    this.sorted ??= [...this.scores].sort(
      ([a, x], [b, y]) => x - y || (a < b ? -1 : a > b ? 1 : 0),
    );
    return this.sorted;
  }

  clone() {
    const copy = new SortedSet();
    copy.scores = new Map(this.scores);
    return copy;
  }
}

/** @typedef {{ms: number, seq: number}} StreamId */
/** @typedef {StreamId & {fields: string[]}} Entry */

const LARGEST = 2 ** 53;
/** How many entries and bytes Redis keeps in one node; `~` trims whole nodes. */
const NODE_ENTRIES = 100;
const NODE_BYTES = 4096;

export class Stream {
  constructor() {
    /** @type {Node[]} */
    this.nodes = [];
    /** @type {StreamId} */
    this.last = { ms: 0, seq: 0 };
    this.length = 0;
  }

  /** @param {StreamId} id @param {string[]} fields */
  append(id, fields) {
    if (compareIds(id, this.last) <= 0) {
      throw new Failure(
        'ERR The ID specified in XADD is equal or smaller than the target stream top item',
      );
    }
    let node = this.nodes.at(-1);
    if (node === undefined || !node.hasRoom(fields)) this.nodes.push((node = new Node(id, fields)));
    node.append({ ...id, fields });
    this.last = id;
    this.length += 1;
  }

  /** @returns {Generator<Entry>} from the oldest one */
  *entries() {
    for (const node of this.nodes) yield* node.entries;
  }

  /**
   * @param {StreamId} from @param {StreamId} to both included @param {number} count
   * @param {boolean} isReversed @returns {Entry[]}
   */
  range(from, to, count, isReversed) {
    const found = [...this.entries()].filter(
      (entry) => compareIds(entry, from) >= 0 && compareIds(entry, to) <= 0,
    );
    if (isReversed) found.reverse();
    return found.slice(0, count);
  }

  /** @param {StreamId} id @returns {boolean} */
  drop(id) {
    for (const node of this.nodes) {
      const at = node.entries.findIndex((entry) => compareIds(entry, id) === 0);
      if (at < 0) continue;
      node.entries.splice(at, 1);
      if (node.entries.length === 0) this.nodes.splice(this.nodes.indexOf(node), 1);
      this.length -= 1;
      return true;
    }
    return false;
  }

  /**
   * @param {(oldest: Entry, length: number) => boolean} isTooOld
   * @param {boolean} isExact otherwise only whole nodes go
   * @returns {number} how many entries went
   */
  trim(isTooOld, isExact) {
    const before = this.length;
    while (this.nodes.length > 0) {
      const { entries } = this.nodes[0];
      // A node goes if all of its entries do.
      const last = /** @type {Entry} */ (entries.at(-1));
      if (isTooOld(last, this.length - entries.length + 1)) {
        this.nodes.shift();
        this.length -= entries.length;
        continue;
      }
      while (isExact && entries.length > 0 && isTooOld(entries[0], this.length)) {
        entries.shift();
        this.length -= 1;
      }
      break;
    }
    return before - this.length;
  }

  clone() {
    const copy = new Stream();
    copy.nodes = this.nodes.map((node) => node.clone());
    copy.last = this.last;
    copy.length = this.length;
    return copy;
  }
}

/** Entries that Redis keeps in one piece of memory. */
class Node {
  /** @param {StreamId} first @param {string[]} fields of the first entry */
  constructor(first, fields) {
    this.first = first;
    this.names = fields.filter((_, i) => i % 2 === 0);
    /** @type {Entry[]} */
    this.entries = [];
    this.count = 0;
    // The head of the piece, and the master entry: three counts, the names, an end.
    this.bytes = 6 + 1 + integerBytes(1) + 2 + integerBytes(this.names.length) + 2;
    for (const name of this.names) this.bytes += itemBytes(name);
  }

  /** @param {string[]} fields of another entry @returns {boolean} */
  hasRoom(fields) {
    const added = fields.reduce((sum, { length }) => sum + length, 0);
    return this.bytes + added < NODE_BYTES && this.count < NODE_ENTRIES;
  }

  /** @param {Entry} entry */
  append(entry) {
    const names = entry.fields.filter((_, i) => i % 2 === 0);
    const hasSameNames =
      names.length === this.names.length && names.every((name, i) => name === this.names[i]);
    this.bytes +=
      2 + integerBytes(entry.ms - this.first.ms) + integerBytes(entry.seq - this.first.seq);
    if (!hasSameNames) this.bytes += integerBytes(names.length);
    for (const [i, text] of entry.fields.entries())
      if (i % 2 === 1 || !hasSameNames) this.bytes += itemBytes(text);
    this.bytes += integerBytes(entry.fields.length + 3);
    this.entries.push(entry);
    this.count += 1;
  }

  clone() {
    const copy = Object.assign(Object.create(Node.prototype), this);
    copy.entries = [...this.entries];
    return copy;
  }
}

/** @param {number} value @returns {number} bytes of an integer in a listpack, with its length */
function integerBytes(value) {
  if (value >= 0 && value <= 127) return 2;
  if (value >= -4096 && value <= 4095) return 3;
  if (value >= -32_768 && value <= 32_767) return 4;
  if (value >= -8_388_608 && value <= 8_388_607) return 5;
  if (value >= -2_147_483_648 && value <= 2_147_483_647) return 6;
  return 10;
}

/** @param {string} text @returns {number} bytes of a string in a listpack, with its length */
function itemBytes(text) {
  if (text.length < 20 && /^(?:0|-?[1-9]\d*)$/.test(text) && Number.isSafeInteger(Number(text)))
    return integerBytes(Number(text));
  const head = text.length < 64 ? 1 : text.length < 4096 ? 2 : 5;
  const size = head + text.length;
  const back =
    size < 128 ? 1 : size < 16_384 ? 2 : size < 2_097_152 ? 3 : size < 268_435_456 ? 4 : 5;
  return size + back;
}

/** @param {StreamId} a @param {StreamId} b @returns {number} */
export function compareIds(a, b) {
  return a.ms - b.ms || a.seq - b.seq;
}

/** @param {StreamId} id @returns {string} */
export function idText({ ms, seq }) {
  return `${ms}-${seq}`;
}

/**
 * @param {string} text an id, `-` or `+`
 * @param {number} missingSeq of an id without a sequence
 * @returns {StreamId}
 */
export function parseBound(text, missingSeq) {
  if (text === '-') return { ms: 0, seq: 0 };
  if (text === '+') return { ms: LARGEST, seq: LARGEST };
  return parseId(text, missingSeq);
}

/** @param {string} text @param {number} [missingSeq] of an id without a sequence @returns {StreamId} */
export function parseId(text, missingSeq = 0) {
  const match = /^(\d{1,20})(?:-(\d{1,20}))?$/.exec(text);
  if (match === null) {
    throw new Failure('ERR Invalid stream ID specified as stream command argument');
  }
  return { ms: Number(match[1]), seq: match[2] === undefined ? missingSeq : Number(match[2]) };
}

export const LARGEST_SEQ = LARGEST;
