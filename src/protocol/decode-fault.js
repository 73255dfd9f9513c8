// decode-fault.js: says why a text was refused: the cause, the place and the limit. Only refused
// texts pay for it.

import { FIELDS, lastFault, MAX_JSON_DEPTH, MAX_JSON_KEYS, scan, skipString } from './json-scan.js';

const QUOTE = 0x22;
const MAX_SHOWN_NAME = 40;

/**
 * @param {Buffer} b valid UTF-8, which a function of json-scan.js has just refused
 * @returns {string} such as `unexpected "h" at byte 0`
 */
export function jsonFault(b) {
  const { at, kind } = lastFault();
  switch (kind) {
    case 'depth':
      return `over ${MAX_JSON_DEPTH} levels at byte ${at}`;
    case 'keys':
      return `over ${MAX_JSON_KEYS} keys outside the payload at byte ${at}`;
    case 'name':
      return `the key ${nameAt(b, at)} at byte ${at}, which only payloads may have`;
    case 'grammar':
      return unexpected(b, at);
  }
}

/**
 * @param {Buffer} b @param {number} at
 * @returns {string} the byte there, as a character if that is visible
 */
export function unexpected(b, at) {
  if (b.length === 0) return 'it is empty';
  if (at >= b.length) return `it ends too early, at byte ${b.length}`;
  const c = b[at];
  const shown = c > 0x20 && c < 0x7f ? JSON.stringify(String.fromCharCode(c)) : `0x${hex(c)}`;
  return `unexpected ${shown} at byte ${at}`;
}

/** @param {number} byte */
function hex(byte) {
  return byte.toString(16).padStart(2, '0');
}

/** @param {Buffer} b @param {number} at of a key */
function nameAt(b, at) {
  return b.toString('utf8', at, Math.min(skipString(b, at + 1), at + MAX_SHOWN_NAME));
}

/**
 * Is it a command, although `decode` has refused it? Then a field or a limit is the reason, and not
 * a client that does not speak the protocol.
 * @param {Buffer} message valid UTF-8
 * @param {ReturnType<typeof scan>} fields of the message, scanned just before
 */
export function isCommand(message, fields) {
  if (fields === null) return lastFault().kind !== 'grammar';
  return message[startOf(fields, 'type')] === QUOTE;
}

/**
 * @param {Buffer} message valid UTF-8, which `decode` has refused
 * @param {ReturnType<typeof scan>} [fields] if it was scanned just before
 * @returns {string} for its sender
 */
export function commandFault(message, fields = scan(message)) {
  if (fields === null) return `The message is not a JSON object: ${jsonFault(message)}.`;
  const typeStart = startOf(fields, 'type');
  const textStart = startOf(fields, 'text');
  if (typeStart < 0) return 'A command needs a "type", such as {"type":"join","room":"lobby"}.';
  if (message[typeStart] !== QUOTE) return 'type: a string, such as "join".';
  if (textStart >= 0 && message[textStart] !== QUOTE) return 'text: a string.';
  return 'id: a string of at most 64 characters, or a whole number up to 2^53.';
}

/**
 * @param {NonNullable<ReturnType<typeof scan>>} fields @param {typeof FIELDS[number]} name
 * @returns {number} -1: it is absent
 */
function startOf({ present, starts }, name) {
  const field = FIELDS.indexOf(name);
  return (present & (1 << field)) === 0 ? -1 : starts[field];
}
