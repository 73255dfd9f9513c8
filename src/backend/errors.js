// errors.js: failures of a broker or of presence. Their codes tell the caller what to do next.

/**
 * Rows of codes.js. OUTCOME_UNKNOWN: the request may have had its effect, or may have it later.
 * With the others it had none and never will. UNAVAILABLE: the caller may repeat it.
 * IDEMPOTENCY_CONFLICT: the key belongs to another publication. CONFLICT: the room is not at the
 * expected position. STATE_FULL: the room's state would exceed its bounds.
 * INVALID_MESSAGE_FORMAT: a publication to a room with state has no key.
 * @typedef
 *   {'UNAVAILABLE'|'OUTCOME_UNKNOWN'|'IDEMPOTENCY_CONFLICT'|'CONFLICT'|'STATE_FULL'|'INVALID_MESSAGE_FORMAT'}
 *   BrokerErrorCode
 */

/** @import { Position } from '../protocol/position.js' */

export class BrokerError extends Error {
  /** The room's position, with CONFLICT. @type {Position|undefined} */
  position;

  /** @param {BrokerErrorCode} code @param {string} message @param {{cause?: unknown}} [options] */
  constructor(code, message, options) {
    super(message, options);
    this.name = 'BrokerError';
    this.code = code;
  }
}

export function conflict() {
  return new BrokerError(
    'IDEMPOTENCY_CONFLICT',
    'the idempotency key was used for another publication',
  );
}

/** @param {Position} position where the room is */
export function notAsExpected(position) {
  const error = new BrokerError('CONFLICT', 'the room is not at the expected position');
  error.position = position;
  return error;
}

export function full() {
  return new BrokerError('STATE_FULL', "the room's state is full");
}

export function keyMissing() {
  return new BrokerError('INVALID_MESSAGE_FORMAT', 'a room with state needs a key');
}
