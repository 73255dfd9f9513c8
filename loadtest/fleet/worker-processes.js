// worker-processes.js: the processes that hold the simulated workers (workers.js), seen from
// fleet.js.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const SCRIPT = fileURLToPath(new URL('workers.js', import.meta.url));

/** @typedef {keyof import('./workers.js').Orders} Order */

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
   * @param {Order} order
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

/** All processes of workers. They end with the test. */
export class WorkerProcesses {
  /** @param {import('../../test/harness/run.js').Run} test @param {number} count */
  constructor(test, count) {
    this.processes = Array.from({ length: count }, () => new WorkerProcess());
    for (const process of this.processes) test.after(() => process.end());
  }

  /** @param {Order} order @param {object} [details] @returns {Promise<any[]>} their results */
  all(order, details) {
    return Promise.all(this.processes.map((process) => process.do(order, details)));
  }

  /** @param {Order} order @param {object} [details] @returns {Promise<any>} */
  first(order, details) {
    return this.processes[0].do(order, details);
  }

  /**
   * Splits a number among the processes.
   * @param {Order} order @param {number} total @param {object} [details]
   * @param {number} [unit] which is not split
   * @returns {Promise<number>} the sum of their results
   */
  async share(order, total, details, unit = 1) {
    const { length } = this.processes;
    const cut = (/** @type {number} */ i) =>
      Math.min(total, unit * Math.round((i * total) / length / unit));
    const done = await Promise.all(
      this.processes.map((process, i) => {
        const end = i + 1 === length ? total : cut(i + 1);
        return process.do(order, { ...details, first: cut(i), count: end - cut(i) });
      }),
    );
    return done.reduce((sum, n) => sum + n, 0);
  }
}
