// user-shell.js: the terminals of a user who follows a guide, in a network of their own, so that the
// guide's ports are free.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '../harness/server.js';

/** @typedef {{after: (fn: () => unknown) => void}} Owner */

/** A command that takes longer has failed. */
export const START_MS = 60_000;

/** Helpers for programs: sockets, and their messages by type. */
const PRELUDE = `
import { WebSocket } from 'ws';
const received = new Map();
const open = (url = 'ws://localhost:3000', protocols) => listen(new WebSocket(url, protocols));
function listen(socket) {
  const messages = [];
  received.set(socket, messages);
  socket.on('message', (data) => {
    messages.push(JSON.parse(data));
    socket.emit('one');
  });
  return new Promise((resolve, reject) => {
    socket.on('open', () => resolve(socket));
    socket.on('error', reject);
  });
}
async function next(socket, type) {
  const messages = received.get(socket);
  for (;;) {
    const index = messages.findIndex((message) => message.type === type);
    if (index >= 0) return messages.splice(index, 1)[0];
    await new Promise((resolve) => socket.once('one', resolve));
  }
}
`;

/**
 * The environment of a user's shell: without npm's variables and those of the test.
 * @returns {NodeJS.ProcessEnv}
 */
function userEnv() {
  const { PATH, HOME, npm_config_cache, npm_config_registry } = process.env;
  const all = { PATH: `${PATH}:/usr/sbin:/sbin`, HOME, npm_config_cache, npm_config_registry };
  return { ...all, npm_config_update_notifier: 'false', npm_config_prefer_offline: 'true' };
}

/**
 * Runs a command outside of that network, such as one that needs the npm registry.
 * @param {string} cwd @param {string} code @returns {string} its output
 */
export function bash(cwd, code) {
  const { status, stdout, stderr } = spawnSync('bash', ['-e', '-c', code], {
    cwd,
    env: userEnv(),
    encoding: 'utf8',
  });
  assert.equal(status, 0, `${code}\n${stdout}${stderr}`);
  return stdout;
}

/** The terminals of one network. Needs root (`canBePrivate`). */
export class UserShell {
  #holder;
  #folder;

  /** @param {import('node:child_process').ChildProcess} holder @param {string} folder */
  constructor(holder, folder) {
    this.#holder = holder;
    this.#folder = folder;
  }

  /** @param {Owner} t ends the network @param {string} folder where commands run */
  static async start(t, folder) {
    // The network lives as long as this process.
    const holder = spawn('unshare', ['--net', 'sh', '-c', 'ip link set lo up && echo up && cat'], {
      env: userEnv(),
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    t.after(() => holder.kill('SIGKILL'));
    await once(holder.stdout, 'data');
    return new UserShell(holder, folder);
  }

  /** @param {...string} command @returns {string[]} arguments of nsenter */
  #inside(...command) {
    return [`--net=/proc/${this.#holder.pid}/ns/net`, ...command];
  }

  /** Runs a command. @param {string} code @param {string} [cwd] @returns {string} its output */
  run(code, cwd = this.#folder) {
    const { status, stdout, stderr } = spawnSync(
      'nsenter',
      this.#inside('bash', '-e', '-c', code),
      { cwd, env: userEnv(), encoding: 'utf8', timeout: START_MS },
    );
    assert.equal(status, 0, `${code}\n${stdout}${stderr}`);
    return stdout;
  }

  /** Runs a program. @param {string} code @returns {string} its output */
  program(code) {
    writeFileSync(join(this.#folder, 'program.mjs'), PRELUDE + code);
    return this.run('node program.mjs').trim();
  }

  /**
   * Starts a server as a terminal does, and waits until it is ready. Ctrl-C stops it.
   * @param {Owner} t @param {string} code @param {string} [cwd]
   */
  async start(t, code, cwd = this.#folder) {
    const { child, kill, log } = this.#spawn(t, code, cwd);
    const exited = once(child, 'exit');
    await until(() => /fanfare is ready/.test(log()) || child.exitCode !== null, START_MS);
    const ready = log()
      .split('\n')
      .find((line) => line.includes('fanfare is ready'));
    assert.ok(ready, `${code}\n${log()}`);
    return {
      pid: Number(/"pid":(\d+)/.exec(ready)?.[1]),
      async stop() {
        kill('SIGINT');
        await exited;
      },
    };
  }

  /**
   * Starts another program, such as redis-server, and waits for its port.
   * @param {Owner} t @param {string} code @param {number} port
   */
  async startOther(t, code, port) {
    const { child, log } = this.#spawn(t, code, this.#folder);
    const probe = this.#inside('bash', '-c', `exec 3<>/dev/tcp/127.0.0.1/${port}`);
    await until(
      () =>
        child.exitCode !== null || spawnSync('nsenter', probe, { stdio: 'ignore' }).status === 0,
      START_MS,
    );
    assert.equal(child.exitCode, null, `${code}\n${log()}`);
  }

  /** @param {Owner} t @param {string} code @param {string} cwd */
  #spawn(t, code, cwd) {
    const child = spawn('nsenter', this.#inside('bash', '-e', '-c', code), {
      cwd,
      env: userEnv(),
      stdio: ['ignore', 'pipe', 'inherit'],
      detached: true,
    });
    const kill = (/** @type {NodeJS.Signals} */ signal) => {
      try {
        process.kill(-Number(child.pid), signal);
      } catch {
        // The group has ended.
      }
    };
    t.after(() => kill('SIGKILL'));
    let log = '';
    child.stdout.on('data', (data) => {
      log += data;
    });
    return { child, kill, log: () => log };
  }
}
