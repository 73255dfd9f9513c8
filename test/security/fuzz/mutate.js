// mutate.js: bytes that are nearly right: an entry of a corpus, changed in a few places.
//
// A mutation is a plan: the entry's number, and a list of steps of three numbers each. Whoever
// makes plans decides how: the short tests take them from fast-check, which makes a failing one
// small; the long script from a seed, because that is faster.

/** @typedef {readonly [kind: number, a: number, b: number]} Step */
/** @typedef {{entry: number, steps: readonly Step[]}} Plan */

/** Values at which lengths and counts are often wrong. */
const EDGES = Object.freeze([
  0, 1, 0x7d, 0x7e, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0xffff, 0x10000, 0x7fffffff, 0x80000000,
  0xffffffff,
]);
/** Larger inputs find nothing more. */
const MAX_BYTES = 20_000;

/** @type {readonly ((bytes: Buffer, a: number, b: number, corpus: Corpus) => Buffer)[]} */
const STEPS = [
  function flipBit(bytes, a, b) {
    if (bytes.length > 0) bytes[a % bytes.length] ^= 1 << (b & 7);
    return bytes;
  },
  function setByte(bytes, a, b) {
    if (bytes.length > 0) bytes[a % bytes.length] = b;
    return bytes;
  },
  function remove(bytes, a, b) {
    const at = a % (bytes.length + 1);
    return Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1 + (b % 16))]);
  },
  function repeat(bytes, a, b) {
    const at = a % (bytes.length + 1);
    const piece = bytes.subarray(at, at + 1 + (b % 64));
    return Buffer.concat([
      bytes.subarray(0, at),
      ...new Array(1 + ((b >>> 8) % 8)).fill(piece),
      bytes.subarray(at),
    ]);
  },
  function insertToken(bytes, a, b, { tokens }) {
    const at = a % (bytes.length + 1);
    return Buffer.concat([bytes.subarray(0, at), tokens[b % tokens.length], bytes.subarray(at)]);
  },
  function replaceByToken(bytes, a, b, { tokens }) {
    const at = a % (bytes.length + 1);
    const token = tokens[b % tokens.length];
    return Buffer.concat([bytes.subarray(0, at), token, bytes.subarray(at + token.length)]);
  },
  function append(bytes, a, b, { entries }) {
    return Buffer.concat([bytes, entries[b % entries.length].subarray(a % 3 === 0 ? a % 32 : 0)]);
  },
  function splice(bytes, a, b, { entries }) {
    return Buffer.concat([bytes.subarray(0, a % (bytes.length + 1)), entries[b % entries.length]]);
  },
  function cut(bytes, a) {
    return bytes.subarray(0, a % (bytes.length + 1));
  },
  function setNumber(bytes, a, b) {
    const width = [1, 2, 4][b % 3];
    if (bytes.length < width) return bytes;
    const transition = EDGES[(b >>> 4) % EDGES.length] % 256 ** width;
    bytes.writeUIntBE(transition, a % (bytes.length - width + 1), width);
    return bytes;
  },
  function swap(bytes, a, b) {
    const at = a % (bytes.length + 1);
    const end = at + (b % (bytes.length + 1 - at));
    return Buffer.concat([bytes.subarray(at, end), bytes.subarray(0, at), bytes.subarray(end)]);
  },
];

export const STEP_KINDS = STEPS.length;

export class Corpus {
  /** @param {{seeds: Record<string, string>, tokens: string[]}} json bytes as latin1 */
  constructor({ seeds, tokens }) {
    this.names = Object.keys(seeds);
    /** @type {Buffer[]} */
    this.entries = Object.values(seeds).map((text) => Buffer.from(text, 'latin1'));
    /** @type {Buffer[]} */
    this.tokens = tokens.map((text) => Buffer.from(text, 'latin1'));
  }

  /**
   * @param {Plan} plan
   * @returns {Buffer} its own
   */
  mutated({ entry, steps }) {
    /** @type {Buffer} */
    let bytes = Buffer.from(this.entries[entry % this.entries.length]);
    for (const [kind, a, b] of steps) {
      bytes = STEPS[kind % STEPS.length](bytes, a, b, this);
      if (bytes.length > MAX_BYTES) bytes = bytes.subarray(0, MAX_BYTES);
    }
    return Buffer.from(bytes);
  }
}

/**
 * Numbers from a seed (mulberry32).
 * @param {number} seed
 * @returns {() => number} 0 to 2³²-1
 */
export function numbersFrom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
}

/** @param {() => number} next @returns {Plan} */
export function planFrom(next) {
  const entry = next();
  /** @type {Step[]} */
  const steps = [];
  // Mostly one or two, because nearly valid input reaches the most code.
  const count = 1 + Math.min(next() % 6, next() % 6);
  while (steps.length < count) steps.push([next() % STEP_KINDS, next(), next()]);
  return { entry, steps };
}
