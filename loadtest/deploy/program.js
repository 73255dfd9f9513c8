// program.js: a server or proxy of another author, or Fanfare: started, stopped and started again.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { isListening } from '../../test/harness/redis.js';
import { childrenOf, until } from '../../test/harness/server.js';

const START_MS = 30_000;
/** A supervisor's patience (docs/deployment.md, "systemd"). */
const STOP_MS = 40_000;
const OUTPUT_CHARS = 4000;
/** Debian keeps HAProxy outside a normal user's PATH. */
const PATH = `${process.env.PATH}:/usr/local/sbin:/usr/sbin:/sbin`;

export class Program {
  /** @type {import('node:child_process').ChildProcess|null} */
  #child = null;

  /** @param {readonly string[]} command @param {Record<string, string>} env @param {number} port */
  constructor(command, env, port) {
    this.command = command;
    this.env = env;
    this.port = port;
  }

  /** Waits until it listens. */
  async start() {
    const [file, ...args] = this.command;
    let output = '';
    const child = spawn(file, args, {
      env: { PATH, HOME: process.env.HOME, ...this.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (text) => {
        output = (output + text).slice(-OUTPUT_CHARS);
      });
    /** @type {Error|null} */
    let failure = null;
    child.on('error', (error) => {
      failure = error;
    });
    await until(
      () => {
        if (failure || child.exitCode !== null || child.signalCode !== null)
          throw new Error(`${file} does not start: ${failure ?? output}`);
        return isListening(this.port);
      },
      START_MS,
      `the start of ${this.command.join(' ')}`,
    );
  }

  /** SIGTERM, as a supervisor sends it. @returns {Promise<number>} the seconds until it has ended */
  async stop() {
    const child = this.#child;
    if (child === null || child.exitCode !== null) return 0;
    const fromMs = performance.now();
    const exited = once(child, 'exit');
    child.kill('SIGTERM');
    const timer = setTimeout(() => this.kill(), STOP_MS);
    await exited;
    clearTimeout(timer);
    return (performance.now() - fromMs) / 1000;
  }

  async kill() {
    const child = this.#child;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    const children = childrenOf(child.pid);
    child.kill('SIGKILL');
    for (const pid of children) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It has ended.
      }
    }
    await exited;
  }
}
