// token.js: the application's token: cached while valid, renewed before it expires.
//
// Reconnecting clients use the cached token, so that a server restart does not flood the
// application's backend. The renewal time follows from `exp`. If the local clock is wrong, the
// lifetime from `iat` to `exp` counts instead.

import { MAX_TIMEOUT_MS, RENEW_FROM, RENEW_WITHIN, TOKEN_RETRY_MS } from './limits.js';

/**
 * A token, or a function that gets a new one.
 * @typedef {string|(() => string|null|undefined|Promise<string|null|undefined>)} TokenOption
 */

export class TokenSource {
  #source;
  /** @type {string|null|undefined} */
  #token;
  /** Times of performance.now(). Both are 0 if the token has no readable `exp`. */
  #renewAtMs = 0;
  #endsAtMs = 0;
  /** Least time between renewals, even if a wrong clock makes new tokens look expired. */
  #leastMs = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;

  /** @param {TokenOption|undefined} source */
  constructor(source) {
    this.#source = source;
  }

  /** Resolves to a cached or new token. Rejects if the callback does and none is valid. */
  async get() {
    if (performance.now() < this.#renewAtMs) return this.#token;
    return this.#renew().catch((error) => {
      if (performance.now() < this.#endsAtMs) return this.#token;
      throw error;
    });
  }

  /** The server has refused the token. @returns {boolean} will there be a new one? */
  _forget() {
    this.#renewAtMs = this.#endsAtMs = 0;
    return typeof this.#source === 'function';
  }

  /**
   * Renews the token in time, until `_rest` is called.
   * @param {(token: string) => void} send @param {(error: unknown) => void} report
   * @param {number} [ms] until the next renewal
   */
  _keepFresh(send, report, ms = this.#renewAtMs - performance.now()) {
    this._rest();
    if (!this.#renewAtMs) return;
    const timer = (this.#timer = setTimeout(
      async () => {
        const token = await this.#renew().catch(report);
        if (timer !== this.#timer) return;
        if (token) send(token);
        const nextMs = Math.max(this.#leastMs, this.#renewAtMs - performance.now());
        this._keepFresh(send, report, token ? nextMs : TOKEN_RETRY_MS);
      },
      Math.min(ms, MAX_TIMEOUT_MS),
    ));
  }

  _rest() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #renew() {
    if (typeof this.#source !== 'function') return this.#source;
    const token = await this.#source();
    const nowMs = performance.now();
    const { exp, iat } = claimsOf(token);
    const restMs = exp * 1000 - Date.now();
    // 0: unknown.
    const wholeMs = (exp - iat) * 1000 || Math.max(0, restMs) || 0;
    const lifeMs = restMs > 0 && restMs <= wholeMs ? restMs : wholeMs;
    const share = RENEW_FROM + Math.random() * RENEW_WITHIN;
    this.#token = token;
    this.#endsAtMs = lifeMs && nowMs + lifeMs;
    this.#renewAtMs = lifeMs && nowMs + lifeMs * share;
    this.#leastMs = Math.min(TOKEN_RETRY_MS, wholeMs * RENEW_FROM);
    return token;
  }
}

/** @param {any} token @returns {{exp?: any, iat?: any}} its claims; none if it does not show them */
function claimsOf(token) {
  try {
    const [, claims] = token.replace(/-/g, '+').replace(/_/g, '/').split('.');
    return JSON.parse(atob(claims));
  } catch {
    return {};
  }
}
