// answer.js: reads the answers of hooks.
//
// An answer that does not match types.js is a fault, and the request is refused: a typing error
// must not let clients in. `null` is a fault, too, because a failed look-up often returns it.

import { isUser } from '../auth/claims.js';
import { isHeldList, MAX_HELD, readAudience } from '../protocol/audiences.js';
import { isPayload, MAX_INFO_BYTES, MAX_PAYLOAD_DEPTH } from '../protocol/decode.js';

const MAX_DENY_LENGTH = 200;

/** @import { HookFailure, HookName } from '../observability/counters.js' */

/**
 * @typedef {object} Answer
 * @property {string|null} deny text for the client, may be empty; null: allowed
 * @property {string|null} user
 * @property {Buffer|null} info JSON
 * @property {unknown} data
 * @property {Buffer|null} payload JSON: the changed payload of onPublish, or the result of onRpc
 * @property {string} audience of readAudience: the changed one of onPublish; '': the message keeps its
 *   own
 * @property {readonly string[]} audiences which onConnect or onJoin gives the user
 */

/** Why a call failed, if it is known. */
export class HookError extends Error {
  /** @param {HookFailure} reason @param {string} message without secrets */
  constructor(reason, message) {
    super(message);
    this.reason = reason;
  }
}

/** A hook returned something that it may not return. */
export class AnswerError extends HookError {
  /** @param {string} message @param {boolean} [isTooLarge] the payload or result is too large */
  constructor(message, isTooLarge = false) {
    super('answer', message);
    this.isTooLarge = isTooLarge;
  }
}

/** @type {Readonly<Answer>} */
export const ALLOWED = Object.freeze({
  deny: null,
  user: null,
  info: null,
  data: undefined,
  payload: null,
  audience: '',
  audiences: Object.freeze([]),
});
const DENIED = Object.freeze({ ...ALLOWED, deny: '' });

/** Fields of an object that allows the request. @type {Record<HookName, readonly string[]>} */
const FIELDS = {
  onConnect: ['user', 'info', 'data', 'audiences'],
  onJoin: ['audiences'],
  onPublish: ['payload', 'audience'],
  onRpc: ['data'],
  onSend: [],
  onDisconnect: [],
};

/**
 * @param {HookName} hook @param {unknown} answer @param {number} maxPayloadBytes @returns {Answer}
 * @throws {AnswerError}
 */
export function readAnswer(hook, answer, maxPayloadBytes) {
  if (answer === undefined || answer === true || hook === 'onDisconnect') return ALLOWED;
  if (answer === false) return DENIED;
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer))
    throw new AnswerError(`${hook} returned ${answer === null ? 'null' : typeof answer}`);
  const fields = /** @type {Record<string, unknown>} */ (answer);
  const names = Object.keys(fields);
  if (Object.hasOwn(fields, 'deny') && names.length === 1)
    return { ...DENIED, deny: readText(hook, fields.deny) };
  const unknown = names.find((name) => !FIELDS[hook].includes(name));
  if (unknown !== undefined || names.length === 0)
    throw new AnswerError(
      `${hook} returned an object ${unknown === undefined ? 'without a field' : `with the field ${unknown}`}`,
    );
  if (hook === 'onConnect') return readWelcome(fields);
  if (hook === 'onJoin') return { ...ALLOWED, audiences: readHeld(hook, fields.audiences) };
  if (hook === 'onRpc') return readResult(fields, maxPayloadBytes);
  return readChanged(fields, maxPayloadBytes);
}

/** @param {HookName} hook @param {unknown} text */
function readText(hook, text) {
  if (typeof text !== 'string')
    throw new AnswerError(`${hook} returned a deny that is not a string`);
  // Half of a surrogate pair at the end would not be UTF-8; JSON escapes it.
  return text.slice(0, MAX_DENY_LENGTH);
}

/** @param {Record<string, unknown>} fields @returns {Answer} */
function readWelcome({ user, info, data, audiences: given }) {
  const audiences = readHeld('onConnect', given);
  if (user !== undefined && !isUser(user))
    throw new AnswerError('onConnect returned a user that is not a name of 1 to 128 characters');
  if (info === undefined) return { ...ALLOWED, user: user ?? null, data, audiences };
  if (user === undefined) throw new AnswerError('onConnect returned info without a user');
  const json = encodeAnswer('info', info);
  if (json.length > MAX_INFO_BYTES)
    throw new AnswerError(`onConnect returned info of more than ${MAX_INFO_BYTES} bytes`);
  return { ...ALLOWED, user, info: json, data, audiences };
}

/** @param {HookName} hook @param {unknown} audiences @returns {readonly string[]} */
function readHeld(hook, audiences = []) {
  if (isHeldList(audiences)) return audiences;
  throw new AnswerError(
    `${hook} returned audiences that are not a list of up to ${MAX_HELD} names`,
  );
}

/** @param {Record<string, unknown>} fields @param {number} maxPayloadBytes */
function readChanged(fields, maxPayloadBytes) {
  const isNamed = Object.hasOwn(fields, 'audience');
  const audience = isNamed ? readAudience(fields.audience) : '';
  if (audience === undefined)
    throw new AnswerError('onPublish returned an audience that is not a list of 1 to 4 names');
  if (isNamed && !Object.hasOwn(fields, 'payload')) return { ...ALLOWED, audience };
  const payload = encodeAnswer('payload', fields.payload);
  if (payload.length > maxPayloadBytes)
    throw new AnswerError(`onPublish returned a payload of ${payload.length} bytes`, true);
  if (!isPayload(payload))
    throw new AnswerError(`onPublish returned a payload of over ${MAX_PAYLOAD_DEPTH} levels`);
  return { ...ALLOWED, payload, audience };
}

/** @param {Record<string, unknown>} fields @param {number} maxPayloadBytes */
function readResult({ data }, maxPayloadBytes) {
  const payload = encodeAnswer('data', data);
  if (payload.length > maxPayloadBytes)
    throw new AnswerError(`onRpc returned data of ${payload.length} bytes`, true);
  return { ...ALLOWED, payload };
}

/** @param {string} name @param {unknown} value */
function encodeAnswer(name, value) {
  let text;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    // A cycle, a BigInt, or a toJSON that throws.
    throw new AnswerError(`${name} is not JSON: ${/** @type {Error} */ (error).message}`);
  }
  if (text === undefined) throw new AnswerError(`${name} is not JSON`);
  return Buffer.from(text);
}
