// servers.js: all servers of the fleet, with their workers.

import { barred, dataTable, el, h, pill } from './dom.js';
import { bytes, clock, duration, plural, whole } from './format.js';
import { polledView } from './polled-view.js';

/** @import { App, View } from './view.js' */

/** @import { Member, WorkerInfo } from './fleet.js' */

const COLUMNS = [
  { title: 'Worker' },
  { title: 'State' },
  { title: 'Connections', isNumber: true },
  { title: 'Rooms', isNumber: true },
  { title: 'Loop lag', isNumber: true },
  { title: 'Private memory', isNumber: true },
  { title: 'Up', isNumber: true },
];

/** @param {App} app @returns {View} */
export function serversView(app) {
  const about =
    app.session.broker === 'redis'
      ? 'All servers on the same Redis, with their workers.'
      : 'This server is alone: it uses the embedded broker.';
  return polledView(
    { title: 'Servers', about, fault: 'The servers cannot be listed', className: 'servers' },
    async () => {
      await app.fleet.load();
      const servers = app.fleet.servers();
      const workers = servers.flatMap((server) => (server.isGone ? [] : server.workers));
      const most = Math.max(1, ...workers.map((one) => one.connections));
      return [
        app.fleet.isPartial &&
          el(
            'p.warning',
            'A worker has not answered: it may be busy, starting, or of an older version.',
          ),
        ...servers.map((server) => serverCard(app, server, most)),
      ];
    },
  );
}

/** @param {App} app @param {Member} server @param {number} most of any worker */
function serverCard(app, { name, workers, seenMs, isGone }, most) {
  const connections = workers.reduce((sum, one) => sum + one.connections, 0);
  const versions = [...new Set(workers.map(({ version }) => version))];
  return h(
    'section',
    { class: `card table-card${isGone ? ' is-gone' : ''}` },
    el(
      'header.card-head',
      el('h2', name),
      name === app.session.server && pill('plain', 'this server'),
      isGone && pill('bad', `no answer, last seen ${clock(seenMs)}`),
      el(
        'p.muted',
        `${plural(connections, 'connection')} · ${plural(workers.length, 'worker')} · Fanfare ${versions.join(', ')}`,
      ),
    ),
    dataTable(
      `Workers of ${name}`,
      COLUMNS,
      workers.map((one) => workerRow(one, most)),
    ),
  );
}

/** @param {WorkerInfo} worker @param {number} most connections of a worker */
function workerRow({ slot, pid, state, connections, rooms, lagMs, memoryBytes, uptimeS }, most) {
  return [
    [`Worker ${slot}`, el('span.muted.pid', `pid ${pid}`)],
    pill(state === 'ready' ? 'good' : 'warn', state),
    barred(connections, most, whole(connections)),
    whole(rooms),
    `${whole(lagMs)} ms`,
    bytes(memoryBytes),
    duration(uptimeS),
  ];
}
