// redis-away.test.js: Redis killed and back after 5 s; Redis frozen (SIGSTOP) for 8 s.
//
// Two servers share the Redis. Through all of it one client publishes every PUBLISH_MS, each
// message with a deadline of its own, to a room with members on both servers. A ping right behind
// each needs no Redis and measures the delay of any answer at that moment. "At once" is relative to
// it, so that a busy machine does not count against the server. A message refused with UNAVAILABLE
// must never arrive, no message may arrive twice, and no client may be disconnected.

import { startRedis } from '../harness/redis.js';
import { count, pause } from '../harness/run.js';
import { NO_LIMITS, scrape, startServer, until, urlOf } from '../harness/server.js';
import { closeAll, joinAll, openMany, WsClient } from '../harness/ws-client.js';
import { checkedTest } from '../helpers/checks.js';

const CLIENTS = 200;
const PUBLISH_MS = 50;
/** Messages delivered before the first fault. */
const BEFORE = 20;
const DOWN_MS = 5000;
const FROZEN_MS = 8000;
/**
 * Possible errors of publishes that were written before the worker noticed the end of Redis: Redis
 * may have accepted them.
 */
const NOTICE_MS = 250;
const AT_ONCE_MS = 50;
const RECOVERY_MS = 3000;
const NOTICED_MS = 5000;
const SETTLE_MS = 2000;

/**
 * @typedef {{n: number, sentMs: number, answeredMs: number, pongMs: number, outcome: string}}
 *   Attempt
 */

