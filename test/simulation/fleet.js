// fleet.js: the machines of a simulated deployment, and what is written down about them.

import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { sharedBuiltins } from './builtins.js';
import { replaceGlobals } from './globals.js';
import { Machine } from './machine.js';
import { loadCommonJs, loadPackages } from './modules.js';
import { Network } from './network.js';
import { RedisHost } from './redis-host.js';
import { Simulator } from './simulator.js';

const MAIN = fileURLToPath(new URL('../../src/main.js', import.meta.url));
/** Characters. */
const HASHED_AT_ONCE = 65_536;
const PACKAGES = Object.freeze([
  'ws',
  'jose',
  'pino',
  'express',
  'proxy-addr',
  'prom-client',
  'aws4fetch',
]);

/** @import { SimulatedProcess } from './simulated-process.js' */

export class Fleet {
  /** @type {Machine[]} */
  machines = [];
  /** @type {RedisHost[]} */
  redis = [];
  /** Names of hosts. @type {Map<string, string>} */
  names = new Map();
  /** Errors that nothing has caught. @type {string[]} */
  faults = [];
  #hash = createHash('sha256');
  /** Lines that the hash does not have yet: a call for each would cost more than they do. */
  #unhashed = '';
  /** What happened, if the caller wants it. @type {string[]|null} */
  trace = null;
  lines = 0;
  /** @type {any} */
  #redisClient = null;

  /** @param {number} seed */
  constructor(seed) {
    this.simulator = new Simulator(seed);
    this.network = new Network(this.simulator);
    this.network.resolve = (host) => this.addressOf(host) ?? host;
    this.random = this.simulator.random;
    this.restoreGlobals = () => {};
  }

  /** Loads what all processes share. The global objects are simulated from now on. */
  async prepare() {
    await loadPackages(PACKAGES);
    const restore = replaceGlobals(this.simulator);
    const { error } = console;
    // ioredis writes there about Sentinels that it cannot reach.
    console.error = (...words) => this.note(`stderr: ${words.join(' ').split('\n')[0]}`);
    this.restoreGlobals = () => {
      restore();
      console.error = error;
    };
  }

  /** @param {string} name @param {boolean} [isServer] */
  addMachine(name, isServer = true) {
    const number = this.machines.length;
    const machine = new Machine(this, number, name, `10.0.0.${number + 1}`, isServer);
    this.machines.push(machine);
    this.names.set(name, machine.host);
    return machine;
  }

  /** @param {string} name */
  addRedis(name) {
    const host = `10.0.1.${this.redis.length + 1}`;
    const redis = new RedisHost(this, name, host);
    this.redis.push(redis);
    this.names.set(name, host);
    return redis;
  }

  /** Starts a server. @param {Machine} machine @param {Record<string, string>} env @param {string} [main] */
  startServer(machine, env, main = MAIN) {
    return machine.start({ exec: main, args: [], env, channel: 'none', parent: null });
  }

  /** @param {string} host @returns {string|undefined} */
  addressOf(host) {
    if (/^[\d.]+$/.test(host)) return host;
    return this.names.get(host);
  }

  /** @param {SimulatedProcess} owner @returns {any} */
  redisClient(owner) {
    if (this.#redisClient === null) {
      const loaded = loadCommonJs('ioredis', sharedBuiltins(owner));
      this.#redisClient = { ...loaded, default: loaded };
    }
    return this.#redisClient;
  }

  /** @param {string} text a line of the trace */
  note(text) {
    const line = `${this.simulator.nowMs.toFixed(3)} ${text}\n`;
    this.lines++;
    this.#unhashed += line;
    if (this.#unhashed.length > HASHED_AT_ONCE) this.#addToHash();
    this.trace?.push(line);
  }

  #addToHash() {
    this.#hash.update(this.#unhashed);
    this.#unhashed = '';
  }

  /** @returns {string} of the trace so far */
  hash() {
    this.#addToHash();
    return this.#hash.copy().digest('hex');
  }

  /** @param {SimulatedProcess} owner @param {string} level @param {string} text @param {any} fields */
  noteLog(owner, level, text, fields) {
    if (level === 'debug') return;
    const { err, ...rest } = fields ?? {};
    const error = err === undefined ? '' : ` (${err?.message ?? err})`;
    this.note(`${owner.name} log ${level}: ${text}${error} ${JSON.stringify(rest)}`);
  }

  /** @param {SimulatedProcess} owner @param {unknown} error */
  noteFault(owner, error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    this.faults.push(`${owner.name}: ${text}`);
    this.note(`${owner.name} fault: ${error instanceof Error ? error.message : String(error)}`);
  }

  /** @param {SimulatedProcess} owner @param {number|null} code @param {string|null} signal */
  noteEnd(owner, code, signal) {
    this.note(`${owner.name} ends (${code ?? signal})`);
  }
}
