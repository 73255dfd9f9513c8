#!/usr/bin/env node
// observe.js: runs an Artillery scenario beside a client that watches the room, and holds what Artillery says against
// what arrived.
//
//   node loadtest/artillery/observe.js loadtest/artillery/general.yml [--room general] [--messages 3000]
//                                      [--duration s] [--arrivals n] [--url ws://…]
//
// Without --url it starts a server of its own. --duration and --arrivals shorten the scenario's only phase, and the
// messages expected follow from them.

import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { run } from '../lib/run.js';
import { NO_LIMITS, startServer, until, urlOf } from '../lib/server.js';
import { WsClient } from '../lib/ws-client.js';

const MESSAGES_PER_CLIENT = 10;
const ARRIVE_MS = 10_000;

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    room: { type: 'string', default: 'general' },
    duration: { type: 'string', default: '30' },
    arrivals: { type: 'string', default: '10' },
    messages: { type: 'string' },
    url: { type: 'string' },
  },
});
const scenario = positionals[0] ?? 'loadtest/artillery/general.yml';
const [duration, arrivals] = [Number(options.duration), Number(options.arrivals)];
const expected = Number(options.messages ?? duration * arrivals * MESSAGES_PER_CLIENT);

await run(
  `artillery: ${scenario}, ${arrivals} arrivals a second for ${duration} s, beside an observer`,
  async (test) => {
    const url = options.url ?? urlOf(await startServer(test, { ...NO_LIMITS }));
    let seen = 0;
    let others = 0;
    const observer = new WsClient(url, {
      onText: (text) => {
        const message = JSON.parse(text);
        if (message.type !== 'message') return;
        if (message.room === options.room && message.payload === 'Load test message') seen++;
        else others++;
      },
    });
    await observer.open();
    test.after(() => observer.destroy());
    await observer.request({ type: 'join', room: options.room });

    const folder = await mkdtemp(join(tmpdir(), 'fanfare-artillery-'));
    test.after(() => rm(folder, { recursive: true, force: true }));
    const output = join(folder, 'report.json');
    const overrides = JSON.stringify({ config: { phases: [{ duration, arrivalRate: arrivals }] } });
    const code = await artillery(test, [
      'run',
      '--target',
      url,
      '--overrides',
      overrides,
      '--output',
      output,
      scenario,
    ]);
    test.check('artillery’s exit code', 0, code);

    const { aggregate } = JSON.parse(await readFile(output, 'utf8'));
    const counters = /** @type {Record<string, number>} */ (aggregate.counters);
    const errors = Object.entries(counters).filter(([name]) => name.startsWith('errors.'));
    test.check('clients that came', duration * arrivals, counters['vusers.created']);
    test.check('clients that finished', duration * arrivals, counters['vusers.completed']);
    test.check('clients that failed', 0, counters['vusers.failed'] ?? 0);
    test.check(
      'errors',
      0,
      errors.reduce((sum, [, n]) => sum + n, 0),
    );
    for (const [name, n] of errors) test.note(name, n);
    await until(() => seen >= expected, ARRIVE_MS).catch(() => {}); // what is missing is told by the check
    test.check('messages the observer got', expected, seen);
    test.check('other messages', 0, others);
  },
  (duration + 90) * 1000,
);

/**
 * @param {import('../lib/run.js').Run} test
 * @param {string[]} args
 * @returns {Promise<number|null>} its exit code
 */
function artillery(test, args) {
  const manifest = createRequire(import.meta.url).resolve('artillery/package.json');
  const env = { ...process.env, ARTILLERY_DISABLE_TELEMETRY: 'true' };
  const child = spawn(process.execPath, [join(dirname(manifest), 'bin', 'run'), ...args], { env });
  test.after(() => child.kill('SIGKILL'));
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += data));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code) => {
      if (code !== 0) console.log(said);
      resolve(code);
    });
  });
}
