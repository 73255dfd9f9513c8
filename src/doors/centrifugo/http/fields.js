// fields.js: the fields of requests of Centrifugo's server API.

import { isText, nullable } from '../../../transport/http-api/fields.js';
import { channelFault, roomOf } from '../codec/channels.js';
import { DoorError } from '../codec/errors.js';

const MAX_TEXTS = 1000;

/** @typedef {import('../../../transport/http-api/fields.js').Fields} Fields */

export const text = nullable('a string', isText);
export const texts = nullable(
  `a list of at most ${MAX_TEXTS} strings`,
  (value) => Array.isArray(value) && value.length <= MAX_TEXTS && value.every(isText),
);
export const flag = nullable('true or false', (value) => typeof value === 'boolean');
export const whole = nullable('a whole number', Number.isSafeInteger);
export const position = nullable('an object with offset and epoch', (value) => {
  if (!isRecord(value)) return false;
  const { offset = 0, epoch = '' } = /** @type {Fields} */ (value);
  return Number.isSafeInteger(offset) && offset >= 0 && isText(epoch);
});
/** A field that would have no effect here: only an empty value is permitted. */
export const UNSUPPORTED = nullable('not supported', (value) =>
  isRecord(value) ? Object.keys(value).length === 0 : !value,
);

/** @param {readonly string[]} names @returns {Record<string, typeof UNSUPPORTED>} */
export function unsupported(...names) {
  return Object.fromEntries(names.map((name) => [name, UNSUPPORTED]));
}

/** @param {string|undefined} channel @returns {string} its room @throws {DoorError} */
export function roomOfChannel(channel) {
  if (channel === undefined || channel === '') throw new DoorError(107, 'channel is required');
  const fault = channelFault(channel);
  if (fault === 'length') throw new DoorError(107, 'the name of the channel is too long');
  if (fault !== null) throw new DoorError(102);
  return roomOf(channel);
}

/** @param {unknown} value @returns {value is object} */
function isRecord(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
