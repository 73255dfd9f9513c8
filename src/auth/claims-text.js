// claims-text.js: parses the claims of a token, and looks up its rights by their text.
//
// All users of a role have the same `rooms`, and most tokens have no longer claim. A known text of
// it is replaced by a marker, and the rest is parsed:
//
//   {"rooms":{"join":["chat.*"]},"sub":"alice"}  ->  {"rooms":"<marker>","sub":"alice"}
//
// The known text is a valid JSON object. So if the rest is valid and has the marker as its claim
// `rooms`, the whole is valid and has that object there. The marker is random for each process, so
// no token can contain it. In all other cases the whole text is parsed.

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

/**
 * @param {string} text the payload of a token whose signature is valid
 * @returns {Parsed|null} null: see parseObject(). `rights` is null if `rooms` has another shape; do
 *   not read `claims.rooms`, it may be the marker.
 */
export function parseClaims(text) {
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
