#!/usr/bin/env node
// broadcast.js: the echo/broadcast benchmark protocol, and that nothing is sent that it does not
// know.
//
//   node loadtest/broadcast.js [--redis] [--servers 1] [--workers 2] [--clients 1000] [--broadcasts 20]
//
// Clients connect and say nothing. In turn some of them broadcast, and each broadcast must reach
// every client, then its sender's `broadcastResult` with the count of all. Such clients know the
// types `echo`, `broadcast` and `broadcastResult`; many tools fail on any other.

import { Latency } from './lib/latency.js';
import { readOptions } from './lib/options.js';
import { startRedis } from './lib/redis.js';
import { count, pause, run } from './lib/run.js';
import { NO_LIMITS, startServer, until, urlOf } from './lib/server.js';
import { closeAll, openMany, WsClient } from './lib/ws-client.js';

const options = readOptions(
  `Starts servers and clients. Does each broadcast reach every client, then tell its sender so?

  npm run load:broadcast
  npm run load:broadcast -- --redis --servers 2`,
  [
    { name: 'redis', help: 'the servers share a Redis, which is started for the run' },
    { name: 'embedded', help: 'one server with the embedded broker: the default' },
    {
      name: 'servers',
      value: 'N',
      default: '1',
      min: 1,
      max: 16,
      help: 'servers; several need --redis',
    },
    { name: 'workers', value: 'N', default: '2', min: 1, max: 64, help: 'workers of each server' },
    {
      name: 'clients',
      value: 'N',
      default: '1000',
      min: 1,
      max: 100_000,
      help: 'clients, all in this process',
    },
    {
      name: 'broadcasts',
      value: 'N',
      default: '20',
      min: 1,
      max: 100_000,
      help: 'broadcasts, one after another',
    },
  ],
  {
    check: (given) => {
      if (given.flag('redis') && given.flag('embedded')) return '--redis or --embedded, not both';
      if (!given.flag('redis') && given.number('servers') !== 1)
        return 'several servers need --redis';
    },
  },
);
const [serverCount, workerCount, clientCount, broadcasts] = [
  'servers',
  'workers',
  'clients',
  'broadcasts',
].map((name) => options.number(name));
const isRedis = options.flag('redis');
const WAIT_MS = 5000;
/** After the last answer: time for something unasked, or a repeat, to show itself. */
const STRAY_WAIT_MS = 1000;

await run(
  `broadcast: ${count(clientCount)} clients, ${serverCount} servers of ${workerCount} workers, ${isRedis ? 'Redis' : 'embedded broker'}`,
  async (test) => {
    const redis = isRedis ? await startRedis(test) : null;
    const env = {
      ...NO_LIMITS,
      WORKERS: String(workerCount),
      ...(redis ? { REDIS_URL: redis.url } : {}),
    };
    const servers = await Promise.all(
      Array.from({ length: serverCount }, (_, i) =>
        startServer(test, { ...env, SERVER_ID: `broadcast-${i + 1}` }),
      ),
    );

    /** Broadcasts each client has got. */
    const reached = new Uint32Array(clientCount);
    /** What came that is none of its business. @type {Map<string, number>} */
    const strays = new Map();
    const latency = new Latency();
    let current = -1;
    let sender = -1;
    let arrived = 0;
    let sentMs = 0;
    /** Of the broadcast under way. @type {{listenerCount: number, afterOwn: boolean}|null} */
    let result = null;
    /**
     * @param {number} i
     * @param {string} text
     */
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
      (i) => new WsClient(urlOf(servers[i % serverCount]), { onText: (text) => receive(i, text) }),
    );
    test.after(() => closeAll(clients));

    sender = 0;
    clients[0].send('{"type":"echo","payload":"echo?"}');
    await until(() => echoes === 1, WAIT_MS, 'the echo');

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
      'messages of an unasked type, or repeated',
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
