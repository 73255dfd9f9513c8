// webhooks.js: the endpoints of webhooks: what waits for them, their last error, a test.

import { get, post } from './api.js';
import { run } from './dialog.js';
import { dataTable, el, empty, h, pill } from './dom.js';
import { clock, duration, whole } from './format.js';
import { polledView } from './polled-view.js';

/** @import { App, View } from './view.js' */

const TONES = /** @type {const} */ ({
  ok: 'good',
  retrying: 'warn',
  paused: 'warn',
  failing: 'bad',
  gone: 'bad',
});
const LANES = 16;

/**
 * @typedef {{name: string, app: string|null, origin: string, types: string[], rooms: string[], state: keyof typeof TONES, pending: number, oldestSeconds: number, delivered: number, dropped: number, lastError: string, lastErrorAt: number, lastDeliveryAt: number}}
 *   Endpoint
 */

/** @param {App} app @returns {View} */
export function webhooksView(app) {
  return polledView(
    {
      title: 'Webhooks',
      about: 'What this server sends to back ends.',
      fault: 'The endpoints cannot be read',
    },
    async () => {
      const { isConfigured, endpoints, lanes } = await get('/webhooks');
      if (!isConfigured)
        return empty(
          'plug',
          'No webhooks are configured',
          'FANFARE_WEBHOOKS names a file of endpoints.',
        );
      if (endpoints === null)
        return empty('alert', 'The courier is starting', 'It sends the webhooks.');
      return [table(app, endpoints), el('p.muted', lanesOf(lanes))];
    },
  );
}

/** @param {number} lanes */
function lanesOf(lanes) {
  const share =
    lanes === LANES
      ? 'This server sends all events.'
      : `This server sends the events of ${lanes} of ${LANES} lanes; other servers on the same Redis send the rest.`;
  return `${share} Counts began with the start or the last reload.`;
}

/** @param {App} app @param {Endpoint[]} endpoints */
function table(app, endpoints) {
  return el(
    'div.card.table-card',
    dataTable(
      'Endpoints',
      [
        { title: 'Endpoint' },
        { title: 'State' },
        { title: 'Waiting', isNumber: true },
        { title: 'Oldest', isNumber: true },
        { title: 'Delivered', isNumber: true },
        { title: 'Dropped', isNumber: true },
        { title: 'Last error' },
        { title: 'Test' },
      ],
      endpoints.map((one) => row(app, one)),
    ),
  );
}

/** @param {App} app @param {Endpoint} endpoint */
function row(app, endpoint) {
  const { name, app: appId, origin, types, rooms, state, pending, delivered, dropped } = endpoint;
  const { lastError, lastErrorAt, lastDeliveryAt, oldestSeconds } = endpoint;
  const test = async () => {
    const { outcome, error } = await post(`/webhooks/${encodeURIComponent(name)}/test`);
    if (outcome !== 'delivered') throw new Error(`${name}: ${error}`);
    return `${name} received the test`;
  };
  return [
    [
      el('code', name),
      el(
        'p.muted.meaning',
        [origin, appId !== null && `app ${appId}`, types.join(', '), rooms.join(', ')]
          .filter(Boolean)
          .join(' · '),
      ),
    ],
    pill(TONES[state], state),
    whole(pending),
    pending === 0 ? '–' : duration(oldestSeconds),
    [whole(delivered), lastDeliveryAt > 0 && el('p.muted', clock(lastDeliveryAt))],
    h('span', { class: dropped > 0 ? 'acted' : null }, whole(dropped)),
    lastErrorAt === 0 ? '–' : [lastError, el('p.muted', clock(lastErrorAt))],
    h(
      'button.button',
      {
        disabled: !app.can('publish'),
        onclick: (/** @type {Event} */ event) =>
          run(/** @type {HTMLButtonElement} */ (event.currentTarget), test),
      },
      'Send test',
    ),
  ];
}
