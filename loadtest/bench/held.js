// held.js: a server that holds very many connections: opens them, and measures its memory and its
// CPU at rest. scale.js and small-rooms.js ask what they do then.

import { setTimeout as sleep } from 'node:timers/promises';
import { availableKb, kernelKb, machineSeconds, pssKbOf } from './machine.js';
import { quiet } from './servers.js';

const ATTEMPTS = 3;
/** For one of them. Half a million handshakes took twelve minutes on a machine that others slowed. */
const OPEN_MS = 1_800_000;
/** Handshakes of each client process under way at a time. */
const CONCURRENCY = 60;

/** @typedef {{seconds: number, cpuSeconds: number, failed: number}} Opening */
/** @typedef {{target: import('./servers.js').Target, swarm: import('./swarm.js').Swarm}} Bench */

/**
 * The code is compiled and the first rooms exist before the base of the memory is taken.
 * @param {Bench} bench @param {{sources: number, idle: number, payloadBytes: number}} options
 *   `idle`: seconds of the measurement
 * @returns {Promise<{base: ReturnType<typeof memory>, empty: Awaited<ReturnType<typeof idleCpu>> & {pssKb: number}}>}
 */
export async function warmUp({ target, swarm }, { sources, idle, payloadBytes }) {
  await swarm.open({ count: 200, group: 1, room: 'warm', sources });
  await swarm.run({ group: 1, perSecond: 20, seconds: 1, payloadBytes });
  await swarm.hangUp({ group: 1 });
  await quiet(target, 5000);
  await sleep(1000);
  const empty = { ...(await idleCpu(target, idle)), pssKb: target.pssKb() };
  return { base: memory({ target, swarm }), empty };
}

/**
 * Opens connections until there are this many. A handshake that failed is repeated: the report has
 * their number.
 * @param {Bench} bench @param {Opening} opening gets what it took
 * @param {{members: number, open?: number, sources: number} & Partial<Parameters<Bench['swarm']['open']>[0]>} options
 *   `open`: how many are open already
 */
export async function openUpTo({ target, swarm }, opening, { members, open = 0, ...options }) {
  const cpuBefore = target.cpuSeconds();
  let opened = { open, failed: 0, seconds: 0 };
  for (let attempt = 0; attempt < ATTEMPTS && opened.open < members; attempt++) {
    opened = await swarm.open({
      count: members - opened.open,
      concurrency: CONCURRENCY * swarm.size,
      timeoutMs: OPEN_MS,
      ...options,
    });
    opening.seconds += opened.seconds;
    opening.failed += opened.failed;
  }
  opening.cpuSeconds += target.cpuSeconds() - cpuBefore;
  if (opened.open !== members)
    throw new Error(`${opened.failed} connections failed, ${opened.open} of ${members} are open`);
  await quiet(target, 5000);
}

/** @param {Bench} bench */
export function memory({ target, swarm }) {
  return {
    serverKb: target.pssKb(),
    clientKb: pssKbOf(swarm.pids),
    kernelKb: kernelKb(),
    availableKb: availableKb(),
  };
}

/**
 * The memory of a connection, by its growth.
 * @param {ReturnType<typeof memory>} base without connections @param {ReturnType<typeof memory>} now
 * @param {number} connections
 */
export function memoryEach(base, now, connections) {
  return {
    kbPerConnection: (now.serverKb - base.serverKb) / connections,
    kernelKbPerConnection: (now.kernelKb - base.kernelKb) / connections,
    clientKbPerConnection: (now.clientKb - base.clientKb) / connections,
    systemKbPerConnection: (base.availableKb - now.availableKb) / connections,
  };
}

/**
 * @param {import('./servers.js').Target} target
 * @param {number} duration in seconds
 */
export async function idleCpu(target, duration) {
  const [cpu, machine, started] = [target.cpuSeconds(), machineSeconds(), performance.now()];
  await sleep(duration * 1000);
  const passed = (performance.now() - started) / 1000;
  return {
    seconds: passed,
    cores: (target.cpuSeconds() - cpu) / passed,
    machineCores: (machineSeconds().busy - machine.busy) / passed,
  };
}
