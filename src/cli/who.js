// who.js: `fanfare who`: the users of a room; its connections if the room has no presence.

import { callApi, path, query } from './api.js';
import { ask, watch, withClient } from './client.js';
import { listConnections } from './connections.js';
import { EXIT, Failure } from './failure.js';

/** @import { Fanfare } from '../client/node.js' */
/** @import { Command, Context } from './command.js' */
/** @import { Column, Output } from './output.js' */

const MOST = 1000;
/** `members` is absent if the room is too large for a list. */
const MEMBERS = /** @type {const} */ ({
  count: 'number',
  'members?': [{ user: 'string' }],
  'more?': 'boolean',
});

/** @typedef {{user: string, info?: unknown}} Member */

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
      found = members ?? (await listConnections(context, { room, limit: MOST }));
    }
    if (found === 0) throw new Failure(EXIT.failed, `nobody is in ${room}`);
  },
};

/** @param {Context} context @returns {Promise<number|null>} null: the room has no presence */
async function membersOf(context) {
  const presence = path`/rooms/${context.args[0]}/presence`;
  try {
    return await printUsers(context.output, (after) =>
      callApi(context, presence + query({ limit: MOST, after }), MEMBERS),
    );
  } catch (error) {
    if (error instanceof Failure && error.code === 'NO_PRESENCE') return null;
    throw error;
  }
}

/** @param {Context} context @param {Fanfare} client @param {Promise<never>} ended */
async function membersByClient(context, client, ended) {
  const [name] = context.args;
  const { room, refused } = watch(client, name);
  const joined = new Promise((resolve) => room.on('joined', resolve));
  await Promise.race([joined, refused, ended]);
  return printUsers(context.output, (after) =>
    ask(context, client, { type: 'presence', room: name, limit: MOST, after }, MEMBERS),
  );
}

/**
 * Shows the members, page by page.
 * @param {Output} output
 * @param {(after: string|undefined) => Promise<Record<string, any>>} read a page, after a user
 * @returns {Promise<number>} how many there are
 */
async function printUsers(output, read) {
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
