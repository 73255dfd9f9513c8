#!/usr/bin/env node
// main.js: the entry point: reads the configuration, then is the primary, one of its workers, or
// the doctor.
//
// The only file that reads the environment. A primary adds the values of FANFARE_CONFIG_FILE to the
// environment of the workers it forks, so that a worker never reads the file and all workers of one
// roll agree.

import cluster from 'node:cluster';
import { readFile } from 'node:fs/promises';
import { isatty } from 'node:tty';
import { fileURLToPath } from 'node:url';
import { changedFixed, loadConfig, parseConfigFile } from './config/config.js';
import { createLog } from './observability/log.js';

/** sysexits.h: EX_CONFIG. */
const EXIT_CONFIG = 78;

/** @typedef {import('./config/settings.js').Config} Config */
/** @typedef {import('./primary/supervisor.js').Settings} Settings */

// Rooms of the other kind of process are never loaded: a primary needs no hub, a worker no
// supervisor.
if (cluster.isWorker) await worker();
else if (process.argv[2] === 'doctor') await doctor();
else await primary();

async function primary() {
  const { settings, faults } = await readSettings();
  if (!settings) return refuse(faults);
  const { runPrimary } = await import('./primary/primary.js');
  await runPrimary({
    settings,
    loadSettings: (previous) => reloadSettings(previous, settings),
    exec: fileURLToPath(import.meta.url),
    onTerminal: isatty(0) || isatty(1),
    log: logFor(settings.config),
  });
}

async function worker() {
  // The terminal's Ctrl-C reaches workers too, and may come before they are up; the primary says
  // what becomes of it.
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']))
    process.on(signal, () => {});
  const { config, faults } = loadConfig(process.env);
  if (!config) return refuse(faults);
  const { runWorker } = await import('./worker/process.js');
  runWorker(config, logFor(config));
  // What the primary said while modules were loading nobody has heard: it waits for this.
  process.send?.({ type: 'loaded' });
}

/** `npm run doctor`: what will this machine hold? */
async function doctor() {
  const { runDoctor } = await import('./doctor/doctor.js');
  process.exitCode = await runDoctor({ args: process.argv.slice(3), loadSettings: readSettings });
}

/**
 * The environment over the configuration file.
 * @param {Readonly<Record<string, string|undefined>>} [environment]
 * @returns {Promise<{settings: Settings|null, faults: string[]}>}
 */
async function readSettings(environment = process.env) {
  const path = environment.FANFARE_CONFIG_FILE ?? '';
  /** @type {{env: Record<string, string>, faults: string[]}} */
  let file = { env: {}, faults: [] };
  if (path !== '') {
    try {
      file = parseConfigFile(await readFile(path, 'utf8'));
    } catch (error) {
      file.faults.push(
        `FANFARE_CONFIG_FILE: cannot read ${path}: ${/** @type {Error} */ (error).message}`,
      );
    }
  }
  const env = { ...file.env, ...environment };
  const { config, faults } = loadConfig(env);
  const all = [...file.faults, ...faults];
  return { settings: config && all.length === 0 ? { config, env } : null, faults: all };
}

/**
 * For a reload: also refuses what only a restart can change.
 * @param {Config} previous
 * @param {Settings} fallback returned beside faults, where it is not used
 */
async function reloadSettings(previous, fallback) {
  const { settings, faults } = await readSettings();
  if (!settings) return { settings: fallback, faults };
  const fixed = changedFixed(previous, settings.config);
  return {
    settings,
    faults: fixed.map((name) => `${name} cannot be changed by a reload: restart the server`),
  };
}

/** @param {Config} config */
function logFor({ logLevel, logFormat, serverId }) {
  const { NODE_ENV, NO_COLOR = '', TERM } = process.env;
  const format = logFormat === 'auto' && NODE_ENV === 'production' ? 'json' : logFormat;
  // https://no-color.org: set, to whatever, but not empty.
  return createLog({
    level: logLevel,
    name: serverId,
    format,
    colour: NO_COLOR === '' && TERM !== 'dumb',
  });
}

/** All faults at once: one start, not one for each. @param {readonly string[]} faults */
function refuse(faults) {
  process.stderr.write(
    `fanfare cannot start, the configuration is invalid:\n${faults.map((fault) => `  ${fault}\n`).join('')}`,
  );
  process.exitCode = EXIT_CONFIG;
  // A worker's channel to its primary would keep it alive.
  if (cluster.isWorker) process.exit(EXIT_CONFIG);
}
