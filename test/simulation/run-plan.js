// run-plan.js: runs a plan in a process of its own.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('simulate.js', import.meta.url));
/** A run takes seconds; on a busy machine, at the lowest priority, many minutes. */
const TIMEOUT_MS = 3_600_000;
/** Each process has functions of its own, so most run too seldom for the optimizing compiler. */
const FLAGS = ['--no-warnings', '--always-sparkplug'];

/** @import { Plan } from './simulation.js' */
/** @import { Summary } from './story.js' */

/**
 * @param {Plan} plan @param {object} [options]
 * @param {readonly string[]} [options.trees] as World has them
 * @param {string} [options.trace] a file that gets all events
 * @returns {Promise<Summary>} rejects if the run ends without a result
 */
export function runPlan(plan, { trees = [], trace } = {}) {
  return new Promise((resolve, reject) => {
    const more = [
      ...trees.flatMap((tree) => ['--tree', tree]),
      ...(trace ? ['--trace', trace] : []),
    ];
    const one = spawn(process.execPath, [...FLAGS, PROGRAM, '--child', ...more], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const timer = setTimeout(() => one.kill('SIGKILL'), TIMEOUT_MS);
    let text = '';
    one.stdout.setEncoding('utf8').on('data', (part) => {
      text += part;
    });
    one.on('close', (code, signal) => {
      clearTimeout(timer);
      try {
        resolve(JSON.parse(text));
      } catch {
        reject(
          new Error(`seed ${plan.seed}: the run ended with ${code ?? signal}, without a result`),
        );
      }
    });
    one.stdin.on('error', () => {});
    one.stdin.end(JSON.stringify(plan));
  });
}
