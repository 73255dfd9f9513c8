// daemon.js: starts other programs for tests (HAProxy, nginx, Prometheus, exporters), with the files
// of ops/.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { isListening } from '../harness/redis.js';
import { until } from '../harness/server.js';

/** Debian keeps some of them outside a normal user's PATH. */
const PATH = `${process.env.PATH}:/usr/local/sbin:/usr/sbin:/sbin`;
const START_MS = 10_000;

/**
 * Starts one in the foreground and waits until it listens; it is killed when the test ends.
 * @param {import('../harness/server.js').Owner} t
 * @param {string} command
 * @param {string[]} args
 * @param {number} port of the loopback address
 */
export async function startDaemon(t, command, args, port) {
  const child = spawn(command, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, PATH },
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += data));
  /** @type {Error|null} */
  let failure = null;
  child.on('error', (error) => {
    failure = error;
  });
  t.after(async () => {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  });
  await until(
    async () => {
      if (failure || child.exitCode !== null)
        throw new Error(`${command} does not start: ${failure ?? said}`);
      return isListening(port);
    },
    START_MS,
    `the start of ${command}`,
  );
}

/**
 * A file of ops/ with some of its text replaced. Throws if the file lacks a text, so that the file
 * and the test stay together.
 * @param {string} path from ops/
 * @param {readonly (readonly [string, string])[]} edits a text, and its replacement
 */
export async function edited(path, edits) {
  let text = await readFile(new URL(`../../ops/${path}`, import.meta.url), 'utf8');
  for (const [from, to] of edits) {
    if (!text.includes(from)) throw new Error(`ops/${path} has no ${from}`);
    text = text.replaceAll(from, to);
  }
  return text;
}
