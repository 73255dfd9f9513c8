// balance-run.js: kills one of four workers under clients in rooms with history, and checks that the
// rebalance spreads the clients over all workers again and that no client misses a message.

import {
  connectionsPerWorker,
  NO_LIMITS,
  readiness,
  samples,
  scrape,
  startServer,
  until,
  urlOf,
} from '../harness/server.js';
import { WsClient } from '../harness/ws-client.js';
import { ReturningClients } from './returning-clients.js';

const WORKERS = 4;
const PUBLISH_INTERVAL_MS = 50;
const SKEW = 'fanfare_worker_skew_ratio';
const MOVED = 'fanfare_relocated_connections_total{cause="rebalance"}';
const ENDED = /^rebalance (done|interrupted|abandoned)$/;

/**
 * @param {import('./checks.js').Checks} test
 * @param {object} options
 * @param {number} options.count of clients
 * @param {number} options.ratePercent of a worker's connections that it closes in a second
 * @param {number} options.settleMs FANFARE_RECONNECT_WINDOW_MS
 * @param {number} options.withinMs from the kill to the end of the rebalance
 */
export async function checkBalance(test, { count, ratePercent, settleMs, withinMs }) {
  const server = await startServer(test, {
    ...NO_LIMITS,
    WORKERS: String(WORKERS),
    // The load is even at first, so the kill alone makes the skew.
    FANFARE_SCHEDULING: 'round-robin',
    FANFARE_HISTORY: 'room.*=10000/600s',
    FANFARE_RECONNECT_WINDOW_MS: String(settleMs),
    FANFARE_REBALANCE_SKEW_PERCENT: '120',
    FANFARE_REBALANCE_RATE_PERCENT: String(ratePercent),
  });
  const clients = new ReturningClients(urlOf(server), count);
  test.after(() => clients.stop());
  await clients.start();
  await until(() => clients.joined === count, 30_000, 'the joins of all clients');
  const publisher = new Publisher(urlOf(server), clients.rooms);
  test.after(() => publisher.stop());
  publisher.start();

  const killedMs = performance.now();
  process.kill(server.workerPids()[1], 'SIGKILL');
  await until(() => clients.closes.has(1006), 5000, 'the end of the killed worker');
  await until(() => clients.joined === count, 30_000, 'the return of its clients');
  await until(
    async () => (await readiness(server.metricsPort)).ready === WORKERS,
    10_000,
    'a replacement',
  );
  const skewed = await until(
    async () => {
      const { values } = await scrape(server.metricsPort);
      return (values.get(SKEW) ?? 0) > 1.2 ? values : undefined;
    },
    10_000,
    'a skew',
  );
  test.note('after the kill', describe(skewed));
  const { msg } = await server.line((line) => ENDED.test(line.msg), withinMs);
  const seconds = (performance.now() - killedMs) / 1000;
  test.check('the rebalance', 'rebalance done', msg);
  await until(() => clients.joined === count, 30_000, 'the return of all clients');
  const balanced = await until(
    async () => {
      const { text } = await scrape(server.metricsPort);
      const values = samples(text);
      return values.get('websocket_connections_total') === count + 1 ? values : undefined;
    },
    10_000,
    'all connections in the metrics',
  );
  const perWorker = [...connectionsPerWorker(balanced).values()];
  const skew = Math.max(...perWorker) / ((count + 1) / WORKERS);
  test.note('after the rebalance', describe(balanced));
  test.check(
    'seconds from the kill',
    `< ${withinMs / 1000}`,
    seconds.toFixed(1),
    seconds * 1000 < withinMs,
  );
  test.check('skew', '< 1.2', skew.toFixed(3), skew < 1.2);

  await publisher.stop();
  await until(() => clients.hasReached(publisher.offsets), 10_000, 'the last messages');
  const moved = clients.closes.get(4006) ?? 0;
  test.note('closes by code', JSON.stringify(Object.fromEntries(clients.closes)));
  test.note('messages published', publisher.published);
  test.check('published messages', '> 20', publisher.published, publisher.published > 20);
  test.check(
    'moved connections that the metrics count',
    moved + publisher.moved,
    balanced.get(MOVED),
  );
  test.check('moved clients', '> 0', moved, moved > 0);
  const delays = new Set(clients.delaysMs).size;
  test.check(
    'different delays',
    `> ${Math.min(50, moved / 2)}`,
    delays,
    delays > Math.min(50, moved / 2),
  );
  test.check('lost, repeated and unrecovered', '', clients.faults.slice(0, 5).join('; '));
}

/** @param {ReadonlyMap<string, number>} values */
function describe(values) {
  return `${[...connectionsPerWorker(values).values()].join(', ')}; skew ${values.get(SKEW)?.toFixed(2)}`;
}

/** Publishes to the rooms in turn. Its connection may be lost or moved like any other. */
class Publisher {
  /** @param {string} url @param {readonly string[]} rooms */
  constructor(url, rooms) {
    this.url = url;
    this.rooms = rooms;
    /** The last accepted offset by room. @type {Map<string, number>} */
    this.offsets = new Map();
    this.published = 0;
    /** How often the server has moved its connection. */
    this.moved = 0;
    this.isStopped = false;
    this.done = Promise.resolve();
  }

  start() {
    this.done = this.#run();
  }

  stop() {
    this.isStopped = true;
    return this.done;
  }

  async #run() {
    /** @type {WsClient|undefined} */
    let client;
    for (let turn = 0; !this.isStopped; turn++) {
      const room = this.rooms[turn % this.rooms.length];
      try {
        if (!client?.isOpen) {
          if (client?.closeCode === 4006) this.moved++;
          client = undefined;
          client = await new WsClient(this.url).open();
        }
        const { offset } = await client.request({ type: 'message', room, payload: turn });
        this.offsets.set(room, offset);
        this.published++;
      } catch {
        // The connection is gone; the outcome of this message is unknown.
        client?.destroy();
      }
      await new Promise((resolve) => setTimeout(resolve, PUBLISH_INTERVAL_MS));
    }
    client?.destroy();
  }
}
