// counters.js: what token verification counts, read by the metrics at each scrape.

import { REASONS } from './token-error.js';

/** @returns one worker's counters of tokens, all zero */
export function createAuthCounters() {
  return {
    accepted: 0,
    refused: /** @type {Record<import('./token-error.js').Reason, number>} */ (
      Object.fromEntries(Object.keys(REASONS).map((reason) => [reason, 0]))
    ),
    /** reads of the JWKS URL */ keyReads: { ok: 0, failed: 0 },
    /** tokens refused because the JWKS could not be asked */ keysUnavailable: 0,
    /** gauge: revocations that are in force */ revocations: 0,
    /** revocations refused because too many are in force */ revocationsRefused: 0,
  };
}

/** @typedef {ReturnType<typeof createAuthCounters>} AuthCounters */
