// fleet.js: measures the load of a fleet of workers on its Redis.
//
//   node loadtest/fleet/fleet.js                        64 workers, 10,000 quiet rooms
//   node loadtest/fleet/fleet.js --workers 640
//
// Simulated workers (workers.js) run the Redis backend and the recovery of the server against a
// real redis-server with an append-only file. They have no clients, so a machine can hold hundreds
// of them. Each phase lasts some seconds. Redis itself counts its commands, its CPU and the bytes
// of its file (`INFO`); the workers count the messages that reach them.
//
// Limits: the workers share the machine with Redis. If they can't read fast enough, Redis delivers
// fewer messages. So the report shows the CPU of the workers, too.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { readOptions } from '../../test/harness/options.js';
import { startRedis } from '../../test/harness/redis.js';
import { pause, print, run } from '../../test/harness/run.js';
import { markdownTable, show } from '../lib/figures.js';

const { values } = readOptions(
  'Measures the load of a fleet of workers on one Redis.',
  `workers N | whole 1..2000 | 64 | simulated workers
  per-server N | whole 1..1000 | 8 | workers of a server
  processes N | whole 1..64 | ${availableParallelism()} | processes that hold them
  rooms N | whole 1..1000000 | 10000 | quiet rooms with history, each followed by one worker
  rate N | whole 1..1000 | 20 | publications a second to the room of all workers
  seconds S | number 1..600 | 12 | duration of each phase
  settle S | number 0..600 | 4 | time before each phase, which is not measured
  phases LIST | list of idle churn rooms fan-out | idle,churn,rooms,fan-out | phases to run
  save PATH | | | writes the report to PATH.json and PATH.md`,
);
const { workers: workerCount, rooms: roomCount, seconds, settle, save } = values;
const processCount = Math.min(values.processes, workerCount);
const perServer = values.perServer;
const phases = /** @type {string[]} */ (values.phases);
const LIMIT_MS = 120_000 + phases.length * 1000 * (settle + seconds) + 100 * workerCount;
const SCRIPT = fileURLToPath(new URL('workers.js', import.meta.url));
/** The file is never rewritten, so it grows by the writes of the workers. */
const REDIS_ARGS = ['--appendonly', 'yes', '--auto-aof-rewrite-percentage', '0'];

/** A process with simulated workers. */
class WorkerProcess {
  constructor() {
    this.child = fork(SCRIPT, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.latestId = 0;
    /** @type {Map<number, {resolve: (result: any) => void, reject: (error: Error) => void}>} */
    this.waiting = new Map();
    this.child.on('message', (/** @type {any} */ { id, result, error }) => {
      const waiting = this.waiting.get(id);
      this.waiting.delete(id);
      if (error === undefined) waiting?.resolve(result);
      else waiting?.reject(new Error(error));
    });
    this.child.once('exit', (code) => {
      for (const { reject } of this.waiting.values())
        reject(new Error(`a process of workers ended with ${code}`));
    });
  }

  /**
   * @param {keyof import('./workers.js').Orders} order
   * @param {object} [details]
   * @returns {Promise<any>} its result
   */
  do(order, details = {}) {
    return new Promise((resolve, reject) => {
      const id = ++this.latestId;
      this.waiting.set(id, { resolve, reject });
      this.child.send({ id, order, ...details });
    });
  }

  async end() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exited = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await exited;
  }
}

/**
 * Counters of Redis and of the workers at one moment.
 * @typedef {object} Reading
 * @property {number} atMs
 * @property {Map<string, {calls: number, usec: number}>} commands
 * @property {number} cpuSeconds of Redis
 * @property {number} aofBytes
 * @property {number} outputBytes that Redis has written to sockets
 * @property {Record<string, number>} delivered to the workers
 * @property {number} beatBytes of the delivered beats
 * @property {number} checks of positions
 * @property {number[]} delays of publications to the common room since the last reading, in ms
 */

