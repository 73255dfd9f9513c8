// private-network.js: runs a script again in a network namespace of its own, so that its firewall
// rules affect no other program.
//
// The namespace has a loopback interface and nothing else. It ends, with all its rules, when the
// last process in it ends. It needs Linux, root, and the commands unshare, ip and iptables.

import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { constants } from 'node:os';
import { test } from 'node:test';
import { promisify } from 'node:util';

const INSIDE = 'FANFARE_TEST_NETWORK';
const run = promisify(execFile);

/** Debian keeps ip and iptables outside a normal user's PATH. */
const env = { ...process.env, PATH: `${process.env.PATH}:/usr/local/sbin:/usr/sbin:/sbin` };

/** Is this process in a network of its own? */
export const isPrivate = process.env[INSIDE] === 'yes';

/** Could it be? */
export function canBePrivate() {
  return spawnSync('unshare', ['--net', 'iptables', '-L'], { env }).status === 0;
}

/**
 * The command that runs a script in a network of its own.
 * @param {string} script @param {readonly string[]} [args]
 * @returns {{command: string, args: string[], env: NodeJS.ProcessEnv}}
 */
function privately(script, args = []) {
  const shell = ['sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];
  return {
    command: 'unshare',
    args: ['--net', ...shell, process.execPath, script, ...args],
    env: { ...env, [INSIDE]: 'yes' },
  };
}

/**
 * Runs a script in a network of its own, passes signals on to it and ends as it ends.
 * @param {string} script @param {readonly string[]} args @returns {Promise<never>}
 */
export function becomePrivate(script, args) {
  const inside = privately(script, args);
  const child = spawn(inside.command, inside.args, { env: inside.env, stdio: 'inherit' });
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM']))
    process.on(signal, () => child.kill(signal));
  return new Promise((_, reject) => {
    child.on('error', reject);
    child.on('exit', (code, signal) =>
      process.exit(code ?? 128 + constants.signals[signal ?? 'SIGKILL']),
    );
  });
}

/**
 * Declares tests that run in a network of their own, where there can be one: their file is run
 * again in there.
 * @param {string} title of all of them
 * @param {string} file
 * @param {import('node:test').TestOptions} options
 * @param {() => void} declare
 */
export function testPrivately(title, file, options, declare) {
  if (isPrivate) {
    declare();
    return;
  }
  const skip = canBePrivate() ? false : 'needs root, unshare, ip and iptables';
  test(title, { ...options, skip }, (t) => {
    const { command, args, env } = privately(file);
    delete env.NODE_TEST_CONTEXT;
    const { status, stdout, stderr } = spawnSync(command, args, { env, encoding: 'utf8' });
    for (const [, figure] of stdout.matchAll(/^ {0,4}(?:#|ℹ) (.+: .+)$/gm)) t.diagnostic(figure);
    assert.equal(status, 0, stdout + stderr);
  });
}

/** Firewall rules of this network: packets that match are dropped. */
export class Firewall {
  /** @param {readonly (readonly string[])[]} matches matches of iptables, one rule each */
  constructor(matches) {
    this.matches = matches;
  }

  async add() {
    for (const match of this.matches) await iptables('-A', 'INPUT', ...match, '-j', 'DROP');
  }

  /** @returns {Promise<number>} how many packets the rules have dropped */
  async remove() {
    const rules = await iptables('-nvxL', 'INPUT');
    for (const match of this.matches) await iptables('-D', 'INPUT', ...match, '-j', 'DROP');
    const dropped = [...rules.matchAll(/^\s*(\d+)\s+\d+\s+DROP/gm)];
    return dropped.reduce((sum, [, packets]) => sum + Number(packets), 0);
  }
}

/** @param {...string} args @returns {Promise<string>} */
async function iptables(...args) {
  // Elsewhere a rule would hit other programs' connections.
  if (!isPrivate) throw new Error('firewall rules need a network of their own');
  const { stdout } = await run('iptables', ['-w', ...args], { env });
  return stdout;
}
