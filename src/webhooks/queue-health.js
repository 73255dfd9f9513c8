// queue-health.js: counts failed calls of the queue. If they go on failing, logs it once a minute.

import { RareLog } from '../observability/rare-log.js';

/** Shorter failures are not logged: it takes a moment to connect. */
const QUIET_MS = 2000;

export class QueueHealth {
  /** When each partition began to fail; null: calls for all. @type {Map<number|null, number>} */
  #failing = new Map();
  #isLogged = false;

  /** @param {() => number} now @param {import('pino').Logger} log */
  constructor(now, log) {
    this.now = now;
    this.log = log;
    this.rareLog = new RareLog(log, now);
    this.failures = 0;
  }

  /** @param {number|null} partition */
  ok(partition) {
    this.#failing.delete(partition);
    if (this.#failing.size > 0 || !this.#isLogged) return;
    this.log.info('webhooks: the queue is available again');
    this.#isLogged = false;
  }

  /** @param {number|null} partition @param {unknown} error */
  queueFailed(partition, error) {
    this.failures++;
    const sinceMs = this.#failing.get(partition) ?? this.now();
    this.#failing.set(partition, sinceMs);
    if (this.now() - sinceMs < QUIET_MS) return;
    this.#isLogged = true;
    const why = error instanceof Error ? error.message : String(error);
    this.rareLog.warn({ partition, why }, 'webhooks: the queue is unavailable, events wait');
  }
}
