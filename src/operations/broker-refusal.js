// broker-refusal.js: the refusal of what the broker has failed to do, without a time to try again.

import { refusal } from '../protocol/refusal.js';

/** @import { Position } from '../protocol/position.js' */
/** @import { Refusal } from '../protocol/refusal.js' */

/**
 * @param {unknown} error of the broker
 * @param {{error(fields: object, text: string): void}} log for errors that nobody expects
 * @returns {Refusal}
 */
export function refusalOfBroker(error, log) {
  const { code, position } = /** @type {{code?: string, position?: Position}} */ (error);
  switch (code) {
    case 'UNAVAILABLE':
    case 'OUTCOME_UNKNOWN':
    case 'IDEMPOTENCY_CONFLICT':
    case 'STATE_FULL':
    case 'ROOM_FULL':
      return refusal(code, undefined, 0);
    case 'CONFLICT':
      return { ...refusal(code, undefined, 0), position };
    case 'INVALID_MESSAGE_FORMAT':
      return refusal(code, /** @type {Error} */ (error).message, 0);
  }
  log.error({ err: error }, 'broker failed with an unexpected error');
  return refusal('INTERNAL_ERROR', undefined, 0);
}
