// redis.js: starts a real redis-server for a test or a load tool, on a port of its own. It can be
// killed, frozen and restarted.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { loadConfig } from '../../src/config/config.js';

const START_TIMEOUT_MS = 10_000;
const POLL_MS = 20;
const ATTEMPTS = 10;
const FIRST_PORT = 10_000;

const run = promisify(execFile);

/**
 * Starts a redis-server that ends with the test.
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {object} [options]
 * @param {number} [options.port]
 * @param {string[]} [options.args] more of its command line
 */
export async function startRedis(t, { port, args = [] } = {}) {
  const folder = await temporaryFolder();
  const redis = new RedisServer(folder, args);
  t.after(() => redis.end());
  for (let attempt = 1; ; attempt++) {
    redis.port = port ?? (await freePort());
    try {
      await redis.restart();
      return redis;
    } catch (error) {
      // Somebody else took the port in between.
      if (port !== undefined || attempt === ATTEMPTS) throw error;
    }
  }
}

export function temporaryFolder() {
  return mkdtemp(join(tmpdir(), 'fanfare-redis-'));
}

export class RedisServer {
  /**
   * @param {string} folder
   * @param {string[]} args
   * @param {string} [sentinelFile] its configuration, if it is a Sentinel
   */
  constructor(folder, args, sentinelFile) {
    this.folder = folder;
    this.args = args;
    this.sentinelFile = sentinelFile;
    this.port = 0;
    /** @type {import('node:child_process').ChildProcess|null} */
    this.process = null;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** As a broker's configuration has them. */
  get settings() {
    return redisSettings({ REDIS_URL: this.url });
  }

  /** Starts it, on the port it had, and waits until it answers. */
  async restart() {
    const options = ['--port', `${this.port}`, '--bind', '127.0.0.1', '--dir', this.folder];
    const kind = this.sentinelFile
      ? [this.sentinelFile, '--sentinel', ...options]
      : [...options, '--save', '', '--appendonly', 'no'];
    const child = spawn('redis-server', [...kind, ...this.args], { stdio: 'ignore' });
    this.process = child;
    /** @type {Error|null} */
    let failure = null;
    child.once('error', (error) => {
      failure = error;
    });
    child.once('exit', (code) => {
      failure ??= new Error(`redis-server left with ${code}`);
    });
    const end = performance.now() + START_TIMEOUT_MS;
    while (!(await answers(this.port, child.pid))) {
      if (failure) throw failure;
      if (performance.now() > end) throw new Error('redis-server does not answer');
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
    // Another server may sit on the port while ours is leaving.
    if (failure) throw failure;
  }

  /** SIGKILL, and waits until it is gone. May be called twice. */
  async kill() {
    await this.#end('SIGKILL');
  }

  /** Kills it, and does not start it again. */
  async end() {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** SIGTERM, and waits until it is gone. */
  async stop() {
    await this.#end('SIGTERM');
  }

  /** @param {NodeJS.Signals} signal */
  async #end(signal) {
    const child = this.process;
    this.process = null;
    if (
      child === null ||
      child.pid === undefined ||
      child.exitCode !== null ||
      child.signalCode !== null
    )
      return;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  }

  freeze() {
    this.process?.kill('SIGSTOP');
  }

  thaw() {
    this.process?.kill('SIGCONT');
  }

  /**
   * Runs redis-cli.
   * @param {...string} command
   * @returns {Promise<string>} its output
   */
  async cli(...command) {
    const { stdout } = await run('redis-cli', ['-p', `${this.port}`, ...command], {
      timeout: START_TIMEOUT_MS,
    });
    return stdout.trim();
  }

  /**
   * Sentinel closes all connections of a server whose role it changes, also the one that asks.
   * @returns {Promise<string>} `master`, `slave`, or '' if the server closed the connection
   */
  async role() {
    const answer = await this.cli('ROLE').catch((error) => {
      if (/closed the connection/.test(error.stderr)) return '';
      throw error;
    });
    return answer.split('\n')[0];
  }
}

/**
 * @param {Record<string, string>} env REDIS_…
 * @returns {import('../../src/config/redis.js').RedisSettings}
 */
export function redisSettings(env) {
  const { config, faults } = loadConfig(env);
  if (config?.redis) return config.redis;
  throw new Error(faults.join('\n') || 'no Redis is configured');
}

/**
 * Does that process answer? Another test's server may have taken the port a moment before it.
 * @param {number} port @param {number|undefined} pid @returns {Promise<boolean>}
 */
function answers(port, pid) {
  return new Promise((resolve) => {
    // From another address: if no process listens, a socket may get the very port it asks for and
    // connect to itself.
    const from = { port, host: '127.0.0.1', localAddress: '127.0.0.2' };
    const socket = connect(from, () => socket.write('INFO server\r\n'));
    socket.setTimeout(1000, () => socket.destroy());
    let text = '';
    socket.on('data', (data) => {
      text += data.toString('latin1');
      const process = /process_id:(\d+)\r/.exec(text);
      // -NOAUTH if the test sets a password.
      if (process === null && !text.startsWith('-')) return;
      resolve(process === null || Number(process[1]) === pid);
      socket.destroy();
    });
    socket.on('error', () => {
      // Not yet: `close` answers.
    });
    socket.once('close', () => resolve(false));
  });
}

/**
 * @param {number} port on 127.0.0.1
 * @returns {Promise<boolean>} whether a process listens there
 */
export function isListening(port) {
  return new Promise((resolve) => {
    // From another address: if no process listens, a socket may get the port it asks for and
    // connect to itself.
    const socket = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' }, () =>
      resolve(true),
    );
    socket.on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}

/**
 * A free port that the kernel gives to no outgoing connection: while a server is down, its port must
 * stay free until it returns.
 */
export async function freePort() {
  const range = await readFile('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').catch(
    () => '32768 60999',
  );
  const ephemeral = Number.parseInt(range, 10);
  const last = ephemeral > FIRST_PORT + 1000 ? ephemeral : 32_768;
  for (;;) {
    const port = FIRST_PORT + Math.floor(Math.random() * (last - FIRST_PORT));
    const server = createServer();
    const isFree = await new Promise((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}
