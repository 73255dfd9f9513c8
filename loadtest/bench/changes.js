// changes.js: what befalls a server with very many connections: a part is cut off at once and
// returns, members join and leave other rooms, a reload replaces all workers.
//
// Meanwhile 1,000 others get messages (others.js). After each change a broadcast has to reach all.

import { setTimeout as sleep } from 'node:timers/promises';
import { percentileMs } from '../../test/harness/latency.js';
import { machineSeconds } from './machine.js';
import { broadcast } from './step.js';

const POLL_MS = 200;
/** Rooms that members join and leave in turn. */
const ROOMS = 1000;
const ATTEMPTS = 3;
/** A broadcast to all has this time. */
const DRAIN_MS = 60_000;

/** @typedef {import('./others.js').Others} Others */
/** @typedef {import('./servers.js').Target} Target */
/** @typedef {import('./swarm.js').Swarm} Swarm */

/**
 * Clients of a share of the connections vanish at once, and connect again.
 * @param {object} options @param {Target} options.target @param {Swarm} options.swarm
 * @param {Others} options.others
 * @param {number} options.connections in all @param {number} options.dropped of these
 * @param {number} options.concurrency @param {number} options.sources
 * @param {number} options.payloadBytes
 */
export async function drop({
  target,
  swarm,
  others,
  connections,
  dropped,
  concurrency,
  sources,
  payloadBytes,
}) {
  const run = async () => {
    const [started, cpu, machine] = [performance.now(), target.cpuSeconds(), machineSeconds().busy];
    await swarm.hangUp({ keep: connections - dropped });
    let failed = 0;
    let open = connections - dropped;
    for (let attempt = 0; attempt < ATTEMPTS && open < connections; attempt++) {
      const opened = await swarm.open({
        count: connections - open,
        ...{ concurrency, sources, timeoutMs: 600_000 },
      });
      open = opened.open;
      failed += opened.failed;
    }
    return {
      ...{ dropped, open, failed },
      seconds: (performance.now() - started) / 1000,
      serverCpuSeconds: target.cpuSeconds() - cpu,
      machineBusySeconds: machineSeconds().busy - machine,
    };
  };
  await others.rest();
  const { result, others: meanwhile } = await others.during(run());
  return { ...result, others: meanwhile, after: await afterwards(target, swarm, payloadBytes) };
}

/**
 * Members join another room and leave it again, at a steady rate.
 * @param {object} options @param {Target} options.target @param {Swarm} options.swarm
 * @param {Others} options.others @param {number} options.perSecond @param {number} options.seconds
 */
export async function visits({ target, swarm, others, perSecond, seconds }) {
  const [cpu, machine] = [target.cpuSeconds(), machineSeconds().busy];
  const { result, others: meanwhile } = await others.during(
    swarm.visit({ perSecond, seconds, rooms: ROOMS, timeoutMs: seconds * 1000 + DRAIN_MS }),
  );
  const { histogram, ...counts } = result;
  return {
    ...counts,
    perSecond,
    p50Ms: percentileMs(histogram, 0.5),
    p99Ms: percentileMs(histogram, 0.99),
    serverCores: (target.cpuSeconds() - cpu) / counts.seconds,
    machineCores: (machineSeconds().busy - machine) / counts.seconds,
    others: meanwhile,
  };
}

/**
 * SIGHUP: all workers are replaced, one after another. Each client returns after the delay that its
 * worker has named.
 * @param {object} options @param {Target} options.target @param {Swarm} options.swarm
 * @param {Others} options.others @param {number} options.payloadBytes
 * @param {number} options.timeoutMs
 */
export async function reload({ target, swarm, others, payloadBytes, timeoutMs }) {
  const [primary, ...old] = target.pids();
  const machine = machineSeconds().busy;
  const started = performance.now();
  /** @type {number[]} */
  const replacedSeconds = [];
  const replaced = async () => {
    process.kill(primary, 'SIGHUP');
    for (;;) {
      const pids = target.pids();
      const left = old.filter((pid) => pids.includes(pid)).length;
      while (replacedSeconds.length < old.length - left)
        replacedSeconds.push((performance.now() - started) / 1000);
      if (left === 0) return;
      if (performance.now() - started > timeoutMs)
        throw new Error(`reload: ${left} of ${old.length} workers are not replaced`);
      await sleep(POLL_MS);
    }
  };
  await others.rest();
  const returning = swarm.comeBack({ timeoutMs: 2 * timeoutMs, onReady: replaced, repeats: true });
  const { result, others: meanwhile } = await others.during(returning, {
    moving: true,
    timeoutMs: 2 * timeoutMs,
  });
  const { histogram, leftBySecond, backBySecond, ...back } = result;
  return {
    ...back,
    ...{ leftBySecond, backBySecond, replacedSeconds },
    workers: old.length,
    seconds: replacedSeconds.at(-1) ?? Number.NaN,
    awayP50Seconds: percentileMs(histogram, 0.5) / 1000,
    awayP99Seconds: percentileMs(histogram, 0.99) / 1000,
    machineBusySeconds: machineSeconds().busy - machine,
    others: meanwhile,
    after: await afterwards(target, swarm, payloadBytes),
  };
}

/** @param {Target} target @param {Swarm} swarm @param {number} payloadBytes */
async function afterwards(target, swarm, payloadBytes) {
  const step = await broadcast(target, swarm, { perSecond: 1, seconds: 1, payloadBytes });
  const { expected, received, isClean, p50Ms, p99Ms, maxMs, serverCpuSeconds } = step;
  return { expected, received, isClean, p50Ms, p99Ms, maxMs, serverCpuSeconds };
}
