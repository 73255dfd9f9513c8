// json-scan.js: checks a message against the JSON grammar (RFC 8259) and finds the protocol's
// fields.
//
// A payload travels as the client's bytes, so 1e400 and a lone \ud800 arrive unchanged. One scan
// checks the grammar and the depth, and records where the known fields are. It costs half of
// JSON.parse with a walk for the depth, and has no bad case: 1 MB of `[` blocks JSON.parse for
// 200 ms.
//
// Payloads may have any number of keys, with any names, because the server never makes objects of
// them and the scan is linear. What the server parses is stricter: the names of a command and the
// values of its known fields have a limit of keys, and none of three names.

export const MAX_JSON_DEPTH = 32;
/** The limit of what the server parses. Payloads have no such limit. */
export const MAX_JSON_KEYS = 256;
/** Names that do harm when an object is copied carelessly. Payloads may have them. */
const FORBIDDEN_KEYS = new Set(['__proto__', 'constructor', 'prototype']);

// They are not exported: V8 reads an exported constant from memory at each use, 5 % of a scan.
const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** The protocol's top-level fields, by their numbers. */
export const FIELDS = /** @type {const} */ ([
  ...['type', 'id', 'room', 'payload', 'text', 'presence', 'since', 'limit', 'after', 'echo'],
  ...['last', 'before', 'sinceTime', 'lastSeconds', 'idempotencyKey', 'key', 'expect'],
  'audience',
]);
const PAYLOAD = 3;
const NAMES = FIELDS.map((name) => Uint8Array.from(Buffer.from(name)));
/** The number of the field whose name may have this shape; -1: no field has. */
const BY_SHAPE = new Int8Array(64).fill(-1);
for (const [field, name] of NAMES.entries()) {
  const shape = shapeOf(name.length, name[0], name[1]);
  if (BY_SHAPE[shape] >= 0) throw new Error(`${FIELDS[field]}: choose other factors in shapeOf`);
  BY_SHAPE[shape] = field;
}

/**
 * The fields in the message that `scan` read last: a bit for each that is there, and where its
 * value is. If a name occurs twice, the last one counts, as in JSON.parse. The decoder reads
 * this record before the next scan.
 */
const found = {
  present: 0,
  starts: new Int32Array(FIELDS.length),
  ends: new Int32Array(FIELDS.length),
};
/** The end of the key that was read last. */
let keyEnd = 0;
let keys = 0;
/** Is a value being read that the server parses? */
let isStrict = true;
/** Why the last text was refused, and where. */
const fault = { at: 0, kind: /** @type {FaultKind} */ ('grammar') };

/** @typedef {'grammar'|'depth'|'keys'|'name'} FaultKind */

/**
 * Functions below that read a part return the index after it, or -1 if it is malformed.
 * @param {Buffer} b valid UTF-8
 * @returns {Readonly<typeof found>|null} its fields, valid until the next call; null if the message
 *   is not one JSON object within the limits
 */
export function scan(b) {
  found.present = 0;
  keys = 0;
  let i = skipSpace(b, 0);
  if (b[i] !== OPEN_BRACE) return refused(i);
  i = skipSpace(b, i + 1);
  if (b[i] === CLOSE_BRACE) return endOfMessage(b, i + 1);
  for (;;) {
    const keyStart = i;
    isStrict = true;
    i = skipKey(b, i);
    if (i < 0) return null;
    const field = fieldAt(b, keyStart, keyEnd);
    // An unknown field is never parsed.
    isStrict = field >= 0 && field !== PAYLOAD;
    const start = i;
    i = skipNested(b, i);
    if (i < 0) return null;
    if (field >= 0) {
      found.present |= 1 << field;
      found.starts[field] = start;
      found.ends[field] = i;
    }
    i = skipSpace(b, i);
    const c = b[i];
    if (c === CLOSE_BRACE) return endOfMessage(b, i + 1);
    if (c !== COMMA) return refused(i);
    i = skipSpace(b, i + 1);
  }
}

/** @param {Buffer} b @param {number} at after the object */
function endOfMessage(b, at) {
  const i = skipSpace(b, at);
  return i === b.length ? found : refused(i);
}

/** @param {number} at */
function refused(at) {
  fail(at);
  return null;
}

/**
 * Remembers a fault, also for readers that look at some bytes themselves.
 * @param {number} at @param {FaultKind} [kind] @returns {-1}
 */
export function fail(at, kind = 'grammar') {
  fault.at = at;
  fault.kind = kind;
  return -1;
}

/**
 * Where and why the last text was refused; valid until the next one is read.
 * @returns {Readonly<{at: number, kind: FaultKind}>}
 */
export function lastFault() {
  return fault;
}

