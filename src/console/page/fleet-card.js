// fleet-card.js: the figures of all servers, or of one of them, at the head of the overview.
//
// They come from surveys through Redis: a page reaches only the port that it was loaded from.

import { textOf } from './dialog.js';
import { el, fill, h, pill } from './dom.js';
import { clock, plural, quantity } from './format.js';

const REFRESH_MS = 3000;
/** Servers with a button of their own. The view Servers has all of them. */
const MAX_BUTTONS = 8;

/** @typedef {ReturnType<import('./fleet.js').Fleet['servers']>[number]} Server */

export class FleetCard {
  /** The server whose figures are shown; null: all. @type {string|null} */
  #chosen = null;
  #fault = '';
  #isClosed = false;
  #choice = h('div.choice', { role: 'group', 'aria-label': 'Servers' });
  #figures = el('dl.figures');
  #note = el('p.muted.figures-note');

  /** @param {import('./view.js').App} app */
  constructor(app) {
    this.app = app;
    this.element = h(
      'section.card.fleet',
      { 'aria-label': 'All servers' },
      this.#choice,
      this.#figures,
      this.#note,
    );
    this.#show();
    this.#load();
  }

  close() {
    this.#isClosed = true;
  }

  async #load() {
    const { fleet, store } = this.app;
    try {
      await fleet.load();
      this.#fault = '';
    } catch (error) {
      const isOut = store.last !== null && store.last.broker.sinceMs !== null;
      this.#fault = isOut
        ? 'The servers cannot be asked while Redis is unavailable.'
        : `The servers cannot be asked: ${textOf(error)}`;
    }
    if (this.#isClosed) return;
    this.#show();
    setTimeout(() => this.#load(), REFRESH_MS);
  }

  #show() {
    const servers = this.app.fleet.servers();
    if (!servers.some(({ name }) => name === this.#chosen)) this.#chosen = null;
    this.#showChoice(servers);
    this.#showFigures(servers);
    fill(this.#note, this.#noteOn(servers));
  }

  /** @param {readonly Server[]} servers */
  #showChoice(servers) {
    const names = [null, ...servers.slice(0, MAX_BUTTONS).map(({ name }) => name)];
    const choose = (/** @type {string|null} */ name) => {
      this.#chosen = name;
      this.#show();
    };
    // Buttons that are replaced lose the focus, so they are built for another list only.
    if (this.#choice.dataset.names !== names.join('\n')) {
      this.#choice.dataset.names = names.join('\n');
      fill(
        this.#choice,
        names.map((name) =>
          h('button', { type: 'button', onclick: () => choose(name) }, name ?? 'All servers'),
        ),
        servers.length > MAX_BUTTONS && h('a', { href: '#/servers' }, `all ${servers.length}`),
      );
    }
    for (const [i, button] of this.#choice.querySelectorAll('button').entries())
      button.setAttribute('aria-pressed', String(names[i] === this.#chosen));
  }

  /** @param {readonly Server[]} servers */
  #showFigures(servers) {
    const isKnown = this.#fault === '';
    const isGone = servers.find(({ name }) => name === this.#chosen)?.isGone;
    const sums = isKnown && !isGone ? this.app.fleet.sums(this.#chosen) : null;
    const workers = sums === null ? '–' : `${sums.ready} of ${sums.workers}`;
    fill(
      this.#figures,
      this.#chosen === null && figure('Servers', isKnown ? String(presentOf(servers)) : '–'),
      figure('Workers ready', workers),
      figure('Connections', quantity('count', sums?.connections)),
      figure('Messages in', quantity('perSecond', sums?.messages)),
      figure('Deliveries out', quantity('perSecond', sums?.deliveries)),
      figure('Refused in 1 min', quantity('events', rounded(sums?.refused)), sums?.refused),
      figure('Errors in 1 min', quantity('events', rounded(sums?.errors)), sums?.errors),
    );
  }

  /** @param {readonly Server[]} servers */
  #noteOn(servers) {
    if (this.#fault !== '') return [pill('bad', 'no answer'), this.#fault];
    const { fleet, session } = this.app;
    const gone = servers.filter(({ isGone }) => isGone);
    const isElsewhere = this.#chosen !== null && this.#chosen !== session.server;
    return [
      ...gone.map(({ name, seenMs }) => pill('bad', `${name}: last seen ${clock(seenMs)}`)),
      fleet.isPartial && gone.length === 0 && pill('warn', 'A worker has not answered'),
      isElsewhere
        ? `The charts below are of ${session.server}. Those of ${this.#chosen} are on its own operations port.`
        : `${plural(presentOf(servers), 'server')} on this Redis. The charts below are of ${session.server} alone.`,
    ];
  }
}

/** @param {readonly Server[]} servers */
function presentOf(servers) {
  return servers.filter(({ isGone }) => !isGone).length;
}

/** @param {string} name @param {string} text @param {number|null} [events] of faults */
function figure(name, text, events) {
  return h('div', { class: events ? 'alarm' : null }, el('dt', name), el('dd', text));
}

/** @param {number|null|undefined} value */
function rounded(value) {
  return value === null || value === undefined ? null : Math.ceil(value);
}
