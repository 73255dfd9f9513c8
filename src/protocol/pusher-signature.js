// pusher-signature.js: signatures by the secrets of a Pusher app.
//
// They are HMAC-SHA256 in hexadecimal. The first secret signs, all verify. Comparisons take
// constant time, and no answer contains the expected signature.

import { createHmac, timingSafeEqual } from 'node:crypto';

/** @typedef {{readonly key: string, readonly secrets: readonly string[]}} SigningApp */

const SIGNATURE = /^[0-9a-fA-F]{64}$/;

/** @param {SigningApp} app @param {string|Buffer} text @returns {string} in hexadecimal */
export function sign({ secrets }, text) {
  return createHmac('sha256', secrets[0]).update(text).digest('hex');
}

/**
 * @param {Pick<SigningApp, 'secrets'>} app @param {string|Buffer} text
 * @param {unknown} signature in hexadecimal, as received
 */
export function isSigned({ secrets }, text, signature) {
  if (typeof signature !== 'string' || !SIGNATURE.test(signature)) return false;
  const received = Buffer.from(signature, 'hex');
  for (const secret of secrets)
    if (timingSafeEqual(createHmac('sha256', secret).update(text).digest(), received)) return true;
  return false;
}

/**
 * Checks `auth`, which is `<key>:<signature>`. A key has no colon.
 * @param {SigningApp} app @param {unknown} auth as received @param {string} text
 * @returns {'ok'|'key'|'signature'} 'key': it is another app's; 'signature': it does not match
 */
export function checkAuth(app, auth, text) {
  if (typeof auth !== 'string') return 'signature';
  const colon = auth.indexOf(':');
  if (auth.slice(0, Math.max(colon, 0)) !== app.key) return 'key';
  return isSigned(app, text, auth.slice(colon + 1)) ? 'ok' : 'signature';
}

/**
 * What an application signs so that a connection may subscribe.
 * @param {string} socketId @param {string} channel
 * @param {string} channelData byte for byte as received; empty: none
 */
export function channelText(socketId, channel, channelData) {
  return channelData === '' ? `${socketId}:${channel}` : `${socketId}:${channel}:${channelData}`;
}

/** What an application signs so that a user may sign in. @param {string} socketId @param {string} userData as received */
export function userText(socketId, userData) {
  return `${socketId}::user::${userData}`;
}
