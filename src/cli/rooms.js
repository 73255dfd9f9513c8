// rooms.js: `fanfare rooms`: the rooms that have connections, on all servers.

import { callApi, query } from './api.js';
import { numberIn, textOption } from './options.js';

/** @import { Command } from './command.js' */
/** @import { Column } from './output.js' */

const MOST = 1000;
const ROOMS = /** @type {const} */ ({
  rooms: [{ room: 'string', connections: 'number' }],
  'partial?': 'boolean',
});

/** @typedef {{room: string, connections: number}} Row */

/** @type {Command} */
export const command = {
  usage: `rooms [options]

Lists the rooms that have connections, in the order of their names. Needs an API key with the right
rooms.

  --prefix TEXT      only rooms whose names begin so
  --after ROOM       only rooms after this one: the next page
  --limit N          the most rooms, 1 to 1,000; 1,000 if absent
`,
  names: [],
  options: {
    prefix: { type: 'string' },
    after: { type: 'string' },
    limit: { type: 'string' },
  },
  async run(context) {
    const { values, output } = context;
    const limit = numberIn(values, 'limit', 1, MOST) ?? MOST;
    const prefix = textOption(values, 'prefix');
    const after = textOption(values, 'after');
    const path = `/rooms${query({ limit, prefix, after })}`;
    const { rooms, partial } = await callApi(context, path, ROOMS);
    output.list(
      /** @type {Column<Row>[]} */ ([
        { title: 'room', of: ({ room }) => room },
        { title: 'connections', of: ({ connections }) => connections },
      ]),
      rooms,
    );
    if (partial) output.note('A worker has not answered: rooms or connections may be missing.');
    if (rooms.length === 0) output.note('No room has connections.');
    else if (rooms.length === limit)
      output.note(`There may be more: --after ${rooms[rooms.length - 1].room}`);
  },
};
