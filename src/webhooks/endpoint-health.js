// endpoint-health.js: may requests go to an endpoint now? Its pauses, and what the console shows.
//
// An answer that asks for a pause, or an unreachable endpoint, pauses it for ever longer times.
// After CIRCUIT_FAILURES failures in a row, one request goes out every PROBE_MS.

const CIRCUIT_FAILURES = 20;
const PROBE_MS = 30_000;
/** While the endpoint is unavailable, pauses double from here to PROBE_MS. */
const FIRST_PAUSE_MS = 1000;
/** The shortest pause, even if an answer asks for less. */
const LEAST_PAUSE_MS = 800;
const JITTER = 0.2;
const GONE =
  'webhooks: the endpoint answered 410 Gone: nothing is sent to it until the configuration is reloaded';

/** @import { Outcome, Result } from './request.js' */
/** @typedef {'ok'|'retrying'|'paused'|'failing'|'gone'} State `retrying`: the last request failed */

export class EndpointHealth {
  pausedUntilMs = Number.NEGATIVE_INFINITY;
  /** Failed requests since the last success. */
  failures = 0;
  /** Those of them that paused the endpoint. */
  pauses = 0;
  /** The endpoint answered 410: nothing is sent until the configuration changes. */
  isGone = false;
  lastError = '';
  /** Unix times in ms; 0: never. */
  lastErrorAt = 0;
  lastDeliveryAt = 0;
  /** @type {Record<Outcome, number>} */
  attempts = { delivered: 0, failed: 0, unavailable: 0, refused: 0, gone: 0 };

  /**
   * @param {object} parts @param {string} parts.name @param {() => number} parts.now in ms
   * @param {() => number} parts.random @param {import('pino').Logger} parts.log
   */
  constructor({ name, now, random, log }) {
    this.name = name;
    this.now = now;
    this.random = random;
    this.log = log;
  }

  /** @returns {State} */
  get state() {
    if (this.isGone) return 'gone';
    if (this.failures >= CIRCUIT_FAILURES) return 'failing';
    if (this.pausedUntilMs > this.now()) return 'paused';
    return this.failures > 0 ? 'retrying' : 'ok';
  }

  /** Is the next request a trial, which goes out alone? */
  get isTrial() {
    return this.pauses > 0 || this.failures >= CIRCUIT_FAILURES;
  }

  /** May a request go out now? */
  get isOpen() {
    return !this.isGone && this.now() >= this.pausedUntilMs;
  }

  /** @param {Result} result of a request @param {boolean} isOfEvent the endpoint is not at fault */
  recordResult({ outcome, error, retryAfterMs }, isOfEvent) {
    this.attempts[outcome]++;
    if (outcome === 'delivered') {
      this.failures = 0;
      this.pauses = 0;
      this.lastDeliveryAt = Date.now();
      return;
    }
    this.lastError = error;
    this.lastErrorAt = Date.now();
    if (outcome === 'gone') return this.#end();
    this.failures++;
    if (!isOfEvent) {
      this.pauses++;
      const ownMs = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(this.pauses - 1, 10), PROBE_MS);
      this.#pause(Math.max(retryAfterMs ?? this.jittered(ownMs), LEAST_PAUSE_MS));
    }
    if (this.failures === CIRCUIT_FAILURES)
      this.log.error(
        { endpoint: this.name, why: error },
        `webhooks: ${CIRCUIT_FAILURES} failures in a row, trying once in ${PROBE_MS / 1000} s`,
      );
    if (this.failures >= CIRCUIT_FAILURES) this.#pause(this.jittered(PROBE_MS));
  }

  #end() {
    if (this.isGone) return; // several requests may get the answer
    this.isGone = true;
    this.log.error({ endpoint: this.name }, GONE);
  }

  /** @param {number} ms */
  #pause(ms) {
    this.pausedUntilMs = Math.max(this.pausedUntilMs, this.now() + ms);
  }

  /** @param {number} ms */
  jittered(ms) {
    return ms * (1 - JITTER + 2 * JITTER * this.random());
  }
}

/** @param {number} ms @returns {number} the longest that `jittered` returns */
export function longestJittered(ms) {
  return ms * (1 + JITTER);
}
