// doctor.js: the findings of the doctor about this machine.

import { get } from './api.js';
import { run, textOf } from './dialog.js';
import { dataTable, el, empty, fill, h, icon, pageHead, pill } from './dom.js';
import { whole } from './format.js';

/**
 * @typedef {{name: string, value: string, permits: number|null, binds: boolean, verdict: string, why: string, meaning: string, fix: string|null}}
 *   Finding
 * @typedef {{wanted: number, workers: number, first: string|null, permits: number|null, verdict: string, limits: Finding[]}}
 *   Report
 */

/** @returns {import('./view.js').View} */
export function doctorView() {
  const result = el('div.result', el('p.muted', 'Examining the machine …'));
  const load = async () => {
    try {
      fill(result, report(/** @type {Report} */ (await get('/doctor'))));
    } catch (error) {
      fill(result, empty('alert', 'The doctor cannot report', textOf(error)));
    }
    return '';
  };
  const button = h('button.button', { onclick: () => run(button, load) }, 'Examine again');
  load();
  return {
    element: el(
      'div',
      pageHead(
        'Doctor',
        button,
        'The system limits of this machine, and the one that binds first.',
      ),
      result,
    ),
    title: 'Doctor',
  };
}

/** @param {Report} report @returns {HTMLElement[]} */
function report({ wanted, first, permits, verdict, limits }) {
  const isOk = verdict === 'ok';
  const bound = limits.find(({ name }) => name === first);
  return [
    h(
      'section',
      { class: `card verdict ${isOk ? 'good' : 'bad'}` },
      icon(isOk ? 'check' : 'alert'),
      el(
        'div',
        el(
          'h2',
          isOk
            ? `Room for ${whole(wanted)} connections`
            : `A limit is too low for ${whole(wanted)} connections`,
        ),
        el(
          'p.muted',
          bound === undefined
            ? 'No limit could be read.'
            : permits === null
              ? `${bound.name}: ${bound.why}`
              : `${bound.name} binds first, at ${whole(permits)} connections.`,
        ),
      ),
    ),
    ...['low', 'note'].flatMap((shown) =>
      limits.filter(({ verdict }) => verdict === shown).map(fixCard),
    ),
    el(
      'div.card.table-card',
      dataTable(
        'System limits',
        [
          { title: 'Limit' },
          { title: 'Value' },
          { title: 'Permits', isNumber: true },
          { title: 'Verdict' },
        ],
        limits.map(row),
      ),
    ),
  ];
}

/** @param {Finding} finding */
function fixCard({ name, why, meaning, fix, verdict }) {
  return el(
    'section.card.pad',
    el('h2', name, ' ', verdict === 'low' ? pill('bad', 'too low') : pill('plain', 'note')),
    el('p', why),
    el('p.muted', meaning),
    fix && h('pre', { tabindex: 0 }, el('code', fix)),
  );
}

/** @param {Finding} finding */
function row({ name, value, permits, binds, verdict, meaning, why }) {
  const tone = verdict === 'ok' ? 'good' : verdict === 'low' ? 'bad' : 'plain';
  return [
    [el('code', name), el('p.muted.meaning', verdict === 'cannot read' ? why : meaning)],
    el('span.mono', value),
    permits === null ? '–' : binds ? whole(permits) : `(${whole(permits)})`,
    pill(tone, verdict),
  ];
}
