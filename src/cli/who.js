// who.js: `fanfare who`: the users of a room; its connections if the room has no presence.

import { callApi, path } from './api.js';
import { watch, withClient } from './client.js';
import { EXIT, Failure } from './failure.js';

/** @import { Fanfare } from '../client/node.js' */
/** @import { Command, Context } from './command.js' */
/** @import { Column, Output } from './output.js' */

const MOST = 1000;

/** @typedef {{user: string, info?: unknown}} Member */
/**
 * A row of `GET /api/connections`, as far as it is shown.
 * @typedef {{id: string, user?: string, address?: string, server?: string, worker?: number,
 *   transport: string, connectedAt?: number, unsentBytes?: number, refusedMessages?: number}} Seen
 */

/** @type {Command} */
export const command = {
  usage: `who ROOM [options]

Lists the users of a room. If the room has no presence, it lists the connections instead, up to
1,000. Needs an API key with the right presence, or a token that may join the room and read its
presence. Exits with 1 if nobody is in the room.

  --connections      list connections, also if the room has presence (needs an API key)
`,
  names: ['ROOM'],
  options: { connections: { type: 'boolean' } },
  async run(context) {
    const { args, values, target } = context;
    const [room] = args;
    let found = 0;
    if (target.apiKey === '' && !values.connections)
      await withClient(context, async (client, ended) => {
        found = await membersByClient(context, client, ended);
      });
    else {
      const members = values.connections ? null : await membersOf(context);
      found = members ?? (await connectionsOf(context));
    }
    if (found === 0) throw new Failure(EXIT.failed, `nobody is in ${room}`);
  },
};

/** @param {Context} context @returns {Promise<number|null>} null: the room has no presence */
async function membersOf(context) {
  const presence = path`/rooms/${context.args[0]}/presence?limit=${String(MOST)}`;
  try {
    return await list(context.output, (after) =>
      callApi(context, after === undefined ? presence : presence + path`&after=${after}`),
    );
  } catch (error) {
    if (error instanceof Failure && error.code === 'NO_PRESENCE') return null;
    throw error;
  }
}

/** @param {Context} context @param {Fanfare} client @param {Promise<never>} ended */
async function membersByClient({ args, output }, client, ended) {
  const [name] = args;
  const { room, refused } = watch(client, name);
  const joined = new Promise((resolve) => room.on('joined', resolve));
  await Promise.race([joined, refused, ended]);
  return list(output, (after) =>
    client.request({ type: 'presence', room: name, limit: MOST, after }),
  );
}

/**
 * Shows the members, page by page.
 * @param {Output} output
 * @param {(after: string|undefined) => Promise<Record<string, any>>} read a page, after a user
 * @returns {Promise<number>} how many there are
 */
async function list(output, read) {
  let after;
  for (let total = 0; ; ) {
    const { count, members, more } = await read(after);
    if (members === undefined) {
      output.note(`${count} users: too many to list`);
      return count;
    }
    show(output, members);
    total += members.length;
    if (!more || members.length === 0) return total;
    after = members.at(-1).user;
  }
}

/** @param {Output} output @param {readonly Member[]} members */
function show(output, members) {
  const columns = /** @type {Column<Member>[]} */ ([
    { title: 'user', of: ({ user }) => user },
    { title: 'info', of: ({ info }) => (info === undefined ? undefined : JSON.stringify(info)) },
  ]);
  const hasInfo = members.some(({ info }) => info !== undefined);
  output.list(hasInfo ? columns : columns.slice(0, 1), members);
}

/** @param {Context} context */
async function connectionsOf(context) {
  const { args, output } = context;
  const query = path`/connections?room=${args[0]}&limit=${String(MOST)}`;
  const { count, connections, partial } = await callApi(context, query);
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
  if (partial) output.note('A worker has not answered: connections may be missing.');
  if (count > connections.length)
    output.note(`These are ${connections.length} of ${count} connections.`);
  return count;
}

/** @param {number} ms */
function ageOf(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} d`;
}
