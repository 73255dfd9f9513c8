// references.js: turns the claims that workers exchange into references for clients. URLs are
// signed for the start of the current period, so all workers send the same URL for some minutes:
// browsers find the object in their caches, and replays share their frames.

import { asReference, claimOf } from '../protocol/claim.js';
import { timestampOf } from '../protocol/publication.js';
import { isKey } from './object-keys.js';

/** How long URLs stay the same. Signatures may be 15 minutes old. */
const PERIOD_MS = 300_000;
const DAY_MS = 86_400_000;
/** Browsers save the object, so that no script in it runs under the bucket's name. */
const AS_DOWNLOAD = '?response-content-disposition=attachment';

/** @import { References } from '../protocol/claim.js' */

/** @implements {References} */
export class SignedReferences {
  /**
   * @param {object} parts @param {import('./signer.js').Signer} parts.signer
   * @param {string} parts.publicUrl of the bucket @param {number} parts.urlTtlS
   * @param {number} parts.ttlDays age up to which objects are in the bucket
   * @param {{references: Record<'signed'|'expired'|'malformed', number>}} parts.counters
   * @param {() => number} [parts.now] ms since 1970
   */
  constructor({ signer, publicUrl, urlTtlS, ttlDays, counters, now = Date.now }) {
    this.signer = signer;
    this.publicUrl = publicUrl;
    this.urlTtlS = urlTtlS;
    this.ttlMs = ttlDays * DAY_MS;
    this.counters = counters;
    this.now = now;
    /** The period for which `sign` signs. */
    this.signedPeriod = -1;
    this.sign = (/** @type {string} */ key) => key;
  }

  period() {
    return Math.floor(this.now() / PERIOD_MS);
  }

  /** @param {Buffer} publication a claim @returns {Buffer} */
  resolve(publication) {
    const { references } = this.counters;
    const claim = claimOf(publication);
    if (claim === null || !isKey(claim.key)) {
      references.malformed++;
      return asReference(publication, null, 0);
    }
    const nowMs = this.now();
    const endMs = timestampOf(publication) + this.ttlMs;
    if (nowMs >= endMs) {
      references.expired++;
      return asReference(publication, null, endMs);
    }
    references.signed++;
    const period = this.period();
    const startMs = period * PERIOD_MS;
    const ttlS = this.urlTtlS + PERIOD_MS / 1000;
    if (this.signedPeriod !== period) {
      const url = `${this.publicUrl}/${AS_DOWNLOAD}`;
      this.sign = this.signer.urls({ method: 'GET', url, nowMs: startMs }, ttlS);
      this.signedPeriod = period;
    }
    const expires = Math.min(startMs + ttlS * 1000, endMs);
    return asReference(publication, this.sign(claim.key), expires);
  }
}
