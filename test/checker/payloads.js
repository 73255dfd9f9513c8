// payloads.js: which message a payload is: its value alone, with padding, an event of a client of
// Pusher's protocol, or a reference to a bucket.

import { createHash } from 'node:crypto';

/** Values of payloads in the bucket, by the hash of their bytes. @type {Map<string, string>} */
const inBucket = new Map();

/** @param {any} payload as clients get it @returns {string} */
export function valueIn(payload) {
  if (typeof payload === 'string') return payload;
  const { value, data, ref } = payload ?? {};
  return value ?? data ?? inBucket.get(ref?.sha256) ?? JSON.stringify(payload);
}

/** @param {string} value @param {number} bytes more than messages may have @returns {object} */
export function largePayload(value, bytes) {
  const payload = { value, padding: 'x'.repeat(bytes) };
  inBucket.set(createHash('sha256').update(JSON.stringify(payload)).digest('hex'), value);
  return payload;
}
