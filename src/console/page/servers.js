// servers.js: all servers of the fleet, with their workers.

import { get } from './api.js';
import { bytes, clock, duration, plural, whole } from './format.js';
import { html } from './html.js';
import { barred, dataTable, empty, numeric, pageHead, pill, warning } from './parts.js';
import { PolledView } from './polled.js';

/** @import { App } from './view.js' */
/** @import { Member, WorkerInfo } from '../fleet-figures.js' */
/** @typedef {Pick<Member, 'name'|'seenMs'|'state'> & {workers: WorkerInfo[]}} Server */

const COLUMNS = [
  ...['Worker', 'State', numeric('Connections'), numeric('Rooms'), numeric('Loop lag')],
  ...[numeric('Private memory'), numeric('Up')],
];
const TONES = /** @type {const} */ ({ late: 'warn', dead: 'bad', left: 'plain' });
const TEXTS = Object.freeze({ late: 'no answer', dead: 'no answer', left: 'drained' });

export class ServersView extends PolledView {
  fault = 'The servers cannot be listed';
  attributes = { class: 'result servers' };

  async read() {
    const { app } = this.props;
    const { servers } = /** @type {{servers: Server[]}} */ (await get('/servers'));
    const workers = servers.flatMap(({ state, workers }) => (state === 'here' ? workers : []));
    const { isPartial = false, fault = '' } = app.samples.last?.fleet ?? {};
    const most = Math.max(1, ...workers.map((one) => one.connections));
    return [
      fault !== '' && warning(`The servers cannot be asked: ${fault}`),
      fault === '' &&
        isPartial &&
        warning('A worker has not answered: it may be busy, starting, or of an older version.'),
      servers.length === 0
        ? empty('servers', 'No server has answered yet', 'They are asked every few seconds.')
        : servers.map((server) => serverCard(app, server, most)),
    ];
  }

  head() {
    const about =
      this.props.app.session.broker === 'redis'
        ? 'All servers on the same Redis, with their workers.'
        : 'This server is alone: it uses the embedded broker.';
    return pageHead('Servers', about);
  }
}

/** @param {App} app @param {Server} server @param {number} most of any worker */
function serverCard(app, { name, workers, seenMs, state }, most) {
  const connections = workers.reduce((sum, one) => sum + one.connections, 0);
  const versions = [...new Set(workers.map(({ version }) => version))].join(', ');
  const isHere = state === 'here';
  const rows = workers.map((one) => workerRow(one, most, isHere));
  return html`<section key=${name} class="card table-card ${isHere ? '' : 'is-gone'}">
    <header class="card-head flex wrap">
      <h2>${name}</h2>
      ${name === app.session.server && pill('plain', 'this server')}
      ${state !== 'here' && pill(TONES[state], `${TEXTS[state]}, last seen ${clock(seenMs)}`)}
      <p class="muted">
        ${plural(connections, 'connection')} · ${plural(workers.length, 'worker')} · Fanfare ${versions}
      </p>
    </header>
    ${dataTable(`Workers of ${name}`, COLUMNS, rows)}
  </section>`;
}

/** @param {WorkerInfo} worker @param {number} most connections of a worker @param {boolean} isHere */
function workerRow(worker, most, isHere) {
  const { slot, pid, state, connections, rooms, lagMs, memoryBytes, uptimeS } = worker;
  return [
    html`Worker ${slot}<span class="muted tiny pid">pid ${pid}</span>`,
    isHere ? pill(state === 'ready' ? 'good' : 'warn', state) : pill('plain', `was ${state}`),
    barred(connections, most, whole(connections)),
    whole(rooms),
    `${whole(lagMs)} ms`,
    bytes(memoryBytes),
    duration(uptimeS),
  ];
}
