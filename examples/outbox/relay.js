// relay.js: publishes the rows of the table `outbox` to Fanfare, and deletes them.
//
//   DATABASE_URL=postgres://… FANFARE_URL=http://localhost:3000 API_KEY=… node relay.js
//
// Run two of it on different machines. A relay takes a shard that no other one has, publishes its
// oldest rows in one request, and deletes what was accepted, all in one transaction. If it dies in
// between, the rows are still there, and another relay publishes them again with the same keys: rooms
// get each row once.

import { setTimeout as pause } from 'node:timers/promises';
import { createServer, FanfareApiError } from 'fanfare/server';
import pg from 'pg';

const { DATABASE_URL, FANFARE_URL = 'http://localhost:3000', API_KEY } = process.env;
/** Rows of a request. A body has at most 1 MiB. */
const BATCH = 100;
/** A notification may be lost, for example while the database restarts. */
const POLL_MS = 5000;
/** Fanfare remembers a key in its room for five minutes. Other backends have other keys. */
const KEY = 'outbox';
/** Errors of one message, which would be refused again. After others, rows have to wait. */
const OF_MESSAGE =
  /^(INVALID_(FIELD|JSON)|(PAYLOAD|BODY)_TOO_LARGE|IDEMPOTENCY_CONFLICT|STATE_FULL)$/;

const TAKE_SHARD = `
  SELECT shard FROM outbox_shard
  WHERE EXISTS (SELECT FROM outbox WHERE outbox.shard = outbox_shard.shard AND error IS NULL)
  ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED`;
const READ = `
  SELECT id, room, payload FROM outbox
  WHERE shard = $1 AND error IS NULL ORDER BY id LIMIT ${BATCH}`;

/** @typedef {{id: string, room: string, payload: unknown}} Row */

const server = createServer({ url: FANFARE_URL, apiKey: API_KEY });
const db = new pg.Client({ connectionString: DATABASE_URL });
let wake = () => {};
db.on('notification', () => wake());
await db.connect();
await db.query('LISTEN outbox');
console.log('the relay is ready');

// If the database is gone, the program ends, and your supervisor starts it again.
for (;;) {
  // Before the rows are read, so that a notification meanwhile counts.
  const woken = new Promise((resolve) => {
    wake = () => resolve(undefined);
    setTimeout(resolve, POLL_MS);
  });
  while (await relayShard());
  await woken;
}

/** @returns {Promise<boolean>} was there a shard with work? */
async function relayShard() {
  await db.query('BEGIN');
  const [taken] = (await db.query(TAKE_SHARD)).rows;
  if (taken !== undefined) await relay((await db.query(READ, [taken.shard])).rows);
  await db.query('COMMIT');
  return taken !== undefined;
}

/** @param {Row[]} rows */
async function relay(rows) {
  const outcomes = await publish(rows);
  const sent = rows.filter((_row, i) => outcomes[i] === '').map(({ id }) => id);
  await db.query('DELETE FROM outbox WHERE id = ANY($1)', [sent]);
  for (const [i, { id }] of rows.entries())
    if (OF_MESSAGE.test(outcomes[i]))
      await db.query('UPDATE outbox SET error = $2 WHERE id = $1', [id, outcomes[i]]);
  // Fanfare is unavailable, or its key has changed.
  if (outcomes.some((code) => code !== '' && !OF_MESSAGE.test(code))) await pause(1000);
}

/** @param {Row[]} rows @returns {Promise<string[]>} for each row '' if it was accepted, or the error */
async function publish(rows) {
  const messages = rows.map(({ id, ...message }) => ({
    ...message,
    idempotencyKey: `${KEY}-${id}`,
  }));
  try {
    await server.publishMany(messages);
    return rows.map(() => '');
  } catch (error) {
    if (!(error instanceof FanfareApiError)) throw error;
    console.error(`${error.code}: ${error.message}`);
    if (error.results !== undefined) return error.results.map(({ error }) => error?.code ?? '');
    if (rows.length === 1 || !OF_MESSAGE.test(error.code)) return rows.map(() => error.code);
    // One message spoils the request: publish each by itself, in order, until one has to wait.
    /** @type {string[]} */
    const outcomes = [];
    for (const row of rows) {
      const last = outcomes.at(-1) ?? '';
      const mustWait = last !== '' && !OF_MESSAGE.test(last);
      outcomes.push(mustWait ? last : (await publish([row]))[0]);
    }
    return outcomes;
  }
}
