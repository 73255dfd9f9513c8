// readings.js: counters of the Redis servers and of the workers, and what happened between two
// readings. Redis itself counts its commands, its CPU, its memory and its bytes (`INFO`).

import { Redis } from 'ioredis';
import { Latency } from '../../test/harness/latency.js';

/** @typedef {Record<string, {perSecond: number, usec: number}>} Commands by name */

/**
 * @typedef {object} NodeReading
 * @property {string} port
 * @property {Map<string, {calls: number, usec: number}>} commands
 * @property {number} cpuSeconds
 * @property {number} aofBytes
 * @property {number} inputBytes @property {number} outputBytes read and written, replication included
 * @property {number} memoryBytes
 * @property {boolean} isPrimary
 */

/**
 * @typedef {object} Reading
 * @property {number} atMs
 * @property {NodeReading[]} nodes those that answer
 * @property {Record<string, number>} delivered to the workers
 * @property {number} beatBytes of the delivered beats
 * @property {number} checks of positions
 * @property {number} probeMisses @property {number} reconnects
 * @property {number} cpuSeconds of the workers
 * @property {number} memoryBytes of the workers' processes
 * @property {Latency} delays of publications to the common room since the last reading
 */

export class Readings {
  /**
   * @param {import('../../test/harness/run.js').Run} test
   * @param {import('./worker-processes.js').WorkerProcesses} workers
   * @param {import('../../test/harness/redis.js').RedisServer[]} servers
   */
  constructor(test, workers, servers) {
    this.workers = workers;
    this.connections = servers.map(({ port }) => {
      const redis = new Redis(port, { maxRetriesPerRequest: 0 });
      redis.on('error', () => {}); // a killed node is absent from the readings
      test.after(() => redis.disconnect());
      return { port: String(port), redis };
    });
  }

  /** @returns {Promise<Reading>} */
  async read() {
    const texts = await Promise.all(
      this.connections.map(async ({ port, redis }) => ({
        port,
        text: redis.status === 'ready' ? String(await redis.call('INFO', 'everything')) : '',
      })),
    );
    /** @type {import('./workers.js').Figures[]} */
    const figures = await this.workers.all('figures');
    /** @param {(each: import('./workers.js').Figures) => number} of */
    const sum = (of) => figures.reduce((total, each) => total + of(each), 0);
    /** @type {Record<string, number>} */
    const delivered = {};
    const delays = new Latency();
    for (const each of figures) {
      delays.addDrained(each.delays);
      for (const [kind, messages] of Object.entries(each.delivered))
        delivered[kind] = (delivered[kind] ?? 0) + messages;
    }
    return {
      atMs: performance.now(),
      nodes: texts.filter(({ text }) => text !== '').map(({ port, text }) => nodeOf(port, text)),
      delivered,
      beatBytes: sum(({ beatBytes }) => beatBytes),
      checks: sum(({ checks }) => checks),
      probeMisses: sum(({ probeMisses }) => probeMisses),
      reconnects: sum(({ reconnects }) => reconnects),
      cpuSeconds: sum(({ cpuSeconds }) => cpuSeconds),
      memoryBytes: sum(({ memoryBytes }) => memoryBytes),
      delays,
    };
  }
}

/** @param {string} port @param {string} text of INFO @returns {NodeReading} */
function nodeOf(port, text) {
  const field = (/** @type {string} */ name) =>
    Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1] ?? 0);
  const commands = new Map(
    [...text.matchAll(/^cmdstat_(\S+?):calls=(\d+),usec=(\d+)/gm)].map(([, name, calls, usec]) => [
      name,
      { calls: Number(calls), usec: Number(usec) },
    ]),
  );
  return {
    port,
    commands,
    cpuSeconds: field('used_cpu_user') + field('used_cpu_sys'),
    aofBytes: field('aof_current_size'),
    inputBytes: field('total_net_input_bytes'),
    outputBytes: field('total_net_output_bytes'),
    memoryBytes: field('used_memory'),
    isPrimary: /^role:master/m.test(text),
  };
}

/**
 * Returns the rates between two readings, of the nodes that are in both.
 * @param {Reading} before @param {Reading} after
 */
export function difference(before, after) {
  const seconds = (after.atMs - before.atMs) / 1000;
  const rate = (/** @type {number} */ from, /** @type {number} */ to) => (to - from) / seconds;
  const pairs = after.nodes.flatMap((node) => {
    const former = before.nodes.find(({ port }) => port === node.port);
    return former === undefined ? [] : [{ former, node }];
  });
  /** @param {(node: NodeReading) => number} of */
  const sumOfNodes = (of) =>
    pairs.reduce((sum, { former, node }) => sum + rate(of(former), of(node)), 0);
  return {
    seconds,
    commands: commandsBetween(pairs, seconds),
    nodes: pairs.map(({ former, node }) => ({
      port: node.port,
      isPrimary: node.isPrimary,
      cpu: rate(former.cpuSeconds, node.cpuSeconds),
      memoryBytes: node.memoryBytes - former.memoryBytes,
    })),
    delivered: Object.fromEntries(
      Object.entries(after.delivered).map(([kind, n]) => [kind, rate(before.delivered[kind], n)]),
    ),
    cpu: sumOfNodes(({ cpuSeconds }) => cpuSeconds),
    aofBytes: sumOfNodes(({ aofBytes }) => aofBytes),
    inputBytes: sumOfNodes(({ inputBytes }) => inputBytes),
    outputBytes: sumOfNodes(({ outputBytes }) => outputBytes),
    workersCpu: rate(before.cpuSeconds, after.cpuSeconds),
    workersMemoryBytes: after.memoryBytes - before.memoryBytes,
    beatBytes: rate(before.beatBytes, after.beatBytes),
    checks: rate(before.checks, after.checks),
    probeMisses: after.probeMisses - before.probeMisses,
    reconnects: after.reconnects - before.reconnects,
    delays: after.delays,
  };
}

/** @typedef {ReturnType<typeof difference>} Rates */

/**
 * @param {{former: NodeReading, node: NodeReading}[]} pairs @param {number} seconds
 * @returns {Commands}
 */
function commandsBetween(pairs, seconds) {
  /** @type {Map<string, {calls: number, usec: number}>} */
  const sums = new Map();
  for (const { former, node } of pairs) {
    for (const [name, { calls, usec }] of node.commands) {
      const was = former.commands.get(name) ?? { calls: 0, usec: 0 };
      const sum = sums.get(name) ?? { calls: 0, usec: 0 };
      sum.calls += calls - was.calls;
      sum.usec += usec - was.usec;
      sums.set(name, sum);
    }
  }
  /** @type {Commands} */
  const commands = {};
  for (const [name, { calls, usec }] of sums)
    if (calls > 0 && name !== 'info|everything')
      commands[name] = { perSecond: calls / seconds, usec: usec / calls };
  return commands;
}

/** @param {Commands} commands @returns {number} of all together, in a second */
export function perSecond(commands) {
  return Object.values(commands).reduce((sum, each) => sum + each.perSecond, 0);
}
