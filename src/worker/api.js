// api.js: puts the parts of the HTTP API together, for a worker whose configuration has API keys.

import { BYTES_PER_TOKEN, Rate } from '../admission/rate.js';
import { HttpApi } from '../transport/http-api/http-api.js';

/**
 * @param {import('../transport/http-api/call.js').Services} services
 * @param {{observe(seconds: number): void}} requestSeconds @returns {HttpApi}
 */
export function createHttpApi(services, requestSeconds) {
  const { config, counters } = services;
  const { apiMessagesPerMinuteMode: mode } = config;
  const rate = new Rate(config.apiMessagesPerMinute, config.apiMessagesBurst);
  /** @type {import('../transport/http-api/call.js').TakeUnits} */
  const take = (bucket, units, nowMs) => {
    if (mode === 'off') return 0;
    const cost = rate.costOf(units * BYTES_PER_TOKEN);
    if (rate.has(bucket, nowMs, cost)) {
      rate.take(bucket, nowMs, cost);
      return 0;
    }
    if (mode === 'enforce') return rate.retryAfter(bucket, nowMs, cost);
    counters.observed.api_messages++;
    return 0;
  };
  return new HttpApi({ ...services, take, observe: (seconds) => requestSeconds.observe(seconds) });
}
