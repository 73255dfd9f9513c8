// simulated-process.js: a process of a simulated machine: its modules, its channel to its parent, its
// end.

import { EventEmitter } from 'node:events';
import { Random } from '../checker/random.js';
import { Modules } from './modules.js';
import { createProcessObject, EXIT } from './process-object.js';
import { fetchFrom } from './web.js';

/** One way, between a process and its parent. */
const CHANNEL_MS = 0.05;
/** A process needs this long until its first line runs, in ms. */
const START_MS = /** @type {const} */ ([60, 220]);

/** @import { Machine } from './machine.js' */
/** @import { SimulatedServer } from './network.js' */
/** @import { SimulatedSocket } from './sockets.js' */
/** @import { Event } from './simulator.js' */

/**
 * @typedef {object} ProcessParts
 * @property {string} exec the program: a file
 * @property {readonly string[]} args @property {Record<string, string|undefined>} env
 * @property {'cluster'|'child'|'none'} channel to its parent
 * @property {SimulatedProcess|null} parent @property {number} [clusterId]
 */

/** The IPC channel of a process to its parent. */
class Channel {
  isOpen = true;

  /** @param {SimulatedProcess} child @param {SimulatedProcess} parent */
  constructor(child, parent) {
    this.child = child;
    this.parent = parent;
  }

  /** @param {unknown} message @param {(error: Error|null) => void} [done] */
  sendUp(message, done) {
    return this.#send(message, done, this.parent, (copy) =>
      this.child.handle.emit('message', copy),
    );
  }

  /** @param {unknown} message @param {(error: Error|null) => void} [done] */
  sendDown(message, done) {
    return this.#send(message, done, this.child, (copy) => this.child.object.receive(copy));
  }

  /**
   * @param {unknown} message @param {((error: Error|null) => void)|undefined} done
   * @param {SimulatedProcess} to @param {(copy: unknown) => void} receive
   */
  #send(message, done, to, receive) {
    const { simulator } = this.child;
    if (!this.isOpen) {
      const error = Object.assign(new Error('Channel closed'), { code: 'ERR_IPC_CHANNEL_CLOSED' });
      if (done) process.nextTick(done, error);
      return false;
    }
    const copy = this.child.copies(message);
    simulator.schedule(CHANNEL_MS, to, () => receive(copy));
    if (done) process.nextTick(done, null);
    return true;
  }

  /** One of the processes has ended, or disconnects. */
  close() {
    if (!this.isOpen) return;
    this.isOpen = false;
    const { child, parent } = this;
    child.simulator.schedule(CHANNEL_MS, child, () => child.object.emit('disconnect'));
    child.simulator.schedule(CHANNEL_MS, parent, () => child.handle.emit('disconnect'));
  }
}

export class SimulatedProcess {
  isAlive = true;
  isFrozen = false;
  /** @type {Event[]} */
  parked = [];
  /** @type {Set<SimulatedSocket>} */
  sockets = new Set();
  /** @type {Set<SimulatedServer>} */
  servers = new Set();
  /** @type {Set<SimulatedProcess>} */
  children = new Set();
  /** @type {Channel|null} */
  channel = null;
  /** What its parent holds of it. */
  handle = new EventEmitter();
  /** Standard input, if the parent has written it. */
  stdin = '';
  /** @type {number|null} */
  code = null;

  /** @param {Machine} machine @param {ProcessParts} parts */
  constructor(machine, { exec, args, env, channel, parent, clusterId = 0 }) {
    const { simulator } = machine;
    this.machine = machine;
    this.simulator = simulator;
    this.host = machine.host;
    this.pid = machine.nextPid();
    this.exec = exec;
    this.args = args;
    this.env = env;
    this.parent = parent;
    this.clusterId = clusterId;
    this.kind = channel;
    this.bornMs = simulator.nowMs;
    this.name = `${machine.name}/${channel === 'cluster' ? 'worker' : (args[0] ?? 'primary')}-${this.pid}`;
    this.random = new Random(simulator.seed ^ Math.imul(this.pid, 0x9e3779b1));
    this.handle.setMaxListeners(0);
    if (channel !== 'none' && parent !== null) {
      this.channel = new Channel(this, parent);
      parent.children.add(this);
    }
    this.object = createProcessObject(this);
    this.modules = new Modules(this);
    machine.processes.add(this);
    const [low, high] = START_MS;
    simulator.schedule(low + this.random.next() * (high - low), this, () => this.#main());
  }

  #main() {
    const { direct } = this.machine;
    const running = direct === null ? this.modules.run(this.exec) : direct(this);
    running.catch((/** @type {unknown} */ error) => this.fault(error));
  }

  /** `cluster` sends JSON; a courier's channel carries maps, too. @param {unknown} message */
  copies(message) {
    return this.kind === 'cluster' ? JSON.parse(JSON.stringify(message)) : structuredClone(message);
  }

  /** @param {string} url @param {any} options */
  fetch(url, options) {
    return fetchFrom(this, url, options);
  }

  /** @param {unknown} error that nothing has caught */
  fault(error) {
    if (error === EXIT || !this.isAlive) return;
    if (this.object.listenerCount('uncaughtException') > 0) {
      this.machine.fleet.noteFault(this, error);
      try {
        this.object.emit('uncaughtException', error);
      } catch (second) {
        if (second !== EXIT) throw second;
      }
      return;
    }
    this.machine.fleet.noteFault(this, error);
    this.end(1, null);
  }

  /** @param {number} code */
  exit(code) {
    if (!this.isAlive) return;
    this.object.emit('exit', code);
    this.end(code, null);
  }

  /** @param {string} signal */
  signal(signal) {
    if (!this.isAlive) return;
    if (signal === 'SIGKILL') this.end(null, signal);
    else if (signal === 'SIGSTOP') this.isFrozen = true;
    else if (signal === 'SIGCONT') this.simulator.thaw(this);
    else
      this.simulator.schedule(0, this, () => {
        if (!this.object.emit(signal, signal)) this.end(null, signal);
      });
  }

  /** The kernel cleans up. @param {number|null} code @param {string|null} signal */
  end(code, signal) {
    if (!this.isAlive) return;
    this.isAlive = false;
    this.code = code;
    this.machine.processes.delete(this);
    for (const server of [...this.servers]) this.machine.network.unlisten(server);
    for (const socket of [...this.sockets]) socket.abandon();
    this.parked.length = 0;
    for (const child of this.children) child.channel?.close();
    const { parent } = this;
    if (parent !== null) {
      parent.children.delete(this);
      this.channel?.close();
      this.simulator.schedule(CHANNEL_MS, parent, () => {
        this.handle.emit('exit', code, signal);
        this.handle.emit('close', code, signal);
      });
    }
    this.machine.fleet.noteEnd(this, code, signal);
  }
}
