// builtins.js: the builtin modules of a simulated process that touch the machine. All others are
// Node's own.

import childProcess from 'node:child_process';
import cluster from 'node:cluster';
import crypto from 'node:crypto';
import dns from 'node:dns';
import { EventEmitter } from 'node:events';
import fs from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { createRequire } from 'node:module';
import net from 'node:net';
import os from 'node:os';
import perfHooks from 'node:perf_hooks';
import timers from 'node:timers';
import tty from 'node:tty';
import v8 from 'node:v8';
import { diskModules } from './disk.js';
import { SimulatedServer } from './network.js';
import { SimulatedSocket } from './sockets.js';
import { httpModule } from './web.js';

/** @import { SimulatedProcess } from './simulated-process.js' */
/** @typedef {Record<string, unknown>} Exports */

const require = createRequire(import.meta.url);

/** @type {Record<string, (owner: SimulatedProcess) => object>} */
const REPLACED = {
  net: netModule,
  cluster: clusterModule,
  child_process: childModule,
  crypto: cryptoModule,
  http: (owner) => ({ ...http, ...httpModule(owner) }),
  https: (owner) => ({ ...https, ...httpModule(owner) }),
  fs: (owner) => ({ ...fs, ...diskModules(owner).fs }),
  'fs/promises': (owner) => ({
    ...fs.promises,
    constants: fs.constants,
    ...diskModules(owner).promises,
  }),
  os: (owner) => ({
    ...os,
    hostname: () => owner.machine.name,
    availableParallelism: () => 4,
    tmpdir: () => '/tmp',
    networkInterfaces: () => ({}),
    totalmem: () => 8 * 2 ** 30,
    freemem: () => 4 * 2 ** 30,
  }),
  v8: () => ({
    ...v8,
    getHeapStatistics: () => ({ ...HEAP }),
    getHeapSpaceStatistics: () => [],
  }),
  perf_hooks: () => ({ ...perfHooks, performance, PerformanceObserver: NoObserver }),
  'timers/promises': () => ({
    setTimeout: (
      /** @type {number} */ ms,
      /** @type {unknown} */ value,
      /** @type {any} */ options,
    ) =>
      abortable(options?.signal, (resolve) => {
        const timer = setTimeout(resolve, ms, value);
        return () => clearTimeout(timer);
      }),
    setImmediate: (/** @type {unknown} */ value) =>
      new Promise((resolve) => setImmediate(resolve, value)),
    setInterval: undefined,
  }),
  timers: () => ({
    ...timers,
    setTimeout,
    setInterval,
    setImmediate,
    clearTimeout,
    clearInterval,
    clearImmediate,
  }),
  tty: () => ({ ...tty, isatty: () => false }),
  dns: (owner) => ({
    ...dns,
    lookup: (/** @type {string} */ host, /** @type {any} */ options, /** @type {any} */ done) => {
      const answer = typeof options === 'function' ? options : done;
      const address = owner.machine.fleet.addressOf(host);
      setTimeout(() => {
        if (address === undefined)
          answer(Object.assign(new Error(`getaddrinfo ENOTFOUND ${host}`), { code: 'ENOTFOUND' }));
        else if (options?.all) answer(null, [{ address, family: 4 }]);
        else answer(null, address, 4);
      }, 1);
    },
  }),
};

/** What every process reports, so that no decision depends on this machine. */
const HEAP = Object.freeze({
  total_heap_size: 40_000_000,
  used_heap_size: 20_000_000,
  heap_size_limit: 1_000_000_000,
  total_available_size: 900_000_000,
  total_physical_size: 40_000_000,
  external_memory: 4_000_000,
  malloced_memory: 1_000_000,
  number_of_native_contexts: 1,
  number_of_detached_contexts: 0,
});

/** Collections of garbage are the machine's. */
class NoObserver {
  observe() {}

  disconnect() {}
}

/** @param {SimulatedProcess} owner @param {string} name @returns {Exports} */
export function builtinFor(owner, name) {
  const create = REPLACED[name];
  const members = /** @type {Exports} */ (
    create === undefined ? require(`node:${name}`) : create(owner)
  );
  const exports = /** @type {Exports} */ ({});
  for (const key of Object.keys(members)) exports[key] = members[key];
  // A function, such as the one of node:assert, has its members, too.
  exports.default =
    typeof members === 'function' || create === undefined ? members : { ...members };
  return exports;
}

/**
 * @param {AbortSignal|undefined} signal
 * @param {(resolve: (value: unknown) => void) => () => void} begin returns what stops it
 */
function abortable(signal, begin) {
  return new Promise((resolve, reject) => {
    const reason = () =>
      Object.assign(new Error('The operation was aborted'), {
        name: 'AbortError',
        code: 'ABORT_ERR',
      });
    if (signal?.aborted) return reject(reason());
    const stop = begin(resolve);
    signal?.addEventListener('abort', () => {
      stop();
      reject(reason());
    });
  });
}

