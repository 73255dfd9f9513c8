// token-keys.js: the signature algorithms, and the keys that fit each of them.
//
// A key decides which algorithms it may be used with; `alg` of a token only selects among those. So
// a public key is never used as an HMAC secret (RFC 8725 3.1), and `none` is not an algorithm.

import { createPublicKey } from 'node:crypto';

/** @import { JWK } from 'jose' */

const HMAC = ['HS256', 'HS384', 'HS512'];
const RSA = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'];
/** Key types other than RSA have one algorithm a curve (RFC 7518 3.4, RFC 8037 3.1, RFC 9864 2). */
const CURVES = /** @type {Readonly<Record<string, readonly string[]>>} */ ({
  'EC P-256': ['ES256'],
  'EC P-384': ['ES384'],
  'EC P-521': ['ES512'],
  'OKP Ed25519': ['EdDSA', 'Ed25519'],
});

export const ALGORITHMS = Object.freeze([...HMAC, ...RSA, ...Object.values(CURVES).flat()]);

/** RFC 7518 3.2: as long as the hash. Shorter ones can be guessed offline from one token. */
const MIN_SECRET_BYTES = 32;
/** RFC 7518 3.3 asks for 2,048 bits. Above the upper bound one check costs milliseconds. */
const MIN_RSA_BYTES = 256;
const MAX_RSA_BYTES = 1024;
/** A public exponent of more bytes makes each check slow. 65,537 has three. */
const MAX_EXPONENT_BYTES = 4;
/** Public keys in one PEM text: the current one and the previous or next one, with room. */
const MAX_PEM_KEYS = 4;

/** @typedef {Readonly<Record<string, unknown>>} Jwk a JSON Web Key, not checked yet */

/**
 * @typedef {object} PublicKey a public key and the algorithms that fit it
 * @property {JWK} jwk its public members only
 * @property {readonly string[]} algorithms
 */

/**
 * Reads the public members of a public key. If the key is symmetric, the result is null, so a JWKS
 * cannot bring a secret.
 * @param {unknown} value @returns {PublicKey|null} null if it is not a usable signature key
 */
export function readPublicKey(value) {
  if (typeof value !== 'object' || value === null) return null;
  const jwk = /** @type {Jwk} */ (value);
  if (jwk.use !== undefined && jwk.use !== 'sig') return null;
  if (jwk.key_ops !== undefined && !(Array.isArray(jwk.key_ops) && jwk.key_ops.includes('verify')))
    return null;
  const { kty, crv, n, e, x, y, alg } = jwk;
  let key;
  let algorithms;
  if (kty === 'RSA') {
    if (!isBytes(n, MIN_RSA_BYTES, MAX_RSA_BYTES) || !isBytes(e, 1, MAX_EXPONENT_BYTES))
      return null;
    key = { kty, n, e };
    algorithms = RSA;
  } else if (kty === 'EC' || kty === 'OKP') {
    algorithms = CURVES[`${kty} ${crv}`] ?? [];
    if (!isBytes(x, 1, 66) || (kty === 'EC' && !isBytes(y, 1, 66))) return null;
    key = kty === 'EC' ? { kty, crv: String(crv), x, y: String(y) } : { kty, crv: String(crv), x };
  } else {
    return null;
  }
  if (alg !== undefined) algorithms = algorithms.filter((name) => name === alg);
  return algorithms.length === 0 ? null : { jwk: key, algorithms };
}

/**
 * @param {unknown} value @param {number} min @param {number} max
 * @returns {value is string} base64url of `min` to `max` bytes
 */
function isBytes(value, min, max) {
  if (typeof value !== 'string' || !/^[A-Za-z0-9_-]+$/.test(value)) return false;
  const bytes = Math.floor((value.length * 3) / 4);
  return bytes >= min && bytes <= max;
}

/**
 * Reads SPKI, PKCS#1 or X.509 certificates. In an environment variable, `\n` may be a line break.
 * @param {string} text
 * @returns {{keys: PublicKey[], fault: string}} the fault never quotes the text; '' if the text is
 *   valid
 */
export function readPem(text) {
  const pem = text.replaceAll('\\n', '\n');
  if (/-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(pem))
    return { keys: [], fault: 'this is a private key; give the public key' };
  const blocks = pem.match(/-----BEGIN ([A-Z0-9 ]+)-----[\s\S]*?-----END \1-----/g) ?? [];
  if (blocks.length === 0) return { keys: [], fault: 'no PEM block with a public key' };
  if (blocks.length > MAX_PEM_KEYS)
    return { keys: [], fault: `${blocks.length} keys are more than ${MAX_PEM_KEYS}` };
  const keys = [];
  for (const [index, block] of blocks.entries()) {
    const key = readPemBlock(block);
    if (key === null)
      return {
        keys: [],
        fault: `key ${index + 1} is not RSA of 2048 to 8192 bits, P-256, P-384, P-521 or Ed25519`,
      };
    keys.push(key);
  }
  return { keys, fault: '' };
}

/** @param {string} block */
function readPemBlock(block) {
  try {
    return readPublicKey(createPublicKey(block).export({ format: 'jwk' }));
  } catch {
    return null; // OpenSSL's text may quote the key
  }
}

/** @param {string} secret @returns {string} the fault, without the secret; or '' */
export function secretFault(secret) {
  // Everybody may know a public key. If it were a secret, everybody could sign.
  if (secret.includes('-----BEGIN ')) return 'a PEM text; a public key is not a secret';
  const bytes = Buffer.byteLength(secret);
  return bytes < MIN_SECRET_BYTES
    ? `${bytes} bytes long; a secret needs at least ${MIN_SECRET_BYTES} (openssl rand -hex 32)`
    : '';
}
