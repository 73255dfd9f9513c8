// trouble.js: the state of the server in the sidebar, and the banners if something is wrong.

import { clock } from './format.js';
import { html } from './html.js';
import { icon, pill } from './parts.js';

/** @import { Part } from './samples.js' */
/** @import { Session } from './view.js' */

/** Servers that a banner names. */
const MAX_NAMED = 8;

/** @param {Session} session @param {Part} last */
export function statusOf({ broker }, last) {
  const { ready, workers, draining } = last.readiness;
  const { sinceMs } = last.broker;
  const isWhole = ready === workers && sinceMs === null;
  const tone = draining ? 'warn' : isWhole ? 'good' : ready > 0 ? 'warn' : 'bad';
  const state = draining
    ? 'draining'
    : ready === 0
      ? 'not ready'
      : sinceMs === null
        ? 'ready'
        : 'degraded';
  const name = nameOf(broker);
  const dead = deadOf(last);
  const deaths = dead.length === 1 ? `${dead[0].name} dead` : `${dead.length} servers dead`;
  const since = (/** @type {number} */ timeMs) => html`${' '}<span>since ${clock(timeMs)}</span>`;
  return [
    dead.length > 0 &&
      html`<p class="flex wrap">${pill('bad', deaths)}${since(Math.max(...dead.map(({ seenMs }) => seenMs)))}</p>`,
    html`<p class="flex wrap">${pill(tone, state)}<span>${ready} of ${workers} workers</span></p>`,
    sinceMs === null
      ? broker === 'redis' && html`<p class="flex wrap">${pill('good', name)}</p>`
      : html`<p class="flex wrap">${pill('bad', `${name} unavailable`)}${since(sinceMs)}</p>`,
  ];
}

/** @param {Session} session @param {Part} last */
export function bannersOf({ broker }, last) {
  const { sinceMs, without, workers } = last.broker;
  const scope =
    without === workers ? 'For all workers of this server' : `For ${without} of ${workers} workers`;
  return [
    sinceMs !== null &&
      banner(
        `${nameOf(broker)} unavailable since ${clock(sinceMs)}`,
        `${scope}. Clients stay connected, but messages and joins that need it are answered with UNAVAILABLE. Rooms with history catch up when it is back.`,
      ),
    deathsBanner(deadOf(last)),
  ];
}

/** @param {Part['fleet']['servers']} dead */
function deathsBanner(dead) {
  if (dead.length === 0) return null;
  const about =
    'Clients of a dead server reconnect to the others. If you stopped it on purpose, this notice goes 15 minutes after its last answer.';
  if (dead.length === 1)
    return banner(`${dead[0].name} does not answer since ${clock(dead[0].seenMs)}`, about);
  const names = dead.slice(0, MAX_NAMED).map((one) => `${one.name} (${clock(one.seenMs)})`);
  const others = dead.length > names.length ? ` and ${dead.length - names.length} more` : '';
  return banner(
    `${dead.length} servers do not answer`,
    `Last seen: ${names.join(', ')}${others}. ${about}`,
  );
}

/** @param {string} title @param {string} text */
export function banner(title, text) {
  return html`<div class="banner flex">
    ${icon('alert')}
    <div><strong>${title}</strong><p>${text}</p></div>
  </div>`;
}

/** @param {Part} last @returns servers that stopped answering without a drain */
function deadOf({ fleet }) {
  return fleet.servers.filter(({ state }) => state === 'dead');
}

/** @param {Session['broker']} broker */
function nameOf(broker) {
  return broker === 'redis' ? 'Redis' : 'Embedded broker';
}
