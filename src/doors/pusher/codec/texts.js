// texts.js: what the door says by itself, and what its clients cannot do.

import { errorOf } from '../../../protocol/refusal.js';
import { closeOf, PUSHER_CLOSES } from './closes.js';
import { errorText, ROSTER_TEXTS } from './frames.js';

/** Pusher's own sentence. */
export const OVER_QUOTA = 'The rate limit for sending client events exceeded the quota.';

/** @import { DoorTexts } from '../../../protocol/door-texts.js' */

/** Pusher's error codes by ours, where one exists. @type {ReadonlyMap<string, number>} */
const CODES = new Map([
  ['RATE_LIMIT_EXCEEDED', 4301],
  ['MESSAGE_TOO_LARGE', 4301],
  ['DENIED', 4009],
  ['USER_LIMIT', 4100],
  ['HOOK_FAILED', 4100],
]);

/** @type {Readonly<DoorTexts>} */
export const PUSHER_TEXTS = Object.freeze({
  name: 'pusher',
  usesTokens: false,
  takesState: false,
  repeatsJoins: false,
  waitsToJoin: true,
  roster: ROSTER_TEXTS,
  backendJoins: 'none',
  silentClose: PUSHER_CLOSES.NO_PONG,
  closeOf,
  encodeError(refused) {
    const error = errorOf(refused);
    if (error === 'INVALID_MESSAGE_FORMAT') return errorText(null, 'Received invalid JSON');
    if (error === 'RATE_LIMIT_EXCEEDED') return errorText(4301, `${OVER_QUOTA} ${refused.message}`);
    return errorText(CODES.get(refused.code) ?? null, refused.message);
  },
  entered() {},
  expelled() {},
  // Pusher has no such notices.
  encodeLeft: () => null,
  encodeDegraded: () => null,
  encodeShutdown: () => null,
});
