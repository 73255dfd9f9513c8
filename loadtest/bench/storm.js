// storm.js: a reconnect storm: a server drains, and all of its clients move to a second server.
//
// Other connections are at the second server already. They get messages at a steady rate before the
// storm and meanwhile, from a client process of their own, so the difference is the server's and
// the machine's. All processes share the processors, the server that drains among them.

import { percentileMs } from '../lib/latency.js';
import { machineSeconds } from './machine.js';
import { startServer } from './servers.js';
import { findClient, Swarm } from './swarm.js';
import { clean, measured, openAll } from './workloads.js';

const OTHERS = Object.freeze({ count: 1000, room: 'others', perSecond: 10 });
/** The others' messages are sent in runs of this length until the storm is over. */
const RUN_SECONDS = 3;

/**
 * @param {object} options
 * @param {import('./servers.js').Target} options.target the server that drains
 * @param {Swarm} options.swarm has connections there, in group 0
 * @param {string} options.server the kind of the second server
 * @param {number} options.workers
 * @param {boolean} options.obey the clients wait for the delay that the server names
 * @param {number} options.timeoutMs
 * @param {number} options.payloadBytes
 * @param {number} options.sources
 */
export async function storm({
  target,
  swarm,
  server,
  workers,
  obey,
  timeoutMs,
  payloadBytes,
  sources,
}) {
  // Both servers of a fleet have the same Redis.
  const env = target.redisUrl === '' ? undefined : { REDIS_URL: target.redisUrl };
  const second = await startServer(server, { workers, env });
  const others = new Swarm({ client: findClient('c'), processes: 1 }).start();
  try {
    await others.aim(second);
    await openAll(others, { count: OTHERS.count, room: OTHERS.room, sources });
    const run = {
      perSecond: OTHERS.perSecond,
      seconds: RUN_SECONDS,
      payloadBytes,
      drainMs: 30_000,
    };
    await others.run(run);
    const before = await measured(second, () => others.run(run));
    await swarm.aim(second);
    const cpuBefore = { server: second.cpuSeconds(), machine: machineSeconds() };
    let over = false;
    const returning = swarm
      .comeBack({
        timeoutMs,
        obey,
        onReady: () => process.kill(target.pids()[0], 'SIGTERM'),
      })
      .finally(() => {
        over = true;
      });
    /** @type {import('./workloads.js').Step[]} */
    const runs = [];
    while (!over) runs.push(await measured(second, () => others.run(run)));
    const { histogram, ...back } = await returning;
    const machine = machineSeconds();
    const serverCpuSeconds = second.cpuSeconds() - cpuBefore.server;
    // The rooms of a server are whole again when a broadcast reaches all that have returned.
    const after = await measured(second, () =>
      swarm.run({ perSecond: 1, seconds: 1, payloadBytes, drainMs: 60_000 }),
    );
    return {
      ...back,
      awayP50Seconds: percentileMs(histogram, 0.5) / 1000,
      awayP99Seconds: percentileMs(histogram, 0.99) / 1000,
      serverCpuSeconds,
      machineBusySeconds: machine.busy - cpuBefore.machine.busy,
      stolenSeconds: machine.stolen - cpuBefore.machine.stolen,
      workerPssKb: second.pssKb() / (workers + 1),
      others: {
        count: OTHERS.count,
        perSecond: OTHERS.perSecond,
        beforeP50Ms: before.p50Ms,
        beforeP99Ms: before.p99Ms,
        isClean: runs.every(clean) && clean(before),
        ...together(runs),
      },
      after: {
        expected: after.expected,
        received: after.received,
        isClean: clean(after),
        p50Ms: after.p50Ms,
        p99Ms: after.p99Ms,
        maxMs: after.maxMs,
      },
    };
  } finally {
    await others.close();
    await second.close();
  }
}

/** @param {readonly import('./workloads.js').Step[]} runs */
function together(runs) {
  const histogram = new Float64Array(runs[0].histogram.length);
  for (const run of runs) for (const [i, count] of run.histogram.entries()) histogram[i] += count;
  const sum = (/** @type {'expected'|'received'|'lost'} */ key) =>
    runs.reduce((total, run) => total + run[key], 0);
  return {
    expected: sum('expected'),
    received: sum('received'),
    lost: sum('lost'),
    p50Ms: percentileMs(histogram, 0.5),
    p99Ms: percentileMs(histogram, 0.99),
    maxMs: Math.max(...runs.map((run) => run.maxMs)),
    p99MsByRun: runs.map((run) => run.p99Ms),
  };
}
