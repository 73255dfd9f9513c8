// api.js: requests of a command to the HTTP API of the server.

import { checked, isRecord, unexpected } from './answers.js';
import { EXIT, Failure } from './failure.js';

/** @import { Shape } from './answers.js' */
/** @import { Context } from './command.js' */

/** A survey of all workers ends after a second. */
const TIMEOUT_MS = 10_000;

/**
 * @param {Pick<Context, 'target'|'signal'>} context @param {string} path after /api
 * @param {Shape} shape of the answer, as far as the command reads it
 * @param {string} [body] JSON; with it the request is a POST
 * @returns {Promise<Record<string, any>>} the answer @throws {Failure}
 */
export async function callApi({ target: { url, apiKey }, signal }, path, shape, body) {
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
  if (response.ok) return checked(url, answer, shape);
  throw refusalOf(url, response, answer);
}

/** Parts of a path or a query. @param {TemplateStringsArray} texts @param {...string} values */
export function path(texts, ...values) {
  return String.raw(texts, ...values.map(encodeURIComponent));
}

/** @param {Readonly<Record<string, string|number|undefined>>} fields absent ones are left out */
export function query(fields) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(fields))
    if (value !== undefined) parameters.set(name, String(value));
  return parameters.size === 0 ? '' : `?${parameters}`;
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

/** @param {string} url @param {Response} response @param {unknown} answer undefined: no JSON */
function refusalOf(url, { status, headers }, answer) {
  const { error, message } = isRecord(answer) ? answer : {};
  const isRefusal = typeof error === 'string' && typeof message === 'string';
  // A server without the API says `not_found` in lower case.
  if (status === 404 && (!isRefusal || error.toUpperCase() === 'NOT_FOUND'))
    return new Failure(
      EXIT.failed,
      `${url} has no HTTP API (status ${status}): the server needs API_KEYS`,
    );
  // A load balancer without a server.
  if (!isRefusal && status >= 500)
    return new Failure(EXIT.unavailable, `cannot reach ${url} (status ${status})`);
  if (!isRefusal) return unexpected(url, `status ${status}`);
  const code = status === 401 ? 'UNAUTHORIZED' : error;
  const seconds = Number(headers.get('retry-after') ?? Number.NaN);
  const retryAfterMs = seconds >= 0 ? seconds * 1000 : undefined;
  return Failure.ofCode(code, `${message} (${status} ${error})`, retryAfterMs);
}

/** @param {string} text @returns {unknown} */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
