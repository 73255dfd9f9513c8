// verifier.js: a token in, an identity out.
//
//   size, form -> algorithm allowed -> keys that fit -> signature -> claims (claims.js)
//   -> not revoked
//
// node:crypto checks signatures made with a secret, in the same turn. jose checks those of public
// keys, by WebCrypto in a thread pool. For an HMAC that would cost 40 instead of 7 us of CPU.
//
// Keys are imported once. Several may be valid, so that you can rotate them without an outage. A
// token only selects one of them.

import { createHmac, createSecretKey, timingSafeEqual } from 'node:crypto';
import { compactVerify, errors, importJWK } from 'jose';
import { ALGORITHMS } from '../config/token-keys.js';
import { readIdentity } from './claims.js';
import { RemoteKeys } from './remote-keys.js';
import { parseObject } from './strict-json.js';
import { TokenError } from './token-error.js';

/** The headers of a handshake may have 16 KB. */
export const MAX_TOKEN_BYTES = 8192;
/**
 * Concurrent verifications with public keys. Above it a token is answered with UNAVAILABLE. Tokens
 * that wait for the JWKS have their own bound, so that invented key ids do not shut out known keys.
 */
const MAX_PENDING = 1000;
/** `typ` (RFC 8725 3.11): a plain token, or an access token (RFC 9068 2.1). */
const TYPES = new Set(['jwt', 'at+jwt', 'application/jwt', 'application/at+jwt']);
/** Remembered headers. With one more, all of them are forgotten. */
const MAX_HEADERS = 100;
const TOKEN = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$/;
/** The hash of each algorithm that uses a secret. @type {ReadonlyMap<string, string>} */
const HMAC_HASHES = new Map([
  ['HS256', 'sha256'],
  ['HS384', 'sha384'],
  ['HS512', 'sha512'],
]);

/** @import { Identity } from './claims.js' */
/** @import { CryptoKey } from 'jose' */

/** @typedef {{alg: string, kid: unknown}} Header */

/** @typedef {typeof readIdentity} ReadClaims */

export class TokenVerifier {
  /** The secrets of all HMAC algorithms. @type {import('node:crypto').KeyObject[]} */
  #secrets;
  /** Public keys by algorithm. @type {Map<string, CryptoKey[]>} */
  #keys = new Map();
  /** @type {RemoteKeys|null} */
  #remote = null;
  #pending = 0;
  /** Valid headers by text: most tokens have the same. @type {Map<string, Header>} */
  #headers = new Map();

  /**
   * @param {object} parts @param {import('../config/tokens.js').TokenSettings} parts.settings
   * @param {{isRevoked(identity: Identity): boolean}} parts.revocations
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {{info(fields: object, text: string): void, warn(fields: object, text: string): void}}
   *   parts.log
   * @param {() => number} [parts.now] ms since 1970
   * @param {RemoteKeys} [parts.remote] for tests
   * @param {import('./claims.js').Apps|null} [parts.apps]
   * @param {{warn(fields: object, text: string, source: string): void}|null} [parts.rareLog] gets a
   *   line for each refusal; null: none
   * @param {boolean} [parts.tellsWhy] do clients get the cause of a refusal?
   */
  constructor(parts) {
    const { settings, revocations, counters, log, now = Date.now, remote, apps = null } = parts;
    this.rareLog = parts.rareLog ?? null;
    this.tellsWhy = parts.tellsWhy ?? false;
    this.settings = settings;
    this.apps = apps;
    this.revocations = revocations;
    this.counters = counters;
    this.now = now;
    const { secrets, jwksUrl, algorithms } = settings;
    if (jwksUrl !== '') this.#remote = remote ?? new RemoteKeys({ url: jwksUrl, counters, log });
    this.allowed = new Set(algorithms.length === 0 ? ALGORITHMS : algorithms);
    this.#secrets = secrets.map((one) => createSecretKey(Buffer.from(one)));
  }

  /**
   * Imports the keys, and begins to read the JWKS. Tokens that need it wait.
   * @returns {Promise<{remote: Promise<void>}>} `remote`: the first read has ended
   */
  async start() {
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
   * @param {string} token @param {ReadClaims} [read] doors may have their own
   * @returns {Identity|Promise<Identity>} a promise for public keys
   * @throws {TokenError} at once or by the promise; counted by reason
   */
  verify(token, read = readIdentity) {
    /** @type {Header|null} */
    let header = null;
    try {
      if (token.length > MAX_TOKEN_BYTES) throw new TokenError('oversized');
      if (!TOKEN.test(token)) throw new TokenError('malformed');
      const headEnd = token.indexOf('.');
      const bodyEnd = token.indexOf('.', headEnd + 1);
      const head = token.slice(0, headEnd);
      const body = token.slice(headEnd + 1, bodyEnd);
      header = this.#headers.get(head) ?? this.#readHeader(head);
      const hash = HMAC_HASHES.get(header.alg);
      if (hash === undefined) return this.#verifyLater(token, header, body, read);
      this.#checkMac(hash, token.slice(0, bodyEnd), token.slice(bodyEnd + 1));
      return this.#accept(body, read);
    } catch (error) {
      throw this.#refused(error, header);
    }
  }

  /**
   * @param {string} token @param {Header} header @param {string} body @param {ReadClaims} read
   * @returns {Promise<Identity>}
   */
  async #verifyLater(token, header, body, read) {
    try {
      await this.#checkSignature(token, header);
      return this.#accept(body, read);
    } catch (error) {
      throw this.#refused(error, header);
    }
  }

