// fleet.js: the client processes. The parent asks one or all of them for a step, and adds up their
// reports.

import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const CLIENT = fileURLToPath(new URL('./client.js', import.meta.url));
/** Beyond the time a step takes by itself; a process that is silent for longer hangs. */
const SLACK_MS = 60_000;
const CLOSE_MS = 20_000;

/** @typedef {import('./client.js').Tick} Tick */

/** A client process is gone or hangs, and the run with it. */
export class ClientLost extends Error {}

export class Fleet {
  #size;
  #setup;
  #onTick;
  /**
   * @type
   *   {{child: import('node:child_process').ChildProcess, waiting: Map<number, {resolve: (answer: any) => void, reject: (error: Error) => void}>}[]}
   */
  #processes = [];
  #lastId = 0;
  /** @type {ClientLost|null} */
  #failure = null;
  #closing = false;

  /**
   * @param {object} options
   * @param {number} options.size processes
   * @param {import('./client.js').Setup} options.setup `ports` of all of them together
   * @param {(process: number, tick: Tick) => void} options.onTick
   */
  constructor({ size, setup, onTick }) {
    this.#size = size;
    this.#setup = setup;
    this.#onTick = onTick;
  }

  get size() {
    return this.#size;
  }

  async start() {
    for (let i = 0; i < this.#size; i++) {
      // Output other than messages is a fault, and shows.
      const child = fork(CLIENT, [], {
        serialization: 'advanced',
        execArgv: ['--max-semi-space-size=16'],
      });
      /** @type {Map<number, {resolve: (answer: any) => void, reject: (error: Error) => void}>} */
      const waiting = new Map();
      child.on('message', (/** @type {any} */ { id, answer, tick }) => {
        this.#onTick(i, tick);
        if (id === undefined) return;
        waiting.get(id)?.resolve(answer);
        waiting.delete(id);
      });
      child.on('error', ({ message }) => this.#fail(new ClientLost(message)));
      child.on('exit', (code, signal) => {
        if (!this.#closing)
          this.#fail(new ClientLost(`a client process ended with ${signal ?? code}`));
      });
      this.#processes.push({ child, waiting });
    }
    const { ports } = this.#setup;
    await this.all('setup', (process) => ({
      ...this.#setup,
      ports: ports.filter((_, i) => i % this.#size === process),
    }));
  }

  /** @param {ClientLost} error */
  #fail(error) {
    this.#failure ??= error;
    for (const { waiting } of this.#processes) {
      for (const { reject } of waiting.values()) reject(this.#failure);
      waiting.clear();
    }
  }

  /**
   * @param {number} process
   * @param {string} step a method of ClientProcess
   * @param {object} ask
   * @param {number} [takesMs] time that the step itself may take
   * @returns {Promise<any>} its answer; rejects if the process is gone, or silent for too long
   */
  ask(process, step, ask, takesMs = 0) {
    if (this.#failure) return Promise.reject(this.#failure);
    const { child, waiting } = this.#processes[process];
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () =>
          this.#fail(
            new ClientLost(
              `a client process has not answered ${step} within ${(takesMs + SLACK_MS) / 1000} s`,
            ),
          ),
        takesMs + SLACK_MS,
      );
      waiting.set(id, {
        resolve: (answer) => {
          clearTimeout(timer);
          resolve(answer);
        },
        reject: (error) => {
          clearTimeout(timer);
          reject(error);
        },
      });
      child.send({ id, step, ask }, (error) => error && this.#fail(new ClientLost(error.message)));
    });
  }

  /**
   * @param {string} step
   * @param {(process: number) => object} askOf
   * @param {number} [takesMs]
   * @returns {Promise<any[]>}
   */
  all(step, askOf, takesMs) {
    return Promise.all(this.#processes.map((_, i) => this.ask(i, step, askOf(i), takesMs)));
  }

  /** Steps under way end as soon as they can, and later ones at once. */
  stop() {
    for (const { child } of this.#processes)
      if (child.connected) child.send({ step: 'stop' }, () => {});
  }

  /** Hangs up, so that no port lingers, and ends the processes. May be called twice. */
  async close() {
    if (this.#closing) return;
    this.#closing = true;
    /** @type {NodeJS.Timeout|undefined} */
    let timer;
    if (this.#failure === null) {
      const late = new Promise((resolve) => {
        timer = setTimeout(resolve, CLOSE_MS);
      });
      await Promise.race([this.all('close', () => ({ keep: 0 })).catch(() => {}), late]);
      clearTimeout(timer);
    }
    for (const { child, waiting } of this.#processes) {
      for (const { reject } of waiting.values()) reject(new ClientLost('closed'));
      waiting.clear();
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const exited = new Promise((resolve) => {
        child.once('exit', resolve);
      });
      child.kill('SIGKILL');
      await exited;
    }
  }

  /**
   * This process's part of a whole.
   * @param {number} whole @param {number} process @returns {number}
   */
  part(whole, process) {
    return Math.floor(whole / this.#size) + (process < whole % this.#size ? 1 : 0);
  }
}
