// limits.js: the limits of this server: their values, modes, and how often each of them acted.

import { get } from './api.js';
import { textOf } from './dialog.js';
import { empty, fill, h, pageHead, pill } from './dom.js';
import { whole } from './format.js';

const REFRESH_MS = 3000;
const TONES = /** @type {const} */ ({ enforce: 'good', observe: 'warn', off: 'plain' });

/**
 * @typedef {{setting: string, meaning: string, unit: string, value: number, mode: keyof typeof TONES, acted: number|null, observed: number}}
 *   Limit
 */

/**
 * @returns {import('./view.js').View}
 */
export function limitsView() {
  const result = h('div', { class: 'result' });
  const load = async () => {
    try {
      const { limits } = await get('/limits');
      fill(result, table(limits));
    } catch (error) {
      fill(result, empty('alert', 'The limits cannot be read', textOf(error)));
    }
  };
  load();
  const timer = setInterval(load, REFRESH_MS);
  return {
    element: h(
      'div',
      null,
      pageHead('Limits', null, 'Of this server. Counts began with its start.'),
      result,
    ),
    title: 'Limits',
    close: () => clearInterval(timer),
  };
}

/** @param {Limit[]} limits */
function table(limits) {
  return h(
    'div',
    { class: 'card table-card' },
    h(
      'table',
      null,
      h('caption', { class: 'visually-hidden' }, 'Limits'),
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          h('th', { scope: 'col' }, 'Limit'),
          h('th', { scope: 'col', class: 'number' }, 'Value'),
          h('th', { scope: 'col' }, 'Mode'),
          h('th', { scope: 'col', class: 'number' }, 'Refused'),
          h('th', { scope: 'col', class: 'number' }, 'Observed'),
        ),
      ),
      h('tbody', null, limits.map(row)),
    ),
  );
}

/** @param {Limit} limit */
function row({ setting, meaning, unit, value, mode, acted, observed }) {
  return h(
    'tr',
    null,
    h(
      'th',
      { scope: 'row' },
      h('code', null, setting),
      h('p', { class: 'muted meaning' }, meaning.replaceAll('`', '')),
    ),
    h(
      'td',
      { class: 'number nowrap' },
      whole(value),
      unit && h('span', { class: 'muted' }, ` ${unit}`),
    ),
    h('td', null, pill(TONES[mode], mode)),
    h('td', { class: `number${acted ? ' acted' : ''}` }, acted === null ? '–' : whole(acted)),
    h('td', { class: `number${observed > 0 ? ' acted' : ''}` }, whole(observed)),
  );
}