/** @param {Redis} redis @param {WorkerProcess[]} processes @returns {Promise<Reading>} */
async function read(redis, processes) {
  const text = await redis.call('INFO', 'everything').then(String);
  const field = (/** @type {string} */ name) =>
    Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1]);
  const commands = new Map(
    [...text.matchAll(/^cmdstat_(\S+?):calls=(\d+),usec=(\d+)/gm)].map(([, name, calls, usec]) => [
      name,
      { calls: Number(calls), usec: Number(usec) },
    ]),
  );
  /** @type {import('./workers.js').Figures[]} */
  const figures = await Promise.all(processes.map((process) => process.do('figures')));
  /** @type {Record<string, number>} */
  const delivered = {};
  for (const each of figures)
    for (const [kind, messages] of Object.entries(each.delivered))
      delivered[kind] = (delivered[kind] ?? 0) + messages;
  return {
    atMs: performance.now(),
    commands,
    cpuSeconds: field('used_cpu_user') + field('used_cpu_sys'),
    aofBytes: field('aof_current_size'),
    outputBytes: field('total_net_output_bytes'),
    delivered,
    beatBytes: figures.reduce((sum, each) => sum + each.beatBytes, 0),
    checks: figures.reduce((sum, { checks }) => sum + checks, 0),
    delays: figures.flatMap(({ delays }) => delays),
  };
}

/**
 * Returns the work of Redis in a second of a phase.
 * @param {Reading} before @param {Reading} after
 */
function difference(before, after) {
  const elapsed = (after.atMs - before.atMs) / 1000;
  const rate = (/** @type {number} */ from, /** @type {number} */ to) => (to - from) / elapsed;
  /** @type {Record<string, {perSecond: number, usec: number}>} */
  const commands = {};
  for (const [name, { calls, usec }] of after.commands) {
    const former = before.commands.get(name) ?? { calls: 0, usec: 0 };
    const count = calls - former.calls;
    if (count > 0 && name !== 'info|everything')
      commands[name] = { perSecond: count / elapsed, usec: (usec - former.usec) / count };
  }
  const delivered = Object.fromEntries(
    Object.entries(after.delivered).map(([kind, n]) => [kind, rate(before.delivered[kind], n)]),
  );
  return {
    commands,
    delivered,
    cpu: rate(before.cpuSeconds, after.cpuSeconds),
    aofBytes: rate(before.aofBytes, after.aofBytes),
    outputBytes: rate(before.outputBytes, after.outputBytes),
    beatBytes: rate(before.beatBytes, after.beatBytes),
    checks: rate(before.checks, after.checks),
    delays: after.delays.sort((a, b) => a - b),
  };
}

/** @typedef {ReturnType<typeof difference>} Rates */

/** @param {Record<string, Rates>} results @returns {string[]} the report in Markdown */
function markdown(results) {
  const sum = (/** @type {Record<string, number>} */ numbers) =>
    Object.values(numbers).reduce((total, n) => total + n, 0);
  const rows = Object.entries(results).map(([phase, rates]) => {
    const commands = sum(
      Object.fromEntries(Object.entries(rates.commands).map(([k, v]) => [k, v.perSecond])),
    );
    return [
      phase,
      show(commands),
      show(sum(rates.delivered)),
      show(rates.delivered.beat),
      show(100 * rates.cpu, 1),
      show(rates.aofBytes / 1000, 1),
      show(rates.outputBytes / 1000),
    ];
  });
  const head = ['phase', 'commands/s', 'deliveries/s', 'beats', 'CPU, % of a core'];
  const lines = [
    `# ${show(workerCount)} workers, one Redis`,
    '',
    ...markdownTable([...head, 'AOF, kB/s', 'output, kB/s'], rows, 1),
    '',
  ];
  const { idle, rooms, 'fan-out': fanOut } = results;
  if (idle !== undefined) {
    const each = (/** @type {number} */ n) => n / workerCount;
    const beats = idle.delivered.beat / workerCount;
    lines.push(
      `A worker: ${show(each(1e6 * idle.cpu), 1)} µs of Redis CPU a second, ` +
        `${show(each(idle.aofBytes), 1)} bytes of AOF a second. ` +
        `It sends ${show(each(beats), 3)} beats a second of ` +
        `${show(idle.beatBytes / idle.delivered.beat)} bytes, and receives ${show(beats, 1)}.`,
    );
  }
  if (idle !== undefined && rooms !== undefined) {
    const each = (/** @type {number} */ n) => n / roomCount;
    const check = (1e6 * (rooms.cpu - idle.cpu)) / rooms.checks;
    lines.push(
      `A quiet room: ${show(each(rooms.checks), 3)} position checks a second of ` +
        `${show(check, 2)} µs of Redis CPU and ` +
        `${show((rooms.aofBytes - idle.aofBytes) / rooms.checks, 1)} bytes of AOF each; ` +
        `1,000,000 rooms take ${show((rooms.checks / roomCount) * check, 2)} of a core.`,
    );
  }
  if (fanOut !== undefined && fanOut.delays.length > 0) {
    const { delays } = fanOut;
    const at = (/** @type {number} */ share) => show(delays[Math.floor(share * delays.length)], 2);
    lines.push(
      `A publication to the room of all workers arrives after ${at(0.5)} ms, p99 ${at(0.99)} ms.`,
    );
  }
  lines.push('', 'Commands a second, and µs of each, as Redis counts them:', '');
  const names = [
    ...new Set(Object.values(results).flatMap(({ commands }) => Object.keys(commands))),
  ];
  lines.push(
    ...markdownTable(
      ['command', ...Object.keys(results)],
      names
        .sort()
        .map((name) => [
          name,
          ...Object.values(results).map(({ commands: { [name]: c } }) =>
            c === undefined ? '' : `${show(c.perSecond, 1)} × ${show(c.usec, 2)}`,
          ),
        ]),
      1,
    ),
  );
  return lines;
}

