// fleet-card.js: the figures of all servers, or of one of them, at the head of the overview.
//
// They come from surveys that this server makes through Redis: a page reaches only the port that it
// was loaded from.

import { Component } from 'preact';
import { clock, plural, quantity } from './format.js';
import { html } from './html.js';
import { pill } from './parts.js';

/** Servers with a button of their own. The view Servers has all of them. */
const MAX_BUTTONS = 8;

/** @import { App } from './view.js' */
/** @typedef {import('../fleet-figures.js').Member} Server */
/** @typedef {import('../fleet-figures.js').Overview} Overview */

/** Before the first answer of this server. @type {Overview} */
const UNKNOWN = Object.freeze({ fault: '', isPartial: false, sums: null, servers: [] });
/** The tone of a server, by its state. */
const TONES = /** @type {const} */ ({ here: 'good', late: 'warn', dead: 'bad', left: 'plain' });
const TEXTS = Object.freeze({ here: '', late: '', dead: '', left: 'drained, ' });

/** `chosen`: the server whose figures are shown; null: all. @extends {Component<{app: App}, {chosen: string|null}>} */
export class FleetCard extends Component {
  state = { chosen: null };

  render() {
    const { app } = this.props;
    const fleet = app.samples.last?.fleet ?? UNKNOWN;
    const { servers } = fleet;
    const server = servers.find(({ name }) => name === this.state.chosen) ?? null;
    const button = (/** @type {string|null} */ name) => html`<button
      type="button" aria-pressed=${name === (server?.name ?? null)}
      onclick=${() => this.setState({ chosen: name })}
    >${name ?? 'All servers'}</button>`;
    return html`<section class="card fleet" aria-label="All servers">
      <div class="choice" role="group" aria-label="Servers">
        ${[null, ...servers.slice(0, MAX_BUTTONS).map(({ name }) => name)].map(button)}
        ${servers.length > MAX_BUTTONS && html`<a href="#/servers">all ${servers.length}</a>`}
      </div>
      <dl class="figures">${figuresOf(fleet, server)}</dl>
      <p class="muted small figures-note flex wrap">${noteOn(app, fleet, server)}</p>
    </section>`;
  }
}

/** @param {Overview} fleet @param {Server|null} server null: all */
function figuresOf({ fault, servers, sums: all }, server) {
  const isKnown = fault === '' && servers.length > 0;
  const sums = isKnown ? (server === null ? all : server.sums) : null;
  const dead = servers.filter(({ state }) => state === 'dead').length;
  const present = presentOf(servers);
  const total = dead === 0 ? String(present) : `${present} of ${present + dead}`;
  return [
    server === null && figure('Servers', isKnown ? total : '–', dead),
    figure('Workers ready', sums === null ? '–' : `${sums.ready} of ${sums.workers}`),
    figure('Connections', quantity('count', sums?.connections)),
    figure('Messages in', quantity('perSecond', sums?.messages)),
    figure('Deliveries out', quantity('perSecond', sums?.deliveries)),
    figure('Refused in 1 min', quantity('events', rounded(sums?.refused)), sums?.refused),
    figure('Errors in 1 min', quantity('events', rounded(sums?.errors)), sums?.errors),
  ];
}

/** @param {App} app @param {Overview} fleet @param {Server|null} server null: all */
function noteOn({ samples, session }, { fault, isPartial, servers }, server) {
  if (fault !== '') {
    const isOut = samples.last !== null && samples.last.broker.sinceMs !== null;
    const why = isOut
      ? 'The servers cannot be asked while Redis is unavailable.'
      : `The servers cannot be asked: ${fault}`;
    return [pill('bad', 'no answer'), why];
  }
  if (servers.length === 0) return 'The servers have not been asked yet.';
  const missing = servers.filter(({ state }) => state !== 'here');
  return [
    missing.map(({ name, seenMs, state }) =>
      pill(TONES[state], `${name}: ${TEXTS[state]}last seen ${clock(seenMs)}`),
    ),
    isPartial && missing.length === 0 && pill('warn', 'A worker has not answered'),
    server !== null && server.name !== session.server
      ? `The charts below are of ${session.server}. Those of ${server.name} are on its own operations port.`
      : `${plural(presentOf(servers), 'server')} on this Redis. The charts below are of ${session.server} alone.`,
  ];
}

/** @param {readonly Server[]} servers */
function presentOf(servers) {
  return servers.filter(({ state }) => state === 'here' || state === 'late').length;
}

/** @param {string} name @param {string} text @param {number|null} [events] of faults */
function figure(name, text, events) {
  return html`<div key=${name} class=${events ? 'alarm' : null}><dt>${name}</dt><dd>${text}</dd></div>`;
}

/** @param {number|null|undefined} value */
function rounded(value) {
  return value === null || value === undefined ? null : Math.ceil(value);
}
