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

function headers() {
  const key = sessionStorage.getItem(KEY);
  return {
    'X-Fanfare-Console': '1',
    ...(key === null ? {} : { Authorization: `Bearer ${key}` }),
  };
}

/**
 * @param {string} path @param {RequestInit} options
 * @returns {Promise<Response>} rejects with an ApiError unless the status is 200
 */
async function request(path, options) {
  let response;
  try {
    response = await fetch(BASE + path, { cache: 'no-store', ...options });
  } catch (error) {
    if (options.signal?.aborted && /** @type {Error} */ (error).name !== 'TimeoutError')
      throw error;
    throw silence();
  }
  if (response.ok) return response;
  throw new ApiError(response.status, await response.json().catch(() => ({})));
}

/** @param {string} path @returns {Promise<Body>} */
export async function get(path) {
  return read(await request(path, { headers: headers(), signal: AbortSignal.timeout(TIMEOUT_MS) }));
}

/** @param {string} path @returns {Promise<Body>} */
export async function post(path) {
  const signal = AbortSignal.timeout(LONG_TIMEOUT_MS);
  return read(await request(path, { method: 'POST', headers: headers(), signal }));
}

/**
 * Runs an action on a worker.
 * @param {string} route
 * @param {{params?: Record<string, string>, query?: Record<string, string>, body?: string}} [call]
 *   `body` is JSON, and reaches the worker as it is
 * @returns {Promise<Body>}
 */
export async function act(route, call = {}) {
  const response = await request(`/actions/${route}`, {
    method: 'POST',
    headers: { ...headers(), 'Content-Type': 'application/json' },
    body: JSON.stringify(call),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  return read(response);
}

/** @param {Response} response whose body may not come */
async function read(response) {
  try {
    return await response.json();
  } catch {
    throw silence();
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
  const response = await request(`/tail?room=${encodeURIComponent(room)}`, {
    headers: headers(),
    signal,
  });
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
