// object-keys.js: the names of objects in the bucket, after the prefix of FANFARE_BLOB_URL.
//
//   2026-11-22/mMbpJ7qcYl9Yd2mYc0ab9w                     stored by Fanfare
//   2026-11-22/mMbpJ7qcYl9Yd2mYc0ab9w-5242880-9f86d08…    announced by POST /api/uploads
//
// Workers sign no other names, so neither a forged claim in Redis nor a caller of the HTTP API can
// open other objects in the bucket. The name of an announced upload has its size and hash, so any
// worker can check it.

import { randomBytes } from 'node:crypto';

const KEY = /^(\d{4}-\d{2}-\d{2})\/[A-Za-z0-9_-]{22}(?:-(\d{1,10})-([0-9a-f]{64}))?$/;

/** @param {number} nowMs @returns {string} */
export function newKey(nowMs) {
  const day = new Date(nowMs).toISOString().slice(0, 10);
  return `${day}/${randomBytes(16).toString('base64url')}`;
}

/** @param {number} nowMs @param {number} bytes @param {string} sha256 lower-case hex */
export function newUploadKey(nowMs, bytes, sha256) {
  return `${newKey(nowMs)}-${bytes}-${sha256}`;
}

/** @param {string} key */
export function isKey(key) {
  return KEY.test(key);
}

/**
 * @param {string} key
 * @returns {{bytes: number, sha256: string, dayMs: number}|null} null if it is not an announced
 *   upload; `dayMs`: the start of its day
 */
export function announcedBy(key) {
  const match = KEY.exec(key);
  if (match?.[2] === undefined) return null;
  return { bytes: Number(match[2]), sha256: match[3], dayMs: Date.parse(`${match[1]}T00:00:00Z`) };
}
