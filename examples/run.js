// run.js: runs an example: a Fanfare server with its settings, and its web server beside it.
//
//   node examples/run.js chat            also: leaderboard, ai-stream, echo-chat
//
// In your project the two run by themselves: `npx fanfare`, and your own backend. An example has its
// settings of Fanfare in fanfare.conf, and its backend in server.js. This file makes new secrets for
// both, and starts Redis (`redis-server`) if the example needs one and REDIS_URL is not set. An app
// for Pusher clients is in apps.json; this file adds its secret.
//
// PORT, METRICS_PORT and WEB_PORT change the ports 3000, 9090 and 8080. Other settings of Fanfare
// may be given, too.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const FANFARE = join(import.meta.dirname, '../src/main.js');
const EXAMPLES = ['chat', 'leaderboard', 'ai-stream', 'echo-chat'];
const ERROR = 50;
/** An example that ends must not wait for a drain. */
const QUICK_END = { FANFARE_DRAIN_DELAY_MS: '0', FANFARE_RECONNECT_WINDOW_MS: '1000' };
/** Refuses nothing that somebody tries out; counts it in fanfare_limits_observed_total. */
const OBSERVED = { FANFARE_LIMITS: 'observe' };

const [name] = process.argv.slice(2);
if (!EXAMPLES.includes(name)) {
  console.error(`Usage: node examples/run.js ${EXAMPLES.join('|')}`);
  process.exit(64);
}
const folder = join(import.meta.dirname, name);
const conf = join(folder, 'fanfare.conf');

/** @type {Set<import('node:child_process').ChildProcess>} */
const children = new Set();
let isEnding = false;

const apiKey = randomBytes(32).toString('hex');
/** @type {NodeJS.ProcessEnv} */
const env = {
  JWT_SECRET: randomBytes(32).toString('hex'),
  API_KEYS: `example ${apiKey} all`,
  ...QUICK_END,
  ...OBSERVED,
  ...process.env,
  FANFARE_CONFIG_FILE: conf,
  API_KEY: apiKey,
};

for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) process.on(signal, () => end(0));
const apps = join(folder, 'apps.json');
if (existsSync(apps)) Object.assign(env, secretApp(apps));
if (readFileSync(conf, 'utf8').includes('needs a Redis')) env.REDIS_URL ??= await startRedis();
env.PORT = await startFanfare();
env.SERVER_URL ??= `http://localhost:${env.PORT}`;
start(process.execPath, [join(folder, 'server.js')], env, 'inherit').on('close', () => end(1));

/** @param {number} code */
function end(code) {
  if (isEnding) return;
  isEnding = true;
  for (const child of children) child.kill('SIGTERM');
  process.exitCode = code;
}

/**
 * Starts a process that ends with this one.
 * @param {string} command
 * @param {string[]} args
 * @param {NodeJS.ProcessEnv} environment
 * @param {'pipe'|'inherit'|'ignore'} stdout
 */
function start(command, args, environment, stdout) {
  const child = spawn(command, args, { env: environment, stdio: ['ignore', stdout, 'inherit'] });
  children.add(child);
  child.on('error', (error) => console.error(`${command}: ${error.message}`));
  child.on('close', () => children.delete(child));
  return child;
}

/**
 * Starts the server, and starts it again if it dies. Kill it to see that nothing is lost.
 * @returns {Promise<string>} its port
 */
function startFanfare() {
  const log = { LOG_FORMAT: 'json', LOG_LEVEL: 'info' };
  const child = start(process.execPath, [FANFARE], { ...env, ...log }, 'pipe');
  const output = /** @type {import('node:stream').Readable} */ (child.stdout);
  return new Promise((resolve) => {
    let isReady = false;
    createInterface({ input: output }).on('line', (text) => {
      const { level, msg, pid, port } = JSON.parse(text);
      if (level >= ERROR) console.error(`fanfare: ${msg}`);
      if (!String(msg).startsWith('fanfare is ready')) return;
      isReady = true;
      console.log(`fanfare is ready on port ${port}; its process is ${pid}`);
      resolve(String(port));
    });
    child.on('close', () => {
      if (!isReady) end(1);
      else if (!isEnding) void startFanfare();
    });
  });
}

/**
 * Gives the app of a file a new secret.
 * @param {string} path @returns {Record<string, string>} settings of Fanfare and of the backend
 */
function secretApp(path) {
  const [app] = JSON.parse(readFileSync(path, 'utf8'));
  const secret = randomBytes(32).toString('hex');
  const file = join(temporaryFolder(), 'apps.json');
  writeFileSync(file, JSON.stringify([{ ...app, secret }]), { mode: 0o600 });
  return {
    FANFARE_PUSHER_APPS: file,
    PUSHER_APP_ID: app.id,
    PUSHER_APP_KEY: app.key,
    PUSHER_APP_SECRET: secret,
  };
}

/** @returns {string} a folder that is removed at the end */
function temporaryFolder() {
  const home = mkdtempSync(join(tmpdir(), 'fanfare-example-'));
  process.on('exit', () => rmSync(home, { recursive: true, force: true }));
  return home;
}

/** @returns {Promise<string>} its URL */
async function startRedis() {
  const home = temporaryFolder();
  const port = await freePort();
  const options = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', home, '--save', ''];
  start('redis-server', options, process.env, 'ignore').on('close', () => end(1));
  return `redis://127.0.0.1:${port}`;
}

/** @returns {Promise<number>} */
function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
      server.close(() => resolve(port));
    });
  });
}
