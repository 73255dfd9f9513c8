// verifier.js: a token in, an identity out.
//
//   size, shape -> algorithm allowed -> keys that fit -> signature, exp, nbf, aud, iss (jose)
//   -> claims (claims.js) -> not revoked
//
// Keys are imported once, as CryptoKeys: with raw bytes jose imports the secret for each token,
// which doubles the cost. Two secrets or keys may be valid at once, so that they can be rotated
// without an outage. The token selects a key only among those that the configuration allows.

import { errors, importJWK, jwtVerify } from 'jose';
import { ALGORITHMS, HMAC_ALGORITHMS } from '../config/token-keys.js';
import { LEEWAY_S, readIdentity } from './claims.js';
import { RemoteKeys } from './remote-keys.js';
import { parseObject } from './strict-json.js';
import { TokenError } from './token-error.js';

/** A handshake has room for 16 KB of headers. */
export const MAX_TOKEN_BYTES = 8192;
/** Tokens being verified at once. A worker that is this far behind answers UNAVAILABLE. */
const MAX_PENDING = 1000;
const OVERLOAD_RETRY_S = 5;
/** Types a token may name (RFC 8725 3.11): a plain one, or an access token (RFC 9068 2.1). */
const TYPES = new Set(['jwt', 'at+jwt', 'application/jwt', 'application/at+jwt']);
const TOKEN = /^([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]*$/;

/** @typedef {import('./claims.js').Identity} Identity */
/** @typedef {import('jose').CryptoKey} CryptoKey */

export class TokenVerifier {
  /** By algorithm. @type {Map<string, CryptoKey[]>} */
  #keys = new Map();
  /** @type {RemoteKeys|null} */
  #remote = null;
  #pending = 0;

  /**
   * @param {object} parts
   * @param {import('../config/tokens.js').TokenSettings} parts.settings
   * @param {{isRevoked(identity: Identity): boolean}} parts.revocations
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {{info(fields: object, text: string): void, warn(fields: object, text: string): void}}
   *   parts.log
   * @param {() => number} [parts.now] ms since 1970
   * @param {RemoteKeys} [parts.remote] for tests; else made for `jwksUrl`
   */
  constructor({ settings, revocations, counters, log, now = Date.now, remote }) {
    this.settings = settings;
    this.revocations = revocations;
    this.counters = counters;
    this.now = now;
    const { jwksUrl, algorithms, audience, issuer } = settings;
    if (jwksUrl !== '') this.#remote = remote ?? new RemoteKeys({ url: jwksUrl, counters, log });
    this.allowed = new Set(algorithms.length === 0 ? ALGORITHMS : algorithms);
    /** Shared by all tokens; jose reads it before it first waits. */
    this.checks = {
      algorithms: [''],
      clockTolerance: LEEWAY_S,
      requiredClaims: ['exp'],
      ...(audience.length > 0 && { audience: [...audience] }),
      ...(issuer.length > 0 && { issuer: [...issuer] }),
    };
  }

  /**
   * Imports the keys, and begins to read the JWKS: tokens that need it wait for it.
   * @returns {Promise<{remote: Promise<void>}>} `remote`: the first read has ended
   */
  async start() {
    for (const secret of this.settings.secrets) {
      const bytes = Buffer.from(secret);
      for (const algorithm of HMAC_ALGORITHMS) {
        if (this.allowed.has(algorithm)) this.#add(algorithm, await importSecret(bytes, algorithm));
      }
    }
    for (const { jwk, algorithms } of this.settings.publicKeys) {
      for (const algorithm of algorithms) {
        if (this.allowed.has(algorithm))
          this.#add(algorithm, /** @type {CryptoKey} */ (await importJWK(jwk, algorithm)));
      }
    }
    return { remote: Promise.resolve(this.#remote?.start()) };
  }

  close() {
    this.#remote?.close();
  }

  /**
   * @param {string} token
   * @returns {Promise<Identity>}
   * @throws {TokenError} counted by its reason
   */
  async verify(token) {
    try {
      if (this.#pending >= MAX_PENDING) throw new TokenError('overload', OVERLOAD_RETRY_S);
      this.#pending++;
      try {
        const identity = await this.#verify(token);
        this.counters.tokens.accepted++;
        return identity;
      } finally {
        this.#pending--;
      }
    } catch (error) {
      const refusal = refusalOf(error);
      this.counters.tokens[refusal.reason]++;
      throw refusal;
    }
  }

  /** @param {string} token */
  async #verify(token) {
    if (token.length > MAX_TOKEN_BYTES) throw new TokenError('oversized');
    const [, head, body] = TOKEN.exec(token) ?? [];
    if (head === undefined) throw new TokenError('malformed');
    const { alg, kid } = this.#readHeader(head);
    const nowMs = this.now();
    await this.#checkSignature(token, alg, kid, nowMs);
    const text = textOf(body);
    if (text === null) throw new TokenError('malformed');
    const identity = readIdentity(text, nowMs / 1000, this.settings.maxLifetimeS);
    if (this.revocations.isRevoked(identity)) throw new TokenError('revoked');
    return identity;
  }

  /**
   * @param {string} part
   * @returns {{alg: string, kid: unknown}}
   */
  #readHeader(part) {
    const text = textOf(part);
    const header = text === null ? null : parseObject(text);
    if (header === null) throw new TokenError('malformed');
    const { alg, kid, typ, cty, crit, b64 } = header;
    // No extension is understood (RFC 7515 4.1.11), and no token within a token (RFC 7519 5.2).
    if (crit !== undefined || b64 !== undefined || cty !== undefined)
      throw new TokenError('malformed');
    if (typ !== undefined && !(typeof typ === 'string' && TYPES.has(typ.toLowerCase())))
      throw new TokenError('malformed');
    if (typeof alg !== 'string' || !this.allowed.has(alg)) throw new TokenError('algorithm');
    return { alg, kid };
  }

  /**
   * @param {string} token
   * @param {string} alg
   * @param {unknown} kid
   * @param {number} nowMs
   */
  async #checkSignature(token, alg, kid, nowMs) {
    const options = { ...this.checks, algorithms: [alg], currentDate: new Date(nowMs) };
    const keys = this.#keys.get(alg);
    if (keys !== undefined) {
      for (const key of keys) if (await isSignedBy(token, key, options)) return;
    }
    if (this.#remote !== null && !alg.startsWith('HS')) {
      if (await isSignedBy(token, await this.#remote.find(alg, kid), options)) return;
    } else if (keys === undefined) {
      throw new TokenError('algorithm');
    }
    throw new TokenError('signature');
  }

  /**
   * @param {string} algorithm
   * @param {CryptoKey} key
   */
  #add(algorithm, key) {
    const keys = this.#keys.get(algorithm);
    if (keys === undefined) this.#keys.set(algorithm, [key]);
    else keys.push(key);
  }
}

/**
 * @param {Buffer} secret
 * @param {string} algorithm HS256, HS384, HS512
 */
function importSecret(secret, algorithm) {
  const hash = `SHA-${algorithm.slice(2)}`;
  return crypto.subtle.importKey('raw', secret, { name: 'HMAC', hash }, false, ['verify']);
}

/**
 * @param {string} token
 * @param {CryptoKey} key
 * @param {import('jose').JWTVerifyOptions} options
 * @returns {Promise<boolean>} false: another key has signed it
 * @throws if a claim is refused
 */
async function isSignedBy(token, key, options) {
  try {
    await jwtVerify(token, key, options);
    return true;
  } catch (error) {
    if (error instanceof errors.JWSSignatureVerificationFailed) return false;
    throw error;
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * @param {string} part base64url
 * @returns {string|null} null: not UTF-8
 */
function textOf(part) {
  try {
    return utf8.decode(Buffer.from(part, 'base64url'));
  } catch {
    return null;
  }
}

const CLAIM_REASONS = /** @type {Readonly<Record<string, import('./token-error.js').Reason>>} */ ({
  nbf: 'not_yet_valid',
  aud: 'audience',
  iss: 'issuer',
});

/**
 * jose's errors carry the claims, so they go no further.
 * @param {unknown} error
 * @returns {TokenError}
 * @throws what is no refusal but a fault of this program
 */
function refusalOf(error) {
  if (error instanceof TokenError) return error;
  if (error instanceof errors.JWTExpired) return new TokenError('expired');
  if (error instanceof errors.JWTClaimValidationFailed)
    return new TokenError(
      error.reason === 'check_failed' || error.reason === 'missing'
        ? (CLAIM_REASONS[error.claim] ?? 'claims')
        : 'claims',
    );
  if (error instanceof errors.JOSEError) return new TokenError('malformed');
  throw error;
}
