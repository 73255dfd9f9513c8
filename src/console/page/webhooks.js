// webhooks.js: the endpoints of webhooks: what waits for them, their last error, a test.

import { get, post } from './api.js';
import { ActionButton } from './dialog.js';
import { clock, duration, whole } from './format.js';
import { html } from './html.js';
import { empty, numeric, pageHead, pill, tableCard } from './parts.js';
import { PolledView } from './polled.js';

/** @import { App } from './view.js' */

const TONES = /** @type {const} */ ({
  ok: 'good',
  retrying: 'warn',
  paused: 'warn',
  failing: 'bad',
  gone: 'bad',
});
const PARTITIONS = 16;
const COLUMNS = [
  ...['Endpoint', 'State', numeric('Waiting'), numeric('Oldest'), numeric('Delivered')],
  ...[numeric('Dropped'), 'Last error', 'Test'],
];

/**
 * @typedef {{name: string, app: string|null, origin: string, types: string[], rooms: string[], state: keyof typeof TONES, pending: number, oldestSeconds: number, delivered: number, dropped: number, lastError: string, lastErrorAt: number, lastDeliveryAt: number}}
 *   Endpoint
 */

export class WebhooksView extends PolledView {
  fault = 'The endpoints cannot be read';

  async read() {
    const { isConfigured, endpoints, partitions } = await get('/webhooks');
    if (!isConfigured) {
      const text = 'FANFARE_WEBHOOKS names a file of endpoints.';
      return empty('plug', 'No webhooks are configured', text);
    }
    if (endpoints === null)
      return empty('alert', 'The courier is starting', 'It sends the webhooks.');
    const rows = endpoints.map((/** @type {Endpoint} */ one) => endpointRow(this.props.app, one));
    const note = html`<p class="muted">${partitionsOf(partitions)}</p>`;
    return [tableCard('Endpoints', COLUMNS, rows), note];
  }

  head() {
    return pageHead('Webhooks', 'What this server sends to back ends.');
  }
}

/** @param {number} partitions */
function partitionsOf(partitions) {
  const share =
    partitions === PARTITIONS
      ? 'This server sends all events.'
      : `This server sends the events of ${partitions} of ${PARTITIONS} partitions; other servers on the same Redis send the rest.`;
  return `${share} Counts began with the start or the last reload.`;
}

/** @param {App} app @param {Endpoint} endpoint */
function endpointRow(app, endpoint) {
  const { name, app: appId, origin, types, rooms, state, pending, delivered, dropped } = endpoint;
  const { lastError, lastErrorAt, lastDeliveryAt, oldestSeconds } = endpoint;
  const test = async () => {
    const { outcome, error } = await post(`/webhooks/${encodeURIComponent(name)}/test`);
    if (outcome !== 'delivered') throw new Error(`${name}: ${error}`);
    return `${name} received the test`;
  };
  const about = [origin, appId !== null && `app ${appId}`, types.join(', '), rooms.join(', ')];
  const at = (/** @type {number} */ timeMs) =>
    timeMs > 0 && html`<p class="muted">${clock(timeMs)}</p>`;
  return [
    html`<code>${name}</code><p class="muted small meaning">${about.filter(Boolean).join(' · ')}</p>`,
    pill(TONES[state], state),
    whole(pending),
    pending === 0 ? '–' : duration(oldestSeconds),
    [whole(delivered), at(lastDeliveryAt)],
    html`<span class=${dropped > 0 ? 'acted' : null}>${whole(dropped)}</span>`,
    lastErrorAt === 0 ? '–' : [lastError, at(lastErrorAt)],
    html`<${ActionButton} disabled=${!app.can('publish')} action=${test}>Send test<//>`,
  ];
}
