// api.js: requests of a command to the HTTP API of the server.

import { EXIT, Failure } from './failure.js';

/** @import { Context } from './command.js' */

/** A survey of all workers ends after a second. */
const TIMEOUT_MS = 10_000;

/**
 * @param {Pick<Context, 'target'|'signal'>} context @param {string} path after /api
 * @param {string} [body] JSON; with it the request is a POST @returns {Promise<any>} the answer
 * @throws {Failure}
 */
export async function callApi({ target: { url, apiKey }, signal }, path, body) {
  if (apiKey === '')
    throw new Failure(EXIT.permission, 'set FANFARE_API_KEY: this needs the HTTP API');
  const headers = {
    Authorization: `Bearer ${apiKey}`,
    'Content-Type': 'application/json',
    'Accept-Encoding': 'identity', // fetch would decode the answer of a proxy
  };
  let response;
  let text = '';
  try {
    response = await fetch(baseOf(url) + path, {
      method: body === undefined ? 'GET' : 'POST',
      headers,
      body,
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    });
    text = await response.text();
  } catch (error) {
    throw unreachable(url, /** @type {Error} */ (error));
  }
  const answer = parsed(text);
  if (response.ok && answer !== null) return answer;
  throw refusalOf(url, response.status, answer);
}

/** Parts of a path or a query. @param {TemplateStringsArray} texts @param {...string} values */
export function path(texts, ...values) {
  return String.raw(texts, ...values.map(encodeURIComponent));
}

/** The API lies beside the path of WebSockets. @param {string} given */
function baseOf(given) {
  const url = new URL(given);
  const before = url.pathname.replace(/\/(?:ws)?$/, '');
  return `${url.protocol.replace('ws', 'http')}//${url.host}${before}/api`;
}

/** @param {string} url @param {Error & {cause?: any}} error of `fetch` */
function unreachable(url, { name, message, cause }) {
  const why =
    name === 'TimeoutError'
      ? `no answer in ${TIMEOUT_MS / 1000} s`
      : (cause?.code ?? cause?.message ?? message);
  return new Failure(EXIT.unavailable, `cannot reach ${url} (${why})`);
}

/** @param {string} url @param {number} status @param {any} answer null: no JSON */
function refusalOf(url, status, answer) {
  const { error = '', message = '' } = answer ?? {};
  // In lower case it is that of a server without the API.
  if (error.toUpperCase() === 'NOT_FOUND' || answer === null)
    return new Failure(
      EXIT.failed,
      `${url} has no HTTP API (status ${status}): the server needs API_KEYS`,
    );
  const code = status === 401 ? 'UNAUTHORIZED' : error;
  return Failure.ofCode(code, `${message} (${status} ${error})`);
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
