// clients.test.js: WebSocket clients that others wrote, against a real server:
// `node test/run.js clients`.
//
// The Python packages are installed from PyPI (requirements.txt) into a virtual environment in a
// temporary folder. So the tests need Python 3.9 or later and the network, and npm test leaves them
// out. Java's client is run where Java is found.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { freePort, isListening } from '../harness/redis.js';
import { startServer, until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { connect } from '../helpers/clients.js';
import { codeWith } from '../helpers/doc-code.js';

const INSTALL_TIMEOUT_MS = 300_000;
const CLIENT_TIMEOUT_MS = 60_000;
const MIN_JAVA = 11;

const here = fileURLToPath(new URL('.', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'fanfare-clients-'));
const python = join(folder, 'bin', 'python');

/**
 * @param {string} command
 * @param {string[]} args
 * @param {number} timeout in ms
 * @returns {string} what it printed
 */
function run(command, args, timeout) {
  const { error, status, stdout, stderr } = spawnSync(command, args, { encoding: 'utf8', timeout });
  if (error) throw error;
  assert.equal(status, 0, `${command} ${args.join(' ')}\n${stdout}${stderr}`);
  return stdout;
}

/** @returns {number} the major version; 0: there is no Java */
function javaVersion() {
  const { error, stderr } = spawnSync('java', ['-version'], { encoding: 'utf8' });
  return error ? 0 : Number(/version "(\d+)/.exec(stderr)?.[1] ?? 0);
}

after(() => rmSync(folder, { recursive: true, force: true }));

describe('Python clients', () => {
  before(() => {
    if (spawnSync('python3', ['--version']).error)
      throw new Error(
        'there is no python3 here: install Python 3.9 or later (Debian: apt-get install python3-venv)',
      );
    run('python3', ['-m', 'venv', folder], INSTALL_TIMEOUT_MS);
    run(
      python,
      ['-m', 'pip', 'install', '--quiet', '-r', join(here, 'requirements.txt')],
      INSTALL_TIMEOUT_MS,
    );
  });

  for (const client of ['websockets', 'aiohttp']) {
    for (const compression of ['off', 'on']) {
      test(`${client}, compression ${compression}`, { timeout: CLIENT_TIMEOUT_MS }, async (t) => {
        const server = await startServer(t, { FANFARE_COMPRESSION: compression });
        const url = `ws://127.0.0.1:${server.port}/ws`;
        assert.equal(
          run(python, [join(here, `${client}_client.py`), url], CLIENT_TIMEOUT_MS),
          'ok\n',
        );
      });
    }
  }

  test('websocket-client sends an Origin, and is admitted without', {
    timeout: CLIENT_TIMEOUT_MS,
  }, async (t) => {
    const server = await startServer(t, { ALLOWED_ORIGINS: 'https://chat.example' });
    const args = [join(here, 'websocket_client.py'), `ws://127.0.0.1:${server.port}/ws`];
    assert.equal(run(python, args, CLIENT_TIMEOUT_MS), 'ok\n');
  });

  test('the backend of FastAPI in docs/hooks-http.md answers hooks', {
    timeout: CLIENT_TIMEOUT_MS,
  }, async (t) => {
    const hooks = `
async def allow(asked):
    return {"user": "ann"} if asked["hook"] == "onConnect" else True

HOOKS = {"onConnect": allow, "onJoin": allow}
`;
    const code = codeWith('docs/hooks-http.md', 'from fastapi import');
    writeFileSync(join(folder, 'backend.py'), code.replace('\n@app', `${hooks}\n@app`));
    const port = await freePort();
    const FANFARE_HOOKS_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
    const args = ['-m', 'uvicorn', 'backend:app', '--port', String(port), '--log-level', 'error'];
    const backend = spawn(python, args, {
      cwd: folder,
      env: { PATH: process.env.PATH, FANFARE_HOOKS_SECRET },
      stdio: 'inherit',
    });
    t.after(() => backend.kill());
    await until(() => isListening(port), CLIENT_TIMEOUT_MS);
    const { port: serverPort } = await startServer(t, {
      FANFARE_HOOKS: `http://127.0.0.1:${port}/fanfare`,
      FANFARE_HOOKS_SECRET,
    });
    const client = await connect(t, serverPort);
    const { userId } = await client.ask({ type: 'hello' }, 'welcome');
    assert.equal(userId, 'ann');
    await client.join('chat.1');
  });
});

const version = javaVersion();
test(`java.net.http.HttpClient of Java ${version || '(not found)'} publishes`, {
  timeout: CLIENT_TIMEOUT_MS,
  skip: version < MIN_JAVA && `it needs Java ${MIN_JAVA} or later`,
}, async (t) => {
  const secret = newSecret();
  const server = await startServer(t, { API_KEYS: `java ${secret} publish` });
  const args = [join(here, 'JavaPublisher.java'), `http://127.0.0.1:${server.port}`, secret];
  assert.equal(run('java', args, CLIENT_TIMEOUT_MS), 'ok\n');
});

test(`java.net.http.WebSocket of Java ${version || '(not found)'}`, {
  timeout: CLIENT_TIMEOUT_MS,
  skip: version < MIN_JAVA && `it needs Java ${MIN_JAVA} or later`,
}, async (t) => {
  const server = await startServer(t);
  const url = `ws://127.0.0.1:${server.port}/ws`;
  assert.equal(run('java', [join(here, 'JavaClient.java'), url], CLIENT_TIMEOUT_MS), 'ok\n');
});
