// claim.js: messages whose payload lies in a bucket (a claim check).
//
//   between workers   a claim: {"key":"2026-11-22/…","bytes":5242880,"sha256":"…","contentType":"image/png"}
//   to clients        a reference: {"ref":{"url":"https://…","bytes":5242880, … ,"expires":1760003600000}}
//
// Signed URLs expire, so the broker and histories hold claims. Each worker makes the reference when
// it delivers or replays the message, once for all members.

import {
  asClaim,
  encodePublication,
  isClaim,
  KIND,
  payloadText,
  withPayload,
} from './publication.js';

/**
 * @typedef {object} Claim
 * @property {string} key its name in the bucket, after the configured URL
 * @property {number} bytes @property {string} sha256 64 hexadecimal digits
 * @property {string} contentType
 */

/**
 * @typedef {object} References
 * @property {(publication: Buffer) => Buffer} resolve replaces a claim by a reference
 * @property {() => number} period a number that changes when URLs have to be signed again
 */

/** @type {References} For a worker without a bucket: references have no URL. */
export const NO_BUCKET = Object.freeze({
  resolve: (publication) => asReference(publication, null, 0),
  period: () => 0,
});

/**
 * @param {number} timestampMs @param {string} from the sender
 * @param {Claim} claim @param {string} [except] as in encodePublication
 */
export function encodeClaim(timestampMs, from, { key, bytes, sha256, contentType }, except) {
  const source = Buffer.from(JSON.stringify({ key, bytes, sha256, contentType }));
  const { length } = source;
  return asClaim(encodePublication(KIND.MESSAGE, timestampMs, 0, from, source, 0, length, except));
}

/** @param {Buffer} publication a claim @returns {Claim|null} null: malformed */
export function claimOf(publication) {
  try {
    const { key, bytes, sha256, contentType } = JSON.parse(payloadText(publication));
    const isValid =
      typeof key === 'string' &&
      Number.isSafeInteger(bytes) &&
      typeof sha256 === 'string' &&
      typeof contentType === 'string';
    return isValid ? { key, bytes, sha256, contentType } : null;
  } catch {
    return null; // no JSON
  }
}

/**
 * @param {Buffer} publication a claim
 * @param {string|null} url null: the object is not available (any more)
 * @param {number} expires ms since 1970: the end of the URL
 * @returns {Buffer} a message for clients; its payload is `{"ref":null}` if the claim is malformed
 */
export function asReference(publication, url, expires) {
  const claim = claimOf(publication);
  const ref = claim && {
    url,
    bytes: claim.bytes,
    sha256: claim.sha256,
    contentType: claim.contentType,
    expires,
  };
  return withPayload(publication, Buffer.from(JSON.stringify({ ref })));
}

/**
 * @param {readonly Buffer[]} publications of kind MESSAGE or POSITIONED
 * @param {References} references @returns {readonly Buffer[]} the same list if it has no claim
 */
export function resolveClaims(publications, references) {
  if (!publications.some(isClaim)) return publications;
  return publications.map((one) => (isClaim(one) ? references.resolve(one) : one));
}
