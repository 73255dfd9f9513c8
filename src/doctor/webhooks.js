// webhooks.js: sends webhook.test to every endpoint, from this machine.

import { AddressGuard } from '../outgoing/addresses.js';
import { Requester } from '../webhooks/request.js';
import { sendTest } from '../webhooks/test-event.js';

/**
 * @param {Pick<import('../config/settings.js').Config, 'webhooks'>} config @param {boolean} asJson
 * @returns {Promise<{text: string, isOk: boolean}>} without secrets: of a URL, its origin only
 */
export async function testEndpoints({ webhooks }, asJson) {
  if (!webhooks?.hasEndpoints)
    return { text: 'No endpoints are configured: set FANFARE_WEBHOOKS.\n', isOk: false };
  const requester = new Requester(new AddressGuard(webhooks));
  const results = await Promise.all(
    webhooks.endpoints.map(async ({ name, url }) => {
      const beganMs = performance.now();
      const { outcome, error } = await sendTest(webhooks, name, requester);
      const ms = Math.round(performance.now() - beganMs);
      return { endpoint: name, origin: new URL(url).origin, outcome, error, ms };
    }),
  );
  requester.close();
  const isOk = results.every(({ outcome }) => outcome === 'delivered');
  const lines = results.map(
    ({ endpoint, origin, outcome, error, ms }) =>
      `${outcome === 'delivered' ? 'ok    ' : 'failed'}  ${endpoint} (${origin}): ${error || 'received the test'}, ${ms} ms`,
  );
  return { text: `${asJson ? JSON.stringify(results, null, 2) : lines.join('\n')}\n`, isOk };
}
