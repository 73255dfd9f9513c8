// sign.js: signs the token of a user, and refuses what a server would refuse
// (docs/authentication.md).

import { FanfareApiError } from './api-error.js';

const ROOM_RIGHTS = /** @type {const} */ (['join', 'publish', 'presence', 'history']);
const ALL_RIGHTS = [...ROOM_RIGHTS, 'audience'];
const MAX_AUDIENCES = 16;
const AUDIENCE = /^(?:\*|[A-Za-z0-9_.:@-]{1,64})$/;
const MAX_USER_LENGTH = 128;
/** Bytes of a user's name as ASCII in JSON. */
const MAX_SENDER_BYTES = 255;
const MAX_TOKEN_ID_LENGTH = 256;
const MAX_LISTED = 100;
const MAX_INFO_BYTES = 1024;
/** The claims are a level of their own. */
const MAX_INFO_DEPTH = 15;
const MAX_TOKEN_BYTES = 8192;
const MIN_SECRET_BYTES = 32;
const MIN_RSA_BITS = 2048;
/** The largest value of JWT_MAX_LIFETIME_S. Its default is a week. */
const MAX_LIFETIME_S = 31_622_400;
const ROOM = /^[A-Za-z0-9_.:@/-]{1,200}$/;
const PATTERN = /^[A-Za-z0-9_.:@/*-]{1,200}$/;
/** Control characters and lone surrogates. */
const UNPRINTABLE = /[\p{Cc}\p{Cs}]/u;
const utf8 = new TextEncoder();

/** A CryptoKey, where the types of the runtime name it so or not. @typedef {Parameters<typeof crypto.subtle.sign>[1]} Key */

/**
 * @typedef {object} Claims
 * @property {string|number} user `sub`: 1 to 128 characters, or an integer
 * @property {readonly string[]|(Partial<Record<'join'|'publish'|'presence'|'history'|'audience', readonly string[]>> & {[pattern: string]: readonly string[]|{audiences: readonly string[]}|undefined})} [rooms]
 *   patterns of rooms for each right, or for the first four. No list: no right. `audience`: to
 *   publish for an audience. `{'doc.*': {audiences: ['staff']}}`: up to 16 audiences of the user in
 *   these rooms
 * @property {boolean} [broadcast] may it send to every connection?
 * @property {readonly string[]} [autojoin] up to 100 rooms that the server joins for each connection
 * @property {unknown} [info] what presence shows of the user: JSON of at most 1 KiB
 * @property {readonly string[]} [audiences] up to 16 audiences of the user, in every room; `*`: all
 * @property {string} [app] id of the app whose rooms and users these are
 * @property {string} [tokenId] `jti`, by which the token can be revoked
 * @property {string} [audience] `aud` @property {string} [issuer] `iss`
 */

/**
 * @typedef {object} SignOptions
 * @property {number} [expiresInS] lifetime, an hour if absent. Servers take up to a week, unless
 *   JWT_MAX_LIFETIME_S is another
 * @property {'HS256'|'HS384'|'HS512'} [algorithm] for a secret, HS256 if absent. A private key has its own
 * @property {string} [keyId] `kid`: which key of a JWKS verifies the token
 */

/**
 * Signs a token.
 * @param {Claims} claims
 * @param {string|Key|undefined} key the value of JWT_SECRET, of whose lines the first signs; or a
 *   private key, for RS256 to RS512, PS256 to PS512, ES256 to ES512 or EdDSA
 * @param {SignOptions} [options]
 * @returns {Promise<string>}
 * @throws {FanfareApiError} INVALID_FIELD, whose `field` names the claim or option
 */
export async function sign(claims, key, { expiresInS = 3600, algorithm = 'HS256', keyId } = {}) {
  requireThat(
    expiresInS >= 1 && expiresInS <= MAX_LIFETIME_S,
    'expiresInS',
    `1 to ${MAX_LIFETIME_S} seconds`,
  );
  const signer = typeof key === 'object' ? key : await importSecret(key, algorithm);
  requireThat(
    signer?.usages?.includes('sign'),
    'key',
    'a secret, or a CryptoKey that may sign; Node makes one of a KeyObject with toCryptoKey',
  );
  const iat = Math.floor(Date.now() / 1000);
  const body = { ...readClaims(claims), iat, exp: iat + Math.floor(expiresInS) };
  const header = { alg: algorithmOf(signer), typ: 'JWT', kid: keyId };
  const text = `${encode(header)}.${encode(body)}`;
  const { name, hash = hashOf(signer) } = /** @type {any} */ (signer.algorithm);
  const how = { name, hash, saltLength: hashBits(hash) / 8 };
  const signature = await crypto.subtle.sign(how, signer, utf8.encode(text));
  const token = `${text}.${toBase64Url(new Uint8Array(signature))}`;
  requireThat(
    token.length <= MAX_TOKEN_BYTES,
    'claims',
    `a token has at most ${MAX_TOKEN_BYTES} bytes`,
  );
  return token;
}

/** @param {Claims} claims @returns {Record<string, unknown>} as they are in the token */
function readClaims(claims) {
  const { user, rooms = {}, tokenId: jti, audience: aud, issuer: iss, ...rest } = claims;
  const sub = Number.isSafeInteger(user) ? `${user}` : user;
  for (const [name, value] of Object.entries({ ...claims, user: sub })) {
    const [isRight, rule] = RULES[name] ?? [() => false, 'there is no such claim'];
    requireThat((value === undefined && name !== 'user') || isRight(value), name, rule);
  }
  requireThat(!rest.broadcast || rest.app === undefined, 'broadcast', 'it reaches all apps');
  return { sub, rooms: rightsOf(rooms), jti, aud, iss, ...rest };
}

/** @param {NonNullable<Claims['rooms']>} rooms @returns {Record<string, readonly string[]>} */
function rightsOf(rooms) {
  const rights = Array.isArray(rooms)
    ? Object.fromEntries(ROOM_RIGHTS.map((right) => [right, rooms]))
    : /** @type {Record<string, readonly string[]>} */ (rooms);
  for (const [right, patterns] of Object.entries(rights)) {
    if (typeof patterns === 'object' && !Array.isArray(patterns)) {
      const { audiences, ...others } = /** @type {Record<string, unknown>} */ (patterns ?? {});
      const isHeld = areAudiences(audiences) && Object.keys(others).length === 0;
      requireThat(PATTERN.test(right) && isHeld, `rooms.${right}`, '{audiences} of a pattern');
      continue;
    }
    requireThat(
      ALL_RIGHTS.includes(right),
      `rooms.${right}`,
      `the rights are ${ALL_RIGHTS.join(', ')}`,
    );
    requireThat(
      isListOf(PATTERN, patterns),
      `rooms.${right}`,
      'up to 100 patterns of rooms, as chat.*',
    );
  }
  return rights;
}

/** @param {unknown} user */
function isUser(user) {
  return (
    typeof user === 'string' &&
    user !== '' &&
    user.length <= MAX_USER_LENGTH &&
    !UNPRINTABLE.test(user) &&
    JSON.stringify(user)
      .slice(1, -1)
      .replace(/[\u0080-\uffff]/g, '\\u0000').length <= MAX_SENDER_BYTES
  );
}

/** @param {RegExp} form @param {unknown} list */
function isListOf(form, list) {
  return (
    Array.isArray(list) &&
    list.length <= MAX_LISTED &&
    list.every((one) => typeof one === 'string' && form.test(one))
  );
}

/** @param {unknown} list */
function areAudiences(list) {
  return isListOf(AUDIENCE, list) && /** @type {unknown[]} */ (list).length <= MAX_AUDIENCES;
}

/** @param {unknown} id */
function isTokenId(id) {
  return typeof id === 'string' && id !== '' && id.length <= MAX_TOKEN_ID_LENGTH;
}

/** @param {unknown} info */
function isInfo(info) {
  const text = JSON.stringify(info);
  return (
    text !== undefined &&
    utf8.encode(text).length <= MAX_INFO_BYTES &&
    isShallow(JSON.parse(text), MAX_INFO_DEPTH)
  );
}

/** Servers refuse the name `__proto__`, too. @param {unknown} value @param {number} levels @returns {boolean} */
function isShallow(value, levels) {
  if (typeof value !== 'object' || value === null) return true;
  return (
    levels > 0 &&
    !Object.hasOwn(value, '__proto__') &&
    Object.values(value).every((one) => isShallow(one, levels - 1))
  );
}

/** @param {unknown} value */
const isText = (value) => typeof value === 'string' && value !== '';

/** What each claim has to be. @type {Record<string, [(value: unknown) => boolean, string]>} */
const RULES = {
  user: [isUser, '1 to 128 characters without control characters, or an integer'],
  rooms: [(value) => typeof value === 'object' && value !== null, 'patterns, or lists of them'],
  broadcast: [(value) => typeof value === 'boolean', 'true or false'],
  autojoin: [(value) => isListOf(ROOM, value), `up to ${MAX_LISTED} names of rooms`],
  audiences: [areAudiences, `up to ${MAX_AUDIENCES} names of 1 to 64 characters`],
  info: [isInfo, `JSON of at most ${MAX_INFO_BYTES} bytes and ${MAX_INFO_DEPTH} levels`],
  app: [isText, 'the id of an app'],
  tokenId: [isTokenId, `1 to ${MAX_TOKEN_ID_LENGTH} characters`],
  audience: [isText, 'a text'],
  issuer: [isText, 'a text'],
};

/** @param {string|undefined} text @param {string} algorithm */
function importSecret(text = '', algorithm) {
  const [line = ''] = text
    .split('\n')
    .map((one) => one.trim())
    .filter((one) => one !== '');
  const secret = utf8.encode(line);
  requireThat(!text.includes('-----BEGIN '), 'key', 'a secret, or a CryptoKey, and not a PEM text');
  requireThat(
    secret.length >= MIN_SECRET_BYTES,
    'key',
    `a secret of at least ${MIN_SECRET_BYTES} bytes`,
  );
  requireThat(/^HS(256|384|512)$/.test(algorithm), 'algorithm', 'HS256, HS384 or HS512');
  const how = { name: 'HMAC', hash: `SHA-${algorithm.slice(2)}` };
  return crypto.subtle.importKey('raw', secret, how, false, ['sign']);
}

/** The hash of keys on a curve, which do not name it. @param {Key} key */
function hashOf({ algorithm }) {
  const { namedCurve = '' } = /** @type {{namedCurve?: string}} */ (algorithm);
  return { name: `SHA-${namedCurve === 'P-521' ? 512 : namedCurve.slice(2)}` };
}

/** @param {{name: string}} hash */
const hashBits = ({ name }) => Number(name.slice(4));

/** @type {Readonly<Record<string, string>>} */
const FAMILIES = { HMAC: 'HS', 'RSASSA-PKCS1-v1_5': 'RS', 'RSA-PSS': 'PS', ECDSA: 'ES' };

/** RFC 7518 3.1, RFC 8037 3.1. @param {Key} key @returns {string} `alg` */
function algorithmOf(key) {
  const { name, hash, modulusLength = MIN_RSA_BITS } = /** @type {any} */ (key.algorithm);
  if (name === 'Ed25519') return 'EdDSA';
  requireThat(name in FAMILIES, 'key', `${name} signs no tokens`);
  requireThat(modulusLength >= MIN_RSA_BITS, 'key', `RSA needs ${MIN_RSA_BITS} bits`);
  return `${FAMILIES[name]}${hashBits(hash ?? hashOf(key))}`;
}

/** @param {object} value */
const encode = (value) => toBase64Url(utf8.encode(JSON.stringify(value)));

/** @param {Uint8Array} bytes */
function toBase64Url(bytes) {
  let text = '';
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

/** @param {boolean} isRight @param {string} field @param {string} rule @throws {FanfareApiError} */
function requireThat(isRight, field, rule) {
  if (!isRight)
    throw new FanfareApiError('INVALID_FIELD', { field, message: `${field}: ${rule}.` });
}
