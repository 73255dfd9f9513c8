// deliverable.js: publications from a store that other programs may write to, made safe to frame.

import { encodePublication, isPublication, KIND, kindOf } from '../protocol/publication.js';

const NULL = Buffer.from('null');

/**
 * Replaces an invalid publication by a `null` message without a sender, because its offset would
 * otherwise be a gap.
 * @param {Buffer} publication @param {import('../observability/counters.js').Counters} counters
 */
export function asDeliverable(publication, counters) {
  if (kindOf(publication) === KIND.MESSAGE && isPublication(publication)) return publication;
  counters.malformed++;
  return encodePublication(KIND.MESSAGE, Date.now(), 0, '', NULL, 0, NULL.length);
}
