// storm.test.js: thousands of clients of one room return at once, and each rejoins with `since`.

import assert from 'node:assert/strict';
import { setPriority } from 'node:os';
import { test } from 'node:test';
import { startTrial } from '../checker/trial.js';
import { pause } from '../harness/run.js';
import { until } from '../harness/server.js';
import { closeAll, openMany, WsClient } from '../harness/ws-client.js';

const CLIENTS = 5000;
const SERVERS = 2;
const WORKERS = 2;
const ROOM = 'h.0';
const MISSED = 50;
const MAX_LAG_MS = 200;
const WITHIN_MS = 60_000;
/** Of all the processes here the last to run. */
const CLIENT_PRIORITY = 19;

/**
 * A returning client and the reply to its join. It is light, because thousands of them must leave
 * the processors to the servers.
 */
class Returning {
  /**
   * @param {string} url
   * @param {string} join its first words
   * @param {number} since
   */
  constructor(url, join, since) {
    this.join = join;
    this.recovered = false;
    /** The last offset that followed the one before. */
    this.last = since;
    this.client = new WsClient(url, { onText: (text) => this.#receive(JSON.parse(text)) });
  }

  async come() {
    await this.client.open(WITHIN_MS);
    this.client.send(this.join);
  }

  /** @param {Record<string, any>} message */
  #receive({ type, recovered, offset }) {
    if (type === 'joined') this.recovered = recovered;
    else if (type === 'message' && this.recovered && offset === this.last + 1) this.last = offset;
  }
}

test(`${CLIENTS} clients of a room that return at once all recover, from one read per worker`, {
  timeout: 180_000,
}, async (t) => {
  // In a real storm clients are on other machines, so these run at a lower priority than the
  // servers.
  setPriority(CLIENT_PRIORITY);
  const load = {
    clients: 0,
    rooms: 1,
    hasHistory: true,
    roomsPerClient: 1,
    publishers: 1,
    rate: 0,
  };
  const { servers, workload } = await startTrial(t, { servers: SERVERS, workers: WORKERS, load });
  const [publisher] = workload.publishers;
  publisher.start();
  /**
   * @param {string} name
   * @returns {Promise<number[]>} of each server
   */
  const metric = (name) =>
    Promise.all(servers.map(async (server) => (await server.metrics()).get(name) ?? Number.NaN));
  const reads = async () =>
    (await metric('fanfare_history_reads_total')).reduce((sum, n) => sum + n, 0);

  const before = await openMany(CLIENTS, (i) => new WsClient(servers[i % SERVERS].url));
  const replies = await Promise.all(
    before.map((client) => client.request({ type: 'join', room: ROOM })),
  );
  const { epoch, offset } = replies[0];
  await closeAll(before);
  // Long enough for the workers to give the room up, so returning clients find nothing in memory.
  await until(async () => (await metric('fanfare_rooms')).every((rooms) => rooms === 0));
  await pause(1000);
  await workload.send(publisher, ROOM, MISSED);
  const readsBefore = await reads();
  // The worst since the scrape before, or of the last ten seconds.
  const worstLagMs = async () =>
    1000 * Math.max(...(await metric('fanfare_event_loop_lag_seconds')));
  await until(async () => (await worstLagMs()) < 50, 30_000, 'quiet');

  const join = JSON.stringify({ type: 'join', room: ROOM, since: { epoch, offset } });
  const returning = Array.from(
    { length: CLIENTS },
    (_, i) => new Returning(servers[i % SERVERS].url, join, offset),
  );
  t.after(() => closeAll(returning.map(({ client }) => client)));
  const started = performance.now();
  await Promise.all(returning.map((one) => one.come()));
  await until(
    () => returning.every(({ last }) => last === offset + MISSED),
    WITHIN_MS,
    'all that was missed',
  ).catch(() => {});
  const tookMs = performance.now() - started;
  const lagMs = await worstLagMs();
  const readsOfStorm = (await reads()) - readsBefore;

  const recovered = returning.filter((one) => one.recovered && one.last === offset + MISSED).length;
  t.diagnostic(
    `${recovered} recovered in ${Math.round(tookMs)} ms: ${readsOfStorm} reads, lag ${Math.round(lagMs)} ms`,
  );
  assert.equal(recovered, CLIENTS);
  assert.ok(readsOfStorm >= 1 && readsOfStorm <= SERVERS * WORKERS, `${readsOfStorm} reads`);
  assert.ok(lagMs < MAX_LAG_MS, `${lagMs} ms`);
});
