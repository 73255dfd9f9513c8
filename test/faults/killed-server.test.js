// killed-server.test.js: one of two servers is killed while a user and two apps are near their limits of
// connections. Until its lease ends, its connections count for the other server too, which refuses
// some clients that return. All of them must come back: pusher-js, centrifuge-js and fanfare/client.

import { createRequire } from 'node:module';
import { connect, createServer } from 'node:net';
import { Centrifuge } from 'centrifuge';
import { WebSocket } from 'ws';
import { Fanfare } from '../../src/client/node.js';
import { startRedis } from '../harness/redis.js';
import { scrape, startServer, until } from '../harness/server.js';
import { checkedTest } from '../helpers/checks.js';
import { APP, entryOf, writeApps } from '../helpers/pusher.js';
import { SECRET, token } from '../helpers/tokens.js';
import '../helpers/short-timers.js';

const CLIENTS = 10;
const LIMIT = 12;
const NATIVE_APP = { id: '2', key: 'native', maxConnections: LIMIT };
/** @type {any} */
const PusherJs = createRequire(import.meta.url)('pusher-js');

/** @typedef {import('../helpers/checks.js').Checks} Run */
/** @typedef {{isConnected: () => boolean}} Client */

checkedTest(
  'all clients return after one of two servers was killed near their limits',
  async (test) => {
    const redis = await startRedis(test);
    const env = {
      ...{ WORKERS: '1', REDIS_URL: redis.url, JWT_SECRET: SECRET, FANFARE_AUTH: 'optional' },
      ...{ FANFARE_LIMITS: 'enforce', FANFARE_OVERLOAD_MODE: 'off', FANFARE_CENTRIFUGO: 'on' },
      FANFARE_MAX_CONNECTIONS_PER_USER: String(LIMIT),
      FANFARE_PUSHER_APPS: writeApps(test, [
        entryOf({ maxConnections: LIMIT }),
        entryOf(NATIVE_APP),
      ]),
    };
    const servers = await Promise.all(
      ['a', 'b'].map((id) => startServer(test, { ...env, SERVER_ID: id })),
    );
    const [a, b] = servers;
    for (const { metricsPort } of servers)
      await until(
        async () => (await scrape(metricsPort)).values.get('fanfare_fleet_limit_servers') === 2,
      );
    const balancer = await startBalancer(test, [a.port, b.port]);
    const url = `ws://127.0.0.1:${balancer.port}`;
    const groups = {
      'pusher-js, of an app': many(() => openPusherJs(test, balancer.port)),
      'fanfare/client, of an app': many((i) =>
        openNative(test, url, { sub: `of-app-${i}`, app: NATIVE_APP.id }),
      ),
      'fanfare/client, of a user': many(() => openNative(test, url, { sub: 'native' })),
      'centrifuge-js, of a user': many(() => openCentrifuge(test, url, 'centrifuge')),
    };
    const all = Object.values(groups).flat();
    const connected = (/** @type {readonly Client[]} */ clients) =>
      clients.filter((client) => client.isConnected()).length;
    await until(() => connected(all) === all.length, 20_000, 'all connections');
    // Reports repeat each second, so the second from now has all connections of b.
    const reports = async () =>
      (await scrape(a.metricsPort)).values.get(
        'fanfare_fleet_limit_reports_total{kind="received"}',
      ) ?? 0;
    const before = await reports();
    await until(async () => (await reports()) >= before + 2, 10_000, 'two reports of b');
    balancer.ports = [a.port];
    for (const pid of [b.pid, ...b.workerPids()]) process.kill(pid, 'SIGKILL');
    const killedMs = performance.now();
    await until(() => connected(all) < all.length, 5000, 'the end of the connections of b');
    await until(() => connected(all) === all.length, 60_000).catch(() => {});
    test.note('ms until all are back', Math.round(performance.now() - killedMs));
    for (const [name, clients] of Object.entries(groups))
      test.check(`connected: ${name}`, CLIENTS, connected(clients));
    const { values } = await scrape(a.metricsPort);
    for (const cause of ['user_limit', 'app_limit']) {
      const refused = values.get(`fanfare_auth_closes_total{cause="${cause}"}`) ?? 0;
      test.check(`refused meanwhile: ${cause}`, '> 0', refused, refused > 0);
    }
  },
  120_000,
);

/** @param {(i: number) => Client} open @returns {Client[]} */
const many = (open) => Array.from({ length: CLIENTS }, (_, i) => open(i));

/** @param {Run} test @param {string} url @param {Record<string, unknown>} claims @returns {Client} */
function openNative(test, url, claims) {
  const client = new Fanfare(url, { token: () => token({ rooms: { join: ['*'] }, ...claims }) });
  client.on('error', () => {});
  test.after(() => client.close());
  client.connect();
  return { isConnected: () => client.state === 'connected' };
}

/** @param {Run} test @param {string} url @param {string} sub @returns {Client} */
function openCentrifuge(test, url, sub) {
  const options = { websocket: WebSocket, token: token({ sub }) };
  const client = new Centrifuge(`${url}/connection/websocket`, options);
  test.after(() => client.disconnect());
  client.connect();
  return { isConnected: () => client.state === 'connected' };
}

/** @param {Run} test @param {number} port @returns {Client} */
function openPusherJs(test, port) {
  const pusher = new PusherJs(APP.key, {
    ...{ cluster: '', wsHost: '127.0.0.1', wsPort: port },
    ...{ forceTLS: false, enabledTransports: ['ws'] },
  });
  test.after(() => pusher.disconnect());
  return { isConnected: () => pusher.connection.state === 'connected' };
}

/**
 * Gives connections to the ports in turn.
 * @param {Run} test @param {number[]} ports
 */
async function startBalancer(test, ports) {
  const balancer = { port: 0, ports };
  let next = 0;
  const server = createServer((from) => {
    const to = connect(balancer.ports[next++ % balancer.ports.length], '127.0.0.1');
    from.pipe(to).pipe(from);
    for (const socket of [from, to]) {
      socket.on('error', () => {});
      socket.on('close', () => [from, to].forEach((one) => void one.destroy()));
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  test.after(() => server.close());
  balancer.port = /** @type {import('node:net').AddressInfo} */ (server.address()).port;
  return balancer;
}
