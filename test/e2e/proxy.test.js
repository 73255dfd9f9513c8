// proxy.test.js: Fanfare behind real load balancers: HAProxy and nginx with the configurations of
// ops/.
//
// Each client address here is one of 127.0.0.0/8, and the proxy speaks from 127.0.0.1. The same
// with clients in network namespaces is test/faults/per-ip.test.js.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { createServer, connect as dial } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import WebSocket from 'ws';
import { freePort, startRedis } from '../harness/redis.js';
import { scrape, startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { makeCertificate } from '../helpers/certificates.js';
import { Client, connect, handshakeStatus } from '../helpers/clients.js';
import { startHaproxy, startNginx } from '../helpers/proxies.js';
import { APP, startPusher } from '../helpers/pusher.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

/** @typedef {import('node:test').TestContext} TestContext */

const OPTIONS = { timeout: 60_000 };
const secret = newSecret();
const lasting = shared((owner) =>
  startServer(owner, {
    API_KEYS: `test ${secret} publish`,
    FANFARE_LIMITS: 'off',
    WORKERS: '1',
  }),
);
const tlsOnly = shared((owner) =>
  startPusher(owner, { tlsOnly: true }, { TRUST_PROXY: '127.0.0.1/32', WORKERS: '1' }),
);
const capped = shared((owner) =>
  startServer(owner, {
    TRUST_PROXY: '127.0.0.1/32',
    FANFARE_MAX_CONNECTIONS_PER_IP: String(CAP),
    WORKERS: '1',
  }),
);
/** The second one of two servers, which outlives the first ones. */
const second = shared(async (owner) => {
  const redis = await startRedis(owner);
  const env = { REDIS_URL: redis.url, FANFARE_LIMITS: 'off', WORKERS: '1' };
  return { env, server: await startServer(owner, { ...env, SERVER_ID: 'server-2' }) };
});
const CAP = 5;
const MEMBERS = 6;
const VISITORS = 2;
/** Between two visits of a visitor: enough of them, and the servers have time for the rest. */
const VISIT_PAUSE_MS = 10;

for (const { name, start, drainDelayMs } of [
  // Two checks, a second apart, and some: HAProxy has seen it before anyone is sent away.
  { name: 'HAProxy', start: startHaproxy, drainDelayMs: 4000 },
  // nginx does not check by itself: it learns from the first handshake that is refused.
  { name: 'nginx', start: startNginx, drainDelayMs: 0 },
]) {
  test(
    `behind ${name} no handshake fails while one of two servers reloads, then drains`,
    OPTIONS,
    async (t) => {
      const { env, server: staying } = await second();
      const server = await startServer(t, {
        ...env,
        SERVER_ID: 'server-1',
        FANFARE_DRAIN_DELAY_MS: String(drainDelayMs),
      });
      const port = await start(t, [server.port, staying.port]);
      let members = await Promise.all(Array.from({ length: MEMBERS }, () => joined(t, port)));
      const onFirst = members.filter(({ serverId }) => serverId === 'server-1').length;
      assert.equal(onFirst, MEMBERS / 2, 'least connections has dealt them out evenly');
      await everyoneHears(members, 'before');

      const visitors = new Visitors(t, port);
      server.kill('SIGHUP');
      await server.line(({ msg }) => msg === 'reload complete', 30_000);
      members = await back(t, port, members, 'server-1');
      await everyoneHears(members, 'after the reload');
      await until(
        () => visitors.recent().includes('server-1'),
        10_000,
        'a visit to the reloaded server',
      );

      server.kill('SIGTERM');
      if (drainDelayMs > 0) {
        await until(
          () => visitors.recent().every((where) => where === 'server-2'),
          drainDelayMs,
          'that nobody new gets to the server that drains',
        );
        assert.ok(
          members.every(({ client }) => client.close === null),
          'before anyone is sent away',
        );
      }
      members = await back(t, port, members, 'server-1');
      assert.deepEqual(await server.exited, { code: 0, signal: null });
      await everyoneHears(members, 'after the drain');
      const visits = visitors.visits.length;
      await until(
        () => visitors.visits.length > visits + 20,
        10_000,
        'visits without the first server',
      );

      const ends = new Set(await visitors.stop());
      // 1012: it was in, and was sent away with the others.
      for (const fine of ['server-1', 'server-2', '1012']) ends.delete(fine);
      assert.deepEqual([...ends], []);
      assert.equal(new Set(members.map(({ serverId }) => serverId)).size, 1);
    },
  );
}

for (const { name, start } of [
  { name: 'HAProxy', start: startHaproxy },
  { name: 'nginx', start: startNginx },
]) {
  test(
    `behind ${name} a handshake that meets a dead server goes to the other one`,
    OPTIONS,
    async (t) => {
      const alive = await lasting();
      // It answers health checks while the proxy starts.
      const dead = createHttpServer((_request, response) => response.end());
      t.after(() => dead.close());
      await once(dead.listen(0, '127.0.0.1'), 'listening');
      const { port: itsPort } = /** @type {import('node:net').AddressInfo} */ (dead.address());
      const port = await start(t, [itsPort, alive.port]);
      dead.close();
      dead.closeAllConnections();
      await once(dead, 'close');
      // At once: a health check takes two seconds to notice.
      const statuses = await Promise.all(Array.from({ length: 8 }, () => handshakeStatus(port)));
      assert.deepEqual([...new Set(statuses)], [101]);
    },
  );
}

for (const { name, start } of [
  { name: 'HAProxy', start: startHaproxy },
  { name: 'nginx', start: startNginx },
]) {
  test(`${name} says whether a client came by TLS, and clients cannot`, OPTIONS, async (t) => {
    const { port } = await tlsOnly();
    const folder = temporaryFolder(t);
    const { cert, key } = await makeCertificate(folder, 'proxy');
    const pem = join(folder, 'both.pem');
    await writeFile(pem, `${await readFile(cert)}${await readFile(key)}`);
    const open = async (/** @type {string} */ base, /** @type {string} */ proto) => {
      const socket = new WebSocket(`${base}/app/${APP.key}?protocol=7`, {
        headers: { 'X-Forwarded-Proto': proto },
        rejectUnauthorized: false,
      });
      t.after(() => socket.terminate());
      const [data] = await once(socket, 'message');
      return JSON.parse(String(data)).event;
    };
    const [plain, tls] = [await start(t, [port]), await start(t, [port], { pem })];
    assert.equal(await open(`ws://127.0.0.1:${plain}`, 'https'), 'pusher:error');
    assert.equal(await open(`wss://127.0.0.1:${tls}`, 'http'), 'pusher:connection_established');
  });
}

for (const { name, start } of [
  { name: 'HAProxy', start: startHaproxy },
  { name: 'nginx', start: startNginx },
]) {
  test(
    `${name} never repeats a publish whose server ends before it answers`,
    OPTIONS,
    async (t) => {
      const server = await lasting();
      const room = `orders.${name}`;
      // Both addresses carry a POST out and then lose its answer, so each repetition is delivered.
      const lossy = [await withoutAnswers(t, server.port), await withoutAnswers(t, server.port)];
      const port = await start(
        t,
        lossy.map((one) => one.port),
      );
      const member = await connect(t, server.port);
      await member.join(room);

      const answer = await fetch(`http://127.0.0.1:${port}/api/publish`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${secret}`, 'Content-Type': 'application/json' },
        body: JSON.stringify({ room, payload: 'pay 100' }),
      });
      assert.equal(answer.status, 502);
      // A message that comes after every repetition.
      await apiOf(server, secret)('/publish', { body: { room, payload: 'the end' } });
      await until(
        () => member.all('message').at(-1)?.payload === 'the end',
        10_000,
        'the last message',
      );
      assert.deepEqual(
        member.all('message').map(({ payload }) => payload),
        ['pay 100', 'the end'],
      );
      assert.equal(lossy[0].posts() + lossy[1].posts(), 1);
    },
  );
}

for (const { name, net, start } of [
  { name: 'HAProxy', net: '127.0.1', start: startHaproxy },
  { name: 'nginx', net: '127.0.2', start: startNginx },
  {
    name: 'an nginx that passes on what clients claim',
    net: '127.0.3',
    start: (/** @type {TestContext} */ t, /** @type {number[]} */ ports) =>
      startNginx(t, ports, { appends: true }),
  },
]) {
  test(
    `behind ${name} each real address has a cap of its own, whatever it forges`,
    OPTIONS,
    async (t) => {
      const server = await capped();
      // Those of the test before have left.
      const before = await until(async () => {
        const { values } = await scrape(server.metricsPort);
        return values.get('websocket_connections_total') === 0 ? values : null;
      });
      const port = await start(t, [server.port]);
      for (const [localAddress, forged] of [
        [`${net}.2`, []],
        [`${net}.3`, ['203.0.113.9', '127.0.0.1', `${net}.2, 127.0.0.1`]],
        [`${net}.4`, [`${net}.2`, 'nonsense', '']],
      ]) {
        const statuses = [];
        for (let i = 0; i < CAP; i++) {
          await connect(t, port, {
            localAddress: String(localAddress),
            headers: headers(forged, i),
          });
        }
        for (let i = 0; i < 4; i++) {
          statuses.push(
            await handshakeStatus(port, {
              localAddress: String(localAddress),
              headers: headers(forged, i),
            }),
          );
        }
        assert.deepEqual(statuses, [429, 429, 429, 429], `${localAddress}`);
      }
      const { values } = await scrape(server.metricsPort);
      assert.equal(values.get('websocket_connections_total'), 3 * CAP);
      const refused = 'fanfare_admissions_refused_total{reason="per_ip"}';
      assert.equal(Number(values.get(refused)) - (before.get(refused) ?? 0), 12);
    },
  );
}

test(
  'without TRUST_PROXY the header counts for nothing: all behind the proxy are one address',
  OPTIONS,
  async (t) => {
    const server = await startServer(t, {
      FANFARE_MAX_CONNECTIONS_PER_IP: String(CAP),
      WORKERS: '1',
    });
    const port = await startHaproxy(t, [server.port]);
    for (let i = 0; i < CAP; i++) {
      await connect(t, port, {
        localAddress: `127.0.0.${i + 2}`,
        headers: { 'X-Forwarded-For': `203.0.113.${i}` },
      });
    }
    const headers = { 'X-Forwarded-For': '203.0.113.99' };
    assert.equal(await handshakeStatus(port, { localAddress: '127.0.0.99', headers }), 429);
  },
);

/**
 * An address of a server that loses its answers to POST, as if it died after it carried them out.
 * @param {TestContext} t
 * @param {number} target the server's port
 */
async function withoutAnswers(t, target) {
  let posts = 0;
  const listener = createServer((client) => {
    const server = dial(target, '127.0.0.1');
    for (const socket of [client, server]) {
      socket.on('error', () => {});
      t.after(() => socket.destroy());
    }
    let isPost = false;
    client.on('data', (data) => {
      if (data.includes('POST /')) {
        isPost = true;
        posts++;
      }
      server.write(data);
    });
    server.on('data', (data) => {
      if (isPost) client.destroy();
      else client.write(data);
    });
    client.on('close', () => server.destroy());
    server.on('close', () => client.destroy());
  });
  t.after(() => listener.close());
  await once(listener.listen(0, '127.0.0.1'), 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (listener.address());
  return { port, posts: () => posts };
}

test('nginx writes no token into its log, even if no server is there', OPTIONS, async (t) => {
  const log = `${temporaryFolder(t)}/error.log`;
  const port = await startNginx(t, [await freePort()], { log });
  for (const path of ['/sse?room=news&token=SECRET', '/ws?token=SECRET'])
    assert.equal((await fetch(`http://127.0.0.1:${port}${path}`)).status, 502);
  assert.doesNotMatch(await readFile(log, 'utf8'), /SECRET/);
});

/** @param {string|string[]} forged @param {number} i @returns {Record<string, string>} */
function headers(forged, i) {
  return forged.length === 0 ? {} : { 'X-Forwarded-For': forged[i % forged.length] };
}

/** @typedef {{client: Client, serverId: string}} Member */

/** @param {TestContext} t @param {number} port @returns {Promise<Member>} */
async function joined(t, port) {
  const client = await connect(t, port);
  await client.join('square');
  const { serverId } = await client.ask({ type: 'hello' }, 'welcome');
  return { client, serverId };
}

/**
 * Waits until the members of one server have been sent away, and brings them back in time.
 * @param {TestContext} t @param {number} port @param {Member[]} members @param {string} serverId
 */
async function back(t, port, members, serverId) {
  return Promise.all(
    members.map(async (member) => {
      if (member.serverId !== serverId) {
        assert.equal(member.client.close, null, 'a client of the other server has noticed nothing');
        return member;
      }
      assert.equal((await member.client.closed(20_000)).code, 1012);
      assert.equal(member.client.all('SERVER_SHUTDOWN').length, 1);
      return joined(t, port);
    }),
  );
}

/** @param {Member[]} members @param {string} text */
async function everyoneHears(members, text) {
  members[0].client.send({ type: 'message', payload: text });
  for (const { client } of members) assert.equal((await client.next('message')).payload, text);
}

/** Clients that come and go all the time. */
class Visitors {
  /** @param {TestContext} t @param {number} port */
  constructor(t, port) {
    /** Where each visit ended: a server, 1012, or what went wrong. @type {string[]} */
    this.visits = [];
    this.isOver = false;
    t.after(() => this.stop());
    this.running = Array.from({ length: VISITORS }, async () => {
      while (!this.isOver) {
        this.visits.push(await visit(port));
        await new Promise((resolve) => setTimeout(resolve, VISIT_PAUSE_MS));
      }
    });
  }

  /** The latest of them, some of each visitor. */
  recent() {
    return this.visits.slice(-5 * VISITORS);
  }

  async stop() {
    this.isOver = true;
    await Promise.all(this.running);
    return this.visits;
  }
}

/** @param {number} port @returns {Promise<string>} */
async function visit(port) {
  const client = new Client(`ws://127.0.0.1:${port}/`);
  try {
    await client.opened;
    const { serverId } = await client.ask({ type: 'hello' }, 'welcome');
    return serverId;
  } catch (error) {
    return client.close?.code === 1012 ? '1012' : `${/** @type {Error} */ (error).message}`;
  } finally {
    client.socket.terminate();
  }
}
