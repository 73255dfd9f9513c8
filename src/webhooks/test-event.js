// test-event.js: webhook.test, which the doctor and the console send. An endpoint in Pusher's form
// gets a request without events.

import { randomUUID } from 'node:crypto';
import { formOf } from './form.js';

/**
 * Sends webhook.test once, without the queue.
 * @param {import('../config/webhooks.js').WebhookSettings} webhooks
 * @param {string} name of the endpoint
 * @param {Pick<import('./request.js').Requester, 'post'>} requester
 * @returns {Promise<import('./request.js').Result>}
 */
export async function sendTest({ endpoints }, name, requester) {
  const endpoint = endpoints.find((one) => one.name === name);
  if (endpoint === undefined)
    return { outcome: 'failed', error: 'no such endpoint', retryAfterMs: null };
  const at = Date.now();
  const event = /** @type {const} */ ({ type: 'webhook.test', endpoint: name, seq: 0, at });
  return requester.post(endpoint, formOf(endpoint).messageOf([{ ...event, epoch: randomUUID() }]));
}
