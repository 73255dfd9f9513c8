// tokens.js: tokens for tests, valid ones and those that no library would sign.

import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';

import { SignJWT } from 'jose';

export const SECRET = 'test-secret-0123456789-0123456789-abcdef';
export const OTHER_SECRET = 'other-secret-0123456789-0123456789-abcde';

/** @param {string|Buffer} text */
export const base64url = (text) => Buffer.from(text).toString('base64url');

/**
 * A token around any texts, signed by HMAC with SHA-256.
 * @param {string} header JSON, or not
 * @param {string} payload JSON, or not
 * @param {string|Buffer} [secret]
 */
export function rawToken(header, payload, secret = SECRET) {
  const signed = `${base64url(header)}.${base64url(payload)}`;
  return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
}

/**
 * A token of HS256 that is valid for an hour, unless the claims say otherwise.
 * @param {Record<string, unknown>} [claims] undefined removes one
 * @param {string} [secret]
 */
export function token(claims = {}, secret = SECRET) {
  const nowS = Math.floor(Date.now() / 1000);
  const all = { sub: 'alice', iat: nowS, exp: nowS + 3600, ...claims };
  return rawToken('{"alg":"HS256","typ":"JWT"}', JSON.stringify(all), secret);
}

/**
 * @param {import('jose').CryptoKey|import('node:crypto').KeyObject} privateKey
 * @param {string} alg @param {string} [kid]
 */
export function signed(privateKey, alg, kid) {
  return (
    new SignJWT({ sub: 'alice' })
      .setProtectedHeader(kid === undefined ? { alg } : { alg, kid })
      // A test's clock may have stood since it began.
      .setIssuedAt('5m ago')
      .setExpirationTime('1h')
      .sign(privateKey)
  );
}

/**
 * A server of a JWKS.
 * @param {import('node:test').TestContext} t @param {import('node:http').RequestListener} answer
 */
export async function startJwks(t, answer) {
  const server = createServer(answer);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return `http://127.0.0.1:${port}/jwks.json`;
}
