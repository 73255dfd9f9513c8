// broadcast.test.js: the echo/broadcast benchmark protocol: a broadcast reaches every client, and the
// server sends no other type of message.
//
// Clients connect and send nothing. In turn some of them broadcast, and each broadcast must reach
// every client, then the `broadcastResult` with the count of all must reach its sender. Such clients
// know the types `echo`, `broadcast` and `broadcastResult`; many tools fail on any other.

import { Latency } from '../harness/latency.js';
import { startRedis } from '../harness/redis.js';
import { pause } from '../harness/run.js';
import { NO_LIMITS, startServer, until, urlOf } from '../harness/server.js';
import { closeAll, openMany, WsClient } from '../harness/ws-client.js';
import { checkedTest } from '../helpers/checks.js';

const clientCount = 200;
const broadcasts = 10;
const WAIT_MS = 5000;
/** After the last answer: time for a repeat, or for an unexpected message, to arrive. */
const STRAY_WAIT_MS = 1000;
/** Workers report their connections some 100 ms after a change, and later on a busy machine. */
const REPORTED_MS = 1000;

for (const [name, serverCount] of /** @type {[string, number][]} */ ([
  ['one server', 1],
  ['two servers that share a Redis', 2],
])) {
  checkedTest(
    `${name}: a broadcast reaches all clients, then its result reaches the sender`,
    async (test) => {
      const redis = serverCount > 1 ? await startRedis(test) : null;
      const env = { ...NO_LIMITS, ...(redis ? { REDIS_URL: redis.url } : {}) };
      const servers = await Promise.all(
        Array.from({ length: serverCount }, (_, i) =>
          startServer(test, { ...env, SERVER_ID: `broadcast-${i + 1}` }),
        ),
      );

      /** Broadcasts that each client has received. */
      const reached = new Uint32Array(clientCount);
      /** Messages of other types, or repeated. @type {Map<string, number>} */
      const strays = new Map();
      const latency = new Latency();
      let current = -1;
      let sender = -1;
      let arrived = 0;
      let sentMs = 0;
      /** Of the broadcast under way. @type {{listenerCount: number, afterOwn: boolean}|null} */
      let result = null;
      /** @param {number} i @param {string} text */
      const receive = (i, text) => {
        const message = JSON.parse(text);
        if (
          message.type === 'broadcast' &&
          message.payload?.n === current &&
          reached[i] === current
        ) {
          reached[i]++;
          arrived++;
          latency.add(performance.now() - sentMs);
        } else if (
          message.type === 'broadcastResult' &&
          i === sender &&
          message.payload?.n === current &&
          result === null
        ) {
          result = { listenerCount: message.listenerCount, afterOwn: reached[i] === current + 1 };
        } else if (message.type === 'echo' && i === sender && message.payload === 'echo?') {
          echoes++;
        } else {
          strays.set(String(message.type), (strays.get(String(message.type)) ?? 0) + 1);
        }
      };
      let echoes = 0;

      const clients = await openMany(
        clientCount,
        (i) =>
          new WsClient(urlOf(servers[i % serverCount]), { onText: (text) => receive(i, text) }),
      );
      test.after(() => closeAll(clients));

      sender = 0;
      clients[0].send('{"type":"echo","payload":"echo?"}');
      await until(() => echoes === 1, WAIT_MS, 'the echo');
      await pause(REPORTED_MS);

      /** @type {string[]} */
      const incomplete = [];
      const counts = new Set();
      let resultsAfterOwn = 0;
      for (current = 0; current < broadcasts; current++) {
        sender = (current * 7919) % clientCount;
        arrived = 0;
        result = null;
        sentMs = performance.now();
        clients[sender].send(
          JSON.stringify({ type: 'broadcast', payload: { n: current, text: 'to everyone' } }),
        );
        await until(() => arrived === clientCount && result !== null, WAIT_MS).catch(() =>
          incomplete.push(`${current}: ${arrived}`),
        );
        // TypeScript does not see receive() assign it.
        const answer = /** @type {{listenerCount: number, afterOwn: boolean}|null} */ (
          /** @type {unknown} */ (result)
        );
        counts.add(answer?.listenerCount ?? 'none');
        if (answer?.afterOwn) resultsAfterOwn++;
      }
      current--;
      await pause(STRAY_WAIT_MS);

      test.note('latency, sender to client', latency);
      test.check('broadcasts that reached all clients', broadcasts, broadcasts - incomplete.length);
      if (incomplete.length > 0) test.note('reached only', incomplete.join(', '));
      test.check('broadcasts each client got', broadcasts, [...new Set(reached)].join(', '));
      test.check('broadcastResult after the sender’s own broadcast', broadcasts, resultsAfterOwn);
      test.check('listenerCount', clientCount, [...counts].join(', '));
      test.check(
        'messages of another type, or repeated',
        0,
        [...strays].map(([type, n]) => `${n} ${type}`).join(', ') || 0,
      );
      test.check(
        'connections lost',
        0,
        clients.filter((client) => !client.isOpen || client.error !== null).length,
      );
    },
  );
}
