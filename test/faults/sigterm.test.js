// sigterm.test.js: SIGTERM under 1,000 clients and 100 messages a second.
//
// Publishers continue until they are closed, like clients that do not know about the shutdown. A
// message counts as accepted when its ack has come; it must reach every member of its room whose
// close frame comes later. Sockets are read one after another, so reads of one turn of the event
// loop have no order. Later means in a later turn.

import { startRedis } from '../harness/redis.js';
import { count, pause } from '../harness/run.js';
import { NO_LIMITS, startServer, until, urlOf } from '../harness/server.js';
import { currentTurn, joinAll, openMany, WsClient } from '../harness/ws-client.js';
import { checkedTest } from '../helpers/checks.js';

const CLIENTS = 1000;
const ROOMS = 10;
const PUBLISHERS = 20;
const MESSAGES_PER_SECOND = 100;
const BEFORE_MS = 3000;
const SHUTDOWN_TIMEOUT_MS = 30_000;
/** 500 clients of a worker may return in a second, and each of four has 100 of the 1,000 at least. */
const WINDOW_MS = 200;
/**
 * Kolmogorov-Smirnov: even a window of independent random delays stays below this in 99.9 % of the
 * runs.
 */
const MAX_DISTANCE = 1.95 / Math.sqrt(CLIENTS);

/** The messages that one client got. */
class Observer {
  /** @param {number} room */
  constructor(room) {
    this.room = room;
    /** @type {number[][]} numbers received, by publisher */
    this.got = Array.from({ length: PUBLISHERS }, () => []);
    /** @type {number[]} */
    this.delays = [];
    this.toldMs = 0;
    /** @type {string[]} */
    this.errors = [];
  }
}

