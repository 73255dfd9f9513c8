// fleet-limits.test.js: the cap per address over two servers when a server or Redis fails, and the
// commands that handshakes send to Redis.
//
// Both servers trust the test as their proxy, so it chooses the address of each client.

import { slotOf } from '../../src/backend/redis/slots.js';
import { startRedis } from '../harness/redis.js';
import { startCluster } from '../harness/redis-cluster.js';
import { pause } from '../harness/run.js';
import { scrape, startServer, until, urlOf } from '../harness/server.js';
import { each, HandshakeError, WsClient } from '../harness/ws-client.js';
import { checkedTest } from '../helpers/checks.js';

const CAP = 100;
const HANDSHAKES = 20_000;
const CONCURRENCY = 100;
const LEASE_MS = 5000;
const SETTLE_MS = 2000;
const ADDRESS = '192.0.2.1';
const CHANNEL = 'fanfare:limits';
/** Two workers publish their number of connections 20 times a second each. */
const MAX_COMMANDS_PER_SECOND = 100;

/** @typedef {import('../helpers/checks.js').Checks} Run */
/** @typedef {import('../harness/server.js').Server} Server */

checkedTest('300 connections from one address to two servers settle at 100', async (test) => {
  const servers = await startPair(test, { REDIS_URL: (await startRedis(test)).url });
  const admitted = await Promise.all(servers.map((server) => open(server, 150, () => ADDRESS)));
  const dialledMs = performance.now();
  const clients = admitted.flat();
  await until(() => opened(clients) <= CAP, 10_000);
  const settledMs = Math.round(performance.now() - dialledMs);
  test.note('admitted by each server', admitted.map(({ length }) => length).join(', '));
  test.check('ms until 100 are left', `<= ${SETTLE_MS}`, settledMs, settledMs <= SETTLE_MS);
  await until(async () => (await figure(servers[0], 'excess{limit="address"}')) === 0);
  test.check('connections left', CAP, opened(clients));
  const codes = clients.filter(({ isOpen }) => !isOpen).map(({ closeCode }) => closeCode);
  test.check('close codes', '4008', [...new Set(codes)].join());
});

checkedTest('the share of a killed server is free when its lease has ended', async (test) => {
  const [a, b] = await startPair(test, { REDIS_URL: (await startRedis(test)).url });
  const address = '2001:db8:0:1::';
  // One subscriber: all of its /64 counts as one address.
  const first = await open(a, CAP, (i) => `${address}${i + 1}`);
  test.check('connections of an IPv6 /64 to the first server', CAP, first.length);
  await until(() => refuses(b, `${address}ff`), SETTLE_MS);
  for (const pid of [a.pid, ...a.workerPids()]) process.kill(pid, 'SIGKILL');
  const killedMs = performance.now();
  test.check('admitted by the second server at once', 0, (await open(b, 5, () => address)).length);
  await until(async () => (await open(b, 1, () => address)).length === 1, 2 * LEASE_MS);
  const freeMs = Math.round(performance.now() - killedMs);
  test.check('ms until the places are free', `<= ${LEASE_MS + 1500}`, freeMs, freeMs <= 6500);
  const rest = await open(b, CAP + 20, () => address);
  test.check('connections to the second server then', CAP, rest.length + 1);
});

checkedTest('the clients of a server that drains find room on the other', async (test) => {
  const [a, b] = await startPair(test, { REDIS_URL: (await startRedis(test)).url });
  const first = await open(a, CAP, () => ADDRESS);
  await until(() => refuses(b, ADDRESS), SETTLE_MS);
  a.kill('SIGTERM');
  await until(async () => opened(first) < CAP, SETTLE_MS);
  const second = await open(b, CAP, () => ADDRESS);
  test.check('connections to the second server while the first one drains', CAP, second.length);
});

checkedTest(
  'without Redis each server is on its own, and both settle when it is back',
  async (test) => {
    const redis = await startRedis(test);
    const servers = await startPair(test, { REDIS_URL: redis.url });
    const [a, b] = servers;
    const first = await open(a, CAP, () => ADDRESS);
    await until(() => refuses(b, ADDRESS), SETTLE_MS);
    await redis.kill();
    await until(async () => (await figure(b, 'servers')) === 0, 2 * LEASE_MS);
    const second = await open(b, CAP + 20, () => ADDRESS);
    test.check('connections to the second server while Redis is away', CAP, second.length);
    test.check('connections to the first server', CAP, opened(first));
    const alone = await figure(b, 'decisions_total{decision="alone"}');
    test.check('counted as admitted by one server', 80, alone);
    await redis.restart();
    await until(async () => (await figure(b, 'servers')) === 2, 10_000);
    const sinceMs = performance.now();
    await until(() => opened([...first, ...second]) <= CAP, 5000);
    test.note('ms from the first report to the cap', Math.round(performance.now() - sinceMs));
    test.check('connections a moment later', CAP, opened([...first, ...second]));
    test.check('closed by the first server', CAP / 2, CAP - opened(first));
  },
);