await run(
  `Redis under ${workerCount} workers`,
  async (test) => {
    const server = await startRedis(test, { args: REDIS_ARGS });
    const redis = new Redis(server.port);
    test.after(() => redis.disconnect());
    const processes = Array.from({ length: processCount }, () => new WorkerProcess());
    for (const process of processes) test.after(() => process.end());
    const env = {
      REDIS_URL: server.url,
      FANFARE_HISTORY: 'quiet.*=100/1h',
    };
    /** @type {Record<string, Rates>} */
    const results = {};
    /** @param {string} phase */
    const measure = async (phase) => {
      await pause(1000 * settle);
      const before = await read(redis, processes);
      await pause(1000 * seconds);
      results[phase] = difference(before, await read(redis, processes));
      test.note(phase, `${show(100 * results[phase].cpu, 1)} % of a core`);
    };
    /**
     * Splits a number among the processes.
     * @param {'open'|'follow'} order @param {number} total @param {object} [details]
     */
    const share = async (order, total, details) => {
      const cut = (/** @type {number} */ i) => Math.floor((i * total) / processCount);
      const done = await Promise.all(
        processes.map((process, i) =>
          process.do(order, { ...details, first: cut(i), count: cut(i + 1) - cut(i) }),
        ),
      );
      return done.reduce((sum, n) => sum + n, 0);
    };

    const up = await share('open', workerCount, { env, perServer });
    test.check('workers that have reached Redis', workerCount, up);
    if (phases.includes('idle')) await measure('idle');
    if (phases.includes('churn')) {
      await Promise.all(processes.map((process) => process.do('churn', { isOn: true })));
      await measure('churn');
      await Promise.all(processes.map((process) => process.do('churn', { isOn: false })));
    }
    if (phases.includes('rooms')) {
      const reached = await share('follow', roomCount);
      test.check('rooms whose position is known', roomCount, reached);
      await measure('rooms');
    }
    if (phases.includes('fan-out')) {
      await Promise.all(processes.map((process) => process.do('share')));
      const publishing = processes[0].do('publish', {
        perSecond: values.rate,
        seconds: settle + seconds + 1,
      });
      await measure('fan-out');
      await publishing;
      const { length } = results['fan-out'].delays;
      test.check('deliveries to the room of all workers', '> 0', length, length > 0);
    }
    await Promise.all(processes.map((process) => process.do('close')));

    const lines = markdown(results);
    print(`\n${lines.join('\n')}\n`);
    if (save === '') return;
    mkdirSync(dirname(save), { recursive: true });
    writeFileSync(`${save}.md`, `${lines.join('\n')}\n`);
    const options = {
      perServer,
      workers: workerCount,
      rooms: roomCount,
      processes: processCount,
      seconds,
    };
    const text = JSON.stringify({ options, results }, (key, value) =>
      key === 'delays' ? undefined : value,
    );
    writeFileSync(`${save}.json`, `${text}\n`);
  },
  LIMIT_MS,
);