for (const broker of ['embedded', 'redis']) {
  checkedTest(
    `SIGTERM with the ${broker} backend closes all clients with 1012 and loses no accepted message`,
    async (test) => {
      const redis = broker === 'redis' ? await startRedis(test) : null;
      const server = await startServer(test, {
        ...NO_LIMITS,
        WORKERS: '4',
        FANFARE_DRAIN_DELAY_MS: '2000',
        FANFARE_RECONNECT_WINDOW_MS: String(WINDOW_MS),
        FANFARE_SHUTDOWN_TIMEOUT_MS: String(SHUTDOWN_TIMEOUT_MS),
        ...(redis ? { REDIS_URL: redis.url } : {}),
      });
      const observers = Array.from({ length: CLIENTS }, (_, i) => new Observer(i % ROOMS));
      const clients = await openMany(
        CLIENTS,
        (i) => new WsClient(urlOf(server), { onText: (text) => receive(observers[i], text) }),
      );
      test.after(() => {
        for (const client of clients) client.destroy();
      });
      await joinAll(clients, (i) => `room-${i % ROOMS}`);

      /** @param {Observer} observer @param {string} text */
      function receive(observer, text) {
        const message = JSON.parse(text);
        if (message.type === 'message') {
          const [publisher, n] = message.payload;
          observer.got[publisher].push(n);
        } else if (message.type === 'SERVER_SHUTDOWN') {
          observer.toldMs = performance.now();
          observer.delays.push(message.reconnectAfterMs);
        } else {
          observer.errors.push(text);
        }
      }

      /**
       * @type {{publisher: number, n: number, room: number, ackedMs: number, ackedTurn: number}[]}
       */
      const accepted = [];
      let published = 0;
      let unanswered = 0;
      const errors = new Set();
      const next = new Array(PUBLISHERS).fill(0);
      let turn = 0;
      const publishing = setInterval(() => {
        const publisher = turn++ % PUBLISHERS;
        const i = publisher * Math.floor(CLIENTS / PUBLISHERS) + (publisher % ROOMS);
        const client = clients[i];
        if (!client.isOpen || client.closeCode !== 0) return;
        const n = next[publisher]++;
        const { room } = observers[i];
        published++;
        client.request({ type: 'message', payload: [publisher, n] }, SHUTDOWN_TIMEOUT_MS).then(
          (reply) => {
            if (reply.type === 'ack')
              accepted.push({
                publisher,
                n,
                room,
                ackedMs: performance.now(),
                ackedTurn: currentTurn(),
              });
            else errors.add(reply.error);
          },
          () => unanswered++, // closed before its answer: neither accepted nor not
        );
      }, 1000 / MESSAGES_PER_SECOND);
      test.after(() => clearInterval(publishing));

      await pause(BEFORE_MS);
      const signalledMs = performance.now();
      server.kill('SIGTERM');
      // Unref'ed: it would keep the process of the tests alive after they have ended.
      const limit = new Promise((resolve) => {
        setTimeout(resolve, SHUTDOWN_TIMEOUT_MS + 5000, null).unref();
      });
      const end = await Promise.race([server.exited, limit]);
      const tookMs = performance.now() - signalledMs;
      await until(
        () => clients.every((client) => !client.isOpen),
        5000,
        'the end of all connections',
      ).catch(() => {});
      clearInterval(publishing);

      test.check('exit code', 0, end?.code ?? 'none');
      test.check(
        'gone in',
        `< ${SHUTDOWN_TIMEOUT_MS / 1000} s`,
        `${(tookMs / 1000).toFixed(1)} s`,
        tookMs < SHUTDOWN_TIMEOUT_MS,
      );
      test.check(
        'told SERVER_SHUTDOWN, once',
        CLIENTS,
        observers.filter(({ delays }) => delays.length === 1).length,
      );
      test.check(
        'closed with 1012',
        CLIENTS,
        clients.filter(({ closeCode }) => closeCode === 1012).length,
      );
      test.check(
        'told before they were closed',
        CLIENTS,
        observers.filter(({ toldMs }, i) => toldMs > 0 && toldMs <= clients[i].closedMs).length,
      );
      const delays = observers.flatMap((observer) => observer.delays).sort((a, b) => a - b);
      const distance = distanceFromEven(delays, WINDOW_MS);
      test.check(
        'delays told: distance from an even spread',
        `≤ ${MAX_DISTANCE.toFixed(3)}`,
        distance.toFixed(3),
        distance <= MAX_DISTANCE,
      );
      test.check(
        'delays told: within the window',
        `0 … ${WINDOW_MS}`,
        `${delays[0]} … ${delays.at(-1)}`,
        delays[0] >= 0 && Number(delays.at(-1)) <= WINDOW_MS,
      );

      // Per member and publisher: the sequence numbers are 0, 1, 2 … without a gap.
      let gaps = 0;
      for (const { got } of observers) {
        for (const numbers of got) if (numbers.some((n, i) => n !== i)) gaps++;
      }
      test.check('members with a gap, a repeat or a wrong order', 0, gaps);
      let lost = 0;
      let owed = 0;
      let worst = 0;
      let afterSignal = 0;
      for (const { publisher, n, room, ackedMs, ackedTurn } of accepted) {
        if (ackedMs > signalledMs) afterSignal++;
        for (let i = room; i < CLIENTS; i += ROOMS) {
          if (ackedTurn >= clients[i].closedTurn) continue;
          owed++;
          if (observers[i].got[publisher].length > n) continue;
          lost++;
          worst = Math.max(worst, clients[i].closedMs - ackedMs);
        }
      }
      test.note(
        'published',
        `${count(published)}: ${count(accepted.length)} accepted, ${count(afterSignal)} of them after the signal; ${count(unanswered)} without an answer; errors: ${[...errors].join(', ') || 'none'}`,
      );
      if (lost > 0)
        test.note(
          'longest time between an ack and the close of a member that missed the message',
          `${worst.toFixed(1)} ms`,
        );
      test.check('accepted messages after the signal', '> 0', afterSignal, afterSignal > 0);
      test.check(`accepted messages lost, of ${count(owed)} deliveries owed`, 0, lost);
      test.check('other messages', 0, observers.flatMap((observer) => observer.errors).length);
      test.check('processes left', 0, server.workerPids().length);
    },
  );
}

/**
 * Kolmogorov and Smirnov's: the largest distance between the share of delays up to a time and that
 * time's share of the window.
 * @param {readonly number[]} sorted @param {number} windowMs
 */
function distanceFromEven(sorted, windowMs) {
  let largest = 0;
  sorted.forEach((delay, i) => {
    const even = delay / windowMs;
    largest = Math.max(
      largest,
      Math.abs((i + 1) / sorted.length - even),
      Math.abs(i / sorted.length - even),
    );
  });
  return largest;
}
