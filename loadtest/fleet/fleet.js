// fleet.js: measures the load of a fleet of workers on its Redis, or on a Redis Cluster.
//
//   node loadtest/fleet/fleet.js                        64 workers, 10,000 quiet rooms, one Redis
//   node loadtest/fleet/fleet.js --workers 640
//   node loadtest/fleet/fleet.js --cluster --workers 24 --rooms 20000
//
// Simulated workers (workers.js) run the Redis backend and the recovery of the server against real
// redis-servers. They have no clients, so a machine can hold hundreds of them. Redis itself counts
// its commands and its CPU; the workers count the messages that reach them.
//
// Limits: the workers share the machine with Redis. If they can't read fast enough, Redis delivers
// fewer messages. So the report shows the CPU of the workers, too.

import { mkdirSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname } from 'node:path';
import { readOptions } from '../../test/harness/options.js';
import { startRedis } from '../../test/harness/redis.js';
import { pause, print, run } from '../../test/harness/run.js';
import { show } from '../lib/figures.js';
import { CLUSTER_PHASES, ClusterRun } from './cluster.js';
import { difference, Readings } from './readings.js';
import { clusterReport, singleRedisReport } from './report.js';
import { WorkerProcesses } from './worker-processes.js';

const PHASES = ['idle', 'churn', 'rooms', 'fan-out'];
const { values } = readOptions(
  'Measures the load of a fleet of workers on one Redis, or on a Redis Cluster.',
  `workers N | whole 1..2000 | 64 | simulated workers
  per-server N | whole 1..1000 | 8 | workers of a server
  processes N | whole 1..64 | ${availableParallelism()} | processes that hold them
  rooms N | whole 1..1000000 | 10000 | rooms: with one Redis quiet ones with history, each followed by one worker; in a cluster, each has one to four workers
  seconds S | number 0.1..600 | 12 | duration of each phase
  settle S | number 0..600 | 4 | time before each phase, which is not measured
  phases LIST | list of ${[...new Set([...PHASES, ...CLUSTER_PHASES])].join(' ')} | | phases to run; without, ${PHASES.join()}, or with --cluster ${CLUSTER_PHASES.join()}
  save PATH | | | writes the report to PATH.json and PATH.md
  One Redis
  rate N | whole 1..1000 | 20 | publications a second to the room of all workers
  A cluster of three primaries and three replicas
  cluster | | | starts one instead of one Redis
  history PERCENT | whole 0..100 | 1 | rooms that have history
  rates LIST | list of whole 1..10000 | 10,100,1000 | publications a second to the room of all workers; ends at the first that this machine cannot deliver
  chat N | whole 0..10000 | 100 | publications a second to random rooms, while something fails, moves or restarts
  slots N | whole 1..5000 | 50 | slots to move
  restarts N | whole 1..1000 | 1000 | servers to restart, at most all
  node-timeout MS | whole 500..60000 | 5000 | its cluster-node-timeout`,
  {
    check: ({ values: { phases, cluster } }) => {
      const known = cluster ? CLUSTER_PHASES : PHASES;
      const wrong = (phases || []).find((/** @type {string} */ name) => !known.includes(name));
      if (wrong !== undefined)
        return `--phases: ${cluster ? 'a cluster' : 'one Redis'} has no ${wrong}`;
    },
  },
);
const { workers: workerCount, rooms: roomCount, seconds, settle, save, perServer } = values;
const processCount = Math.min(values.processes, workerCount);
const phases = /** @type {readonly string[]} */ (
  values.phases || (values.cluster ? CLUSTER_PHASES : PHASES)
);
const LIMIT_MS =
  120_000 +
  phases.length * 1000 * (settle + seconds) +
  100 * workerCount +
  (values.cluster ? roomCount : 0);
/** The file is never rewritten, so it grows by the writes of the workers. */
const REDIS_ARGS = ['--appendonly', 'yes', '--auto-aof-rewrite-percentage', '0'];

/** @param {import('../../test/harness/run.js').Run} test @param {WorkerProcesses} workers */
async function onOneRedis(test, workers) {
  const server = await startRedis(test, { args: REDIS_ARGS });
  const readings = new Readings(test, workers, [server]);
  /** @type {Record<string, import('./readings.js').Rates>} */
  const results = {};
  /** @param {string} phase */
  const measure = async (phase) => {
    await pause(1000 * settle);
    const before = await readings.read();
    await pause(1000 * seconds);
    results[phase] = difference(before, await readings.read());
    test.note(phase, `${show(100 * results[phase].cpu, 1)} % of a core`);
  };
  const env = { REDIS_URL: server.url, FANFARE_HISTORY: 'quiet.*=100/1h' };
  const order = { env, perServer, workers: workerCount };
  const up = await workers.share('open', workerCount, order);
  test.check('workers that have reached Redis', workerCount, up);
  if (phases.includes('idle')) await measure('idle');
  if (phases.includes('churn')) {
    await workers.all('churn', { isOn: true });
    await measure('churn');
    await workers.all('churn', { isOn: false });
  }
  if (phases.includes('rooms')) {
    const reached = await workers.share('follow', roomCount);
    test.check('rooms whose position is known', roomCount, reached);
    await measure('rooms');
  }
  if (phases.includes('fan-out')) {
    await workers.all('share');
    const publishing = workers.first('publish', {
      perSecond: values.rate,
      seconds: settle + seconds + 1,
    });
    await measure('fan-out');
    await publishing;
    const { count } = results['fan-out'].delays;
    test.check('deliveries to the room of all workers', '> 0', count, count > 0);
  }
  const report = singleRedisReport(results, { workers: workerCount, rooms: roomCount });
  return { results, report };
}

/** @param {import('../../test/harness/run.js').Run} test @param {WorkerProcesses} workers */
async function onCluster(test, workers) {
  const { history, rates, chat, slots, restarts, nodeTimeout: nodeTimeoutMs } = values;
  const clusterRun = new ClusterRun(test, workers, {
    ...{ workers: workerCount, rooms: roomCount, perServer, seconds, settle, phases },
    ...{ history, rates, chat, slots, restarts, nodeTimeoutMs },
  });
  await clusterRun.start();
  const { phases: results, memberships } = clusterRun;
  const report = clusterReport(results, { workers: workerCount, rooms: roomCount, memberships });
  return { results, report };
}

await run(
  `Redis under ${workerCount} workers`,
  async (test) => {
    const workers = new WorkerProcesses(test, processCount);
    const measure = values.cluster ? onCluster : onOneRedis;
    const { results, report } = await measure(test, workers);
    await workers.all('close');
    print(`\n${report.join('\n')}\n`);
    if (save === '') return;
    mkdirSync(dirname(save), { recursive: true });
    writeFileSync(`${save}.md`, `${report.join('\n')}\n`);
    const options = { ...values, processes: processCount, phases };
    const text = JSON.stringify({ options, results }, (key, value) =>
      key === 'delays' ? undefined : value,
    );
    writeFileSync(`${save}.json`, `${text}\n`);
  },
  LIMIT_MS,
);
