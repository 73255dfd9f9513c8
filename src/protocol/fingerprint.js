// fingerprint.js: the fingerprint of a payload, by which two publications with the same idempotency
// key are compared. Headers differ in time and sender. A claim is compared by the content of its
// object, because keys in the bucket differ too.

import { createHash } from 'node:crypto';
import { claimOf } from './claim.js';
import { isClaim, payloadEnd, payloadStart } from './publication.js';

/** Characters of the hash that are kept: 132 bits. */
const LENGTH = 22;

/** @param {Buffer} publication @returns {string} 22 ASCII characters */
export function fingerprintOf(publication) {
  const payload = isClaim(publication)
    ? contentOf(publication)
    : publication.subarray(payloadStart(publication), payloadEnd(publication));
  return createHash('sha256').update(payload).digest('base64url').slice(0, LENGTH);
}

/** @param {Buffer} publication a claim */
function contentOf(publication) {
  const { key: _key, ...content } = claimOf(publication) ?? {};
  return JSON.stringify(content);
}
