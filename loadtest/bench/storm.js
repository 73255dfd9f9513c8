// storm.js: a reconnect storm: a server drains, and all of its clients move to a second server.
//
// Other connections are at the second server already (others.js). All processes share the
// processors, the server that drains among them.

import { percentileMs } from '../../test/harness/latency.js';
import { machineSeconds } from './machine.js';
import { Others } from './others.js';
import { startServer } from './servers.js';
import { broadcast } from './step.js';

/**
 * @param {object} options
 * @param {import('./servers.js').Target} options.target the server that drains
 * @param {import('./swarm.js').Swarm} options.swarm has connections there, in group 0
 * @param {string} options.server the kind of the second server
 * @param {number} options.workers
 * @param {Record<string, string>} options.env of the second server
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
  env,
  obey,
  timeoutMs,
  payloadBytes,
  sources,
}) {
  // Both servers of a fleet have the same Redis.
  const shared = target.redisUrl === '' ? env : { ...env, REDIS_URL: target.redisUrl };
  const second = await startServer(server, { workers, env: shared });
  const others = new Others(second, payloadBytes);
  try {
    await others.open(sources);
    await others.rest();
    await swarm.aim(second);
    const cpuBefore = { server: second.cpuSeconds(), machine: machineSeconds() };
    const returning = swarm.comeBack({
      timeoutMs,
      obey,
      onReady() {
        process.kill(target.pids()[0], 'SIGTERM');
      },
    });
    const { result, others: meanwhile } = await others.during(returning);
    const { histogram, ...back } = result;
    const machine = machineSeconds();
    const serverCpuSeconds = second.cpuSeconds() - cpuBefore.server;
    // The rooms of a server are whole again when a broadcast reaches all that have returned.
    const after = await broadcast(second, swarm, { perSecond: 1, seconds: 1, payloadBytes });
    return {
      ...back,
      awayP50Seconds: percentileMs(histogram, 0.5) / 1000,
      awayP99Seconds: percentileMs(histogram, 0.99) / 1000,
      serverCpuSeconds,
      machineBusySeconds: machine.busy - cpuBefore.machine.busy,
      stolenSeconds: machine.stolen - cpuBefore.machine.stolen,
      workerPssKb: second.pssKb() / (workers + 1),
      others: meanwhile,
      after: {
        expected: after.expected,
        received: after.received,
        isClean: after.isClean,
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
