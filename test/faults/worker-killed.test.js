// worker-killed.test.js: kill -9 of a worker under 1,000 clients and traffic.
//
// The first 8 characters of a connection's id are the same for all connections of a worker, so the
// test knows the clients of each worker. It reads /metrics every 100 ms and compares each answer
// with the one before.

import { readdirSync } from 'node:fs';
import { count, pause } from '../harness/run.js';
import {
  connectionsPerWorker,
  NO_LIMITS,
  readiness,
  scrape,
  startServer,
  until,
  urlOf,
} from '../harness/server.js';
import { closeAll, each, joinAll, openMany, WsClient } from '../harness/ws-client.js';
import { checkedTest } from '../helpers/checks.js';
import { fallen } from '../helpers/counters.js';

const CLIENTS = 1000;
const WORKERS = 4;
const ROOMS = 50;
const MESSAGES_PER_SECOND = 100;
/** The server renders its metrics twice a second; more frequent requests wait. */
const POLL_MS = 500;
const BEFORE_MS = 2000;
const AFTER_MS = 6000;
const ID_PREFIX = 8;

checkedTest(
  'a killed worker costs its own clients, no other client, and no counter',
  async (test) => {
    const beganMs = performance.now();
    const server = await startServer(test, { ...NO_LIMITS, WORKERS: String(WORKERS) });
    // On a slow machine, or beside other tests, two seconds may not be enough for a start, and the
    // next one may take longer than this one.
    const boundMs = Math.max(2000, Math.round(2 * (performance.now() - beganMs)));
    const clients = await openMany(CLIENTS, () => new WsClient(urlOf(server)));
    test.after(() => closeAll(clients));
    await joinAll(clients, (i) => `room-${i % ROOMS}`);
    /** @type {Map<string, WsClient[]>} clients by their worker */
    const byWorker = new Map();
    await each(CLIENTS, 200, async (i) => {
      const { connectionId } = await clients[i].request({ type: 'hello' });
      const worker = connectionId.slice(0, ID_PREFIX);
      byWorker.set(worker, [...(byWorker.get(worker) ?? []), clients[i]]);
    });
    const perWorker = connectionsPerWorker((await scrape(server.metricsPort)).values);
    test.note('connections per worker', [...perWorker.values()].map(count).join(', '));

    // Traffic, so that counters have something to lose.
    let turn = 0;
    const traffic = setInterval(() => {
      for (let tries = 0; tries < CLIENTS; tries++) {
        const client = clients[turn++ % CLIENTS];
        if (!client.isOpen) continue;
        client.send('{"type":"message","text":"traffic"}');
        return;
      }
    }, 1000 / MESSAGES_PER_SECOND);
    test.after(() => clearInterval(traffic));

    let scrapes = 0;
    let slowestMs = 0;
    /** @type {string[]} */
    const failures = [];
    /** @type {string[]} */
    const falls = [];
    let previous = '';
    const poll = async () => {
      const asked = performance.now();
      try {
        const { text } = await scrape(server.metricsPort);
        scrapes++;
        slowestMs = Math.max(slowestMs, performance.now() - asked);
        // Answers may overtake each other only if the requests are concurrent. These are not.
        if (previous !== '') falls.push(...fallen(previous, text));
        previous = text;
      } catch (error) {
        failures.push(/** @type {Error} */ (error).message);
      }
    };
    let polling = true;
    const poller = (async () => {
      while (polling) {
        const next = performance.now() + POLL_MS;
        await poll();
        await pause(Math.max(0, next - performance.now()));
      }
    })();

    await pause(BEFORE_MS);
    const before = server.workerPids();
    const victim = before[1];
    const killedMs = performance.now();
    process.kill(victim, 'SIGKILL');

    await until(
      async () => {
        const now = server.workerPids();
        const isReplaced = !now.includes(victim) && now.length === WORKERS;
        return isReplaced && (await readiness(server.metricsPort)).ready === WORKERS;
      },
      10_000,
      'a replacement',
    );
    const replacedMs = performance.now() - killedMs;
    // A ready server accepts connections. This one may reach any worker.
    await new WsClient(urlOf(server)).open(2000).then((client) => client.close());
    await pause(AFTER_MS - (performance.now() - killedMs));
    polling = false;
    await poller;
    clearInterval(traffic);

    const dropped = clients.filter((client) => !client.isOpen);
    const workersHit = [...byWorker.values()].filter((own) => own.some((client) => !client.isOpen));
    const own = workersHit[0] ?? [];
    test.check('workers whose clients dropped', 1, workersHit.length);
    test.check(
      'clients dropped',
      `${own.length}, all of that worker’s`,
      `${dropped.length}`,
      dropped.length === own.length &&
        own.length > 0 &&
        [...perWorker.values()].includes(own.length),
    );
    const survivors = clients.filter((client) => client.isOpen);
    let answers = 0;
    await each(survivors.length, 200, async (i) => {
      if ((await survivors[i].request({ type: 'ping' })).type === 'pong') answers++;
    });
    test.check('the others answer', CLIENTS - own.length, answers);
    test.check(
      'a new worker is up',
      `< ${boundMs} ms`,
      `${Math.round(replacedMs)} ms`,
      replacedMs < boundMs,
    );
    test.check('failed scrapes', 0, failures.length);
    if (failures.length > 0) test.note('why', failures[0]);
    test.check(
      'scrapes',
      `≥ ${Math.floor((BEFORE_MS + AFTER_MS) / POLL_MS / 2)}`,
      scrapes,
      scrapes >= (BEFORE_MS + AFTER_MS) / POLL_MS / 2,
    );
    test.note('slowest scrape', `${Math.round(slowestMs)} ms`);
    test.check('counters that went down', 0, falls.length);
    if (falls.length > 0) test.note('for one', falls[0]);
    test.check(
      'restarts counted',
      1,
      (await scrape(server.metricsPort)).values.get('fanfare_worker_restarts_total'),
    );
    test.check(
      'a killed process is gone',
      'yes',
      readdirSync('/proc').includes(String(victim)) ? 'no' : 'yes',
    );
  },
);
