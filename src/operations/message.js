// message.js: a message before it is a publication: what a room takes, and its bytes.
//
// Every door and HTTP API describes what it was sent as a Message. Here is decided, once for all of
// them, which size and which key it may have.

import { encodeClaim } from '../protocol/claim.js';
import { fingerprintOf } from '../protocol/fingerprint.js';
import {
  asTransient,
  encodeKeyed,
  encodePublication,
  isStateKey,
  KIND,
  withAudience,
} from '../protocol/publication.js';
import { refusal, sizeText } from '../protocol/refusal.js';

const OF_APP = '"maxEventBytes" of the app';
const NO_KEY = 'The room has state: give a key of 1 to 200 characters without control characters.';
const NO_STATE = 'Only rooms with state take a key (FANFARE_STATE).';
const NO_POSITION = 'Only rooms with history or state have a position (FANFARE_HISTORY).';
const NOT_FOR_ALL = 'In a room with state all members get a message: leave out echo and except.';

/** @import { HistoryOf, PublishOptions } from '../backend/broker.js' */
/** @import { App } from '../config/pusher.js' */
/** @import { Config } from '../config/settings.js' */
/** @import { Claim } from '../protocol/claim.js' */
/** @import { ExpectedPosition } from '../protocol/position.js' */
/** @import { Refusal } from '../protocol/refusal.js' */

/**
 * @typedef {object} Message
 * @property {Buffer} source has the payload, as JSON @property {number} start @property {number} end
 * @property {string} sender as encodePublication takes it; '': an application
 * @property {string} except id of a connection that does not get it; '': all members get it
 * @property {unknown} key of the entry in a room with state; undefined: it has none
 * @property {string|undefined} idempotencyKey
 * @property {string} owner whose idempotency keys these are; '': those of the HTTP API
 * @property {Pick<App, 'id'|'maxEventBytes'>|null} app of the sender
 * @property {number} [bytes] that count against the limit of the app; absent: those of the payload
 * @property {number} [kind] of KIND; absent: MESSAGE @property {number} [tag]
 * @property {boolean} [isTransient] no history keeps it
 * @property {ExpectedPosition} [expect] the room's position for which it is meant
 * @property {Claim|null} [claim] in place of the payload
 * @property {string} [audience] of readAudience; absent or '': everybody
 */

/** Which messages rooms take. */
export class MessageRules {
  /**
   * @param {Pick<Config, 'maxInlineBytes'|'maxMessageBytes'|'stateMaxValueBytes'>} config
   * @param {HistoryOf} historyOf
   */
  constructor({ maxInlineBytes, maxMessageBytes, stateMaxValueBytes }, historyOf) {
    this.historyOf = historyOf;
    this.maxValueBytes = stateMaxValueBytes;
    this.maxInlineBytes = maxInlineBytes;
    this.maxBytes = Math.min(maxInlineBytes, maxMessageBytes);
  }

  /** @param {string} room */
  hasState(room) {
    return this.historyOf(room)?.state !== undefined;
  }

  /**
   * @param {string} room
   * @param {Pick<Message, 'start'|'end'|'bytes'|'app'|'key'|'except'|'expect'>} message
   * @param {number} [maxBytes] of the payload; infinite: the bucket takes larger ones
   * @returns {Refusal|null} null: the room takes it
   */
  refusalOf(room, message, maxBytes = this.#maxBytesOf(message)) {
    const { start, end, app, key, except } = message;
    const bytes = end - start;
    const counted = message.bytes ?? bytes;
    if (app !== null && counted > app.maxEventBytes && app.maxEventBytes < maxBytes)
      return tooLarge('The payload', counted, app.maxEventBytes, OF_APP);
    if (bytes > maxBytes) {
      const isInline = maxBytes === this.maxInlineBytes;
      const setting = isInline ? 'FANFARE_MAX_INLINE_BYTES' : 'FANFARE_MAX_MESSAGE_BYTES';
      return tooLarge('The payload', bytes, maxBytes, setting);
    }
    if (message.expect !== undefined && this.historyOf(room) === null)
      return invalid('expect', NO_POSITION);
    if (!this.hasState(room)) return key === undefined ? null : invalid('key', NO_STATE);
    if (!isStateKey(key)) return invalid('key', NO_KEY);
    if (except !== '') return invalid('except', NOT_FOR_ALL);
    if (bytes <= this.maxValueBytes) return null;
    const setting = 'FANFARE_STATE_MAX_VALUE_BYTES';
    return tooLarge('The payload of a key', bytes, this.maxValueBytes, setting);
  }

  /**
   * The limit of an app is at most `maxMessageBytes`, but its door may count other bytes.
   * @param {Pick<Message, 'app'>} message
   */
  #maxBytesOf({ app }) {
    return app === null ? this.maxBytes : this.maxInlineBytes;
  }
}

/**
 * The bytes of a message, which the broker does not change: several rooms may share them.
 * @param {Message} message with a key that the rules have allowed
 */
export function encodeMessage(message) {
  const { source, start, end, sender, except, key, isTransient = false, claim = null } = message;
  const { kind = KIND.MESSAGE, tag = 0 } = message;
  const now = Date.now();
  const { audience = '' } = message;
  if (claim !== null) return withAudience(encodeClaim(now, sender, claim, except), audience);
  const publication =
    key === undefined
      ? encodePublication(kind, now, tag, sender, source, start, end, except)
      : encodeKeyed(now, sender, /** @type {string} */ (key), source, start, end);
  if (isTransient) asTransient(publication);
  return audience === '' ? publication : withAudience(publication, audience);
}

/**
 * What the broker has to know of a message beside its bytes.
 * @param {Pick<Message, 'idempotencyKey'|'owner'|'isTransient'|'expect'>} message
 * @param {Buffer} publication of its sender's payload, so that repetitions are found whatever a hook
 *   changes
 * @returns {PublishOptions|undefined}
 */
export function optionsOf({ idempotencyKey: key, owner, isTransient, expect }, publication) {
  if (key === undefined)
    return expect !== undefined ? { expect } : isTransient ? TRANSIENT : undefined;
  const idempotencyKey = owner === '' ? key : `${owner} ${key}`;
  return { idempotencyKey, fingerprint: fingerprintOf(publication), isTransient, expect };
}

const TRANSIENT = Object.freeze({ isTransient: true });

/** @param {string} what @param {number} bytes @param {number} max @param {string} setting */
function tooLarge(what, bytes, max, setting) {
  return refusal('MESSAGE_TOO_LARGE', sizeText(what, bytes, max, setting), 0);
}

/** @param {'key'|'except'|'expect'} field @param {string} text @returns {Refusal} */
function invalid(field, text) {
  return { ...refusal('INVALID_MESSAGE_FORMAT', text, 0), field };
}
