// prometheus.test.js: a real Prometheus with the files of ops/ scrapes a real server under traffic,
// its Redis and the machine: every expression of the rules and of the dashboard parses, and has
// something to show.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { cp, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { freePort, startRedis } from '../harness/redis.js';
import { startServer, until } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { edited, startDaemon } from '../helpers/daemon.js';
import { APP, connectPusher } from '../helpers/pusher.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const MEMBERS = 4;
const PUBLISH_INTERVAL_MS = 20;
const API_INTERVAL_MS = 200;
const API_KEY = 'a-secret-of-the-test-with-enough-characters';
/** Samples of each series before anything is asked: a rate needs two. */
const SAMPLES = 4;

const missing = ['prometheus', 'prometheus-node-exporter', 'prometheus-redis-exporter'].filter(
  (command) => spawnSync(command, ['--version']).error,
);
const dashboard = JSON.parse(
  readFileSync(new URL('../../ops/grafana/fanfare.json', import.meta.url), 'utf8'),
);

test('a real Prometheus evaluates every rule and every panel, and a healthy server raises no alert', {
  timeout: 60_000,
  skip: missing.length > 0 && `not installed: ${missing.join(', ')}`,
}, async (t) => {
  const redis = await startRedis(t);
  const folder = temporaryFolder(t);
  const hooks = join(folder, 'hooks.js');
  await writeFile(hooks, 'exports.onPublish = () => true;\n');
  const webhooks = join(folder, 'webhooks.json');
  const secret = `whsec_${Buffer.alloc(32, 'k').toString('base64')}`;
  const url = await startReceiver(t);
  const endpoint = { url, secret, types: ['message.published'], rooms: ['*'] };
  await writeFile(webhooks, JSON.stringify([endpoint]));
  const server = await startServer(t, {
    REDIS_URL: redis.url,
    FANFARE_LIMITS: 'off',
    FANFARE_HOOKS: hooks,
    FANFARE_WEBHOOKS: webhooks,
    API_KEYS: `backend ${API_KEY} publish`,
    FANFARE_PUSHER_APP_ID: APP.id,
    FANFARE_PUSHER_APP_KEY: APP.key,
    FANFARE_PUSHER_APP_SECRET: APP.secret,
  });
  await talk(t, server.port);
  const prometheus = await startPrometheus(t, server, redis);
  await until(
    async () => {
      const good = await prometheus.query('sum_over_time(up[1m])');
      return good.length === 3 && Math.min(...good) >= SAMPLES;
    },
    20_000,
    `${SAMPLES} good scrapes of all three`,
  );

  await t.test(
    'every panel of ours shows figures, and so do those of the machine and of Redis',
    async () => {
      const expressions = panels().flatMap(({ title, targets }) =>
        targets.map(({ expr }) => ({ title, expr: filledIn(expr) })),
      );
      assert.ok(expressions.length > 80, `${expressions.length} expressions`);
      // After a scrape that a busy machine answers too late, all series are gone until the next.
      for (const { title, expr } of expressions.filter(({ expr }) => isMeasuredHere(expr)))
        await until(
          async () => (await prometheus.query(expr)).some(Number.isFinite),
          5000,
          `that ${title} has figures: ${expr}`,
        );
    },
  );

  await t.test('every variable has values', async () => {
    // Not the data source, and the addresses of links.
    const asked = dashboard.templating.list.filter(
      (/** @type {any} */ one) => one.type === 'query',
    );
    assert.equal(asked.length, 3);
    for (const { name, query } of asked) {
      const [, match, label] = /^label_values\((.+), (\w+)\)$/.exec(query.query) ?? [];
      const values = await prometheus.get(
        `label/${label}/values?match[]=${encodeURIComponent(match)}`,
      );
      assert.ok(values.length > 0, name);
    }
  });

  await t.test('every rule is evaluated, and what is recorded is there', async () => {
    const rules = await until(async () => {
      const { groups } = await prometheus.get('rules');
      const all = groups.flatMap((/** @type {{rules: Rule[]}} */ group) => group.rules);
      return all.every((/** @type {Rule} */ { health }) => health !== 'unknown') && all;
    });
    assert.ok(rules.length >= 40, `${rules.length} rules`);
    for (const { name, type, health, lastError } of rules) {
      assert.equal(health, 'ok', `${name}: ${lastError}`);
      if (type !== 'recording') continue;
      await until(
        async () => (await prometheus.query(name)).some(Number.isFinite),
        5000,
        `that ${name} has figures`,
      );
    }
    const firing = (await prometheus.get('alerts')).alerts.filter(
      (/** @type {{state: string}} */ { state }) => state === 'firing',
    );
    assert.deepEqual(firing, []);
    // Nor does it log an outage that has not been.
    assert.ok(!server.lines.some(({ msg }) => msg === 'Redis is available again'));
  });
});

/** @typedef {{name: string, type: string, health: string, lastError?: string}} Rule */
/** @typedef {{title: string, targets: {expr: string}[]}} Panel */

