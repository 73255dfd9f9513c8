// servers.js: all servers of the fleet, with their workers.

import { get } from './api.js';
import { barred, dataTable, el, empty, h, pill } from './dom.js';
import { bytes, clock, duration, plural, whole } from './format.js';
import { polledView } from './polled-view.js';

/** @import { App, View } from './view.js' */

/** @import { Member, WorkerInfo } from '../fleet.js' */
/** @typedef {Pick<Member, 'name'|'seenMs'|'state'> & {workers: WorkerInfo[]}} Server */

const COLUMNS = [
  { title: 'Worker' },
  { title: 'State' },
  { title: 'Connections', isNumber: true },
  { title: 'Rooms', isNumber: true },
  { title: 'Loop lag', isNumber: true },
  { title: 'Private memory', isNumber: true },
  { title: 'Up', isNumber: true },
];

const TONES = /** @type {const} */ ({ late: 'warn', dead: 'bad', left: 'plain' });
const TEXTS = Object.freeze({ late: 'no answer', dead: 'no answer', left: 'drained' });

/** @param {App} app @returns {View} */
export function serversView(app) {
  const about =
    app.session.broker === 'redis'
      ? 'All servers on the same Redis, with their workers.'
      : 'This server is alone: it uses the embedded broker.';
  return polledView(
    { title: 'Servers', about, fault: 'The servers cannot be listed', className: 'servers' },
    async () => {
      const { servers } = /** @type {{servers: Server[]}} */ (await get('/servers'));
      const workers = servers.flatMap(({ state, workers }) => (state === 'here' ? workers : []));
      const { isPartial = false, fault = '' } = app.store.last?.fleet ?? {};
      const most = Math.max(1, ...workers.map((one) => one.connections));
      return [
        fault !== '' && el('p.warning', `The servers cannot be asked: ${fault}`),
        fault === '' &&
          isPartial &&
          el(
            'p.warning',
            'A worker has not answered: it may be busy, starting, or of an older version.',
          ),
        servers.length === 0
          ? empty('servers', 'No server has answered yet', 'They are asked every few seconds.')
          : servers.map((server) => serverCard(app, server, most)),
      ].flat();
    },
  );
}

/** @param {App} app @param {Server} server @param {number} most of any worker */
function serverCard(app, { name, workers, seenMs, state }, most) {
  const connections = workers.reduce((sum, one) => sum + one.connections, 0);
  const versions = [...new Set(workers.map(({ version }) => version))];
  return h(
    'section',
    { class: `card table-card${state === 'here' ? '' : ' is-gone'}` },
    el(
      'header.card-head',
      el('h2', name),
      name === app.session.server && pill('plain', 'this server'),
      state !== 'here' && pill(TONES[state], `${TEXTS[state]}, last seen ${clock(seenMs)}`),
      el(
        'p.muted',
        `${plural(connections, 'connection')} · ${plural(workers.length, 'worker')} · Fanfare ${versions.join(', ')}`,
      ),
    ),
    dataTable(
      `Workers of ${name}`,
      COLUMNS,
      workers.map((one) => workerRow(one, most, state === 'here')),
    ),
  );
}

/** @param {WorkerInfo} worker @param {number} most connections of a worker @param {boolean} isHere */
function workerRow(worker, most, isHere) {
  const { slot, pid, state, connections, rooms, lagMs, memoryBytes, uptimeS } = worker;
  return [
    [`Worker ${slot}`, el('span.muted.pid', `pid ${pid}`)],
    isHere ? pill(state === 'ready' ? 'good' : 'warn', state) : pill('plain', `was ${state}`),
    barred(connections, most, whole(connections)),
    whole(rooms),
    `${whole(lagMs)} ms`,
    bytes(memoryBytes),
    duration(uptimeS),
  ];
}
