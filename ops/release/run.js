// run.js: runs a command of a release, and throws with its errors if it fails.

import { spawnSync } from 'node:child_process';

/**
 * @param {string} cwd
 * @param {string} command
 * @param {...string} args
 * @returns {string} its output
 */
export function run(cwd, command, ...args) {
  return runWith({ cwd }, command, ...args);
}

/**
 * @param {import('node:child_process').SpawnSyncOptions} options
 * @param {string} command
 * @param {...string} args
 * @returns {string} its output
 */
export function runWith(options, command, ...args) {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    maxBuffer: 64 * 1024 * 1024,
    ...options,
    encoding: 'utf8',
  });
  if (status === 0) return stdout?.trim() ?? '';
  throw new Error(`${command} ${args.join(' ')}: ${error?.message ?? `${stderr}${stdout}`}`);
}

/**
 * Does a command work here?
 * @param {string} command @param {...string} args
 */
export function hasCommand(command, ...args) {
  return spawnSync(command, args.length > 0 ? args : ['--version']).status === 0;
}
