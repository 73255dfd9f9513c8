#!/usr/bin/env node
// dial.js: opens connections at once and counts the answers to their handshakes. It runs in another
// network namespace or process, too.
//
//   node dial.js URL COUNT [none | random | IP]
//
// The last argument forges X-Forwarded-For: a new address each time, or that one. Prints one line
// of JSON, {"101": 100, "429": 200}, then holds the admitted connections until its stdin ends. It
// answers a line of stdin with the number that is still open.

import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { each, HandshakeError, WsClient } from '../harness/ws-client.js';

const CONCURRENCY = 300;

/**
 * @param {string} url
 * @param {number} count
 * @param {string} forged
 * @returns {Promise<{clients: WsClient[], answers: Record<string, number>}>} those admitted, and
 *   how many got which status
 */
export async function dial(url, count, forged = 'none') {
  /** @type {WsClient[]} */
  const clients = [];
  /** @type {Record<string, number>} */
  const answers = {};
  await each(count, CONCURRENCY, async (i) => {
    const address = forged === 'random' ? `203.0.${(i >> 8) & 255}.${i & 255}` : forged;
    const client = new WsClient(url, {
      headers: forged === 'none' ? {} : { 'X-Forwarded-For': address },
    });
    let status = '101';
    try {
      clients.push(await client.open());
    } catch (error) {
      status =
        error instanceof HandshakeError
          ? String(error.status)
          : /** @type {Error} */ (error).message;
    }
    answers[status] = (answers[status] ?? 0) + 1;
  });
  return { clients, answers };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { clients, answers } = await dial(
    process.argv[2],
    Number(process.argv[3]),
    process.argv[4],
  );
  process.stdout.write(`${JSON.stringify(answers)}\n`);
  for await (const _line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${clients.filter((client) => client.isOpen).length}\n`);
  }
  process.exit(0);
}
