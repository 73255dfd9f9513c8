// limits.js: the limits of this server: their values, modes, and how often each of them acted.

import { get } from './api.js';
import { whole } from './format.js';
import { html } from './html.js';
import { numeric, pageHead, pill, tableCard } from './parts.js';
import { PolledView } from './polled.js';

const TONES = /** @type {const} */ ({ enforce: 'good', observe: 'warn', off: 'plain' });

/**
 * @typedef {{setting: string, meaning: string, unit: string, value: number, mode: keyof typeof TONES, acted: number|null, observed: number}}
 *   Limit
 */

export class LimitsView extends PolledView {
  fault = 'The limits cannot be read';

  async read() {
    const { limits } = /** @type {{limits: Limit[]}} */ (await get('/limits'));
    const columns = ['Limit', numeric('Value'), 'Mode', numeric('Refused'), numeric('Observed')];
    return tableCard('Limits', columns, limits.map(limitRow));
  }

  head() {
    return pageHead('Limits', 'Of this server. Counts began with its start.');
  }
}

/** @param {Limit} limit */
function limitRow({ setting, meaning, unit, value, mode, acted, observed }) {
  return [
    html`<code>${setting}</code><p class="muted small meaning">${meaning.replaceAll('`', '')}</p>`,
    html`<span class="nowrap">${whole(value)}${unit && html`<span class="muted"> ${unit}</span>`}</span>`,
    pill(TONES[mode], mode),
    html`<span class=${acted ? 'acted' : null}>${acted === null ? '–' : whole(acted)}</span>`,
    html`<span class=${observed > 0 ? 'acted' : null}>${whole(observed)}</span>`,
  ];
}
