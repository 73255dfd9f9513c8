// request-signature.js: verifies signatures of requests to Pusher's HTTP API.
//
//   ?auth_key=…&auth_timestamp=1353088179&auth_version=1.0&body_md5=…&auth_signature=HMAC-SHA256
//
// The signature covers the method, the path and the parameters, one of which is the body's MD5. So
// a request without a valid signature is refused before its body is read.
//
// SDKs sign the decoded text `k=v&k=v`, sorted by key. They encode the query in different ways, and
// a few sign another reading of it. Up to four readings are tried, and the caller gets the
// parameters of the signed one:
//
//   a plus sign is a plus sign (Go does not escape), or a space (form encoding)
//   `info[]=a&info[]=b` is two parameters, or `info=a,b` (PHP)

import { createHash } from 'node:crypto';
import { isSigned } from '../../../protocol/pusher-signature.js';

const MAX_PARAMETERS = 100;
/** Clock difference that is allowed. A request can be replayed for this time. */
const MAX_AGE_S = 600;
const SIGNATURE = 'auth_signature';
const TIMESTAMP = /^\d{1,12}$/;
const MD5 = /^[0-9a-f]{32}$/i;
const ARRAY = /^([^[]+)\[[^\]]*\]$/;

/** @typedef {import('../../../protocol/pusher-signature.js').SigningApp} SigningApp */
/** @typedef {[key: string, value: string]} Parameter */

/**
 * A signed request.
 * @typedef {object} Signed
 * @property {ReadonlyMap<string, string>} parameters decoded, by keys in lower case
 * @property {string|undefined} bodyMd5 in lower case; undefined only without a body
 */

/**
 * @typedef {object} Head
 * @property {string} method
 * @property {string} path as received, without the configured prefix and without the query
 * @property {string} query as received, without the question mark
 * @property {boolean} hasBody
 */

/** @param {string} query as received @returns {string|undefined} the app's key, not verified */
export function keyOf(query) {
  const key = split(query)?.find(([name]) => name === 'auth_key');
  return key?.[1];
}

/**
 * @param {SigningApp} app @param {Head} head @param {number} nowS seconds since 1970
 * @returns {Signed|string} a fault, for the client
 */
export function verifyRequest(app, { method, path, query, hasBody }, nowS) {
  const raw = split(query);
  if (raw === null) return `more than ${MAX_PARAMETERS} parameters`;
  // Cheap checks first. These parameters hardly ever have spaces or arrays, where readings differ.
  const plain = new Map(raw.map(([key, value]) => [key.toLowerCase(), decodePercents(value)]));
  if (plain.get('auth_key') !== app.key) return 'auth_key is not the key of this app';
  if (plain.get('auth_version') !== '1.0') return 'auth_version is not 1.0';
  const timestamp = plain.get('auth_timestamp') ?? '';
  if (!TIMESTAMP.test(timestamp)) return 'auth_timestamp is not a number of seconds';
  if (Math.abs(nowS - Number(timestamp)) > MAX_AGE_S)
    return `auth_timestamp differs from the server's clock by more than ${MAX_AGE_S} s`;
  const bodyMd5 = plain.get('body_md5');
  if (bodyMd5 === undefined ? hasBody : !MD5.test(bodyMd5))
    return 'body_md5 is not the MD5 of the body in hexadecimal';
  for (const parameters of readingsOf(raw)) {
    const signed = textOf(parameters);
    if (signed === null) continue;
    if (isSigned(app, `${method}\n${path}\n${signed}`, plain.get(SIGNATURE)))
      return { parameters: new Map(parameters), bodyMd5: bodyMd5?.toLowerCase() };
  }
  return 'auth_signature is not that of this request';
}

/** Is it the signed body? @param {Signed} signed @param {Buffer} body */
export function isSignedBody({ bodyMd5 }, body) {
  if (bodyMd5 === undefined) return body.length === 0;
  return createHash('md5').update(body).digest('hex') === bodyMd5;
}

/** @param {string} query @returns {Parameter[]|null} not decoded; null: too many */
function split(query) {
  const parts = query.split('&', MAX_PARAMETERS + 1).filter((part) => part !== '');
  if (parts.length > MAX_PARAMETERS) return null;
  return parts.map((part) => {
    const at = part.indexOf('=');
    return at < 0 ? [part, ''] : [part.slice(0, at), part.slice(at + 1)];
  });
}

/** Yields the readings of a query, the likely ones first. @param {Parameter[]} raw @returns {Generator<Parameter[]>} */
function* readingsOf(raw) {
  const hasPlus = raw.some(([key, value]) => key.includes('+') || value.includes('+'));
  const spaced = (/** @type {string} */ text) => decodePercents(text.replaceAll('+', ' '));
  for (const read of hasPlus ? [decodePercents, spaced] : [decodePercents]) {
    const parameters = raw
      .map(([key, value]) => /** @type {Parameter} */ ([read(key).toLowerCase(), read(value)]))
      .filter(([key]) => key !== SIGNATURE);
    yield parameters;
    if (parameters.some(([key]) => ARRAY.test(key))) yield collapsed(parameters);
  }
}

/** @param {Parameter[]} parameters @returns {Parameter[]} an array is one parameter */
function collapsed(parameters) {
  const joined = [];
  /** @type {Map<string, Parameter>} */
  const arrays = new Map();
  for (const [key, value] of parameters) {
    const name = ARRAY.exec(key)?.[1];
    const array = name === undefined ? undefined : arrays.get(name);
    if (array !== undefined) {
      array[1] += `,${value}`;
      continue;
    }
    /** @type {Parameter} */
    const parameter = [name ?? key, value];
    joined.push(parameter);
    if (name !== undefined) arrays.set(name, parameter);
  }
  return joined;
}

/** The signed text. @param {Parameter[]} parameters @returns {string|null} null: ambiguous */
function textOf(parameters) {
  const keys = new Set(parameters.map(([key]) => key));
  if (keys.size < parameters.length) return null;
  // `a=1&b=2` must be two parameters, not one with the value `1&b=2`.
  if (parameters.some(([key, value]) => /[&=]/.test(key) || value.includes('&'))) return null;
  return [...parameters]
    .sort(([one], [other]) => Buffer.compare(Buffer.from(one), Buffer.from(other)))
    .map(([key, value]) => `${key}=${value}`)
    .join('&');
}

/** @param {string} text returned unchanged if it is not percent-encoded */
function decodePercents(text) {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a literal percent sign
  }
}