checkedTest(
  `${HANDSHAKES} handshakes from as many addresses cost no command each`,
  async (test) => {
    const redis = await startRedis(test);
    const [server] = await startPair(test, { REDIS_URL: redis.url });
    await redis.cli('CONFIG', 'RESETSTAT');
    const before = await figure(server, 'reports_total{kind="sent"}');
    const startedMs = performance.now();
    let admitted = 0;
    await each(HANDSHAKES, CONCURRENCY, async (i) => {
      const [client] = await open(server, 1, () => `198.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
      if (client === undefined) return;
      admitted++;
      client.socket.destroy();
    });
    const seconds = (performance.now() - startedMs) / 1000;
    test.check('admitted', HANDSHAKES, admitted);
    const stats = await redis.cli('INFO', 'commandstats');
    const calls = [...stats.matchAll(/cmdstat_(\S+?):calls=(\d+)/g)];
    const total = calls.reduce((sum, [, , count]) => sum + Number(count), 0);
    test.note('commands', calls.map(([, name, count]) => `${name} ${count}`).join(', '));
    test.note('handshakes a second', Math.round(HANDSHAKES / seconds));
    const most = Math.round(MAX_COMMANDS_PER_SECOND * seconds);
    test.check(`commands in ${seconds.toFixed(1)} s`, `<= ${most}`, total, total <= most);
    const sent = (await figure(server, 'reports_total{kind="sent"}')) - before;
    test.check('reports', '<= 2 a second', sent, sent <= 2 * seconds + 1);
  },
);

checkedTest(
  'in a cluster, reports return after their slot has moved or failed over',
  async (test) => {
    const cluster = await startCluster(test, { hasReplicas: true });
    const addresses = cluster.primaries.map(({ port }) => `127.0.0.1:${port}`);
    const [a, b] = await startPair(test, { REDIS_CLUSTER: addresses.join() });
    const first = await open(a, CAP, () => ADDRESS);
    await until(() => refuses(b, ADDRESS), SETTLE_MS);
    const owner = cluster.primaryOf(CHANNEL);
    const heir = cluster.primaries.find((one) => one !== owner) ?? owner;
    await cluster.moveSlot(slotOf(CHANNEL), owner, heir);
    // Longer than the lease: the reports have to arrive over the new way.
    await pause(LEASE_MS + 1000);
    test.check('refused after the slot has moved', 'true', await refuses(b, ADDRESS));
    await heir.kill();
    await pause(2 * LEASE_MS);
    test.check('servers after the failover', 2, await figure(b, 'servers'));
    test.check('refused after the failover', 'true', await refuses(b, ADDRESS));
    test.check('connections of the first server after the failover', CAP, opened(first));
  },
);

/**
 * @param {Run} test
 * @param {Record<string, string>} redis settings
 * @returns {Promise<Server[]>} two servers that know each other
 */
async function startPair(test, redis) {
  const servers = await Promise.all(
    ['a', 'b'].map((id) =>
      startServer(test, {
        WORKERS: '2',
        ...redis,
        SERVER_ID: id,
        TRUST_PROXY: '127.0.0.1/32',
        FANFARE_OVERLOAD_MODE: 'off',
      }),
    ),
  );
  for (const server of servers) await until(async () => (await figure(server, 'servers')) === 2);
  return servers;
}

/**
 * @param {Server} server
 * @param {number} count
 * @param {(i: number) => string} addressOf
 * @returns {Promise<WsClient[]>} those that were admitted; the others got 429
 */
async function open(server, count, addressOf) {
  const url = new URL(urlOf(server));
  /** @type {WsClient[]} */
  const clients = [];
  await each(count, CONCURRENCY, async (i) => {
    const client = new WsClient(url, { headers: { 'X-Forwarded-For': addressOf(i) } });
    try {
      clients.push(await client.open());
    } catch (error) {
      if (!(error instanceof HandshakeError) || error.status !== 429) throw error;
    }
  });
  return clients;
}

/** @param {Server} server @param {string} address */
async function refuses(server, address) {
  const [admitted] = await open(server, 1, () => address);
  admitted?.socket.destroy();
  return admitted === undefined;
}

/** @param {readonly WsClient[]} clients */
function opened(clients) {
  return clients.filter(({ isOpen }) => isOpen).length;
}

/**
 * @param {Server} server
 * @param {string} name of a metric of these limits
 */
async function figure({ metricsPort }, name) {
  const { values } = await scrape(metricsPort);
  return values.get(`fanfare_fleet_limit_${name}`) ?? Number.NaN;
}
