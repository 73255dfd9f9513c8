// api-calls.js: calls of the HTTP API, repeated as their refusals permit, within a time limit.
//
//   503, 429, 408 of Fanfare         not carried out: repeated after Retry-After, or a back-off
//   504, no answer, 5xx of a proxy   unknown: repeated if a second time does no harm, because the
//                                    call has an idempotency key, or says what shall be
//   anything else                    thrown at once
//
// If the time is up, the last error is thrown. If the outcome of an earlier attempt is unknown,
// that one is thrown instead: the refusal of a later attempt does not say that nothing happened. A
// conflict does, because the server looks for the idempotency key first.

import { FanfareApiError } from './api-error.js';

const TIMEOUT_MS = 30_000;
/** The server remembers idempotency keys for five minutes. No attempt begins later than that. */
const MAX_TIMEOUT_MS = 240_000;
/** A server that has not answered by then is probably gone; another one may answer. */
const ATTEMPT_MS = 10_000;
/** Bounds of the back-off. */
const FIRST_DELAY_MS = 200;
const MAX_DELAY_MS = 5000;

/**
 * @typedef {object} Options
 * @property {string} url of the server or its load balancer: `https://chat.example`
 * @property {string|undefined} apiKey the secret of a key in `API_KEYS`; undefined is refused
 * @property {number} [timeoutMs] for a call with all its attempts; 30,000 if absent, at most 240,000
 * @property {typeof globalThis.fetch} [fetch] instead of the global one
 */

/**
 * @typedef {object} CallOptions
 * @property {number} [timeoutMs] instead of that of the server
 * @property {AbortSignal} [signal] ends the call, whose outcome is then unknown
 */

/**
 * @typedef {object} Request
 * @property {'GET'|'POST'|'DELETE'|'PUT'} [method] POST if it is absent
 * @property {string} path below `/api/`; `PUT`: a whole URL
 * @property {string|ArrayBuffer} [body] that can be sent more than once
 * @property {Record<string, string>} [headers]
 * @property {boolean} [isOnce] may it not be repeated if its outcome is unknown?
 */

/** Sends a request once. @typedef {(request: Request) => Promise<any>} Send */

export class ApiCalls {
  /** Private, so that no log of the object shows it. */
  #apiKey;
  #base;
  #fetch;
  #timeoutMs;

  /** @param {Options} options */
  constructor({
    url,
    apiKey,
    timeoutMs = TIMEOUT_MS,
    fetch = (...args) => globalThis.fetch(...args),
  }) {
    if (!/^https?:$/.test(new URL(url).protocol))
      throw new TypeError('url: it begins with https:// or http://');
    if (typeof apiKey !== 'string' || apiKey === '')
      throw new TypeError('apiKey: the secret of a key in API_KEYS is missing');
    this.#base = `${url.replace(/\/+$/, '')}/api/`;
    this.#apiKey = apiKey;
    this.#timeoutMs = timeoutMs;
    this.#fetch = fetch;
  }

  /** @param {Request} request @param {CallOptions} [options] @returns {Promise<any>} its answer */
  call(request, options) {
    return this.repeat((send) => send(request), options, request.isOnce);
  }

  /**
   * @template T
   * @param {(send: Send) => Promise<T>} attempt @param {CallOptions} [options]
   * @param {boolean} [isOnce] as in a request @returns {Promise<T>}
   */
  async repeat(attempt, { signal, timeoutMs = this.#timeoutMs } = {}, isOnce = false) {
    const endMs = Date.now() + Math.min(timeoutMs, MAX_TIMEOUT_MS);
    /** @type {FanfareApiError|undefined} */
    let unknown;
    for (let attempts = 0; ; attempts++) {
      signal?.throwIfAborted();
      try {
        return await attempt((request) => this.#send(request, endMs - Date.now(), signal));
      } catch (error) {
        if (!(error instanceof FanfareApiError)) throw error;
        const isUnknown = error.code === 'OUTCOME_UNKNOWN';
        if (isUnknown) unknown ??= error;
        if (!error.retryable && (!isUnknown || isOnce))
          throw isDecisive(error) ? error : (unknown ?? error);
        const waitMs = delayAfter(error, attempts);
        const isInTime = Date.now() + waitMs < endMs;
        if (!isInTime) throw unknown ?? error;
        await pause(waitMs, signal);
      }
    }
  }

  /** @param {Request} request @param {number} restMs @param {AbortSignal} [signal] */
  async #send({ method = 'POST', path, body, headers }, restMs, signal) {
    const isPut = method === 'PUT';
    const url = isPut ? path : this.#base + path;
    const all = new Headers(
      isPut ? headers : { Authorization: `Bearer ${this.#apiKey}`, ...headers },
    );
    if (typeof body === 'string') all.set('Content-Type', 'application/json');
    const limit = new AbortController();
    const abort = () => limit.abort();
    const timer = setTimeout(abort, Math.max(0, isPut ? restMs : Math.min(restMs, ATTEMPT_MS)));
    signal?.addEventListener('abort', abort);
    const fetch = this.#fetch;
    try {
      const response = await fetch(url, {
        ...{ method, body, headers: all, signal: limit.signal },
        // The API does not redirect. Next.js would keep answers of GET.
        ...{ redirect: 'manual', cache: 'no-store' },
      });
      return read(response, await response.text(), { method, url });
    } catch (error) {
      if (error instanceof FanfareApiError) throw error;
      signal?.throwIfAborted();
      const what = limit.signal.aborted ? 'No answer in time' : 'The connection failed';
      throw new FanfareApiError(unansweredCode(method), {
        message: `${what}: ${method} ${originOf(url)}`,
        cause: error,
      });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    }
  }
}

/**
 * @param {Response} response @param {string} text its body
 * @param {{method: string, url: string}} request @returns {any} the answer @throws {FanfareApiError}
 */
function read({ ok, status, headers }, text, { method, url }) {
  const answer = parse(text);
  if (ok && (method === 'PUT' || answer !== undefined)) return answer;
  const retryAfterMs = Number(headers.get('retry-after')) * 1000 || undefined;
  // Fanfare names the error in a header, too. A proxy that answers in its place does not.
  if (headers.has('fanfare-error') && typeof answer?.error === 'string') {
    const { error, message, field, position } = answer;
    throw new FanfareApiError(error, { message, status, field, position, retryAfterMs });
  }
  const about = {
    message: `${method} ${originOf(url)} answered ${status}, which is no answer of Fanfare`,
    status,
    retryAfterMs,
  };
  if (status === 429) throw new FanfareApiError('RATE_LIMIT_EXCEEDED', about);
  throw new FanfareApiError(status >= 500 ? unansweredCode(method) : 'UNEXPECTED_ANSWER', about);
}

/** @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Putting an object again does no harm, and a read has no outcome. @param {string} method */
function unansweredCode(method) {
  return method === 'GET' || method === 'PUT' ? 'UNAVAILABLE' : 'OUTCOME_UNKNOWN';
}

/** The query of a bucket's URL is a credential. @param {string} url */
const originOf = (url) => url.split('?', 1)[0];

/** @param {FanfareApiError} error */
const isDecisive = ({ code }) => code === 'CONFLICT' || code === 'IDEMPOTENCY_CONFLICT';

/** @param {FanfareApiError} error @param {number} attempts before this one */
function delayAfter({ retryAfterMs = 0 }, attempts) {
  const longestMs = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** attempts);
  return retryAfterMs + Math.random() * longestMs;
}

/** @param {number} ms @param {AbortSignal} [signal] @returns {Promise<void>} */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', abort, { once: true });
  });
}
