// servers.js: `fanfare servers`: all workers of all servers.

import { callApi } from './api.js';
import { ageOf } from './connections.js';

/** @import { Command } from './command.js' */
/** @import { Column } from './output.js' */

const WORKER = /** @type {const} */ ({
  worker: 'number',
  state: 'string',
  connections: 'number',
  rooms: 'number',
  loopLagMs: 'number',
  memoryBytes: 'number',
  uptimeSeconds: 'number',
});
const SERVERS = /** @type {const} */ ({
  servers: [{ server: 'string', version: 'string', workers: [WORKER] }],
  partial: 'boolean',
});
const MIB = 1_048_576;

/**
 * @typedef {{server: string, version: string, worker: number, state: string, connections: number,
 *   rooms: number, loopLagMs: number, memoryBytes: number, uptimeSeconds: number}} Row
 */

/** @type {Command} */
export const command = {
  usage: `servers [options]

Lists the workers of all servers, with their state and load. Needs an API key with the right console.
`,
  names: [],
  options: {},
  async run(context) {
    const { servers, partial } = await callApi(context, '/servers', SERVERS);
    const rows = servers.flatMap((/** @type {any} */ { server, version, workers }) =>
      workers.map((/** @type {object} */ worker) => ({ server, version, ...worker })),
    );
    context.output.list(
      /** @type {Column<Row>[]} */ ([
        { title: 'server', of: ({ server }) => server },
        { title: 'worker', of: ({ worker }) => worker },
        { title: 'state', of: ({ state }) => state },
        { title: 'connections', of: ({ connections }) => connections },
        { title: 'rooms', of: ({ rooms }) => rooms },
        { title: 'loop lag', of: ({ loopLagMs }) => `${loopLagMs} ms` },
        { title: 'memory', of: ({ memoryBytes }) => `${Math.round(memoryBytes / MIB)} MiB` },
        { title: 'up for', of: ({ uptimeSeconds }) => ageOf(uptimeSeconds * 1000) },
        { title: 'version', of: ({ version }) => version },
      ]),
      rows,
    );
    if (partial) context.output.note('A worker has not answered: it is missing here.');
  },
};
