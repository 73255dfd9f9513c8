// tune.test.js: ops/sysctl/tune.sh, on a /proc/sys of files, and in a network namespace of its own.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const folder = fileURLToPath(new URL('../../ops/sysctl/', import.meta.url));
const conf = readFileSync(`${folder}99-fanfare.conf`, 'utf8');
/** The settings of the file: key to value. */
const wanted = new Map(
  [...conf.matchAll(/^-?([a-z][\w.-]+) = (.+)$/gm)].map(([, key, value]) => [key, value]),
);
const isRoot = process.getuid?.() === 0;
const canUnshare = isRoot && spawnSync('unshare', ['--net', 'true']).status === 0;

/**
 * A machine of files: every setting at a value of its own, and an /etc without ours.
 * @param {import('node:test').TestContext} t
 * @param {Record<string, string|null>} [different] null: the key is not there
 */
function machine(t, different = {}) {
  const root = temporaryFolder(t);
  /** @param {string} key */
  const pathOf = (key) => join(root, 'proc', ...key.split('.'));
  for (const key of wanted.keys()) {
    const value = different[key] === undefined ? '1' : different[key];
    if (value === null) continue;
    mkdirSync(dirname(pathOf(key)), { recursive: true });
    // As the kernel writes it: tabs between, a line end.
    writeFileSync(pathOf(key), `${value.replaceAll(' ', '\t')}\n`);
  }
  const env = { ...process.env, PROC_SYS: join(root, 'proc'), ETC: join(root, 'etc') };
  return {
    root,
    pathOf,
    /** @param {string} key */
    read: (key) => readFileSync(pathOf(key), 'utf8').trim().split(/\s+/).join(' '),
    written: () => readFileSync(join(root, 'etc/sysctl.d/99-fanfare.conf'), 'utf8'),
    /** @param {...string} args */
    tune: (...args) => spawnSync(`${folder}tune.sh`, args, { env, encoding: 'utf8' }),
  };
}

test('every line of the settings has a reason, a source and a check', () => {
  const commented = [...conf.matchAll(/(?:^#.*\n)+^-?[a-z][\w.-]+ = .+$/gm)];
  assert.equal(commented.length, wanted.size);
  for (const [setting] of commented) {
    for (const word of ['why', 'source', 'check'])
      assert.match(setting, new RegExp(`^# ${word}: `, 'm'), setting);
  }
  const limits = readFileSync(`${folder}limits.conf`, 'utf8');
  for (const word of ['why', 'source', 'check'])
    assert.match(limits, new RegExp(`^# ${word}: `, 'm'));
});

test('diff shows every setting, changes nothing, and exits with 1', (t) => {
  const one = machine(t);
  const { status, stdout } = one.tune('diff');
  assert.equal(status, 1);
  for (const [key, value] of wanted) {
    const line = stdout.split('\n').find((text) => text.startsWith(`${key} `)) ?? '';
    assert.ok(line.includes(` ${value} `), `${key}: ${line}`);
    if (value !== '1') assert.match(line, /apply (sets|tries to set) it$/);
    assert.equal(one.read(key), '1');
  }
  assert.ok(!existsSync(join(one.root, 'etc')));
});

test('apply sets the differing values and keeps them over a reboot; then verify passes and diff is empty', (t) => {
  const one = machine(t);
  assert.equal(one.tune('verify').status, 1);
  const { status, stdout, stderr } = one.tune('apply');
  assert.equal(stderr, '');
  assert.equal(status, 0, stdout);
  for (const [key, value] of wanted) assert.equal(one.read(key), value, key);
  assert.equal(one.written(), conf);
  const limits = join(one.root, 'etc/security/limits.d/99-fanfare.conf');
  assert.equal(readFileSync(limits, 'utf8'), readFileSync(`${folder}limits.conf`, 'utf8'));
  assert.equal(one.tune('verify').status, 0);
  assert.equal(one.tune('diff').status, 0);
});

test('a larger value is not lowered, neither now nor at a reboot', (t) => {
  const more = {
    'fs.file-max': '9223372036854775807',
    'net.core.somaxconn': '131072',
    'net.ipv4.ip_local_port_range': '1024 65535',
  };
  const one = machine(t, more);
  const { status, stdout } = one.tune('apply');
  assert.equal(status, 0, stdout);
  for (const [key, value] of Object.entries(more)) {
    assert.equal(one.read(key), value);
    assert.match(one.written(), new RegExp(`^${key} = ${value}$`, 'm'));
  }
  // A range that begins lower but ends earlier is not more.
  const other = machine(t, { 'net.ipv4.ip_local_port_range': '1024 60999' });
  other.tune('apply');
  assert.equal(other.read('net.ipv4.ip_local_port_range'), '10000 65535');
  // A setting that is not a limit is set, not compared.
  assert.equal(machine(t, { 'net.ipv4.tcp_orphan_retries': '8' }).tune('verify').status, 1);
});

test('a missing key is an error, unless its line may fail', (t) => {
  const optional = machine(t, {
    'net.netfilter.nf_conntrack_max': null,
    'net.core.netdev_max_backlog': null,
  });
  assert.equal(optional.tune('apply').status, 0);
  assert.match(optional.tune('diff').stdout, /nf_conntrack_max +- .*not on this machine/);
  const { status, stderr } = machine(t, { 'net.core.somaxconn': null }).tune('apply');
  assert.equal(status, 1);
  assert.match(stderr, /net\.core\.somaxconn is not there, not 65535/);
});

test('a value that cannot be set is reported, and the exit code is 1', (t) => {
  const one = machine(t, { 'net.core.somaxconn': null });
  // Not even root may write to this one.
  symlinkSync('/proc/sys/kernel/cap_last_cap', one.pathOf('net.core.somaxconn'));
  const { status, stderr } = one.tune('apply');
  assert.equal(status, 1);
  assert.match(stderr, /net\.core\.somaxconn: cannot be set, left at \d+/);
});

test('any other command line is answered with the usage', (t) => {
  const one = machine(t);
  for (const args of [[], ['set'], ['diff', 'apply']]) {
    const { status, stderr } = one.tune(...args);
    assert.equal(status, 64);
    assert.match(stderr, /tune\.sh diff/);
  }
});

test('a real kernel accepts the network settings', {
  skip: !canUnshare && 'needs root and namespaces',
}, (t) => {
  const etc = temporaryFolder(t);
  // Only settings of the namespace change; the others stay.
  const keys = [...wanted.keys()].filter((key) => /^net\.(ipv4\.|core\.somaxconn)/.test(key));
  const read = `for key in ${keys.join(' ')}; do sysctl -n $key | xargs; done`;
  const script = `mount --bind "$PROC_FS" /proc/sys/fs && ${folder}tune.sh apply >&2 && ${read}`;
  const fs = temporaryFolder(t);
  for (const name of ['file-max', 'nr_open']) writeFileSync(join(fs, name), '1\n');
  const { status, stdout, stderr } = spawnSync(
    'unshare',
    ['--net', '--mount', 'bash', '-c', script],
    {
      env: { ...process.env, ETC: etc, PROC_FS: fs },
      encoding: 'utf8',
    },
  );
  assert.equal(status, 0, stderr);
  assert.deepEqual(
    stdout.trim().split('\n'),
    keys.map((key) => wanted.get(key)),
  );
});