/**
 * The fields before the fault, after a `scan` that has returned null; valid until the next `scan`.
 * @returns {Readonly<typeof found>}
 */
export function foundBeforeFault() {
  return found;
}

/**
 * Reads an object whose names `scan` does not know, as the HTTP API has. Its keys count from 0.
 * @param {Buffer} b valid UTF-8 @param {number} at the opening brace
 * @param {(name: string, start: number) => number} readMember reads the value that begins at
 *   `start`, and returns the index after it; -1 if it is malformed
 * @returns {number} the index after the object; -1 if it is malformed
 */
export function scanMembers(b, at, readMember) {
  keys = 0;
  if (b[at] !== OPEN_BRACE) return fail(at);
  let i = skipSpace(b, at + 1);
  if (b[i] === CLOSE_BRACE) return i + 1;
  for (;;) {
    const keyStart = i;
    isStrict = true;
    i = skipKey(b, i);
    if (i < 0) return -1;
    i = readMember(JSON.parse(b.toString('utf8', keyStart, keyEnd)), i);
    if (i < 0) return -1;
    i = skipSpace(b, i);
    const c = b[i];
    if (c === CLOSE_BRACE) return i + 1;
    if (c !== COMMA) return fail(i);
    i = skipSpace(b, i + 1);
  }
}

/**
 * Reads a value that stays bytes: only its depth is limited.
 * @param {Buffer} b valid UTF-8 @param {number} at
 */
export function skipPayload(b, at) {
  isStrict = false;
  return skipNested(b, at);
}

/**
 * Reads a value that the server may parse. Its keys count with those of the object around it.
 * @param {Buffer} b valid UTF-8 @param {number} at
 */
export function skipValue(b, at) {
  isStrict = true;
  return skipNested(b, at);
}

/**
 * A number below 64 that differs for all fields.
 * @param {number} length of a name @param {number} first its first byte @param {number} second
 */
function shapeOf(length, first, second) {
  return (length + 2 * first + 9 * second) & 63;
}

/**
 * @param {Buffer} b @param {number} at the opening quote of a key that has been checked
 * @param {number} end after its closing quote
 * @returns {number} the field of this name; -1: the protocol has none
 */
function fieldAt(b, at, end) {
  // Compared byte by byte, because a string made for each key costs more than the whole scan.
  const length = end - at - 2;
  const field = BY_SHAPE[shapeOf(length, b[at + 1], b[at + 2])];
  if (field >= 0 && NAMES[field].length === length) {
    const name = NAMES[field];
    let i = length - 1;
    while (i >= 0 && b[at + 1 + i] === name[i]) i--;
    if (i < 0) return field;
  }
  // Escaped keys are rare, so they may take the slow path.
  for (let i = at + 1; i < end; i++)
    if (b[i] === BACKSLASH) return FIELDS.indexOf(JSON.parse(b.toString('utf8', at, end)));
  return -1;
}

/** @param {Buffer} b @param {number} at @returns {number} the start of the value */
function skipKey(b, at) {
  if (b[at] !== QUOTE) return fail(at);
  const end = skipString(b, at + 1);
  if (end < 0) return -1;
  if (isStrict) {
    if (++keys > MAX_JSON_KEYS) return fail(at, 'keys');
    if (isForbidden(b, at, end)) return fail(at, 'name');
  }
  keyEnd = end;
  const colon = skipSpace(b, end);
  return b[colon] === COLON ? skipSpace(b, colon + 1) : fail(colon);
}

/** @param {Buffer} b @param {number} start the opening quote of a key @param {number} end */
function isForbidden(b, start, end) {
  if (end - start < 11) return false; // the shortest forbidden key and its quotes
  let isEscaped = false;
  for (let i = start + 1; i < end; i++) if (b[i] === BACKSLASH) isEscaped = true;
  if (isEscaped) return FORBIDDEN_KEYS.has(JSON.parse(b.toString('utf8', start, end)));
  return end - start <= 13 && FORBIDDEN_KEYS.has(b.toString('latin1', start + 1, end - 1));
}