/** @param {SimulatedProcess} owner */
function netModule(owner) {
  const { network } = owner.machine;
  const connect = (/** @type {any[]} */ ...args) => {
    const done = args.find((one) => typeof one === 'function');
    const [first, second] = args;
    const options =
      typeof first === 'object'
        ? first
        : typeof first === 'string'
          ? { path: first }
          : { port: first, host: typeof second === 'string' ? second : undefined };
    const socket = new SimulatedSocket(network, presentOr(owner), options);
    if (done) socket.once('connect', done);
    if (options.onread) readInto(socket, options.onread);
    network.connect(socket, options);
    return socket;
  };
  return {
    ...net,
    connect,
    createConnection: connect,
    createServer: (/** @type {any} */ options, /** @type {any} */ listener) => {
      const own = typeof options === 'function' ? {} : (options ?? {});
      const server = new SimulatedServer(network, presentOr(owner), own);
      const onConnection = typeof options === 'function' ? options : listener;
      if (onConnection) server.on('connection', onConnection);
      return server;
    },
  };
}

/**
 * Node's option `onread`: the socket reads into one buffer.
 * @param {SimulatedSocket} socket
 * @param {{buffer: Buffer, callback: (bytes: number, buffer: Buffer) => boolean}} onread
 */
function readInto(socket, { buffer, callback }) {
  socket.on('data', (/** @type {Buffer} */ chunk) => {
    for (let at = 0; at < chunk.length; at += buffer.length)
      callback(chunk.copy(buffer, 0, at, at + buffer.length), buffer);
  });
}

/** A package that all processes share acts for the present one. @param {SimulatedProcess} owner */
function presentOr(owner) {
  const { current } = owner.simulator;
  return 'machine' in current ? /** @type {SimulatedProcess} */ (current) : owner;
}

/** The builtin modules of a shared package. @param {SimulatedProcess} owner any process */
export function sharedBuiltins(owner) {
  return { net: netModule(owner), crypto: cryptoModule(owner) };
}

/** @param {SimulatedProcess} owner */
function cryptoModule(owner) {
  const chance = () => presentOr(owner).random;
  const fill = (/** @type {any} */ view, offset = 0, size = view.byteLength - offset) => {
    const bytes = new Uint8Array(view.buffer, view.byteOffset + offset, size);
    const random = chance();
    for (let i = 0; i < bytes.length; i++) bytes[i] = random.below(256);
    return view;
  };
  const randomBytes = (/** @type {number} */ size, /** @type {any} */ done = undefined) => {
    const bytes = fill(Buffer.alloc(size));
    if (done) process.nextTick(done, null, bytes);
    return bytes;
  };
  return {
    ...crypto,
    randomBytes,
    randomFillSync: fill,
    randomInt: (/** @type {number} */ low, /** @type {any} */ high) =>
      typeof high === 'number' ? low + chance().below(high - low) : chance().below(low),
    randomUUID: () => {
      const hex = randomBytes(16).toString('hex');
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
    },
  };
}

/** @param {SimulatedProcess} owner */
function clusterModule(owner) {
  const isWorker = owner.kind === 'cluster';
  const result = /** @type {any} */ (new EventEmitter());
  let ids = 0;
  let exec = owner.exec;
  /** @type {string[]} */
  let args = [];
  const members = {
    isPrimary: !isWorker,
    isMaster: !isWorker,
    isWorker,
    SCHED_NONE: cluster.SCHED_NONE,
    SCHED_RR: cluster.SCHED_RR,
    schedulingPolicy: cluster.SCHED_NONE,
    settings: {},
    workers: {},
    worker: isWorker ? Object.assign(new EventEmitter(), { id: owner.clusterId }) : undefined,
    setupPrimary(/** @type {{exec: string, args: string[]}} */ settings) {
      exec = settings.exec;
      args = settings.args;
    },
    fork(/** @type {Record<string, string>} */ env) {
      const id = ++ids;
      const child = owner.machine.start({
        exec,
        args,
        env: { ...owner.env, ...env },
        channel: 'cluster',
        parent: owner,
        clusterId: id,
      });
      return workerHandle(child, id);
    },
  };
  return Object.assign(result, members);
}

/** What a primary holds of a worker. @param {import('./simulated-process.js').SimulatedProcess} child @param {number} id */
function workerHandle(child, id) {
  return Object.assign(child.handle, {
    id,
    process: { pid: child.pid, kill: (/** @type {string} */ signal) => child.signal(signal) },
    isConnected: () => child.channel?.isOpen ?? false,
    isDead: () => !child.isAlive,
    kill: (/** @type {string} */ signal) => child.signal(signal ?? 'SIGTERM'),
    send: (/** @type {unknown} */ message, /** @type {any[]} */ ...rest) =>
      child.channel?.sendDown(
        message,
        rest.find((one) => typeof one === 'function'),
      ),
    disconnect: () => child.channel?.close(),
  });
}

/** @param {SimulatedProcess} owner */
function childModule(owner) {
  return {
    ...childProcess,
    fork(/** @type {string} */ exec, /** @type {string[]} */ args, /** @type {any} */ { env }) {
      const child = owner.machine.start({ exec, args, env, channel: 'child', parent: owner });
      const stdin = Object.assign(new EventEmitter(), {
        end: (/** @type {string} */ text) => {
          child.stdin = text;
        },
      });
      return Object.defineProperties(
        Object.assign(child.handle, {
          pid: child.pid,
          stdin,
          kill: (/** @type {string} */ signal) => child.signal(signal ?? 'SIGTERM'),
          send: (/** @type {unknown} */ message, /** @type {any[]} */ ...rest) =>
            child.channel?.sendDown(
              message,
              rest.find((one) => typeof one === 'function'),
            ),
          disconnect: () => child.channel?.close(),
        }),
        {
          connected: { get: () => child.channel?.isOpen ?? false },
          exitCode: { get: () => child.code },
        },
      );
    },
  };
}
