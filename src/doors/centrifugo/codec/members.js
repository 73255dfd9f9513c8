// members.js: the users of a channel, as `presence` shows them.
//
// Our presence counts users, and Centrifugo's counts connections. So a user is one entry, under an
// id that no connection has. A connection without a user is its own entry.

import { isUtf8 } from 'node:buffer';
import { scanMembers, skipPayload, skipSpace } from '../../../protocol/json-scan.js';

/** @import { ClientInfo } from './messages.js' */

/** @param {string} user */
export function keyOf(user) {
  return `u:${user}`;
}

/** @param {readonly Buffer[]} members of presence @returns {Map<string, ClientInfo>} by client */
export function membersOf(members) {
  /** @type {Map<string, ClientInfo>} */
  const clients = new Map();
  for (const member of members) {
    const info = readMember(member);
    if (info !== null) clients.set(/** @type {string} */ (info.client), info);
  }
  return clients;
}

/** The end of a member without a user. The quotes of an `info` are escaped, or a brace follows. */
const CLIENT_END = /,"client":"[0-9a-f-]{36}"\}$/;
const CLIENT_END_BYTES = 49;

/**
 * Clients without a user are one user together, as in Centrifugo.
 * @param {{count: number, members: readonly Buffer[]|null}} read `members` null: too many for a
 *   list, so each counts as a user
 */
export function statsOf({ count, members }) {
  // Not parsed: a request for the numbers must not cost as much as one for the list.
  const clients = (members ?? []).filter((member) =>
    CLIENT_END.test(member.toString('latin1', Math.max(0, member.length - CLIENT_END_BYTES))),
  );
  return { num_clients: count, num_users: count - Math.max(0, clients.length - 1) };
}

/** @param {Buffer} member @returns {ClientInfo|null} null: malformed, by another program */
export function readMember(member) {
  if (!isUtf8(member)) return null;
  let user = '';
  let client = '';
  /** @type {Buffer|null} */
  let info = null;
  const end = scanMembers(member, skipSpace(member, 0), (name, start) => {
    const valueEnd = skipPayload(member, start);
    if (valueEnd < 0) return -1;
    const value = member.subarray(start, valueEnd);
    if (name === 'user') user = textOf(value);
    else if (name === 'client') client = textOf(value);
    else if (name === 'info') info = value;
    return valueEnd;
  });
  if (end !== member.length || (user === '' && client === '')) return null;
  if (client !== '') return { user: '', client, conn_info: info };
  return { user, client: keyOf(user), conn_info: info };
}

/** @param {Buffer} json @returns {string} '' if it is no string */
function textOf(json) {
  const value = JSON.parse(json.toString());
  return typeof value === 'string' ? value : '';
}