checkedTest(
  'Redis killed for 5 s, then frozen for 8 s: no client is disconnected, and every publish gets a true answer',
  async (test) => {
    const redis = await startRedis(test);
    const servers = await Promise.all(
      ['a', 'b'].map((id) =>
        startServer(test, { ...NO_LIMITS, WORKERS: '2', REDIS_URL: redis.url, SERVER_ID: id }),
      ),
    );
    /**
     * The receivers of each message, and the time of its last delivery.
     * @type {Map<number, {reached: Uint8Array, members: number, lastMs: number}>}
     */
    const arrivals = new Map();
    let repeats = 0;
    const clients = await openMany(
      CLIENTS,
      (i) => new WsClient(urlOf(servers[i % 2]), { onText: (text) => receive(i, text) }),
    );
    test.after(() => closeAll(clients));
    await joinAll(clients, () => 'faults');

    /** @param {number} i @param {string} text */
    function receive(i, text) {
      const message = JSON.parse(text);
      if (message.type !== 'message') return;
      const n = message.payload;
      const arrival = arrivals.get(n) ?? {
        reached: new Uint8Array(CLIENTS),
        members: 0,
        lastMs: 0,
      };
      arrivals.set(n, arrival);
      if (arrival.reached[i] === 1) repeats++;
      else arrival.members++;
      arrival.reached[i] = 1;
      arrival.lastMs = performance.now();
    }

    /** @type {Attempt[]} */
    const attempts = [];
    const publishing = setInterval(() => {
      const attempt = {
        n: attempts.length,
        sentMs: performance.now(),
        answeredMs: 0,
        pongMs: 0,
        outcome: 'none',
      };
      attempts.push(attempt);
      const client = clients[attempt.n % CLIENTS];
      client.request({ type: 'message', payload: attempt.n }, 30_000).then(
        (reply) => {
          attempt.answeredMs = performance.now();
          attempt.outcome = reply.type === 'ack' ? 'ack' : reply.error;
        },
        (error) => {
          attempt.outcome = error.message;
        },
      );
      client.request({ type: 'ping' }, 30_000).then(
        () => {
          attempt.pongMs = performance.now();
        },
        () => {}, // the attempt's own error says it
      );
    }, PUBLISH_MS);
    test.after(() => clearInterval(publishing));
    const complete = (/** @type {number} */ n) => arrivals.get(n)?.members === CLIENTS;
    /** @param {number} fromMs @param {number} toMs */
    const between = (fromMs, toMs) =>
      attempts.filter(({ sentMs }) => sentMs >= fromMs && sentMs < toMs);
    /** The first message sent after `fromMs` that reached everyone. @param {number} fromMs */
    const delivered = async (fromMs) => {
      await until(
        () => attempts.some(({ n, sentMs }) => sentMs >= fromMs && complete(n)),
        15_000,
        'a delivery to all',
      ).catch(() => {});
      const first = attempts.find(({ n, sentMs }) => sentMs >= fromMs && complete(n));
      return first ? Number(arrivals.get(first.n)?.lastMs) - fromMs : Number.POSITIVE_INFINITY;
    };
    /**
     * Waits until /metrics reports this state for the brokers of all workers.
     * @param {0|1} wanted
     * @param {number} timeoutMs
     * @returns {Promise<number>} when it was so on every server
     */
    const brokersAre = async (wanted, timeoutMs) => {
      await until(
        async () =>
          (await Promise.all(servers.map(({ metricsPort }) => scrape(metricsPort)))).every(
            ({ values }) => values.get('fanfare_broker_up') === wanted,
          ),
        timeoutMs,
        `fanfare_broker_up ${wanted} everywhere`,
      ).catch(() => {});
      return performance.now();
    };

    await until(
      () => attempts.filter(({ n, outcome }) => outcome !== 'none' && complete(n)).length >= BEFORE,
      10_000,
      'deliveries before the faults',
    );
    const before = attempts.filter(({ outcome }) => outcome !== 'none');
    test.check(
      'before: accepted',
      before.length,
      before.filter(({ outcome }) => outcome === 'ack').length,
    );

    // 1. Killed.
    const killedMs = performance.now();
    await redis.kill();
    await pause(DOWN_MS - (performance.now() - killedMs));
    const downUntilMs = performance.now();
    await redis.restart();
    const backMs = performance.now();
    const deliveredMs = await delivered(backMs);
    await pause(SETTLE_MS);
    const down = between(killedMs + NOTICE_MS, downUntilMs);
    const slowest = Math.max(...down.map(({ answeredMs, pongMs }) => answeredMs - pongMs));
    const typical = down.map(({ sentMs, answeredMs }) => answeredMs - sentMs).sort((a, b) => a - b)[
      down.length >> 1
    ];
    test.check(
      'killed: publishes refused with UNAVAILABLE',
      down.length,
      down.filter(({ outcome }) => outcome === 'UNAVAILABLE').length,
    );
    test.note(
      'killed: outcomes of the first moment',
      tally(between(killedMs - PUBLISH_MS, killedMs + NOTICE_MS)),
    );
    test.check(
      'killed: refused at once',
      `< ${AT_ONCE_MS} ms after a ping’s answer`,
      `typically ${typical.toFixed(1)} ms, at worst ${slowest.toFixed(1)} ms after a ping’s`,
      slowest < AT_ONCE_MS,
    );
    test.check(
      'killed: clients connected',
      CLIENTS,
      clients.filter((client) => client.isOpen).length,
    );
    test.check(
      'killed: delivery to all after the return',
      `< ${RECOVERY_MS} ms`,
      `${deliveredMs.toFixed(0)} ms`,
      deliveredMs < RECOVERY_MS,
    );

    // 2. Frozen.
    await brokersAre(1, 10_000);
    const linesBefore = servers.map(({ lines }) => lines.length);
    const frozenMs = performance.now();
    redis.freeze();
    const noticedMs = (await brokersAre(0, FROZEN_MS)) - frozenMs;
    await pause(FROZEN_MS - (performance.now() - frozenMs));
    const thawedMs = performance.now();
    redis.thaw();
    const thawDeliveredMs = await delivered(thawedMs);
    await pause(SETTLE_MS);
    clearInterval(publishing);
    await until(() => attempts.every(({ outcome }) => outcome !== 'none'), 5000).catch(() => {});
    const frozen = between(frozenMs + NOTICE_MS, thawedMs - SETTLE_MS);
    const waited = Math.max(...frozen.map(({ sentMs, answeredMs }) => answeredMs - sentMs));
    test.note('frozen: outcomes', tally(frozen));
    const first = between(frozenMs + NOTICE_MS, frozenMs + 1500);
    test.check(
      'frozen: publishes told OUTCOME_UNKNOWN (the first 1.5 s)',
      first.length,
      first.filter(({ outcome }) => outcome === 'OUTCOME_UNKNOWN').length,
    );
    test.check(
      'frozen: none accepted, none without an answer',
      0,
      frozen.filter(({ outcome }) => !['OUTCOME_UNKNOWN', 'UNAVAILABLE'].includes(outcome)).length,
    );
    test.check('frozen: answered', '< 2500 ms', `slowest ${waited.toFixed(0)} ms`, waited < 2500);
    const logged = servers.map(
      ({ lines }, i) =>
        lines.slice(linesBefore[i]).filter(({ msg }) => msg === 'broker is degraded').length,
    );
    test.check(
      'frozen: dead subscriber noticed, all 4 workers',
      `< ${NOTICED_MS} ms`,
      `${noticedMs.toFixed(0)} ms; log lines ${logged.join(' and ')}`,
      noticedMs < NOTICED_MS && logged.every((lines) => lines >= 2),
    );
    test.check(
      'frozen: clients connected',
      CLIENTS,
      clients.filter((client) => client.isOpen).length,
    );
    test.check(
      'frozen: delivery to all after the return',
      `< ${RECOVERY_MS} ms`,
      `${thawDeliveredMs.toFixed(0)} ms`,
      thawDeliveredMs < RECOVERY_MS,
    );

    const ghosts = attempts.filter(
      ({ n, outcome }) => outcome === 'UNAVAILABLE' && arrivals.has(n),
    );
    const unknown = attempts.filter(({ outcome }) => outcome === 'OUTCOME_UNKNOWN');
    test.note(
      'OUTCOME_UNKNOWN that arrived after all',
      `${unknown.filter(({ n }) => arrivals.has(n)).length} of ${count(unknown.length)}`,
    );
    test.check('UNAVAILABLE, yet delivered', 0, ghosts.length);
    test.check('delivered twice', 0, repeats);
    const calm = attempts.filter(
      ({ outcome, answeredMs }) => outcome === 'ack' && answeredMs < killedMs - NOTICE_MS,
    );
    test.check(
      'accepted before the faults and not delivered to all',
      0,
      calm.filter(({ n }) => !complete(n)).length,
    );
  },
);

/** @param {readonly Attempt[]} attempts */
function tally(attempts) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { outcome } of attempts) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  return [...counts].map(([outcome, n]) => `${n} ${outcome}`).join(', ') || 'none';
}
