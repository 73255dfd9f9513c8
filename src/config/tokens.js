// tokens.js: reads the settings JWT_* and FANFARE_AUTH, which decide how tokens are verified.
//
// Keys are read here, so that a fault is reported with all others before the server starts. When a
// rolling reload begins, key files are read again. No fault quotes a secret or a key.

import { isIP } from 'node:net';

import { ALGORITHMS, readPem, secretFault } from './token-keys.js';

/** @import { PublicKey } from './token-keys.js' */

/** Secrets of one setting: the current one, the previous and the next one, with room. */
const MAX_SECRETS = 4;

/**
 * @typedef {object} TokenSettings frozen
 * @property {readonly string[]} secrets each of at least 32 bytes; the first signs
 * @property {readonly PublicKey[]} publicKeys @property {string} jwksUrl '' if none is set
 * @property {readonly string[]} algorithms allowed ones; if empty, those that fit the keys
 * @property {readonly string[]} audience one of them must be in `aud`; not checked if empty
 * @property {readonly string[]} issuer one of them must be `iss`; not checked if empty
 * @property {number} maxLifetimeS of a token
 * @property {'auto'|'on'|'off'} [reasons] do clients get the cause of a refusal?
 * @property {boolean} [hasSubscriptionTokens] do the same keys sign Centrifugo's subscription tokens?
 */

/** @typedef {'required'|'optional'|'off'} AuthMode */

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @param {import('./texts.js').ReadText} read
 * @returns {{tokens: TokenSettings|null, auth: AuthMode, faults: string[]}} null if no key
 *   is configured, if tokens are off, or if there is a fault
 */
export function readTokenSettings(values, read) {
  const text = (/** @type {string} */ key) => String(values[key] ?? '');
  const list = (/** @type {string} */ key) =>
    Object.freeze([.../** @type {readonly string[]} */ (values[key] ?? [])]);
  const faults = [];
  if (text('jwtSecret') === '' && text('jwtSecretPrevious') !== '')
    faults.push('JWT_SECRET_PREVIOUS: does nothing without JWT_SECRET');
  const secrets = [
    ...readSecrets('JWT_SECRET', text('jwtSecret'), faults),
    ...readSecrets('JWT_SECRET_PREVIOUS', text('jwtSecretPrevious'), faults),
  ];
  const publicKeys = [
    ...readKeys('JWT_PUBLIC_KEY', text('jwtPublicKey'), faults, read),
    ...readKeys('JWT_PUBLIC_KEY_PREVIOUS', text('jwtPublicKeyPrevious'), faults, read),
  ];
  const jwksUrl = text('jwtJwksUrl');
  if (jwksUrl !== '' && !isTrustworthy(jwksUrl))
    faults.push('JWT_JWKS_URL: its value is not an https:// URL; http:// only to this machine');
  const algorithms = list('jwtAlgorithms');
  for (const name of algorithms) {
    if (!ALGORITHMS.includes(name))
      faults.push(`JWT_ALGORITHMS: ${JSON.stringify(name)} is not one of ${ALGORITHMS.join(', ')}`);
  }
  const hasKeys = secrets.length > 0 || publicKeys.length > 0 || jwksUrl !== '';
  const fits = (/** @type {string} */ name) =>
    name.startsWith('HS')
      ? secrets.length > 0
      : jwksUrl !== '' || publicKeys.some((key) => key.algorithms.includes(name));
  if (faults.length === 0 && hasKeys && algorithms.length > 0 && !algorithms.some(fits))
    faults.push('JWT_ALGORITHMS: no configured key fits any of them');
  const asked = text('auth');
  if (!hasKeys && faults.length === 0 && (asked === 'required' || asked === 'optional'))
    faults.push(`FANFARE_AUTH: ${asked} needs JWT_SECRET, JWT_PUBLIC_KEY or JWT_JWKS_URL`);
  const auth = /** @type {AuthMode} */ (asked === 'auto' ? (hasKeys ? 'required' : 'off') : asked);
  if (faults.length > 0 || auth === 'off') return { tokens: null, auth: 'off', faults };
  const tokens = Object.freeze({
    secrets: Object.freeze(secrets),
    publicKeys: Object.freeze(publicKeys),
    jwksUrl,
    algorithms,
    audience: list('jwtAudience'),
    issuer: list('jwtIssuer'),
    maxLifetimeS: Number(values.jwtMaxLifetimeS),
    reasons: /** @type {'auto'|'on'|'off'} */ (values.tokenReasons),
    hasSubscriptionTokens: values.centrifugoDoor === 'on',
  });
  return { tokens, auth, faults };
}

/**
 * @param {string} name of the setting @param {string} value one secret on each line
 * @param {string[]} faults one is added for each line that is no secret
 */
function readSecrets(name, value, faults) {
  // A PEM text has lines, too. As one text it gets a fault that says what is wrong.
  const lines = value.includes('-----BEGIN ') ? [value] : value.split('\n');
  const secrets = lines.map((line) => line.trim()).filter((line) => line !== '');
  if (secrets.length > MAX_SECRETS)
    faults.push(`${name}: its value has ${secrets.length} lines, at most ${MAX_SECRETS}`);
  for (const [index, secret] of secrets.entries()) {
    const fault = secretFault(secret);
    const where = secrets.length === 1 ? 'its value' : `line ${index + 1}`;
    if (fault !== '') faults.push(`${name}: ${where} is ${fault}`);
  }
  return secrets;
}

/**
 * @param {string} name of the setting @param {string} value PEM text, or the path of a PEM file
 * @param {string[]} faults one is added if the value is not a key
 * @param {import('./texts.js').ReadText} read @returns {PublicKey[]}
 */
function readKeys(name, value, faults, read) {
  if (value === '') return [];
  let pem = value;
  if (!value.includes('-----BEGIN ')) {
    try {
      pem = read(value);
    } catch (error) {
      // If the value is not a path, it may be a key or a secret, so it is not shown.
      const { code } = /** @type {NodeJS.ErrnoException} */ (error);
      faults.push(`${name}: its value is neither PEM text nor a file that can be read (${code})`);
      return [];
    }
  }
  const { keys, fault } = readPem(pem);
  if (fault !== '') faults.push(`${name}: ${fault}`);
  return keys;
}

/**
 * Whoever can change the answer of the JWKS URL can sign tokens, so its connection is encrypted.
 * @param {string} text
 */
function isTrustworthy(text) {
  if (!URL.canParse(text)) return false;
  const url = new URL(text);
  if (url.username !== '' || url.password !== '') return false; // fetch refuses them
  if (url.protocol === 'https:') return true;
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const isLocal =
    host === 'localhost' || host === '::1' || (isIP(host) === 4 && /^127\./.test(host));
  return url.protocol === 'http:' && isLocal;
}

/** Describes the tokens for the banner. @param {TokenSettings} tokens @returns {string} without secrets */
export function describeTokens({ secrets, publicKeys, jwksUrl }) {
  const count = (/** @type {number} */ n, /** @type {string} */ what) =>
    n === 0 ? [] : [`${n} ${what}${n === 1 ? '' : 's'}`];
  return [
    ...count(secrets.length, 'secret'),
    ...count(publicKeys.length, 'public key'),
    ...(jwksUrl === '' ? [] : [`a JWKS of ${new URL(jwksUrl).host}`]),
  ].join(', ');
}
