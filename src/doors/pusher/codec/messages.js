// messages.js: reads messages from Pusher clients: `{"event": …, "channel": …, "data": …}`.
//
// Depth and number of members are checked before JSON.parse, whose time grows with the depth (1 MB
// of `[`: 200 ms): no signature protects these messages. `data` keeps its source, so large numbers
// and unusual escapes reach other clients unchanged.

import { MAX_JSON_DEPTH } from '../../../protocol/json-scan.js';

/**
 * A JSON object and the text of its members.
 * @typedef {object} Parsed
 * @property {Readonly<Record<string, unknown>>} value
 * @property {(name: string) => string|undefined} sourceOf a member as it was written
 */

/**
 * @typedef {object} Message
 * @property {string} event @property {unknown} channel
 * @property {unknown} data @property {string} dataSource `data` as it was written; '': absent
 */

/** The bound of the protocol's own objects, which have up to four. Objects within may have more. */
const MAX_MEMBERS = 256;
const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** @param {string} text @returns {Message|null} null: malformed */
export function readMessage(text) {
  const parsed = readObject(text);
  if (parsed === null) return null;
  const { event, channel, data } = parsed.value;
  if (typeof event !== 'string') return null;
  return { event, channel, data, dataSource: parsed.sourceOf('data') ?? '' };
}

/**
 * For the server, `data` may also be a string that contains the object's JSON.
 * @param {Message} message @returns {Readonly<Record<string, unknown>>} empty: not an object
 */
export function fieldsOf({ data }) {
  if (typeof data === 'string') return readObject(data)?.value ?? NO_FIELDS;
  return isObject(data) ? data : NO_FIELDS;
}

/** @type {Readonly<Record<string, unknown>>} */
const NO_FIELDS = Object.freeze(Object.create(null));

/** Does the name belong to the protocol? @param {string} event */
export function isReserved(event) {
  return /^pusher(?:_internal)?:/.test(event);
}

/** @param {unknown} value @returns {value is Readonly<Record<string, unknown>>} */
export function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * @param {string} text
 * @returns {Parsed|null} null: not an object, deeper than MAX_JSON_DEPTH, or with more than
 *   MAX_MEMBERS members
 */
export function readObject(text) {
  const places = placesOf(text);
  if (places === null) return null;
  /** @type {unknown} */
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return null; // the parser's message quotes the text
  }
  if (!isObject(value)) return null;
  return { value, sourceOf: (name) => sourceIn(text, places, name) };
}

/**
 * Finds the top-level members. Does not check the JSON.
 * @param {string} text
 * @returns {number[]|null} for each member: start and end of its name, without quotes, then start
 *   and end of its value. Null: too deep, or too many
 */
function placesOf(text) {
  const places = [];
  let depth = 0;
  let nameStart = 0;
  let nameEnd = 0;
  let valueStart = -1;
  for (let i = 0; i < text.length; i++) {
    switch (text.charCodeAt(i)) {
      case QUOTE: {
        const end = stringEnd(text, i + 1);
        if (depth === 1 && valueStart < 0) {
          nameStart = i + 1;
          nameEnd = end;
        }
        i = end;
        break;
      }
      case COLON:
        if (depth === 1) valueStart = i + 1;
        break;
      case COMMA:
        if (depth !== 1 || valueStart < 0) break;
        if (places.length === 4 * MAX_MEMBERS) return null;
        places.push(nameStart, nameEnd, valueStart, i);
        valueStart = -1;
        break;
      case OPEN_BRACE:
      case OPEN_BRACKET:
        if (++depth > MAX_JSON_DEPTH) return null;
        break;
      case CLOSE_BRACE:
      case CLOSE_BRACKET:
        if (--depth === 0 && valueStart >= 0) places.push(nameStart, nameEnd, valueStart, i);
    }
  }
  return places;
}

/**
 * @param {string} text @param {number} i after an opening quote
 * @returns {number} the closing quote, or the end of the text
 */
function stringEnd(text, i) {
  for (; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === QUOTE) return i;
    if (c === BACKSLASH) i++;
  }
  return i;
}

/**
 * @param {string} text valid JSON @param {readonly number[]} places @param {string} name
 * @returns {string|undefined} if a name occurs twice, the last one, as in JSON.parse
 */
function sourceIn(text, places, name) {
  for (let at = places.length - 4; at >= 0; at -= 4) {
    const written = text.slice(places[at], places[at + 1]);
    const plain = written.includes('\\') ? JSON.parse(`"${written}"`) : written;
    if (plain === name) return text.slice(places[at + 2], places[at + 3]).trim();
  }
  return undefined;
}
