// terminal.test.js: a server that people start by hand: its output, Ctrl-C, and a terminal that
// is closed.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { endedNote } from '../../src/doctor/versions.js';
import { childrenOf, until } from '../harness/server.js';
import { shared } from '../helpers/shared.js';

const MAIN = fileURLToPath(new URL('../../src/main.js', import.meta.url));
const HELLO = fileURLToPath(new URL('../../loadtest/hello.js', import.meta.url));
const noScript =
  spawnSync('script', ['--version']).error !== undefined && 'no script (util-linux) here';
const OPTIONS = { timeout: 30_000, skip: noScript };

/**
 * Starts a server on a terminal of its own and waits until it is ready.
 * @param {import('../harness/server.js').Owner} t @param {Record<string, string>} [env]
 */
async function startOnTerminal(t, env = {}) {
  const child = spawn('script', ['-qec', `exec ${process.execPath} ${MAIN}`, '/dev/null'], {
    env: {
      PATH: process.env.PATH,
      TMPDIR: process.env.TMPDIR,
      TERM: 'xterm',
      SHELL: '/bin/sh',
      HOST: '127.0.0.1',
      PORT: '0',
      METRICS_PORT: '0',
      WORKERS: '1',
      FANFARE_DRAIN_DELAY_MS: '0',
      FANFARE_MAX_LOOP_LAG_MS: '10000',
      ...env,
    },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text) => (said += text));
  const exited = once(child, 'exit');
  await until(() => /http api[^\n]*\n/.test(said), 15_000, 'the banner');
  const [pid] = childrenOf(/** @type {number} */ (child.pid));
  const workers = childrenOf(pid);
  assert.equal(workers.length, Number(env.WORKERS ?? 1));
  t.after(async () => {
    for (const one of [pid, ...workers]) if (isAlive(one)) process.kill(one, 'SIGKILL');
    child.kill('SIGKILL');
    await exited;
  });
  return { child, pid, workers, exited, text: () => said };
}

const colourless = shared((owner) => startOnTerminal(owner, { NO_COLOR: '1' }));

/** @param {number} pid */
function isAlive(pid) {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

const COLOUR = '\x1b[';
const JSON_LINE = /^\{.*\}\r?$/m;
const TEXT_LINE = /^\d\d:\d\d:\d\d\.\d{3} info {2}worker ready {2}/m;

test(
  'on a terminal people get text in colour and a banner; Ctrl-C ends it without a warning, and waits for no load balancer',
  OPTIONS,
  async (t) => {
    const { child, exited, text } = await startOnTerminal(t, {
      WORKERS: '2',
      FANFARE_DRAIN_DELAY_MS: '300000',
      FANFARE_SHUTDOWN_TIMEOUT_MS: '600000',
    });
    assert.ok(text().includes(COLOUR));
    assert.doesNotMatch(text(), JSON_LINE);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is left out
    const plain = text().replaceAll(/\x1b\[[\d;]*m/g, '');
    assert.match(plain, TEXT_LINE);
    // The banner is in one piece.
    assert.match(
      plain,
      /\n {2}fanfare is ready: 2 workers\r\n\r\n {2}public .*\r\n {2}operations .*\r\n {2}console .*\r\n {2}broker .*\r\n/,
    );
    // Values that an operator may not want are yellow.
    assert.ok(text().includes(`${COLOUR}1;33maccess      open to everyone`));
    const [, url] = /npm run hello -- (ws:\S+)/.exec(plain) ?? [];
    const { status, stderr } = spawnSync(process.execPath, [HELLO, url], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    child.stdin.write('\x03');
    assert.deepEqual(await exited, [0, null]);
    assert.match(text(), /draining/);
    // One warning, if the line of this Node gets no more fixes.
    const aged = endedNote(process.version, Date.now());
    const warnings = text()
      .split('\r\n')
      .filter((line) => /WARN|ERROR|FATAL/.test(line));
    assert.equal(warnings.length, aged === '' ? 0 : 1, warnings.join('\n'));
    assert.ok(warnings.every((line) => line.includes(aged)));
  },
);

test(
  'NO_COLOR is respected, and LOG_FORMAT=json holds on a terminal as well',
  OPTIONS,
  async (t) => {
    const [plain, json] = await Promise.all([
      colourless(),
      startOnTerminal(t, { LOG_FORMAT: 'json' }),
    ]);
    assert.match(plain.text(), TEXT_LINE);
    assert.ok(!plain.text().includes(COLOUR));
    for (const line of json.text().trim().split('\r\n')) assert.ok(JSON.parse(line).msg, line);
  },
);

test(
  'a server whose terminal is closed drains and leaves, though SIGHUP comes more than once',
  OPTIONS,
  async () => {
    const { child, pid, workers } = await colourless();
    child.kill('SIGKILL');
    try {
      process.kill(pid, 'SIGHUP');
    } catch {
      // it has left already
    }
    await until(() => ![pid, ...workers].some(isAlive), 15_000, 'the end of the server');
  },
);
