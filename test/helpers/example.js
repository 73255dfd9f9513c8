// example.js: starts an example of examples/: a Fanfare server with its settings, and its backend.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { freePort } from '../harness/redis.js';
import { startServer } from '../harness/server.js';
import { newSecret } from './api.js';
import { SECRET } from './tokens.js';

const examples = fileURLToPath(new URL('../../examples/', import.meta.url));

/** @typedef {import('../harness/server.js').Owner} Owner */
/** @typedef {Record<string, string>} Env */

/**
 * Starts a script, and waits for the line with the address of its pages.
 * @param {Owner} t
 * @param {string[]} args of Node
 * @param {Env} env
 * @param {string} [cwd]
 * @returns {Promise<string>} their address
 */
export async function startBackend(t, args, env, cwd) {
  const child = spawn(process.execPath, args, {
    cwd,
    env: { PATH: process.env.PATH, WEB_PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // SIGTERM, so that it ends the processes that it has started.
  t.after(() => child.kill());
  return new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      const [, url] = /^open (http:\S+)$/.exec(line) ?? [];
      if (url !== undefined) resolve(url);
    });
    child.on('exit', () => reject(new Error(`${args.join(' ')} has ended`)));
  });
}

/**
 * Starts an example whose server may be restarted.
 * @param {Owner} t
 * @param {string} name
 * @param {Env} [serverEnv] more settings of Fanfare
 * @param {Env} [backendEnv]
 */
export async function startExample(t, name, serverEnv = {}, backendEnv = {}) {
  const apiKey = newSecret();
  const settings = {
    FANFARE_CONFIG_FILE: `${examples}${name}/fanfare.conf`,
    FANFARE_RECONNECT_WINDOW_MS: '500',
    PORT: String(await freePort()),
    JWT_SECRET: SECRET,
    API_KEYS: `example ${apiKey} all`,
    ...serverEnv,
  };
  const start = () => startServer(t, settings);
  const server = await start();
  const serverUrl = `http://127.0.0.1:${server.port}`;
  const url = await startBackend(t, [`${examples}${name}/server.js`], {
    SERVER_URL: serverUrl,
    JWT_SECRET: SECRET,
    API_KEY: apiKey,
    ...backendEnv,
  });
  return { url, serverUrl, server, start };
}

/**
 * Starts an example as its README does.
 * @param {Owner} t @param {string} name @param {Env} [env]
 */
export function runExample(t, name, env) {
  return startBackend(t, [`${examples}run.js`, name], { PORT: '0', METRICS_PORT: '0', ...env });
}
