// npm.test.js: a server that npm has started. npm runs a command through a shell, which does not
// pass signals on, so a signal to npm alone must end the server all the same.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { until } from '../harness/server.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const OPTIONS = { timeout: 60_000 };

/**
 * Starts a server by npm in this checkout and waits until it is ready.
 * @param {import('node:test').TestContext} t @param {string} command
 */
async function startBy(t, command) {
  const [program, ...args] = command.split(' ');
  const child = spawn(program, args, {
    cwd: ROOT,
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      npm_config_update_notifier: 'false',
      HOST: '127.0.0.1',
      PORT: '0',
      METRICS_PORT: '0',
      WORKERS: '1',
      LOG_FORMAT: 'json',
      FANFARE_DRAIN_DELAY_MS: '0',
      FANFARE_MAX_LOOP_LAG_MS: '10000',
    },
    stdio: ['ignore', 'pipe', 'ignore'],
    // A group of its own, so that the test can end the processes that are left of it.
    detached: true,
  });
  const group = -(/** @type {number} */ (child.pid));
  const exited = once(child, 'exit');
  t.after(async () => {
    try {
      process.kill(group, 'SIGKILL');
    } catch {
      // No process is left in it.
    }
    await exited;
  });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text) => (said += text));
  const lines = () =>
    said
      .split('\n')
      .slice(0, -1)
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line));
  const isReady = () => lines().some(({ msg }) => String(msg).startsWith('fanfare is ready'));
  await until(isReady, 30_000, `the start by ${command}`);
  const pids = [lines()[0].pid, ...lines().flatMap(({ workerPid }) => workerPid ?? [])];
  assert.notEqual(pids[0], child.pid);
  return { child, pids, lines };
}

/** @param {number} pid */
function isAlive(pid) {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

for (const [command, signal] of /** @type {const} */ ([
  ['npm start', 'SIGTERM'],
  ['npm start', 'SIGINT'],
  ['npm start', 'SIGHUP'],
  ['npm start', 'SIGKILL'],
  ['npx --no-install fanfare', 'SIGTERM'],
  ['npm run dev', 'SIGTERM'],
  ['npm run dev', 'SIGINT'],
  ['npm run dev', 'SIGHUP'],
])) {
  test(`${signal} to ${command} alone drains the server`, OPTIONS, async (t) => {
    const { child, pids, lines } = await startBy(t, command);
    child.kill(signal);
    await until(() => !pids.some(isAlive), 20_000, 'the end of the server');
    const stopped = () => lines().find(({ msg }) => msg === 'fanfare stopped');
    await until(stopped, 5000, 'its last line');
    assert.equal(stopped().code, 0);
  });
}
