// servers.js: all servers of the fleet, with their workers.

import { act } from './api.js';
import { textOf } from './dialog.js';
import { bar, empty, fill, h, pageHead, pill } from './dom.js';
import { bytes, duration, plural, whole } from './format.js';

const REFRESH_MS = 3000;

/**
 * @typedef {{server: string, version: string, slot: number, pid: number, state: string, connections: number, rooms: number, lagMs: number, memoryBytes: number, uptimeS: number}}
 *   WorkerInfo
 */

/**
 * @param {import('./view.js').App} app
 * @returns {import('./view.js').View}
 */
export function serversView(app) {
  const result = h('div', { class: 'result' });
  const load = async () => {
    try {
      const { workers, partial } = await act('workers');
      fill(
        result,
        partial &&
          h(
            'p',
            { class: 'warning' },
            'A worker has not answered: it may be busy, starting, or of an older version.',
          ),
        [...groups(workers)].map(([server, members]) => serverCard(app, server, members)),
      );
    } catch (error) {
      fill(result, empty('alert', 'The servers cannot be listed', textOf(error)));
    }
  };
  load();
  const timer = setInterval(load, REFRESH_MS);
  return {
    element: h(
      'div',
      null,
      pageHead(
        'Servers',
        null,
        app.session.broker === 'redis'
          ? 'All servers on the same Redis, with their workers.'
          : 'This server is alone: it uses the embedded broker.',
      ),
      result,
    ),
    title: 'Servers',
    close: () => clearInterval(timer),
  };
}

/** @param {WorkerInfo[]} workers */
function groups(workers) {
  /** @type {Map<string, WorkerInfo[]>} */
  const byServer = new Map();
  const sorted = [...workers].sort(
    (one, other) => one.server.localeCompare(other.server) || one.slot - other.slot,
  );
  for (const one of sorted) byServer.set(one.server, [...(byServer.get(one.server) ?? []), one]);
  return byServer;
}

/**
 * @param {import('./view.js').App} app
 * @param {string} server
 * @param {WorkerInfo[]} workers
 */
function serverCard(app, server, workers) {
  const connections = workers.reduce((sum, one) => sum + one.connections, 0);
  const most = Math.max(1, ...workers.map((one) => one.connections));
  const versions = [...new Set(workers.map(({ version }) => version))];
  return h(
    'section',
    { class: 'card table-card' },
    h(
      'header',
      { class: 'card-head' },
      h('h2', null, server),
      server === app.session.server && pill('plain', 'this server'),
      h(
        'p',
        { class: 'muted' },
        `${plural(connections, 'connection')} · ${plural(workers.length, 'worker')} · Fanfare ${versions.join(', ')}`,
      ),
    ),
    h(
      'table',
      null,
      h('caption', { class: 'visually-hidden' }, `Workers of ${server}`),
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          h('th', { scope: 'col' }, 'Worker'),
          h('th', { scope: 'col' }, 'State'),
          ['Connections', 'Rooms', 'Loop lag', 'Memory', 'Up'].map((title) =>
            h('th', { scope: 'col', class: 'number' }, title),
          ),
        ),
      ),
      h(
        'tbody',
        null,
        workers.map((one) => workerRow(one, most)),
      ),
    ),
  );
}

/**
 * @param {WorkerInfo} worker
 * @param {number} most connections of a worker of this server
 */
function workerRow({ slot, pid, state, connections, rooms, lagMs, memoryBytes, uptimeS }, most) {
  return h(
    'tr',
    null,
    h('th', { scope: 'row' }, `Worker ${slot}`, h('span', { class: 'muted pid' }, `pid ${pid}`)),
    h('td', null, pill(state === 'ready' ? 'good' : 'warn', state)),
    h('td', { class: 'number' }, bar(connections, most), whole(connections)),
    h('td', { class: 'number' }, whole(rooms)),
    h('td', { class: 'number' }, `${whole(lagMs)} ms`),
    h('td', { class: 'number' }, bytes(memoryBytes)),
    h('td', { class: 'number' }, duration(uptimeS)),
  );
}
