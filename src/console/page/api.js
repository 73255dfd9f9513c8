// api.js: the requests of the page. A key, if the console demands one, lives in this tab only.

const KEY = 'fanfare-key';
const BASE = '/console/api';
/** A server that does not answer in this time counts as gone. It ends each action after 5 s. */
const TIMEOUT_MS = 8000;
/** A request of the server to another one may take half a minute. */
const LONG_TIMEOUT_MS = 40_000;

/** @typedef {Record<string, any>} Body */

export class ApiError extends Error {
  /** @param {number} status 0: the server did not answer @param {Body} body */
  constructor(status, body) {
    super(body.message ?? `The server answered with ${status}.`);
    this.status = status;
    this.code = String(body.error ?? '');
  }
}

/** @param {string} key */
export function setKey(key) {
  if (key === '') sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, key);
}

/**
 * @param {string} path @param {RequestInit} options
 * @returns {Promise<Response>} rejects with an ApiError unless the status is 200
 */
async function request(path, options) {
  const key = sessionStorage.getItem(KEY);
  const headers = {
    'X-Fanfare-Console': '1',
    ...(key !== null && { Authorization: `Bearer ${key}` }),
    ...(options.body && { 'Content-Type': 'application/json' }),
  };
  let response;
  try {
    response = await fetch(BASE + path, { cache: 'no-store', headers, ...options });
  } catch (error) {
    if (options.signal?.aborted && /** @type {Error} */ (error).name !== 'TimeoutError')
      throw error;
    throw silence();
  }
  if (response.ok) return response;
  throw new ApiError(response.status, await response.json().catch(() => ({})));
}

/** @param {string} path @returns {Promise<Body>} */
export function get(path) {
  return askJson(path, { signal: AbortSignal.timeout(TIMEOUT_MS) });
}

/** @param {string} path @returns {Promise<Body>} */
export function post(path) {
  return askJson(path, { method: 'POST', signal: AbortSignal.timeout(LONG_TIMEOUT_MS) });
}

/**
 * Runs an action on a worker.
 * @param {string} route
 * @param {{params?: Record<string, string>, query?: Record<string, string>, body?: string}} [call]
 *   `body` is JSON, and reaches the worker as it is
 * @returns {Promise<Body>}
 */
export function act(route, call = {}) {
  const body = JSON.stringify(call);
  return askJson(`/actions/${route}`, {
    method: 'POST',
    body,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
}

/** @param {string} path @param {RequestInit} options @returns {Promise<Body>} */
async function askJson(path, options) {
  const response = await request(path, options);
  try {
    return await response.json();
  } catch {
    throw silence(); // its body did not come
  }
}

function silence() {
  return new ApiError(0, { error: 'OFFLINE', message: 'The server does not answer.' });
}

/**
 * Follows a room until the signal ends it, or the server does.
 * @param {string} room @param {AbortSignal} signal
 * @param {(part: {lines: {text: string, bytes: number}[], left: number}) => void} onPart
 */
export async function tail(room, signal, onPart) {
  const response = await request(`/tail?room=${encodeURIComponent(room)}`, { signal });
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split('\n');
    rest = parts.pop() ?? '';
    for (const part of parts) onPart(JSON.parse(part));
  }
}
