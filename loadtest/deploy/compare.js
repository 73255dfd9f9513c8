// compare.js: what users feel when two servers behind HAProxy are restarted one after the other:
// Fanfare and other systems, each with the client that its users have.
//
//   node loadtest/deploy/compare.js               3 rounds, 2,000 clients: about 35 minutes
//   node loadtest/deploy/compare.js --clients 200 --rounds 1 --only fanfare,plain-ws
//
// In a round each system gets new servers, a new Redis and new clients. All clients connect, a
// backend publishes 50 messages a second, and a second later each server gets SIGTERM in turn: it
// ends, starts again, and the load balancer sees it. The run ends when every client is back, or
// after --patience seconds.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePort, startRedis } from '../../test/harness/redis.js';
import { pause } from '../../test/harness/run.js';
import { until } from '../../test/harness/server.js';
import { experiment } from '../lib/experiment.js';
import { median, show } from '../lib/figures.js';
import { Haproxy } from './haproxy.js';
import { Program } from './program.js';
import { Publisher } from './publisher.js';
import { tableOf } from './report.js';
import { APP, ROOM_SIZE } from './settings.js';
import { StockClients } from './stock-clients.js';
import { isPresent, SYSTEMS } from './systems.js';

const NAMES = Object.keys(SYSTEMS);
const SERVERS = 2;
const PROCESSES = 2;
/** Undisturbed traffic before the first server stops. */
const CALM_MS = 1000;
/** After a restart the load balancer has seen the server for this long before the next one stops. */
const BETWEEN_MS = 5000;
/** When all are back, messages under way may still arrive. */
const SETTLE_MS = 3000;

/** @import { Figures } from './stock-clients.js' */
/** @import { System } from './systems.js' */
/** @import { Owner } from '../../test/harness/server.js' */

/**
 * Starts two servers of a system behind HAProxy, and all clients.
 * @param {Owner} owner @param {System} system @param {number} count of clients
 */
async function setUp(owner, system, count) {
  const folder = await mkdtemp(join(tmpdir(), 'fanfare-deploy-'));
  owner.after(() => rm(folder, { recursive: true, force: true }));
  const apps = join(folder, 'apps.json');
  await writeFile(apps, JSON.stringify([APP]));
  const redis = await startRedis(owner);
  /** @type {Program[]} */
  const servers = [];
  for (let i = 0; i < SERVERS; i++) {
    const port = await freePort();
    const env = system.env({ port, apps, redisUrl: redis.url, redisPort: redis.port });
    const server = new Program(system.command, env, port);
    owner.after(() => server.kill());
    await server.start();
    servers.push(server);
  }
  const haproxy = await Haproxy.start(owner, {
    folder,
    servers: servers.map(({ port }) => port),
    readyPath: system.readyPath,
    ports: [await freePort(), await freePort()],
  });
  for (let i = 0; i < SERVERS; i++) await until(() => haproxy.isUp(i), 30_000, 'a healthy server');
  const clients = new StockClients(owner, {
    ...{ kind: system.client, port: haproxy.clientPort, count, processes: PROCESSES },
  });
  const rooms = Math.ceil(count / ROOM_SIZE);
  const publisher = new Publisher(system.publisher, haproxy.publishPort, rooms);
  return { servers, haproxy, clients, publisher };
}

/** @typedef {Awaited<ReturnType<typeof setUp>>} Setup */

/**
 * @param {Setup} setup
 * @param {{perSecond: number, patience: number}} options
 */
async function restartAll({ servers, haproxy, clients, publisher }, { perSecond, patience }) {
  if (!(await clients.allJoined())) throw new Error('not all clients can connect');
  const before = await haproxy.handshakes();
  await clients.begin();
  haproxy.watch();
  publisher.start(perSecond);
  await pause(CALM_MS);
  const stopSeconds = [];
  for (const [i, server] of servers.entries()) {
    stopSeconds.push(await server.stop());
    await server.start();
    await until(() => haproxy.isUp(i), 30_000, 'the return of a server');
    await pause(BETWEEN_MS);
  }
  const areBack = await clients.allJoined(patience * 1000);
  await publisher.stop();
  await pause(SETTLE_MS);
  const peak = haproxy.stopWatching();
  const after = await haproxy.handshakes();
  const figures = await clients.report(publisher.accepted);
  return {
    ...summaryOf(figures),
    areBack,
    peakHandshakesPerSecond: peak,
    refusedHandshakes: after.refused - before.refused,
    // The server took the handshake, and closed the connection before it answered the subscription.
    failedJoins: Math.max(0, after.accepted - before.accepted - joinsOf(figures)),
    published: [...publisher.accepted.values()].reduce((sum, { length }) => sum + length, 0),
    repeatedPublishes: publisher.repeated,
    stopSeconds,
  };
}

