// fields.js: the fields of requests of Centrifugo's server API. SDKs write null for what is absent.

import { payload, reader } from '../../../transport/http-api/fields.js';
import { channelFault, roomOf } from '../channels.js';
import { DoorError } from '../errors.js';

const MAX_TEXTS = 1000;
const QUOTE = 0x22;

/** @typedef {import('../../../transport/http-api/fields.js').Fields} Fields */

export { payload };

export const text = reader('a string', (body, start, end) => valueAt(body, start, end, isText));
export const texts = reader(`a list of at most ${MAX_TEXTS} strings`, (body, start, end) =>
  valueAt(body, start, end, isTexts),
);
export const flag = reader('true or false', (body, start, end) =>
  valueAt(body, start, end, (value) => typeof value === 'boolean'),
);
export const whole = reader('a whole number', (body, start, end) =>
  valueAt(body, start, end, Number.isSafeInteger),
);
export const position = reader('an object with offset and epoch', (body, start, end) => {
  const value = valueAt(body, start, end, isRecord);
  if (value === null || value === undefined) return value;
  const { offset = 0, epoch = '' } = /** @type {Fields} */ (value);
  const isValid = Number.isSafeInteger(offset) && offset >= 0 && isText(epoch);
  return isValid ? { offset, epoch } : undefined;
});
/** Of a field that is refused if it says something: is there more than an empty value? */
export const isGiven = reader('JSON', (body, start, end) => {
  const value = JSON.parse(body.toString('utf8', start, end));
  if (isRecord(value)) return Object.keys(value).length > 0;
  return Boolean(value);
});

/** @param {Fields} fields @returns {Fields} without those that are null */
export function present(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

/** @param {string|undefined} channel @returns {string} its room @throws {DoorError} */
export function roomOfChannel(channel) {
  if (channel === undefined || channel === '') throw new DoorError(107, 'channel is required');
  const fault = channelFault(channel);
  if (fault === 'length') throw new DoorError(107, 'the name of the channel is too long');
  if (fault !== null) throw new DoorError(102);
  return roomOf(channel);
}

/**
 * Refuses fields that would have no effect here.
 * @param {Fields} fields @param {readonly string[]} names read by `isGiven` @throws {DoorError}
 */
export function refuseFields(fields, names) {
  const name = names.find((one) => fields[one] === true);
  if (name !== undefined) throw new DoorError(108, `${name} is not supported`);
}

/** @param {unknown} value @returns {value is string} */
function isText(value) {
  return typeof value === 'string';
}

/** @param {unknown} value */
function isTexts(value) {
  return Array.isArray(value) && value.length <= MAX_TEXTS && value.every(isText);
}

/** @param {unknown} value */
function isRecord(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * @param {Buffer} body @param {number} start @param {number} end
 * @param {(value: unknown) => boolean} fits @returns {unknown} undefined: it does not fit
 */
function valueAt(body, start, end, fits) {
  // Nearly all values are short strings.
  if (body[start] === QUOTE && fits !== isText) return undefined;
  const value = JSON.parse(body.toString('utf8', start, end));
  return value === null || fits(value) ? value : undefined;
}