/** Reads a value inside the object. @param {Buffer} b @param {number} at @returns {number} */
function skipNested(b, at) {
  let i = at;
  let depth = 0; // the number of open containers inside the message's object
  let objects = 0; // one bit a level, the innermost lowest; 1: an object
  for (;;) {
    const c = b[i];
    if (c === QUOTE) {
      i = skipString(b, i + 1);
    } else if (c === OPEN_BRACE || c === OPEN_BRACKET) {
      if (++depth >= MAX_JSON_DEPTH) return fail(i, 'depth'); // the message's object is a level too
      const isObject = c === OPEN_BRACE;
      i = skipSpace(b, i + 1);
      if (b[i] === (isObject ? CLOSE_BRACE : CLOSE_BRACKET)) {
        depth--;
        i++;
      } else {
        objects = (objects << 1) | (isObject ? 1 : 0);
        if (isObject) i = skipKey(b, i);
        if (i < 0) return -1;
        continue;
      }
    } else {
      i = c === MINUS || (c >= ZERO && c <= NINE) ? skipNumber(b, i) : skipLiteral(b, i, c);
    }
    if (i < 0) return -1;
    // After a value: the ends of its containers, or a comma and the next value.
    for (;;) {
      if (depth === 0) return i;
      i = skipSpace(b, i);
      const isObject = (objects & 1) === 1;
      const d = b[i];
      if (d === COMMA) {
        i = skipSpace(b, i + 1);
        if (isObject) i = skipKey(b, i);
        if (i < 0) return -1;
        break;
      }
      if (d !== (isObject ? CLOSE_BRACE : CLOSE_BRACKET)) return fail(i);
      depth--;
      objects >>>= 1;
      i++;
    }
  }
}

/** @param {Buffer} b @param {number} i @returns {number} */
export function skipSpace(b, i) {
  while (i < b.length) {
    const c = b[i];
    if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09) break;
    i++;
  }
  return i;
}

/** @param {Buffer} b @param {number} i after the quote @returns {number} after the closing one */
export function skipString(b, i) {
  const { length } = b;
  while (i < length) {
    // Four plain characters at a time save a third with 100 characters: 0.45 us, not 0.67.
    while (
      i + 4 <= length &&
      (PLAIN[b[i]] & PLAIN[b[i + 1]] & PLAIN[b[i + 2]] & PLAIN[b[i + 3]]) === 1
    )
      i += 4;
    while (i < length && PLAIN[b[i]] === 1) i++;
    const c = b[i];
    if (c === QUOTE) return i + 1;
    if (c !== BACKSLASH) return fail(i);
    const e = b[++i];
    if (e === 0x75) {
      // \u and four hexadecimal digits
      if (!(isHex(b[i + 1]) && isHex(b[i + 2]) && isHex(b[i + 3]) && isHex(b[i + 4])))
        return fail(endOfHex(b, i + 1));
      i += 4;
    } else if (ESCAPES[e] !== 1) return fail(i); // e is undefined if the text ends here
    i++;
  }
  return fail(i);
}

/** 1 for each byte that a string may contain unescaped. */
const PLAIN = new Uint8Array(256).fill(1, 0x20);
PLAIN[QUOTE] = PLAIN[BACKSLASH] = 0;

/** 1 for each byte that may follow a backslash. `u` is not among them, as digits follow it. */
const ESCAPES = new Uint8Array(256);
for (const byte of Buffer.from('"\\/bfnrt')) ESCAPES[byte] = 1;

/** @param {number} c */
function isHex(c) {
  return (c >= ZERO && c <= NINE) || (c >= 0x41 && c <= 0x46) || (c >= 0x61 && c <= 0x66);
}

/** @param {Buffer} b @param {number} i @returns {number} of the first byte that is no digit */
function endOfHex(b, i) {
  while (isHex(b[i])) i++;
  return i;
}

/** @param {Buffer} b @param {number} i @returns {number} */
function skipNumber(b, i) {
  if (b[i] === MINUS) i++;
  const whole = skipDigits(b, i);
  if (whole === i || (b[i] === ZERO && whole > i + 1)) return fail(i); // no digit, or a leading zero
  i = whole;
  if (b[i] === DOT) {
    const part = skipDigits(b, i + 1);
    if (part === i + 1) return fail(part);
    i = part;
  }
  if (b[i] === 0x65 || b[i] === 0x45) {
    i++;
    if (b[i] === 0x2b || b[i] === MINUS) i++;
    const power = skipDigits(b, i);
    if (power === i) return fail(i);
    i = power;
  }
  return i;
}

/** @param {Buffer} b @param {number} i @returns {number} of the first byte that is no digit */
function skipDigits(b, i) {
  while (i < b.length && b[i] >= ZERO && b[i] <= NINE) i++;
  return i;
}

/**
 * @param {Buffer} b @param {number} i @param {number} c the literal's first byte @returns {number}
 */
function skipLiteral(b, i, c) {
  const literal = c === 0x74 ? TRUE : c === 0x66 ? FALSE : c === 0x6e ? NULL : null;
  if (literal === null) return fail(i);
  for (let k = 1; k < literal.length; k++) if (b[i + k] !== literal[k]) return fail(i + k);
  return i + literal.length;
}

const TRUE = Buffer.from('true');
const FALSE = Buffer.from('false');
const NULL = Buffer.from('null');
