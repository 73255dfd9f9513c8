// doctor.js: the findings of the doctor about this machine.

import { get } from './api.js';
import { ActionButton } from './dialog.js';
import { whole } from './format.js';
import { html } from './html.js';
import { icon, numeric, pageHead, pill, tableCard } from './parts.js';
import { PolledView } from './polled.js';

/**
 * @typedef {{name: string, value: string, permits: number|null, binds: boolean, verdict: string, why: string, meaning: string, fix: string|null}}
 *   Finding
 * @typedef {{wanted: number, workers: number, first: string|null, permits: number|null, verdict: string, limits: Finding[]}}
 *   Report
 */

const ABOUT = 'The system limits of this machine, and the one that binds first.';

export class DoctorView extends PolledView {
  state = { shown: html`<p class="muted">Examining the machine …</p>` };
  fault = 'The doctor cannot report';

  pauseMs = null;

  async read() {
    return report(/** @type {Report} */ (await get('/doctor')));
  }

  #examine = async () => {
    await this.reload();
    return '';
  };

  head() {
    const button = html`<${ActionButton} action=${this.#examine}>Examine again<//>`;
    return pageHead('Doctor', ABOUT, button);
  }
}

/** @param {Report} report */
function report({ wanted, first, permits, verdict, limits }) {
  const isOk = verdict === 'ok';
  const bound = limits.find(({ name }) => name === first);
  const shown = ['low', 'note'].flatMap((shown) =>
    limits.filter(({ verdict }) => verdict === shown),
  );
  const title = isOk ? 'Room for' : 'A limit is too low for';
  const text =
    bound === undefined
      ? 'No limit could be read.'
      : permits === null
        ? `${bound.name}: ${bound.why}`
        : `${bound.name} binds first, at ${whole(permits)} connections.`;
  const columns = ['Limit', 'Value', numeric('Permits'), 'Verdict'];
  return html`
    <section class="card verdict flex ${isOk ? 'good' : 'bad'}">
      ${icon(isOk ? 'check' : 'alert')}
      <div>
        <h2>${title} ${whole(wanted)} connections</h2>
        <p class="muted">${text}</p>
      </div>
    </section>
    ${shown.map(fixCard)}
    ${tableCard('System limits', columns, limits.map(findingRow))}`;
}

/** @param {Finding} finding */
function fixCard({ name, why, meaning, fix, verdict }) {
  return html`<section class="card pad">
    <h2>${name} ${verdict === 'low' ? pill('bad', 'too low') : pill('plain', 'note')}</h2>
    <p>${why}</p>
    <p class="muted">${meaning}</p>
    ${fix && html`<pre tabindex="0"><code>${fix}</code></pre>`}
  </section>`;
}

/** @param {Finding} finding */
function findingRow({ name, value, permits, binds, verdict, meaning, why }) {
  const tone = verdict === 'ok' ? 'good' : verdict === 'low' ? 'bad' : 'plain';
  const about = verdict === 'cannot read' ? why : meaning;
  return [
    html`<code>${name}</code><p class="muted small meaning">${about}</p>`,
    html`<span class="mono">${value}</span>`,
    permits === null ? '–' : binds ? whole(permits) : `(${whole(permits)})`,
    pill(tone, verdict),
  ];
}
