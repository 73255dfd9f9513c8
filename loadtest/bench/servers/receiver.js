// receiver.js: an endpoint for webhooks.js. Forked by it.
//
//   up      listens -> its port        down    refuses connections
//   report  -> requests so far, age of events, gaps, and who is where by the events it has got
//
// It verifies each signature, answers after a delay, and keeps the highest sequence for each room
// and user, as docs/webhooks.md advises.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { Webhook } from 'standardwebhooks';
import { Latency } from '../../../test/harness/latency.js';
import { answerParent } from '../webhooks-child.js';

/** @typedef {{epoch: number, sequence: number, isIn: boolean}} Known */

/** Members by room and user, rooms by name. @type {Map<string, Known>} */
const known = new Map();
/** @type {import('node:http').Server|null} */
let server = null;
/** @type {Webhook} */
let webhook;
let delayMs = 0;
let port = 0;
let requests = 0;
let stale = 0;
/** @type {number[]} */
const gaps = [];
let ages = new Latency();

answerParent({
  /** @param {{secret: string, delay: number}} wanted */
  async up({ secret, delay }) {
    webhook = new Webhook(secret);
    delayMs = delay;
    server = createServer(receive).listen(port, '127.0.0.1');
    await once(server, 'listening');
    ({ port } = /** @type {import('node:net').AddressInfo} */ (server.address()));
    return { port };
  },

  async down() {
    server?.closeAllConnections();
    await new Promise((resolve) => server?.close(resolve));
    return {};
  },

  async report() {
    const here = [...known].filter(([, { isIn }]) => isIn).map(([key]) => key.split(' '));
    const members = here.filter(([kind]) => kind === 'member').map(([, ...one]) => one.join(' '));
    const occupied = here.filter(([kind]) => kind === 'room').map(([, room]) => room);
    const [p50Ms, p99Ms] = [50, 99].map((percent) => ages.percentile(percent));
    ages = new Latency();
    return { requests, stale, gaps, members, occupied, p50Ms, p99Ms };
  },
});

/**
 * @param {import('node:http').IncomingMessage} request
 * @param {import('node:http').ServerResponse} response
 */
async function receive(request, response) {
  let text = '';
  for await (const part of request.setEncoding('utf8')) text += part;
  const headers = /** @type {Record<string, string>} */ (request.headers);
  const { type, timestamp, data } = /** @type {any} */ (webhook.verify(text, headers));
  requests++;
  ages.add(Date.now() - Date.parse(timestamp));
  if (type === 'webhook.gap') gaps.push(data.dropped);
  else {
    const { room, user, sequence } = data;
    const key = user === undefined ? `room ${room}` : `member ${room} ${user}`;
    const epoch = Number(data.epoch);
    const last = known.get(key);
    if (last && (last.epoch > epoch || (last.epoch === epoch && last.sequence >= sequence)))
      stale++;
    else known.set(key, { epoch, sequence, isIn: /joined|occupied/.test(type) });
  }
  if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
  response.writeHead(204).end();
}
