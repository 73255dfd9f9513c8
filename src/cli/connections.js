// connections.js: `fanfare connections`: the connections of a user, a room or an address.

import { callApi, path, query } from './api.js';
import { EXIT, Failure } from './failure.js';
import { exactlyOne, numberIn } from './options.js';

/** @import { Command, Context } from './command.js' */
/** @import { Column } from './output.js' */

const MOST = 1000;

/**
 * A row of `GET /api/connections`, as far as it is shown.
 * @typedef {{id: string, user?: string, address?: string, server?: string, worker?: number,
 *   transport: string, connectedAt?: number, unsentBytes?: number, refusedMessages?: number}} Seen
 */

const SEEN = /** @type {const} */ ({
  id: 'string',
  'user?': 'string',
  'address?': 'string',
  'server?': 'string',
  'worker?': 'number',
  transport: 'string',
  'connectedAt?': 'number',
  'unsentBytes?': 'number',
  'refusedMessages?': 'number',
});

/** @type {Command} */
export const command = {
  usage: `connections --user NAME | --room ROOM | --address ADDRESS | --id ID [options]

Lists the connections of a user, a room or an address, or one connection by its id, on all servers.
Needs an API key with the right presence. Exits with 1 if there is none.

  --user NAME        of this user
  --room ROOM        in this room
  --address ADDRESS  from this address: IPv4, or any address of an IPv6 /64
  --id ID            the connection with this id, as \`welcome\` and the log have it
  --limit N          the most connections, 1 to 1,000; 1,000 if absent
`,
  names: [],
  options: {
    user: { type: 'string' },
    room: { type: 'string' },
    address: { type: 'string' },
    id: { type: 'string' },
    limit: { type: 'string' },
  },
  async run(context) {
    const { values } = context;
    const [by, name] = exactlyOne(values, ['user', 'room', 'address', 'id']);
    const limit = numberIn(values, 'limit', 1, MOST) ?? MOST;
    if (by === 'id') {
      const one = await callApi(context, path`/connections/${name}`, SEEN);
      return show(context, [/** @type {Seen} */ (one)]);
    }
    const count = await listConnections(context, { [by]: name, limit });
    if (count === 0) throw new Failure(EXIT.failed, `no connection of ${by} ${name}`);
  },
};

/**
 * @param {Context} context @param {Record<string, string|number>} of the query
 * @returns {Promise<number>} how many there are
 */
export async function listConnections(context, of) {
  const shape = /** @type {const} */ ({
    count: 'number',
    connections: [SEEN],
    'partial?': 'boolean',
  });
  const found = await callApi(context, `/connections${query(of)}`, shape);
  const { count, connections, partial } = found;
  show(context, connections);
  if (partial) context.output.note('A worker has not answered: connections may be missing.');
  if (count > connections.length)
    context.output.note(`These are ${connections.length} of ${count} connections.`);
  return count;
}

/** @param {Context} context @param {readonly Seen[]} connections */
function show({ output }, connections) {
  const nowMs = Date.now();
  output.list(
    /** @type {Column<Seen>[]} */ ([
      { title: 'connection', of: ({ id }) => id },
      { title: 'user', of: ({ user }) => user },
      { title: 'address', of: ({ address }) => address },
      { title: 'server', of: ({ server }) => server },
      { title: 'worker', of: ({ worker }) => worker },
      { title: 'transport', of: ({ transport }) => transport },
      { title: 'open for', of: ({ connectedAt = nowMs }) => ageOf(nowMs - connectedAt) },
      { title: 'unsent', of: ({ unsentBytes }) => unsentBytes },
      { title: 'refused', of: ({ refusedMessages }) => refusedMessages },
    ]),
    connections,
  );
}

/** @param {number} ms */
export function ageOf(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} d`;
}
