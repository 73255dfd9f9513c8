// fingerprint.js: hashes payloads, to compare publications with the same idempotency key. Headers
// differ in time and sender; keys in the bucket differ, so a claim is compared by its content.

import { createHash } from 'node:crypto';
import { claimOf } from './claim.js';
import {
  audienceTextOf,
  hasKey,
  isClaim,
  isRestricted,
  keyTextOf,
  payloadOf,
} from './publication.js';

/** Characters of the hash that are kept: 132 bits. */
const LENGTH = 22;

/** @param {Buffer} publication @returns {string} 22 ASCII characters */
export function fingerprintOf(publication) {
  const payload = isClaim(publication) ? contentOf(publication) : payloadOf(publication);
  const hash = createHash('sha256').update(payload);
  // The same value of another key is another message.
  if (hasKey(publication)) hash.update('\0').update(keyTextOf(publication));
  // So is the same payload for others.
  if (isRestricted(publication)) hash.update('\0\0').update(audienceTextOf(publication));
  return hash.digest('base64url').slice(0, LENGTH);
}

/** @param {Buffer} publication a claim */
function contentOf(publication) {
  const { key: _key, ...content } = claimOf(publication) ?? {};
  return JSON.stringify(content);
}
