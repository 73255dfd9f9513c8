// process-object.js: `process` of a simulated process.

import { EventEmitter } from 'node:events';

const real = process;
/** Thrown by process.exit(), which does not return. */
export const EXIT = Symbol('exit');
/** What all simulated processes report, so that no decision depends on this machine. */
const MEMORY = Object.freeze({
  rss: 80_000_000,
  heapTotal: 40_000_000,
  heapUsed: 20_000_000,
  external: 4_000_000,
  arrayBuffers: 1_000_000,
});

/** @import { SimulatedProcess } from './simulated-process.js' */

/**
 * @param {SimulatedProcess} owner
 * @returns {any} the members of the real one, except for those below
 */
export function createProcessObject(owner) {
  const { simulator } = owner;
  const own = new EventEmitter();
  own.setMaxListeners(0);
  /** Like Node, keeps messages until somebody listens. @type {unknown[]} */
  const early = [];
  const upMs = () => simulator.nowMs - owner.bornMs;
  const memoryUsage = Object.assign(() => ({ ...MEMORY }), { rss: () => MEMORY.rss });
  const hrtime = Object.assign(
    (/** @type {[number, number]|undefined} */ since) => {
      const nanoseconds = BigInt(Math.round(upMs() * 1e6));
      const seconds = Number(nanoseconds / 1_000_000_000n);
      const rest = Number(nanoseconds % 1_000_000_000n);
      return since === undefined ? [seconds, rest] : [seconds - since[0], rest - since[1]];
    },
    { bigint: () => BigInt(Math.round(simulator.nowMs * 1e6)) },
  );
  const members = {
    pid: owner.pid,
    ppid: owner.parent?.pid ?? 1,
    env: owner.env,
    argv: ['node', owner.exec, ...owner.args],
    execArgv: [],
    exitCode: undefined,
    title: owner.name,
    uptime: () => upMs() / 1000,
    hrtime,
    memoryUsage,
    cpuUsage: () => ({ user: 0, system: 0 }),
    resourceUsage: () => ({}),
    exit(/** @type {number} */ code) {
      owner.exit(code ?? members.exitCode ?? 0);
      throw EXIT;
    },
    kill: (/** @type {number} */ pid, /** @type {string} */ signal) =>
      owner.machine.kill(pid, signal),
    get connected() {
      return owner.channel?.isOpen ?? false;
    },
    get send() {
      const { channel } = owner;
      if (channel === null) return undefined;
      return (/** @type {unknown} */ message, /** @type {any[]} */ ...rest) => {
        const done = rest.find((one) => typeof one === 'function');
        return channel.sendUp(message, done);
      };
    },
    disconnect: () => owner.channel?.close(),
  };
  const result = /** @type {any} */ (own);
  for (const name of namesOf(real))
    if (!(name in own)) Object.defineProperty(own, name, memberOf(name));
  Object.defineProperties(own, Object.getOwnPropertyDescriptors(members));
  result.receive = (/** @type {unknown} */ message) => {
    if (own.listenerCount('message') === 0) early.push(message);
    else own.emit('message', message);
  };
  own.on('newListener', (name) => {
    if (name !== 'message' || early.length === 0) return;
    process.nextTick(() => {
      for (const message of early.splice(0)) own.emit('message', message);
    });
  });
  return result;
}

/** @param {object} object @returns {Set<string>} its members, without those of every object */
function namesOf(object) {
  /** @type {Set<string>} */
  const names = new Set();
  for (let at = object; at !== null && at !== Object.prototype; at = Object.getPrototypeOf(at))
    for (const name of Object.getOwnPropertyNames(at)) names.add(name);
  for (const name of ['constructor', '_events', '_eventsCount', '_maxListeners'])
    names.delete(name);
  return names;
}

/** Functions of the real one, bound to it: `process.nextTick` is read for each write of a socket. @type {Map<Function, Function>} */
const bound = new Map();

/** @param {string} name @returns {PropertyDescriptor} */
function memberOf(name) {
  return {
    configurable: true,
    enumerable: true,
    get: () => {
      const value = /** @type {any} */ (real)[name];
      if (typeof value !== 'function') return value;
      let own = bound.get(value);
      if (own === undefined) bound.set(value, (own = value.bind(real)));
      return own;
    },
    set() {},
  };
}
