// overview.js: the first view: the most frequent actions, then the charts and the events.

import { Chart } from './charts.js';
import { el, empty, field, fill, h, icon, pageHead, pill } from './dom.js';
import { FleetCard } from './fleet-card.js';
import { clock, duration, plural } from './format.js';
import { publishForm } from './publish.js';

/** @import { App, View } from './view.js' */

const ROOM_LINKS = [
  ['#/rooms', 'All rooms'],
  ['#/largest', 'Largest'],
  ['#/busiest', 'Busiest'],
];
const USER_LINKS = [
  ['#/users', 'Refused most often'],
  ['#/addresses', 'By address'],
  ['#/connections', 'By connection'],
];

/** @param {App} app @returns {View} */
export function overview(app) {
  const { session, store } = app;
  const charts = session.charts.map((info) => new Chart(info, store));
  const events = el('div.events');
  const lead = el('p.lead');
  const broker = session.broker === 'redis' ? 'Redis' : 'embedded broker';
  const fleet = session.broker === 'redis' ? new FleetCard(app) : null;

  const element = el(
    'div',
    pageHead('Overview', null),
    lead,
    fleet?.element,
    quickCards(app),
    el(
      'h2.section-title',
      `Last 15 minutes of ${session.server} `,
      fleet !== null && pill('plain', 'this server'),
    ),
    el(
      'div.charts',
      charts.map((chart) => chart.element),
    ),
    el('h2.section-title', `Events of ${session.server}`),
    events,
  );

  const update = () => {
    const { last } = store;
    if (last !== null) {
      const { ready, workers } = last.readiness;
      lead.textContent = `This is ${session.server}: Fanfare ${session.version}, ${broker}, ${ready} of ${plural(workers, 'worker')} ready, up ${duration((Date.now() - last.startedMs) / 1000)}.`;
    }
    fleet?.update();
    for (const chart of charts) chart.update();
    fill(events, eventsOf(store.marks));
  };
  return {
    element,
    title: 'Overview',
    update,
    redraw: () => {
      for (const chart of charts) chart.redraw();
    },
    close: () => {
      for (const chart of charts) chart.close();
    },
  };
}

/** What an operator does most often. @param {App} app */
function quickCards(app) {
  return el(
    'div.quick',
    finder('rooms', 'Look into a room', 'Members, history, live messages', 'chat.42', 'Open'),
    finder('users', 'Find a user', 'Connections, disconnect, revoke', 'alice', 'Find'),
    el(
      'section.card.quick-card',
      el('h2', icon('publish'), 'Publish a test message'),
      publishForm(app, { room: '', isCompact: true }),
    ),
  );
}

/**
 * A form that leads to a room or a user.
 * @param {'rooms'|'users'} place @param {string} title @param {string} text @param {string} example
 * @param {string} action
 */
function finder(place, title, text, example, action) {
  const input = h('input', {
    type: 'text',
    name: place,
    placeholder: example,
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
  });
  return el(
    'section.card.quick-card',
    el('h2', icon(place), title),
    el('p.muted', text),
    h(
      'form.row',
      {
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          location.hash = `#/${place}/${encodeURIComponent(input.value.trim())}`;
        },
      },
      field(place === 'rooms' ? 'Room' : 'User', input),
      el('button.button.primary', action),
    ),
    el(
      'p.more',
      (place === 'rooms' ? ROOM_LINKS : USER_LINKS).map(([href, text]) => h('a', { href }, text)),
    ),
  );
}

/** @param {readonly import('./store.js').Mark[]} marks */
function eventsOf(marks) {
  if (marks.length === 0)
    return empty(
      'check',
      'Nothing happened',
      'No worker started, died or was replaced, and the broker was available.',
    );
  return el(
    'ol.card.event-list',
    [...marks]
      .reverse()
      .map(({ timeMs, kind, text }) =>
        el(
          'li',
          el('time', clock(timeMs)),
          h('span', { class: `tag mark-${kind}` }, kind === 'start' ? 'started' : kind),
          el('span', text),
        ),
      ),
  );
}
