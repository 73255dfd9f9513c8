// live.js: asks the server on this machine whether it is alive, for a container's health check.
//
// It asks /livez and not /readyz, because a server that drains must not be restarted. A server
// whose files of settings have become invalid runs on with those that it has read, so only the
// address is taken from the settings here, and nothing is checked.

import { SETTINGS } from '../config/settings.js';

const TIMEOUT_MS = 2500;
/** An address to listen on, and one to connect to. */
const REACHED_AT = new Map([
  ['0.0.0.0', '127.0.0.1'],
  ['::', '::1'],
]);

/**
 * @param {Readonly<Record<string, string|undefined>>} env
 * @returns {Promise<{isAlive: boolean, text: string}>} a line about it
 */
export async function askLive(env) {
  const url = liveUrl(env);
  try {
    const { ok, status } = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    return { isAlive: ok, text: `${url} answers ${status}\n` };
  } catch (error) {
    const { cause, message } = /** @type {Error} */ (error);
    return { isAlive: false, text: `${url}: ${/** @type {any} */ (cause)?.code ?? message}\n` };
  }
}

/** @param {Readonly<Record<string, string|undefined>>} env */
export function liveUrl(env) {
  const port = Number(settingIn('METRICS_PORT', env));
  const host = settingIn('METRICS_HOST', env);
  const address = REACHED_AT.get(host) ?? host;
  return `http://${address.includes(':') ? `[${address}]` : address}:${port}/livez`;
}

/**
 * @param {string} name @param {Readonly<Record<string, string|undefined>>} env
 * @returns {string} the default if it is not set
 */
function settingIn(name, env) {
  const row = SETTINGS.find((one) => one.env === name);
  return env[name]?.trim() || String(row?.default);
}
