// fleet-card.js: the figures of all servers, or of one of them, at the head of the overview.
//
// They come from surveys through Redis, because a page reaches only the operations port that it was
// loaded from. The charts of another server are on its own port.

import { textOf } from './dialog.js';
import { fill, h, pill } from './dom.js';
import { clock, plural, quantity } from './format.js';

const REFRESH_MS = 3000;
/** Servers with a button of their own. The view Servers has all of them. */
const MAX_BUTTONS = 8;

/** @typedef {import('./fleet.js').Sums} Sums */

/** @param {import('./view.js').App} app */
export function fleetCard(app) {
  const { fleet, session } = app;
  /** The server whose figures are shown; null: all. @type {string|null} */
  let chosen = null;
  let fault = '';
  const choice = h('div', { class: 'choice', role: 'group', 'aria-label': 'Servers' });
  const figures = h('dl', { class: 'figures' });
  const note = h('p', { class: 'muted figures-note' });

  const show = () => {
    const servers = fleet.servers();
    const present = servers.filter(({ isGone }) => !isGone).length;
    if (!servers.some(({ name }) => name === chosen)) chosen = null;
    const names = [null, ...servers.slice(0, MAX_BUTTONS).map(({ name }) => name)];
    // Buttons that are replaced lose the focus, so they are built for another list only.
    if (choice.dataset.names !== names.join('\n')) {
      choice.dataset.names = names.join('\n');
      fill(
        choice,
        names.map((name) =>
          h(
            'button',
            {
              type: 'button',
              onclick: () => {
                chosen = name;
                show();
              },
            },
            name ?? 'All servers',
          ),
        ),
        servers.length > MAX_BUTTONS && h('a', { href: '#/servers' }, `all ${servers.length}`),
      );
    }
    for (const [i, button] of choice.querySelectorAll('button').entries())
      button.setAttribute('aria-pressed', String(names[i] === chosen));

    const member = servers.find(({ name }) => name === chosen);
    const sums = fault === '' && !member?.isGone ? fleet.sums(chosen) : null;
    const workers = sums === null ? '–' : `${sums.ready} of ${sums.workers}`;
    fill(
      figures,
      chosen === null && figure('Servers', fault === '' ? String(present) : '–'),
      figure('Workers ready', workers),
      figure('Connections', quantity('count', sums?.connections)),
      figure('Messages in', quantity('perSecond', sums?.messages)),
      figure('Deliveries out', quantity('perSecond', sums?.deliveries)),
      figure('Refused in 1 min', quantity('events', rounded(sums?.refused)), sums?.refused),
      figure('Errors in 1 min', quantity('events', rounded(sums?.errors)), sums?.errors),
    );
    const gone = servers.filter(({ isGone }) => isGone);
    fill(
      note,
      fault !== '' && pill('bad', 'no answer'),
      fault,
      fault === '' &&
        gone.map(({ name, seenMs }) => pill('bad', `${name}: last seen ${clock(seenMs)}`)),
      fault === '' &&
        fleet.isPartial &&
        gone.length === 0 &&
        pill('warn', 'A worker has not answered'),
      fault === '' && chosen !== null && chosen !== session.server
        ? `The charts below are of ${session.server}. Those of ${chosen} are on its own operations port.`
        : fault === '' &&
            `${plural(present, 'server')} on this Redis. The charts below are of ${session.server} alone.`,
    );
  };
  const load = async () => {
    try {
      await fleet.load();
      fault = '';
    } catch (error) {
      const isOut = app.store.last !== null && app.store.last.broker.sinceMs !== null;
      fault = isOut
        ? 'The servers cannot be asked while Redis is unavailable.'
        : `The servers cannot be asked: ${textOf(error)}`;
    }
    if (isClosed) return;
    show();
    setTimeout(load, REFRESH_MS);
  };
  let isClosed = false;
  show();
  load();
  return {
    element: h(
      'section',
      { class: 'card fleet', 'aria-label': 'All servers' },
      choice,
      figures,
      note,
    ),
    close: () => {
      isClosed = true;
    },
  };
}

/**
 * @param {string} name
 * @param {string} text
 * @param {number|null} [events] that should not happen
 */
function figure(name, text, events) {
  return h('div', { class: events ? 'alarm' : null }, h('dt', null, name), h('dd', null, text));
}

/** @param {number|null|undefined} value */
function rounded(value) {
  return value === null || value === undefined ? null : Math.ceil(value);
}
