// verify-webhook.js: is a request signed by one of the secrets, and of now (Standard Webhooks)?

import { FanfareApiError } from './api-error.js';

/** Clocks differ, and a request may be on its way for a while. */
const TOLERANCE_S = 300;
/** Fanfare sends at most 64 KiB. Whoever sends more has no secret, so the rest is not read. */
const MAX_BODY_BYTES = 262_144;
/** Signatures in the header that are tried: one for each secret while it rotates. */
const MAX_SIGNATURES = 8;
const utf8 = new TextEncoder();

/**
 * A request as frameworks have it: its headers, by names in lower case, and its body as it came.
 * @typedef {{headers: Readonly<Record<string, unknown>>, body: string|Uint8Array}} PlainRequest
 */

/** @typedef {{room: string, sequence: number, epoch: string}} OfRoom */
/** @typedef {OfRoom & {user: string, info?: any, count: number}} OfMember */

/**
 * An event of docs/webhooks.md. `id` is the same in each attempt.
 * @typedef {{id: string, timestamp: string} & (
 *   {type: 'room.occupied'|'room.vacated', data: OfRoom} |
 *   {type: 'member.joined'|'member.left', data: OfMember} |
 *   {type: 'user.connected'|'user.disconnected', data: {user: string, sequence: number, epoch: string}} |
 *   {type: 'message.published', data: OfRoom & {from: string, payload?: any, bytes?: number, offset?: number, key?: string}} |
 *   {type: 'webhook.gap', data: {endpoint: string, dropped: number, since: string}} |
 *   {type: 'webhook.test', data: {endpoint: string}})} WebhookEvent
 */

/**
 * Verifies a request, and reads its event.
 * @template {object} [Event=WebhookEvent]
 * @param {Request|PlainRequest} request
 * @param {string|readonly string[]|undefined} secrets `whsec_…`: that of the endpoint, or several while it rotates
 * @param {{toleranceS?: number}} [options] the age that is accepted, and how far ahead a clock may be
 * @returns {Promise<Event>}
 * @throws {FanfareApiError} INVALID_SIGNATURE: answer 401
 */
export async function verifyWebhook(request, secrets, { toleranceS = TOLERANCE_S } = {}) {
  const header = (/** @type {string} */ name) => {
    const { headers } = request;
    const value = headers instanceof Headers ? headers.get(name) : headers[name];
    if (typeof value !== 'string' || value === '') throw refused(`the header ${name} is missing`);
    return value;
  };
  const [id, timestamp] = [header('webhook-id'), header('webhook-timestamp')];
  const signatures = header('webhook-signature').split(' ').slice(0, MAX_SIGNATURES);
  // A number that does not parse is refused, too.
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) <= toleranceS))
    throw refused(`it is not of the last ${toleranceS} s, or a clock is wrong`);
  const body = request instanceof Request ? await readBody(request) : bytesOf(request.body);
  const signed = join(utf8.encode(`${id}.${timestamp}.`), body);
  for (const secret of [secrets ?? ''].flat())
    if (await isSigned(signed, signatures, secret))
      return { ...JSON.parse(new TextDecoder().decode(body)), id };
  throw refused('no signature fits a secret');
}

/**
 * WebCrypto compares in constant time.
 * @param {Uint8Array<ArrayBuffer>} signed @param {readonly string[]} signatures `v1,` and Base64
 * @param {string} secret
 */
async function isSigned(signed, signatures, secret) {
  const bytes = /^whsec_/.test(secret) && fromBase64(secret.slice(6));
  if (!bytes || bytes.length === 0) throw new TypeError('a secret is whsec_ and Base64');
  const how = { name: 'HMAC', hash: 'SHA-256' };
  const key = await crypto.subtle.importKey('raw', bytes, how, false, ['verify']);
  for (const signature of signatures) {
    const given = signature.startsWith('v1,') && fromBase64(signature.slice(3));
    if (given && (await crypto.subtle.verify('HMAC', key, given, signed))) return true;
  }
  return false;
}

/** @param {Request} request @returns {Promise<Uint8Array>} @throws {FanfareApiError} */
async function readBody({ body }) {
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const parts = [];
  let length = 0;
  for (const reader = body?.getReader(); reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
    if (length <= MAX_BODY_BYTES) continue;
    await reader.cancel();
    throw refused(`it has more than ${MAX_BODY_BYTES} bytes`);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** @param {unknown} body */
function bytesOf(body) {
  if (body instanceof Uint8Array) return body;
  if (typeof body === 'string') return utf8.encode(body);
  throw new TypeError(
    'body: it has to be the text or the bytes that came, before a parser reads them',
  );
}

/** @param {Uint8Array} one @param {Uint8Array} other */
function join(one, other) {
  const both = new Uint8Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>|undefined} */
function fromBase64(text) {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** @param {string} why */
function refused(why) {
  return new FanfareApiError('INVALID_SIGNATURE', {
    message: `The request is not verified: ${why}.`,
  });
}