/** @returns {Panel[]} those that ask something */
function panels() {
  return dashboard.panels
    .flatMap((/** @type {any} */ panel) => [panel, ...(panel.panels ?? [])])
    .filter((/** @type {{targets?: unknown}} */ { targets }) => targets !== undefined);
}

/** Replaces variables as Grafana does when all values are chosen. @param {string} expr */
function filledIn(expr) {
  return expr.replaceAll('$__rate_interval', '1m').replaceAll(/\$(instance|node|redis)\b/g, '.*');
}

/**
 * The server of this test has no TLS, a container may have no network but the loopback, and not
 * every kernel has loaded the module for connection tracking.
 * @param {string} expr
 */
function isMeasuredHere(expr) {
  if (expr.includes('fanfare_tls_certificate')) return false;
  if (expr.includes('node_network_') && Object.keys(networkInterfaces()).length === 1) return false;
  return (
    !expr.includes('node_nf_conntrack') || existsSync('/proc/sys/net/netfilter/nf_conntrack_count')
  );
}

/**
 * A receiver of webhooks.
 * @param {import('node:test').TestContext} t
 * @returns {Promise<string>} its URL
 */
async function startReceiver(t) {
  const receiver = createServer((request, response) => {
    request.resume();
    response.writeHead(204).end();
  }).listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  t.after(() => {
    receiver.closeAllConnections();
    receiver.close();
  });
  return `http://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (receiver.address()).port}/`;
}

/**
 * Members of a room, and a Pusher client. One member, and a backend, publish all the time.
 * @param {import('node:test').TestContext} t @param {number} port
 */
async function talk(t, port) {
  const clients = await Promise.all(Array.from({ length: MEMBERS }, () => connect(t, port)));
  for (const client of clients) await client.join('square');
  await connectPusher(t, port);
  const timer = setInterval(
    () => clients[0].send({ type: 'message', payload: 'x'.repeat(100) }),
    PUBLISH_INTERVAL_MS,
  );
  const apiTimer = setInterval(() => {
    fetch(`http://127.0.0.1:${port}/api/publish`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${API_KEY}`, 'Content-Type': 'application/json' },
      body: '{"room":"square","payload":1}',
    }).then(
      (response) => response.arrayBuffer(),
      () => {}, // the server has stopped
    );
  }, API_INTERVAL_MS);
  t.after(() => {
    clearInterval(timer);
    clearInterval(apiTimer);
  });
}

/**
 * A Prometheus with ops/prometheus/: only addresses and intervals differ.
 * @param {import('node:test').TestContext} t
 * @param {import('../harness/server.js').Server} server
 * @param {import('../harness/redis.js').RedisServer} redis
 */
async function startPrometheus(t, server, redis) {
  const folder = temporaryFolder(t);
  const [port, nodePort, redisPort] = [await freePort(), await freePort(), await freePort()];
  const redisArgs = [`-redis.addr=${redis.url}`, `-web.listen-address=127.0.0.1:${redisPort}`];
  await Promise.all([
    startDaemon(
      t,
      'prometheus-node-exporter',
      [`--web.listen-address=127.0.0.1:${nodePort}`],
      nodePort,
    ),
    startDaemon(t, 'prometheus-redis-exporter', redisArgs, redisPort),
  ]);
  await cp(fileURLToPath(new URL('../../ops/prometheus', import.meta.url)), folder, {
    recursive: true,
  });
  const config = await edited('prometheus/prometheus.yml', [
    ["'fanfare-1:9090', 'fanfare-2:9090'", `'127.0.0.1:${server.metricsPort}'`],
    ['node-exporter:9100', `127.0.0.1:${nodePort}`],
    ['redis-exporter:9121', `127.0.0.1:${redisPort}`],
    ['scrape_interval: 15s', 'scrape_interval: 500ms\n  scrape_timeout: 500ms'],
    ['scrape_timeout: 5s', 'scrape_timeout: 500ms'],
    ['evaluation_interval: 15s', 'evaluation_interval: 500ms'],
  ]);
  await writeFile(`${folder}/prometheus.yml`, config);
  const args = [
    `--config.file=${folder}/prometheus.yml`,
    `--storage.tsdb.path=${folder}/data`,
    `--web.listen-address=127.0.0.1:${port}`,
    '--log.level=warn',
  ];
  await startDaemon(t, 'prometheus', args, port);
  await until(async () => (await fetch(`http://127.0.0.1:${port}/-/ready`)).ok);
  /**
   * @param {string} path
   * @returns {Promise<any>} what the answer holds; rejects where Prometheus finds fault with the
   *   question
   */
  const get = async (path) => {
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/${path}`);
    const { status, data, error } = /** @type {any} */ (await response.json());
    if (status !== 'success') throw new Error(`${decodeURIComponent(path)}: ${error}`);
    return data;
  };
  return {
    get,
    /**
     * @param {string} expr
     * @returns {Promise<number[]>} a value for each series
     */
    query: async (expr) => {
      const { result } = await get(`query?query=${encodeURIComponent(expr)}`);
      return result.map((/** @type {{value: [number, string]}} */ { value }) => Number(value[1]));
    },
  };
}
