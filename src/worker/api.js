// api.js: the rate of requests of HTTP APIs, their metrics, and the log of their actions.

import { createAddressResolver } from '../admission/address.js';
import { BYTES_PER_TOKEN, Rate } from '../admission/rate.js';
import { AuditLog } from '../observability/audit-log.js';

/** @import { Meters, Services, TakeUnits } from '../transport/http-api/call.js' */

/**
 * @param {Pick<Services, 'config'|'counters'> & {log: import('pino').Logger}} services
 * @param {{observe(seconds: number): void}} requestSeconds @returns {Meters}
 */
export function createMeters({ config, counters, log }, requestSeconds) {
  const { apiMessagesPerMinuteMode: mode } = config;
  const rate = new Rate(config.apiMessagesPerMinute, config.apiMessagesBurst);
  /** @type {TakeUnits} */
  const take = (bucket, units, nowMs, paid = 0) => {
    if (mode === 'off') return 0;
    const total = rate.costOf((paid + units) * BYTES_PER_TOKEN);
    const cost = paid === 0 ? total : total - rate.costOf(paid * BYTES_PER_TOKEN);
    if (rate.has(bucket, nowMs, cost)) {
      rate.take(bucket, nowMs, cost);
      return 0;
    }
    if (mode === 'enforce') return rate.retryAfter(bucket, nowMs, total);
    counters.observed.api_messages++;
    return 0;
  };
  return {
    take,
    counters,
    observe: (seconds) => requestSeconds.observe(seconds),
    audit: new AuditLog(log),
    addressOf: createAddressResolver(config.trustProxy),
    overText: `Too many requests with this key: ${rate.text} (FANFARE_API_MESSAGES_RATE).`,
  };
}
