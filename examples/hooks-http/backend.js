// backend.js: answers the hooks of Fanfare, with nothing but Node.

import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

const { FANFARE_HOOKS_SECRET: secret = '', PORT: port = '8000' } = process.env;
const key = Buffer.from(secret.slice('whsec_'.length), 'base64');

/** Stands for your database. */
const sessions = new Map([
  ['s1', { user: 'ann', name: 'Ann', teams: ['team.1'] }],
  ['s2', { user: 'bob', name: 'Bob', teams: [] }],
]);

/** Each gets the question, and returns the answer. @type {Record<string, (asked: any) => unknown>} */
const hooks = {
  onConnect({ request }) {
    const [, id] = /(?:^|; )session=(\w+)/.exec(request.headers.cookie ?? '') ?? [];
    const session = sessions.get(id);
    if (!session) return { deny: 'Please log in.' };
    const { user, name, teams } = session;
    return { user, info: { name }, data: { teams } };
  },
  onJoin: ({ connection, room }) => mayUse(connection, room),
  onPublish({ connection, room, payload }) {
    if (room === '*' || !mayUse(connection, room)) return false;
    if (typeof payload?.text !== 'string') return { deny: 'A message has a text.' };
    return { payload: { text: payload.text.slice(0, 500), by: connection.info.name } };
  },
  onDisconnect: () => true,
};

/** @param {{data: {teams: string[]}}} connection @param {string} room */
function mayUse({ data }, room) {
  return !room.startsWith('team.') || data.teams.includes(room);
}

/**
 * Standard Webhooks: HMAC-SHA256 of the id, the time and the raw body.
 * @param {any} headers @param {string} body
 */
function isSigned(headers, body) {
  const { 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': given = '' } = headers;
  if (!(Math.abs(Date.now() / 1000 - time) < 300)) return false;
  const expected = createHmac('sha256', key).update(`${id}.${time}.${body}`).digest();
  return given.split(' ').some((/** @type {string} */ one) => {
    const signature = Buffer.from(one.replace('v1,', ''), 'base64');
    return signature.length === expected.length && timingSafeEqual(signature, expected);
  });
}

createServer(async (request, response) => {
  const body = await text(request);
  if (!isSigned(request.headers, body)) return response.writeHead(401).end();
  const question = JSON.parse(body);
  const answer = hooks[question.hook](question);
  if (question.hook === 'onJoin') response.setHeader('fanfare-cache-seconds', '10');
  response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
}).listen(Number(port), '127.0.0.1', () => console.log(`listening on ${port}`));
