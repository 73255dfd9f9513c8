#!/usr/bin/env node
// artillery.js: starts Artillery, or prints in one line what is missing.
//
//   npm run loadtest [-- options of Artillery]        runs `artillery run loadtest/smoke.yml`
//
// Artillery is a development dependency: `npm ci --omit=dev` leaves it out.

import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
import { NOT_RUN } from '../../test/harness/options.js';

/** The default target: where `npm start` with the same environment listens. */
export const TARGET = `ws://localhost:${process.env.PORT || 3000}`;
const DIAL_MS = 5000;

/** @returns {string} the script that is Artillery; ends the process if it is not installed */
export function findArtillery() {
  try {
    return join(
      dirname(createRequire(import.meta.url).resolve('artillery/package.json')),
      'bin',
      'run',
    );
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'MODULE_NOT_FOUND') throw error;
    refuse(
      'Artillery is not installed: run `npm ci`, which installs the development dependencies, too',
    );
  }
}

/** @param {string[]} args @param {import('node:child_process').StdioOptions} stdio */
export function startArtillery(args, stdio) {
  return spawn(process.execPath, [findArtillery(), 'run', ...args], { stdio });
}

/**
 * Looks whether a WebSocket server is there before hundreds of users find out one by one. Ends the
 * process if not.
 * @param {string} target
 */
export async function needServer(target) {
  const ws = new WebSocket(target, { handshakeTimeout: DIAL_MS });
  await new Promise((resolve) => {
    ws.once('open', resolve);
    ws.once('error', (/** @type {NodeJS.ErrnoException} */ { code, message }) => {
      if (code === 'ECONNREFUSED')
        refuse(`nothing listens at ${target}: start a server with FANFARE_LIMITS=off npm start`);
      refuse(`${target}: ${message || code}`);
    });
  });
  ws.terminate();
}

/** @param {string} why @returns {never} */
function refuse(why) {
  process.stderr.write(`${why}\n`);
  process.exit(NOT_RUN);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const args = process.argv.slice(2);
  findArtillery();
  const at = args.findLastIndex((arg) => /^(--target|-t)(=|$)/.test(arg));
  if (!args.includes('--help'))
    await needServer(at < 0 ? TARGET : (args[at].split('=')[1] ?? args[at + 1] ?? TARGET));
  const scenario = fileURLToPath(new URL('../smoke.yml', import.meta.url));
  const target = at < 0 && process.env.PORT ? ['--target', TARGET] : [];
  const child = startArtillery([...target, ...args, scenario], 'inherit');
  // Ctrl-C reaches the whole group, so that Artillery gets it by itself; it prints its report and
  // ends.
  process.on('SIGINT', () => {});
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  child.on('exit', (code) => process.exit(code ?? 1));
}
