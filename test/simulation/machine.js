// machine.js: a simulated machine: its processes, its disk, its clock.

import { Disk } from './disk.js';
import { SimulatedProcess } from './simulated-process.js';
import { wsModule } from './web.js';

/** @import { Fleet } from './fleet.js' */
/** @import { ProcessParts } from './simulated-process.js' */

/** Of the first process. Pids differ between machines, so that a trace can tell them apart. */
const FIRST_PID = 1000;
const PIDS = 10_000;

export class Machine {
  disk = new Disk();
  /** @type {Set<SimulatedProcess>} */
  processes = new Set();
  /** How much its wall clock is ahead of the others. */
  skewMs = 0;
  /** What its processes run, instead of a program. @type {((owner: SimulatedProcess) => Promise<void>)|null} */
  direct = null;
  #pids;

  /**
   * @param {Fleet} fleet @param {number} number @param {string} name @param {string} host its address
   * @param {boolean} [isServer] false: its processes are clients
   */
  constructor(fleet, number, name, host, isServer = true) {
    this.fleet = fleet;
    this.simulator = fleet.simulator;
    this.network = fleet.network;
    this.name = name;
    this.host = host;
    this.isServer = isServer;
    this.#pids = FIRST_PID + number * PIDS;
  }

  nextPid() {
    return ++this.#pids;
  }

  /** @param {ProcessParts} parts */
  start(parts) {
    return new SimulatedProcess(this, parts);
  }

  /** @param {number} pid @param {string|number} signal */
  kill(pid, signal) {
    for (const one of this.processes) {
      if (one.pid !== pid) continue;
      if (signal !== 0) one.signal(String(signal));
      return true;
    }
    throw Object.assign(new Error('kill ESRCH'), { code: 'ESRCH' });
  }

  /** Everything on it ends at once, as if the power had failed. */
  stop() {
    for (const one of [...this.processes]) one.end(null, 'SIGKILL');
  }

  /**
   * @param {SimulatedProcess} owner @param {string} name
   * @returns {Record<string, unknown>|undefined} undefined: the package is the same for all
   */
  packageFor(owner, name) {
    if (name === 'ws' && !this.isServer) return wsModule(owner);
    if (name === 'ioredis') return this.fleet.redisClient(owner);
    return undefined;
  }
}
