// webhook-truth.js: reads the users of each room from the HTTP API, as docs/webhooks.md asks for after
// a gap.

import { each } from '../harness/ws-client.js';
import { apiOf } from '../helpers/api.js';

const MAX_ROOMS = 1000;
const MAX_USERS = 1000;
/** Requests. */
const AT_ONCE = 10;

/**
 * @param {object} parts
 * @param {number} parts.port of a server
 * @param {string} parts.secret of an API key
 * @param {readonly string[]} parts.prefixes of the rooms with presence
 * @param {readonly string[]} [parts.rooms] with presence that may be empty
 * @param {readonly string[]} [parts.users] that may be online
 * @returns {Promise<import('./webhook-model.js').Truth>} rejects if the API does not answer, or with
 *   a part only
 */
export async function readTruth({ port, secret, prefixes, rooms = [], users = [] }) {
  const api = apiOf({ port }, secret);
  const ask = async (/** @type {string} */ path, /** @type {object} */ request = {}) => {
    const { status, body } = await api(path, request);
    if (status !== 200 || body.partial) throw new Error(`${path}: ${status} ${body?.error}`);
    return body;
  };
  const listed = (await ask(`/rooms?limit=${MAX_ROOMS}`)).rooms;
  /** @type {string[]} */
  const occupied = listed.map((/** @type {{room: string}} */ { room }) => room);
  const withPresence = occupied.filter((room) => prefixes.some((one) => room.startsWith(one)));
  const names = [...new Set([...withPresence, ...rooms])];
  /** @type {string[]} */
  const members = [];
  await each(names.length, AT_ONCE, async (i) => {
    const room = names[i];
    const answer = await ask(`/rooms/${encodeURIComponent(room)}/presence`);
    if (answer.more) throw new Error(`${room} has more than a page of users`);
    for (const { user } of answer.members) members.push(`${room} ${user}`);
  });
  const online =
    users.length === 0
      ? []
      : (await ask('/presence', { body: { users: users.slice(0, MAX_USERS) } })).online;
  return { rooms: occupied, members, users: online };
}
