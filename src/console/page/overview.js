// overview.js: the first view: the most frequent actions, then the charts and the events.

import { Chart } from './charts.js';
import { FleetCard } from './fleet-card.js';
import { clock, duration, plural } from './format.js';
import { html } from './html.js';
import { empty, field, hrefOf, icon, pageHead, pill } from './parts.js';
import { publishForm } from './publish.js';

/** @import { App, ViewProps } from './view.js' */
/** @typedef {readonly (readonly [href: string, text: string])[]} Links */

/** @type {Links} */
const ROOM_LINKS = [
  ['#/rooms', 'All rooms'],
  ['#/largest', 'Largest'],
  ['#/busiest', 'Busiest'],
];
/** @type {Links} */
const USER_LINKS = [
  ['#/users', 'Refused most often'],
  ['#/addresses', 'By address'],
  ['#/connections', 'By connection'],
];

/** @param {ViewProps} props */
export function Overview({ app, look }) {
  const { session, samples } = app;
  const isShared = session.broker === 'redis';
  return html`<div>
    ${pageHead('Overview')}
    <p class="lead">${leadOf(app)}</p>
    ${isShared && html`<${FleetCard} app=${app} />`}
    ${quickCards(app)}
    <h2 class="section-title">
      Last 15 minutes of ${session.server} ${isShared && pill('plain', 'this server')}
    </h2>
    <div class="charts">
      ${session.charts.map(
        (info) =>
          html`<${Chart} info=${info} samples=${samples} last=${samples.last} look=${look} />`,
      )}
    </div>
    <h2 class="section-title">Events of ${session.server}</h2>
    <div class="events">${eventsOf(samples.marks)}</div>
  </div>`;
}

/** @param {App} app */
function leadOf({ session, samples: { last } }) {
  if (last === null) return null;
  const broker = session.broker === 'redis' ? 'Redis' : 'embedded broker';
  const { ready, workers } = last.readiness;
  const upFor = duration((Date.now() - last.startedMs) / 1000);
  return `This is ${session.server}: Fanfare ${session.version}, ${broker}, ${ready} of ${plural(workers, 'worker')} ready, up ${upFor}.`;
}

/** What an operator does most often. @param {App} app */
function quickCards(app) {
  const room = { label: 'Room', title: 'Look into a room', action: 'Open', links: ROOM_LINKS };
  const user = { label: 'User', title: 'Find a user', action: 'Find', links: USER_LINKS };
  return html`<div class="quick">
    ${finder('rooms', 'chat.42', 'Members, history, live messages', room)}
    ${finder('users', 'alice', 'Connections, disconnect, revoke', user)}
    <section class="card quick-card stack">
      <h2 class="flex">${icon('publish')}Publish a test message</h2>
      ${publishForm(app, { isCompact: true })}
    </section>
  </div>`;
}

/**
 * A form that leads to a room or a user.
 * @param {'rooms'|'users'} path @param {string} example @param {string} about
 * @param {{label: string, title: string, action: string, links: Links}} texts
 */
function finder(path, example, about, { label, title, action, links }) {
  const submit = (/** @type {Event & {currentTarget: HTMLFormElement}} */ event) => {
    event.preventDefault();
    const input = /** @type {HTMLInputElement} */ (event.currentTarget.elements.namedItem(path));
    location.hash = hrefOf(path, input.value.trim());
  };
  const input = html`<input
    type="text" name=${path} placeholder=${example} autocomplete="off" spellcheck=${false} required
  />`;
  return html`<section class="card quick-card stack">
    <h2 class="flex">${icon(path)}${title}</h2>
    <p class="muted small">${about}</p>
    <form class="row flex wrap" onsubmit=${submit}>
      ${field(label, input)}
      <button class="button primary">${action}</button>
    </form>
    <p class="more small flex wrap">${links.map(([href, text]) => html`<a href=${href}>${text}</a>`)}</p>
  </section>`;
}

/** @param {readonly import('./samples.js').Mark[]} marks */
function eventsOf(marks) {
  if (marks.length === 0) {
    const text = 'No worker started, died or was replaced, and the broker was available.';
    return empty('check', 'Nothing happened', text);
  }
  return html`<ol class="card event-list">
    ${marks.toReversed().map(
      ({ timeMs, kind, text }) => html`<li class="flex">
        <time class="muted">${clock(timeMs)}</time>
        <span class="tag" style=${{ '--mark': `var(--mark-${kind})` }}>
          ${kind === 'start' ? 'started' : kind}
        </span>
        <span>${text}</span>
      </li>`,
    )}
  </ol>`;
}
