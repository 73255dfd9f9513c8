// fleet-card.js: the figures of all servers, or of one of them, at the head of the overview.
//
// They come from surveys that this server makes through Redis: a page reaches only the port that it
// was loaded from.

import { el, fill, h, pill } from './dom.js';
import { clock, plural, quantity } from './format.js';

/** Servers with a button of their own. The view Servers has all of them. */
const MAX_BUTTONS = 8;

/** @typedef {import('../fleet.js').Member} Server */
/** @typedef {import('../fleet.js').Overview} Overview */

/** Before the first answer of this server. @type {Overview} */
const UNKNOWN = Object.freeze({ fault: '', isPartial: false, sums: null, servers: [] });

export class FleetCard {
  /** The server whose figures are shown; null: all. @type {string|null} */
  #chosen = null;
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
    this.update();
  }

  update() {
    const fleet = this.app.store.last?.fleet ?? UNKNOWN;
    if (!fleet.servers.some(({ name }) => name === this.#chosen)) this.#chosen = null;
    this.#showChoice(fleet.servers);
    this.#showFigures(fleet);
    fill(this.#note, this.#noteOn(fleet));
  }

  /** @param {readonly Server[]} servers */
  #showChoice(servers) {
    const names = [null, ...servers.slice(0, MAX_BUTTONS).map(({ name }) => name)];
    const choose = (/** @type {string|null} */ name) => {
      this.#chosen = name;
      this.update();
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

  /** @param {Overview} fleet */
  #showFigures({ fault, servers, sums: all }) {
    const isKnown = fault === '' && servers.length > 0;
    const of = servers.find(({ name }) => name === this.#chosen)?.sums ?? null;
    const sums = isKnown ? (this.#chosen === null ? all : of) : null;
    const workers = sums === null ? '–' : `${sums.ready} of ${sums.workers}`;
    fill(
      this.#figures,
      this.#chosen === null && serverFigure(servers, isKnown),
      figure('Workers ready', workers),
      figure('Connections', quantity('count', sums?.connections)),
      figure('Messages in', quantity('perSecond', sums?.messages)),
      figure('Deliveries out', quantity('perSecond', sums?.deliveries)),
      figure('Refused in 1 min', quantity('events', rounded(sums?.refused)), sums?.refused),
      figure('Errors in 1 min', quantity('events', rounded(sums?.errors)), sums?.errors),
    );
  }

  /** @param {Overview} fleet */
  #noteOn({ fault, isPartial, servers }) {
    const { store, session } = this.app;
    const isOut = store.last !== null && store.last.broker.sinceMs !== null;
    if (fault !== '')
      return [
        pill('bad', 'no answer'),
        isOut
          ? 'The servers cannot be asked while Redis is unavailable.'
          : `The servers cannot be asked: ${fault}`,
      ];
    if (servers.length === 0) return 'The servers have not been asked yet.';
    const missing = servers.filter(({ state }) => state !== 'here');
    const isElsewhere = this.#chosen !== null && this.#chosen !== session.server;
    return [
      ...missing.map(({ name, seenMs, state }) =>
        pill(TONES[state], `${name}: ${TEXTS[state]}last seen ${clock(seenMs)}`),
      ),
      isPartial && missing.length === 0 && pill('warn', 'A worker has not answered'),
      isElsewhere
        ? `The charts below are of ${session.server}. Those of ${this.#chosen} are on its own operations port.`
        : `${plural(presentOf(servers), 'server')} on this Redis. The charts below are of ${session.server} alone.`,
    ];
  }
}

/** By the state of a server. */
const TONES = /** @type {const} */ ({ here: 'good', late: 'warn', dead: 'bad', left: 'plain' });
const TEXTS = Object.freeze({ here: '', late: '', dead: '', left: 'drained, ' });

/** @param {readonly Server[]} servers */
function presentOf(servers) {
  return servers.filter(({ state }) => state === 'here' || state === 'late').length;
}

/** @param {readonly Server[]} servers @param {boolean} isKnown */
function serverFigure(servers, isKnown) {
  const dead = servers.filter(({ state }) => state === 'dead').length;
  const present = presentOf(servers);
  const text = dead === 0 ? String(present) : `${present} of ${present + dead}`;
  return figure('Servers', isKnown ? text : '–', dead);
}

/** @param {string} name @param {string} text @param {number|null} [events] of faults */
function figure(name, text, events) {
  return h('div', { class: events ? 'alarm' : null }, el('dt', name), el('dd', text));
}

/** @param {number|null|undefined} value */
function rounded(value) {
  return value === null || value === undefined ? null : Math.ceil(value);
}
