// claims-text.js: reads the claims of a token, and looks up its rights by their text.
//
// Most tokens have some registered claims, plain texts and whole numbers, beside their rights.
// readUsual() reads those from the bytes, and leaves all other tokens to JSON.parse().
//
// All users of a role have the same `rooms`, and most tokens have no longer claim. A known text of
// it is replaced by a marker, and the rest is parsed:
//
//   {"rooms":{"join":["chat.*"]},"sub":"alice"}  ->  {"rooms":"<marker>","sub":"alice"}
//
// The known text is a valid JSON object. So if the rest is valid and has the marker as its claim
// `rooms`, the whole is valid and has that object there. The marker is random for each process, so
// no token can contain it. In all other cases the whole text is parsed.
//
// In a handshake, whose caches are cold, JSON.parse() and the search for names that come twice are
// half of the cost of a token without its signature.

import { randomUUID } from 'node:crypto';

import { readRights } from './rights.js';
import { parseObject } from './strict-json.js';

/** As JSON libraries write it; with white space behind the colon the whole text is parsed. */
const NAME = '"rooms":';
const MARKER = randomUUID();
const QUOTED_MARKER = `"${MARKER}"`;
/** Different texts that are remembered. One more, and all of them are forgotten. */
const MAX_REMEMBERED = 1000;

/** @typedef {import('./rights.js').Rights} Rights */
/** @typedef {{claims: Record<string, unknown>, rights: Rights|null}} Parsed */

/** By the text of the claim. @type {Map<string, Rights>} */
const remembered = new Map();
const NO_RIGHTS = readRights();

const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * @param {Buffer} bytes the payload of a token whose signature is valid; may be longer
 * @param {number} length of the payload
 * @returns {Parsed|null} null: not UTF-8, or see parseObject(). `rights` is null if `rooms` has
 *   another shape; do not read `claims.rooms`, it may be a marker or absent.
 */
export function readClaims(bytes, length) {
  const usual = readUsual(bytes, length);
  if (usual !== null) return usual;
  let text;
  try {
    text = utf8.decode(bytes.subarray(0, length));
  } catch {
    return null;
  }
  return parseClaims(text);
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const OPEN = 0x7b;
const CLOSE = 0x7d;
const SPACE = 0x20;
const LAST_ASCII = 0x7f;
/** More of them may not be exact in a number. */
const MAX_DIGITS = 15;
/** The other claim has five letters. */
const ROOMS = Buffer.from('rooms"');

/** The claims with three letters, by them. @type {ReadonlyMap<number, keyof UsualClaims>} */
const USUAL_NAMES = new Map(
  /** @type {const} */ (['sub', 'iat', 'exp', 'nbf', 'jti', 'iss', 'aud']).map((name) => [
    Buffer.from(name).readUIntBE(0, 3),
    name,
  ]),
);

class UsualClaims {
  /** @type {string|number|undefined} */ sub = undefined;
  /** @type {string|number|undefined} */ iat = undefined;
  /** @type {string|number|undefined} */ exp = undefined;
  /** @type {string|number|undefined} */ nbf = undefined;
  /** @type {string|number|undefined} */ jti = undefined;
  /** @type {string|number|undefined} */ iss = undefined;
  /** @type {string|number|undefined} */ aud = undefined;
}

/**
 * Reads an object without white space: claims of USUAL_NAMES, ASCII texts without escapes, whole
 * numbers, and known rights.
 * @param {Buffer} bytes
 * @param {number} length
 * @returns {Parsed|null} null: it may be valid or not
 */
function readUsual(bytes, length) {
  const claims = new UsualClaims();
  /** @type {Rights|null} */
  let rights = null;
  // Each step ends at a comma or a brace. Bytes behind the payload end none that is accepted.
  for (let at = 0; at < length; ) {
    if (bytes[at] !== (at === 0 ? OPEN : COMMA) || bytes[at + 1] !== QUOTE) return null;
    at += 2;
    if (bytes[at + 3] === QUOTE) {
      const name = USUAL_NAMES.get((bytes[at] << 16) | (bytes[at + 1] << 8) | bytes[at + 2]);
      if (name === undefined || claims[name] !== undefined || bytes[at + 4] !== COLON) return null;
      const start = at + 5;
      at = bytes[start] === QUOTE ? endOfText(bytes, start, length) : endOfNumber(bytes, start);
      if (at < 0) return null;
      claims[name] =
        bytes[start] === QUOTE
          ? bytes.toString('latin1', start + 1, at - 1)
          : Number(bytes.toString('latin1', start, at));
    } else {
      for (let i = 0; i < ROOMS.length; i++) if (bytes[at + i] !== ROOMS[i]) return null;
      const start = at + ROOMS.length + 1;
      if (rights !== null || bytes[start - 1] !== COLON || bytes[start] !== OPEN) return null;
      for (at = start + 1; bytes[at] !== CLOSE; at++)
        if (at === length || bytes[at] > LAST_ASCII) return null;
      at++;
      // A known text is a whole object.
      rights = remembered.get(bytes.toString('latin1', start, at)) ?? null;
      if (rights === null) return null;
    }
    if (bytes[at] === CLOSE && at + 1 === length)
      return { claims: /** @type {any} */ (claims), rights: rights ?? NO_RIGHTS };
  }
  return null;
}

/**
 * @param {Buffer} bytes
 * @param {number} start a quote
 * @param {number} length
 * @returns {number} behind the next quote; -1: there is none, or another byte than plain ASCII
 */
function endOfText(bytes, start, length) {
  for (let at = start + 1; at < length; at++) {
    const byte = bytes[at];
    if (byte === QUOTE) return at + 1;
    if (byte < SPACE || byte > LAST_ASCII || byte === BACKSLASH) return -1;
  }
  return -1;
}

/**
 * @param {Buffer} bytes
 * @param {number} start
 * @returns {number} behind the digits; -1: no digit, a leading zero, or too many digits
 */
function endOfNumber(bytes, start) {
  if (bytes[start] === ZERO) return -1;
  let at = start;
  while (bytes[at] >= ZERO && bytes[at] <= NINE) at++;
  return at === start || at - start > MAX_DIGITS ? -1 : at;
}

/**
 * @param {string} text
 * @returns {Parsed|null}
 */
function parseClaims(text) {
  const named = text.indexOf(`${NAME}{`);
  if (named < 0) return parseWhole(text);
  const start = named + NAME.length;
  // No pattern of room names has a brace.
  const end = text.indexOf('}', start) + 1;
  const rooms = text.slice(start, end);
  const rights = remembered.get(rooms) ?? learn(rooms);
  if (rights === null) return parseWhole(text);
  const claims = parseObject(text.slice(0, start) + QUOTED_MARKER + text.slice(end));
  return claims?.rooms === MARKER ? { claims, rights } : parseWhole(text);
}

/**
 * @param {string} text
 * @returns {Parsed|null}
 */
function parseWhole(text) {
  const claims = parseObject(text);
  return claims === null ? null : { claims, rights: readRights(claims.rooms) };
}

/**
 * @param {string} rooms perhaps the text of a claim
 * @returns {Rights|null} null: it is not an object of rights
 */
function learn(rooms) {
  const claims = parseObject(`{${NAME}${rooms}}`);
  const rights = claims === null ? null : readRights(claims.rooms);
  if (rights === null) return null;
  if (remembered.size >= MAX_REMEMBERED) remembered.clear();
  // A slice would keep the whole payload in memory.
  remembered.set(Buffer.from(rooms).toString(), rights);
  return rights;
}
