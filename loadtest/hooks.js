// hooks.js: how many messages a second pass a hook that awaits?
//
//   node loadtest/hooks.js                       10,000 messages/s, an onPublish of 1 ms
//   node loadtest/hooks.js --hook none           the same without hooks
//
// Publishers send at a steady rate, each message with an id. Each ack is compared with the messages
// of its connection: the acks of a connection have to come in the order of sending.

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BUCKETS, bucketOf, percentileMs } from '../test/harness/latency.js';
import { readOptions } from '../test/harness/options.js';
import { count, pause, run } from '../test/harness/run.js';
import { NO_LIMITS, startServer, urlOf } from '../test/harness/server.js';
import { WsClient } from '../test/harness/ws-client.js';

/** The interval in which messages are sent. */
const STEP_MS = 5;
const WARM_UP_S = 2;

const { values } = readOptions(
  'Measures messages through a hook that awaits.',
  `rate N | whole 1..1000000 | 10000 | messages a second
  seconds S | number 1..600 | 10 | time
  publishers N | whole 1..10000 | 100 | connections that publish
  workers N | whole 1..64 | 2 | processes with connections
  hook MS | | 1 | time that onPublish waits; 0: a promise at once; sync: no promise; none: no hooks`,
  {
    check: ({ values: { hook } }) =>
      /^(?:\d+|sync|none)$/.test(hook) ? undefined : '--hook is a number of ms, sync or none',
  },
);
const { rate, seconds, publishers, workers, hook } = values;

/** Calls of setTimeout with 1 ms wait for 1.1 ms, like a look-up in a near database. */
const HOOKS = {
  sync: 'export function onPublish() {}',
  0: 'export async function onPublish() {}',
};
const waiting = `import { setTimeout } from 'node:timers/promises';
export async function onPublish() { await setTimeout(${Number(hook)}); }`;

await run(
  `${count(rate)} messages/s, hook: ${hook}`,
  async (test) => {
    const folder = await mkdtemp(join(tmpdir(), 'fanfare-hooks-'));
    test.after(() => rm(folder, { recursive: true }));
    const file = join(folder, 'hooks.mjs');
    await writeFile(file, HOOKS[/** @type {keyof typeof HOOKS} */ (hook)] ?? waiting);
    /** @type {Record<string, string>} */
    const hooks = hook === 'none' ? {} : { FANFARE_HOOKS: file };
    const server = await startServer(test, { ...NO_LIMITS, WORKERS: String(workers), ...hooks });

    const latencies = new Float64Array(BUCKETS);
    let [acks, errors, disorders, isWarm] = [0, 0, 0, false];
    /** @type {Map<WsClient, number>} */
    const last = new Map();
    const sentMs = /** @type {number[]} */ ([]);
    /** @param {string} text @param {WsClient} client */
    const onText = (text, client) => {
      const { type, id } = JSON.parse(text);
      if (type !== 'ack') {
        errors++;
        return;
      }
      acks++;
      if (id <= (last.get(client) ?? -1)) disorders++;
      last.set(client, id);
      if (isWarm) latencies[bucketOf(1000 * (performance.now() - sentMs[id]))]++;
    };
    const clients = Array.from(
      { length: publishers },
      () => new WsClient(urlOf(server), { onText }),
    );
    await Promise.all(clients.map((client) => client.open()));
    test.after(() => {
      for (const client of clients) client.destroy();
    });

    let sent = 0;
    /** @param {number} durationS */
    const publish = async (durationS) => {
      const beganMs = performance.now();
      const before = sent;
      for (;;) {
        const elapsedMs = performance.now() - beganMs;
        const due = before + Math.floor((rate * Math.min(elapsedMs, 1000 * durationS)) / 1000);
        while (sent < due) {
          sentMs[sent] = performance.now();
          clients[sent % publishers].send(
            `{"type":"message","room":"r${sent % 10}","payload":{"text":"hello","n":${sent}},"id":${sent}}`,
          );
          sent++;
        }
        if (elapsedMs >= 1000 * durationS) return;
        await pause(STEP_MS);
      }
    };
    await publish(WARM_UP_S);
    isWarm = true;
    const [before, beganMs] = [acks, performance.now()];
    await publish(seconds);
    const perSecond = (1000 * (acks - before)) / (performance.now() - beganMs);
    for (let waits = 0; acks + errors < sent && waits < 100; waits++) await pause(50);

    test.check('messages with an ack', count(sent), count(acks));
    test.check('errors', 0, errors);
    test.check('acks out of order', 0, disorders);
    test.check(
      'messages/s',
      `>= ${count(rate * 0.98)}`,
      count(perSecond),
      perSecond >= rate * 0.98,
    );
    const [p50, p99] = [0.5, 0.99].map((share) => percentileMs(latencies, share).toFixed(1));
    test.note('ms from a message to its ack, p50 and p99', `${p50} ${p99}`);
  },
  (WARM_UP_S + seconds + 60) * 1000,
);
