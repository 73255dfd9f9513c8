// smoke.js: one fault during a workload of seconds, with a check of the whole record. Every row of
// the fault suite uses it.

import assert from 'node:assert/strict';
import { startTrial } from '../checker/trial.js';
import { pause } from '../harness/run.js';

/** Service as it should be, before the fault and after it. */
const CALM_MS = 2000;
/**
 * Of a test: starting, the fault, coming back, up to 15 s for the markers and as many for counters
 * to return.
 */
export const OPTIONS = Object.freeze({ timeout: 120_000 });

/** @typedef {import('../checker/trial.js').Trial} Trial */
/** @typedef {import('../checker/trial.js').Setting} Setting */
/** @typedef {import('../checker/checker.js').Report} Report */

/**
 * Runs the workload, with `faults` in the middle of it, and checks that nothing was violated.
 * @param {import('node:test').TestContext} t
 * @param {Partial<Omit<Setting, 'load'>> & {load?: Partial<Setting['load']>, calmMs?: number, expectedLog?: RegExp}}
 *   setting `calmMs`: service before the faults, and after them; `expectedLog`: errors that the
 *   faults make servers log
 * @param {(trial: Trial) => Promise<unknown>} faults
 * @returns {Promise<{trial: Trial, report: Report}>}
 */
export async function smoke(t, setting, faults) {
  const load = {
    clients: 50,
    rooms: 10,
    hasHistory: true,
    roomsPerClient: 3,
    publishers: 10,
    rate: 200,
    ...setting.load,
  };
  const trial = await startTrial(t, { servers: 1, workers: 2, ...setting, load });
  await trial.begin();
  await pause(setting.calmMs ?? CALM_MS);
  await faults(trial);
  await pause(setting.calmMs ?? CALM_MS);
  const report = await trial.finish();
  for (const [what, figure] of report.figures.rows()) t.diagnostic(`${what}: ${figure}`);
  const found = report.findings.flatMap(({ id, violations, examples }) =>
    violations === 0 ? [] : [`${id} ${violations} times: ${examples.join('; ')}`],
  );
  assert.deepEqual(found, []);
  assert.ok(report.isComplete);
  assert.deepEqual(
    trial.oddities().filter((text) => !setting.expectedLog?.test(text)),
    [],
  );
  return { trial, report };
}

/**
 * Milliseconds until something is so, looked at every 10 ms.
 * @param {() => unknown} condition @param {number} withinMs @param {string} what
 */
export async function tookMs(condition, withinMs, what) {
  const started = performance.now();
  while (!(await condition())) {
    if (performance.now() - started > withinMs)
      throw new Error(`not within ${withinMs} ms: ${what}`);
    await pause(10);
  }
  return performance.now() - started;
}

/**
 * Has a server's log a line like this that it had not?
 * @param {import('../checker/trial.js').Fanfare} server @param {RegExp} pattern
 */
export function newLine(server, pattern) {
  const before = server.lines.length;
  return () => server.lines.slice(before).find(({ msg }) => pattern.test(msg));
}

/** The clients whose connections were closed. @param {Trial} trial */
export function closedClients({ workload }) {
  return workload.clients.filter(({ closes }) => closes.length > 0);
}

/**
 * How often clients are members of rooms with history.
 * @param {readonly import('../checker/client.js').RecoveringClient[]} clients
 */
export function historyMemberships(clients) {
  return clients.flatMap(({ places }) => [...places.keys()].filter((room) => room.startsWith('h.')))
    .length;
}
