// token.js: the application's token: cached while it is valid, renewed before it ends.
//
// A client that reconnects uses its cached token, so a restart of a server is no storm at the
// application's backend. The time of renewal follows from `exp` and `iat`: with a wrong clock, the
// lifetime counts.

import { MAX_TIMEOUT_MS, RENEW_FROM, RENEW_WITHIN, TOKEN_RETRY_MS } from './limits.js';

/**
 * A token, or a function that gets a new one.
 * @typedef {string|(() => string|null|undefined|Promise<string|null|undefined>)} TokenOption
 */

export class TokenSource {
  #source;
  /** @type {string|null|undefined} */
  #token;
  /** On the clock of performance.now(). Both are 0 if the token does not show its end. */
  #renewAtMs = 0;
  #endsAtMs = 0;
  /** From one renewal to the next, also if the clock says that a new token ends at once. */
  #leastMs = 0;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;

  /** @param {TokenOption|undefined} source */
  constructor(source) {
    this.#source = source;
  }

  /** @returns {Promise<string|null|undefined>} cached or new; rejects as the callback does */
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
   * Renews the token from now on, until `rest`.
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