  /** The signature is valid. @param {string} body base64url @param {ReadClaims} read */
  #accept(body, read) {
    const source = Buffer.from(body, 'base64url');
    const claims = readObject(source);
    try {
      const identity = read(claims, this.now() / 1000, this.settings, this.apps, source);
      if (this.revocations.isRevoked(identity)) throw new TokenError('revoked');
      this.counters.tokens.accepted++;
      return identity;
    } catch (error) {
      if (error instanceof TokenError) error.date(claims.iat);
      throw error;
    }
  }

  /** @param {unknown} error @param {Header|null} header @returns {TokenError} counted and logged */
  #refused(error, header) {
    const refusal = refusalOf(error);
    const { reason, claim, why, issuedAtS } = refusal;
    this.counters.tokens[reason]++;
    const ageS = issuedAtS === null ? undefined : Math.round(this.now() / 1000 - issuedAtS);
    const { alg, kid } = header ?? {};
    // Never the token: whoever reads the log could use it.
    this.rareLog?.warn(
      { reason, claim: claim || undefined, why, alg, kid: printable(kid), ageS },
      'a token was refused',
      `${reason} ${claim}`,
    );
    return this.tellsWhy ? refusal.tell() : refusal;
  }

  /** @param {string} part @returns {Header} */
  #readHeader(part) {
    const { alg, kid, typ, cty, crit, b64 } = readObject(Buffer.from(part, 'base64url'));
    // No extension is understood (RFC 7515 4.1.11), and no token within a token (RFC 7519 5.2).
    if (crit !== undefined || b64 !== undefined || cty !== undefined)
      throw headerFault('crit, b64 and cty are not supported');
    if (typ !== undefined && !(typeof typ === 'string' && TYPES.has(typ.toLowerCase())))
      throw headerFault('typ is neither JWT nor at+jwt');
    if (typeof alg !== 'string' || !this.allowed.has(alg)) throw algorithmFault(alg);
    const read = { alg, kid };
    if (this.#headers.size >= MAX_HEADERS) this.#headers.clear();
    this.#headers.set(part, read);
    return read;
  }

  /** @param {string} hash @param {string} text signed @param {string} signature base64url */
  #checkMac(hash, text, signature) {
    if (this.#secrets.length === 0)
      throw new TokenError('algorithm', {
        why: 'its algorithm needs JWT_SECRET, which is not set',
      });
    const given = Buffer.from(signature, 'base64url');
    for (const secret of this.#secrets) {
      const expected = createHmac(hash, secret).update(text).digest();
      if (given.length === expected.length && timingSafeEqual(given, expected)) return;
    }
    throw new TokenError('signature');
  }

  /** @param {string} token @param {Header} header of a public key's algorithm */
  async #checkSignature(token, { alg, kid }) {
    const keys = this.#keys.get(alg);
    for (const key of keys ?? []) if (await this.#isSignedBy(token, key, alg)) return;
    if (this.#remote !== null) {
      for (const key of await this.#remote.findKeys(alg, kid))
        if (await this.#isSignedBy(token, key, alg)) return;
    } else if (keys === undefined) {
      throw new TokenError('algorithm');
    }
    throw new TokenError('signature');
  }

  /**
   * @param {string} token @param {CryptoKey} key @param {string} alg
   * @returns {Promise<boolean>} false: signed by another key
   */
  async #isSignedBy(token, key, alg) {
    if (this.#pending >= MAX_PENDING) throw new TokenError('overload');
    this.#pending++;
    try {
      await compactVerify(token, key, { algorithms: [alg] });
      return true;
    } catch (error) {
      if (error instanceof errors.JWSSignatureVerificationFailed) return false;
      throw error;
    } finally {
      this.#pending--;
    }
  }

  /** @param {string} algorithm @param {CryptoKey} key */
  #add(algorithm, key) {
    const keys = this.#keys.get(algorithm);
    if (keys === undefined) this.#keys.set(algorithm, [key]);
    else keys.push(key);
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** @param {Buffer} bytes of a part @returns {Record<string, unknown>} @throws {TokenError} */
function readObject(bytes) {
  let text = '';
  try {
    text = utf8.decode(bytes);
  } catch {
    // Bytes that are not UTF-8 are malformed, like an empty text.
  }
  const value = parseObject(text);
  if (value === null) throw new TokenError('malformed');
  return value;
}

/** @param {unknown} error @returns {TokenError} @throws a fault of this program */
function refusalOf(error) {
  if (error instanceof TokenError) return error;
  if (error instanceof errors.JOSEError) return new TokenError('malformed');
  throw error;
}

/** @param {string} why @returns {TokenError} */
function headerFault(why) {
  return new TokenError('malformed', { claim: 'header', why: `header: ${why}` });
}

/** @param {unknown} alg that is not allowed @returns {TokenError} */
function algorithmFault(alg) {
  const isKnown = typeof alg === 'string' && ALGORITHMS.includes(alg);
  const why = isKnown
    ? `its algorithm ${alg} is not allowed: see JWT_ALGORITHMS`
    : `alg is none of ${ALGORITHMS.join(', ')}`;
  return new TokenError('algorithm', { claim: 'alg', why });
}

/** @param {unknown} kid @returns {string|undefined} for the log, which a stranger must not fill */
function printable(kid) {
  return typeof kid === 'string' ? kid.slice(0, 64).replace(/[^\x20-\x7e]/g, '?') : undefined;
}
