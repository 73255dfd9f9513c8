// The load tests hold the whole server to what it promises, on real processes; here each runs in a
// small form.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
const LIMIT_MS = 100_000;

/** What holds, and the script that shows it. @type {[string, string, ...string[]][]} */
const CASES = [
  [
    'two servers on one Redis: every member gets every message once, in order',
    'verify.js',
    '--redis',
    '--clients',
    '200',
    '--messages',
    '1000',
  ],
  [
    'one server of four workers: the same',
    'verify.js',
    '--embedded',
    '--servers',
    '1',
    '--workers',
    '4',
    '--clients',
    '200',
    '--messages',
    '1000',
  ],
  [
    'a broadcast reaches everyone, its result follows, and nothing unasked is sent',
    'broadcast.js',
    '--clients',
    '200',
    '--broadcasts',
    '10',
  ],
  [
    'the same over Redis',
    'broadcast.js',
    '--redis',
    '--servers',
    '2',
    '--clients',
    '200',
    '--broadcasts',
    '10',
  ],
  ['a killed worker costs its own clients and no counter', 'faults/worker-killed.js'],
  ['SIGTERM sends everyone away in order and loses nothing accepted', 'faults/sigterm.js'],
  ['Redis killed and frozen: refused, unknown, noticed, back', 'faults/redis-away.js'],
  [
    'each address has its own connections, forged headers or not, behind HAProxy or not',
    'faults/per-ip.js',
  ],
  ['the message rate is what it says', 'faults/rate-limit.js'],
];

for (const [name, script, ...args] of CASES) {
  test(name, { timeout: LIMIT_MS }, async (t) => {
    const hindrance = script === 'faults/per-ip.js' ? noNamespaces() : '';
    if (hindrance) {
      t.diagnostic(`without HAProxy and network namespaces: ${hindrance}`);
      args.push('--direct');
    }
    const child = spawn(process.execPath, [`${root}loadtest/${script}`, ...args], { cwd: root });
    t.after(() => child.kill('SIGTERM'));
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += data));
    const [code] = await once(child, 'exit');
    assert.equal(code, 0, said);
  });
}

/** @returns {string} why there are no network namespaces to be had; nothing where there are */
function noNamespaces() {
  if (process.getuid?.() !== 0) return 'they need root';
  const name = `fanfare-${process.pid}-try`;
  const { status, stderr, error } = spawnSync('ip', ['netns', 'add', name], { encoding: 'utf8' });
  if (status !== 0) return error?.message ?? stderr.trim();
  spawnSync('ip', ['netns', 'delete', name]);
  return '';
}