/** @param {readonly Figures[]} figures */
const joinsOf = (figures) => figures.reduce((sum, { joins }) => sum + joins, 0);

/** @param {readonly Figures[]} figures */
function summaryOf(figures) {
  const down = figures.map(({ downMs }) => downMs / 1000).sort((a, b) => a - b);
  const at = (/** @type {number} */ share) => down[Math.ceil(share * down.length) - 1];
  const sum = (/** @type {'losses'|'lost'|'twice'} */ key) =>
    figures.reduce((total, one) => total + one[key], 0);
  return {
    clients: figures.length,
    away: figures.filter(({ isBack }) => !isBack).length,
    downP50Seconds: median(down),
    downP99Seconds: at(0.99),
    downMaxSeconds: at(1),
    disconnects: sum('losses'),
    lost: sum('lost'),
    twice: sum('twice'),
  };
}

/** @param {readonly {load: number}[]} rounds @returns {string} */
function loadOf(rounds) {
  const loads = rounds.map(({ load }) => load);
  return `Load of the machine before each run: ${show(Math.min(...loads), 1)} to ${show(Math.max(...loads), 1)}.`;
}

/** The other servers and clients are not installed with Fanfare. @param {readonly string[]} names */
function installOthers(names) {
  const folder = fileURLToPath(new URL('.', import.meta.url));
  if (names.every((name) => name.startsWith('fanfare'))) return;
  if (existsSync(join(folder, 'node_modules'))) return;
  console.log('installing the other servers (npm ci --prefix loadtest/deploy)');
  execFileSync('npm', ['ci', '--no-audit', '--no-fund', '--prefix', folder], { stdio: 'inherit' });
}

await experiment({
  question: `What do users feel when two servers behind HAProxy restart one after the other?

  node loadtest/deploy/compare.js --clients 200 --rounds 1 --only fanfare,plain-ws`,
  options: `
    clients N | whole 2..20000 | 2000 | in rooms of ${ROOM_SIZE}
    rate N | number 1..1000 | 50 | messages a second, to one room after the other
    rounds N | whole 1..20 | 3 | each measures all systems in turn
    patience S | number 1..600 | 60 | seconds until all clients must be back
    only LIST | list of ${NAMES.join(' ')} | ${NAMES.join(',')} | which systems`,
  variants: ({ only }) => {
    installOthers(only);
    const names = only.filter((/** @type {string} */ name) => isPresent(name));
    for (const name of only.filter((/** @type {string} */ name) => !names.includes(name)))
      console.log(`${name} is left out: it is not installed`);
    return names;
  },
  setup: ({ owner, variant }) => ({ owner, name: variant }),
  measure: async ({ owner, name }, { values }) => {
    const { clients, rate: perSecond, patience } = values;
    const { title } = SYSTEMS[name];
    const [load] = loadavg();
    try {
      const parts = await setUp(owner, SYSTEMS[name], clients);
      const figures = await restartAll(parts, { perSecond, patience });
      console.log(name, JSON.stringify(figures));
      return { name, title, load, ...figures };
    } catch (error) {
      // A server that cannot start in time on a busy machine says nothing about the others.
      console.log(`${name} is left out of this round:`, error);
      return null;
    }
  },
  report: (rounds, { clients, rate }) => {
    const measured = rounds.map((round) => round.filter((one) => one !== null));
    const all = measured.flat();
    return {
      title: 'Deploys compared',
      note: `${clients} clients in rooms of ${ROOM_SIZE}, ${rate} messages a second, two servers`,
      lines: [...tableOf(all), '', loadOf(all)],
      data: { rounds: measured },
      failed: all.length < rounds.flat().length,
    };
  },
});
