// profiles.js: the protocol of a server: a message that comes back to its sender, and one that goes
// to all.
//
// The swarm recognises a reply or a delivery by the mark in its payload, at any place in a message,
// so a profile does not describe the form of messages.

import { readFileSync } from 'node:fs';

/**
 * @typedef {object} Profile
 * @property {string} name
 * @property {{before: string, after: string}|null} echo what stands around a payload, a JSON
 *   string, that its sender alone gets back; null: the server can't
 * @property {{before: string, after: string, result: string|null}|null} broadcast the same for one
 *   that every connection gets, its sender too; `result`: text by which to tell the answer that
 *   follows to the sender, where there is one
 * @property {{send: string, ping: string, pong: string}|null} [opening] what a connection sends
 *   first, and how it answers a ping
 */

/** @type {readonly Profile[]} */
const PROFILES = Object.freeze([
  {
    name: 'fanfare',
    echo: { before: '{"type":"echo","payload":', after: '}' },
    broadcast: {
      before: '{"type":"broadcast","payload":',
      after: '}',
      result: '"broadcastResult"',
    },
  },
  { name: 'echo', echo: { before: '', after: '' }, broadcast: null },
  { name: 'chat', echo: null, broadcast: { before: '', after: '', result: null } },
  // Pusher's protocol sends no message back: connections only.
  { name: 'pusher', echo: null, broadcast: null },
  // Nor does Centrifugo's, and several of its messages may come in one frame: connections only.
  {
    name: 'centrifugo',
    echo: null,
    broadcast: null,
    opening: { send: '{"id":1,"connect":{}}', ping: '{}', pong: '{}' },
  },
]);

/**
 * @param {string} nameOrFile
 * @returns {Profile}
 * @throws {Error} where there is none of that name, or the file is no profile
 */
export function profileOf(nameOrFile) {
  const known = PROFILES.find(({ name }) => name === nameOrFile);
  if (known) return known;
  if (!nameOrFile.endsWith('.json'))
    throw new Error(
      `--profile is ${PROFILES.map(({ name }) => name).join(', ')} or a file.json, not ${nameOrFile}`,
    );
  /** @type {any} */
  let value;
  try {
    value = JSON.parse(readFileSync(nameOrFile, 'utf8'));
  } catch (error) {
    throw new Error(`--profile: ${/** @type {Error} */ (error).message}`);
  }
  const { echo = null, broadcast = null } = value ?? {};
  for (const [name, part] of Object.entries({ echo, broadcast })) {
    if (part !== null && (typeof part.before !== 'string' || typeof part.after !== 'string'))
      throw new Error(
        `--profile: ${nameOrFile}: ${name} is null or has "before" and "after", both strings`,
      );
  }
  return {
    name: nameOrFile,
    echo,
    broadcast: broadcast && { ...broadcast, result: broadcast.result ?? null },
  };
}
