// limits.js: the limits of this server: their values, modes, and how often each of them acted.

import { get } from './api.js';
import { dataTable, el, h, pill } from './dom.js';
import { whole } from './format.js';
import { polledView } from './polled-view.js';

const TONES = /** @type {const} */ ({ enforce: 'good', observe: 'warn', off: 'plain' });

/**
 * @typedef {{setting: string, meaning: string, unit: string, value: number, mode: keyof typeof TONES, acted: number|null, observed: number}}
 *   Limit
 */

/** @returns {import('./view.js').View} */
export function limitsView() {
  return polledView(
    {
      title: 'Limits',
      about: 'Of this server. Counts began with its start.',
      fault: 'The limits cannot be read',
    },
    async () => table((await get('/limits')).limits),
  );
}

/** @param {Limit[]} limits */
function table(limits) {
  return el(
    'div.card.table-card.limits',
    dataTable(
      'Limits',
      [
        { title: 'Limit' },
        { title: 'Value', isNumber: true },
        { title: 'Mode' },
        { title: 'Refused', isNumber: true },
        { title: 'Observed', isNumber: true },
      ],
      limits.map(row),
    ),
  );
}

/** @param {Limit} limit */
function row({ setting, meaning, unit, value, mode, acted, observed }) {
  return [
    [el('code', setting), el('p.muted.meaning', meaning.replaceAll('`', ''))],
    el('span.nowrap', whole(value), unit && el('span.muted', ` ${unit}`)),
    pill(TONES[mode], mode),
    h('span', { class: acted ? 'acted' : null }, acted === null ? '–' : whole(acted)),
    h('span', { class: observed > 0 ? 'acted' : null }, whole(observed)),
  ];
}
